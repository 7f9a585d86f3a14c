"""Which registered processes a request means; which of those it means are not registered, and why.

    {"job":"77","ranks":[0,3]}    {"pids":[812]}    {"all":true}

A pid means the process and all below it, by the kernel's word (the parent in /proc/PID/stat), in our own namespace;
what a process says of its ancestors itself counts for nothing here. A launcher gives way to its ranks: torchrun has
`KINETO_USE_DAEMON` and registers like them, and nobody wants its trace.

Of a job's processes most are not meant: shells, the batch system's own, launchers, and the workers that a training
process forks for its data. Missing is one process for each rank that nobody has registered for, and beside the ranks
whoever has a framework loaded and is not a child of fork.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sonde.errors import RpcError
from sonde.hostfs import HostFS
from sonde.ipc.processes import Process
from sonde.schedulers.job import Job, JobId
from sonde.schedulers.membership import Membership
from sonde.tracing.circumstances import ABSTRACT, ENDED, Circumstances, circumstances_of, is_forked, obstacle
from sonde.tracing.family import Family, effective_ranks, job_key, launchers
from sonde.tracing.identity import Identity, identify_by, identity_of, membership

FORKED = "child of fork: libkineto does not poll there"

_MOST = 65_536  # pids or ranks in one request
_LONGEST = 256  # characters of a job's name
_NUMBER = re.compile(r"([0-9]+)[_.\[]")  # of a member of an array, 123_4, or of PBS, 5.server and 5[4].server


class Choice(NamedTuple):
    """The union of `pids` and `job`, or `all`; `ranks` narrows the latter two."""

    pids: tuple[int, ...]
    job: str
    ranks: tuple[int, ...]
    all: bool


class Missing(NamedTuple):
    """A process that was meant and cannot be asked."""

    pid: int
    rank: int | None
    command: str
    reason: str


def parse_choice(request: Mapping[str, object]) -> Choice:
    """The choice of a request; RpcError when it makes no sense, or chooses nothing."""
    pids = _numbers(request, "pids", least=1)
    ranks = _numbers(request, "ranks", least=0)
    job, everyone = request.get("job") or "", request.get("all") or False
    if not isinstance(job, str) or len(job) > _LONGEST:
        raise RpcError("bad-request", f"job must be a text of at most {_LONGEST} characters", hint='for example "77"')
    if not isinstance(everyone, bool):
        raise RpcError("bad-request", "all must be true or false")
    if not (pids or job or everyone):
        what = "ranks are those of a job, or of all" if ranks else "nothing is chosen"
        raise RpcError("bad-request", what, hint="give pids, a job, or all")
    return Choice(pids, job, ranks, everyone)


def _numbers(request: Mapping[str, object], name: str, *, least: int) -> tuple[int, ...]:
    value = request.get(name) or []
    if (
        not isinstance(value, list)
        or len(value) > _MOST
        or not all(type(number) is int and least <= number < 2**31 for number in value)
    ):
        raise RpcError("bad-request", f"{name} must be a list of numbers from {least}, {_MOST} at most")
    return tuple(value)


def chosen(processes: Iterable[Process], choice: Choice, host: HostFS) -> list[Process]:
    """The registered processes a choice means, whoever asks; RpcError when a job's number could be of several."""
    rule = membership(host)
    known = {process: identity_of(process, host, rule) for process in processes}
    family, elders = Family(host), set(choice.pids)
    wanted = meant(choice.job, [one.job for one in known.values() if one.job is not None])
    ranks = effective_ranks(known.values())
    found = [
        process
        for (process, identity), rank in zip(known.items(), ranks, strict=True)
        if family.descends(process.pid, elders)
        or ((choice.all or job_key(identity) in wanted) and (not choice.ranks or rank in choice.ranks))
    ]
    above = launchers(family, [(process.pid, known[process]) for process in found])
    return [process for process in found if process.pid not in above]


def meant(text: str, jobs: Collection[Job]) -> set[JobId]:
    """The job a text names among those that are here, or none; RpcError when it could be one of several.

    Its whole id wins. The number in cgroups, and the number before `_` or `.`, count when they leave no doubt: 76 is
    an array, and also the number of one of its members.
    """
    for names in ({job.key: job for job in jobs if form(job, text)} for form in (_is_id, _is_number)):
        if len(names) > 1:
            several = ", ".join(sorted(job.key.text if job.id.text == text else job.id.text for job in names.values()))
            raise RpcError("bad-request", f"{text} may be one of several jobs here: {several}", hint="give one of them")
        if names:
            return set(names)
    return set()


def _may_mean(job: Job, text: str) -> bool:
    """Could this be the job that a text names?"""
    return _is_id(job, text) or _is_number(job, text)


def _is_id(job: Job, text: str) -> bool:
    return bool(text) and job.id.text == text


