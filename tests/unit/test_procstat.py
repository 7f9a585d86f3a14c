"""State and parent of a process; session and start are tested where jobs are found."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.procstat import Kinship, parse_kinship


def test_the_kernel_tells_state_and_parent() -> None:
    found = parse_kinship(HostFS().read(f"proc/{os.getpid()}/stat"))

    assert found == Kinship("R", os.getppid())


def test_a_name_may_contain_anything() -> None:
    assert parse_kinship(b"110 (python3 (x) T 5) S 1 110 110 0") == Kinship("S", 1)


@given(st.binary(max_size=60) | st.builds(lambda data: b"5 (x) " + data, st.binary(max_size=20)))
@settings(max_examples=200)
def test_any_bytes_are_a_kinship_or_a_parse_error(data: bytes) -> None:
    try:
        found = parse_kinship(data)
    except ParseError:
        return

    assert isinstance(found.parent, int)


@pytest.mark.parametrize("text", [b"", b"5 (x)", b"5 (x) S", b"5 (x) S one 2"])
def test_what_makes_no_sense_is_said_so(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_kinship(text)
