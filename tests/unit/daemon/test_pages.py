"""Pages on ports of their own: served, taken over, given up, refused."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest
from tests.conftest import RunningLoop

from sonde.config import NoKeys
from sonde.daemon.pages import Pages
from sonde.errors import ConfigError, Unavailable
from sonde.http import Request, Response
from sonde.model import Frame
from sonde.pipeline.outlet import Outlet
from sonde.store.ring import Ring


class Board:
    """A sink with a page that says one word."""

    Config: ClassVar[type] = NoKeys
    inline: ClassVar[bool] = True

    def __init__(self, word: str, address: str = "127.0.0.1:0") -> None:
        self.word = word
        self.address = address

    def write(self, frames: Sequence[Frame]) -> None:
        pass

    def page(self, request: Request) -> Response:
        return Response(200, self.word.encode())

    def close(self) -> None:
        pass


@pytest.fixture
def pages(loop: RunningLoop) -> Iterator[Pages]:
    pages = Pages(loop)
    yield pages
    loop.call(pages.close)


def outlet(name: str, word: str, address: str = "127.0.0.1:0") -> Outlet:
    return Outlet(name, Board(word, address))


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as reply:
        return str(reply.read().decode())


def test_each_page_is_on_its_own_port(loop: RunningLoop, pages: Pages) -> None:
    loop.call(lambda: pages.serve([outlet("a", "alpha"), outlet("b", "beta")], insecure=False))

    assert read(pages.addresses["a"]) == "alpha"
    assert read(pages.addresses["b"]) == "beta"


def test_a_sink_without_an_address_or_a_page_has_no_port(loop: RunningLoop, pages: Pages) -> None:
    loop.call(lambda: pages.serve([outlet("a", "alpha", ""), Outlet("c", Ring())], insecure=False))

    assert pages.addresses == {}


def test_a_new_sink_takes_over_the_port_of_the_old_one(loop: RunningLoop, pages: Pages) -> None:
    loop.call(lambda: pages.serve([outlet("a", "old")], insecure=False))
    before = pages.addresses["a"]
    loop.call(lambda: pages.serve([outlet("a", "new")], insecure=False))

    assert pages.addresses["a"] == before
    assert read(before) == "new"


def test_a_page_that_is_no_longer_wanted_is_closed(loop: RunningLoop, pages: Pages) -> None:
    loop.call(lambda: pages.serve([outlet("a", "alpha")], insecure=False))
    url = pages.addresses["a"]
    loop.call(lambda: pages.serve([], insecure=False))

    assert pages.addresses == {}
    with pytest.raises(urllib.error.URLError):
        read(url)


def test_when_one_address_is_taken_everything_stays_as_it_was(loop: RunningLoop, pages: Pages) -> None:
    loop.call(lambda: pages.serve([outlet("a", "old")], insecure=False))
    url = pages.addresses["a"]
    taken = url.removeprefix("http://").removesuffix("/metrics")

    with pytest.raises(Unavailable, match="already taken"):
        loop.call(
            lambda: pages.serve([outlet("a", "new"), outlet("b", "beta"), outlet("c", "x", taken)], insecure=False)
        )

    assert pages.addresses == {"a": url}
    assert read(url) == "old"


def test_an_address_that_others_can_reach_is_refused_by_its_key(loop: RunningLoop, pages: Pages) -> None:
    with pytest.raises(ConfigError, match=r"sinks\.a\.address: 0\.0\.0\.0:0 can be reached"):
        loop.call(lambda: pages.serve([outlet("a", "alpha", "0.0.0.0:0")], insecure=False))

    loop.call(lambda: pages.serve([outlet("a", "alpha", "0.0.0.0:0")], insecure=True))
    assert read(pages.addresses["a"].replace("0.0.0.0", "127.0.0.1")) == "alpha"
