"""The daemon as its user meets it: starting, asking, reconfiguring, ending."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import SONDE, RunningDaemon

import sonde
from sonde.rpc.clocks import Offset, measure

Start = Callable[..., RunningDaemon]


def test_a_started_daemon_serves_its_numbers_at_once(daemon: Start) -> None:
    running = daemon()

    page = running.page()

    assert "node_cpu_seconds_total{" in page
    assert "sonde_build_info{" in page
    assert running.sonde("status").returncode == 0
    assert "node_load1" in running.sonde("metrics", "node_load1").stdout
    assert running.sonde("watch", "--count", "2", "--every", "300ms").stdout.count("\n") == 2


def test_sigterm_flushes_and_ends_within_two_seconds(daemon: Start) -> None:
    running = daemon(config='[sinks.jsonl]\npath = "LINES"\n'.replace("LINES", "/dev/null"))
    running.wait_for(lambda: running.status()["sinks"][0]["delivered"] > 20)

    assert running.end() < 2
    assert running.process.returncode == 0
    assert "stopped" in running.log()
    assert running.sonde("query", "node_load1", "--archive", f"{running.state}/archive.db").returncode == 0


def test_the_archive_holds_what_was_collected_up_to_the_end(daemon: Start) -> None:
    running = daemon()
    running.wait_for(lambda: running.status()["sinks"][0]["delivered"] > 50)
    running.end()

    answer = running.sonde("query", "node_load1", "--archive", f"{running.state}/archive.db", "--json", check=True)

    assert "node_load1" in answer.stdout


def test_sighup_takes_over_a_good_configuration_and_refuses_a_bad_one(daemon: Start) -> None:
    running = daemon(config="[collectors.load]\n")
    file = running.state / "sonde.toml"
    file.write_text("[collectors.load]\nperiodd = 3\n")
    running.process.send_signal(signal.SIGHUP)
    running.wait_for_log("the configuration is refused")
    assert "collectors.load.periodd is not known; did you mean collectors.load.period?" in running.log()
    assert "node_load1" in running.page()

    file.write_text("[collectors.load]\nenabled = false\n")
    running.process.send_signal(signal.SIGHUP)
    running.wait_for_log("read again")

    running.wait_for(lambda: "node_load1" not in running.page())
    assert "load" not in [item["name"] for item in running.status()["collectors"]]


def test_sighup_leaves_what_a_sink_has_queued_and_counted(daemon: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    config = f'[sinks.remote_write]\nurl = "http://127.0.0.1:{port}/write"\ntimeout = "200ms"\n'
    running = daemon(config=config)

    def sink(name: str) -> dict[str, Any]:
        return next(item for item in running.status()["sinks"] if item["name"] == name)

    running.wait_for(lambda: sink("remote_write")["queued"] > 20 and sink("archive")["delivered"] > 10)
    queued = sink("remote_write")["queued"]
    counted = [sink("remote_write")["failures"], sink("archive")["delivered"]]
    running.process.send_signal(signal.SIGHUP)
    running.wait_for_log("read again")
    after = [sink("remote_write")["failures"], sink("archive")["delivered"]]

    assert all(new >= old for old, new in zip(counted, after, strict=True)), (counted, after)
    running.wait_for(lambda: sink("remote_write")["queued"] >= queued)  # none while a delivery is tried
    assert sink("remote_write")["dropped"] == 0
    assert "gave up" not in running.log()


def test_sighup_reopens_the_log_after_logrotate_moved_it(daemon: Start) -> None:
    running = daemon()
    log = running.state / "log"
    log.rename(running.state / "log.1")
    running.process.send_signal(signal.SIGHUP)
    running.wait_for(lambda: log.exists() and "read again" in log.read_text())

    assert "starts on" in (running.state / "log.1").read_text()


def test_a_log_file_rotates_by_size(daemon: Start) -> None:
    running = daemon("--log-level", "info", config='[daemon]\nlog_max_size = "1kB"\nlog_keep = 2\n')
    for _ in range(15):
        before = running.log()
        running.process.send_signal(signal.SIGHUP)
        running.wait_for(lambda before=before: running.log() != before)  # type: ignore[misc]

    running.process.terminate()  # nothing is moved any more while we look
    running.process.wait(10)

    sizes = {path.name: path.stat().st_size for path in running.state.glob("log*")}
    assert sorted(sizes) == ["log", "log.1", "log.2"]
    assert max(sizes.values()) <= 1000


def test_a_port_that_is_taken_is_refused_naming_its_owner(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = subprocess.run(
            [
                SONDE,
                "daemon",
                "--state",
                str(tmp_path),
                "--rpc-address",
                f"127.0.0.1:{port}",
                "--http-address",
                "",
                "--no-tracing",
            ],
            capture_output=True,
            text=True,
            timeout=20,
        )

    assert ended.returncode == 3
    assert f"127.0.0.1:{port} is already taken by" in ended.stderr
    assert str(os.getpid()) in ended.stderr


def test_a_second_daemon_on_the_same_directory_is_refused(daemon: Start) -> None:
    running = daemon()

    second = subprocess.run(
        [SONDE, "daemon", "--state", str(running.state), "--rpc-address", "", "--http-address", "", "--no-tracing"],
        capture_output=True,
        text=True,
        timeout=20,
    )

    assert second.returncode == 3
    assert "already taken" in second.stderr
    assert running.sonde("status").returncode == 0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[daemon]\nperiod = 5\n", "daemon.period must be written with its unit"),
        ("[sinks.promethous]\n", "did you mean sinks.prometheus?"),
        ('[collectors.cpu]\nperiod = "1ms"\n', "the shortest period is 10ms"),
        ('[daemon]\nlabels = { job = "x" }\n', "daemon.labels.job cannot be a label name"),
    ],
)
def test_a_bad_configuration_ends_with_two_before_anything_runs(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "sonde.toml").write_text(config)

    ended = subprocess.run([SONDE, "daemon", "--state", str(tmp_path)], capture_output=True, text=True, timeout=20)

    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "rpc.sock").exists()


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory everybody may enter, unlike pytest's, with a copy of the package for an interpreter of the system."""
    folder = Path(tempfile.mkdtemp(prefix="sonde-test-"))
    folder.chmod(0o777)
    shutil.copytree(Path(sonde.__file__).parent, folder / "package" / "sonde")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_normal_user_gets_everything_that_needs_no_privilege(public: Path) -> None:
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    python = next(path for path in (os.path.realpath(sys.executable), "/usr/bin/python3") if usable(nobody, path))
    environ = {"PYTHONPATH": str(public / "package"), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        *nobody,
        python,
        "-m",
        "sonde",
        "daemon",
        "--state",
        f"{public}/state",
        "--period",
        "200ms",
        "--no-tracing",
    ]
    command += ["--rpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--log-file", f"{public}/log"]
    process = subprocess.Popen(command, env=environ)
    try:
        running = RunningDaemon(process, public / "state")
        until = time.monotonic() + 20
        while running.sonde("status").returncode not in (0, 1):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        status = running.status()
        page = running.page()
    finally:
        process.kill()
        process.wait()

    names = {item["name"] for item in status["collectors"]}
    assert names >= {"cpu", "memory", "disk", "network", "pressure", "job", "daemon"}
    gaps = [gap for item in status["collectors"] if item["name"] == "job" for gap in item["gaps"]]
    assert any(gap["quality"] == "denied" and "root" in gap["reason"] for gap in gaps)
    assert "node_cpu_seconds_total{" in page


