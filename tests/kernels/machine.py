"""A kernel of Debian, booted in QEMU with a small initial file system: busybox, this Python, this sonde.

No disk image and no root are needed, and no /dev/kvm: everything runs under TCG, where a boot takes some ten seconds.
What a test wants to know is printed by its script, in the guest, to the serial line; `boot` gives that text.

    output = boot("linux-image-amd64", modules=["nvme"], script="print(open('/proc/version').read())", devices=[...])
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.integration.conftest import require

SOURCE = Path(__file__).parents[2] / "src"
# Of the standard library: what no script needs, and would have to be unpacked at every boot.
_LEFT_OUT = ("test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "turtledemo", "site-packages", "distutils")

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null
for module in /modules/*.ko; do insmod "$module" || echo "insmod $module failed"; done
ifconfig lo up
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONPATH=/sonde PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
{python} /script.py
echo "script ended with $?"
poweroff -f
"""


class Kernel(NamedTuple):
    """An unpacked kernel package."""

    root: Path
    version: str

    @property
    def image(self) -> Path:
        return self.root / "boot" / f"vmlinuz-{self.version}"


def cache() -> Path:
    """Where kernels are kept between runs, outside of the checkout."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sonde-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kernel(package: str) -> Kernel:
    """The kernel of a Debian package, downloaded once. Of a metapackage (linux-image-amd64) the one it depends on."""
    package = _real_package(package)
    root = cache() / package
    if not root.exists():
        _unpack(package, root)
    (image,) = (root / "boot").glob("vmlinuz-*")
    return Kernel(root, image.name.removeprefix("vmlinuz-"))


def _real_package(package: str) -> str:
    said = subprocess.run(
        [require("apt-cache"), "depends", package], capture_output=True, text=True, check=True, timeout=60
    )
    names = re.findall(r"Depends: (linux-image-[0-9]\S*-\S+)", said.stdout)
    return names[0] if names else package


def _unpack(package: str, root: Path) -> None:
    folder = root.with_name(f"{package}.{os.getpid()}")
    folder.mkdir()
    try:
        subprocess.run([require("apt-get"), "-qq", "download", package], cwd=folder, check=True, timeout=300)
        (archive,) = folder.glob("*.deb")
        subprocess.run([require("dpkg"), "-x", archive, folder], check=True, timeout=300)
        archive.unlink()
        if not (folder / "lib").exists():
            (folder / "lib").symlink_to("usr/lib")
        (version,) = (path.name for path in (folder / "lib/modules").iterdir())
        subprocess.run([require("depmod"), "-b", folder, version], check=True, timeout=120)
        os.rename(folder, root)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def module_files(kernel: Kernel, modules: Iterable[str]) -> list[Path]:
    """The files of modules and of those they need, in the order of loading; none for what is built in."""
    found: dict[Path, None] = {}
    for module in modules:
        said = subprocess.run(
            [require("modprobe"), "--show-depends", "-d", kernel.root, "-S", kernel.version, module],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert said.returncode == 0, f"{kernel.version} has no module {module}: {said.stderr}"
        found.update((Path(path), None) for path in re.findall(r"^insmod (\S+)", said.stdout, re.MULTILINE))
    return list(found)


def initial_files(
    folder: Path, modules: Sequence[Path], script: str, programs: Iterable[str], files: Mapping[str, bytes]
) -> Path:
    """Lay out the guest's file system in a folder and pack it."""
    root = folder / "root"
    for name in ("bin", "proc", "sys", "dev", "tmp", "run", "modules", "etc"):
        (root / name).mkdir(parents=True)
    shutil.copy(require("busybox"), root / "bin/busybox")
    python = Path(os.path.realpath(sys.executable))
    _carry_python(root, python)
    for program in programs:
        _carry(root, Path(os.path.realpath(require(program))), as_path=Path(require(program)))
    for number, path in enumerate(modules):
        data = path.read_bytes()
        name = f"{number:03d}-{path.name.removesuffix('.xz')}"
        (root / "modules" / name).write_bytes(lzma.decompress(data) if path.suffix == ".xz" else data)
    shutil.copytree(SOURCE, root / "sonde", ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in files.items():
        target = root / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    (root / "script.py").write_text(script)
    (root / "init").write_text(INIT.format(python=python))
    (root / "init").chmod(0o755)
    packed = folder / "initrd.cpio"
    names = b"\n".join(os.fsencode(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with packed.open("wb") as output:
        subprocess.run(
            [require("cpio"), "--quiet", "-o", "-H", "newc"],
            cwd=root,
            input=names,
            stdout=output,
            check=True,
            timeout=60,
        )
    shutil.rmtree(root)
    return packed


def _carry_python(root: Path, python: Path) -> None:
    """The interpreter that runs the tests, at its own path, so that it finds its library."""
    _carry(root, python)
    library = Path(sysconfig.get_path("stdlib"))
    ignored = shutil.ignore_patterns(*_LEFT_OUT, "config-*", "*.opt-*.pyc", "*.a")
    shutil.copytree(library, _below(root, library), ignore=ignored, dirs_exist_ok=True, symlinks=True)
    for extension in (library / "lib-dynload").glob("*.so"):
        _carry_libraries(root, extension)


def _carry(root: Path, path: Path, as_path: Path | None = None) -> None:
    target = _below(root, as_path or path)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    _carry_libraries(root, path)


def _carry_libraries(root: Path, path: Path) -> None:
    said = subprocess.run([require("ldd"), path], capture_output=True, text=True, timeout=60)
    for found in re.findall(r"(/\S+) \(0x", said.stdout):
        target = _below(root, Path(found))
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, target)


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def run(
    kernel: Kernel, initrd: Path, devices: Sequence[str], *, memory: str, timeout: float, options: str
) -> tuple[str, bool]:
    """What the machine says on its serial line until it is switched off; False when it was not in time."""
    words = [require("qemu-system-x86_64"), "-accel", "tcg,thread=multi", "-cpu", "max", "-m", memory, "-smp", "1"]
    words += ["-nographic", "-nodefaults", "-no-reboot", "-serial", "stdio", "-monitor", "none"]
    words += ["-kernel", str(kernel.image), "-initrd", str(initrd), *devices]
    words += ["-append", f"console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 {options}".rstrip()]
    log = initrd.with_name("serial.log")
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(timeout)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            process.kill()
            process.wait()
    return log.read_text(errors="replace").replace("\r\n", "\n"), ended
