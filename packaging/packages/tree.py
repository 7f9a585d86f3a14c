"""The files of the deb and of the rpm, laid out below a directory as they will lie on a node.

    /usr/bin/sonde                    the launcher
    /usr/lib/sonde                    the private environment: a venv without a Python of its own
        bin/python -> /usr/bin/python3
        lib/python3/site-packages     sonde, and what packaging/bundled.txt names
        lib/python3.11 -> python3     an interpreter looks where its version says; the files are the same for all
    /etc/sonde/sonde.toml             every key with its default, as comments

docs/adr/0015 has the reasons.
"""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

from packages.bundle import unpack
from packages.manpages import pages
from packages.release import PACKAGING, ROOT, Release
from packages.settings import default_file
from sonde.cli.completion import script

ENVIRONMENT = "usr/lib/sonde"
SITE = f"{ENVIRONMENT}/lib/python3/site-packages"
CONFFILES = ("etc/sonde/sonde.toml", "etc/logrotate.d/sonde")
EXECUTABLES = ("usr/bin/sonde", "usr/share/python3/runtime.d/sonde.rtupdate")

# What an administrator adds for the daemon: pip install --target /usr/local/lib/sonde NAME.
ADDED = "/usr/local/lib/sonde"

_PYTHON_MINORS = range(11, 20)  # of Python 3; a link to a place costs nothing where that version never comes
_LAUNCHER = """\
#!/usr/lib/sonde/bin/python -I
# -I: nothing of the caller's environment (PYTHONPATH, packages of the user) gets in.
from sonde.cli.main import main

raise SystemExit(main())
"""
# A venv is known by this file; version and the like are only for people.
_VENV = "home = /usr/bin\ninclude-system-site-packages = false\n"

_CHANGED = {
    "log_max_size": (
        '"0B"',
        "0B: rotated by /etc/logrotate.d/sonde. With a size the daemon rotates by itself; then remove that file.",
    )
}
_COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/sonde",
    "fish": "usr/share/fish/vendor_completions.d/sonde.fish",
}
_ZSH = {"deb": "usr/share/zsh/vendor-completions/_sonde", "rpm": "usr/share/zsh/site-functions/_sonde"}


def lay_out(root: Path, kind: str, wheels: list[Path], release: Release) -> None:
    """The tree of a `deb` or an `rpm`; everything that was there before goes."""
    shutil.rmtree(root, ignore_errors=True)
    unpack(wheels, root / SITE)
    _environment(root, kind)
    _write(root / "usr/bin/sonde", _LAUNCHER)
    _write(root / "usr/lib/systemd/system/sonde.service", (PACKAGING / "sonde.service").read_text())
    _write(root / "etc/sonde/sonde.toml", default_file(changed=_CHANGED))
    _write(root / "etc/logrotate.d/sonde", (PACKAGING / "sonde.logrotate").read_text())
    for page in pages(release):
        write_compressed(root / f"usr/share/man/man{page.name[-1]}/{page.name}.gz", page.text)
    for shell, path in {**_COMPLETIONS, "zsh": _ZSH[kind]}.items():
        _write(root / path, script(shell) + "\n")
    _documents(root)


def _environment(root: Path, kind: str) -> None:
    lib = root / ENVIRONMENT / "lib"
    for minor in _PYTHON_MINORS:
        (lib / f"python3.{minor}").symlink_to("python3")
    _write(root / SITE / "added.pth", ADDED + "\n")  # site.py leaves out what is not there
    _write(root / ENVIRONMENT / "pyvenv.cfg", _VENV)
    (root / ENVIRONMENT / "bin").mkdir()
    if kind == "deb":  # an rpm looks for a Python that is new enough when it is installed: sonde.spec
        (root / ENVIRONMENT / "bin/python").symlink_to("../../../bin/python3")


def _documents(root: Path) -> None:
    """The README and what it leads to, with links that still lead there."""
    target = root / "usr/share/doc/sonde"
    for source in (ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))):
        _write(target / source.relative_to(ROOT), source.read_text(encoding="utf-8"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_compressed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def settle(root: Path, epoch: int) -> None:
    """Modes and times that do not depend on who builds, or when."""
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder, name)
            if not path.is_symlink():
                executable = path.is_dir() or str(path.relative_to(root)) in EXECUTABLES
                path.chmod(0o755 if executable else 0o644)
            os.utime(path, (epoch, epoch), follow_symlinks=False)
    root.chmod(0o755)
    os.utime(root, (epoch, epoch))
