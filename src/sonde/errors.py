"""The exceptions of sonde, and the exit code each one ends a command with.

    SondeError                1   something failed
    ├── UsageError            2   the command line is wrong
    ├── ConfigError           2   the configuration is wrong: names the dotted key and what is known
    ├── Unavailable           3   this host has nothing to read, or may not: says why
    │   └── Denied            3   it is there, but this user may not
    ├── TimedOut              4   somebody did not answer in time
    ├── ReadError             1   a source that should answer did not
    │   └── ParseError        1   it answered with text that makes no sense
    ├── SinkError             1   a delivery failed; `retry` says whether trying again can help
    ├── StoreError            1   the archive cannot be opened, read or written
    └── RpcError              1   a typed error reply: code, message, hint

The command line prints a member of this tree without a traceback, as `sonde: what: cause` and, when there is one,
the hint on the next line. Anything outside the tree is a bug and is shown as one.
"""

from __future__ import annotations


class SondeError(Exception):
    """Something failed in a way its user can be told about in one line."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(SondeError):
    exit_code = 2


class ConfigError(SondeError):
    exit_code = 2


class Unavailable(SondeError):
    exit_code = 3


class Denied(Unavailable):
    pass


class TimedOut(SondeError):
    exit_code = 4


class ReadError(SondeError):
    pass


class ParseError(ReadError):
    """Text of a source is malformed. Carries where it came from, the beginning of the text and, if known, why."""

    def __init__(self, source: str, text: object, why: str = "") -> None:
        super().__init__(f"{source}: cannot make sense of {str(text)[:80]!r}" + (f": {why}" if why else ""))
        self.source = source


class SinkError(SondeError):
    """A batch was not delivered, or not all of it.

    Of its leading frames, `delivered` and `refused` are done with; the rest is tried again or, without `retry`, is
    refused too. `retry_after` are the seconds a server asks to be left alone for.
    """

    def __init__(
        self,
        message: str,
        *,
        retry: bool,
        hint: str = "",
        retry_after: float = 0.0,
        delivered: int = 0,
        refused: int = 0,
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry = retry
        self.retry_after = retry_after
        self.delivered = delivered
        self.refused = refused


class StoreError(SondeError):
    pass


class RpcError(SondeError):
    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
