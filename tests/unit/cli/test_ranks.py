"""Lists of ranks."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.cli.ranks import folded, parse_ranks


@pytest.mark.parametrize(
    ("text", "ranks"), [("0", (0,)), ("5,3", (3, 5)), ("0,8-11", (0, 8, 9, 10, 11)), ("1, 1-2", (1, 2))]
)
def test_ranks_and_ranges_are_taken_once(text: str, ranks: tuple[int, ...]) -> None:
    assert parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["", "a", "1,", "-1", "3-1", "1-", "0-9999999", "1.5", "٣"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_ranks(text)


@given(st.sets(st.integers(0, 500), min_size=1))
def test_what_is_folded_can_be_read_again(ranks: set[int]) -> None:
    assert parse_ranks(folded(ranks)) == tuple(sorted(ranks))
