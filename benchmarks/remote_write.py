"""Remote write of 2,000 series per second into the real VictoriaMetrics, beside a real Prometheus in agent mode.

Everything runs at the same time for nine windows: two processes that push through the sink (one is the A/A), one
that has no cramjam, and a Prometheus agent that scrapes a page of the same series once a second and writes it to the
same server. The CPU time is that of the whole process, the making up of the values included. Then the server is
stopped for 30 s while another process pushes.

    python -m benchmarks.remote_write push URL INSTANCE [STATUS]     the pushing process by itself
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, free_port, medians, resident_bytes, running, windows
from benchmarks.series import SERIES, frames, push
from sonde.http import Request, Response, Server
from sonde.loop import Loop
from sonde.sinks.prometheus import PrometheusConfig, PrometheusSink
from sonde.sinks.remote_write import RemoteWriteConfig, RemoteWriteSink

_WINDOWS, _SECONDS, _WARM_UP = 9, 7.0, 8.0
_OUTAGE = 30.0


class Victoria:
    """A VictoriaMetrics on a loopback port, with its data in a folder; it can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("victoria-metrics")
        if program is None:
            raise SystemExit("victoria-metrics is not installed: make real-programs")
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        self._command = [program, f"-httpListenAddr={address}", f"-storageDataPath={folder}", "-retentionPeriod=1"]
        self._command += ["-search.latencyOffset=0s", "-search.disableCache"]

    @contextmanager
    def run(self) -> Iterator[None]:
        with running(self._command):
            until = time.monotonic() + 20
            while not self._answers():
                if time.monotonic() > until:
                    raise SystemExit("victoria-metrics does not answer")
                time.sleep(0.02)
            yield

    def _answers(self) -> bool:
        try:
            self._get("health")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=20) as reply:
            data: bytes = reply.read()
        return data

    def count(self, instance: str) -> int:
        """The samples it has of an instance, of the last half hour."""
        self._get("internal/force_flush")
        expression = f'sum(count_over_time({{instance="{instance}"}}[30m]))'
        asked = {"query": expression, "time": str(int(time.time()) + 2)}  # else it is rounded down to the second
        found = json.loads(self._get(f"api/v1/query?{urllib.parse.urlencode(asked)}"))
        return sum(int(item["value"][1]) for item in found["data"]["result"])


@contextmanager
def page() -> Iterator[str]:
    """A /metrics page of the same series, rendered anew for every scrape; in this process, which nobody measures."""
    sink = PrometheusSink(PrometheusConfig())
    ticks = frames()

    def answer(request: Request) -> Response:
        sink.write([next(ticks)])
        return sink.page(request)

    loop = Loop()
    server = Server(loop, {"/metrics": answer})
    address = server.listen("127.0.0.1:0")
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield str(address)
    finally:
        loop.stop()
        thread.join()
        server.close()
        loop.close()


