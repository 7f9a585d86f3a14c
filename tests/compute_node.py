"""A compute node's files, written in the kernel's formats: 2 sockets, 4 GPUs, InfiniBand, and a job of Slurm in it.

16 CPUs in 8 cores of a Sapphire Rapids; formats of Documentation/admin-guide/cputopology.rst, ABI/stable/
sysfs-devices-node, admin-guide/mm/{transhuge,hugetlbpage}.rst, ABI/testing/sysfs-bus-pci and of the driver of NVIDIA.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sonde.hostfs import HostFS

FLAGS = (
    "fpu lm sse sse2 pni ssse3 cx16 sse4_1 sse4_2 movbe popcnt xsave avx f16c abm lahf_lm fma bmi1 avx2 bmi2 "
    "avx512f avx512dq avx512cd avx512bw avx512vl amx_tile"
)
CPUINFO = f"""\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8468
stepping\t: 8
microcode\t: 0x2b000590
flags\t\t: {FLAGS}

processor\t: 1
vendor_id\t: Nonsense
"""
JOB = "/system.slice/slurmstepd.scope/job_88/step_0"
MOUNTS = """\
27 1 254:0 / / rw,relatime - xfs /dev/nvme0n1p2 rw,attr2
30 27 0:21 / /proc rw - proc proc rw
31 27 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
40 27 0:50 / /home rw,relatime - nfs4 server:/home rw,vers=4.2,clientaddr=10.0.0.7,password=hunter2
41 27 0:51 / /scratch rw - lustre 10.1.0.1@o2ib:/work rw,flock
42 27 0:52 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=1048576k
"""
MAPS = """\
55d0c0000000-55d0c0001000 r-xp 00000000 fe:00 11 /opt/env/bin/python3.11
7f33c3800000-7f33d7de5000 r-xp 00000000 fe:00 12 /opt/env/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so
7f33c3900000-7f33d7de6000 r-xp 00000000 fe:00 13 /usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5
7f33c3a00000-7f33d7de7000 r-xp 00000000 fe:00 14 /usr/local/cuda/lib64/libcudart.so.12.4.127 (deleted)
7f33c3b00000-7f33d7de8000 rw-p 00000000 00:00 0
7f33c3c00000-7f33d7de9000 r-xp 00000000 fe:00 15 /opt/openmpi/lib/libmpi.so.40.30.4
"""
ENVIRON = (
    "SLURM_JOB_ID=88",
    "SLURM_PROCID=3",
    "OMP_NUM_THREADS=8",
    "NCCL_IB_HCA=mlx5_0,mlx5_1",
    "CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "TORCH_HUB_TOKEN=abc",
    "HTTPS_PROXY=http://ada:hunter2@proxy:3128",
    "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
    "HOME=/home/ada",
)
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
Max locked memory         unlimited            unlimited            bytes
"""


def compute_node(root: Path, name: str = "n1", changes: Mapping[str, str | None] | None = None) -> HostFS:
    """The tree below `root`; `changes` are files with other contents, or None for those that are not there."""
    for path, text in {**_files(name), **(changes or {})}.items():
        if text is not None:
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    for path, target in _links().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)
    return HostFS(str(root))


def _files(name: str) -> dict[str, str]:
    return {
        **_system(name),
        **_cpus(),
        **_memory(),
        **_cards(),
        **_storage(),
        **_process(500),
        **_process(501),
        "proc/self/mountinfo": MOUNTS,
        "sys/fs/cgroup/cpu.max": "max 100000\n",
        "sys/fs/cgroup/system.slice/slurmstepd.scope/job_88/cpu.max": "800000 100000\n",
        "sys/fs/cgroup/system.slice/slurmstepd.scope/job_88/memory.max": "68719476736\n",
        "sys/fs/cgroup/system.slice/slurmstepd.scope/job_88/step_0/cpu.max": "max 100000\n",
        "sys/fs/cgroup/system.slice/slurmstepd.scope/job_88/step_0/memory.max": "max\n",
        "proc/500/root/opt/env/lib/python3.11/site-packages/torch-2.5.1+cu124.dist-info/METADATA": "",
        "proc/500/root/opt/env/lib/python3.11/site-packages/left_pad-1.0.dist-info/METADATA": "",
        "proc/500/root/opt/env/lib/python3.11/site-packages/nvidia_nccl_cu12-2.21.5.dist-info/METADATA": "",
    }


def _system(name: str) -> dict[str, str]:
    return {
        "proc/sys/kernel/hostname": f"{name}\n",
        "proc/sys/kernel/osrelease": "6.1.0-21-amd64\n",
        "proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC Debian 6.1.90-1\n",
        "proc/sys/kernel/arch": "x86_64\n",
        "proc/cmdline": "ro root=UUID=3f0c9d1e-0b8e-4c43-9b0e-6f1f6a3c2b10 quiet token=s3cr3t\n",
        "etc/os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        "sys/class/dmi/id/sys_vendor": "Dell Inc.\n",
        "sys/class/dmi/id/product_name": "PowerEdge XE9680\n",
        "sys/class/dmi/id/product_serial": "SERIAL7\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm\n",
        "run/systemd/timesync/synchronized": "",
    }


