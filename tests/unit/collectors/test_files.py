"""/proc/sys/fs/file-nr."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.files import FilesCollector, parse_file_nr
from sonde.config import NoKeys
from sonde.errors import ParseError
from sonde.hostfs import HostFS


def test_allocated_and_maximum_are_read(captured: Callable[[str], HostFS]) -> None:
    collector = FilesCollector(captured("vm"), NoKeys())
    layout, values, _, _ = collector.collect()
    collector.close()

    assert [spec.name for spec, _ in layout] == ["node_filefd_allocated", "node_filefd_maximum"]
    assert tuple(values) == tuple(int(word) for word in captured("vm").read("proc/sys/fs/file-nr").split()[::2])


def test_a_maximum_of_63_bits_stays_whole() -> None:
    assert parse_file_nr(b"2112\t0\t9223372036854775807\n") == (2112, 9223372036854775807)


@pytest.mark.parametrize("text", [b"", b"1 2", b"1 2 3 4", b"a\t0\t1"])
def test_odd_text_is_a_parse_error(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse_file_nr(text)


@given(st.binary(max_size=40) | st.text("0123456789 \t\n-+x", max_size=20).map(str.encode))
@settings(max_examples=200)
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    try:
        allocated, maximum = parse_file_nr(text)
    except ParseError:
        return

    assert isinstance(allocated, int)
    assert isinstance(maximum, int)
