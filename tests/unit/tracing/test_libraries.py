"""What a process has loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.hostfs import HostFS
from sonde.tracing.libraries import Libraries, libraries_of, parse_maps

if TYPE_CHECKING:
    from tests.unit.tracing.conftest import Scene

LINE = "7f33c3800000-7f33d7de5000 r-xp 00000000 fe:00 2262884                    {}\n"


@pytest.mark.parametrize(
    ("path", "framework", "gpu"),
    [
        ("/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so", "pytorch", False),
        ("/opt/torch/lib/libtorch_cuda.so", "", True),
        ("/opt/torch/lib/libtorch_hip.so", "", True),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15", "", True),
        ("/opt/nvidia/cuda_runtime/lib/libcudart-9335f6a2.so.12", "", True),
        ("/opt/rocm/lib/libamdhip64.so.6", "", True),
        ("/usr/local/Ascend/lib64/libascendcl.so", "", True),
        ("/opt/mindspore/_c_expression.cpython-39-aarch64-linux-gnu.so", "mindspore", False),
        ("/opt/venv/lib/libtorch_cpu.so (deleted)", "pytorch", False),
        ("/home/ada/libtorch_cpu.so.txt", "", False),
        ("/home/ada/notes-on-libcuda.so", "", False),
        ("[heap]", "", False),
    ],
)
def test_a_library_tells_framework_and_gpu_by_its_name(path: str, framework: str, gpu: bool) -> None:
    found = parse_maps(LINE.format(path).encode())

    assert (found.framework, found.gpu) == (framework, gpu)
    assert found.base == ("7f33c3800000" if framework else "")


def test_a_library_that_lies_across_two_pieces_is_found(tmp_path: Path) -> None:
    filler = LINE.format("/usr/lib/libc.so.6")
    lines = filler * (65536 // len(filler)) + LINE.format("/opt/libtorch_cpu.so") + filler * 2000
    (tmp_path / "proc/5").mkdir(parents=True)
    (tmp_path / "proc/5/maps").write_text(lines + LINE.format("/opt/libtorch_cuda.so").rstrip("\n"))

    assert libraries_of(HostFS(str(tmp_path)), 5) == Libraries("pytorch", True, "7f33c3800000")


def test_a_process_that_is_gone_has_loaded_what_nobody_knows(tmp_path: Path) -> None:
    assert libraries_of(HostFS(str(tmp_path)), 5) is None


def test_a_child_of_fork_has_its_parents_addresses_and_another_process_its_own(scene: Scene) -> None:
    first, second = scene.trainee(), scene.trainee()
    child = first.fork()
    parent, forked, other = (libraries_of(scene.host, pid) for pid in (first.pid, child, second.pid))

    assert parent is not None
    assert parent == forked
    assert parent.framework == "pytorch"
    assert other is not None
    assert other.base != parent.base


@given(st.binary(max_size=300) | st.builds(lambda a, b: a + LINE.encode() + b, st.binary(), st.binary()))
@settings(max_examples=200)
def test_any_bytes_are_a_list_of_libraries(data: bytes) -> None:
    assert isinstance(parse_maps(data), Libraries)
