"""The recorder of one node: the daemon's pipeline in this process, without a port, into a node's directory.

    DIR/n1/recording.json    written at the beginning and at the end
    DIR/n1/archive.db        committed at least once a second
    DIR/n1/context.json      written as soon as it is known
    DIR/n1/recording.lock    held while somebody records

A collector costs at every tick, so only those that say something about a job run by default, and what hardly changes is
read less often than asked for.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import logging
import os
import resource
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from sonde.clock import SystemClock
from sonde.config import SHORTEST_PERIOD, ArchiveConfig, Config, DaemonConfig
from sonde.errors import SondeError, Unavailable, UsageError
from sonde.hostfs import HostFS
from sonde.jobs.follow import Followed
from sonde.jobs.recording import ABOUT, ARCHIVE, CONTEXT, About, write_about, write_json
from sonde.model import Quality
from sonde.pipeline.assembly import Assembly
from sonde.pipeline.outlet import Outlet
from sonde.registry import COLLECTORS, load
from sonde.sinks.archive import ArchiveSink
from sonde.units import Duration, Size

log = logging.getLogger(__name__)

LOCK = "recording.lock"
_FLUSH_SECONDS = 10.0  # a shared filesystem may take its time; the job is over
_DETAILS_SECONDS = 5.0  # the end waits this long for what is still being found out
# In the order in which a reader asks. Of these only what the host has is there.
DEFAULT = (
    "job", "process", "perf", "cpu", "memory", "pressure", "disk", "network", "infiniband", "power", "vmstat", "load",
    "cpufreq", "numa", "nfs", "lustre", "filesystem", "hwmon", "thermal_zone",
)  # fmt: skip
# The shortest period of what changes slowly or is dear to read.
_NOT_BELOW: Mapping[str, Duration] = {
    "process": Duration(10),
    "perf": Duration(1),
    "vmstat": Duration(5),
    "load": Duration(5),
    "cpufreq": Duration(10),
    "numa": Duration(10),
    "nfs": Duration(1),
    "lustre": Duration(1),
    "filesystem": Duration(30),
    "hwmon": Duration(10),
    "thermal_zone": Duration(10),
}
# How soon a new process is seen. What comes and goes meanwhile is in the totals of the job all the same.
_SCAN: Mapping[str, Duration] = {"job": Duration(1), "process": Duration(10), "perf": Duration(5)}
# A daemon's archive removes what is old or too much; a recording must not lose its beginning.
_UNBOUNDED = ArchiveConfig(max_age=Duration(100 * 365 * 86400), max_size=Size(10**15))


class Plan(NamedTuple):
    """What to record, and how."""

    followed: Followed
    period: Duration
    collectors: tuple[str, ...] = ()  # empty: DEFAULT
    labels: Mapping[str, str] = {}


def check_plan(plan: Plan) -> None:
    if plan.period < SHORTEST_PERIOD:
        raise UsageError(f"--period: the shortest period is {SHORTEST_PERIOD}")
    for name in plan.collectors:
        if name not in COLLECTORS:
            raise UsageError(f"no collector is called {name!r}", hint=f"known: {', '.join(COLLECTORS)}")


def configuration(plan: Plan, host: str) -> Config:
    """The daemon's configuration for a plan."""
    names = plan.collectors or tuple(name for name in DEFAULT if name in COLLECTORS)
    slower = {name: str(least) for name, least in _NOT_BELOW.items() if name in names and least > plan.period}
    tables: dict[str, dict[str, object]] = {name: {"period": period} for name, period in slower.items()}
    for name in ("job", "process", "perf"):
        if name in names:
            tables[name] = {**tables.get(name, {}), **_whom(name, plan)}
    daemon = DaemonConfig(host=host, period=plan.period, labels=plan.labels, collectors=names)
    return Config(daemon=daemon, collectors=tables, source="sonde record")


def _whom(name: str, plan: Plan) -> dict[str, object]:
    """The keys that tell a collector of jobs or processes what is followed, as far as it has them."""
    followed = plan.followed
    roots = bool(followed.pids)
    told: dict[str, object] = {**followed.table(), "scan": str(max(plan.period, _SCAN[name]))}
    if name != "job":
        told |= {"jobs": not roots, "per_process": True, "system": False}
    fields = load(COLLECTORS, name).Config._fields  # type: ignore[attr-defined]
    return {key: value for key, value in told.items() if key in fields}


class Harvest(NamedTuple):
    """What a source has to say at its end."""

    notes: tuple[str, ...] = ()  # what could not be seen
    lost: str = ""  # what was seen and could not be kept


class Source(Protocol):
    """Where the values come from: our own pipeline, or a daemon's archive (excerpt.py)."""

    def start(self) -> None: ...
    def stop(self, begun_ns: int, ended_ns: int) -> Harvest: ...


