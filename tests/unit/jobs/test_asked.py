"""What a job asked for on a node."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.jobs.asked import asked, parse_per_node


@pytest.mark.parametrize(
    ("text", "index", "count"),
    [("8", 0, 8), ("8(x2),4", 1, 8), ("8(x2),4", 2, 4), ("8(x2),4", 3, None), ("", 0, None), ("8(x", 0, None)],
)
def test_the_cpus_of_each_node(text: str, index: int, count: int | None) -> None:
    assert parse_per_node(text, index) == count


@given(st.text(alphabet="0123456789(x),", max_size=30), st.integers(0, 10))
def test_any_text_gives_a_number_or_nothing(text: str, index: int) -> None:
    assert isinstance(parse_per_node(text, index), int | None)


def test_slurm_tells_it_of_each_node() -> None:
    environ = {
        "SLURM_JOB_CPUS_PER_NODE": "8(x2),4",
        "SLURM_NODEID": "2",
        "SLURM_MEM_PER_CPU": "1000",
        "SLURM_JOB_GPUS": "0,3",
        "SLURM_JOB_START_TIME": "1000",
        "SLURM_JOB_END_TIME": "4600",
    }

    assert asked("slurm", environ) == {"cpus": 4, "memory_bytes": 4000 * 2**20, "gpus": 2, "seconds": 3600}


def test_all_of_a_nodes_memory_is_no_number() -> None:
    assert asked("slurm", {"SLURM_MEM_PER_NODE": "0", "SLURM_CPUS_ON_NODE": "2"}) == {"cpus": 2}


def test_pbs_tells_cpus() -> None:
    assert asked("pbs", {"NCPUS": "6"}) == {"cpus": 6}


def test_oar_names_a_node_once_per_core(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("n1.site\nn1.site\nn2.site\n")
    environ = {"OAR_NODEFILE": str(tmp_path / "nodes"), "OAR_JOB_WALLTIME_SECONDS": "7200"}

    assert asked("oar", environ, "n1") == {"cpus": 2, "seconds": 7200}


def test_nonsense_and_no_batch_system_tell_nothing() -> None:
    assert asked("slurm", {"SLURM_MEM_PER_NODE": "many", "SLURM_JOB_CPUS_PER_NODE": "?"}) == {}
    assert asked("local", {"NCPUS": "6"}) == {}
