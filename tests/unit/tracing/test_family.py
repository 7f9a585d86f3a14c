"""Who descends from whom, and who of them is a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sonde.schedulers.job import NO_RANK, Rank
from sonde.tracing.family import Family, effective_ranks, launchers, shown_rank
from sonde.tracing.identity import Identity

if TYPE_CHECKING:
    from tests.unit.tracing.conftest import Tree


def identity(rank: int | None = None, ranked_by: str = "") -> Identity:
    return Identity("ada", "python train.py", None, Rank(rank), None, "pytorch", ranked_by)


def test_ancestors_come_nearest_first_and_end_where_nobody_is_seen(tree: Tree) -> None:
    tree.add(10, 0)
    tree.add(11, 10)
    tree.add(12, 11)
    family = Family(tree.host)

    assert list(family.ancestors(12)) == [11, 10]
    assert list(family.ancestors(99)) == []
    assert family.descends(12, {10})
    assert family.descends(12, {12})
    assert not family.descends(12, {99})
    assert not family.descends(0, {0})


def test_a_circle_of_parents_ends(tree: Tree) -> None:
    tree.add(10, 11)  # as two reads at different times may show it
    tree.add(11, 10)

    assert len(list(Family(tree.host).ancestors(10))) == 64


def test_the_numbers_of_srun_are_ranks_unless_somebody_has_a_real_one() -> None:
    task, rank = identity(1, "SLURM_PROCID"), identity(8, "RANK")

    assert effective_ranks([task, task]) == [1, 1]
    assert effective_ranks([task, rank]) == [None, 8]


def test_a_launcher_is_above_a_rank_and_none_itself(tree: Tree) -> None:
    tree.add(10)
    tree.add(11, 10)
    tree.add(12)
    found = [(10, identity()), (11, identity(0, "RANK")), (12, identity())]

    assert launchers(Family(tree.host), found) == {10}
    assert shown_rank(identity(1, "SLURM_PROCID"), launcher=True) == NO_RANK
