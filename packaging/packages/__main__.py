"""`make packages`: two wheels, a deb, an rpm and their checksums.

python -m packages [--dist DIR] [--build DIR]       from the top of the checkout; dist and build by default
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
from pathlib import Path

from packages import bundle, deb, rpm, wheels
from packages.release import ROOT, release

_TOOLS = {"dpkg-deb": "dpkg", "rpmbuild": "rpm (Debian) or rpm-build"}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m packages", description="Build wheels, deb and rpm.")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where the packages go")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="where they are put together")
    args = parser.parse_args(arguments)
    missing = [f"{tool} (package {package})" for tool, package in _TOOLS.items() if shutil.which(tool) is None]
    if missing:
        print(f"packages: not installed: {', '.join(missing)}; `make real-programs` does it on Debian", file=sys.stderr)
        return 3
    for path in build(args.dist, args.build):
        print(f"{path.stat().st_size:>9}  {os.path.relpath(path)}")
    return 0


def build(dist: Path, work: Path, *, bundled: bool = True) -> list[Path]:
    """Everything; what was in `dist` before goes. Without `bundled` the packages carry nothing of others."""
    dist, work = dist.resolve(), work.resolve()
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    about = release()
    sonde = wheels.build_sonde(about, dist)
    carried = [sonde, *(bundle.fetch(about, ROOT / "build/wheels") if bundled else [])]
    built = [
        sonde,
        wheels.build_agent(about, dist, work),
        deb.build(about, carried, work, dist),
        rpm.build(about, carried, work, dist),
    ]
    sums = dist / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built))
    return [*built, sums]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
