"""`dynolog` as its users start it: flags, lines, page and relay, held against the kernel's own numbers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import RunningDaemon
from tests.integration.conftest import Prometheus, prometheus, promtool  # noqa: F401 - fixtures
from tests.lacking import lacking
from tests.otlp import points_of, resource_of
from tests.receiver import receiving

from sonde.cli import compat

LINE = re.compile(r"time = (\S+) data = (\{.*\})")
DELTAS = ("u", "n", "s", "w", "x", "y", "z")
PATIENCE = 15.0


class Dynolog:
    """A running launcher and what it has written to standard error."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self.process = process
        self.path = path

    def text(self) -> str:
        return self.path.read_text()

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        return [(match[1], json.loads(match[2])) for match in LINE.finditer(self.text())]

    def wait_for(self, true: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE
        while not true():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.text()}"
            assert time.monotonic() < until, self.text()
            time.sleep(0.02)

    def wait_for_records(self, count: int) -> list[tuple[str, dict[str, Any]]]:
        self.wait_for(lambda: len(self.records()) >= count)
        return self.records()

    def url(self) -> str:
        """Of the page, with the port the kernel chose."""
        self.wait_for(lambda: "/metrics" in self.text())
        match = re.search(r"http://[0-9.:]+/metrics", self.text())
        assert match
        return match[0]

    def page(self) -> str:
        with urllib.request.urlopen(self.url(), timeout=10) as reply:
            return str(reply.read().decode())

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(5)


@pytest.fixture
def launcher(tmp_path: Path) -> str:
    (path,) = compat.link(str(tmp_path / "bin"), ["dynolog"], force=False)
    return path


@pytest.fixture
def dynolog(launcher: str, tmp_path: Path) -> Iterator[Callable[..., Dynolog]]:
    """Start dynolog with flags, on free ports and in a directory of its own."""
    started: list[Dynolog] = []

    def start(*flags: str, **environ: str) -> Dynolog:
        path = tmp_path / f"stderr{len(started)}"
        state = tmp_path / f"state{len(started)}"
        with path.open("wb") as output:
            process = subprocess.Popen(
                [launcher, "--port=0", f"--state={state}", *flags],
                stdin=subprocess.DEVNULL,
                stderr=output,
                env={**os.environ, **environ},
            )
        started.append(Dynolog(process, path))
        return started[-1]

    yield start
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()


def cpu_times() -> list[int]:
    """The first line of /proc/stat: all CPUs, in ticks; guests are counted in user and nice already."""
    return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


def test_lines_are_as_a_parser_of_dynologs_log_expects_them(dynolog: Callable[..., Dynolog]) -> None:
    running = dynolog("--use_JSON", "--kernel_monitor_reporting_interval_s=1")
    records = running.wait_for_records(3)

    assert set(records[0][1]) == {"uptime"}
    data = records[2][1]
    for name in ("cpu_util", "cpu_u", "cpu_s", "cpu_i", "cpu_guest", "cpu_guest_nice"):
        assert re.fullmatch(r"\d+\.\d{3}", data[name])
    for name in (*(f"cpu_{letter}_ms" for letter in DELTAS), "rx_bytes.lo", "tx_drops.lo", "uptime"):
        assert isinstance(data[name], int)
    assert running.end() == 0


def test_cpu_numbers_agree_with_the_kernels_while_a_core_is_busy(dynolog: Callable[..., Dynolog]) -> None:
    running = dynolog("--use_JSON", "--kernel_monitor_reporting_interval_s=2")
    known = len(running.wait_for_records(2))
    before, begun = cpu_times(), time.monotonic()
    burner = subprocess.Popen([sys.executable, "-c", "import time\nwhile time.process_time() < 4: pass"])
    try:
        after_burn = running.wait_for_records(known + 2)[known : known + 2]
        after, elapsed = cpu_times(), time.monotonic() - begun
    finally:
        burner.kill()
        burner.wait()

    # Both look at the same counters, from one tick's instant to a moment after another's.
    passed = [now - then for now, then in zip(after, before, strict=True)]
    util = sum(float(record["cpu_util"]) for _, record in after_burn) / len(after_burn)
    assert util == pytest.approx(100 * (1 - passed[3] / sum(passed)), abs=2 + 100 * 0.25 / elapsed)
    assert util >= 100 / (os.cpu_count() or 1) * 0.5  # the burner is seen
    assert elapsed > 3


