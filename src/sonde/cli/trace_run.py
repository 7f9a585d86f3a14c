"""A trace from the moment its hosts are armed: followed, gathered, merged, written down and told."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shlex
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sonde.cli import trace_manifest
from sonde.cli.progress import Progress
from sonde.cli.trace_check import Lack
from sonde.cli.trace_follow import cancel, follow
from sonde.cli.trace_gather import Gathered, Gathering, Key, key_of, remove
from sonde.cli.trace_hosts import Message, Node
from sonde.cli.trace_kept import with_kept
from sonde.cli.trace_progress import Live
from sonde.cli.trace_steps import Begun
from sonde.cli.trace_table import Row, as_object, exit_code, expected, rendered, rows_of
from sonde.clock import iso
from sonde.errors import SondeError
from sonde.version import describe

MERGED = "merged.json.gz"


class Run:
    """What is known of a session here, and what is done with it."""

    def __init__(
        self, args: argparse.Namespace, session: str, output: str, nodes: Sequence[Node], tls: ssl.SSLContext | None
    ) -> None:
        self.args = args
        self.session = session
        self.output = output
        self.nodes = nodes
        self.tls = tls
        self.lacking: list[Lack] = []
        self.notes: list[str] = []
        self.request: Message = {}  # what was asked of the hosts
        self.start_ns = 0  # the common start by our clock
        self.created_ns = time.time_ns()
        self.gathered: dict[Key, Gathered] = {}
        self.kept: list[Row] = []  # gathered by an earlier command
        self.merged = ""
        self.state = "armed"

    def say(self, *lines: str) -> None:
        """For the user now, and for the manifest."""
        for line in lines:
            self.notes.append(line)
            print(f"sonde: trace: {line}", file=sys.stderr)

    def completed(self, limit_ns: int | None) -> int:
        """Wait until a time by our clock, or not at all; gather, tell; the exit code."""
        self.complete(limit_ns)
        return self.finished()

    def complete(self, limit_ns: int | None) -> None:
        try:
            if limit_ns is not None:
                self.follow(limit_ns)
            self.gather()
        except KeyboardInterrupt:
            self.abandon()
            raise

    def begun(self) -> list[Begun]:
        """When each rank began and ended, of those that have recorded any operator."""
        rows = [row for row in self.rows() if row.first_ns is not None and row.last_ns is not None]
        return [
            Begun(row.first_ns, row.last_ns) for row in rows if row.first_ns is not None and row.last_ns is not None
        ]

    def renew(self, session: str) -> None:
        """Another session in place of this one: its files are not kept."""
        for one in self.gathered.values():
            if one.file:
                os.unlink(os.path.join(self.output, one.file))
        self.gathered.clear()
        for node in self.nodes:
            node.session = None
        self.session = session

    def finished(self) -> int:
        """Merge, write down and tell; the exit code."""
        self.merge()
        if not any(node.waiting for node in self.nodes):
            self.state = "done"
        return self.told()

    def follow(self, limit_ns: int) -> None:
        with Live(self.nodes, verbose=self.args.verbose) as live:
            live.show(())
            for changes in follow(self.nodes, self.session, limit_ns=limit_ns, tls=self.tls):
                live.show(changes)
        # What was given up here must not begin later, when nobody expects it.
        active = [node for node in self.nodes if node.session and node.session["state"] == "active"]
        cancel(active, self.session, tls=self.tls, take=False)

    def gather(self) -> None:
        written = [target for node in self.nodes for target in node.targets if target["state"] == "written"]
        bar = _Bar(sum(target["size"] or 0 for target in written))
        gathering = Gathering(self.session, self.output, max_size=self.args.max_size, tls=self.tls, moved=bar.moved)
        with bar.progress:
            for key, gathered in gathering.gather(self.nodes, frozenset(self.gathered)):
                self.gathered[key] = gathered
        if not self.args.keep:
            self.say(*remove(filter(self._is_safe, self.nodes), self.session, tls=self.tls))

    def _is_safe(self, node: Node) -> bool:
        """Has a host no more to write, and is all that it has written here too? What failed leaves a part of a file."""
        written = [target for target in node.targets if target["state"] == "written"]
        gathered = [self.gathered.get(key_of(node, target)) for target in written]
        return (
            node.error is None
            and not node.waiting
            and any(target["state"] in ("written", "failed") for target in node.targets)
            and all(one is not None and one.file for one in gathered)
        )

    def abandon(self) -> None:
        """Ctrl-C: call back what can be, and say what remains."""
        waiting = [node for node in self.nodes if node.found and (node.session is None or node.waiting)]
        failed = cancel(waiting, self.session, tls=self.tls)
        counts = Counter(target["state"] for node in self.nodes for target in node.targets)
        remaining = counts["delivered"] + counts["started"] + counts["written"]
        self.say(f"interrupted: {counts['cancelled']} cancelled in time", *failed)
        if remaining:
            self.say(f"{remaining} cannot be called back or are written; to gather them: {self.fetch_command()}")
        self.state = "interrupted"
        self.write_down()

    def fetch_command(self) -> str:
        words = ["sonde", "trace", "fetch", self.session]
        if self.output != default_output(self.session):
            words += ["--output", self.output]
        return shlex.join(words)

    def merge(self) -> None:
        if not self.args.merge:
            return
        from sonde.tracing.merge import Part, merge

        parts = [
            Part(
                os.path.join(self.output, one.file),
                target["rank"],
                node.name,
                _pid(target),
                -node.offset_ns,
                node.offset.bound_ns if node.offset else None,
            )
            for node in self.nodes
            for target in node.targets
            if (one := self.gathered.get(key_of(node, target))) is not None and one.summary is not None
        ]
        if not parts:
            return
        try:
            merge(parts, os.path.join(self.output, MERGED))
            self.merged = MERGED
        except (SondeError, OSError) as error:
            self.say(f"not merged: {error}")

    def rows(self) -> list[Row]:
        return with_kept(rows_of(self.nodes, self.gathered, self.lacking), self.kept)

    def told(self) -> int:
        """Write the manifest, print the table or the object."""
        rows = self.rows()
        code = exit_code(rows)
        if not code and self.args.merge and not self.merged:
            code = 1
        if self.is_armed:
            self.write_down(rows)
        else:
            trace_manifest.remove(self.output)
        if self.args.json:
            self.print_object(code, self.manifest(rows))
            return code
        print(rendered(rows))
        if self.is_armed:
            gathered = sum(row.ok for row in rows)
            print(
                f"{gathered} of {expected(rows)} in {self.output}" + (f", merged into {MERGED}" if self.merged else "")
            )
        return code

    def print_object(self, code: int, manifest: dict[str, Any]) -> None:
        print(json.dumps(manifest | {"exit_code": code, "output": os.path.abspath(self.output)}, indent=2))

    def write_down(self, rows: Sequence[Row] | None = None) -> None:
        trace_manifest.write(self.output, self.manifest(self.rows() if rows is None else rows))

    @property
    def is_armed(self) -> bool:
        """Has any process taken the request, or will? Or is there anything of an earlier one?"""
        states = [one["state"] for node in self.nodes for one in (*node.targets, *node.matched)]
        return bool(self.kept) or any(state != "refused" for state in states)

    def manifest(self, rows: Sequence[Row]) -> dict[str, Any]:
        return {
            "manifest": trace_manifest.FORMAT,
            "session": self.session,
            "state": self.state,
            "user": getpass.getuser(),
            "host": os.uname().nodename,
            "command": sys.argv,
            "created": iso(self.created_ns),
            "created_ns": self.created_ns,
            "sonde": describe(),
            "request": self.request,
            "start_ns": self.start_ns,
            "hosts": [trace_manifest.host_entry(node) for node in self.nodes],
            "ranks": [as_object(row) for row in rows],
            "lacking": [lack._asdict() for lack in self.lacking],
            "notes": self.notes,
            "merged": self.merged,
        }


class _Bar:
    """Bytes that several threads have received, as a bar."""

    def __init__(self, whole: int) -> None:
        self.progress = Progress("gathering")
        self._whole = max(1, whole)
        self._received = 0
        self._lock = threading.Lock()

    def moved(self, count: int) -> None:
        with self._lock:
            self._received += count
            self.progress.show(self._received / self._whole)


def _pid(target: Message) -> int:
    return int(target["pid"] or target["own_pid"])


def default_output(session: str) -> str:
    return f"trace-{session}"
