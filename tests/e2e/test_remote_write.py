"""A daemon that pushes: what arrives, a server that hangs, an installation without cramjam."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import RunningDaemon
    from tests.integration.conftest import VictoriaMetrics


def pushing(url: str, more: str = "") -> str:
    return f'[daemon]\nhost = "node01"\n[sinks.remote_write]\nurl = "{url}/api/v1/write"\n{more}'


def delivered(daemon: RunningDaemon) -> int:
    (sink,) = [sink for sink in daemon.status()["sinks"] if sink["name"] == "remote_write"]
    return int(sink["delivered"])


def test_what_the_page_shows_is_pushed_too(
    daemon: Callable[..., RunningDaemon], victoria_metrics: Callable[..., VictoriaMetrics]
) -> None:
    server = victoria_metrics()
    changes = 'exclude = ["node_softnet_*"]\nrename = { node_load1 = "load.one" }\n'
    running = daemon("--collectors", "cpu,load,memory,softnet,daemon", config=pushing(server.url, changes))
    running.wait_for(lambda: delivered(running) > 50)
    shown = {line.split("{")[0].split(" ")[0] for line in running.page().splitlines() if not line.startswith("#")}

    pushed = {dict(labels)["__name__"]: labels for labels in server.samples('{job="sonde",instance="node01"}')}
    left_out = {name for name in shown if name.startswith("node_softnet_")} | {"node_load1"}
    assert left_out <= shown
    # The page's own count of what it leaves out is made with the page.
    assert set(pushed) == shown - left_out - {"sonde_exposition_families_dropped_total"} | {"load_one"}
    assert running.end() < 2


def test_a_server_that_never_answers_does_not_delay_the_end(daemon: Callable[..., RunningDaemon]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        running = daemon(config=pushing(f"http://127.0.0.1:{server.getsockname()[1]}"))
        hanging, _ = server.accept()
        with hanging:
            assert running.end() < 2

    assert "sink remote_write hangs with" in running.log()


def test_a_server_that_is_down_is_told_in_the_status_and_does_not_delay_the_end(
    daemon: Callable[..., RunningDaemon],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    running = daemon(config=pushing(f"http://127.0.0.1:{port}"))
    running.wait_for(lambda: "refused" in running.sonde("status").stdout)

    assert running.end() < 2
    assert "gave up" in running.log()
    assert running.process.returncode == 0


def test_without_cramjam_it_works_and_is_not_compressed(
    daemon: Callable[..., RunningDaemon], victoria_metrics: Callable[..., VictoriaMetrics], tmp_path: Path
) -> None:
    (tmp_path / "cramjam.py").write_text("raise ImportError('as if it were not installed')\n")
    server = victoria_metrics()
    paths = ":".join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    running = daemon(config=pushing(server.url), wrapper=["env", f"PYTHONPATH={paths}"])
    running.wait_for(lambda: delivered(running) > 20)

    assert server.samples("node_load1")


def test_a_bad_section_is_refused_by_name(daemon: Callable[..., RunningDaemon], tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('[sinks.remote_write]\nurl = "victoria:8428"\n')
    checked = daemon().sonde("config", "check", str(path))

    assert checked.returncode == 2
    assert "sinks.remote_write: 'victoria:8428' is not a URL" in checked.stderr
