"""In what nodes differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.compute_node import compute_node

from sonde.jobs.context import among, differences, gather


def node(root: Path, name: str, **changes: str | None) -> dict[str, Any]:
    paths = {path.replace("__", "/"): text for path, text in changes.items()}
    return gather(compute_node(root / name, name, paths), (500,))


def several(root: Path, count: int) -> dict[str, dict[str, Any]]:
    return {f"n{number}": node(root, f"n{number}") for number in range(1, count + 1)}


def test_like_nodes_have_no_difference(tmp_path: Path) -> None:
    assert among(several(tmp_path, 3)) == []


def test_who_is_not_like_the_others_is_named(tmp_path: Path) -> None:
    nodes = several(tmp_path, 4)
    nodes["n3"]["kernel"]["release"] = "6.1.0-18-amd64"

    (found,) = among(nodes)

    assert found.text == "n3: kernel.release 6.1.0-18-amd64 (others 6.1.0-21-amd64)"
    assert found.usual is not None
    assert found.usual.hosts == ("n1", "n2", "n4")


def test_without_a_majority_it_is_told_who_has_what(tmp_path: Path) -> None:
    nodes = several(tmp_path, 4)
    for name in ("n2", "n4"):
        nodes[name]["cpu"]["frequency"]["governor"] = "powersave"

    (found,) = among(nodes)

    assert found.text == "cpu.frequency.governor: performance on n1, n3; powersave on n2, n4"
    assert found.usual is None


def test_what_never_matters_is_left_out(tmp_path: Path) -> None:
    one, other = node(tmp_path, "n1"), node(tmp_path, "n2")
    other["time_ns"] += 10**12
    other["environment"]["variables"] |= {"SLURM_PROCID": "9", "SLURM_JOB_ID": "89", "HOSTNAME": "n2"}
    other["confinement"]["cgroup"] = "/system.slice/slurmstepd.scope/job_89/step_0"
    other["scheduler"]["job"] = "89"
    other["accelerators"]["devices"][0]["address"] = "0000:99:00.0"
    other["accelerators"]["devices"][0]["link"] = "2.5 GT/s x16"
    other["memory"]["total_bytes"] += 3 * 2**20  # of a terabyte

    assert differences(one, other) == []


def test_what_matters_most_comes_first(tmp_path: Path) -> None:
    one, other = node(tmp_path, "n1"), node(tmp_path, "n2")
    other["environment"]["variables"]["OMP_NUM_THREADS"] = "1"
    other["cpu"]["smt"] = "off"
    other["memory"]["total_bytes"] //= 2
    other["software"]["programs"][0]["packages"]["torch"] = "2.6.0"

    subjects = [item.subject for item in differences(one, other)]

    assert subjects == [
        "cpu.smt",
        "memory.total_bytes",
        "software.programs.python3_11.packages.torch",
        "environment.variables.OMP_NUM_THREADS",
    ]


def test_a_card_that_is_missing_is_counted(tmp_path: Path) -> None:
    one, other = node(tmp_path, "n1"), node(tmp_path, "n2")
    other["accelerators"]["devices"].pop()

    (found,) = differences(one, other)

    assert "4 × NVIDIA H100" not in found.groups[1].value
    assert found.subject == "accelerators.devices"


def test_a_link_that_one_lacks_is_told_once(tmp_path: Path) -> None:
    nodes = several(tmp_path, 3)
    del nodes["n2"]["infiniband"]["mlx5_0/1"]

    (found,) = among(nodes)

    assert found.text.startswith("n2: infiniband.mlx5_0/1")
    assert "absent" in found.text


def test_one_node_at_two_times_keeps_the_sides_apart(tmp_path: Path) -> None:
    before, after = node(tmp_path, "n1"), node(tmp_path / "later", "n1")
    after["kernel"]["release"] = "6.1.0-22-amd64"

    (found,) = differences(before, after)

    assert found.text == "kernel.release: 6.1.0-21-amd64 on n1 (a); 6.1.0-22-amd64 on n1 (b)"
