"""Merged traces: every event of every part, in processes of its own, on one clock."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import ParseError, ReadError, SondeError, UsageError
from sonde.tracing.merge import Part, merge

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"
RANKS = [Part(str(TRACES / f"profiler-rank-{rank}.json"), rank, f"n{rank + 1}", 812 + rank, 0) for rank in (0, 1)]
Event = dict[str, Any]


def merged(target: Path, *parts: Part, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    count = merge(parts, str(target))
    data = gzip.decompress(target.read_bytes()) if target.name.endswith(".gz") else target.read_bytes()
    whole: dict[str, Any] = json.loads(data, parse_float=parse_float)
    assert len(whole["traceEvents"]) == count
    return whole


def process_names(whole: dict[str, Any]) -> dict[int, str]:
    return {
        event["pid"]: event["args"]["name"] for event in whole["traceEvents"] if event.get("name") == "process_name"
    }


def collectives(whole: dict[str, Any], rank: int) -> list[tuple[str, float, float]]:
    """Name, begin and end of the collectives of a rank, in the order they began."""
    pids = [pid for pid, name in process_names(whole).items() if name.startswith(f"rank {rank} ")]
    found = [event for event in whole["traceEvents"] if event["pid"] in pids and event["ph"] == "X"]
    named = [event for event in found if event["name"].startswith(("gloo:", "c10d::", "nccl"))]
    return sorted([(event["name"], event["ts"], event["ts"] + event["dur"]) for event in named], key=lambda one: one[1])


def test_ranks_are_processes_with_names(tmp_path: Path) -> None:
    whole = merged(tmp_path / "m.json", *reversed(RANKS))

    assert process_names(whole) == {
        1: "rank 0 · n1 · pid 812 · python3",
        2: "rank 0 · n1 · pid 812 · Spans",
        3: "rank 0 · n1 · pid 812 · Traces",
        4: "rank 0 · n1 · pid 812 · unnamed",
        1001: "rank 1 · n2 · pid 813 · python3",
        1002: "rank 1 · n2 · pid 813 · Spans",
        1003: "rank 1 · n2 · pid 813 · Traces",
        1004: "rank 1 · n2 · pid 813 · unnamed",
    }
    order = {
        event["pid"]: event["args"]["sort_index"]
        for event in whole["traceEvents"]
        if event["name"] == "process_sort_index"
    }
    assert sorted(order, key=order.__getitem__) == [1, 2, 3, 4, 1001, 1002, 1003, 1004]


def test_what_a_part_says_about_itself_is_kept(tmp_path: Path) -> None:
    whole = merged(tmp_path / "m.json", RANKS[0], RANKS[1]._replace(shift_ns=-1500, bound_ns=250))

    about = whole["parts"]["rank 1"]
    trace = about.pop("trace")
    assert about == {
        "rank": 1,
        "host": "n2",
        "pid": 813,
        "shift_ns": -1500,
        "bound_ns": 250,
        "file": "profiler-rank-1.json",
        "pids": {"1001": 28458, "1002": "Spans", "1003": "Traces", "1004": ""},
        "events": 50,
    }
    assert trace["distributedInfo"]["rank"] == 1
    assert trace["deviceProperties"] == []
    assert "bound_ns" not in whole["parts"]["rank 0"]


@pytest.mark.parametrize("kind", ["profiler", "on-demand"])
def test_collectives_are_in_both_ranks_and_overlap_with_the_right_shift(tmp_path: Path, kind: str) -> None:
    ahead_ns = 3_000_000_777  # the clock of the second host
    parts = [Part(str(TRACES / f"{kind}-rank-0.json"), 0, "n1", 0, 0)]
    text = (TRACES / f"{kind}-rank-1.json").read_text()
    (tmp_path / "r1.json").write_text(text.replace("1790857026000000000", str(1790857026000000000 + ahead_ns)))
    wrong = merged(tmp_path / "wrong.json", *parts, Part(str(tmp_path / "r1.json"), 1, "n2", 0, 0))
    right = merged(tmp_path / "right.json", *parts, Part(str(tmp_path / "r1.json"), 1, "n2", 0, -ahead_ns))

    ours, theirs = collectives(right, 0), collectives(right, 1)
    gloo = [pair for pair in zip(ours, theirs, strict=True) if pair[0][0].startswith("gloo:")]
    assert len(gloo) >= 3
    assert [name for name, _, _ in ours] == [name for name, _, _ in theirs]
    assert all(max(a[1], b[1]) < min(a[2], b[2]) for a, b in gloo)
    assert not any(a[2] > b[1] for a in collectives(wrong, 0) for b in collectives(wrong, 1))
    assert right["baseTimeNanoseconds"] == wrong["baseTimeNanoseconds"] == 1790857026000000000


def test_arrows_of_one_rank_do_not_lead_to_another(tmp_path: Path) -> None:
    whole = merged(tmp_path / "m.json", *RANKS)

    ends: dict[int, list[int]] = {}
    for event in whole["traceEvents"]:
        if event["ph"] in "sf":
            ends.setdefault(event["id"], []).append(event["pid"])
    assert sorted(ends.values()) == [[1, 1], [1, 1], [1001, 1001], [1001, 1001]]


def test_the_events_are_those_of_the_trace_event_format(tmp_path: Path) -> None:
    whole = merged(tmp_path / "m.json", *RANKS)

    for event in whole["traceEvents"]:
        assert event["ph"] in set("XMsfi")
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int | str)
        assert isinstance(event["name"], str)
        assert event["ph"] == "M" or isinstance(event["ts"], float)
        assert event["ph"] != "X" or event["dur"] >= 0


json_values = st.recursive(
    st.integers(-9, 2**50) | st.text(max_size=6) | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=6,
)
microseconds = st.integers(0, 2**50).map(lambda ns: ns / 1000)
events = st.fixed_dictionaries(
    {"ph": st.sampled_from("XBEisftbeC"), "pid": st.integers(0, 5) | st.sampled_from(["", "Spans", "a"])},
    optional={
        "name": st.text(max_size=5),
        "tid": st.integers(0, 5) | st.just("x"),
        "ts": microseconds,
        "dur": microseconds,
        "id": st.integers(0, 3) | st.sampled_from(["0x1", "a", 2**40]),
        "bind_id": st.integers(0, 3),
        "args": json_values,
    },
)
parts = st.lists(
    st.tuples(st.lists(events, max_size=6), st.integers(0, 2**60), st.integers(-(10**9), 10**9), st.booleans()),
    min_size=1,
    max_size=4,
)


@given(parts, st.sampled_from([None, 1]))
@settings(max_examples=80, deadline=None)
def test_split_by_process_a_merged_trace_is_its_parts_again(
    given_parts: list[tuple[list[Event], int, int, bool]], indent: int | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        merging = []
        for rank, (listed, base, shift_ns, ranked) in enumerate(given_parts):
            path = Path(directory) / f"{rank}.json"
            path.write_text(json.dumps({"baseTimeNanoseconds": base, "traceEvents": listed}, indent=indent))
            merging.append(Part(str(path), rank if ranked else None, "n", rank + 1, shift_ns))
        whole = merged(Path(directory) / "m.json", *merging, parse_float=Decimal)

    pids = [set(part["pids"]) for part in whole["parts"].values()]
    assert len(set().union(*pids)) == sum(map(len, pids))
    used: list[set[Any]] = []
    for part in whole["parts"].values():
        listed, base, shift_ns, _ = given_parts[int(part["file"].removesuffix(".json"))]
        listed = json.loads(json.dumps(listed), parse_float=Decimal)
        own = [event for event in whole["traceEvents"] if str(event["pid"]) in part["pids"] and event["ph"] != "M"]
        assert [as_given(event, part["pids"]) for event in own] == [without_id(event) for event in listed]
        for event, before in zip(own, listed, strict=True):
            if "ts" in before:
                moved_ns = whole["baseTimeNanoseconds"] + 1000 * event["ts"]
                assert moved_ns == base + shift_ns + 1000 * before["ts"]
        ids = {
            json.dumps(before["id"]): event["id"] for event, before in zip(own, listed, strict=True) if "id" in before
        }
        assert len(set(ids.values())) == len(ids)
        used.append(set(ids.values()))
    assert len(set().union(*used)) == sum(map(len, used))


def as_given(event: Event, pids: dict[str, Any]) -> Event:
    return without_id(event) | {"pid": pids[str(event["pid"])]}


def without_id(event: Event) -> Event:
    return {key: value for key, value in event.items() if key not in ("id", "bind_id", "ts")}


def test_times_are_moved_without_loss(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"baseTimeNanoseconds":1000,"traceEvents":[{"ph":"i","pid":1,"ts":5}]}')
    (tmp_path / "b.json").write_text(
        '{"traceEvents":[{"ts":3944420974198.196,"ph":"i","pid":1},{"ph":"i","pid":1,"ts":"0.1"},{"ph":"i","pid":1,'
        '"ts":1e1}],"baseTimeNanoseconds":1790857026000000000}'
    )
    merge([Part(str(tmp_path / f"{name}.json"), None, "", 0, 7) for name in "ab"], str(tmp_path / "m.json"))

    text = (tmp_path / "m.json").read_text()
    assert '"baseTimeNanoseconds":1007,' in text
    assert '{"ph":"i","pid":1,"ts":5}' in text
    assert '{"ts":1794801446974197.196,"ph":"i","pid":1001}' in text
    assert '"ts":1790857025999999.100}' in text
    assert '"ts":1790857026000009.000}' in text


def test_a_shift_below_zero_stays_a_time(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"ph":"i","pid":1,"ts":2},{"ph":"i","pid":1,"ts":0.5}]')
    whole = merged(tmp_path / "m.json", Part(str(tmp_path / "a.json"), 0, "", 0, -1_250))

    assert whole["baseTimeNanoseconds"] == 0
    assert [event["ts"] for event in whole["traceEvents"][:2]] == [0.75, -0.75]


def test_ids_that_are_no_small_numbers_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '[{"ph":"b","pid":1,"id":"0x7f00"},{"ph":"e","pid":1,"id":"0x7f00"},{"ph":"b","pid":1,"id":4294967296},'
        '{"ph":"s","pid":1,"bind_id":7},{"ph":"n","pid":1,"id2":{"global":"0x7f00"}},{"ph":"n","pid":1,"id2":{"local":9}}]'
    )
    part = Part(str(tmp_path / "a.json"), None, "n", 1, 0)
    whole = merged(tmp_path / "m.json", part, part._replace(pid=2))

    events = [event for event in whole["traceEvents"] if event["ph"] != "M"]
    ids = [event["id"] for event in events if "id" in event]
    assert ids == [2**32, 2**32, 2**32 + 1, 3 * 2**32, 3 * 2**32, 3 * 2**32 + 1]
    assert [event["bind_id"] for event in events if "bind_id" in event] == [7, 2 * 2**32 + 7]
    assert [event["id2"] for event in events if "id2" in event] == [
        {"global": "0x100000000"},
        {"local": 9},
        {"global": "0x300000000"},
        {"local": 9},
    ]


def test_a_gpu_is_named_beside_its_process(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        json.dumps(
            [
                {"ph": "M", "name": "process_name", "pid": 812, "args": {"name": "python"}},
                {"ph": "M", "name": "process_labels", "pid": 812, "args": {"labels": "CPU"}},
                {"ph": "M", "name": "process_sort_index", "pid": 812, "args": {"sort_index": 812}},
                {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
                {"ph": "M", "name": "process_labels", "pid": 0, "args": {"labels": "GPU 0"}},
                {"ph": "M", "name": "process_sort_index", "pid": 0, "args": {"sort_index": 5000000}},
                {"ph": "X", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 1},
                {"ph": "X", "name": "aten::mm", "pid": "812", "tid": 812, "ts": 1, "dur": 1},
                {"ph": "i", "name": "no pid"},
                {},
            ]
        )
    )
    whole = merged(tmp_path / "m.json", Part(str(tmp_path / "a.json"), 3, "n1", 0, 0))

    assert process_names(whole) == {
        3001: "rank 3 · n1 · pid 812 · python",
        3002: "rank 3 · n1 · python · GPU 0",
        3003: "rank 3 · n1 · unnamed",
    }
    assert [(event["name"], event["pid"]) for event in whole["traceEvents"] if event["ph"] != "M"] == [
        ("gemm", 3002),
        ("aten::mm", 3001),
        ("no pid", 3003),
    ]


def test_numbers_do_not_meet_however_many_processes_a_part_has(tmp_path: Path) -> None:
    many = [{"ph": "i", "pid": pid, "ts": 1} for pid in range(2500)]
    (tmp_path / "a.json").write_text(json.dumps(many))
    part = Part(str(tmp_path / "a.json"), 0, "n1", 0, 0)
    whole = merged(tmp_path / "m.json", *(part._replace(rank=rank) for rank in (0, 1, 1, 7, None, 10**9)))

    first = [int(next(iter(about["pids"]))) for about in whole["parts"].values()]
    assert first == [1, 3001, 6001, 9001, 12001, 15001]
    assert list(whole["parts"]) == ["rank 0", "rank 1", "rank 1 (2)", "rank 7", f"rank {10**9}", "a.json"]
    assert len(process_names(whole)) == 6 * 2500


def test_quotation_marks_that_libkineto_did_not_escape_become_valid(tmp_path: Path) -> None:
    whole = merged(tmp_path / "m.json", Part(str(TRACES / "quotation-marks.json"), 0, "n1", 0, 0))

    assert 'quote"x' in {event["name"] for event in whole["traceEvents"]}


def test_a_name_that_ends_in_gz_is_compressed(tmp_path: Path) -> None:
    plain, packed = merged(tmp_path / "m.json", *RANKS), merged(tmp_path / "m.json.gz", *RANKS)

    assert plain | {"traceName": ""} == packed | {"traceName": ""}
    assert (tmp_path / "m.json.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_progress_rises_to_the_end(tmp_path: Path) -> None:
    events = ",".join(['{"ph":"i","pid":1,"ts":1}'] * 40_000)
    (tmp_path / "a.json").write_text(f"[{events}]")
    heard: list[float] = []
    part = Part(str(tmp_path / "a.json"), None, "", 0, 0)
    merge([part, part], str(tmp_path / "m.json"), progress=heard.append)

    assert heard == sorted(heard)
    assert heard[0] < 0.3
    assert heard[-1] > 0.9


@pytest.mark.parametrize("target", ["m.json", "m.json.gz"])
def test_a_failure_leaves_nothing_behind(tmp_path: Path, target: str) -> None:
    (tmp_path / "cut.json").write_bytes((TRACES / "profiler-rank-1.json").read_bytes()[:-300])
    (tmp_path / target).write_text("what was there before")

    with pytest.raises(ParseError, match="looks cut off, after 48 events"):
        merge([RANKS[0], Part(str(tmp_path / "cut.json"), 1, "n2", 0, 0)], str(tmp_path / target))
    assert {path.name for path in tmp_path.iterdir()} == {"cut.json", target}
    assert (tmp_path / target).read_text() == "what was there before"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SondeError, match=r"cannot write .*/nowhere/m.json: No such file or directory"):
        merge(RANKS, str(tmp_path / "nowhere" / "m.json"))


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"/nowhere\.json: No such file"):
        merge([Part("/nowhere.json", 0, "", 0, 0)], str(tmp_path / "m.json"))


def test_a_part_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")

    with pytest.raises(UsageError, match="is one of the traces"):
        merge([Part(str(tmp_path / "a.json"), 0, "", 0, 0)], str(tmp_path / "a.json"))
    assert (tmp_path / "a.json").read_text() == "[]"
