"""The report on a terminal: one screen, the verdict first, then what to do about it, then bars, the worst first.

n3   CPU ██████▏            3.1 of  8    memory ███████████████▋   61.2 of 64.0 GiB
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sonde.jobs.absences import Absence
from sonde.jobs.figures.sheet import Device
from sonde.jobs.report import Report
from sonde.jobs.report.hardware import differences
from sonde.jobs.rules import FORMATS, Finding, shown, where
from sonde.jobs.summary import NodeSummary
from sonde.units import human_bytes, human_joules

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_COLOURS = {"critical": "red", "warning": "yellow", "advice": "green", "note": "grey"}
_FINDINGS, _NODES, _DEVICES, _ABSENT = 4, 4, 3, 2  # what fits a screen
_BAR = 12


class Style(NamedTuple):
    """What the terminal can do."""

    width: int = 80
    unicode: bool = True
    everything: bool = False  # not only what fits a screen
    paint: Callable[[str, str], str] = lambda text, colour: text


def render(report: Report, style: Style) -> str:
    lines = _verdict(report, style)
    lines += _findings(report, style)
    lines += ["", *_nodes(report, style)]
    lines += _devices(report, style)
    lines += _sums(report, style)
    lines += _differences(report, style)
    lines += _absences(report, style)
    return "\n".join(lines if style.unicode else [plain(line) for line in lines])


def plain(text: str) -> str:
    """The same in ASCII."""
    for mark, word in (("·", "-"), ("…", "..."), ("µ", "u"), ("→", "->"), ("×", "x"), ("–", "-")):
        text = text.replace(mark, word)
    return text.encode("ascii", "replace").decode()


def _verdict(report: Report, style: Style) -> list[str]:
    colour = _COLOURS.get(report.judgement.worst, "green")
    return [style.paint(line, colour) for line in textwrap.wrap(report.verdict, style.width)]


def _findings(report: Report, style: Style) -> list[str]:
    findings = report.judgement.findings
    kept = findings if style.everything else findings[:_FINDINGS]
    lines = [line for finding in kept for line in _finding(finding, style)]
    if len(kept) < len(findings):
        names = ", ".join(finding.rule for finding in findings[len(kept) :])
        more = f"and {len(findings) - len(kept)} more (--all): {names}"
        lines.append(more if len(more) <= style.width else more[: style.width - 1] + "…")
    return ["", *lines] if lines else []


def _finding(finding: Finding, style: Style) -> list[str]:
    place = where(finding)
    evidence = f"{place}: {finding.text}" if place else finding.text
    mark = finding.severity.upper() if finding.severity == "critical" else finding.severity
    lines = textwrap.wrap(evidence, style.width, initial_indent=f"{mark:<9}", subsequent_indent=" " * 9)
    lines[0] = style.paint(mark, _COLOURS[finding.severity]) + lines[0][len(mark) :]
    return lines + textwrap.wrap(f"→ {finding.advice}", style.width, initial_indent=" " * 9, subsequent_indent=" " * 11)


def _nodes(report: Report, style: Style) -> list[str]:
    """Those that use least of their CPUs first: where the job wastes most."""
    there = [node for node in report.summary.nodes if node.last_ns is not None]
    ordered = sorted(there, key=_used)
    kept = ordered if style.everything else ordered[:_NODES]
    name = max((len(node.host) for node in kept), default=0)
    lines = [f"{node.host:<{name}}  CPU {_cpu(node, style)}  memory {_memory(node, style)}".rstrip() for node in kept]
    if len(kept) < len(ordered):
        lines.append(f"and {len(ordered) - len(kept)} nodes that use more of their CPUs")
    return lines


def _used(node: NodeSummary) -> float:
    share = node.figures["cpu_used_share"]
    return 2.0 if share is None else share


def _cpu(node: NodeSummary, style: Style) -> str:
    share, used, granted = (node.figures[name] for name in ("cpu_used_share", "cpu_used", "cpu_granted"))
    told = "not measured" if used is None else f"{used:.1f}" + (f" of {granted:.0f}" if granted else "")
    return f"{bar(share, style)} {told:<12}"


def _memory(node: NodeSummary, style: Style) -> str:
    share, peak, granted = (node.figures[name] for name in ("memory_used_share", "memory_used_peak", "memory_granted"))
    told = "not measured" if peak is None else human_bytes(peak) + (f" of {human_bytes(granted)}" if granted else "")
    return f"{bar(share, style)} {told}"


def bar(share: float | None, style: Style, width: int = _BAR) -> str:
    """Nothing at all for what was not measured: an empty bar would be a zero."""
    if share is None:
        return " " * width
    share = min(1.0, max(0.0, share))
    if not style.unicode:
        full = round(share * width)
        return "#" * full + "." * (width - full)
    eighths = round(share * width * 8)
    whole, rest = divmod(eighths, 8)
    drawn = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return drawn + "░" * (width - len(drawn))


_DEVICE_SHARES: dict[str, tuple[str, str]] = {  # kind: the figure of its bar, and what is told beside it
    "filesystem": ("filled_share", "full"),
    "disk": ("busy_share", "busy"),
    "accelerator": ("busy_share", "busy"),
    "network": ("saturated_share", "saturated"),
    "infiniband": ("saturated_share", "saturated"),
}


def _devices(report: Report, style: Style) -> list[str]:
    found = [
        (share, node.host, device)
        for node in report.summary.nodes
        for device in node.devices
        if (share := device.figures[_DEVICE_SHARES[device.kind][0]]) is not None
    ]
    # An accelerator that idles is the bad one, a disk that works.
    found.sort(key=lambda item: -(1 - item[0] if item[2].kind == "accelerator" else item[0]))
    kept = found if style.everything else found[:_DEVICES]
    names = [f"{host} {device.name}" for _, host, device in kept]
    width = max(map(len, names), default=0)
    return [
        f"{name:<{width}}  {bar(share, style)} {_told(device, share)}"
        for name, (share, _, device) in zip(names, kept, strict=True)
    ]


def _told(device: Device, share: float) -> str:
    own = device.figures
    text = f"{FORMATS['percent'](share)} {_DEVICE_SHARES[device.kind][1]}"
    if device.kind == "filesystem":
        return f"{text}, {shown(own['free_least'], 'bytes')} left"
    if device.kind == "disk":
        return f"{text}, {shown(own['read_bytes'], 'bytes')} read, {shown(own['written_bytes'], 'bytes')} written"
    if device.kind in ("network", "infiniband"):
        return f"{text}, {shown(own['received_bytes'], 'bytes')} in, {shown(own['sent_bytes'], 'bytes')} out"
    return f"{text}, {shown(own['memory_peak'], 'bytes')} at most"


def _sums(report: Report, style: Style) -> list[str]:
    figures = report.summary.figures
    parts = []
    for name, label, form in (
        ("cpu_seconds", "CPU time", "seconds"),
        ("read_bytes", "read", "bytes"),
        ("written_bytes", "written", "bytes"),
        ("network_received", "received", "bytes"),
        ("network_sent", "sent", "bytes"),
    ):
        if (value := figures[name]) is not None:
            parts.append(f"{label} {shown(value, form)}")
    parts += energy(figures["energy"], figures["energy_estimated"])
    return textwrap.wrap(", ".join(parts), style.width)


def energy(measured: float | None, estimated: float | None) -> list[str]:
    """Nodes that measure it and nodes that do not are not added up."""
    told = [f"energy {human_joules(measured)}"] if measured is not None else []
    return told + ([f"energy about {human_joules(estimated)} (estimated)"] if estimated is not None else [])


def _differences(report: Report, style: Style) -> list[str]:
    """In what the nodes are not alike: the subjects, or on request who has what."""
    found = differences(report.summary.nodes)
    if style.everything:
        return [f"{subject}: {value} on {hosts}" for subject, value, hosts in found]
    subjects = list(dict.fromkeys(subject for subject, _, _ in found))
    more = f" and {len(subjects) - 3} more" if len(subjects) > 3 else ""
    return textwrap.wrap(f"The nodes differ: {', '.join(subjects[:3])}{more}", style.width) if subjects else []


def _absences(report: Report, style: Style) -> list[str]:
    every = report.summary.absences
    kept = every if style.everything else every[:_ABSENT]
    if not kept:
        return []
    lines = ["", "Not seen:"]
    for absence in kept:
        lines += textwrap.wrap(
            absent(absence, len(report.summary.nodes)), style.width, initial_indent="  ", subsequent_indent="    "
        )
    if len(kept) < len(every):
        lines.append(f"  and {len(every) - len(kept)} more (--all)")
    return lines


def absent(absence: Absence, nodes: int) -> str:
    place = "" if len(absence.hosts) == nodes else f" ({_hosts(absence.hosts)})"
    reason = f": {absence.reason}" if absence.reason else ""
    return f"{absence.what}{place}{reason}" + (f" → {absence.remedy}" if absence.remedy else "")


def _hosts(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
