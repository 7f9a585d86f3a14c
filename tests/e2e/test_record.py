"""`sonde record` as its users run it: around commands and beside processes, interrupted and gone on with."""

from __future__ import annotations

import json
import os
import pty
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.conftest import SONDE, RunningDaemon
from tests.lacking import lacking
from tests.publicly import public_sonde

from sonde.jobs.recording import Node, open_recording
from sonde.store.query import Points, parse_selector
from sonde.store.reader import ArchiveReader

FOREVER = 2**62
CPU = "sonde_job_cpu_seconds_total"


def environ(**more: str) -> dict[str, str]:
    """Without what would make a job of the tests themselves."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SONDE_", "PMI"))}
    return {**kept, **more}


def record(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [SONDE, "record", "-o", str(folder / "r"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ(**more), cwd=folder)


@contextmanager
def recording(folder: Path, *words: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A recorder at work; it has begun when this is entered."""
    command = [SONDE, "record", "-o", str(folder / "r"), *words]
    process = subprocess.Popen(command, env=environ(**more), cwd=folder, stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: list((folder / "r").glob("*/recording.json")))
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for(true: Callable[[], object], seconds: float = 15.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def the_node(folder: Path) -> Node:
    (node,) = open_recording(str(folder / "r")).nodes
    return node


def points(folder: Path, selector: str) -> list[Points]:
    with the_node(folder).archive() as archive:
        return archive.read(parse_selector(selector), 0, FOREVER)


def last(folder: Path, selector: str) -> float:
    """The sum of the newest values of all series that match."""
    return float(sum(one.values[-1] for one in points(folder, selector)))


def largest(folder: Path, selector: str) -> float:
    return float(max(value for one in points(folder, selector) for value in one.values))


def python(text: str) -> list[str]:
    return ["--", sys.executable, "-c", text]


@contextmanager
def sleeping(*words: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(words or ("sleep", "60"), env=environ(**more), stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("code", [0, 7])
def test_the_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    done = record(tmp_path, "--", "sh", "-c", f"echo out; echo err >&2; exit {code}")

    assert (done.returncode, done.stdout, done.stderr) == (code, "out\n", "err\n")
    about = the_node(tmp_path).about
    assert (about.ended_by, about.exit_code, about.command[0]) == ("command", code, "sh")
    assert about.ended_ns is not None
    assert about.ended_ns > about.begun_ns


def test_a_command_that_a_signal_ends_ends_the_recorder_by_the_same(tmp_path: Path) -> None:
    done = record(tmp_path, "--", "sh", "-c", "kill -SEGV $$")

    assert done.returncode == -signal.SIGSEGV
    assert the_node(tmp_path).about.exit_code == -signal.SIGSEGV


def test_signals_reach_the_command(tmp_path: Path) -> None:
    script = "trap 'echo usr1; exit 3' USR1; echo ready > up; while :; do sleep 0.05; done"
    with recording(tmp_path, "--", "sh", "-c", script) as process:
        wait_for((tmp_path / "up").exists)
        process.send_signal(signal.SIGUSR1)
        code = process.wait(20)

    assert code == 3
    assert the_node(tmp_path).about.exit_code == 3


def test_a_program_that_is_not_there_is_127_and_records_nothing(tmp_path: Path) -> None:
    done = record(tmp_path, "--", "no-such-program")

    assert done.returncode == 127
    assert "no-such-program: not found" in done.stderr
    assert not (tmp_path / "r").exists()


def test_a_directory_is_not_recorded_into_twice(tmp_path: Path) -> None:
    record(tmp_path, "--", "true")
    done = record(tmp_path, "--", "true")

    assert done.returncode == 2
    assert "holds a recording" in done.stderr


def test_where_nothing_can_be_written_the_command_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("not a directory")
    done = record(tmp_path, "--", "sh", "-c", "echo done; exit 5")

    assert (done.returncode, done.stdout) == (5, "done\n")
    assert "runs without being recorded" in done.stderr


def test_outside_of_a_job_there_is_nothing_to_record(tmp_path: Path) -> None:
    done = record(tmp_path)

    assert done.returncode == 3
    assert "give a command" in done.stderr


def test_the_command_has_the_terminal(tmp_path: Path) -> None:
    """Its own, in the foreground: Ctrl-C goes to both, and each gets it once."""
    script = (
        "trap 'count=$((count+1)); echo int $count' INT; tty; echo ready; read line; echo got $line; sleep 0.5; exit 4"
    )
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(tmp_path)
        os.execve(SONDE, ["sonde", "record", "-o", "r", "--", "bash", "-c", script], environ())
    said = b""
    sent = False
    try:
        while True:
            try:
                said += os.read(terminal, 4096)
            except OSError:
                break
            if b"ready" in said and not sent:
                sent = True
                time.sleep(1)
                os.write(terminal, b"\x03")
                time.sleep(0.5)
                os.write(terminal, b"hello\n")
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(terminal)

    assert b"/dev/pts/" in said
    assert b"got hello" in said
    assert b"int 1" in said
    assert b"int 2" not in said
    assert os.waitstatus_to_exitcode(status) == 4


BURN = """
import resource, time
until = time.process_time() + 1.5
while time.process_time() < until: open('/proc/self/stat').read()
spent = resource.getrusage(resource.RUSAGE_SELF)
print(spent.ru_utime + spent.ru_stime)
"""


def test_cpu_time_is_user_and_system_time_as_the_kernel_has_it(tmp_path: Path) -> None:
    """perfmon's has no system time."""
    done = record(tmp_path, *python(BURN))
    modes = {dict(one.series.labels)["mode"]: one.values[-1] for one in points(tmp_path, CPU)}

    assert last(tmp_path, CPU) == pytest.approx(float(done.stdout), rel=0.02, abs=0.03)
    assert modes["system"] > 0.2


CHILDREN = """
import resource, subprocess
for _ in range(1000): subprocess.run(["/bin/true"])
both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(sum(one.ru_utime + one.ru_stime for one in both))
"""


def test_a_thousand_short_children_are_all_counted(tmp_path: Path) -> None:
    """With perfmon the end of one child ends the sampling of the node."""
    done = record(tmp_path, "-i", "200ms", *python(CHILDREN))

    assert last(tmp_path, CPU) == pytest.approx(float(done.stdout), rel=0.02, abs=0.03)
    times = points(tmp_path, CPU)[0].times
    assert times[-1] - times[0] > 0.8 * (the_node(tmp_path).about.ended_ns - the_node(tmp_path).about.begun_ns)  # type: ignore[operator]


MEMORY = """
import resource, time
block = bytearray(200_000_000)
time.sleep(1.2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_resident_memory_is_what_the_kernel_has(tmp_path: Path) -> None:
    done = record(tmp_path, "-i", "200ms", *python(MEMORY))

    assert largest(tmp_path, "sonde_job_memory_rss_bytes") == pytest.approx(float(done.stdout), rel=0.02)


WRITE = """
import os, time
with open("block", "wb") as file:
    for _ in range(64): file.write(bytes(2**20))
    file.flush(); os.fsync(file.fileno())
time.sleep(0.3)
"""


def test_written_bytes_are_those_that_were_written(tmp_path: Path) -> None:
    record(tmp_path, "-i", "100ms", *python(WRITE))

    assert last(tmp_path, "sonde_job_written_bytes_total") == pytest.approx(64 * 2**20, rel=0.02)


CHAIN = """
import os, time
for _ in range(3):
    if os.fork(): os.wait(); os._exit(0)
time.sleep(1.5)
"""


def test_a_chain_of_descendants_counts_each_once(tmp_path: Path) -> None:
    """perfmon counts a chain of four as ten."""
    record(tmp_path, "-i", "200ms", *python(CHAIN))

    assert largest(tmp_path, "sonde_job_processes") == 4
    assert largest(tmp_path, "sonde_job_threads") == 4


def test_each_kind_of_memory_has_a_sum_of_its_own(tmp_path: Path) -> None:
    """perfmon adds what came before: its shared memory is larger than the resident."""
    record(tmp_path, "-i", "200ms", "--", "sh", "-c", "sleep 1.5")
    kinds = ("shared", "rss", "virtual")
    shared, resident, virtual = (largest(tmp_path, f"sonde_process_tree_memory_{kind}_bytes") for kind in kinds)

    assert 0 < shared <= resident < virtual


def test_many_processes_are_read_within_a_period(tmp_path: Path) -> None:
    """perfmon takes half a second for each."""
    record(tmp_path, "-i", "100ms", "--", "sh", "-c", "for i in $(seq 50); do sleep 2.5 & done; wait")
    times = points(tmp_path, CPU)[0].times

    assert largest(tmp_path, "sonde_job_processes") >= 50
    assert len(times) >= 15
    assert any(time_ns % 10**9 for time_ns in times)  # and not of whole seconds


def test_a_killed_recorder_loses_at_most_a_second_and_recover_finishes_it(tmp_path: Path) -> None:
    """perfmon loses up to a checkpoint, and its files may be broken."""
    with recording(tmp_path, "-i", "100ms", "--", "sleep", "3") as process:
        time.sleep(1.5)
        process.kill()
        killed_ns = time.time_ns()
        process.wait()
    before = the_node(tmp_path).about
    done = subprocess.run([SONDE, "record", "recover", "--json", str(tmp_path / "r")], capture_output=True, text=True)
    again = subprocess.run([SONDE, "record", "recover", str(tmp_path / "r")], capture_output=True, text=True)
    about = the_node(tmp_path).about

    assert before.ended_ns is None
    assert done.returncode == 0
    assert json.loads(done.stdout)[0]["ended_ns"] == about.ended_ns
    assert about.ended_by == "crash"
    assert about.ended_ns is not None
    assert killed_ns - about.ended_ns < 1.1e9
    assert points(tmp_path, "node_load1")
    assert (again.returncode, again.stdout) == (0, "nothing was interrupted\n")


def test_recover_leaves_alone_what_is_being_recorded(tmp_path: Path) -> None:
    with recording(tmp_path, "--", "sleep", "30") as process:
        done = subprocess.run([SONDE, "record", "recover", str(tmp_path / "r")], capture_output=True, text=True)
        process.terminate()
        process.wait(20)

    assert done.returncode == 1
    assert f"recorded by process {process.pid}" in done.stderr


def test_resume_goes_on_with_the_same_command(tmp_path: Path) -> None:
    with recording(tmp_path, "-i", "100ms", "--label", "run=3", "--", "sleep", "3") as process:
        time.sleep(1)
        process.kill()
        process.wait()
    done = subprocess.run(
        [SONDE, "record", "resume", str(tmp_path / "r")], capture_output=True, text=True, env=environ(), timeout=30
    )
    about = the_node(tmp_path).about
    (load,) = points(tmp_path, "sonde_job_threads")

    assert done.returncode == 0, done.stderr
    assert about.ended_by == "pid"
    assert about.labels == {"run": "3"}
    assert about.ended_ns is not None
    assert about.ended_ns - about.begun_ns > 2.4e9
    assert load.times[-1] - load.times[0] > 2e9
    assert any("nothing was recorded from" in note for note in about.notes)


def test_resume_says_when_there_is_nothing_left(tmp_path: Path) -> None:
    with recording(tmp_path, "--", "sleep", "1") as process:
        process.kill()
        process.wait()
    time.sleep(1)
    done = subprocess.run([SONDE, "record", "resume", str(tmp_path / "r")], capture_output=True, text=True)

    assert done.returncode == 3
    assert "sonde record recover" in done.stderr


def test_a_given_process_is_followed_until_it_ends(tmp_path: Path) -> None:
    with sleeping("sh", "-c", "sleep 2") as process:
        done = record(tmp_path, "-i", "200ms", "--pid", str(process.pid))

    about = the_node(tmp_path).about
    assert done.returncode == 0, done.stderr
    assert (about.ended_by, about.pids) == ("pid", (process.pid,))
    assert largest(tmp_path, "sonde_job_processes") == 2


def test_a_process_that_is_not_there_is_named(tmp_path: Path) -> None:
    with sleeping("true") as process:
        process.wait()
    done = record(tmp_path, "--pid", str(process.pid))

    assert done.returncode == 3
    assert f"no process {process.pid}" in done.stderr


def test_a_zombie_has_ended(tmp_path: Path) -> None:
    """perfmon takes it for a running job until the walltime is over."""
    with sleeping("sleep", "1.5") as process:  # nobody waits for it meanwhile
        begun = time.monotonic()
        done = record(tmp_path, "--pid", str(process.pid))
        took = time.monotonic() - begun
        state = Path(f"/proc/{process.pid}/stat").read_text().split()[2]

    assert state == "Z"
    assert done.returncode == 0, done.stderr
    assert took < 6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_beside_a_process_a_signal_ends_the_recording_and_nothing_else(tmp_path: Path, number: int) -> None:
    with sleeping() as process, recording(tmp_path, "--pid", str(process.pid)) as recorder:
        time.sleep(0.5)
        recorder.send_signal(number)
        code = recorder.wait(20)
        alive = process.poll() is None

    assert (code, alive) == (0, True)
    assert the_node(tmp_path).about.ended_by == "signal"


def test_ranks_that_start_later_are_picked_up(tmp_path: Path) -> None:
    """perfmon attaches only to what is there when it starts."""
    job = f"later-{os.getpid()}"
    with recording(tmp_path, "-i", "100ms", "--linger", "1s", SONDE_JOB_ID=job) as recorder:
        time.sleep(0.5)
        with sleeping("sleep", "1", SONDE_JOB_ID=job) as first, sleeping("sleep", "2.2", SONDE_JOB_ID=job) as second:
            first.wait()
            second.wait()
        code = recorder.wait(20)

    assert code == 0
    assert the_node(tmp_path).about.ended_by == "job"
    assert largest(tmp_path, "sonde_job_processes") == 2


@pytest.mark.parametrize(
    ("scheduler", "variable", "number"),
    [("pbs", "PBS_JOBID", f"{os.getpid()}.pbs"), ("oar", "OAR_JOB_ID", str(os.getpid()))],
)
def test_a_job_of_pbs_or_oar_is_found_by_its_variables(
    tmp_path: Path, scheduler: str, variable: str, number: str
) -> None:
    (tmp_path / "nodefile").write_text("n1\nn1\n")
    files = {"PBS_NODEFILE_LOCAL": str(tmp_path / "nodefile"), "OAR_NODEFILE": str(tmp_path / "nodefile")}
    job = {variable: number}
    with recording(tmp_path, "-i", "100ms", "--linger", "100ms", "--no-gather", **job, **files) as recorder:
        with sleeping("sleep", "2.5", **job) as process:
            process.wait()
        code = recorder.wait(20)
    about = the_node(tmp_path).about

    assert code == 0
    assert about.job is not None
    assert (about.job["scheduler"], about.job["id"], about.job["nodes"]) == (scheduler, number, ["n1"])
    assert largest(tmp_path, "sonde_job_processes") == 1


def test_a_job_that_never_begins_is_not_waited_for_forever(tmp_path: Path) -> None:
    done = record(tmp_path, "--wait", "1s", SONDE_JOB_ID=f"never-{os.getpid()}")

    assert done.returncode == 3
    assert "was seen here" in done.stderr
    assert the_node(tmp_path).about.ended_ns is not None


def test_a_stop_file_ends_the_recording_of_what_goes_on(tmp_path: Path) -> None:
    with sleeping() as process, recording(tmp_path, "--pid", str(process.pid), "--stop-file", "stop") as recorder:
        time.sleep(1)
        (tmp_path / "stop").write_text("FINISHED\n")
        code = recorder.wait(20)

    assert code == 0
    assert the_node(tmp_path).about.ended_by == "ipc"


def test_an_ordinary_user_records_without_a_home_or_a_name(tmp_path: Path) -> None:
    """perfmon needs USER."""
    if os.geteuid():
        lacking("the tests are not run by root, who could become somebody else")
    nobody = pwd.getpwnam("nobody")
    with public_sonde() as command, tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        done = subprocess.run(
            [*command, "record", "-i", "100ms", "-o", f"{place}/r", "--", "sleep", "1"],
            user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], env={"PATH": "/usr/bin:/bin"}, cwd=place,
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip

        assert done.returncode == 0, done.stderr
        assert the_node(Path(place)).about.uid == nobody.pw_uid
        assert largest(Path(place), "sonde_job_threads") == 1


def test_the_daemons_archive_serves_as_well(tmp_path: Path, daemon: Callable[..., RunningDaemon]) -> None:
    running = daemon("--collectors", "load,job", config='[collectors.job]\nscan = "200ms"\n')
    job = f"mine-{os.getpid()}"
    other = f"other-{os.getpid()}"
    with sleeping(SONDE_JOB_ID=other):
        done = record(
            tmp_path,
            "--from-daemon",
            "--",
            "sleep",
            "2.5",
            SONDE_DAEMON=f"unix:{running.state}/rpc.sock",
            SONDE_JOB_ID=job,
        )
    ids = {dict(one.series.labels).get("job_id") for one in points(tmp_path, "sonde_job_processes")}

    assert done.returncode == 0, done.stderr
    assert ids == {job}
    assert len(points(tmp_path, "node_load1")[0].times) > 5
    about = the_node(tmp_path).about
    assert about.ended_ns is not None
    assert all(about.begun_ns <= time_ns <= about.ended_ns for time_ns in points(tmp_path, "node_load1")[0].times)


def gather(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [SONDE, "record", "gather", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ())


def test_parts_are_fetched_from_the_daemons_of_their_nodes(
    tmp_path: Path, daemon: Callable[..., RunningDaemon]
) -> None:
    """perfmon needs a filesystem that all nodes share."""
    running = daemon("--collectors", "load")
    port = str(running.status()["addresses"]["tcp"]).rpartition(":")[2]
    record(tmp_path, "--", "sleep", "0.5")
    there = the_node(tmp_path)
    os.rename(there.directory, tmp_path / "r" / "127.0.0.1")  # the name by which this node is asked
    done = gather(tmp_path / "here", "--hosts", "127.0.0.1,127.0.0.99", "--port", port, "--from", str(tmp_path / "r"))
    (node,) = open_recording(str(tmp_path / "here")).nodes

    assert done.returncode == 1  # the other one is missing, and named
    assert "1 of 2 parts" in done.stdout
    assert "127.0.0.99 is missing" in done.stderr
    assert node.about.clock is not None
    assert abs(node.about.offset_ns) <= node.about.clock["bound_ns"] + 1_000_000
    with node.archive() as copy, ArchiveReader(str(tmp_path / "r/127.0.0.1/archive.db")) as original:
        everything = parse_selector("*")
        assert [one.values for one in copy.read(everything, 0, FOREVER)] == [
            one.values for one in original.read(everything, 0, FOREVER)
        ]


def test_a_directory_that_is_no_recording_is_not_handed_out(
    tmp_path: Path, daemon: Callable[..., RunningDaemon]
) -> None:
    running = daemon("--collectors", "load")
    port = str(running.status()["addresses"]["tcp"]).rpartition(":")[2]
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "archive.db").write_text("nothing for you")
    done = gather(tmp_path / "here", "--hosts", "127.0.0.1", "--port", port, "--from", str(tmp_path / "secret"))

    assert done.returncode == 1
    assert "holds no recording" in done.stderr
