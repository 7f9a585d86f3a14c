"""Asking a thousand hosts from one thread: CPU per host, plain and with certificates; memory; what dead hosts delay.

The hosts are stubs on 127.1.x.y, all in one other process (tests/fleet.py). What is measured is the asking thread's
CPU, system calls included, and on loopback those include the kernel's work for both ends of a connection.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from tests.authority import Authority, Pair
from tests.fleet import SHARING, fleet, host

from benchmarks.harness import Row
from sonde.rpc.clocks import Offset
from sonde.rpc.clocks import measure as measure_clocks
from sonde.rpc.fanout import Call, fan_out

HOSTS = 1000
MANY = 5000
_ROUNDS = 7
_PATIENCE = 60.0  # seconds; the stubs of all hosts share one processor
_SHIFT_NS = 7_000_000_003

CHILD = """
import resource, sys
from benchmarks.fanout import ask, client_context
addresses = [f"{host}:{sys.argv[1]}" for host in sys.stdin.read().split()]
ask(addresses, client_context(*sys.argv[2:]) if sys.argv[2:] else None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def ask(addresses: Sequence[str], tls: ssl.SSLContext | None) -> float:
    """Microseconds of CPU per host. Raises SystemExit when one did not answer."""
    begun = time.thread_time_ns()
    outcomes = list(fan_out((Call(address, "getStatus") for address in addresses), tls=tls, timeout=_PATIENCE))
    cost = time.thread_time_ns() - begun
    errors = [outcome.error for outcome in outcomes if outcome.reply != {"status": 1}]
    if errors or len(outcomes) != len(addresses):
        raise SystemExit(f"{len(errors)} of {len(addresses)} hosts failed: {errors[:1]}")
    return cost / len(addresses) / 1e3


def client_context(ca: str, certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    context.load_cert_chain(certificate, key)
    return context


def certified(folder: Path, count: int) -> tuple[list[str], tuple[str, str, str]]:
    """What the fleet is started with, and what a client needs: P-256, ten hosts to a certificate."""
    authority = Authority(folder)
    for group in range(0, count, SHARING):
        names = ",".join(f"IP:{host(number)}" for number in range(group, group + SHARING))
        authority.signed(f"host{group // SHARING}", names=names)
    own: Pair = authority.signed("client")
    # With its authority's certificate behind ours in the file, OpenSSL need not look for it at each handshake.
    Path(own.certificate).write_text(Path(own.certificate).read_text() + Path(authority.ca).read_text())
    options = ["--certificate", f"{folder}/host%d.crt", "--key", f"{folder}/host%d.key", "--ca", authority.ca]
    return options, (authority.ca, *own)


def resident(addresses: Sequence[str], *files: str) -> float:
    """The most megabytes a process has held that asked all of these."""
    port = addresses[0].rpartition(":")[2]
    hosts = "\n".join(address.rpartition(":")[0] for address in addresses)
    command = [sys.executable, "-c", CHILD, port, *files]
    done = subprocess.run(command, input=hosts, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


@contextmanager
def dead() -> Iterator[list[str]]:
    """Fifty addresses: 20 refuse, 15 accept and say nothing, 15 do not even answer to a connection."""
    with ExitStack() as stack:
        addresses = []
        for number in range(50):
            server = stack.enter_context(socket.create_server((host(20_000 + number), 0), backlog=0))
            name = server.getsockname()
            addresses.append(f"{name[0]}:{name[1]}")
            if number < 20:
                server.close()
            for _ in range(4 if number >= 35 else 0):  # its queue is full, and the kernel drops what else comes
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(name)
        yield addresses


def until_all_live(live: Sequence[str], others: Sequence[str]) -> float:
    """Seconds until the last of the live hosts has answered; the others are spread among the first half of them."""
    addresses = list(live)
    for number, address in enumerate(others):
        addresses.insert(number * 10, address)
    left = set(live)
    begun = time.monotonic()
    for outcome in fan_out(Call(address, "getStatus") for address in addresses):
        if outcome.reply is not None:
            left.discard(outcome.address)
        if not left:
            return time.monotonic() - begun
    raise SystemExit(f"{len(left)} live hosts did not answer")


def delays(live: Sequence[str]) -> tuple[float, str]:
    """Milliseconds by which dead hosts delay the last of the live ones, and what it is made of."""
    columns: tuple[list[float], ...] = ([], [], [])
    with dead() as others:
        for _ in range(_ROUNDS * 3):
            for column, extra in zip(columns, ([], others, []), strict=True):
                column.append(until_all_live(live, extra) * 1e3)
    without, beside, again = (median(column) for column in columns)
    return beside - without, f"after {beside:.0f} ms, without them {without:.0f}, A/A {again - without:+.0f}"


def clocks(count: int) -> tuple[int, str]:
    """How many true offsets lie outside their bounds, and how wide these are."""
    with fleet(count, "--shift-ns", str(_SHIFT_NS)) as hosts:
        begun = time.monotonic()
        found = measure_clocks(hosts.addresses)
        took = time.monotonic() - begun
    outside, bounds = 0, []
    for number, address in enumerate(hosts.addresses):
        result = found[address]
        if not isinstance(result, Offset):
            raise SystemExit(f"no clock: {result}")
        outside += abs(result.offset_ns - (number + 1) * _SHIFT_NS) > result.bound_ns
        bounds.append(result.bound_ns / 1e3)
    return outside, f"{count}: ±{median(bounds):.0f} µs (median), ±{max(bounds):.0f} (widest) in {took:.1f} s"


def measure() -> list[dict[str, object]]:
    with fleet(HOSTS) as hosts:
        costs = [ask(hosts.addresses, None) for _ in range(_ROUNDS)]
        delay, times = delays(hosts.addresses)
    with fleet(MANY) as hosts:
        memory = resident(hosts.addresses)
    with tempfile.TemporaryDirectory() as folder:
        options, files = certified(Path(folder), MANY)
        with fleet(MANY, *options) as hosts:
            context = client_context(*files)
            secured = [ask(hosts.addresses[:HOSTS], context) for _ in range(_ROUNDS)]
            more = resident(hosts.addresses, *files)
    checked = [clocks(count) for count in (1, 10, 500)]
    spread = f"{min(costs):.0f} to {max(costs):.0f} µs"
    secured_spread = f"{min(secured) / 1e3:.2f} to {max(secured) / 1e3:.2f} ms"
    outside = sum(count for count, _ in checked)
    widths = "; ".join(text for _, text in checked)
    return [
        Row("1,000 hosts asked by one thread: CPU per host", median(costs), "µs", 250.0, spread).as_dict(),
        Row(
            "the same with P-256 certificates of both sides", median(secured) / 1e3, "ms", 2.5, secured_spread
        ).as_dict(),
        Row("most memory of a process that asks 5,000 hosts", memory, "MB", 250.0).as_dict(),
        Row("the same with certificates", more, "MB", 250.0).as_dict(),
        Row("50 dead hosts delay the last of 1,000 live ones by", delay, "ms", 50.0, times).as_dict(),
        Row("clocks of 1, 10 and 500 hosts that are outside their bounds", outside, "", 0.0, widths).as_dict(),
    ]


if __name__ == "__main__":
    for row in measure():
        print(row)
