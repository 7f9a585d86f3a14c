"""From addresses to routes: what needs no look-up, and the threads that do the others."""

from __future__ import annotations

import select
import socket

import pytest

from sonde.address import Address
from sonde.rpc.names import Found, Resolver, Route, numeric_routes


@pytest.mark.parametrize(
    ("where", "routes"),
    [
        (Address("127.0.0.1", 1778), [(socket.AF_INET, ("127.0.0.1", 1778))]),
        (Address("::1", 1778), [(socket.AF_INET6, ("::1", 1778, 0, 0))]),
        (Address("fe80::1%lo", 7), [(socket.AF_INET6, ("fe80::1", 7, 0, socket.if_nametoindex("lo")))]),
        (Address(path="/run/sonde/rpc.sock"), [(socket.AF_UNIX, "/run/sonde/rpc.sock")]),
        (Address("localhost", 1778), []),
        (Address("1.2.3", 1778), []),
        (Address("a\0b", 1778), []),
        (Address("é:", 1778), []),
    ],
)
def test_numbers_need_no_look_up(where: Address, routes: list[Route]) -> None:
    assert numeric_routes(where) == routes


def answers(resolver: Resolver[str], count: int) -> list[Found[str]]:
    found: list[Found[str]] = []
    while len(found) < count:
        assert select.select([resolver], [], [], 20)[0]
        found += resolver.found()
    return found


def test_names_are_looked_up_beside() -> None:
    resolver: Resolver[str] = Resolver()
    for name in ("localhost", "no.such.host.invalid", "é" * 64):
        resolver.ask(Address(name, 1778), name)
    found = {answer.asker: answer for answer in answers(resolver, 3)}
    resolver.close()

    assert (socket.AF_INET, ("127.0.0.1", 1778)) in found["localhost"].routes
    assert isinstance(found["no.such.host.invalid"].error, socket.gaierror)
    assert isinstance(found["é" * 64].error, UnicodeError)


def test_what_is_found_after_the_end_is_of_no_matter() -> None:
    resolver: Resolver[str] = Resolver()
    for number in range(100):
        resolver.ask(Address("localhost", number), "x")

    resolver.close()
