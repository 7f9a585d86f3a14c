"""Which counters of the processor can be read here, and why the others cannot."""

from __future__ import annotations

from typing import NamedTuple

from sonde.collectors.perf import identify, paranoid_level
from sonde.collectors.perf_events import Possible, Probe
from sonde.counters.catalogue import Group
from sonde.errors import Denied, ParseError, Unavailable
from sonde.hostfs import HostFS
from sonde.native.perf_event import ANYWHERE, PARANOID, Attr, EventGroup, Kernel, Source, refusal

_CPU_CLOCK = Attr(1, 0, disabled=True, user_only=True)


class Outlook(NamedTuple):
    state: str  # ok, partly, denied, absent: as in doctor's findings
    detail: str
    remedy: str = ""


def outlook(host: HostFS, source: Source | None = None) -> Outlook:
    """What `[collectors.perf]` could count."""
    if not host.exists(PARANOID):
        return Outlook("absent", f"no /{PARANOID}: this kernel was built without perf events")
    found = identify(host)
    try:
        source = source or Kernel()
        level = paranoid_level(host)
        possible = Probe(source, host).possible(found.groups, kernel=True)
        denied = _whole_cpus(source, level)
    except PermissionError:
        refused = refusal(paranoid_level(host), whole_cpu=False)
        return Outlook("denied", f"{found.title}: {refused}", refused.hint)
    except (OSError, Unavailable, ParseError) as error:
        return Outlook("absent", f"{found.title}: {error}")
    missing = [group for group in found.groups if group.name not in _groups(possible)]
    parts = [f"{found.title}: {', '.join(_groups(possible)) or 'nothing'}"]
    if missing:
        parts.append(f"not {', '.join(group.name for group in missing)}: {_reason(possible, missing[0])}")
    if possible.user_only:
        parts.append("only user mode")
    if denied is not None:
        parts.append("no whole CPUs or cgroups")
    remedy = denied.hint if denied is not None else ""
    return Outlook("partly" if len(parts) > 1 else "ok", "; ".join(parts), remedy)


def _groups(possible: Possible) -> list[str]:
    return list(dict.fromkeys(part.group for part in possible.parts))


def _reason(possible: Possible, group: Group) -> str:
    keys = {event.key for event in group.events}
    return next(lacking.reason for lacking in possible.lacking if keys & set(lacking.events))


def _whole_cpus(source: Source, level: int) -> Denied | None:
    """Why all of a CPU may not be counted; None when it may."""
    try:
        EventGroup(source, [_CPU_CLOCK], ANYWHERE, 0).close()
    except PermissionError:
        return refusal(level, whole_cpu=True)
    except OSError:
        return None  # CPU 0 is offline: nothing to do with rights
    return None
