"""`sonde status` for people."""

from __future__ import annotations

from typing import Any

from sonde.cli.status import render

MTIME = "node_textfile_mtime_seconds"


def reply(gaps: list[dict[str, Any]], addresses: dict[str, str]) -> dict[str, Any]:
    collector = {
        "name": "textfile",
        "state": "ok",
        "period_seconds": 1.0,
        "took_seconds": 0.001,
        "ticks": 5,
        "failures": 0,
        "skipped": 0,
        "error": "",
        "gaps": gaps,
    }
    return {
        "build": "1",
        "host": "n1",
        "pid": 7,
        "uptime_seconds": 10.0,
        "cpu_seconds": 0.1,
        "resident_bytes": 10**7,
        "series": 3,
        "config": "none",
        "addresses": addresses,
        "collectors": [collector],
        "sinks": [],
        "absent": [],
    }


def gap(file: str, reason: str) -> dict[str, Any]:
    return {"metric": MTIME, "labels": {"file": file}, "quality": "blank", "reason": reason}


def test_each_reason_has_its_line() -> None:
    gaps = [gap("/a.prom", "not UTF-8"), gap("/b.prom", "too large"), gap("/c.prom", "not UTF-8")]
    lines = render(reply(gaps, {})).splitlines()

    assert lines[-2:] == [
        f"  textfile: {MTIME} (2 series) blank: not UTF-8",
        f'  textfile: {MTIME}{{file="/b.prom"}} blank: too large',
    ]


def test_very_many_reasons_are_counted() -> None:
    lines = render(reply([gap(f"/{n}.prom", f"reason {n}") for n in range(20)], {})).splitlines()

    assert "reason 7" in lines[-2]
    assert lines[-1] == f"  textfile: {MTIME} (12 more series) blank: other reasons, see --json"


def test_addresses_stand_below_each_other_whatever_they_are_called() -> None:
    addresses = {"rpc": "127.0.0.1:1778", "dynolog_prometheus": "http://127.0.0.1:8080"}
    text = render(reply([], addresses))

    assert "rpc                 127.0.0.1:1778\ndynolog_prometheus  http://127.0.0.1:8080\n" in text
