"""The rpm: the tree and packaging/sonde.spec, put together by rpmbuild."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from packages.release import PACKAGING, ROOT, Release, run
from packages.tree import CONFFILES, ENVIRONMENT, EXECUTABLES, lay_out, settle

_LICENCE = "usr/share/licenses/sonde/LICENSE"
_PAPERS = {"usr/share/doc/": "%doc ", "usr/share/licenses/": "%license "}
# Directories of others, which every system has or shares: a package owns only its own.
_SHARED = (
    *("etc", "etc/logrotate.d", "usr", "usr/bin", "usr/lib", "usr/lib/systemd", "usr/lib/systemd/system"),
    *("usr/share", "usr/share/doc", "usr/share/licenses", "usr/share/man", "usr/share/man/man1", "usr/share/man/man5"),
)


def build(release: Release, wheels: list[Path], work: Path, dist: Path) -> Path:
    root = work / "rpm"
    lay_out(root, "rpm", wheels, release)
    (root / _LICENCE).parent.mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", root / _LICENCE)
    settle(root, release.epoch)
    listing = work / "rpm-files"
    listing.write_text("".join(f"{line}\n" for line in file_list(root)))
    top = work / "rpmbuild"
    shutil.rmtree(top, ignore_errors=True)
    run(
        *("rpmbuild", "-bb", "--target", f"{release.machine}-linux", PACKAGING / "sonde.spec"),
        *_defined(_topdir=top, sonde_version=release.package_version, sonde_summary=release.summary),
        *_defined(sonde_tree=root, sonde_files=listing),
        epoch=release.epoch,
    )
    (built,) = (top / "RPMS").rglob("*.rpm")
    target = dist / built.name
    shutil.move(built, target)
    return target


def _defined(**macros: object) -> Iterator[str]:
    for name, value in macros.items():
        yield from ("--define", f"{name} {value}")


def file_list(root: Path) -> Iterator[str]:
    """Lines of %files: what belongs to the package, to whom, and what an upgrade must not replace."""
    yield "%defattr(-,root,root,-)"
    for folder, names, files in sorted(os.walk(root)):
        for name in sorted((*names, *files)):
            path = Path(folder, name)
            relative = str(path.relative_to(root))
            if path.is_dir() and not path.is_symlink():
                if relative not in _SHARED:
                    yield f'%dir %attr(0755,root,root) "/{relative}"'
                continue
            yield f'{_mark(relative)}"/{relative}"'
    # Pointed to a Python when it is installed.
    yield f'%ghost "/{ENVIRONMENT}/bin/python"'


def _mark(relative: str) -> str:
    if relative in CONFFILES:
        return "%config(noreplace) %attr(0644,root,root) "
    if relative in EXECUTABLES:
        return "%attr(0755,root,root) "
    for folder, mark in _PAPERS.items():
        if relative.startswith(folder):
            return mark
    return ""
