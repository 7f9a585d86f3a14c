"""Size and use of mounted filesystems, by statvfs(3) of the mounts in /proc/1/mountinfo, else /proc/self/mountinfo.

    27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
    96 27 0:52 / /home/my\\040group rw,nosuid shared:31 - nfs4 nas:/home rw,hard
    identity, parent, device, root, mount point, options, any number of tags, a hyphen, type, source, options of the
    superblock; \\ooo is a character in octal (proc_pid_mountinfo(5))

The names, labels and default excludes are node_exporter's. So is the device's label, which keeps the escapes.

statvfs of a network or FUSE mount whose server is gone hangs, and no signal frees it. Local filesystems answer from
memory and are asked at once. The others are asked in a helper thread: a mount that does not answer within the
deadline gets `node_filesystem_device_error` 1 and is left alone until its thread comes back. A tick lasts two
deadlines at most, however many mounts hang: when the helper is late, each mount behind it gets a thread of its own.
Where all mounts are local nothing can hang and the collector needs no sampling thread to itself.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Collection, Sequence
from queue import Empty, SimpleQueue
from typing import ClassVar, NamedTuple

from sonde.errors import ConfigError, ParseError
from sonde.hostfs import HostFS, Watched
from sonde.model import EMPTY_LAYOUT, Gap, Kind, Labels, Layout, MetricSpec, Quality, Reading, Series, Unit, Value
from sonde.units import Duration


def _spec(name: str, unit: Unit, meaning: str) -> MetricSpec:
    return MetricSpec(f"node_filesystem_{name}", Kind.GAUGE, unit, meaning, ("device", "mountpoint", "fstype"))


SIZE = _spec("size_bytes", Unit.BYTES, "Size of the filesystem.")
FREE = _spec("free_bytes", Unit.BYTES, "Free space, with what is reserved for root.")
AVAIL = _spec("avail_bytes", Unit.BYTES, "Space available to users who are not root.")
FILES = _spec("files", Unit.NONE, "File nodes (inodes) of the filesystem.")
FILES_FREE = _spec("files_free", Unit.NONE, "Free file nodes.")
READONLY = _spec("readonly", Unit.NONE, "1 when mounted read-only.")
ERROR = _spec("device_error", Unit.NONE, "1 when the filesystem could not be asked: it failed, or did not answer.")
MEASURED = (SIZE, FREE, AVAIL, FILES, FILES_FREE, READONLY)

# Their statfs reads counters in memory and asks nobody (fs/*/super.c, simple_statfs). What is not listed may hang.
_LOCAL = frozenset(
    b"bcachefs bpf btrfs cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs erofs exfat ext2 ext3 ext4 f2fs "
    b"hfs hfsplus hugetlbfs iso9660 jfs minix mqueue msdos nilfs2 ntfs3 proc pstore ramfs reiserfs securityfs "
    b"squashfs sysfs tmpfs tracefs udf ufs vfat xfs zfs".split()
)
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2})")
_NS = 1_000_000_000


class FilesystemConfig(NamedTuple):
    # Regular expressions, matched whole.
    mount_points_exclude: str = r"/(dev|proc|run|sys|mnt|media|var/lib/docker/.+|var/lib/containers/storage/.+)(/.*)?"
    fs_types_exclude: str = (
        r"autofs|binfmt_misc|bpf|cgroup2?|configfs|debugfs|devpts|devtmpfs|fusectl|hugetlbfs|iso9660|mqueue|nsfs|"
        r"overlay|proc|procfs|pstore|rpc_pipefs|securityfs|selinuxfs|squashfs|sysfs|tracefs"
    )
    deadline: Duration = Duration(5)  # how long a mount may take to answer


class Mount(NamedTuple):
    identity: bytes  # tells a new mount from a hanging one that was detached (umount -l) at the same place
    labels: Labels  # device, mountpoint, fstype
    path: str  # the mount point, for the kernel: undecodable bytes as surrogates
    readonly: bool
    local: bool  # answers at once


Answer = os.statvfs_result | OSError
Row = tuple[int, int, int, int, int, int]


class Question:
    """A statvfs in a helper thread."""

    __slots__ = ("answer", "asked_ns", "mount")

    def __init__(self, mount: Mount) -> None:
        self.mount = mount
        self.asked_ns = time.monotonic_ns()
        self.answer: Answer | None = None


class Helper(threading.Thread):
    """Asks one question after the other until it is given None; the answered ones go to `answers`."""

    def __init__(self, host: HostFS, answers: SimpleQueue[Question]) -> None:
        super().__init__(name="statvfs", daemon=True)
        self.questions: SimpleQueue[Question | None] = SimpleQueue()
        self._host = host
        self._answers = answers

    def run(self) -> None:
        while (question := self.questions.get()) is not None:
            question.asked_ns = time.monotonic_ns()
            question.answer = asked(self._host, question.mount)
            self._answers.put(question)

    def dismiss(self) -> list[Question]:
        """Take back what it has not begun; it ends when it comes back from what it has."""
        left = []
        try:
            while (question := self.questions.get_nowait()) is not None:
                left.append(question)
        except Empty:
            pass
        self.questions.put(None)
        return left


class Patience:
    """Asks the mounts that can hang, with a deadline. Used from one thread."""

    def __init__(self, host: HostFS, deadline: Duration) -> None:
        self._host = host
        self._deadline = deadline
        self._answers: SimpleQueue[Question] = SimpleQueue()
        self._helper: Helper | None = None
        self._stuck: dict[Mount, Question] = {}

    def ask(self, mounts: Sequence[Mount]) -> dict[Mount, Question]:
        """A question for each mount; without an answer when the mount hangs, now or since an earlier tick."""
        if self._stuck:
            self._forget_what_came_back(mounts)
        questions = {mount: Question(mount) for mount in mounts if mount not in self._stuck}
        everything = questions | self._stuck
        if questions:
            waiting = self._begin(questions.values())
            self._gather(waiting, time.monotonic_ns() + self._deadline.ns)
            if waiting:
                self._ask_each_alone(waiting)
        return everything

    def _begin(self, questions: Collection[Question]) -> set[Question]:
        if self._helper is None:
            self._helper = Helper(self._host, self._answers)
            self._helper.start()
        for question in questions:
            self._helper.questions.put(question)
        return set(questions)

    def _gather(self, waiting: set[Question], until_ns: int) -> None:
        """Take answers out of `waiting` until a point of the monotonic clock."""
        try:
            while waiting:
                remaining = (until_ns - time.monotonic_ns()) / _NS
                question = self._answers.get(timeout=max(0.0, remaining))
                waiting.discard(question)
                self._unstick(question)
        except Empty:
            pass

    def _ask_each_alone(self, waiting: set[Question]) -> None:
        """Leave the late helper where it is and ask what stands behind it, all at once."""
        helper, self._helper = self._helper, None
        for question in helper.dismiss() if helper else ():
            alone = Helper(self._host, self._answers)
            question.asked_ns = time.monotonic_ns()
            alone.questions.put(question)
            alone.questions.put(None)
            alone.start()
        self._gather(waiting, max(question.asked_ns for question in waiting) + self._deadline.ns)
        self._stuck |= {question.mount: question for question in waiting}

    def _forget_what_came_back(self, mounts: Sequence[Mount]) -> None:
        """Hanging mounts whose threads have come back are asked again; those that are unmounted matter no more."""
        try:
            while True:
                self._unstick(self._answers.get_nowait())
        except Empty:
            pass
        self._stuck = {mount: question for mount, question in self._stuck.items() if mount in mounts}

    def _unstick(self, question: Question) -> None:
        if self._stuck.get(question.mount) is question:
            del self._stuck[question.mount]

    def close(self) -> None:
        """End the idle helper. One that hangs is left behind: it ends when the kernel lets it."""
        if self._helper is not None:
            self._helper.dismiss()
            self._helper.join(self._deadline)
            self._helper = None


class FilesystemCollector:
    Config: ClassVar[type] = FilesystemConfig
    metrics: ClassVar[tuple[MetricSpec, ...]] = (*MEASURED, ERROR)

    def __init__(self, host: HostFS, config: FilesystemConfig) -> None:
        self._excluded = _compiled("mount_points_exclude", config.mount_points_exclude)
        self._excluded_types = _compiled("fs_types_exclude", config.fs_types_exclude)
        self._host = host
        self._table = _table(host)
        self._unlearned: bytes | None = self._table.news()
        self._mounts: list[Mount] = []
        self._remote: list[Mount] = []
        self._patience = Patience(host, config.deadline)
        self._failed: list[Mount] | None = None
        self._layout = EMPTY_LAYOUT
        self.blocks = self._can_hang()

    def _can_hang(self) -> bool:
        try:
            return not all(mount.local for mount in self._wanted(self._unlearned or b""))
        except ParseError:
            return True  # the first tick reports it

    def collect(self) -> Reading:
        news = self._table.news()
        if news is not None:
            self._unlearned = news  # until it is understood
        if self._unlearned is not None:
            self._learn(self._unlearned)
        questions = self._patience.ask(self._remote) if self._remote else {}
        rows: list[Row] = []
        failed: list[Mount] = []
        gaps: list[Gap] = []
        for mount in self._mounts:
            answer = asked(self._host, mount) if mount.local else questions[mount].answer
            if isinstance(answer, os.statvfs_result):
                rows.append(row(mount, answer))
            else:
                failed.append(mount)
                gaps += gaps_of(mount, answer, questions.get(mount))
        if failed != self._failed:
            self._lay_out(failed)
        values: list[Value] = [value for column in zip(*rows, strict=True) for value in column]
        values += [int(mount in failed) for mount in self._mounts] if failed else [0] * len(self._mounts)
        return Reading(self._layout, values, (), gaps)

    def _learn(self, text: bytes) -> None:
        """Find the mounts. The text changes when one is made, removed or remounted."""
        mounts = self._wanted(text)
        remote = [mount for mount in mounts if not mount.local]
        if remote and not self.blocks:
            # This thread is shared with other collectors: what can hang is asked from the next tick on, in our own.
            self.blocks = True
            mounts, remote = [mount for mount in mounts if mount.local], []
        else:
            self._unlearned = None
        self._mounts, self._remote = mounts, remote
        self._failed = None

    def _wanted(self, text: bytes) -> list[Mount]:
        wanted: dict[Labels, Mount] = {}
        for mount in below_no_other(parse_mounts(text)):
            _, point, kind = mount.labels
            if not self._excluded.fullmatch(point) and not self._excluded_types.fullmatch(kind):
                # The same device on the same mount point, twice: once, as in node_exporter.
                wanted.setdefault(mount.labels, mount)
        return list(wanted.values())

    def _lay_out(self, failed: list[Mount]) -> None:
        answered = [mount for mount in self._mounts if mount not in failed]
        series: list[Series] = [(spec, mount.labels) for spec in MEASURED for mount in answered]
        self._layout = Layout([*series, *((ERROR, mount.labels) for mount in self._mounts)])
        self._failed = failed

    def close(self) -> None:
        self._patience.close()
        self._table.close()


def _compiled(key: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise ConfigError(f"collectors.filesystem.{key}: {error}") from None


def _table(host: HostFS) -> Watched:
    """The mounts of the host rather than our own: the first process is in the host's namespace."""
    try:
        return host.watched("proc/1/mountinfo")
    except (FileNotFoundError, PermissionError):  # /proc is mounted with hidepid
        return host.watched("proc/self/mountinfo")


