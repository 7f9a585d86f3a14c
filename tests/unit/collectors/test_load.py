"""/proc/loadavg."""

from __future__ import annotations

import pytest

from sonde.collectors.load import parse_load
from sonde.errors import ParseError


def test_the_three_averages_are_read() -> None:
    assert parse_load(b"0.03 0.07 12.50 2/85 2118\n") == (0.03, 0.07, 12.5)


@pytest.mark.parametrize("text", [b"", b"a b c", b"0.1 0.2", b"nan 0 0 1/1 1", b"-1 0 0 1/1 1", b"inf 0 0 1/1 1"])
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_load(text)
