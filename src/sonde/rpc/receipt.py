"""A file that a daemon streams, checked as it comes: its size while it is inflated, its SHA-256 at the end.

{"data": "H4sIA…"} {"data": "…"} … {"done": true, "size": 696110, "sha256": "9f2c…"}
"""

from __future__ import annotations

import hashlib
import zlib
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Iterator

from sonde.errors import RpcError
from sonde.rpc.codec import Message

_PIECE = 2**20  # bytes inflated at a time
_GZIP = 31  # zlib's window bits for a gzip stream


class Receipt:
    """`too_large` says in words that a file of this size is beyond the limit."""

    def __init__(self, limit: int, too_large: Callable[[int], str]) -> None:
        self._limit = limit
        self._too_large = too_large
        self._inflate = zlib.decompressobj(_GZIP)
        self._sum = hashlib.sha256()
        self._promised: Message = {}
        self.size = 0

    @property
    def sha256(self) -> str:
        return self._sum.hexdigest()

    def take(self, message: Message) -> bytes:
        """The bytes of a message, as they were sent."""
        data = self._unpacked(message)
        for _ in self._inflated(data):
            pass  # counted; whoever keeps it packed does not want it inflated
        return data

    def take_plain(self, message: Message) -> bytes:
        """The bytes of the file that a message brings."""
        return b"".join(self._inflated(self._unpacked(message)))

    def _unpacked(self, message: Message) -> bytes:
        if message.get("done"):
            self._promised = message
        try:
            return a2b_base64(message.get("data", ""), strict_mode=True)
        except (Base64Error, ValueError, TypeError):
            raise RpcError("garbled", "the daemon sent what is not base64") from None

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        while data:
            try:
                plain = self._inflate.decompress(data, _PIECE)
            except zlib.error as error:
                raise RpcError("garbled", f"the daemon sent what is not gzip: {error}") from None
            self._sum.update(plain)
            self.size += len(plain)
            if self.size > self._limit:
                raise RpcError("too-large", self._too_large(self.size))
            yield plain
            data = self._inflate.unconsumed_tail

    def verify(self) -> None:
        if not self._inflate.eof or self._inflate.unused_data:
            raise RpcError("closed", "the stream ended too early or too late")
        size, wanted = self._promised.get("size"), self._promised.get("sha256")
        if (size, wanted) != (self.size, self.sha256):
            raise RpcError(
                "garbled",
                f"the checksum is wrong: {self.size} bytes with SHA-256 {self.sha256[:12]}… came,"
                f" {size} with {str(wanted)[:12]}… were promised",
            )
