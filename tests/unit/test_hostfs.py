"""Pseudo-files, kept open and read whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sonde.hostfs import HostFS


def test_a_kept_file_is_read_anew_each_time(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("1\n")
    file = HostFS(str(tmp_path)).record("stat")
    assert file.read() == b"1\n"
    (tmp_path / "stat").write_text("22\n")

    assert file.read() == b"22\n"


@pytest.mark.parametrize("size", [0, 1, 4095, 16383, 16384, 16385, 100_000])
@pytest.mark.parametrize("kind", ["record", "iterated"])
def test_a_file_of_any_size_is_read_whole(tmp_path: Path, size: int, kind: str) -> None:
    content = bytes(index % 251 for index in range(size))
    (tmp_path / "file").write_bytes(content)
    host = HostFS(str(tmp_path))
    file = getattr(host, kind)("file")

    assert file.read() == content
    assert file.read() == content
    assert host.read("file") == content


def test_an_iterated_file_of_several_pages_arrives_whole() -> None:
    # One read of /proc/kallsyms or /proc/self/smaps gives a page; only reading on to the end gives the rest.
    host = HostFS("/")
    file = host.iterated("proc/self/smaps")

    text = file.read()

    assert len(text) > os.sysconf("SC_PAGE_SIZE")
    assert text.rstrip().rsplit(b"\n", 1)[-1].startswith(b"VmFlags:")


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    host = HostFS(str(tmp_path))
    for read in (host.record, host.iterated, host.read, host.text, host.names):
        with pytest.raises(FileNotFoundError):
            read("nothing")


def test_names_are_sorted(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()

    assert HostFS(str(tmp_path)).names("") == ["a", "b", "c"]
