"""The datagrams of libkineto and dynolog: one AF_UNIX datagram is a header of 40 bytes and its payload.

    28 00 00 00 00 00 00 00   72 65 71 00 … (32 bytes)   payload size 40, type "req"
    03 00 00 00  06 00 00 00  00 00 00 00 00 00 00 00    kinds 3, six pids, job 0
    d3 04 00 00 …                                        the pids: the process itself, then its ancestors

Numbers have the byte order of the machine, because both ends are on it. A client sends `ctxt` (never seen from torch
2.13) and `req`; the daemon answers each to the address it came from, with the same type. A parser returns or raises
WireError, nothing else.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

CONTEXT = b"ctxt"
REQUEST = b"req"

# Bits of Request.kinds: what the client would take a configuration for.
EVENTS = 1
ACTIVITIES = 2

MAX_DATAGRAM = 65_536  # what one recv must be able to take; a configuration has a few hundred bytes

DAEMON_NAME = "dynolog"
CLIENT_NAME = "dynoconfigclient"  # a client adds a text of its own, libkineto a UUID

_HEADER = struct.Struct("=Q32s")
_CONTEXT = struct.Struct("=iiq")
_REQUEST = struct.Struct("=iiq")
_COUNT = struct.Struct("=i")
_PID_SIZE = 4
_TYPE_SIZE = 32
_NAME_SIZE = 106  # characters of a name: 108 bytes of sun_path (unix(7)), less a NUL at either end


class WireError(ValueError):
    """A datagram, a value for one or an address that makes no sense."""


class Context(NamedTuple):
    """A process registers; the answer is the number of processes known for this job and device."""

    gpu: int
    pid: int
    job_id: int


class Request(NamedTuple):
    """A process asks for a configuration; the answer is its text, or nothing when none is pending."""

    kinds: int
    job_id: int
    pids: tuple[int, ...]  # the process itself first, then its ancestors


def pack(kind: bytes, payload: bytes = b"") -> bytes:
    """A datagram of any type."""
    if not 0 < len(kind) < _TYPE_SIZE or b"\0" in kind:
        raise WireError(f"a type has 1 to {_TYPE_SIZE - 1} bytes and no NUL: {kind!r}")
    if _HEADER.size + len(payload) > MAX_DATAGRAM:
        raise WireError(f"a payload of {len(payload)} bytes does not fit into a datagram of {MAX_DATAGRAM}")
    return _HEADER.pack(len(payload), kind) + payload


def parse(datagram: bytes) -> tuple[bytes, bytes]:
    """Type and payload. What follows the payload is ignored, as dynolog ignores it."""
    if len(datagram) < _HEADER.size:
        raise WireError(f"{len(datagram)} bytes are less than a header of {_HEADER.size}")
    size, padded = _HEADER.unpack_from(datagram)
    if size > len(datagram) - _HEADER.size:
        raise WireError(f"the header promises {size} bytes, {len(datagram) - _HEADER.size} follow")
    kind, nul, _ = padded.partition(b"\0")
    if not kind or not nul:
        raise WireError(f"no type, or one without an end: {padded!r}")
    return kind, datagram[_HEADER.size : _HEADER.size + size]


def pack_context(context: Context) -> bytes:
    _check_pids((context.pid,))
    return pack(CONTEXT, _packed(_CONTEXT, *context))


def parse_context(payload: bytes) -> Context:
    context = Context(*_unpacked(_CONTEXT, payload, "ctxt"))
    _check_pids((context.pid,))
    return context


def pack_count(count: int) -> bytes:
    """The answer to `ctxt`."""
    if count < 0:
        raise WireError(f"{count} is not a number of processes")
    return pack(CONTEXT, _packed(_COUNT, count))


def parse_count(payload: bytes) -> int:
    (count,) = _unpacked(_COUNT, payload, "ctxt")
    if count < 0:
        raise WireError(f"{count} is not a number of processes")
    return count


def pack_request(request: Request) -> bytes:
    _check_kinds(request.kinds)
    _check_pids(request.pids)
    body = _packed(_REQUEST, request.kinds, len(request.pids), request.job_id)
    return pack(REQUEST, body + _packed(struct.Struct(f"={len(request.pids)}i"), *request.pids))


def parse_request(payload: bytes) -> Request:
    kinds, count, job_id = _unpacked(_REQUEST, payload, "req")
    _check_kinds(kinds)
    # Before anything is made of that length: the number is the sender's.
    if not 1 <= count <= (len(payload) - _REQUEST.size) // _PID_SIZE:
        raise WireError(f"req names {count} pids in {len(payload) - _REQUEST.size} bytes")
    pids = struct.unpack_from(f"={count}i", payload, _REQUEST.size)
    _check_pids(pids)
    return Request(kinds, job_id, pids)


def pack_config(text: str) -> bytes:
    """The answer to `req`: the configuration without a NUL at its end; empty when none is pending."""
    if "\0" in text:
        raise WireError("a configuration has no NUL: libkineto would read no further")
    try:
        return pack(REQUEST, text.encode())
    except UnicodeEncodeError as error:
        raise WireError(f"a configuration that is not text: {error}") from None


def parse_config(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a configuration that is not UTF-8: {error}") from None
    if "\0" in text:
        raise WireError("a configuration with a NUL in it")
    return text


def daemon_address(environ: Mapping[str, str] = os.environ) -> bytes:
    """Where the daemon listens: at `SONDE_SOCKET`, else where libkineto looks for it.

    Something to give to bind(2) or connect(2) as it is; an abstract name begins with a NUL.
    """
    path = environ.get("SONDE_SOCKET")
    if not path:
        return _address(DAEMON_NAME, environ)
    if not path.startswith("/"):
        raise WireError(f"SONDE_SOCKET={path!r} must be an absolute path")
    return _named(path)


def client_address(unique: str, environ: Mapping[str, str] = os.environ) -> bytes:
    """Where a client listens for its answers; `unique` tells it from all others."""
    if not unique or "/" in unique:
        raise WireError(f"{unique!r} cannot be part of a name")
    return _address(CLIENT_NAME + unique, environ)


def _address(name: str, environ: Mapping[str, str]) -> bytes:
    directory = environ.get("KINETO_IPC_SOCKET_DIR")  # libkineto takes an empty one for none
    if directory:
        return _named(os.path.join(directory, name))
    # libkineto counts the NUL at the end into the name: bound without it, it would be another one.
    return b"\0" + _named(name) + b"\0"


def _named(text: str) -> bytes:
    try:
        name = os.fsencode(text)
    except UnicodeEncodeError:
        raise WireError(f"{text!r} cannot be a socket's name") from None
    if b"\0" in name:
        raise WireError(f"{text!r} has a NUL in it")
    if len(name) > _NAME_SIZE:
        raise WireError(f"{text!r} has {len(name)} bytes; a socket's name has at most {_NAME_SIZE}")
    return name


def _check_kinds(kinds: int) -> None:
    if kinds & ~(EVENTS | ACTIVITIES):
        raise WireError(f"kinds {kinds} has bits beyond {EVENTS | ACTIVITIES}")


def _check_pids(pids: Sequence[int]) -> None:
    if not pids or min(pids) < 1:
        raise WireError(f"not the pids of processes: {list(pids)[:12]}")


def _packed(form: struct.Struct, *values: int) -> bytes:
    try:
        return form.pack(*values)
    except struct.error as error:
        raise WireError(f"{values}: {error}") from None


def _unpacked(form: struct.Struct, payload: bytes, kind: str) -> tuple[int, ...]:
    if len(payload) < form.size:
        raise WireError(f"{kind} with {len(payload)} bytes, expected at least {form.size}")
    return form.unpack_from(payload)
