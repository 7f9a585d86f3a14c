"""The agent runs in the interpreter its user has chosen: Python 3.9 and newer, without the rest of sonde."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sonde import agent
from sonde.version import VERSION

AGENT = Path(agent.__file__).parent
MODULES = sorted(AGENT.rglob("*.py"))
# Everything is imported; a datagram goes through both ends.
PROGRAM = """
import pkgutil, sys
import sonde.agent
for module in pkgutil.walk_packages(sonde.agent.__path__, "sonde.agent."):
    __import__(module.name)
from sonde.agent import wire
request = wire.Request(3, 0, (7, 1))
assert wire.parse_request(wire.parse(wire.pack_request(request))[1]) == request
print(*(name for name in sys.modules if name.split(".")[0] == "sonde"))
"""


def python39() -> str | None:
    """A real Python 3.9: on the PATH, or one that pyenv keeps."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for candidate in ("python3.9", *map(str, root.glob("versions/3.9.*/bin/python3.9"))):
        try:  # a shim of pyenv is there without being one
            ended = subprocess.run([candidate, "-V"], capture_output=True, text=True, timeout=20)
        except OSError:
            continue
        if ended.stdout.startswith("Python 3.9"):
            return candidate
    return None


def run_alone(interpreter: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run PROGRAM where of sonde only the agent is there; -S: not what is installed for this interpreter."""
    (folder / "sonde").mkdir()
    (folder / "sonde/agent").symlink_to(AGENT)
    return subprocess.run(
        [interpreter, "-S", "-W", "error", "-B", "-c", PROGRAM], cwd=folder, capture_output=True, text=True, timeout=60,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip


@pytest.mark.parametrize("path", MODULES, ids=[path.name for path in MODULES])
def test_the_syntax_is_that_of_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_nothing_is_used_that_came_after_python_3_9() -> None:
    # The whole tree with one target: vermin knows since when each syntax, module, function and keyword is there.
    ended = subprocess.run(
        [str(Path(sys.executable).with_name("vermin")), "--no-config-file", "--target=3.9-", "--violations",
         "--no-parse-comments", "--feature", "union-types", str(AGENT)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout


def test_it_imports_nothing_of_ours_but_itself(tmp_path: Path) -> None:
    ended = run_alone(sys.executable, tmp_path)

    assert ended.stderr == ""
    assert set(ended.stdout.split()) == {
        "sonde", "sonde.agent", *(f"sonde.agent.{path.stem}" for path in MODULES if path.stem != "__init__")
    }  # fmt: skip


def test_it_runs_under_a_real_python_3_9(tmp_path: Path) -> None:
    interpreter = python39()
    if interpreter is None:
        pytest.skip("no Python 3.9 here; Debian 12 has none to install. What it would not take is checked above")
    ended = run_alone(interpreter, tmp_path)

    assert ended.stderr == ""
    assert "sonde.agent.wire" in ended.stdout


def test_it_has_the_version_of_the_whole() -> None:
    assert agent.VERSION == VERSION
