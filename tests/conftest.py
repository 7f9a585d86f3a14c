"""Fixtures every tier uses: captured hosts, and a writable copy of one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sonde.hostfs import HostFS

HOSTS = Path(__file__).parent / "fixtures" / "hosts"


@pytest.fixture
def captured() -> Callable[[str], HostFS]:
    """A captured host by name, read-only by convention; tests/fixtures/hosts/README.md tells where each comes from."""
    return lambda name: HostFS(str(HOSTS / name))


@pytest.fixture
def scratch(tmp_path: Path) -> Callable[[str], HostFS]:
    """A writable copy of a captured host, for devices that come, go and count backwards."""

    def copy(name: str) -> HostFS:
        shutil.copytree(HOSTS / name, tmp_path / name, symlinks=True)
        return HostFS(str(tmp_path / name))

    return copy
