"""The whole daemon at 1 Hz against node_exporter; the daemon cut to what dynolog samples against the C floor.

Everything runs at the same time for nine windows: two daemons (one is the A/A), node_exporter, and a scraper that asks
each for /metrics once a second: as Prometheus does, on a kept connection and with its headers, and then as a stranger
does, on a new connection without compression. The daemon has its default collectors, a job of 64 processes in a cgroup
as Slurm makes it, RPC, the page and the archive.
"""

from __future__ import annotations

import http.client
import json
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.harness import Row, compile_c, free_port, medians, resident_bytes, running, switches, windows
from benchmarks.processes import job_cgroups, sleepers

_WINDOWS, _SECONDS, _WARM_UP = 9, 8.0, 15.0
SONDE = str(Path(sys.executable).with_name("sonde"))


@contextmanager
def daemon(stack: ExitStack, *options: str) -> Iterator[tuple[int, int]]:
    """A daemon with its own state and ports: its pid and its HTTP port."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    port = free_port()
    command = [SONDE, "daemon", "--state", folder, "--period", "1s", "--log-file", f"{folder}/log", "--no-tracing"]
    command += ["--rpc-address", f"127.0.0.1:{free_port()}", "--http-address", f"127.0.0.1:{port}", *options]
    yield stack.enter_context(running(command)).pid, port


@contextmanager
def slurm_job(count: int) -> Iterator[None]:
    """Sleeping processes in a cgroup named as Slurm names a job's."""
    with job_cgroups() as cgroups, sleepers(count, cgroups):
        yield


# What Prometheus 2.42 sends with every scrape, over a connection that it keeps.
_AS_PROMETHEUS = {
    "User-Agent": "Prometheus/2.42.0",
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "X-Prometheus-Scrape-Timeout-Seconds": "1",
}


class Scraper(threading.Thread):
    """Asks each page once a second; in this process, so that nobody's figures contain it."""

    def __init__(self, ports: list[int], *, as_prometheus: bool = True) -> None:
        super().__init__(daemon=True)
        self._ports = ports
        self._kept = {port: http.client.HTTPConnection("127.0.0.1", port, timeout=5) for port in ports}
        self._ended = threading.Event()
        self.as_prometheus = as_prometheus
        self.pages = 0
        self.errors = 0

    def run(self) -> None:
        while not self._ended.wait(1.0):
            for port in self._ports:
                try:
                    self._scrape(port)
                    self.pages += 1
                except OSError:
                    self.errors += 1

    def _scrape(self, port: int) -> None:
        if self.as_prometheus:
            self._kept[port].request("GET", "/metrics", headers=_AS_PROMETHEUS)
            self._kept[port].getresponse().read()
            return
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
            reply.read()

    def end(self) -> None:
        self._ended.set()
        self.join()
        for connection in self._kept.values():
            connection.close()


def whole() -> list[dict[str, object]]:
    exporter = shutil.which("prometheus-node-exporter")
    if exporter is None:
        raise SystemExit("prometheus-node-exporter is not installed: make real-programs")
    with ExitStack() as stack:
        stack.enter_context(slurm_job(64))
        one, one_port = stack.enter_context(daemon(stack))
        two, two_port = stack.enter_context(daemon(stack))
        theirs_port = free_port()
        theirs = stack.enter_context(running([exporter, f"--web.listen-address=127.0.0.1:{theirs_port}"])).pid
        scraper = Scraper([one_port, two_port, theirs_port])
        time.sleep(2.0)
        scraper.start()
        time.sleep(_WARM_UP)
        rows = [compared("scraped as Prometheus does", [one, two, theirs])]
        scraper.as_prometheus = False
        time.sleep(2.0)
        rows.append(compared("scraped on new connections, uncompressed", [one, two, theirs]))
        scraper.end()
        resident = max(resident_bytes(one), resident_bytes(two))
        series = page_series(one_port)
        woken = wakeups(one, one_port)
    if scraper.errors or scraper.pages < 6 * _WINDOWS * _SECONDS * 0.8:
        raise SystemExit(f"the scraper failed {scraper.errors} times, {scraper.pages} pages")
    memory = Row("resident memory of that daemon (statm)", resident / 1e6, "MB", 22.0, f"{series} series")
    return [*rows, memory.as_dict(), woken]


def compared(how: str, pids: list[int]) -> dict[str, object]:
    ours, again, node_exporter = medians(windows(pids, count=_WINDOWS, seconds=_SECONDS))
    ratio = (ours + again) / 2 / node_exporter
    detail = f"{ours:.2f} ms/s against {node_exporter:.2f} ms/s; A/A {again / ours:.2f}"
    name = f"whole daemon at 1 Hz with archive and 64-process job, {how} / node_exporter"
    return Row(name, ratio, "×", 0.30, detail).as_dict()


def page_series(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
        return sum(not line.startswith(b"#") for line in reply)


def wakeups(pid: int, port: int) -> dict[str, object]:
    """Voluntary switches per second of a daemon nobody asks, against one and the threads handed to per due tick."""
    seconds = 20
    before = switches(pid)
    time.sleep(seconds)
    per_second = (switches(pid) - before) / seconds
    handed = handed_to(port)
    detail = f"due ticks and threads handed to per second: {handed}"
    return Row("voluntary switches per second at 1 Hz", per_second, "", float(handed), detail).as_dict()


def handed_to(port: int) -> int:
    """Each sampling thread wakes once per tick and hands its batch to the archive's thread: two switches."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
        text = reply.read().decode()
    samplers = 1 + sum(
        f'sonde_collector_duration_seconds{{collector="{name}"}}' in text for name in ("filesystem", "textfile")
    )
    return 2 * samplers


# The values dynolog logs: CPU time by mode, uptime, eight counters of each network device. The C floor also writes what
# it has read.
CUT = """
[collectors.network]
exclude = ""
class_exclude = ".*"
[sinks.jsonl]
path = "{path}"
include = [
  "node_cpu_seconds_total", "sonde_uptime_seconds", "node_network_*_bytes_total", "node_network_*_packets_total",
  "node_network_*_errs_total", "node_network_*_drop_total",
]
"""


def cut() -> list[dict[str, object]]:
    """What dynolog samples: CPU, uptime, network; a JSON line; RPC listening."""
    floor = str(compile_c("floor.c"))
    files = ["/proc/stat", "/proc/uptime", "/proc/net/dev"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pids = [stack.enter_context(running([floor, "1000", str(folder / name), *files])).pid for name in "ab"]
        for name in "cd":
            config = folder / f"{name}.toml"
            config.write_text(CUT.format(path=folder / name))
            options = [
                "--config",
                str(config),
                "--collectors",
                "cpu,host,network",
                "--no-archive",
                "--http-address",
                "",
            ]
            pids.append(stack.enter_context(daemon(stack, *options))[0])
        time.sleep(_WARM_UP / 2)
        c, c_again, ours, again = medians(windows(pids, count=_WINDOWS, seconds=_SECONDS))
    ratio = (ours + again) / (c + c_again)
    detail = f"{ours:.3f} ms/s against {c:.3f} ms/s; A/A ours {again / ours:.2f}, C {c_again / c:.2f}"
    return [Row("daemon cut to cpu, uptime, network, JSON line, RPC / C floor", ratio, "×", 3.0, detail).as_dict()]


def measure() -> list[dict[str, object]]:
    return [*whole(), *cut()]


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
