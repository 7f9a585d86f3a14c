"""Frames to the archive on this machine's disk: an SQLite file of compressed blocks (store/archive.py)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

from sonde.config import ArchiveConfig
from sonde.errors import SinkError, StoreError
from sonde.model import Frame
from sonde.store import schema
from sonde.store.archive import Archive

log = logging.getLogger(__name__)

_LOOK_EVERY = 10  # writes between two looks whether the file is still there


class ArchiveSink:
    """Opens the archive with the first write, in the outlet's thread. Every failure can pass, so all are retried:
    a full disk gets space, a file of a newer format is moved away, another writer ends.
    """

    Config: ClassVar[type] = ArchiveConfig
    inline: ClassVar[bool] = False

    def __init__(self, path: str, config: ArchiveConfig, *, host: str, boot_id: str) -> None:
        self.path = path
        self._config = config
        self._host = host
        self._boot_id = boot_id
        self._archive: Archive | None = None
        self._writes = 0

    def write(self, frames: Sequence[Frame]) -> None:
        self._writes += 1
        try:
            if self._writes % _LOOK_EVERY == 0:
                self._look()
            if self._archive is None:
                self._archive = self._opened()
            self._archive.write(frames)
        except schema.ERRORS as error:
            self._failed(error)
            raise SinkError(str(schema.explain(self.path, error)), retry=True) from None
        except StoreError as error:
            raise SinkError(str(error), retry=True, hint=error.hint) from None

    def _look(self) -> None:
        """Begin anew when somebody has removed or replaced the file: what is written to it now, nobody can read."""
        if self._archive is not None and not self._archive.in_place():
            log.warning("archive %s was removed or replaced by somebody: a new one is begun", self.path)
            self._archive.abandon()
            self._archive = None

    def _opened(self) -> Archive:
        return Archive(self.path, self._config, host=self._host, boot_id=self._boot_id)

    def _failed(self, error: Exception) -> None:
        """Damage found while writing: let go, so that the next try opens the file again, which repairs it."""
        if schema.is_damage(error) and self._archive is not None:
            self._archive.abandon()
            self._archive = None

    def close(self) -> None:
        archive, self._archive = self._archive, None
        if archive is None:
            return
        try:
            archive.close()
        except (*schema.ERRORS, StoreError) as error:
            log.warning("archive %s was not closed in order: %s", self.path, error)