def test_the_modes_add_up_to_the_interval(dynolog: Callable[..., Dynolog]) -> None:
    running = dynolog("--use_JSON", "--kernel_monitor_reporting_interval_s=1")
    running.wait_for_records(6)

    # On a busy machine a tick can be held up between its time stamp and its reading. Those four seconds are of no use;
    # the next ones are.
    running.wait_for(lambda: any(abs(share - 1) <= 0.01 for share in accounted(running.records()[1:], 4)))


def accounted(records: list[tuple[str, dict[str, Any]]], width: int) -> Iterator[float]:
    """For every stretch of `width` samples: all modes' time as a share of the time that passed on all CPUs."""
    for begin in range(len(records) - width):
        stretch = records[begin + 1 : begin + 1 + width]
        passed = milliseconds(stretch[-1][0]) - milliseconds(records[begin][0])
        total = sum(all_modes(record) for _, record in stretch)
        yield total / (passed * (os.cpu_count() or 1))


def all_modes(record: dict[str, Any]) -> float:
    """Milliseconds of all CPUs; of idle a record has only its share."""
    busy: int = sum(record[f"cpu_{letter}_ms"] for letter in DELTAS)
    idle = float(record["cpu_i"]) / 100
    return busy / (1 - idle) if idle < 1 else float("nan")


def milliseconds(stamp: str) -> int:
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)


def test_ten_megabytes_over_the_loopback_are_ten_megabytes(dynolog: Callable[..., Dynolog]) -> None:
    running = dynolog("--use_JSON", "--kernel_monitor_reporting_interval_s=1")
    known = len(running.wait_for_records(2))
    before = loopback_bytes()
    send_over_loopback(10_000_000)
    sent = loopback_bytes() - before
    running.wait_for_records(known + 3)

    counted = sum(record["rx_bytes.lo"] for _, record in running.records()[known:])
    assert sent >= 10_000_000
    # Others use the loopback too while we count: what they added in the meantime is measured and allowed.
    assert 10_000_000 <= counted <= (loopback_bytes() - before) * 1.02
    assert counted >= sent * 0.98


def loopback_bytes() -> int:
    lines = Path("/proc/net/dev").read_text().splitlines()
    (line,) = [line for line in lines if line.strip().startswith("lo:")]
    return int(line.split()[1])


def send_over_loopback(count: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: _drain(listener))
        thread.start()
        with socket.create_connection(listener.getsockname()) as sender:
            sender.sendall(bytes(count))
        thread.join(PATIENCE)


def _drain(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while connection.recv(1 << 20):
            pass


def test_a_private_network_counts_ten_megabytes_exactly(launcher: str, tmp_path: Path) -> None:
    """In a namespace of its own nobody else uses the loopback."""
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        lacking("a network namespace needs root")
    log = tmp_path / "log"
    program = (
        "import subprocess, sys, time\n"
        "from tests.e2e.test_dynolog import *\n"
        "subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)\n"
        f"with open({str(log)!r}, 'wb') as log:\n"
        f"    d = Dynolog(subprocess.Popen([{launcher!r}, '--use_JSON', '--reporting-interval-s=1', '--port=0',\n"
        f"        '--state={tmp_path}/state'], stderr=log), Path({str(log)!r}))\n"
        "try:\n"
        "    known = len(d.wait_for_records(2))\n"
        "    before = loopback_bytes(); send_over_loopback(10_000_000); sent = loopback_bytes() - before\n"
        "    d.wait_for_records(known + 3)\n"
        "    print(sent, sum(record['rx_bytes.lo'] for _, record in d.records()[known:]))\n"
        "finally:\n"
        "    d.process.kill(); d.process.wait()\n"
    )
    root = Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])}
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", program], capture_output=True, text=True, env=environ, timeout=60
    )

    assert done.returncode == 0, done.stderr
    sent, counted = map(int, done.stdout.split())
    assert counted == sent
    # With headers and, on a busy machine, with what was sent again.
    assert sent == pytest.approx(10_000_000, rel=0.06)


