"""Packages of others that the deb and the rpm carry, from packaging/bundled.txt: fetched once, checked by their hashes.

A module in machine code is made for one version of Python and says so in its name (cramjam.cpython-311-….so): those for
all versions lie side by side, and each interpreter finds its own.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from packages.release import PACKAGING, Release, run

REQUIREMENTS = PACKAGING / "bundled.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# Said by each wheel of itself alone: its files, the Python it is for, how it was built. Nobody reads them here.
_OF_ONE_WHEEL = re.compile(r"[^/]+\.dist-info/(RECORD|WHEEL|sboms/.*)|.*\.pyi|.*/")


def fetch(release: Release, cache: Path) -> list[Path]:
    """The wheels, from the cache when they were fetched before: the second time needs no network."""
    wanted = REQUIREMENTS.read_bytes() + " ".join((release.machine, *PYTHONS)).encode()
    folder = cache / hashlib.sha256(wanted).hexdigest()[:16]
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        for python in PYTHONS:
            run(
                *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"),
                *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", REQUIREMENTS),
                *("--python-version", python, "--platform", f"manylinux_2_28_{release.machine}", "--dest", part),
                epoch=release.epoch,
            )
        part.rename(folder)  # all of them, or none
    return sorted(folder.glob("*.whl"))


def unpack(wheels: Iterable[Path], site: Path) -> None:
    """The files of the wheels in one directory. A file that two wheels have must be the same in both."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if not _OF_ONE_WHEEL.fullmatch(name):
                    _place(archive.read(name), site / name, wheel.name)


def _place(content: bytes, target: Path, wheel: str) -> None:
    if target.exists() and target.read_bytes() != content:
        raise SystemExit(f"{wheel} and a wheel before it do not agree about {target.name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
