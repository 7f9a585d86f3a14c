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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sonde.clock import SystemClock
from sonde.config import SHORTEST_PERIOD, ArchiveConfig, Config, DaemonConfig
from sonde.errors import SondeError, Unavailable, UsageError
from sonde.hostfs import HostFS
from sonde.jobs.follow import Followed
from sonde.jobs.recording import ABOUT, ARCHIVE, CONTEXT, About, write_about, write_json
from sonde.model import Quality
from sonde.pipeline.assembly import Assembly
from sonde.pipeline.outlet import Outlet
from sonde.registry import COLLECTORS
from sonde.sinks.archive import ArchiveSink
from sonde.units import Duration, Size

log = logging.getLogger(__name__)

LOCK = "recording.lock"
_FLUSH_SECONDS = 10.0  # a shared filesystem may take its time; the job is over
_DETAILS_SECONDS = 5.0  # the end waits this long for what is still being found out
# In the order in which a reader asks. Of these only what the host has is there.
DEFAULT = (
    "job", "process", "cpu", "memory", "pressure", "disk", "network", "infiniband", "power", "vmstat", "load",
    "cpufreq", "numa", "nfs", "lustre", "filesystem", "hwmon", "thermal_zone",
)  # fmt: skip
# The shortest period of what changes slowly or is dear to read.
_NOT_BELOW: Mapping[str, Duration] = {
    "process": Duration(1),
    "vmstat": Duration(1),
    "load": Duration(5),
    "cpufreq": Duration(1),
    "numa": Duration(10),
    "nfs": Duration(1),
    "lustre": Duration(1),
    "filesystem": Duration(30),
    "hwmon": Duration(10),
    "thermal_zone": Duration(10),
}
_UNBOUNDED = {"max_age": Duration(100 * 365 * 86400), "max_size": Size(10**15)}


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
    scan = str(max(plan.period, Duration(1)))
    if "job" in names:
        tables["job"] = {**plan.followed.table(), "scan": scan, **tables.get("job", {})}
    if "process" in names:
        tables["process"] = {**_of_processes(plan.followed), "scan": scan, **tables.get("process", {})}
    daemon = DaemonConfig(host=host, period=plan.period, labels=plan.labels, collectors=names)
    return Config(daemon=daemon, collectors=tables, source="sonde record")


def _of_processes(followed: Followed) -> dict[str, object]:
    if followed.pids:
        return {"jobs": False, "per_process": True, "pids": [str(pid) for pid in followed.pids]}
    table = followed.table()
    kept = ("only", "without_pids", "without_steps")
    return {"jobs": True, "per_process": True, **{key: table[key] for key in kept}}


class Recorder:
    """Records from `start` to `finish`. One thread calls these; the pipeline has its own."""

    def __init__(self, directory: str, plan: Plan, about: About) -> None:
        check_plan(plan)
        self.directory = directory
        self.about = about
        self._plan = plan
        self._host = HostFS()
        self._lock = hold(directory)
        self._details: threading.Thread | None = None
        self._found: dict[str, Any] = {}
        self._assembly: Assembly | None = None

    @property
    def archive_path(self) -> str:
        return os.path.join(self.directory, ARCHIVE)

    def start(self, details: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """Begin. `details` finds out more for recording.json, in a thread: it may ask the batch system."""
        config = configuration(self._plan, self.about.host)
        _raise_descriptors()
        boot_id = self.about.boot_id
        sink = ArchiveSink(self.archive_path, ArchiveConfig(**_UNBOUNDED), host=self.about.host, boot_id=boot_id)
        self._assembly = Assembly(config, self._host, SystemClock(), [Outlet("archive", sink)])
        write_about(self.directory, self.about)
        self._assembly.start()
        self._details = threading.Thread(target=self._find_out, args=(details,), name="details", daemon=True)
        self._details.start()

    def _find_out(self, details: Callable[[], Mapping[str, Any]] | None) -> None:
        """What the node is and what the job has asked for: none of it must delay the job or fail the recording."""
        try:
            context = importlib.import_module("sonde.jobs.context")
        except ModuleNotFoundError:
            pass
        else:
            write_json(os.path.join(self.directory, CONTEXT), context.gather(self._host))
        if details is not None:
            self._found = dict(details())
            write_about(self.directory, self.about._replace(**self._found))
        gc.collect()
        gc.freeze()  # what is there now stays, and need not be looked at again

    def finish(self, ended_by: str, *, exit_code: int | None = None, ended_ns: int | None = None) -> About:
        """Read everything once more, flush, and say how it ended. Raises SondeError when values were lost."""
        assembly = self._assembly
        if assembly is None:
            raise RuntimeError("not started")
        lost = self._stopped(assembly)
        if self._details is not None:
            self._details.join(_DETAILS_SECONDS)
        self.about = self.about._replace(
            **self._found,
            ended_ns=ended_ns or time.time_ns(),
            ended_by=ended_by,
            exit_code=exit_code,
            notes=(*self.about.notes, *notes_of(assembly), *([lost] if lost else [])),
        )
        write_about(self.directory, self.about)
        if lost:
            raise SondeError(lost, hint="what has reached the archive is good")
        return self.about

    @staticmethod
    def _stopped(assembly: Assembly) -> str:
        """End the pipeline; what was lost of it, in words."""
        (outlet,) = assembly.outlets
        clean = assembly.stop(_FLUSH_SECONDS, last_look=True)
        lost = outlet.dropped + outlet.rejected + outlet.depth
        if lost:
            return f"{lost} readings could not be written: {outlet.error}"
        return "" if clean else "a collector hung at the end, and its last values are missing"

    def close(self) -> None:
        os.close(self._lock)


def notes_of(assembly: Assembly) -> Sequence[str]:
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


def _raise_descriptors() -> None:
    """A kept descriptor halves the cost of reading a process, and a job has many."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
