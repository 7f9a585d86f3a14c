"""The software of a job: interpreters, libraries and packages, from /proc/PID/exe, /proc/PID/maps and their places.

    /proc/812/exe → /opt/venv/bin/python3.11
    7f33c3800000-… r-xp … /usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5        the number is in the name of the file
    …/site-packages/torch-2.5.1+cu124.dist-info                               the number is in the name of the directory

Nothing is run and nothing imported: a library is named by its file, a Python package by the directory its installer has
left. Of 64 processes of one program one is looked at.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence

from sonde.jobs.facts.view import Facts, View, present

_WORDS = (
    "torch torchvision torchaudio torch-npu triton numpy scipy pandas polars jax jaxlib tensorflow keras mindspore "
    "deepspeed megatron-core accelerate transformers datasets vllm flash-attn xformers apex lightning "
    "mpi4py horovod dask distributed ray numba cupy cupy-cuda12x pyarrow h5py netcdf4 zarr mkl intel-openmp "
    "nvidia-nccl-cu11 nvidia-nccl-cu12 nvidia-nccl-cu13 nvidia-cudnn-cu11 nvidia-cudnn-cu12 nvidia-cudnn-cu13 "
    "nvidia-cublas-cu12 nvidia-cuda-runtime-cu12 neuronx-distributed torch-neuronx habana-torch-plugin archspec "
    "pytorch-lightning"
)
_PACKAGES = frozenset(_WORDS.split())
_LIBRARIES = re.compile(
    r"/(lib(?:cuda|cudart|cublas|cudnn|cufft|nccl|nvrtc|rccl|hccl|amdhip64|hsa-runtime64|ascendcl|nrt|ze_loader|"
    r"mpi|mpich|mpi_cray|pmix|pmi2|ucp|fabric|psm2|openblas|blis|mkl_rt|mkl_core|fftw3|fftw3f|hdf5|netcdf|"
    r"gomp|iomp5|omp|tcmalloc|jemalloc|torch_cpu|tensorflow_framework|python[0-9.]+))"
    r"(?:-[0-9a-f]{8})?\.so((?:\.[0-9]+)*)$"
)
_SITE = re.compile(r"(.*/(?:site|dist)-packages)/")
_PATH = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ [1-9][0-9]*\s+(/[^\n]*?)(?: \(deleted\))?$", re.MULTILINE)
_DISTRIBUTION = re.compile(r"([A-Za-z0-9_.]+?)-([0-9][^-]*)\.(?:dist|egg)-info")
_MOST_PROGRAMS = 16
_MOST_SITES = 4


def read(view: View, pids: Sequence[int]) -> Facts:
    """Our own interpreter, and what the job's processes run."""
    own: Facts = {"version": ".".join(map(str, sys.version_info[:3])), "executable": sys.executable}
    own["packages"] = packages(view, "", (path for path in sys.path if path.endswith("-packages")))
    programs = _programs(view, pids)
    return present({"interpreter": present(own), "programs": programs})


def _programs(view: View, pids: Sequence[int]) -> list[Facts]:
    """Each program of the job once, most processes first."""
    by_program: dict[str, list[int]] = {}
    denied = 0
    for pid in pids:
        try:
            by_program.setdefault(view.host.link(f"proc/{pid}/exe"), []).append(pid)
        except PermissionError:
            denied += 1
        except OSError:
            continue  # it has ended
    if denied:
        view.miss("software.programs", f"{denied} processes belong to another user")
    ordered = sorted(by_program.items(), key=lambda item: -len(item[1]))
    if len(ordered) > _MOST_PROGRAMS:
        view.miss("software.programs", f"{len(ordered)} programs: the {_MOST_PROGRAMS} with most processes are shown")
    return [_program(view, path, members) for path, members in ordered[:_MOST_PROGRAMS]]


def _program(view: View, executable: str, pids: list[int]) -> Facts:
    paths: set[str] = set()
    for pid in (pids[0], pids[-1]):  # a launcher and a worker of the same program load different libraries
        paths |= mapped(view.data(f"proc/{pid}/maps", f"software.programs.{executable}.libraries") or b"")
    sites = sorted({match[1] for path in paths if (match := _SITE.match(path))})
    root = f"proc/{pids[0]}/root"
    return present(
        {
            "executable": executable,
            "processes": len(pids),
            "libraries": libraries(paths),
            "packages": packages(view, root if view.host.exists(root) else "", sites),
        }
    )


def mapped(text: bytes) -> set[str]:
    """The files that /proc/PID/maps names."""
    return {path.decode("utf-8", "replace") for path in _PATH.findall(text)}


def libraries(paths: Iterable[str]) -> Facts:
    """The version each interesting library has in its file name, else its path."""
    found: Facts = {}
    for path in sorted(paths):
        match = _LIBRARIES.search(path)
        if match:
            found.setdefault(match[1], match[2].lstrip(".") or path)
    return found


def packages(view: View, root: str, sites: Iterable[str]) -> Facts:
    """The interesting packages that are installed in directories of Python; the first place of a name counts."""
    found: Facts = {}
    for site in list(sites)[:_MOST_SITES]:
        for name in view.names(os.path.join(root, site.lstrip("/"))):
            match = _DISTRIBUTION.fullmatch(name)
            if match and (package := match[1].lower().replace("_", "-")) in _PACKAGES:
                found.setdefault(package, match[2])
    return dict(sorted(found.items()))
