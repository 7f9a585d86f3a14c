"""The deb: the tree, a control file and the scripts of packaging/debian, put together by dpkg-deb.

Installed-Size is in KiB, each file rounded up, as dpkg-gencontrol counts (deb-substvars(5)).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import textwrap
import time
from email.parser import Parser
from pathlib import Path

from packages.release import MAINTAINER, PACKAGING, Release, run
from packages.tree import CONFFILES, SITE, lay_out, settle, write_compressed

# procps: the unit's reload is /bin/kill, which a Debian of the smallest kind lacks. libc6: the bundled modules.
_CONTROL = """\
Package: sonde
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Pre-Depends: init-system-helpers (>= 1.54~)
Depends: python3 (>= 3.11), procps, libc6 (>= 2.28), libgcc-s1
Recommends: logrotate
Section: admin
Priority: optional
Description: watches AI and HPC jobs, one small daemon per node
{description}
"""
# lintian does not know that the launcher's interpreter is the system's, by another name.
_OVERRIDES = "sonde: unusual-interpreter /usr/lib/sonde/bin/python [usr/bin/sonde]\n"
_COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: sonde

Files: *
Copyright: {year} the sonde authors
License: Apache-2.0

License: Apache-2.0
 On Debian systems the whole text is in /usr/share/common-licenses/Apache-2.0.
"""


def build(release: Release, wheels: list[Path], work: Path, dist: Path) -> Path:
    root = work / "deb"
    lay_out(root, "deb", wheels, release)
    _debian_files(root, release)
    control = root / "DEBIAN"
    control.mkdir()
    for script in ("postinst", "prerm", "postrm"):
        shutil.copy(PACKAGING / "debian" / script, control)
    (control / "conffiles").write_text("".join(f"/{path}\n" for path in CONFFILES))
    (control / "md5sums").write_text(_sums(root))
    (control / "control").write_text(_control(release, installed_kib(root)))
    settle(root, release.epoch)
    for script in ("postinst", "prerm", "postrm"):
        (control / script).chmod(0o755)
    target = dist / f"sonde_{release.package_version}_{release.deb_architecture}.deb"
    # One thread: how many there are would decide where xz divides its blocks.
    run("dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz", "--build", root, target, epoch=release.epoch)
    return target


def _debian_files(root: Path, release: Release) -> None:
    hook = root / "usr/share/python3/runtime.d/sonde.rtupdate"
    hook.parent.mkdir(parents=True)
    shutil.copy(PACKAGING / "debian/rtupdate", hook)
    overrides = root / "usr/share/lintian/overrides/sonde"
    overrides.parent.mkdir(parents=True)
    overrides.write_text(_OVERRIDES)
    documents = root / "usr/share/doc/sonde"
    ours = _COPYRIGHT.format(year=time.gmtime(release.epoch).tm_year)
    (documents / "copyright").write_text(ours + "".join(map(_bundled_copyright, _bundled(root))))
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(release.epoch))
    write_compressed(
        documents / "changelog.gz",
        f"sonde ({release.package_version}) unstable; urgency=medium\n\n"
        f"  * Release {release.version}.\n\n -- {MAINTAINER}  {date}\n",
    )


def _bundled(root: Path) -> list[Path]:
    return [path for path in sorted((root / SITE).glob("*.dist-info")) if not path.name.startswith("sonde-")]


def _bundled_copyright(info: Path) -> str:
    """A paragraph for a package of others, from what its wheel says."""
    metadata = Parser().parsestr((info / "METADATA").read_text(encoding="utf-8"))
    name, licence = metadata["Name"], metadata["License-Expression"] or metadata["License"] or "as below"
    texts = [path.read_text(encoding="utf-8") for path in sorted((info / "licenses").rglob("*")) if path.is_file()]
    holders = re.findall(r"^\s*Copyright \(c\) (.+?)\s*$", "\n".join(texts), re.MULTILINE) or [metadata["Author"]]
    whole = textwrap.indent("\n".join(texts).strip(), " ", lambda _: True).replace("\n \n", "\n .\n")
    return f"\nFiles: {SITE}/{name}*\nCopyright: {', '.join(holders)}\nLicense: {licence}-{name}\n{whole}\n"


def _sums(root: Path) -> str:
    """MD5 is what dpkg --verify reads; it finds damage, not malice."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return "".join(
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(root)}\n"
        for path in files
        if "DEBIAN" not in path.parts and str(path.relative_to(root)) not in CONFFILES
    )


def installed_kib(root: Path) -> int:
    total = 0
    for folder, names, files in os.walk(root):
        if Path(folder).name == "DEBIAN":
            continue
        for name in files:
            path = Path(folder, name)
            total += 1 if path.is_symlink() else -(-path.lstat().st_size // 1024)
        total += len(names)
    return total


def _control(release: Release, size: int) -> str:
    paragraphs = [
        release.summary,
        "It reads CPU, memory, disks, network, power and the jobs on the node, serves them to Prometheus and others, "
        "and keeps an archive of seven days.",
    ]
    description = "\n .\n".join(textwrap.indent(textwrap.fill(text, 78), " ") for text in paragraphs)
    return _CONTROL.format(
        version=release.package_version,
        architecture=release.deb_architecture,
        maintainer=MAINTAINER,
        size=size,
        description=description,
    )
