"""`sonde merge`: which rank a file is, whose clock is moved, and what is said about it."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sonde.cli.main import main

TRACES = Path(__file__).parents[2] / "fixtures" / "traces"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the traces of two ranks in it, under names that tell nothing."""
    for rank, name in enumerate(("a.json", "b.json")):
        shutil.copy(TRACES / f"on-demand-rank-{rank}.json", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def manifest(clock: dict[str, int] | None, **changes: Any) -> str:
    """As `sonde trace` writes it; what is not read here is left out."""
    written = {
        "manifest": 1,
        "hosts": [
            {"name": "n1", "clock": {"offset_ns": 0, "bound_ns": 90_000, "rounds": 8}},
            {"name": "n2", "clock": clock},
        ],
        "ranks": [
            {"rank": 0, "host": "n1", "pid": 812, "file": "a.json"},
            {"rank": 1, "host": "n2", "pid": 813, "file": "b.json"},
            {"rank": 2, "host": "n3", "pid": None, "file": ""},
        ],
    }
    return json.dumps(written | changes)


def names(path: Path) -> list[str]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events = json.loads(text)["traceEvents"]
    return [event["args"]["name"] for event in events if event["name"] == "process_name"]


def test_ranks_as_they_are_given(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["merge", "b.json", "a.json", "--rank", "1,0", "-o", "m.json.gz"])

    out, err = capsys.readouterr()
    assert code == 0
    assert out.splitlines()[:3] == [
        "rank  host  clock moved by  file",
        "   0  n1                 0  a.json",
        "   1  n2                 0  b.json",
    ]
    assert out.splitlines()[3].startswith("90 events in m.json.gz (")
    assert err == "sonde: merge: the clocks of n1, n2 are taken as they are; --manifest tells how they differ\n"
    assert names(here / "m.json.gz")[0] == "rank 0 · n1 · pid 22923 · python3"


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-7_n1_812.json", 7),
        ("job_rank3.json", 3),
        ("RANK_12.pt.trace.json", 12),
        ("frank4.json", None),
        ("t_812.json", None),
    ],
)
def test_the_rank_in_the_name_of_a_file(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, rank: int | None
) -> None:
    (here / "a.json").rename(here / name)
    code = main(["merge", name, "-o", "m.json", "--json"])

    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["parts"] == [{"path": name, "rank": rank, "host": "n1", "pid": 0, "shift_ns": 0, "bound_ns": None}]
    assert told["bytes"] == (here / "m.json").stat().st_size


def test_the_rank_that_the_profiler_has_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(TRACES / "profiler-rank-1.json", here / "c.json")
    main(["merge", "c.json", "-o", "m.json"])

    assert names(here / "m.json")[0] == "rank 1 · n2 · pid 28458 · python3"


def test_a_manifest_moves_the_clocks(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "manifest.json").write_text(manifest({"offset_ns": 2_500_000, "bound_ns": 41_000, "rounds": 8}))
    code = main(["merge", "--manifest", "manifest.json", "-o", "m.json"])

    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert out.splitlines()[1:3] == ["   0  n1    +0.000 ± 0.090 ms  a.json", "   1  n2    -2.500 ± 0.041 ms  b.json"]
    parts = json.loads((here / "m.json").read_text())["parts"]
    assert [(part["shift_ns"], part["bound_ns"], part["pid"]) for part in parts.values()] == [
        (0, 90_000, 812),
        (-2_500_000, 41_000, 813),
    ]


def test_a_clock_that_was_not_measured_is_said_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "manifest.json").write_text(manifest(None))
    code = main(["merge", "--manifest", "manifest.json", "-o", "m.json"])

    assert code == 0
    assert capsys.readouterr().err == "sonde: merge: the clock of n2 was not measured, and is not moved\n"


def test_some_files_of_a_manifest(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "manifest.json").write_text(manifest({"offset_ns": 1, "bound_ns": 1}))

    assert main(["merge", str(here / "b.json"), "--manifest", "manifest.json", "-o", "m.json"]) == 0
    assert names(here / "m.json")[0] == "rank 1 · n2 · pid 813 · python3"
    capsys.readouterr()
    assert main(["merge", "c.json", "--manifest", "manifest.json", "-o", "m.json"]) == 2
    assert "manifest.json has no c.json\n  it has a.json, b.json\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "manifest.json: cannot make sense"),
        ("[]", "not a manifest"),
        (manifest(None, ranks=[{}]), "not a manifest"),
    ],
)
def test_what_is_no_manifest_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, complaint: str
) -> None:
    (here / "manifest.json").write_text(text)

    assert main(["merge", "--manifest", "manifest.json", "-o", "m.json"]) == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["-o", "m.json"], 2, "which traces?"),
        (["a.json", "b.json", "--rank", "1", "-o", "m.json"], 2, "1 ranks for 2 files"),
        (["none.json", "-o", "m.json"], 1, "none.json: No such file"),
        (["a.json", "-o", "a.json"], 2, "a.json is one of the traces"),
        (["a.json", "b.json", "a.json", "-o", "m.json"], 2, "a.json is named twice"),
        (["a.json", "same.json", "-o", "m.json"], 2, "same.json is named twice"),
        (["a.json", "manifest.json", "-o", "m.json"], 2, "it has no traceEvents\n  give it with --manifest"),
        (["a.json", "old.json.gz", "-o", "m.json"], 2, "old.json.gz is merged already\n  merge the traces"),
        (["--manifest", "none.json", "-o", "m.json"], 2, "none.json: No such file"),
    ],
)
def test_what_cannot_be_merged_is_named(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, complaint: str
) -> None:
    (here / "manifest.json").write_text(manifest(None))
    (here / "same.json").symlink_to("a.json")
    main(["merge", "a.json", "b.json", "-o", "old.json.gz"])

    assert main(["merge", *words]) == code
    assert complaint in capsys.readouterr().err
    assert not (here / "m.json").exists()
