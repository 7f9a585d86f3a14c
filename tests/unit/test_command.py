"""Running another program."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sonde import command
from sonde.errors import ReadError, TimedOut, Unavailable


def test_the_output_is_given() -> None:
    assert command.run(["sh", "-c", "echo $LC_ALL; echo noise >&2"], timeout=10) == "C\n"


def test_a_failure_repeats_the_complaint() -> None:
    with pytest.raises(ReadError, match=r"sh ended with status 3: no such thing"):
        command.run(["sh", "-c", "echo no such thing >&2; exit 3"], timeout=10)


def test_of_a_long_complaint_the_last_line_is_repeated_in_whole_words() -> None:
    tries = 'for n in 1 2 3 4 5; do echo "try $n: could not get the list of groups: connection refused" >&2'
    long = "echo the verdict $(seq -s ' ' 1000 1100) >&2"
    with pytest.raises(ReadError) as short:
        command.run(["sh", "-c", f"{tries}; done; echo the verdict >&2; exit 1"], timeout=10)
    with pytest.raises(ReadError) as cut:
        command.run(["sh", "-c", f"{long}; exit 1"], timeout=10)

    assert str(short.value) == "sh ended with status 1: the verdict"
    assert str(cut.value).endswith("1055 1056 …")


def test_a_program_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="surely-not-installed"):
        command.run(["surely-not-installed"], timeout=1)


def test_the_deadline_ends_the_program_and_what_it_started(tmp_path: Path) -> None:
    begun = time.monotonic()

    with pytest.raises(TimedOut, match=r"0\.3 s") as raised:
        command.run(["sh", "-c", f"sleep 60 & echo $! >{tmp_path}/pid; wait"], timeout=0.3)

    assert time.monotonic() - begun < 10
    assert raised.value.exit_code == 4
    assert ended(int((tmp_path / "pid").read_text()))


def ended(pid: int) -> bool:
    """Gone, or a zombie that init has yet to wait for, within a moment."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].startswith(b"Z"):
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False
