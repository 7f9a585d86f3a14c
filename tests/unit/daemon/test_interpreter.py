"""What keeps a process small that runs for months."""

from __future__ import annotations

import gc
import time
import weakref

from sonde.daemon.interpreter import keep_tidy
from sonde.loop import Loop


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_what_only_a_collection_can_free_goes_again_and_again() -> None:
    loop = Loop()
    freed: list[int] = []

    def tie(number: int) -> None:
        weakref.finalize(Knot(), freed.append, number)

    tie(1)
    begun = time.monotonic()
    loop.call_at(begun + 0.15, lambda: tie(2))
    loop.call_at(begun + 0.4, loop.stop)
    gc.disable()
    try:
        keep_tidy(loop, 0.1)
        loop.run()
    finally:
        gc.enable()
        loop.close()

    assert freed == [1, 2]
