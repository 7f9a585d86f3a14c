"""A sonde that everybody on this machine may run: a checkout, or the tests' interpreter, may be in a private place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lacking import lacking

import sonde

_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 11))"


@contextmanager
def public_sonde() -> Iterator[list[str]]:
    """The words that run a copy of it."""
    with tempfile.TemporaryDirectory(prefix="sonde-") as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(
            Path(sonde.__file__).parent, Path(folder, "sonde"), ignore=shutil.ignore_patterns("__pycache__")
        )
        start = f"import sys; sys.path.insert(0, {folder!r}); from sonde.cli.main import main; sys.exit(main())"
        yield [_interpreter(), "-c", start]


def open_to_all(folder: Path) -> None:
    """Let every user come to a directory of pytest's, which are closed to others; what is open stays as it is."""
    for one in (folder, *folder.parents):
        mode = one.stat().st_mode
        if mode & 0o055 != 0o055:
            one.chmod(mode | 0o055)


def _interpreter() -> str:
    found = next(filter(_is_good, map(os.path.realpath, (sys.executable, "/usr/bin/python3"))), "")
    return found or lacking("there is no Python of 3.11 or later that another user may run")


def _is_good(path: str) -> bool:
    public = all(parent.stat().st_mode & 0o001 for parent in Path(path).parents)
    return public and not subprocess.run([path, "-c", _NEW_ENOUGH], check=False).returncode
