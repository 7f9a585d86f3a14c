"""The two wheels: each alone, and both in one environment in any order."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from tests.packages.conftest import Built
from tests.unit.agent.test_interpreters import PROGRAM, python39

from packages.__main__ import build
from packages.wheels import as_module
from sonde.version import VERSION

IMPORT = "import sonde.agent, sonde.agent.wire; print(sonde.agent.VERSION, sonde.agent.wire.__file__)"


class Environment:
    """A virtual environment without pip; this one's installs into it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin/python"

    def pip(self, *words: str) -> None:
        options = ["--disable-pip-version-check", "--quiet", "--python", str(self.python)]
        ended = subprocess.run(
            [sys.executable, "-m", "pip", *options, *words], capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    def run(self, *words: str) -> str:
        ended = subprocess.run(
            [str(self.python), "-W", "error", *words],
            capture_output=True, text=True, timeout=60, cwd="/", env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "venv")


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_no_file_is_in_both_wheels(built: Built) -> None:
    assert not names(built.sonde) & names(built.agent)


def test_the_agents_wheel_has_the_agent_alone(built: Built) -> None:
    modules = {name for name in names(built.agent) if ".dist-info/" not in name}

    assert {"sonde/agent.py", "sonde/agent.d/wire.py"} <= modules
    assert all(name == "sonde/agent.py" or name.startswith("sonde/agent.d/") for name in modules)


def test_the_wheel_of_sonde_is_whole_and_needs_nothing(built: Built, environment: Environment) -> None:
    environment.pip("install", "--no-index", str(built.sonde))

    assert environment.run("-m", "sonde", "version").startswith(f"sonde {VERSION}, ")
    assert "sonde/agent/wire.py" in environment.run("-c", IMPORT)


@pytest.mark.parametrize("removed", ["sonde", "sonde-agent"])
def test_either_can_be_removed_and_the_other_goes_on(built: Built, environment: Environment, removed: str) -> None:
    for wheel in (built.sonde, built.agent):
        environment.pip("install", "--no-index", str(wheel))
    both = environment.run("-c", IMPORT)
    environment.pip("uninstall", "--yes", removed)
    one = environment.run("-c", IMPORT)

    assert both.startswith(VERSION)
    assert "sonde/agent/wire.py" in both
    assert f"{VERSION} " in one
    assert ("sonde/agent.d/wire.py" if removed == "sonde" else "sonde/agent/wire.py") in one


def test_the_order_of_installation_does_not_matter(built: Built, tmp_path: Path) -> None:
    seen = set()
    for number, order in enumerate(itertools.permutations([built.sonde, built.agent])):
        environment = Environment(tmp_path / str(number))
        for wheel in order:
            environment.pip("install", "--no-index", str(wheel))
        site = next((tmp_path / str(number)).glob("lib/python*/site-packages"))
        seen.add(frozenset(str(path.relative_to(site)) for path in site.rglob("*.py")))
        assert "sonde/agent/wire.py" in environment.run("-c", IMPORT)

    assert len(seen) == 1


def test_the_agents_wheel_runs_under_a_real_python_3_9(built: Built, tmp_path: Path) -> None:
    interpreter = python39()
    if interpreter is None:
        pytest.skip("no Python 3.9 here; Debian 12 has none to install")
    with zipfile.ZipFile(built.agent) as archive:
        archive.extractall(tmp_path)
    ended = subprocess.run(
        [interpreter, "-S", "-B", "-W", "error", "-c", PROGRAM],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip

    assert ended.stderr == ""
    assert "sonde.agent.wire" in ended.stdout


def test_a_package_becomes_a_module_that_finds_the_others() -> None:
    text = as_module('"""About."""\n\nfrom __future__ import annotations\n\nVERSION = "1"\n')

    assert text.index("annotations") < text.index("__path__") < text.index("VERSION")
    assert as_module("VERSION = 1\n").strip().startswith("__path__")
    compile(text, "agent.py", "exec")


def test_two_builds_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(tmp_path / "a/dist", tmp_path / "a/build", bundled=False)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    before = os.umask(0o077)
    try:
        second = build(tmp_path / "b/dist", tmp_path / "b/elsewhere", bundled=False)
    finally:
        os.umask(before)

    assert len(first) == 5
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
