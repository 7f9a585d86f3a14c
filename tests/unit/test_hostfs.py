"""Pseudo-files, kept open and read whole."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_a_watched_file_of_a_captured_tree_tells_only_changes(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("one\n")
    watched = HostFS(str(tmp_path)).watched("mountinfo")
    first, same = watched.news(), watched.news()
    (tmp_path / "mountinfo").write_text("one\ntwo\n")

    assert (first, same, watched.news(), watched.news()) == (b"one\n", None, b"one\ntwo\n", None)


_WATCHING = """
import subprocess
from sonde.hostfs import HostFS
watched = HostFS().watched("proc/self/mountinfo")
first, same = watched.news(), watched.news()
subprocess.run(["mount", "-t", "tmpfs", "probe-of-a-test", "/mnt"], check=True)
after, again = watched.news(), watched.news()
print(b"probe-of-a-test" in first, same, b"probe-of-a-test" in after, again)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_the_kernel_calls_out_a_new_mount() -> None:
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", _WATCHING], capture_output=True, text=True, timeout=60
    )

    assert done.stdout.split() == ["False", "None", "True", "None"], done.stderr


def test_a_file_with_lines_of_a_page_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of /proc/interrupts has 2 kB on 192 CPUs: a read stops at less than half a page, before the next."""
    content = b"\n".join(b"x" * 2200 for _ in range(9))
    (tmp_path / "interrupts").write_bytes(content)
    pread = os.pread
    file = HostFS(str(tmp_path)).iterated("interrupts", line=4096)
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 2201), offset))

    assert file.read() == content


def test_a_path_is_followed_through_its_links(tmp_path: Path) -> None:
    (tmp_path / "devices/nvme0").mkdir(parents=True)
    (tmp_path / "class").symlink_to("devices/nvme0")
    host = HostFS(str(tmp_path))

    assert host.resolved("class") == str((tmp_path / "devices/nvme0").resolve())
    with pytest.raises(FileNotFoundError):
        host.resolved("nothing")
