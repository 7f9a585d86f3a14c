"""Who descends from whom among processes, by the parent in /proc/PID/stat; and who of them is a rank, who a launcher.

bash ── torchrun (SLURM_PROCID=1) ─┬─ python train.py (RANK=8)
                                   └─ python train.py (RANK=9)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.procstat import parse_kinship
from sonde.schedulers.job import NO_RANK, JobId, Rank
from sonde.tracing.identity import Identity

_GENERATIONS = 64  # ancestors that are followed


class Family:
    """Who descends from whom, by the kernel's word; what was read once is not read again."""

    def __init__(self, host: HostFS) -> None:
        self._host = host
        self._parents: dict[int, int] = {}

    def parent(self, pid: int) -> int:
        """0 when it has none, is gone, or is not visible."""
        if pid not in self._parents:
            try:
                self._parents[pid] = parse_kinship(self._host.read(f"proc/{pid}/stat")).parent
            except (OSError, ParseError):
                self._parents[pid] = 0
        return self._parents[pid]

    def ancestors(self, pid: int) -> Iterator[int]:
        """The nearest first."""
        for _ in range(_GENERATIONS):
            pid = self.parent(pid)
            if not pid:
                return
            yield pid

    def descends(self, pid: int, elders: Collection[int]) -> bool:
        """Is a process one of these, or below one of them?"""
        return bool(pid and elders) and (pid in elders or any(elder in elders for elder in self.ancestors(pid)))


def job_key(identity: Identity) -> JobId | None:
    return identity.job.key if identity.job is not None else None


def effective_ranks(identities: Iterable[Identity]) -> list[int | None]:
    """The rank of each. In a job in which one has RANK, the numbers of srun and mpirun are those of launchers."""
    several = list(identities)
    elastic = {job_key(one) for one in several if one.ranked_by == "RANK"}
    return [one.rank.global_rank if one.ranked_by == "RANK" or job_key(one) not in elastic else None for one in several]


def launchers(family: Family, processes: Sequence[tuple[int, Identity]]) -> set[int]:
    """Of these, the pids that are no rank while a process below them is."""
    ranks = effective_ranks([identity for _, identity in processes])
    above = {
        ancestor
        for (pid, _), rank in zip(processes, ranks, strict=True)
        if rank is not None
        for ancestor in family.ancestors(pid)
    }
    return {pid for (pid, _), rank in zip(processes, ranks, strict=True) if rank is None and pid in above}


def shown_rank(identity: Identity, launcher: bool) -> Rank:
    """A launcher has the number of its task, which is not a rank among its children's."""
    return NO_RANK if launcher else identity.rank