def usable(wrapper: list[str], python: str) -> bool:
    """May that user start this interpreter, with the rights left once it runs?"""
    again = "import os, sys, tomllib; os.execv(sys.executable, [sys.executable, '-c', 'pass'])"
    return subprocess.run([*wrapper, python, "-c", again], capture_output=True).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"), reason="needs root and FUSE")
def test_a_mount_that_never_answers_blocks_only_itself(daemon: Start, tmp_path: Path) -> None:
    # A FUSE file system whose server never answers is what a dead NFS server is: statfs hangs in the kernel.
    mount = tmp_path / "hung"
    mount.mkdir()
    # Whoever holds the descriptor of /dev/fuse is the server: here a sleep that reads nothing from it.
    options = "fd=9,rootmode=40000,user_id=0,group_id=0"
    holder = f'exec 9<>/dev/fuse; mount -i -t fuse -o {options} hung {mount}; sleep 60 & exec "$@" 9<&-'
    config = '[collectors.filesystem]\ndeadline = "300ms"\nmount_points_exclude = "/proc"\n'
    # A mount namespace so that nobody else meets the mount; a pid namespace because the table read is process 1's.
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    running = daemon(config=config, wrapper=[*namespaces, "sh", "-c", holder, "sh"])
    hung = f'mountpoint="{mount}"'
    running.wait_for(lambda: any(hung in line and line.endswith(" 1") for line in running.page().splitlines()))

    status = {item["name"]: item for item in running.status()["collectors"]}
    stuck = [gap for gap in status["filesystem"]["gaps"] if gap["quality"] == "stale"]
    assert "has not answered" in stuck[0]["reason"]
    before = status["cpu"]["ticks"]
    time.sleep(1.0)
    assert {item["name"]: item for item in running.status()["collectors"]}["cpu"]["ticks"] >= before + 3
    running.wait_for(lambda: 'mountpoint="/"' in running.page())


