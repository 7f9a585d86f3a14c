"""The parts of a recording brought together: from a shared directory, or from the daemons of the nodes over the RPC.

In a shared directory they are there already, as soon as each node has finished. Elsewhere the daemon of each node sends
the files of that node's directory (serving.py). Clocks are compared while it is asked, and the offset is kept in the
part's recording.json. A node that cannot be had is named with the reason, and costs nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sonde.errors import RpcError, SondeError, TimedOut, Unavailable
from sonde.jobs.recording import ABOUT, About, open_node, parse_about, write_about
from sonde.rpc import clocks
from sonde.rpc.client import call, stream
from sonde.rpc.clocks import Offset
from sonde.rpc.receipt import Receipt
from sonde.units import human_bytes

if TYPE_CHECKING:
    import ssl

_LARGEST = 64 * 10**9  # bytes of one file
_LIST_SECONDS = 5.0
_PIECE_SECONDS = 30.0
_LOOK_SECONDS = 0.2
_TRIES = 3

Moved = Callable[[str, int, int], None]  # host, bytes so far, bytes in all


class Part(NamedTuple):
    """What became of a node's part: its directory, or why it is not there."""

    host: str
    directory: str = ""
    error: str = ""
    bytes: int = 0


def wait_for(path: str, hosts: Iterable[str], seconds: float) -> list[str]:
    """Wait until these hosts have finished their parts in a shared directory; those that have not by then.

    A part that is there and not finished is worth waiting for. When none of the others has left anything at all after a
    second or two, the directory is not shared.
    """
    missing = list(hosts)
    begun = time.monotonic()
    while missing := [host for host in missing if not _is_finished(os.path.join(path, host))]:
        waited = time.monotonic() - begun
        started = any(os.path.exists(os.path.join(path, host, ABOUT)) for host in missing)
        if waited > (seconds if started else min(seconds, 2.0)):
            break
        time.sleep(_LOOK_SECONDS)
    return missing


def _is_finished(directory: str) -> bool:
    try:
        return open_node(directory).about.ended_ns is not None
    except (OSError, SondeError):
        return False


def fetched(
    path: str,
    addresses: Mapping[str, str],
    *,
    source: str = "",
    tls: ssl.SSLContext | None = None,
    moved: Moved = lambda host, done, whole: None,
) -> Iterator[Part]:
    """Fetch the parts of hosts from the daemons at their addresses, one after the other, with their clocks.

    `source` is the path that the recording has on those nodes, if it is another than here. A part that is here already
    and finished is not fetched again.
    """
    source = os.path.abspath(source or path)
    offsets = clocks.measure(addresses.values(), tls=tls) if addresses else {}
    for host, address in addresses.items():
        offset = offsets.get(address)
        try:
            if isinstance(offset, SondeError):
                raise offset  # nobody answers there: not to be waited for once more
            part = _part(path, host, address, source, tls, moved)
        except (SondeError, OSError) as error:
            yield Part(host, error=str(error))
            continue
        _keep_clock(part.directory, offset)
        yield part


def _part(path: str, host: str, address: str, source: str, tls: ssl.SSLContext | None, moved: Moved) -> Part:
    directory = os.path.join(path, host)
    if _is_finished(directory):
        return Part(host, directory)
    told = _listed(address, tls, source, host)
    files = dict(told["files"])
    whole = sum(files.values())
    os.makedirs(directory, exist_ok=True)
    done = 0
    for name in sorted(files, key=lambda name: name == ABOUT):  # what makes it a recording comes last
        if os.path.basename(name) != name or name.startswith("."):
            raise RpcError("garbled", f"{address} names a file {name!r}")
        done += _file(directory, name, address, tls, {"path": source, "host": host}, lambda n: moved(host, n, whole))
    return Part(host, directory, bytes=done)


def _listed(address: str, tls: ssl.SSLContext | None, source: str, host: str) -> dict[str, Any]:
    told = call(address, "record.list", timeout=_LIST_SECONDS, tls=tls, path=source, host=host)
    if told.get("busy"):
        raise Unavailable("it is still being recorded there", hint="gather it when the job has ended")
    parse_about(told.get("about", {}), f"{address}: {ABOUT}")
    if not isinstance(told.get("files"), dict):
        raise RpcError("garbled", f"{address} lists no files")
    return told


def _file(
    directory: str,
    name: str,
    address: str,
    tls: ssl.SSLContext | None,
    where: Mapping[str, str],
    moved: Callable[[int], None],
) -> int:
    for left in reversed(range(_TRIES)):
        try:
            return _received(directory, name, address, tls, where, moved)
        except (RpcError, TimedOut) as error:
            lasting = isinstance(error, RpcError) and error.code not in ("busy", "closed", "timed-out", "garbled")
            if lasting or not left:
                raise
            time.sleep(_LOOK_SECONDS)
    raise AssertionError("unreachable")


def _received(
    directory: str,
    name: str,
    address: str,
    tls: ssl.SSLContext | None,
    where: Mapping[str, str],
    moved: Callable[[int], None],
) -> int:
    part = os.path.join(directory, f".{name}.part")
    receipt = Receipt(_LARGEST, lambda size: f"{name} has {human_bytes(size)} or more: that is no recording")
    try:
        with open(part, "wb") as file:
            for message in stream(address, "record.fetch", timeout=_PIECE_SECONDS, tls=tls, file=name, **where):
                file.write(receipt.take_plain(message))
                moved(receipt.size)
        receipt.verify()
        os.replace(part, os.path.join(directory, name))
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
    return receipt.size


def measure_clocks(path: str, addresses: Mapping[str, str], tls: ssl.SSLContext | None = None) -> list[str]:
    """Keep the clock offsets of parts that are here already; the hosts whose clock could not be compared."""
    offsets = clocks.measure(addresses.values(), timeout=2.0, tls=tls) if addresses else {}
    return [
        host for host, address in addresses.items() if not _keep_clock(os.path.join(path, host), offsets.get(address))
    ]


def _keep_clock(directory: str, offset: Offset | SondeError | None) -> bool:
    if not isinstance(offset, Offset):
        return False
    try:
        about: About = open_node(directory).about
    except (OSError, SondeError):
        return False
    write_about(directory, about._replace(clock={"offset_ns": offset.offset_ns, "bound_ns": offset.bound_ns}))
    return True


def missing_parts(path: str, hosts: Sequence[str]) -> list[str]:
    """Of these hosts, those that have left nothing here."""
    return [host for host in hosts if not os.path.exists(os.path.join(path, host, ABOUT))]