def _is_number(job: Job, text: str) -> bool:
    if not text:
        return False
    match = _NUMBER.match(job.id.text)
    return job.raw_id == text or (match is not None and match[1] == text)


class _Candidate(NamedTuple):
    pid: int
    identity: Identity
    rank: int | None


def missing(
    host: HostFS,
    choice: Choice,
    registered: Iterable[Process],
    *,
    uid: int | None = None,
    addresses: Sequence[str] = (ABSTRACT,),
) -> list[Missing]:
    """Those that were meant and cannot be asked. With `uid`, of that user only; `addresses` are the daemon's.

    Looks at every process of the host, and longer at those of the choice: to be called in a thread.
    """
    rule = membership(host)
    known = {process.pid: identity_of(process, host, rule) for process in registered if process.pid}
    return absent(host, choice, known, uid=uid, addresses=addresses)


def absent(
    host: HostFS,
    choice: Choice,
    known: Mapping[int, Identity],
    *,
    uid: int | None = None,
    addresses: Sequence[str] | None = (ABSTRACT,),
) -> list[Missing]:
    """As missing(), by the pids of those that have registered. Without `addresses` there is no daemon."""
    rule, family = membership(host), Family(host)
    others = {
        pid: identify_by(rule, host, pid, owner)
        for pid, owner in _population(host, uid)
        if pid not in known and _is_meant(pid, choice, rule, family)
    }
    named = [*_unheard(known, others, choice, family), *_alone(known, others, choice, family)]
    found = (_judged(host, candidate, choice, addresses) for candidate in named)
    return sorted((one for one in found if one is not None), key=_order)


def _population(host: HostFS, uid: int | None) -> Iterator[tuple[int, int]]:
    """The processes of the host, or of a user, but for ourselves: each with its user."""
    for name in host.names("proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            owner = os.stat(host.path(f"proc/{name}")).st_uid
        except OSError:
            continue  # ended since it was listed
        if uid in (None, 0, owner):
            yield int(name), owner


def _is_meant(pid: int, choice: Choice, rule: Membership, family: Family) -> bool:
    if choice.all or family.descends(pid, choice.pids):
        return True
    job = rule.ask(pid).job if choice.job else None
    return job is not None and _may_mean(job, choice.job)


def _unheard(
    known: Mapping[int, Identity], others: Mapping[int, Identity], choice: Choice, family: Family
) -> Iterator[_Candidate]:
    """One process for each rank that has none registered; without ranks, whoever has a framework."""
    everybody = [*known.items(), *others.items()]
    ranks = dict(zip([pid for pid, _ in everybody], effective_ranks([one for _, one in everybody]), strict=True))
    heard = {(job_key(one), ranks[pid]) for pid, one in known.items()}
    above = launchers(family, everybody)
    groups: dict[object, list[_Candidate]] = {}
    for pid, one in sorted(others.items()):
        rank = ranks[pid]
        wanted = not choice.ranks or rank in choice.ranks or family.descends(pid, choice.pids)
        if pid in above or not wanted or (rank is None and not one.framework):
            continue
        place = (job_key(one), rank)
        if rank is None or place not in heard:
            groups.setdefault(pid if rank is None else place, []).append(_Candidate(pid, one, rank))
    for members in groups.values():
        yield max(members, key=_likeness)


def _likeness(candidate: _Candidate) -> tuple[bool, bool, int]:
    """Of a rank's processes, which one computes: the first with a framework, else the last below its shells."""
    framework = bool(candidate.identity.framework)
    return framework, candidate.identity.command.startswith("python"), -candidate.pid if framework else candidate.pid


def _alone(
    known: Mapping[int, Identity], others: Mapping[int, Identity], choice: Choice, family: Family
) -> Iterator[_Candidate]:
    """A process that was named itself, when nobody below it speaks in its place."""
    everybody = [*known, *others]
    for pid in choice.pids:
        below = any(pid in family.ancestors(other) for other in everybody)
        if pid in others and not below and not others[pid].framework and others[pid].rank.global_rank is None:
            yield _Candidate(pid, others[pid], None)


def _judged(host: HostFS, candidate: _Candidate, choice: Choice, addresses: Sequence[str] | None) -> Missing | None:
    pid, identity, rank = candidate
    found = circumstances_of(host, pid)
    if found is None or found.kinship.state in ENDED:
        return None
    reason = _reason(host, candidate, found, addresses)
    if reason == FORKED and rank is None and pid not in choice.pids:
        return None  # a worker of one that has registered, or is reported itself
    return Missing(pid, rank, identity.command, reason)


def _reason(host: HostFS, candidate: _Candidate, found: Circumstances, addresses: Sequence[str] | None) -> str:
    if is_forked(host, found):
        return FORKED
    return obstacle(found, addresses, host, candidate.pid)


def _order(one: Missing) -> tuple[bool, int, int]:
    return one.rank is None, one.rank or 0, one.pid
