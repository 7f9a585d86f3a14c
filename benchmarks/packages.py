"""How much room the deb takes on a node: as it says itself, and as the disk says when its files are compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import BUILD, Row

ROOT = Path(__file__).parents[1]
BAR_MB = 60.0


def measure() -> list[dict[str, object]]:
    work = BUILD / "packages"
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'packaging'}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "packages", "--dist", str(work / "dist"), "--build", str(work / "build")]
    subprocess.run(command, cwd=ROOT, env=environ, check=True, stdout=subprocess.DEVNULL)
    (deb,) = (work / "dist").glob("*.deb")
    said = subprocess.run(["dpkg-deb", "-f", str(deb), "Installed-Size"], check=True, capture_output=True, text=True)
    tree = work / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    subprocess.run(["dpkg-deb", "-x", str(deb), str(tree)], check=True)
    # As the package's script does it; from the root of the tree, as the paths are kept in what is compiled.
    subprocess.run([sys.executable, "-m", "compileall", "-q", "usr/lib/sonde/lib/python3"], cwd=tree, check=True)
    used = subprocess.run(["du", "-sk", str(tree)], check=True, capture_output=True, text=True).stdout.split()[0]
    detail = f"{deb.stat().st_size / 1e6:.1f} MB to fetch"
    return [
        Row("deb, installed size as it says", int(said.stdout) * 1024 / 1e6, "MB", BAR_MB, detail).as_dict(),
        Row("deb, room on disk with its files compiled", int(used) * 1024 / 1e6, "MB", BAR_MB).as_dict(),
    ]


if __name__ == "__main__":
    print(measure())
