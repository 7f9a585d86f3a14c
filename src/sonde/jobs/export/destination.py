"""Where an export goes: a file that is whole or not there, or one that several jobs add to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from sonde.errors import Denied, SondeError, UsageError
from sonde.jobs.export.lock import locked


@contextmanager
def replaced(path: str) -> Iterator[str]:
    """A path to write to, which gets its name when all is written."""
    path = os.path.realpath(path)  # a link stays one
    part = f"{path}.{os.getpid()}.part"
    try:
        yield part
        _synced(part)
        os.replace(part, path)
    except PermissionError as error:
        raise Denied(f"{path}: {error.strerror}", hint="name another place with --output") from None
    except OSError as error:
        raise SondeError(f"{path}: {error.strerror or error}") from None
    finally:
        if os.path.exists(part):
            os.unlink(part)


@contextmanager
def extended(path: str) -> Iterator[str]:
    """Likewise, beginning with what is there: a file that is cut off while it is written would be lost for all."""
    with locked(path), replaced(path) as part:
        if os.path.exists(path):
            shutil.copyfile(path, part)
            shutil.copymode(path, part)  # others may be allowed to add to it, too
        yield part


@contextmanager
def shared(path: str) -> Iterator[str]:
    """The file itself, for a format that is safe while it is written."""
    with locked(path):
        yield path


def refuse_existing(path: str, *, appends: bool) -> None:
    if os.path.exists(path):
        hint = "--append adds to it, --overwrite replaces it" if appends else "--overwrite replaces it"
        raise UsageError(f"{path} is there already", hint=hint)


def _synced(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
