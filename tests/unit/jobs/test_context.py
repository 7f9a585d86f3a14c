"""What a node is: from written and captured trees, and on this machine against lscpu, free, uname and others."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compute_node import CPUINFO, MAPS, MOUNTS, compute_node
from tests.conftest import HOSTS
from tests.lacking import lacking

from sonde.hostfs import HostFS
from sonde.jobs.context import gather

CAPTURED = sorted(path.name for path in HOSTS.iterdir() if path.is_dir())


def reasons(context: dict[str, Any]) -> dict[str, str]:
    return {item["what"]: item["reason"] for item in context["unseen"]}


@pytest.fixture
def node(tmp_path: Path) -> dict[str, Any]:
    return gather(compute_node(tmp_path), (500, 501))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> HostFS:
    return compute_node(tmp_path_factory.mktemp("node"))


def test_the_cpus_of_two_sockets_with_two_threads_per_core(node: dict[str, Any]) -> None:
    cpu = node["cpu"]

    assert (cpu["sockets"], cpu["cores"], cpu["threads"], cpu["threads_per_core"]) == (2, 8, 16, 2)
    assert (cpu["microarchitecture"], cpu["level"], cpu["numa_nodes"]) == ("sapphirerapids", "x86-64-v4", 2)
    assert cpu["caches"] == {
        "L1d": {"size_bytes": 48 * 1024, "instances": 8},
        "L1i": {"size_bytes": 32 * 1024, "instances": 8},
        "L2": {"size_bytes": 2 * 2**20, "instances": 8},
        "L3": {"size_bytes": 105 * 2**20, "instances": 2},
    }
    assert cpu["frequency"] == {
        "governor": "performance",
        "min_hertz": 800_000_000,
        "max_hertz": 3_800_000_000,
        "boost": "on",
    }
    assert cpu["mitigations"] == {"meltdown": "Not affected", "spectre_v2": "Vulnerable"}


def test_memory_by_numa_node_and_its_pages(node: dict[str, Any]) -> None:
    memory = node["memory"]

    assert memory["total_bytes"] == 1056000000 * 1024
    assert memory["numa"]["1"] == {"total_bytes": 528000000 * 1024, "cpus": "4-7,12-15"}
    assert (memory["transparent_huge_pages"], memory["huge_pages"]) == ("madvise", {"2048kB": 512})
    assert (memory["swappiness"], memory["swap_bytes"]) == (10, 0)


def test_accelerators_are_told_from_the_graphics_of_the_board(node: dict[str, Any]) -> None:
    devices = node["accelerators"]["devices"]

    assert [device["address"] for device in devices] == ["0000:17:00.0", "0000:2a:00.0", "0000:ba:00.0", "0000:ca:00.0"]
    assert devices[0] == {
        "address": "0000:17:00.0",
        "vendor": "nvidia",
        "device": "0x2330",
        "name": "NVIDIA H100 80GB HBM3",
        "driver": "nvidia",
        "numa_node": 0,
        "max_link": "32.0 GT/s x16",
    }
    assert node["accelerators"]["drivers"] == {"nvidia": "535.161.08"}


def test_links_disks_and_filesystems(node: dict[str, Any]) -> None:
    assert node["network"] == {
        "eth0": {"state": "up", "bits_per_second": 100_000_000_000, "mtu": 9000, "driver": "mlx5_core"}
    }
    assert node["infiniband"]["mlx5_0/1"]["rate"] == "400 Gb/sec (4X NDR)"
    assert node["disks"] == {
        "nvme0n1": {
            "model": "SAMSUNG MZQL23T8HCLS-00A07",
            "size_bytes": 7501476528 * 512,
            "rotational": False,
            "scheduler": "none",
        }
    }
    assert sorted(node["filesystems"]) == ["/", "/dev/shm", "/home", "/scratch"]
    assert node["filesystems"]["/home"] == {
        "type": "nfs4",
        "device": "server:/home",
        "options": "rw,relatime,vers=4.2,password=(redacted)",
    }
    assert "not asked" in reasons(node)["filesystems./scratch.size_bytes"]


def test_the_smallest_limit_on_the_way_up_is_the_one_that_counts(node: dict[str, Any]) -> None:
    confinement = node["confinement"]

    assert (confinement["cpu_quota"], confinement["memory_limit_bytes"]) == (8.0, 64 * 2**30)
    assert (confinement["cpus_allowed"], confinement["cpus"]) == ("0-3,8-11", 8)
    assert confinement["limits"] == {
        "open_files": {"soft": 1024, "hard": 524288},
        "locked_memory": {"soft": "unlimited", "hard": "unlimited"},
    }


def test_the_software_of_the_job_is_seen_without_running_it(node: dict[str, Any]) -> None:
    (program,) = node["software"]["programs"]

    assert (program["executable"], program["processes"]) == ("/opt/env/bin/python3.11", 2)
    assert program["packages"] == {"nvidia-nccl-cu12": "2.21.5", "torch": "2.5.1+cu124"}
    assert program["libraries"] == {
        "libnccl": "2.21.5",
        "libcudart": "12.4.127",
        "libmpi": "40.30.4",
        "libtorch_cpu": "/opt/env/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so",
    }
    assert node["scheduler"] == {"name": "slurm", "job": "88"}


def test_secrets_are_nowhere_in_it(node: dict[str, Any]) -> None:
    text = json.dumps(node)

    for secret in ("hunter2", "s3cr3t", "abcdef0123456789", "SERIAL7", "aa:bb:cc", "aaaa:bbbb", "S64GNE0R", "=abc"):
        assert secret not in text
    assert node["environment"]["redacted"] == ["HTTPS_PROXY", "TORCH_HUB_TOKEN"]
    assert node["environment"]["variables"]["NCCL_IB_HCA"] == "mlx5_0,mlx5_1"
    assert node["environment"]["variables"]["CUDA_VISIBLE_DEVICES"].startswith("GPU-8932f937")
    assert node["environment"]["others"] == ["HOME", "WANDB_API_KEY"]
    assert "root=UUID=3f0c9d1e" in node["kernel"]["command_line"]


def test_without_private_nothing_of_a_process_is_told(tmp_path: Path) -> None:
    found = gather(compute_node(tmp_path), private=False)

    assert not {"environment", "confinement", "software", "scheduler"} & found.keys()
    assert found["cpu"]["sockets"] == 2


def test_what_is_not_there_is_named_and_takes_nothing_else_with_it(tmp_path: Path) -> None:
    host = compute_node(tmp_path, changes={"proc/meminfo": None, "proc/sys/kernel/osrelease": None})
    (tmp_path / "proc/500/mountinfo").unlink()
    found = gather(host, (500,))

    assert reasons(found)["memory"] == "/proc/meminfo cannot be read"
    assert reasons(found)["kernel"] == "/proc/sys/kernel/osrelease cannot be read"
    assert "No such file" in reasons(found)["filesystems"]
    assert found["cpu"]["sockets"] == 2


@pytest.mark.parametrize("name", CAPTURED)
def test_every_captured_host_gives_a_context(captured: Callable[[str], HostFS], name: str) -> None:
    found = gather(captured(name))

    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert all(item["what"] and item["reason"] for item in found["unseen"])


def test_captured_hosts_say_what_they_are(captured: Callable[[str], HostFS]) -> None:
    vm, metal = gather(captured("vm")), gather(captured("metal"))
    slurm, older = gather(captured("slurm_v2"), (311,)), gather(captured("slurm_v1"), (121,))
    pod = gather(captured("kube_systemd"), (412,))

    assert vm["distribution"]["id"] == "debian"
    assert (metal["cpu"]["sockets"], metal["cpu"]["threads"]) == (2, 4)
    assert len(metal["infiniband"]) == 2
    assert slurm["confinement"]["memory_limit_bytes"] == 2**30
    assert older["confinement"]["memory_limit_bytes"] == 4 * 2**30
    assert pod["confinement"]["container"] == {"runtime": "containerd", "pod": "burstable"}


def asked(*command: str) -> str:
    if shutil.which(command[0]) is None:
        lacking(f"{command[0]} is not installed")
    environ = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout


def test_this_machine_is_as_lscpu_has_it() -> None:
    rows = {row["field"].rstrip(":"): row["data"] for row in json.loads(asked("lscpu", "--json", "--bytes"))["lscpu"]}
    cpu = gather(HostFS())["cpu"]

    assert cpu["threads"] == int(rows["CPU(s)"])
    assert cpu["sockets"] == int(rows["Socket(s)"])
    assert cpu["cores"] == int(rows["Socket(s)"]) * int(rows["Core(s) per socket"])
    assert cpu["threads_per_core"] == int(rows["Thread(s) per core"])
    assert (cpu["vendor"], cpu["model_name"]) == (rows["Vendor ID"], rows["Model name"])
    assert set(cpu["features"]) == set(rows["Flags"].split())
    assert cpu["numa_nodes"] == int(rows["NUMA node(s)"])
    for name, one in cpu["caches"].items():
        total, _, instances = rows[f"{name} cache"].partition(" ")
        assert one["size_bytes"] * one["instances"] == int(total)
        assert one["instances"] == int(instances.strip("()").split()[0])
    told = [field for field in rows if field.startswith("Vulnerability ")]
    assert len(cpu["mitigations"]) == len(told)


def test_this_machine_is_as_free_uname_and_findmnt_have_it() -> None:
    found = gather(HostFS())

    assert found["memory"]["total_bytes"] == int(asked("free", "--bytes").splitlines()[1].split()[1])
    assert found["kernel"]["release"] == asked("uname", "--kernel-release").strip() == platform.release()
    assert found["kernel"]["architecture"] == asked("uname", "--machine").strip()
    assert found["host"] == asked("uname", "--nodename").strip()
    root = json.loads(asked("findmnt", "--json", "--bytes", "--output", "FSTYPE,SIZE", "/"))["filesystems"][0]
    assert found["filesystems"]["/"]["type"] == root["fstype"]
    assert found["filesystems"]["/"]["size_bytes"] == int(root["size"])
    limits = found["confinement"]["limits"]["open_files"]
    assert str(limits["soft"]) == asked("prlimit", "--nofile", "--output=SOFT", "--noheadings").strip()


def test_it_takes_little_time_and_starts_no_program() -> None:
    code = (
        "import sys, time\n"
        "from sonde.hostfs import HostFS\n"
        "from sonde.jobs.context import gather\n"
        "seen = []\n"
        "watched = ('subprocess.Popen', 'os.fork', 'os.posix_spawn', 'os.exec', 'os.system', 'socket.connect')\n"
        "sys.addaudithook(lambda event, _: seen.append(event) if event in watched else None)\n"
        "import os\n"
        "gather(HostFS(), (os.getpid(),))\n"
        "print(time.process_time(), seen)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    seconds, _, seen = out.strip().partition(" ")
    assert seen == "[]"
    assert float(seconds) < 0.3  # with starting the interpreter


def test_192_cpus_are_read_in_time(tmp_path: Path) -> None:
    host = compute_node(tmp_path)
    base = tmp_path / "sys/devices/system/cpu"
    for cpu in range(16, 192):
        shutil.copytree(base / f"cpu{cpu % 16}", base / f"cpu{cpu}")
    (base / "online").write_text("0-191\n")

    began = time.process_time()
    found = gather(host)
    taken = time.process_time() - began

    assert found["cpu"]["threads"] == 192
    assert taken < 0.3


def test_what_may_not_be_read_is_said(tmp_path: Path) -> None:
    code = (
        "import json, os\n"
        "from sonde.hostfs import HostFS\n"
        "from sonde.jobs.context import gather\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "print(json.dumps(gather(HostFS(), (1,))['unseen']))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    unseen = {item["what"]: item["reason"] for item in json.loads(out)}
    assert unseen["environment"] == "/proc/1/environ: Permission denied"
    assert unseen["software.programs"] == "1 processes belong to another user"


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["proc/cpuinfo", "proc/500/maps", "proc/500/mountinfo", "proc/500/cgroup", "proc/500/environ",
                     "proc/500/limits", "proc/500/status", "proc/meminfo", "etc/os-release", "proc/self/mountinfo",
                     "sys/devices/system/cpu/online", "sys/firmware/dmi/tables/DMI", "proc/driver/nvidia/version"]),
    st.one_of(st.binary(max_size=200), st.sampled_from([CPUINFO, MAPS, MOUNTS]).map(str.encode)),
    st.integers(0, 400),
    st.binary(max_size=4),
)  # fmt: skip
def test_any_bytes_in_a_file_cost_no_more_than_what_it_tells(
    tree: HostFS, path: str, text: bytes, at: int, put: bytes
) -> None:
    file = Path(tree.path(path))
    file.parent.mkdir(parents=True, exist_ok=True)
    before = file.read_bytes() if file.exists() else None
    file.write_bytes(text[:at] + put + text[at:])
    try:
        found = gather(tree, (500,))
    finally:
        file.unlink() if before is None else file.write_bytes(before)

    assert found["disks"]["nvme0n1"]["scheduler"] == "none"
    json.dumps(found)
