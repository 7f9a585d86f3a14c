"""What a trace file holds, in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from sonde.errors import ParseError
from sonde.tracing.summary import Summary, summarise

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"


def test_a_trace_of_the_profiler() -> None:
    assert summarise(str(TRACES / "profiler-rank-0.json")) == Summary(
        events=50,
        operators=19,
        first_ns=1794801446974076771,
        last_ns=1794801446978492974,
        base_ns=1790857026000000000,
        trace_id="965A83D44FC14ED8A2A097430A36EDA2",
        optimizer_steps=3,
    )


def test_a_trace_without_an_operator_has_no_first_and_no_last() -> None:
    summary = summarise(str(TRACES / "on-demand-launcher.json"))

    assert summary == Summary(4, 0, None, None, 1790857026000000000, "8703788188830973369")


def test_ranks_of_one_start_begin_together() -> None:
    first = [summarise(str(TRACES / f"on-demand-rank-{rank}.json")).first_ns or 0 for rank in (0, 1)]

    assert abs(first[0] - first[1]) < 1_000_000


def test_a_compressed_trace_is_known_by_its_content(tmp_path: Path) -> None:
    plain = TRACES / "profiler-rank-1.json"
    (tmp_path / "t.json").write_bytes(gzip.compress(plain.read_bytes()))

    assert summarise(str(tmp_path / "t.json")) == summarise(str(plain))


def test_without_a_base_the_times_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '[{"ph":"X","cat":"cpu_op","ts":1700000000000000.25,"dur":10},{"ph":"X","cat":"cpu_op","ts":1700000000000004},'
        '{"ph":"X","cat":"kernel","ts":1,"dur":1},{"ph":"B","cat":"cpu_op","ts":2},{"ph":"X","cat":"cpu_op"}]'
    )

    assert summarise(str(path)) == Summary(5, 2, 1700000000000000250, 1700000000000010250, 0, "")


def test_a_base_behind_the_events_counts_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents":[{"ph":"X","cat":"cpu_op","ts":1,"dur":2}],"baseTimeNanoseconds":5000,"trace_id":7}'
    )

    assert summarise(str(path)) == Summary(1, 1, 6000, 8000, 5000, "7")


def test_optimizer_steps_are_counted_by_their_annotations(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    names = [("user_annotation", "Optimizer.step#SGD.step"), ("user_annotation", "Optimizer.zero_grad#SGD.zero_grad")]
    names += [("cpu_op", "Optimizer.step#mine"), ("user_annotation", "Optimizer.step#Adam.step")]
    events = ",".join(f'{{"ph":"X","cat":"{kind}","name":"{name}","ts":1,"dur":2}}' for kind, name in names)
    path.write_text(f'[{events},{{"ph":"X","cat":"user_annotation","ts":1}}]')

    assert summarise(str(path)).optimizer_steps == 2


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes((TRACES / "profiler-rank-0.json").read_bytes()[:9000])

    with pytest.raises(ParseError, match="looks cut off, after 29 events"):
        summarise(str(path))


def test_what_is_looked_for_is_found_by_its_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "args": {"Input Dims": [[1, 2]]}},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 2, "args": {"Bytes": 16}},
        {"ph": "X", "cat": "python_function", "name": "nn.Module: Linear_0", "ts": 3, "args": {"Python module id": 0}},
    ]
    path.write_text(json.dumps({"traceEvents": events}))

    assert summarise(str(path), ("shapes", "memory", "flops")).contents == {"shapes", "memory"}
    assert summarise(str(path), ("stacks", "modules")).contents == {"stacks", "modules"}
    assert summarise(str(path)).contents == frozenset()
