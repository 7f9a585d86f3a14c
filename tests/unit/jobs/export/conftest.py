"""A recording with everything that is awkward, and what every export of it must hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.recordings import BEGUN_NS, Course, make_recording

from sonde.clock import NS
from sonde.jobs.export.choice import choice_of
from sonde.jobs.export.table import Table
from sonde.jobs.recording import Recording
from sonde.model import Value

HOSTS = ("gpu-2", "n1")
SECONDS = 70  # one block and a tail


def _gappy(t: float, host: str) -> Value | None:
    return None if host == "n1" and 10 <= t < 20 else int(t) * 3


def _only_n1(t: float, host: str) -> Value | None:
    return t / 8 if host in ("n1", "") else None


COURSES: dict[str, Course] = {
    "node_load1": lambda t, host: 0.1 + t % 7,
    'node_network_receive_bytes_total{device="eth0"}': lambda t, host: 2**53 + 1 + int(t) * 2,
    'node_network_receive_bytes_total{device="a,\\"b"}': lambda t, host: int(t),
    "node_gappy_total": _gappy,
    "node_only_n1": _only_n1,
}
COLUMNS = {
    "node_gappy_total": "node_gappy_total",
    "node_load1": "node_load1",
    'node_network_receive_bytes_total{device="a,\\"b"}': 'node_network_receive_bytes_total{device="a,\\"b"}',
    'node_network_receive_bytes_total{device="eth0"}': 'node_network_receive_bytes_total{device="eth0"}',
    "node_only_n1": "node_only_n1",
}

Truth = dict[tuple[str, int], dict[str, Value | None]]  # by host and time: the columns


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder: Path = tmp_path_factory.mktemp("recording") / "r"
    gaps = {"node_rapl_package_joules_total": ("denied", "readable by root only")}
    return make_recording(folder, HOSTS, SECONDS, series=COURSES, gaps=gaps, nodes={"n1": {"notes": ("a note",)}})


@pytest.fixture
def table(recording: Recording) -> Table:
    return Table(recording, choice_of([]))


@pytest.fixture(scope="session")
def truth() -> Truth:
    return {
        (host, BEGUN_NS + tick * NS): {column: COURSES[name](float(tick), host) for name, column in COLUMNS.items()}
        for host in HOSTS
        for tick in range(SECONDS)
    }


def rounded(truth: Truth) -> Truth:
    """What is left of it where integers with gaps, or all numbers, are floats."""
    return {
        key: {name: None if value is None else float(value) for name, value in row.items()}  # type: ignore[arg-type]
        for key, row in truth.items()
    }
