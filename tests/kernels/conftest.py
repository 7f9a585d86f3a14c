"""Machines the tests boot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.kernels.machine import initial_files, kernel, module_files, run

Boot = Callable[..., str]


@pytest.fixture(scope="module")
def boot(tmp_path_factory: pytest.TempPathFactory) -> Boot:
    """Boot a kernel, run a script of Python in it, and give what it said on the serial line."""

    def boot(
        package: str,
        modules: Iterable[str],
        script: str,
        devices: Sequence[str] = (),
        *,
        programs: Iterable[str] = (),  # of this host, carried over with their libraries
        files: Mapping[str, bytes] = {},
        memory: str = "512",
        options: str = "",  # of the kernel's command line
        timeout: float = 180,
    ) -> str:
        folder: Path = tmp_path_factory.mktemp("machine")
        booted = kernel(package)
        initrd = initial_files(folder, module_files(booted, modules), script, programs, files)
        output, ended = run(booted, initrd, devices, memory=memory, timeout=timeout, options=options)
        initrd.unlink()  # tens of megabytes, and pytest keeps the folders of three runs
        assert ended, f"{booted.version} did not end within {timeout:g} s:\n{output[-5000:]}"
        assert "script ended with 0" in output, f"the script failed in {booted.version}:\n{output[-5000:]}"
        return output

    return boot