class Pipeline:
    """The daemon's collectors, in threads of this process."""

    def __init__(self, plan: Plan, host: str, sink: ArchiveSink) -> None:
        check_plan(plan)
        self._outlet = Outlet("archive", sink)
        self._plan = plan
        self._name = host
        self._assembly: Assembly | None = None

    def start(self) -> None:
        _raise_descriptors()
        config = configuration(self._plan, self._name)
        self._assembly = Assembly(config, HostFS(), SystemClock(), [self._outlet])
        self._assembly.start()

    def stop(self, begun_ns: int, ended_ns: int) -> Harvest:
        """Read everything once more, and flush."""
        if self._assembly is None:
            return Harvest()
        clean = self._assembly.stop(_FLUSH_SECONDS, last_look=True)
        outlet = self._outlet
        count = outlet.dropped + outlet.rejected + outlet.depth
        lost = f"{count} readings could not be written: {outlet.error}" if count else ""
        notes = notes_of(self._assembly)
        if not clean:
            notes.append("a collector or the disk hung at the end, and its last values are missing")
        return Harvest(tuple(notes), lost)


def notes_of(assembly: Assembly) -> list[str]:
    """What could not be seen and would be with more rights, a line each."""
    absent = [f"{one.name}: {one.reason}" for one in assembly.absent if one.denied]
    denied = {
        f"{runner.name}: {gap.reason}": None
        for runner in assembly.runners
        for gap in runner.gaps
        if gap.quality is Quality.DENIED
    }
    failing = [f"{runner.name} failed: {runner.error}" for runner in assembly.runners if runner.error]
    return [*absent, *denied, *failing]


class Recorder:
    """Records from `start` to `finish`. One thread calls these; a source may have its own."""

    def __init__(self, directory: str, about: About) -> None:
        self.directory = directory
        self.about = about
        self._lock = hold(directory)
        self._details: threading.Thread | None = None
        self._found: dict[str, Any] = {}
        self._more: dict[str, Any] = {}
        self._source: Source | None = None

    def sink(self) -> ArchiveSink:
        """Of this recording's archive."""
        path = os.path.join(self.directory, ARCHIVE)
        return ArchiveSink(path, _UNBOUNDED, host=self.about.host, boot_id=self.about.boot_id)

    def start(self, source: Source, details: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """Begin. `details` finds out more for recording.json, in a thread: it may ask the batch system."""
        source.start()
        self._source = source
        write_about(self.directory, self.about)
        self._details = threading.Thread(target=self._find_out, args=(details,), name="details", daemon=True)
        self._details.start()

    def add(self, **found: Any) -> None:
        """Something more that recording.json is to say at the end."""
        self._more |= found

    def _find_out(self, details: Callable[[], Mapping[str, Any]] | None) -> None:
        """What the node is and what the job has asked for: none of it must delay the job or fail the recording."""
        try:
            context = importlib.import_module("sonde.jobs.context")
        except ModuleNotFoundError:
            pass
        else:
            write_json(os.path.join(self.directory, CONTEXT), context.gather(HostFS()))
        if details is not None:
            self._found = dict(details())
            write_about(self.directory, self.about._replace(**self._found))
        gc.collect()
        gc.freeze()  # what is there now stays, and need not be looked at again

    def finish(self, ended_by: str, *, exit_code: int | None = None, ended_ns: int | None = None) -> About:
        """Say how it ended. Raises SondeError when values were lost."""
        if self._source is None:
            raise RuntimeError("not started")
        ended_ns = ended_ns or time.time_ns()
        harvest = self._source.stop(self.about.begun_ns, ended_ns)
        if self._details is not None:
            self._details.join(_DETAILS_SECONDS)
        notes = (*self.about.notes, *harvest.notes, *filter(None, (harvest.lost,)))
        self.about = self.about._replace(
            **{**self._found, **self._more}, ended_ns=ended_ns, ended_by=ended_by, exit_code=exit_code, notes=notes
        )
        write_about(self.directory, self.about)
        if harvest.lost:
            raise SondeError(harvest.lost)
        return self.about

    def close(self) -> None:
        os.close(self._lock)


def hold(directory: str) -> int:
    """A descriptor that keeps other recorders away from a node's directory. Raises Unavailable naming its holder."""
    try:
        os.makedirs(directory, exist_ok=True)
        lock = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise Unavailable(f"{directory}: {error.strerror}", hint="give a directory of yours with --output") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise Held(f"{directory} is being recorded by process {owner}") from None
    except OSError as error:
        os.close(lock)
        raise Unavailable(f"{directory} cannot be locked: {error.strerror}") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock


class Held(Unavailable):
    """Somebody else records into this directory."""


def is_recorded(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, ABOUT))


def is_held(directory: str) -> bool:
    """Is somebody recording into it now?"""
    try:
        lock = os.open(os.path.join(directory, LOCK), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a filesystem without locks
    finally:
        os.close(lock)
    return False


def unused(stem: str, host: str) -> str:
    """A directory for a recording that nobody has named: the stem, or numbered when this node has a part in it.

    One that is being recorded into is given, so that of several tasks on a node the first records and no other.
    """
    names = [stem, *(f"{stem}-{number}" for number in range(2, 10_000))]
    parts = ((name, os.path.join(name, host)) for name in names)
    return next(name for name, part in parts if not is_recorded(part) or is_held(part))


def _raise_descriptors() -> None:
    """A kept descriptor halves the cost of reading a process, and a job has many."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
