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

    def look() -> None:
        if len(freed) == 1 and 2 not in tied:
            tied.append(2)
            tie(2)
        if len(freed) == 2 or time.monotonic() > begun + 20:
            loop.stop()
        else:
            loop.call_at(time.monotonic() + 0.02, look)

    tied = [1]
    tie(1)
    begun = time.monotonic()
    loop.call_at(begun, look)
    gc.disable()
    try:
        keep_tidy(loop, 0.1)
        loop.run()
    finally:
        gc.enable()
        loop.close()

    assert freed == [1, 2]
