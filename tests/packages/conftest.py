"""The packages, built once for all tests, and a clean Debian to install them in."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.conftest import require
from tests.lacking import lacking

from packages.__main__ import build

_SUITE = "bookworm"
_INCLUDED = "python3,procps,systemd,man-db,logrotate"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class Built(NamedTuple):
    folder: Path
    sonde: Path
    agent: Path
    deb: Path
    rpm: Path
    sums: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What `make packages` makes."""
    require("dpkg-deb")
    require("rpmbuild")
    folder = tmp_path_factory.mktemp("packages")
    return Built(folder / "dist", *build(folder / "dist", folder / "build"))


@pytest.fixture(scope="session")
def base() -> Path:
    """A Debian 12 of the smallest kind, made once and kept outside the checkout."""
    if os.geteuid() != 0:
        lacking("only root can make a Debian and enter it")
    require("debootstrap")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sonde-tests"
    root = cache / f"debian-{_SUITE}-{_INCLUDED.replace(',', '-')}"
    if not root.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = root.with_name(root.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        command = ["debootstrap", "--variant=minbase", f"--include={_INCLUDED}", _SUITE, str(part), mirror()]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr
        part.rename(root)
    return root


def mirror() -> str:
    """Where this machine gets its Debian packages from."""
    form = "$(SITE) $(CODENAME) $(COMPONENT)"
    ended = subprocess.run(
        ["apt-get", "indextargets", "--format", form, "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    )
    sites = [line.split()[0] for line in ended.stdout.splitlines() if line.split()[1:] == [_SUITE, "main"]]
    if not sites:
        lacking(f"apt has no source for Debian {_SUITE}")
    return sites[0]


class Debian:
    """A root with processes, mounts and a network of its own: nothing in it meets the machine's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        script = (
            f"mount -t proc proc {root}/proc && mount -t sysfs -o ro sysfs {root}/sys && "
            f"mount -t devpts devpts {root}/dev/pts && ip link set lo up && echo up && exec sleep infinity"
        )
        command = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", script]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "up\n"
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text()
        self._first = int(children.split()[0])  # process 1 there

    def command(self, *words: str, user: str = "", shared: bool = False) -> list[str]:
        """A command inside; `shared`: in its namespaces but with this machine's files."""
        enter = ["nsenter", f"--target={self._first}", "--mount", "--pid", "--net"]
        if shared:
            return [*enter, *words]
        as_user = ["runuser", "-u", user, "--"] if user else []
        home = f"/home/{user}" if user else "/root"
        environ = ["env", "-i", f"PATH={_PATH}", f"HOME={home}", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
        return [*enter, "chroot", str(self.root), *environ, *as_user, *words]

    def run(self, *words: str, user: str = "", shared: bool = False, code: int = 0) -> str:
        """What a command prints; it must end with `code`."""
        ended = subprocess.run(
            self.command(*words, user=user, shared=shared), capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == code, f"{words}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def bring(self, path: Path) -> str:
        """Copy a file into it; its path there."""
        shutil.copy(path, self.root / "root")
        return f"/root/{path.name}"

    def files(self) -> set[str]:
        """Every file but those in which apt, dpkg and others keep accounts."""
        accounts = ("proc/", "sys/", "var/lib/dpkg/", "var/cache/", "var/log/", "var/lib/apt/", "root/")
        found = (str(path.relative_to(self.root)) for path in self.root.rglob("*"))
        return {path for path in found if not path.startswith(accounts)}

    def close(self) -> None:
        self._holder.send_signal(signal.SIGKILL)  # process 1 goes with it, and with that every other
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()


@pytest.fixture
def debian(base: Path, tmp_path: Path) -> Iterator[Debian]:
    root = tmp_path / "debian"
    subprocess.run(["cp", "-a", "--reflink=auto", str(base), str(root)], check=True)
    running = Debian(root)
    try:
        yield running
    finally:
        running.close()
        shutil.rmtree(root, ignore_errors=True)
