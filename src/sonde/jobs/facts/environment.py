"""The environment of a job, from /proc/PID/environ: what steers how it runs, and nothing that opens doors.

    OMP_NUM_THREADS=8   NCCL_IB_HCA=mlx5_0,mlx5_1   SLURM_JOB_ID=77

A variable is shown when its name is one of those that matter, and even then not when it looks like a secret
(secrets.py). Of all others only the name is kept.
"""

from __future__ import annotations

import re

from sonde.errors import Unavailable
from sonde.jobs.facts.secrets import REDACTED, is_secret
from sonde.jobs.facts.view import Facts, View, present
from sonde.schedulers.job import parse_environ

_PREFIXES = (
    *("SLURM_", "PBS_", "OAR_", "LSB_", "SGE_", "KUBERNETES_", "JOB_COMPLETION_", "FLUX_"),
    *("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "VECLIB_", "MALLOC_", "TCMALLOC_"),
    *("NCCL_", "RCCL_", "HCCL_", "GLOO_", "UCX_", "FI_", "OMPI_", "PMI_", "PMIX_", "PMI2_", "MPICH_", "I_MPI_", "MV2_"),
    *("CUDA_", "NVIDIA_", "HIP_", "ROCR_", "HSA_", "ASCEND_", "NEURON_", "HABANA_", "XLA_", "TPU_", "ZE_"),
    *("TORCH_", "TORCHELASTIC_", "PYTORCH_", "TF_", "JAX_", "KINETO_", "DEEPSPEED_", "ACCELERATE_", "HF_HUB_"),
    *("SONDE_", "DASK_", "RAY_", "SPARK_", "NUMBA_", "LUSTRE_", "DARSHAN_", "PSM2_", "PSM3_", "IBV_", "PALS_"),
)
_WORDS = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GROUP_RANK NODE_RANK "
    "LD_LIBRARY_PATH LD_PRELOAD PATH PYTHONPATH PYTHONHOME PYTHONUNBUFFERED PYTHONHASHSEED VIRTUAL_ENV CONDA_PREFIX "
    "CONDA_DEFAULT_ENV LOADEDMODULES MODULEPATH SPACK_ENV GLIBC_TUNABLES LANG LC_ALL TZ TMPDIR SHELL "
    "HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy GOMAXPROCS JAVA_TOOL_OPTIONS "
    "TOKENIZERS_PARALLELISM HOSTNAME CI"
)
_NAMES = frozenset(_WORDS.split())
_SCHEDULERS = {
    "slurm": ("SLURM_JOB_ID", "SLURM_"),
    "pbs": ("PBS_JOBID", "PBS_"),
    "oar": ("OAR_JOB_ID", "OAR_"),
    "kubernetes": ("KUBERNETES_SERVICE_HOST", "KUBERNETES_"),
}
_LONGEST = 4096  # characters of a value
_NOT_KEYS = re.compile(
    r"TOKENIZERS_PARALLELISM|NEURON_RT_[A-Z_]*|SLURM_[A-Z_]*TASKS[A-Z_]*"
)  # named like a secret, and none


def read(view: View) -> Facts:
    """The variables that matter, with their values; the names of the others; those that were kept secret."""
    environ = variables(view)
    shown, redacted = {}, []
    for name, value in sorted(environ.items()):
        if not matters(name):
            continue
        secret = is_secret("" if _NOT_KEYS.fullmatch(name) else name, value)
        shown[name] = REDACTED if secret else value[:_LONGEST]
        redacted += [name] if secret else []
    others = sorted(name for name in environ if not matters(name))
    return {"variables": shown, "redacted": redacted, "others": others}


def scheduler(view: View) -> Facts:
    """Which batch system runs the job, by its variables; empty outside of one."""
    environ = variables(view)
    for name, (mark, _) in _SCHEDULERS.items():
        if environ.get(mark):
            return present({"name": name, "job": environ[mark] if name != "kubernetes" else None})
    return {}


def variables(view: View) -> dict[str, str]:
    try:
        return parse_environ(view.host.read(view.of_subject("environ")))
    except OSError as error:
        raise Unavailable(f"/{view.of_subject('environ')}: {error.strerror}") from None


def matters(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)
