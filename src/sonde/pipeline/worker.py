"""A thread that sleeps until an alarm, and ends when it is asked to."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Worker:
    """Runs one function in a thread of its own. The function returns soon after `stopping` is set.

    The alarm is a lock that is held from the start: acquiring it with a time-out is a sleep that another thread can
    end, in one C call. threading.Event makes a lock for every wait: 40 µs more per tick when caches are cold.
    """

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        self.stopping = False
        self._alarm = threading.Lock()
        self._alarm.acquire()
        self._thread = threading.Thread(target=run, name=name[:15], daemon=True)  # the kernel keeps 15 characters

    def start(self) -> None:
        self._thread.start()

    def sleep(self, seconds: float) -> None:
        """For this long, or until the end is asked for."""
        if not self.stopping:
            self._alarm.acquire(True, seconds)

    def ask_to_stop(self) -> None:
        self.stopping = True
        try:
            self._alarm.release()
        except RuntimeError:
            pass  # asked before, and not yet heard

    def stop(self, timeout: float) -> bool:
        """Ask for the end and wait for it; False when the thread hangs."""
        self.ask_to_stop()
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()
