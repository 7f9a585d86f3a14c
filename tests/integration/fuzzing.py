"""Messages nobody should send, made from a seed: raw bytes, real messages with something changed, odd structures."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Sequence

from sonde.agent import wire

_HEADER = struct.Struct("=Q32s")
_LENGTH = struct.Struct("=i")
ODD_NUMBERS = (0, 1, -1, 2, 3, 10, 64, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, 2**63, 2**64, 10**30)
ARGUMENTS = (
    "config", "pids", "job_id", "process_limit", "duration_s", "session", "pid", "job", "ranks", "all", "version",
    "wait_seconds", "duration_ms", "start_ns", "steps", "at_step", "round_up", "directory", "shapes", "memory",
    "snapshot", "stacks", "flops", "modules", "activities", "warmup_seconds", "timeout_seconds", "limit", "match",
    "include", "exclude", "source", "names",
)  # fmt: skip
_SESSIONS = ("s1", "s2", "fuzz.3", "../x", "", "a" * 65, "ü", "\ud800", "s1\0")
_DIRECTORIES = ("/nonexistent", "relative", "/dev/null", "/nonexistent/\ud800", "/nonexistent\0", "/" + "x" * 5000)
_CONFIGS = ("", "A=1", "ACTIVITIES_LOG_FILE=/nonexistent/t.json", "\0", "\ud800", "x" * 70_000, "=\n#" * 20)


class Chance(random.Random):
    """Choices from one seed."""

    def one_in(self, number: int) -> bool:
        return self.randrange(number) == 0

    def some_bytes(self, longest: int) -> bytes:
        return self.randbytes(int(longest * self.random() ** 3))  # short ones mostly


def mutated(data: bytes, chance: Chance) -> bytes:
    """The same with a few bytes changed, cut, doubled or put in."""
    found = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(found) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            found[at:at] = chance.some_bytes(20)
        elif kind == 2:
            del found[at : at + chance.randrange(1, 12)]
        elif kind == 3:
            found[at : at + 4] = struct.pack("=I", chance.choice(ODD_NUMBERS) & 0xFFFFFFFF)
        else:
            found = found[:at]
    return bytes(found)


def datagram(chance: Chance, pid: int) -> bytes:
    """One for the IPC socket."""
    kind = chance.randrange(4)
    if kind == 0:
        return chance.some_bytes(300)
    if kind == 1:
        return mutated(_real_datagram(chance, pid), chance)
    if kind == 2:  # a header that says something else than what follows
        names = (b"req", b"ctxt", b"reqXYZ", b"", b"r" * 32, chance.randbytes(8))
        return _HEADER.pack(chance.choice(ODD_NUMBERS) % 2**64, chance.choice(names)) + chance.some_bytes(200)
    count = chance.choice(ODD_NUMBERS) % 2**32 - 2**31
    payload = struct.pack("=iiq", chance.randrange(-2, 8), count, chance.choice(ODD_NUMBERS) % 2**63)
    payload += struct.pack("=3i", *(chance.choice((pid, 0, -1, 1, 2**31 - 1)) for _ in range(3)))
    return _HEADER.pack(len(payload), chance.choice((b"req", b"ctxt"))) + payload


def _real_datagram(chance: Chance, pid: int) -> bytes:
    if chance.one_in(3):
        return wire.pack_context(wire.Context(chance.randrange(8), pid, chance.randrange(3)))
    return wire.pack_request(wire.Request(chance.randrange(4), chance.randrange(3), (pid, 2, 1)))


def request(chance: Chance, functions: Sequence[str]) -> bytes:
    """One for the RPC port, with its length."""
    kind = chance.randrange(6)
    if kind == 0:
        return chance.some_bytes(200)
    if kind == 1:
        return _LENGTH.pack(chance.choice((-1, 0, 5, 2**20, 2**20 + 1, 2**31 - 1))) + chance.some_bytes(60)
    if kind == 2:
        return mutated(framed(_json(_call(chance, functions))), chance)
    if kind == 3:
        return framed(_odd_json(chance, chance.choice(functions)))
    return framed(_json(_call(chance, functions)))


def framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _json(message: object) -> bytes:
    return json.dumps(message).encode()


def _odd_json(chance: Chance, name: str) -> bytes:
    """What Python's encoder would not write."""
    depth = chance.choice((10, 500, 5_000, 50_000))
    return chance.choice(
        (
            b'{"fn":"%s","pids":%s1%s}' % (name.encode(), b"[" * depth, b"]" * depth),
            b'{"a":' * depth + b"1" + b"}" * depth,
            b'{"fn":"%s","job_id":%s}' % (name.encode(), b"9" * depth),
            b'{"fn":"%s","wait_seconds":1e999,"duration_s":-1e999}' % name.encode(),
            b'{"fn":"%s","pids":[NaN,Infinity,-Infinity]}' % name.encode(),
            b'{"fn":"\\ud800\\udfff","fn":"\\udc00"}',
            b'{"fn":"%s"}' % name.encode("utf-16"),
            b"\xef\xbb\xbf{}",
            b"\xff\xfe{}",
            b'{"fn":"%s",}' % name.encode(),
            b'"getStatus"',
        )
    )


def _call(chance: Chance, functions: Sequence[str]) -> dict[str, object]:
    """A function with a few arguments, right ones and wrong ones."""
    message: dict[str, object] = {"fn": chance.choice(functions)}
    if chance.one_in(20):
        message["fn"] = value(chance)
    for _ in range(chance.randrange(6)):
        name = chance.choice(ARGUMENTS)
        likely = _LIKELY.get(name)
        message[name] = likely(chance) if likely is not None and not chance.one_in(3) else value(chance)
    return message


def value(chance: Chance, depth: int = 3) -> object:
    """Anything that JSON can say."""
    kind = chance.randrange(8 if depth else 6)
    if kind < 2:
        return chance.choice(ODD_NUMBERS)
    if kind == 2:
        return chance.choice((0.5, -1.5, 1e308, -1e308, 1e-320, 3.0))
    if kind == 3:
        return chance.choice((None, True, False))
    if kind < 6:
        return chance.choice(("", "a", "1", "\ud800", "\0", "é" * 30, "x" * 3000, "../../etc", "1,2", "2026-11-16"))
    items = [value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return items if kind == 6 else {str(value(chance, 0)): item for item in items}


_LIKELY: dict[str, Callable[[Chance], object]] = {
    "config": lambda chance: chance.choice(_CONFIGS),
    "pids": lambda chance: [chance.choice((0, 1, 2, 2**31)) for _ in range(chance.randrange(4))],
    "job_id": lambda chance: chance.choice((0, 1, 77)),
    "session": lambda chance: chance.choice(_SESSIONS),
    "directory": lambda chance: chance.choice(_DIRECTORIES),
    "wait_seconds": lambda chance: chance.choice((0, 0.01, -1, 0.1)),
    "all": lambda chance: chance.one_in(2),
}
