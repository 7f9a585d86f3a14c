"""The text of /proc/PID."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.collectors.procfs import (
    Rollup,
    Stat,
    Status,
    parse_io,
    parse_rollup,
    parse_schedstat,
    parse_stat,
    parse_statm,
    parse_status,
)
from sonde.errors import ParseError

STAT = b"4711 (a) b (c)) S 1 4710 4709 0 -1 4194304 5106 9 3 2 12 21 5 6 20 0 4 0 99386 3133440 366 1 1\n"
IO = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"
STATUS = b"Name:\tx\nVmSwap:\t      12 kB\nvoluntary_ctxt_switches:\t34\nnonvoluntary_ctxt_switches:\t5\n"
ROLLUP = b"5000-6000 ---p 0 [rollup]\nRss: 9 kB\nPss:  7 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 2 kB\nSwapPss: 3 kB\n"


def test_every_field_of_stat_is_where_the_kernel_puts_it_whatever_the_name() -> None:
    assert parse_stat(STAT) == Stat(b"S", (5106, 3, 12, 21), (9, 2, 5, 6), 1, 4709, 4, 99386)


def test_the_other_files() -> None:
    assert parse_statm(b"765 410 382 5 0 123 0\n") == (765, 410, 382)
    assert parse_io(IO) == (5, 6)
    assert parse_schedstat(b"2144008 87483 3\n") == 87483
    assert parse_status(STATUS) == Status(12 * 1024, 34, 5)
    assert parse_rollup(ROLLUP) == Rollup(7 * 1024, 3 * 1024, 3 * 1024)


def test_a_process_without_memory_has_no_swap() -> None:
    assert parse_status(STATUS.replace(b"VmSwap", b"VmNone")).swap_bytes == 0


def test_this_process_agrees_with_what_it_knows_about_itself() -> None:
    stat = parse_stat(Path("/proc/self/stat").read_bytes())

    assert (stat.parent, stat.session) == (os.getppid(), os.getsid(0))
    assert stat.threads == len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_stat, STAT),
        (parse_statm, b"765 410 382 5 0 123 0\n"),
        (parse_io, IO),
        (parse_schedstat, b"2144008 87483 3\n"),
        (parse_status, STATUS),
        (parse_rollup, ROLLUP),
    ],
)
def test_mutated_text_is_parsed_or_refused(parse: Callable[[bytes], object], text: bytes) -> None:
    @given(st.integers(0, len(text)), st.integers(0, len(text)), st.binary(max_size=4))
    def check(start: int, end: int, inserted: bytes) -> None:
        try:
            parse(text[:start] + inserted + text[end:])
        except ParseError:
            pass

    check()
    with pytest.raises(ParseError):
        parse(b"")