@contextmanager
def agent(folder: Path, target: str, url: str) -> Iterator[int]:
    """A Prometheus that keeps nothing, scrapes once a second and writes to a server: its pid."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("prometheus is not installed: make real-programs")
    configuration: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "agent", "static_configs": [{"targets": [target], "labels": AGENT}]}],
        "remote_write": [{"url": f"{url}/api/v1/write"}],
    }
    (folder / "agent.yml").write_text(json.dumps(configuration))  # JSON is YAML
    command = [program, "--enable-feature=agent", f"--config.file={folder / 'agent.yml'}"]
    command += [f"--storage.agent.path={folder / 'agent'}", f"--web.listen-address=127.0.0.1:{free_port()}"]
    with running([*command, "--storage.remote.flush-deadline=1s"]) as process:
        yield process.pid


AGENT = {"instance": "agent"}


def pushing(url: str, instance: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.remote_write", "push", f"{url}/api/v1/write", instance, *options]


def steady() -> list[dict[str, object]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "plain").mkdir()
        (folder / "plain/cramjam.py").write_text("raise ImportError\n")
        without = {"env": {"PYTHONPATH": ":".join([str(folder / "plain"), *filter(None, sys.path)])}}
        victoria = Victoria(folder / "data")
        stack.enter_context(victoria.run())
        pids = [stack.enter_context(running(pushing(victoria.url, name))).pid for name in ("one", "two")]
        pids.append(stack.enter_context(running(pushing(victoria.url, "plain"), **without)).pid)
        pids.append(stack.enter_context(agent(folder, stack.enter_context(page()), victoria.url)))
        time.sleep(_WARM_UP)
        one, two, plain, theirs = medians(windows(pids, count=_WINDOWS, seconds=_SECONDS))
        resident = [resident_bytes(pid) / 1e6 for pid in pids]
        counts = [victoria.count(name) for name in ("one", "plain", "agent")]
    expected = SERIES * _WINDOWS * _SECONDS
    if min(counts) < 0.9 * expected:
        raise SystemExit(f"the server has {counts} samples of each sender, not {expected:.0f}")
    ours = (one + two) / 2
    detail = (
        f"without cramjam {plain:.2f} ms/s; agent {theirs:.1f} ms/s; resident {resident[0]:.0f} MB,"
        f" without cramjam {resident[2]:.0f}, agent {resident[3]:.0f}"
    )
    return [
        Row("remote write of 2,000 series per second, whole process, CPU", ours, "ms/s", 12.0, detail).as_dict(),
        Row("the same / Prometheus in agent mode, same series, same server", ours / theirs, "×", 0.25).as_dict(),
        Row("the same / the same (A/A)", max(one, two) / min(one, two), "×", 1.25).as_dict(),
    ]


def outage() -> list[dict[str, object]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        status = folder / "status.json"
        victoria = Victoria(folder / "data")
        with victoria.run():
            pusher = stack.enter_context(running(pushing(victoria.url, "outage", str(status))))
            time.sleep(5)
        before = resident_bytes(pusher.pid)
        time.sleep(_OUTAGE)
        after = resident_bytes(pusher.pid)
        waiting = told(status)["depth"]
        with victoria.run():
            seconds = until_caught_up(status)
            peak = resident_bytes(pusher.pid)
            pusher.terminate()
            pusher.wait(5)
            last = told(status)
            stored = victoria.count("outage")
    lost = last["offered"] * SERIES - stored
    detail = f"{last['offered']} frames offered, {last['dropped']} dropped, {stored} samples stored, {waiting} waited"
    growth = f"from {before / 1e6:.1f} to {after / 1e6:.1f} MB, {peak / 1e6:.1f} after the catch-up"
    return [
        Row("server down for 30 s: samples lost", lost, "", 0, detail).as_dict(),
        Row("server down for 30 s: all delivered after its return", seconds, "s", 5.0).as_dict(),
        Row(
            "server down for 30 s: growth of resident memory", (max(after, peak) - before) / 1e6, "MB", 10.0, growth
        ).as_dict(),
    ]


def told(status: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(status.read_text())
    return found


def until_caught_up(status: Path) -> float:
    begun = time.monotonic()
    while told(status)["depth"] or told(status)["error"]:
        if time.monotonic() - begun > 30:
            raise SystemExit(f"not caught up: {told(status)}")
        time.sleep(0.05)
    return time.monotonic() - begun


def measure() -> list[dict[str, object]]:
    return [*steady(), *outage()]


def main(words: list[str]) -> None:
    if words[:1] == ["push"]:
        url, instance, *rest = words[1:]
        sink = RemoteWriteSink(RemoteWriteConfig(url=url, instance=instance), host="bench")
        push(sink, limit=sink.default_queue, status=Path(rest[0]) if rest else None)
        return
    for row in measure():
        print(row)


if __name__ == "__main__":
    main(sys.argv[1:])
