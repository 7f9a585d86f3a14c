"""More than anybody should ask for: the daemon stays upright and says so."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.conftest import RunningDaemon

Start = Callable[..., RunningDaemon]


def test_a_hundred_thousand_series_are_served_and_delay_nobody(daemon: Start, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    rows = "".join(f'many_things{{number="{number}"}} {number}\n' for number in range(100_000))
    (drop / "many.prom").write_text("# HELP many_things Many.\n# TYPE many_things gauge\n" + rows)
    running = daemon(config=f'[collectors.textfile]\ndirectory = "{drop}"\nmax_size = "64MB"\n', period="1s")
    running.wait_for(lambda: "many_things" in running.sonde("metrics", "many_things").stdout, seconds=30)

    page = running.page()
    begun = time.monotonic()
    answered = running.sonde("status")

    assert page.count("\nmany_things{") == 100_000
    assert "node_load1 " in page
    assert answered.returncode == 0, answered.stdout
    assert time.monotonic() - begun < 3


def test_a_drop_in_that_repeats_our_names_never_makes_the_page_invalid(
    daemon: Start, tmp_path: Path, promtool: Callable[[str], list[str]]
) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    (drop / "clash.prom").write_text("# HELP node_load1 Mine.\n# TYPE node_load1 gauge\nnode_load1 99\nown_thing 5\n")
    running = daemon(config=f'[collectors.textfile]\ndirectory = "{drop}"\n')
    running.wait_for(lambda: "own_thing 5" in running.page())

    page = running.page()

    # What promtool says of names is of no matter here; a page that is not valid it refuses to read.
    assert not [line for line in promtool(page) if "error" in line]
    assert page.count("# TYPE node_load1 ") == 1
    assert "node_load1 99" not in page
    assert "sonde_exposition_families_dropped_total 0\n" not in page


def test_a_log_on_a_full_disk_stops_nothing(daemon: Start) -> None:
    running = daemon("--log-file", "/dev/full")

    assert running.sonde("status").returncode == 0
    assert "node_load1" in running.page()


@pytest.mark.parametrize(
    "garbage", [b"", b"\x00" * 5000, b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\x7f", b"\x05\x00\x00\x00{"]
)
def test_garbage_on_the_rpc_port_disturbs_nobody(daemon: Start, garbage: bytes) -> None:
    running = daemon()
    host, _, port = running.status()["addresses"]["tcp"].rpartition(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=5) as client:
            client.sendall(garbage)

    assert running.sonde("status").returncode == 0