def _cpus() -> dict[str, str]:
    base = "sys/devices/system/cpu"
    files = {
        "proc/cpuinfo": CPUINFO,
        f"{base}/online": "0-15\n",
        f"{base}/offline": "\n",
        f"{base}/smt/control": "on\n",
        f"{base}/intel_pstate/no_turbo": "0\n",
        f"{base}/vulnerabilities/meltdown": "Not affected\n",
        f"{base}/vulnerabilities/spectre_v2": "Vulnerable\n",
        f"{base}/cpufreq/policy0/scaling_governor": "performance\n",
        f"{base}/cpufreq/policy0/cpuinfo_min_freq": "800000\n",
        f"{base}/cpufreq/policy0/cpuinfo_max_freq": "3800000\n",
    }
    for cpu in range(16):
        core, socket = cpu % 8, cpu % 8 // 4
        siblings = f"{core},{core + 8}\n"
        one = f"{base}/cpu{cpu}"
        files |= {
            f"{one}/topology/physical_package_id": f"{socket}\n",
            f"{one}/topology/core_id": f"{core % 4}\n",
            f"{one}/topology/core_cpus_list": siblings,
        }
        shared = f"{socket * 4}-{socket * 4 + 3},{socket * 4 + 8}-{socket * 4 + 11}\n"
        for index, (level, kind, size, sharers) in enumerate(
            ((1, "Data", "48K", siblings), (1, "Instruction", "32K", siblings), (2, "Unified", "2048K", siblings),
             (3, "Unified", "105M", shared))
        ):  # fmt: skip
            cache = {"level": f"{level}\n", "type": f"{kind}\n", "size": f"{size}\n", "shared_cpu_list": sharers}
            files |= {f"{one}/cache/index{index}/{file}": text for file, text in cache.items()}
    return files


def _memory() -> dict[str, str]:
    files = {
        "proc/meminfo": "MemTotal:       1056000000 kB\nMemFree:  1 kB\nSwapTotal:             0 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
        "proc/sys/vm/swappiness": "10\n",
    }
    for node in (0, 1):
        folder = f"sys/devices/system/node/node{node}"
        files[f"{folder}/meminfo"] = f"Node {node} MemTotal:       528000000 kB\nNode {node} MemFree: 1 kB\n"
        files[f"{folder}/cpulist"] = f"{node * 4}-{node * 4 + 3},{node * 4 + 8}-{node * 4 + 11}\n"
    return files


def _cards() -> dict[str, str]:
    files = {
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Tue Mar 5\n",
        "sys/class/net/eth0/mtu": "9000\n",
        "sys/class/net/eth0/speed": "100000\n",
        "sys/class/net/eth0/operstate": "up\n",
        "sys/class/net/eth0/address": "aa:bb:cc:dd:ee:ff\n",
        "sys/class/net/eth0/device/vendor": "0x15b3\n",
        "sys/class/net/veth12/mtu": "1500\n",
        "sys/class/infiniband/mlx5_0/fw_ver": "28.39.1002\n",
        "sys/class/infiniband/mlx5_0/node_guid": "aaaa:bbbb:cccc:dddd\n",
        "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
        "sys/bus/pci/devices/0000:00:1f.0/class": "0x060100\n",
        "sys/bus/pci/devices/0000:03:00.0/class": "0x030000\n",  # the graphics of the management controller
        "sys/bus/pci/devices/0000:03:00.0/vendor": "0x102b\n",
    }
    for bus in ("17", "2a", "ba", "ca"):
        device = f"sys/bus/pci/devices/0000:{bus}:00.0"
        files |= {
            f"{device}/class": "0x030200\n",
            f"{device}/vendor": "0x10de\n",
            f"{device}/device": "0x2330\n",
            f"{device}/numa_node": "1\n" if bus > "a" else "0\n",
            f"{device}/max_link_speed": "32.0 GT/s PCIe\n",
            f"{device}/max_link_width": "16\n",
            f"proc/driver/nvidia/gpus/0000:{bus}:00.0/information": "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: \t 42\n",
        }
    return files


def _storage() -> dict[str, str]:
    return {
        "sys/block/nvme0n1/size": "7501476528\n",
        "sys/block/nvme0n1/device/model": "SAMSUNG MZQL23T8HCLS-00A07              \n",
        "sys/block/nvme0n1/device/serial": "S64GNE0R\n",
        "sys/block/nvme0n1/queue/rotational": "0\n",
        "sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline kyber\n",
        "sys/block/loop0/size": "0\n",
    }


def _process(pid: int) -> dict[str, str]:
    return {
        f"proc/{pid}/cgroup": f"0::{JOB}\n",
        f"proc/{pid}/environ": "\0".join(ENVIRON) + "\0",
        f"proc/{pid}/status": "Name:\tpython3\nCpus_allowed_list:\t0-3,8-11\nMems_allowed_list:\t0\n",
        f"proc/{pid}/limits": LIMITS,
        f"proc/{pid}/maps": MAPS,
        f"proc/{pid}/mountinfo": MOUNTS,
    }


def _links() -> dict[str, str]:
    return {
        "proc/500/exe": "/opt/env/bin/python3.11",
        "proc/501/exe": "/opt/env/bin/python3.11",
        "sys/bus/pci/devices/0000:17:00.0/driver": "../../../../bus/pci/drivers/nvidia",
        "sys/class/net/eth0/device/driver": "../../../../bus/pci/drivers/mlx5_core",
    }
