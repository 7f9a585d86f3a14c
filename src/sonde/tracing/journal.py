"""What the daemon remembers of its traces: `traces.json` in the state directory, replaced as a whole.

{"sessions": [{"session": "20261116-0412-6f1c", "uid": 1000, "config": {…}, "targets": [{"state": "written", …}]}]}

A session that was active when it was written was left alone by its daemon: its targets come back as lost.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterable
from typing import Any

from sonde.ipc.endpoint import Sender
from sonde.ipc.processes import Process
from sonde.rpc.peer import Peer
from sonde.tracing import target
from sonde.tracing.recording import Recording
from sonde.tracing.sessions import Session
from sonde.tracing.target import FIELDS, Target

log = logging.getLogger(__name__)

_LOST = "the daemon was restarted meanwhile; a trace that was delivered may be written all the same"


class Journal:
    """Writes in a thread of its own, the newest state only: a disk that hangs holds up nobody."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._text = ""
        self._texts: dict[str, tuple[int, str]] = {}  # by session, its version and what is written of it
        self._lock = threading.Lock()
        self._writing = False

    def load(self) -> list[Session]:
        """The sessions of the last daemon, oldest first; none when there is no such file, or it is damaged."""
        try:
            with open(self._path, encoding="utf-8") as file:
                return [_session(one) for one in json.load(file)["sessions"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read, earlier traces are not listed: %s", self._path, error)
            return []

    def save(self, sessions: Iterable[Session]) -> None:
        """Write these down, oldest first. Of those that have not changed the text is kept: a session may be large."""
        self._texts = {one.name: self._text_of(one) for one in sessions}
        text = f'{{"sessions": [{", ".join([text for _, text in self._texts.values()])}]}}'
        with self._lock:
            self._text = text
            if self._writing:
                return  # the thread looks again before it ends
            self._writing = True
        threading.Thread(target=self._write, name="trace-journal", daemon=True).start()

    def _text_of(self, session: Session) -> tuple[int, str]:
        known = self._texts.get(session.name)
        return known if known and known[0] == session.version else (session.version, json.dumps(session.reply()))

    def _write(self) -> None:
        while True:
            with self._lock:
                text, self._text = self._text, ""
                if not text:
                    self._writing = False
                    return
            try:
                self._replace(text)
            except OSError as error:
                log.warning("%s: %s: traces will not be listed after a restart", self._path, error.strerror)

    def _replace(self, text: str) -> None:
        part = f"{self._path}.part"
        with open(part, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)  # paths of users' files are nobody else's business
            file.write(text)
        os.replace(part, self._path)


def _session(record: dict[str, object]) -> Session:
    config: Any = _table(record["config"])
    known = {name: value for name, value in config.items() if name in Recording._fields}
    recording = Recording(**{**known, "activities": tuple(known.get("activities", ()))})
    session = Session(
        str(record["session"]), Peer(_uid(record["uid"]), None, ""), recording, _number(record["created_ns"])
    )
    session.version = _number(record["version"])
    targets = record["targets"]
    if not isinstance(targets, list):
        raise TypeError("targets is not a list")
    session.targets = [_target(_table(one)) for one in targets]
    return session


def _target(record: dict[str, object]) -> Target:
    sender = Sender(_number(record["pid"] or 0), _number(record["uid"]), _number(record["gid"]), b"")
    one = Target(Process(sender, 0), str(record["path"]), _number(record["requested_ns"]))
    one.process = None
    for name in FIELDS:
        setattr(one, name, record[name])
    if one.active:
        one.end(target.LOST, _LOST)
    return one


def _table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"not an object: {value!r:.40}")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"not a number: {value!r:.40}")
    return value


def _uid(value: object) -> int | None:
    return None if value is None else _number(value)