def test_the_time_is_utc_under_another_zone(dynolog: Callable[..., Dynolog]) -> None:
    running = dynolog("--use_JSON", "--kernel_monitor_reporting_interval_s=1", TZ="America/New_York")
    stamp = running.wait_for_records(1)[0][0]

    assert abs(milliseconds(stamp) / 1000 - time.time()) < 60
    assert re.search(r"^I\d{8} \d\d:\d\d:\d\d\.\d{6} \d+ ", running.text(), re.MULTILINE)


def test_prometheus_scrapes_its_page_and_promtool_objects_to_dynologs_names_only(
    dynolog: Callable[..., Dynolog],
    prometheus: Callable[..., Prometheus],  # noqa: F811 - the fixture
    promtool: Callable[[str], list[str]],  # noqa: F811
) -> None:
    running = dynolog("--use_prometheus", "--prometheus_port=0", "--kernel_monitor_reporting_interval_s=1")
    running.wait_for(lambda: "cpu_util" in running.page())
    page = running.page()
    scraper = prometheus(running.url().removeprefix("http://").removesuffix("/metrics"))

    # promtool takes `_s` and `_ms` at the end of a name for abbreviated units; the names are dynolog's.
    assert [line for line in promtool(page) if not re.match(r"cpu_(s|\w+_ms) .*abbreviated units", line)] == []
    host = os.uname().nodename
    assert scraper.wait_for(f'cpu_util{{host_name="{host}"}}')
    assert scraper.wait_for('rx_bytes{net="lo"}')
    for dropped_by_dynolog in ("cpu_z_ms", "cpu_guest", "cpu_guest_nice"):
        assert scraper.wait_for(dropped_by_dynolog)
    assert running.process.poll() is None


def test_a_flag_file_is_obeyed_and_read_again_at_sighup(dynolog: Callable[..., Dynolog], tmp_path: Path) -> None:
    file = tmp_path / "dynolog.gflags"
    file.write_text("# flags of this host\n--use-JSON\n--kernel_monitor_reporting_interval_s=1\n--enable_gpu_monitor\n")
    running = dynolog(f"--flagfile={file}")
    running.wait_for_records(2)
    file.write_text(
        "--use_JSON\n--use_prometheus\n--prometheus_port=0\n--reporting_interval_s=1\n"
        "--filter_nic_interfaces\n--allow_interface_prefixes=lo\n"
    )
    running.process.send_signal(signal.SIGHUP)
    running.wait_for(lambda: "the configuration is read again" in running.text())
    known = len(running.records())
    record = running.wait_for_records(known + 2)[-1][1]

    assert "--enable_gpu_monitor has no effect" in running.text()
    assert {name.partition(".")[2] for name in record if "." in name} == {"lo"}


def test_a_bad_flag_file_at_sighup_changes_nothing(dynolog: Callable[..., Dynolog], tmp_path: Path) -> None:
    file = tmp_path / "dynolog.gflags"
    file.write_text("--use_JSON\n--kernel_monitor_reporting_interval_s=1\n")
    running = dynolog(f"--flagfile={file}")
    running.wait_for_records(1)
    file.write_text("--use_JASON\n")
    running.process.send_signal(signal.SIGHUP)
    running.wait_for(lambda: "the old one stays" in running.text())
    known = len(running.records())

    assert f"{file}:1: --use_JASON is not a flag of dynolog; did you mean --use_JSON?" in running.text()
    running.wait_for_records(known + 1)


