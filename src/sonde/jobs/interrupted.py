"""Recordings that nobody has finished: the recorder was killed, or its node died. Finish them, or go on with them."""

from __future__ import annotations

import os
from typing import NamedTuple

from sonde.clock import NS, iso
from sonde.errors import ParseError, SondeError, Unavailable, UsageError
from sonde.hostfs import HostFS
from sonde.jobs.follow import Followed
from sonde.jobs.recorder import Held, hold
from sonde.jobs.recording import About, Node, open_recording, write_about
from sonde.procstat import parse_stat
from sonde.schedulers.job import Job, JobId

CRASH = "crash"
_SLACK_NS = 2 * NS  # a process is started a moment after its recording has begun, and both clocks are read apart


class Recovered(NamedTuple):
    host: str
    ended_ns: int | None = None  # None: it is not finished, and why
    error: str = ""


def recover(path: str) -> list[Recovered]:
    """Finish every part that has no end: it ends with the last value in its archive."""
    parts = [node for node in open_recording(path).nodes if node.about.ended_ns is None]
    return [_recovered(node) for node in parts]


def _recovered(node: Node) -> Recovered:
    try:
        lock = hold(node.directory)
    except Held as error:
        return Recovered(node.host, error=str(error))
    try:
        last_ns = _last_value_ns(node)
        note = f"the recorder was interrupted; the last value is of {iso(last_ns)}"
        about = node.about._replace(ended_ns=last_ns, ended_by=CRASH, notes=(*node.about.notes, note))
        write_about(node.directory, about)
        return Recovered(node.host, last_ns)
    except (SondeError, OSError) as error:
        return Recovered(node.host, error=str(error))
    finally:
        os.close(lock)


def _last_value_ns(node: Node) -> int:
    try:
        with node.archive() as archive:
            span = archive.span()
    except Unavailable:
        span = None  # killed before the first value
    return span.end_ns if span is not None else node.about.begun_ns


def own_part(path: str, host: str) -> Node:
    """The part of this node in a recording. UsageError when it has none, or one that has ended."""
    nodes = open_recording(path).nodes
    found = next((node for node in nodes if node.host == host), None)
    if found is None:
        have = ", ".join(node.host for node in nodes)
        raise UsageError(f"{path} has nothing of {host}", hint=f"it has parts of {have}: go on on that node")
    if found.about.ended_ns is not None and found.about.ended_by != CRASH:
        raise UsageError(f"the recording of {host} has ended ({found.about.ended_by})")
    return found


def followed_again(host: HostFS, about: About, boot_id: str) -> Followed:
    """What an interrupted recording was about, as far as it is still there. Raises Unavailable when nothing is."""
    if about.boot_id and boot_id and about.boot_id != boot_id:
        raise Unavailable(
            "this node has been restarted since: the job is gone", hint="sonde record recover finishes it"
        )
    told = about.job or {}
    job = Job(
        id=JobId(str(told.get("scheduler", "")), str(told.get("id", ""))),
        raw_id=str(told.get("raw_id") or ""),
        user=str(told.get("user") or ""),
        name=str(told.get("name") or ""),
        partition=str(told.get("partition") or ""),
        account=str(told.get("account") or ""),
        nodes=tuple(told.get("nodes") or ()),
    )
    pids = tuple(pid for pid in about.pids if _is_the_same(host, pid, about.begun_ns))
    return Followed(job, pids, about.rank)


def _is_the_same(host: HostFS, pid: int, begun_ns: int) -> bool:
    """Was this process there when the recording began? Its id may be another's by now."""
    try:
        start = parse_stat(host.read(f"proc/{pid}/stat"))[1]
        boot_seconds = int(host.read("proc/stat").partition(b"\nbtime ")[2].split(None, 1)[0])
    except (OSError, ParseError, ValueError, IndexError):
        return False
    started_ns = boot_seconds * NS + start * NS // os.sysconf("SC_CLK_TCK")
    return started_ns <= begun_ns + _SLACK_NS


def resumed_about(node: Node) -> About:
    """What recording.json says from now on."""
    gap = f"nothing was recorded from {iso(_last_value_ns(node))} on, until the recorder was started again"
    return node.about._replace(ended_ns=None, ended_by="", notes=(*node.about.notes, gap))
