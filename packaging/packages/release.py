"""What all packages say about themselves: from pyproject.toml, the version and the last commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import tomllib
from pathlib import Path
from typing import NamedTuple

from sonde.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
MAINTAINER = "sonde maintainers <maintainers@sonde.invalid>"  # RFC 2606: a name that is nobody's


class Release(NamedTuple):
    version: str  # as Python has it: 0.2.0rc1
    epoch: int  # seconds; the time of everything in the packages, so that two builds are the same bytes
    machine: str  # x86_64, aarch64
    summary: str

    @property
    def package_version(self) -> str:
        """As dpkg and rpm sort it: 0.2.0~rc1 comes before 0.2.0."""
        return re.sub(r"\.?(a|b|rc|dev)(\d+)", r"~\1\2", self.version)

    @property
    def deb_architecture(self) -> str:
        return {"x86_64": "amd64", "aarch64": "arm64"}.get(self.machine, self.machine)


def release() -> Release:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return Release(VERSION, _epoch(), platform.machine(), project["description"])


def _epoch() -> int:
    """SOURCE_DATE_EPOCH, else the last commit; outside a checkout the time of the version's file."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    ended = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    if ended.returncode == 0 and ended.stdout.strip():
        return int(ended.stdout)
    return int((ROOT / "src/sonde/version.py").stat().st_mtime)


def run(*words: str | Path, epoch: int, cwd: Path = ROOT) -> str:
    """Run a build tool; what it says is shown only when it fails."""
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    ended = subprocess.run(list(map(str, words)), cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{words[0]} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout
