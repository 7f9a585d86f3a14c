"""From an address to what connect(2) takes: numbers at once, names by getaddrinfo(3) in threads, because it blocks.

    127.0.0.1:1778 → [(AF_INET, ("127.0.0.1", 1778))]
    node01:1778    → [(AF_INET6, ("2001:db8::7", 1778, 0, 0)), (AF_INET, ("192.0.2.7", 1778))]

A resolver that hangs keeps a thread for as long as resolv.conf(5) says, and no call: each has a deadline of its own.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from sonde.address import Address

THREADS = 32  # at once; names are looked up in milliseconds, or not at all

Route = tuple[int, Any]  # the family and the address of a socket
Asker = TypeVar("Asker")


class Found(NamedTuple, Generic[Asker]):
    """What became of a question: routes in the order to try them, or why there are none."""

    asker: Asker
    routes: list[Route]
    error: OSError | ValueError | None


def numeric_routes(where: Address) -> list[Route]:
    """The route of an address that needs no look-up; none of a name."""
    if where.path:
        return [(socket.AF_UNIX, where.path)]
    try:
        socket.inet_pton(socket.AF_INET, where.host)
        return [(socket.AF_INET, (where.host, where.port))]
    except (OSError, ValueError):
        pass
    if ":" not in where.host:
        return []
    try:
        return _looked_up(where, socket.AI_NUMERICHOST)  # also fe80::1%eth0
    except (OSError, ValueError):
        return []


def _looked_up(where: Address, flags: int) -> list[Route]:
    # As bytes: a str goes through the codec idna, whose tables take 0.3 MB.
    host = where.host.encode() if where.host.isascii() else where.host
    found = socket.getaddrinfo(host, where.port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys((int(family), target) for family, _, _, _, target in found))


class Resolver(Generic[Asker]):
    """Looks names up in at most THREADS threads. `fileno` is readable when `found` has something."""

    def __init__(self) -> None:
        self._questions: SimpleQueue[tuple[Address, Asker] | None] = SimpleQueue()
        self._found: deque[Found[Asker]] = deque()
        self._threads = 0
        self._pending = 0
        self._lock = threading.Lock()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._bell

    def ask(self, where: Address, asker: Asker) -> None:
        self._pending += 1
        if self._threads < min(self._pending, THREADS):
            self._threads += 1
            # Nobody waits for it at the end: it may be in getaddrinfo for half a minute.
            threading.Thread(target=self._work, daemon=True).start()
        self._questions.put((where, asker))

    def found(self) -> list[Found[Asker]]:
        os.eventfd_read(self._bell)
        answers = [self._found.popleft() for _ in range(len(self._found))]
        self._pending -= len(answers)
        return answers

    def _work(self) -> None:
        while (question := self._questions.get()) is not None and self._bell >= 0:
            where, asker = question
            try:
                answer = Found(asker, _looked_up(where, 0), None)
            except (OSError, ValueError) as error:
                answer = Found(asker, [], error)
            with self._lock:  # once closed, the number of the bell may be another file's
                if self._bell >= 0:
                    self._found.append(answer)
                    os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        with self._lock:
            bell, self._bell = self._bell, -1
        os.close(bell)
        for _ in range(self._threads):
            self._questions.put(None)
