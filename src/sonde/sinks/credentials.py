"""Who a sink says it is: a bearer token (RFC 6750) or a name and a password (RFC 7617), the secret from a file.

A file is looked at for every request and read again when it has changed: tokens are renewed while the daemon runs.
"""

from __future__ import annotations

import os

from sonde.errors import SinkError


class Credentials:
    """At most one of a token and a name with a password; nothing of it is ever logged."""

    def __init__(self, *, bearer_token_file: str = "", username: str = "", password_file: str = "") -> None:
        self._path = bearer_token_file or password_file
        self._username = "" if bearer_token_file else username
        self._seen: object = None
        self._headers: dict[str, str] = {}

    @property
    def secret(self) -> bool:
        """Is there something that must not be overheard?"""
        return bool(self._path)

    def headers(self) -> dict[str, str]:
        """The Authorization header, or none. Raises SinkError when the file cannot be read: it may come back."""
        if not self._path:
            return self._headers
        try:
            found = os.stat(self._path)
            seen = (found.st_mtime_ns, found.st_ino, found.st_size)
            if seen != self._seen:
                self._headers = {"Authorization": self._authorization()}
                self._seen = seen
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise SinkError(f"{self._path}: {reason}", retry=True) from None
        return self._headers

    def _authorization(self) -> str:
        with open(self._path, encoding="utf-8") as file:
            secret = file.read().strip()
        if not self._username:
            return f"Bearer {secret}"
        import binascii

        pair = f"{self._username}:{secret}".encode()
        return "Basic " + binascii.b2a_base64(pair, newline=False).decode("ascii")
