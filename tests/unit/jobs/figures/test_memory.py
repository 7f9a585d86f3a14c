from __future__ import annotations

from pathlib import Path

import pytest
from tests.healthy import GIB, JOB, recording

from sonde.clock import NS
from sonde.jobs.figures.memory import trend
from sonde.jobs.summary import summarise
from sonde.store.form import Series
from sonde.store.query import Points

RSS = f"sonde_job_memory_rss_bytes{{{JOB}}}"


def resident(values: list[float]) -> Points:
    return Points(Series("x", "gauge", "bytes", ()), NS, [place * NS for place in range(len(values))], values)


def test_a_trend_is_the_slope_of_a_line_through_the_values() -> None:
    noisy = [100.0 * place + (5 if place % 2 else -5) for place in range(50)]

    assert trend(resident(noisy)) == pytest.approx(100, rel=0.01)


def test_a_few_values_make_no_trend() -> None:
    assert trend(resident([1.0, 2.0, 3.0])) is None


def test_only_the_last_minutes_tell_what_was_about_to_happen(tmp_path: Path) -> None:
    """Flat for five minutes, then a gibibyte a minute until the values end."""

    def course(t: float, host: str) -> int:
        return int((2 + max(0.0, t - 295) / 60) * GIB)

    figures = summarise(recording(tmp_path / "r", {RSS: course})).nodes[0].figures

    assert figures["memory_growth"] == pytest.approx(GIB / 60, rel=0.01)
    assert figures["memory_last"] == pytest.approx(7 * GIB, rel=0.01)
    assert figures["memory_full_in"] == pytest.approx(60, rel=0.05)


def test_the_limit_of_the_job_is_what_it_was_granted_when_nothing_was_asked_for(tmp_path: Path) -> None:
    limit = {f"sonde_job_memory_limit_bytes{{{JOB}}}": lambda t, host: 12 * GIB}

    figures = summarise(recording(tmp_path / "r", limit, asked=None)).nodes[0].figures

    assert figures["memory_asked"] is None
    assert figures["memory_granted"] == 12 * GIB
    assert figures["memory_used_share"] == pytest.approx(0.5)
