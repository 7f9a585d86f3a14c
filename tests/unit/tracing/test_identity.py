"""Who a process is."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.hostfs import HostFS
from sonde.ipc.endpoint import Sender
from sonde.ipc.processes import Process
from sonde.schedulers.job import NO_RANK, JobId, Rank
from sonde.tracing.identity import Identity, identify, identity_of, parse_command, user_name

if TYPE_CHECKING:
    from tests.unit.tracing.conftest import Scene, Tree


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["/opt/venv/bin/python", "-u", "/home/ada/train.py", "--lr", "0.1"], "python train.py"),
        (["python3.11", "-X", "dev", "-Wignore", "-W", "error", "train.py"], "python3.11 train.py"),
        (["python", "-m", "torch.distributed.run", "--nproc-per-node", "2"], "python -m torch.distributed.run"),
        (["python", "-um", "train"], "python -m train"),
        (["python", "-Ic", "import os\nprint(1)"], "python -c import os print(1)"),
        (["python", "-cpass"], "python -c pass"),
        (["python", "--check-hash-based-pycs", "train.py"], "python train.py"),
        (["python3", "/usr/local/bin/torchrun", "train.py"], "python3 torchrun"),
        (["python", "-"], "python -"),
        (["python"], "python"),
        (["/bin/bash", "/home/ada/run.sh", "x"], "bash run.sh"),
        (["bash", "-c", "sleep 5"], "bash"),
        (["-bash"], "-bash"),
        (["slurmstepd: [77.0]"], "slurmstepd: [77.0]"),
        (["ray::Trainer.fit(step 1/2)"], "ray::Trainer.fit(step 1/2)"),
        (["/opt/solver", "input"], "solver"),
        (["python", "x" * 100], "python " + "x" * 52 + "…"),
        (["python", "\x1b[31mtrain.py"], "python ?[31mtrain.py"),
        ([""], ""),
    ],
)
def test_a_command_is_told_as_a_person_would(words: list[str], text: str) -> None:
    assert parse_command("\0".join(words).encode() + b"\0") == text


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_any_command_line_becomes_a_short_text_that_can_be_printed(data: bytes) -> None:
    text = parse_command(data)

    assert len(text) <= 60
    assert text.isprintable()


def test_a_user_without_a_name_is_a_number() -> None:
    assert (user_name(0), user_name(4_294_967_000), user_name(2**40)) == ("root", "4294967000", str(2**40))


def test_a_real_process_is_known_by_its_environment_maps_and_command(scene: Scene) -> None:
    trainee = scene.trainee({"SONDE_JOB_ID": "tune-3", "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"})
    found = identify(scene.host, trainee.pid, os.getuid())

    assert found.job is not None
    assert found.job.id == JobId("local", "tune-3")
    assert found.rank == Rank(3, 1, 8)
    assert found.ranked_by == "RANK"
    assert found.user == user_name(os.getuid())
    assert found.command.startswith(Path(sys.executable).name + " -c import ctypes")
    assert (found.gpu, found.framework) == (False, "pytorch")


def test_a_rank_is_known_also_without_a_job(scene: Scene) -> None:
    found = identify(scene.host, scene.trainee({"RANK": "3"}).pid, 0)

    assert (found.job, found.rank.global_rank) == (None, 3)


def test_the_cgroup_is_believed_and_the_environment_completes_it(captured: Callable[[str], HostFS]) -> None:
    found = identify(captured("slurm_v1"), 111, 1000)

    assert found.job is not None
    assert (found.job.id.text, found.job.raw_id, found.rank) == ("76_4", "77", Rank(1, 1, 4))
    assert found.ranked_by == "SLURM_PROCID"
    assert (found.gpu, found.framework) == (None, "")  # nothing may be seen of what it has loaded


def test_a_batch_script_is_no_rank(captured: Callable[[str], HostFS]) -> None:
    found = identify(captured("slurm_v1"), 100, 1000)

    assert found.job is not None
    assert (found.job.step, found.rank, found.ranked_by) == ("batch", NO_RANK, "")


def test_a_process_that_has_ended_or_cannot_be_seen_has_a_user_only(tmp_path: Path) -> None:
    host = HostFS(str(tmp_path))

    assert identify(host, 812, 0) == Identity("root", "", None, NO_RANK, None, "")
    assert identify(host, 0, 0) == Identity("root", "", None, NO_RANK, None, "")


def test_a_process_that_cannot_be_seen_is_what_its_datagrams_say(tmp_path: Path) -> None:
    process = Process(Sender(0, 0, 0, "there"), time.monotonic_ns())
    process.slurm_id = 77
    found = identity_of(process, HostFS(str(tmp_path)))

    assert found.job is not None
    assert (found.job.id, found.framework) == (JobId("slurm", "77"), "pytorch")


def test_what_a_process_is_is_kept_once_it_has_loaded_what_it_needs(tree: Tree) -> None:
    tree.add(812, torch=False)
    young, settled = time.monotonic_ns(), time.monotonic_ns() - 60 * 10**9
    process = Process(Sender(812, 1000, 1000, "there"), young)
    before = identity_of(process, tree.host)
    (tree.root / "proc/812/maps").write_text("7f-80 r-xp 0 fe:00 5 /opt/libtorch_cuda.so\n")
    loaded = identity_of(process, tree.host)
    process.first_ns = settled
    identity_of(process, tree.host)
    (tree.root / "proc/812/maps").write_text("")
    kept = identity_of(process, tree.host)

    assert (before.gpu, loaded.gpu, kept.gpu) == (False, True, True)
    assert process.identity is kept


def test_a_zombie_goes_by_its_name_in_brackets(tree: Tree) -> None:
    tree.add(812, torch=False)
    (tree.root / "proc/812/cmdline").write_bytes(b"")
    (tree.root / "proc/812/comm").write_text("python\n")

    assert identify(tree.host, 812, 0).command == "[python]"