def test_a_relay_gets_objects_and_its_absence_stops_nothing(dynolog: Callable[..., Dynolog]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    running = dynolog(
        "--use_JSON", "--use_fbrelay", f"--fbrelay_port={port}", "--kernel_monitor_reporting_interval_s=1"
    )
    running.wait_for_records(2)
    running.wait_for(lambda: "sink dynolog_relay fails" in running.text())

    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(PATIENCE)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE)
            first, _ = json.JSONDecoder().raw_decode(connection.recv(1 << 20).decode())

    assert first["dyno"].keys() == {"uptime"}  # of the first sample: it waited in the queue
    assert first["event"] == {"module": "dyno"}


def test_otlp_goes_where_the_environment_says(dynolog: Callable[..., Dynolog]) -> None:
    with receiving() as collector:
        flags = ["--use_otlp", "--otlp_endpoint=http://127.0.0.1:9", "--kernel_monitor_reporting_interval_s=1"]
        running = dynolog(*flags, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_SERVICE_NAME="lab")
        running.wait_for(lambda: len(collector.received) >= 2)
        assert running.end() == 0

    assert resource_of(collector.received[0].body)["service.name"] == "lab"
    names = {point.name for request in collector.received for point in points_of(request.body)}
    assert {"uptime", "cpu_util", "cpu_z_ms", "rx_bytes"} <= names


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--use_jsn"], 2, "did you mean --use_JSON?"),
        (["--use_ODS"], 2, "--use_ODS needs --ods_url"),
        (["--use_prometheus", "--prometheus_address=0.0.0.0"], 2, "can be reached from other machines"),
        (["--flagfile=/nonexistent"], 2, "No such file or directory"),
    ],
)
def test_a_bad_command_line_ends_with_its_reason(
    launcher: str, tmp_path: Path, flags: list[str], code: int, message: str
) -> None:
    done = subprocess.run(
        [launcher, "--port=0", f"--state={tmp_path}/s", *flags], capture_output=True, text=True, timeout=20
    )

    assert done.returncode == code, done.stderr
    assert message in done.stderr


def test_help_and_version_say_what_they_are_asked_for(launcher: str) -> None:
    text = subprocess.run([launcher, "--help"], capture_output=True, text=True, timeout=20)
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=20)

    assert (text.returncode, version.returncode) == (0, 0)
    assert "--kernel_monitor_reporting_interval_s=60" in text.stdout
    assert re.match(r"dynolog, spoken by sonde \d+\.\d+", version.stdout)


def test_rpc_answers_as_dynologs(dynolog: Callable[..., Dynolog]) -> None:
    running = dynolog("--use_JSON")
    running.wait_for(lambda: "answers on" in running.text())
    match = re.search(r"answers on .*?127\.0\.0\.1:(\d+)", running.text())
    assert match
    with socket.create_connection(("127.0.0.1", int(match[1])), 5) as connection:
        request = b'{"fn":"getStatus"}'
        connection.sendall(len(request).to_bytes(4, sys.byteorder) + request)
        reply = connection.recv(4096)

    assert reply[4:] == b'{"status":1}'


def test_a_sonde_daemon_serves_dynologs_page_and_moves_it_at_sighup(
    daemon: Callable[..., RunningDaemon],
) -> None:
    section = '[sinks.dynolog_prometheus]\naddress = "{}"\n'
    running = daemon(config=section.format("127.0.0.1:0"))
    before = running.status()["addresses"]["dynolog_prometheus"]
    running.wait_for(lambda: "cpu_util" in _read(before))

    # The port of the daemon's own page is taken: everything stays. Another address: the page moves.
    config = running.state / "sonde.toml"
    config.write_text(section.format(running.metrics_url.removeprefix("http://").removesuffix("/metrics")))
    running.process.send_signal(signal.SIGHUP)
    running.wait_for_log("the old one stays")
    assert "cpu_util" in _read(before)

    config.write_text(section.format("localhost:0"))
    running.process.send_signal(signal.SIGHUP)
    running.wait_for_log("the configuration is read again")
    after = running.status()["addresses"]["dynolog_prometheus"]
    assert after != before
    running.wait_for(lambda: "cpu_util" in _read(after))
    with pytest.raises(OSError, match="refused"):
        _read(before)
    assert running.end() < 3


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return str(reply.read().decode())