def test_health_is_served_for_probes(daemon: Start) -> None:
    running = daemon()
    url = running.metrics_url.replace("/metrics", "/healthz")

    answer = subprocess.run(["curl", "-s", url], capture_output=True, text=True, timeout=10)

    assert answer.stdout == "ok\n"


def test_the_live_view_shows_a_line_per_second_until_ctrl_c_and_ends_in_order(tmp_path: Path) -> None:
    command = [SONDE, "daemon", "--state", str(tmp_path), "--period", "500ms", "--live", "--no-tracing"]
    command += ["--rpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"]
    master, terminal = os.openpty()
    # setsid --ctty makes the terminal the session's own, so that Ctrl-C reaches the whole foreground group.
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command], stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    text = _read_until(master, lambda text: text.count(" GiB ") >= 3, seconds=20)
    os.write(master, b"\x03")  # Ctrl-C, as the terminal sends it: to the whole foreground group
    text += _read_until(master, lambda text: process.poll() is not None, seconds=10)
    os.close(master)

    assert process.wait(10) == 0, text
    assert "watches" in text
    assert "metrics   http://127.0.0.1:" in text
    assert "collects  cpu, load, memory" in text
    assert "Traceback" not in text
    assert "stopped\n" in (tmp_path / "sonde.log").read_text()
    assert not (tmp_path / "rpc.sock").exists()
    assert not (tmp_path / "archive.db-wal").exists()


def _read_until(master: int, enough: Callable[[str], bool], seconds: float) -> str:
    text, until = "", time.monotonic() + seconds
    while not enough(text) and time.monotonic() < until:
        if select.select([master], [], [], 0.2)[0]:
            try:
                text += os.read(master, 65536).decode("utf-8", "replace")
            except OSError:  # the other end is closed
                break
    return text


@pytest.mark.parametrize("option", ["--rpc-address", "--http-address"])
def test_an_address_that_others_can_reach_is_refused_unless_it_is_allowed(tmp_path: Path, option: str) -> None:
    # 192.0.2.1 is for documentation (RFC 5737): nobody has it, so that even when it is allowed nothing is opened.
    command = [SONDE, "daemon", "--state", str(tmp_path), "--rpc-address", "", "--http-address", "", "--no-tracing"]
    command += [option, "192.0.2.1:0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=20)
    allowed = subprocess.run([*command, "--insecure"], capture_output=True, text=True, timeout=20)

    assert refused.returncode == 2
    assert "can be reached from other machines" in refused.stderr
    assert "--insecure" in refused.stderr
    assert allowed.returncode == 3
    assert "cannot listen on 192.0.2.1:0" in allowed.stderr
    assert "without authentication" in allowed.stderr


def test_a_second_daemon_that_would_answer_training_processes_is_refused_naming_the_first(
    daemon: Start, tmp_path: Path
) -> None:
    first = daemon("--tracing", "--rpc-address", "", "--http-address", "", wrapper=["unshare", "-n"])
    there = ["nsenter", f"--net=/proc/{first.process.pid}/ns/net"]
    command = [SONDE, "daemon", "--state", str(tmp_path / "two"), "--rpc-address", "", "--http-address", ""]
    second = subprocess.run([*there, *command], capture_output=True, text=True, timeout=20)

    assert first.status()["addresses"]["ipc"] == "@dynolog"
    assert second.returncode == 3
    assert f"the socket @dynolog is already taken by sonde (pid {first.process.pid})" in second.stderr
    assert "--no-tracing" in second.stderr


def test_the_clock_of_a_daemon_on_this_host_is_ours(daemon: Start) -> None:
    running = daemon()
    addresses = [running.status()["addresses"]["rpc"], f"unix:{running.state}/rpc.sock"]

    found = measure(addresses)

    for address in addresses:
        result = found[address]
        assert isinstance(result, Offset)
        assert abs(result.offset_ns) <= result.bound_ns < 1e9
        assert result.rounds == 8
