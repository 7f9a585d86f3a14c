"""The epoll loop."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from sonde.loop import READ, WRITE, Loop, Timer

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def still() -> Iterator[Loop]:
    """A loop that runs only when the test runs it."""
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def run_for(loop: Loop, seconds: float) -> None:
    loop.call_at(time.monotonic() + seconds, loop.stop)
    loop.run()


def test_a_readable_descriptor_is_reported(still: Loop, pair: Pair) -> None:
    ours, theirs = pair
    seen: list[bytes] = []

    def on_events(_events: int) -> None:
        seen.append(ours.recv(10))
        still.stop()

    still.register(ours, READ, on_events)
    theirs.send(b"hello")
    still.run()

    assert seen == [b"hello"]


def test_interest_can_change_from_reading_to_writing(still: Loop, pair: Pair) -> None:
    seen: list[int] = []

    def on_events(events: int) -> None:
        seen.append(events)
        still.stop()

    still.register(pair[0], READ, on_events)
    still.modify(pair[0], WRITE)
    still.run()

    assert seen[0] & WRITE


def test_a_descriptor_unregistered_by_another_callback_is_not_reported_in_the_same_turn(
    still: Loop, pair: Pair
) -> None:
    seen: list[int] = []

    def on_events(index: int) -> None:
        seen.append(index)
        pair[index].recv(10)
        still.unregister(pair[1 - index])

    for index in (0, 1):
        still.register(pair[index], READ, lambda _events, index=index: on_events(index))  # type: ignore[misc]
        pair[1 - index].send(b"x")
    run_for(still, 0.02)

    assert len(seen) == 1
    assert still.failures == 0


def test_timers_fire_in_order_and_not_early(still: Loop) -> None:
    begun = time.monotonic()
    fired: list[tuple[str, float]] = []
    for name, delay in (("late", 0.03), ("soon", 0.01), ("middle", 0.02)):
        still.call_at(begun + delay, lambda name=name: fired.append((name, time.monotonic() - begun)))  # type: ignore[misc]

    run_for(still, 0.05)

    assert [name for name, _ in fired] == ["soon", "middle", "late"]
    assert all(at >= delay for (_, at), delay in zip(fired, (0.01, 0.02, 0.03), strict=True))


def test_cancelled_timers_do_not_pile_up_and_the_others_fire_in_order(still: Loop) -> None:
    fired: list[int] = []
    begun = time.monotonic()
    for number in range(5_000):
        still.call_at(begun + 3600, lambda: None).cancel()
        if number % 50 == 0:
            still.call_at(begun + 0.02 - number * 1e-6, lambda number=number: fired.append(number))  # type: ignore[misc]
    waiting = sum(type(thing) is Timer for thing in gc.get_objects())
    run_for(still, 0.05)

    assert waiting < 1_000
    assert fired == list(range(4_950, -1, -50))


def test_a_cancelled_timer_neither_fires_nor_wakes_the_loop(still: Loop) -> None:
    fired: list[str] = []
    for delay in (0.005, 0.01, 0.015):
        still.call_at(time.monotonic() + delay, lambda: fired.append("cancelled")).cancel()

    run_for(still, 0.05)

    assert fired == []
    assert still.wakeups == 2  # the timer that stops the loop, and its post


def test_an_idle_loop_does_not_wake_up(loop: Loop) -> None:
    loop.post(lambda: None)
    time.sleep(0.05)
    before = loop.wakeups

    time.sleep(0.5)

    assert loop.wakeups == before


def test_posts_from_many_threads_all_arrive(still: Loop) -> None:
    seen: list[int] = []

    def work(start: int) -> None:
        for number in range(start, start + 500):
            still.post(lambda number=number: seen.append(number))  # type: ignore[misc]

    threads = [threading.Thread(target=work, args=(index * 500,)) for index in range(8)]
    for thread in threads:
        thread.start()
    run_for(still, 0.3)
    for thread in threads:
        thread.join()
    run_for(still, 0)

    assert sorted(seen) == list(range(4000))


def test_a_signal_handler_can_post(still: Loop) -> None:
    previous = signal.signal(signal.SIGUSR1, lambda *_: still.stop())
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    begun = time.monotonic()

    still.run()

    assert time.monotonic() - begun < 5
    signal.signal(signal.SIGUSR1, previous)
    timer.join()


def test_a_callback_that_raises_is_logged_and_counted_and_the_loop_goes_on(
    still: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ValueError("on purpose")

    still.post(broken)
    still.call_at(0.0, broken)
    with caplog.at_level(logging.ERROR):
        run_for(still, 0.02)

    assert still.failures == 2
    assert "on purpose" in caplog.text
    assert "Traceback" in caplog.text


def test_what_a_post_posts_comes_after_the_other_work(still: Loop) -> None:
    turns = 0

    def again() -> None:
        nonlocal turns
        turns += 1
        still.post(again)

    still.post(again)
    run_for(still, 0.05)  # the timer is served although the bell never stops

    assert turns > 10


def test_a_post_to_a_closed_loop_is_ignored(still: Loop) -> None:
    still.close()

    still.post(lambda: None)
    still.close()
