"""A stream of messages that a thread makes: reading and compressing a file must not hold up the loop.

The thread is a few messages ahead of the client and no further. When the client has gone, the next `put` tells it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator

from sonde.errors import RpcError
from sonde.rpc.codec import Message

log = logging.getLogger(__name__)

_AHEAD = 4  # messages made before the client has taken them
_PATIENCE = 90.0  # seconds without a message being taken: nobody is there any more


class Gone(Exception):
    """The client has gone: there is nothing more to do."""


class Feed(Iterator["Message | None"]):
    """Gives what `make(put)` puts: None while nothing is ready; an RpcError that it raises is raised here.

    `make` runs in a thread of its own, from `start` on. Everything else belongs to the loop's thread.
    """

    def __init__(self, make: Callable[[Callable[[Message], None]], None]) -> None:
        self._make = make
        self._ready: deque[Message | RpcError | None] = deque()  # None: the end
        self._room = threading.Semaphore(_AHEAD)
        self._wake: Callable[[], None] = lambda: None
        self._closed = False

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; `wake` is called, in the other thread, when something has become ready."""
        self._wake = wake
        threading.Thread(target=self._run, name="rpc-feed", daemon=True).start()

    def __next__(self) -> Message | None:
        if not self._ready:
            return None
        found = self._ready.popleft()
        self._room.release()
        if isinstance(found, RpcError):
            raise found
        if found is None:
            raise StopIteration
        return found

    def close(self) -> None:
        """Nobody listens any more."""
        self._closed = True
        self._room.release()  # a thread that waits for room sees it

    def _run(self) -> None:
        ending: RpcError | None = None
        try:
            self._make(self._put)
        except Gone:
            return
        except RpcError as error:
            ending = error
        except Exception as error:
            log.exception("a stream failed")
            ending = RpcError("internal", f"the stream failed: {error!r}"[:500])
        self._ready.append(ending)
        self._wake()

    def _put(self, message: Message) -> None:
        if not self._room.acquire(timeout=_PATIENCE) or self._closed:
            raise Gone
        self._ready.append(message)
        self._wake()