def parse_mounts(text: bytes) -> list[Mount]:
    """The mounts in the order of their lines."""
    return [_parse_mount(line) for line in text.split(b"\n") if line]


def _parse_mount(line: bytes) -> Mount:
    left, _, right = line.partition(b" - ")
    try:
        identity, _, _, _, point, options, *_ = left.split(b" ")
        kind, device, super_options = right.split(b" ", 2)
    except ValueError:
        raise ParseError("/proc/1/mountinfo", line) from None
    point = _ESCAPE.sub(lambda match: bytes((int(match[1], 8),)), point)
    if b"\0" in point:
        raise ParseError("/proc/1/mountinfo", line)
    # Read-only is the mount or, for all its mounts, the filesystem.
    readonly = b"ro" in options.split(b",") or b"ro" in super_options.split(b",")
    labels = (_text(device), _text(point), _text(kind))
    return Mount(identity, labels, os.fsdecode(point), readonly, kind in _LOCAL)


def below_no_other(mounts: list[Mount]) -> list[Mount]:
    """Call no mount local whose path leads through one that is not: looking up the path can hang too."""
    others = [mount.path.rstrip("/") + "/" for mount in mounts if not mount.local]
    return [
        mount._replace(local=False) if mount.local and any(map(mount.path.startswith, others)) else mount
        for mount in mounts
    ]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def asked(host: HostFS, mount: Mount) -> Answer:
    try:
        return host.statvfs(mount.path)
    except OSError as error:
        return error.with_traceback(None)  # which would keep the caller's frames for as long as the answer


def row(mount: Mount, answer: os.statvfs_result) -> Row:
    """The values of MEASURED."""
    # Blocks are counted in f_frsize (statvfs(3)); it differs from f_bsize on some FUSE filesystems.
    unit, blocks, free, available = answer.f_frsize, answer.f_blocks, answer.f_bfree, answer.f_bavail
    return blocks * unit, free * unit, available * unit, answer.f_files, answer.f_ffree, int(mount.readonly)


def gaps_of(mount: Mount, error: OSError | None, question: Question | None) -> Sequence[Gap]:
    """Why a mount has no values; `error` is None when it has not answered."""
    if error is None:
        waited = (time.monotonic_ns() - question.asked_ns) // _NS if question else 0
        quality, reason = Quality.STALE, f"statfs has not answered for {waited} s"
    elif isinstance(error, PermissionError):
        quality, reason = Quality.DENIED, f"statfs: {error.strerror}"
    else:
        quality, reason = Quality.BLANK, f"statfs: {error.strerror}"
    return [Gap(spec, mount.labels, quality, reason) for spec in MEASURED]
