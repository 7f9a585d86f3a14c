"""The job listings of qstat and oarstat."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import ParseError
from sonde.schedulers.listing import flattened, parse_json, parse_listing, parse_walltime
from sonde.schedulers.oar import parse_oarstat
from sonde.schedulers.pbs import parse_qstat

FIXTURES = Path(__file__).parents[2] / "fixtures"
TEXTS = sorted(path for path in FIXTURES.glob("*/*stat*.*"))


def test_a_wrapped_value_is_joined_without_a_seam() -> None:
    jobs = parse_listing((FIXTURES / "pbs/qstat-f.txt").read_text(), "qstat")

    assert list(jobs) == ["123.pbs", "124[].pbs", "124[4].pbs", "125.pbs", "126.pbs"]
    assert jobs["123.pbs"]["exec_host"] == "+".join(f"n0{number}/0*8" for number in range(1, 10))
    assert jobs["123.pbs"]["comment"].endswith("on (n01:ncpus=8:mem=8388608kb)+(n02:ncpus=8:mem=8388608kb)")
    assert "GREETING=a,b = c" in jobs["123.pbs"]["Variable_List"]


def test_attributes_behind_a_tab_are_not_taken_for_wrapped_values() -> None:
    jobs = parse_listing((FIXTURES / "pbs/qstat-f-slurm-torque.txt").read_text(), "qstat")

    assert sorted(jobs) == ["1", "2", "3"]
    assert jobs["1"]["Job_Name"] == "train"
    assert jobs["1"]["exec_host"] == "n1/1+n2/1"


def test_an_attribute_without_a_value_is_empty_and_one_of_several_lines_is_whole() -> None:
    text = "Job_Id: 1\n    types = \n    events =\n    comment = one\ntwo\n    owner = ada\n"

    assert parse_listing(text, "oarstat") == {
        "1": {"types": "", "events": "", "comment": "one\ntwo", "owner": "ada"},
    }


@pytest.mark.parametrize("text", ["nonsense", "Job Id: 1\nnonsense\n", "    a = b\nJob Id: 1\n"])
def test_text_that_is_no_listing_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="qstat"):
        parse_listing(text, "qstat")


def test_numbers_of_json_keep_their_spelling() -> None:
    found = parse_json('{"Job_Name": 0.10, "Priority": 1e5, "list": [1, 2], "inner": {"walltime": "1:00:00"}}', "qstat")

    assert flattened(found, "qstat") == {
        "Job_Name": "0.10",
        "Priority": "1e5",
        "list": "1+2",
        "inner.walltime": "1:00:00",
    }


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1,}', '"x"'])
def test_json_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_json(text, "qstat")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("600", 600), ("0:10:0", 600), ("100:00:00", 360_000), ("1:00:00:00", 86400), ("", None), ("1h", None)],
)
def test_walltimes(text: str, seconds: int | None) -> None:
    assert parse_walltime(text) == seconds


@given(
    path=st.sampled_from(TEXTS),
    cut=st.tuples(st.integers(0, 5000), st.integers(0, 5000)),
    insert=st.text(max_size=10),
)
def test_mutated_listings_are_understood_or_refused(path: Path, cut: tuple[int, int], insert: str) -> None:
    text = path.read_text()
    mutated = text[: cut[0]] + insert + text[cut[1] :]

    for parse in (parse_qstat, parse_oarstat):
        try:
            jobs = parse(mutated)
        except ParseError:
            continue
        assert all(isinstance(value, str) for found in jobs.values() for value in found.values())


@given(st.text(max_size=100))
def test_any_text_is_a_listing_or_a_parse_error(text: str) -> None:
    for parse in (parse_qstat, parse_oarstat):
        try:
            parse(text)
        except ParseError:
            pass
