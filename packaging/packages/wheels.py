"""The two wheels: `sonde` whole, `sonde-agent` with the package sonde.agent alone.

Both may be installed into one environment, in any order, and either may be removed again: no file is in both. `sonde`
has sonde/agent/__init__.py and the modules beside it; `sonde-agent` has sonde/agent.py and the modules in
sonde/agent.d. Where both are there, the directory is found first (PEP 420). docs/adr/0015 has the reasons.
"""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path

from packages.release import PACKAGING, ROOT, Release, run

AGENT = ROOT / "src/sonde/agent"
_SEARCH = '__path__ = [__file__[: -len("py")] + "d"]  # the modules of this package are in agent.d\n'


def build_sonde(release: Release, dist: Path) -> Path:
    return _built(ROOT, "sonde", release, dist)


def build_agent(release: Release, dist: Path, build: Path) -> Path:
    stage = build / "agent"
    shutil.rmtree(stage, ignore_errors=True)
    modules = stage / "sonde/agent.d"
    shutil.copytree(AGENT, modules, ignore=shutil.ignore_patterns("__pycache__", "__init__.py"))
    (stage / "sonde/agent.py").write_text(as_module((AGENT / "__init__.py").read_text()))
    for source in (PACKAGING / "agent/pyproject.toml", PACKAGING / "agent/README.md", ROOT / "LICENSE"):
        shutil.copy(source, stage)
    return _built(stage, "sonde_agent", release, dist)


def as_module(init: str) -> str:
    """The text of a package's __init__.py as a module that finds the package's other modules in a directory beside."""
    lines = init.splitlines(keepends=True)
    body = ast.parse(init).body
    end = 0
    for node in body:
        docstring = node is body[0] and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        end = node.end_lineno or node.lineno
    return "".join([*lines[:end], "\n", _SEARCH, *lines[end:]])


def _built(folder: Path, name: str, release: Release, dist: Path) -> Path:
    # Hatchling itself, not pip or build: those would fetch it again for each wheel.
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist, epoch=release.epoch, cwd=folder)
    return dist / f"{name}-{release.version}-py3-none-any.whl"
