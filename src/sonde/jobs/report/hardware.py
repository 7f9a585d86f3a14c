"""Hardware and software of the nodes, from context.json: what each has, and in what they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sonde.jobs.differences import among
from sonde.jobs.summary import NodeSummary

_MOST = 40  # differences that are told
_NAMED = 4  # nodes
_LONGEST = 120


def facts(node: NodeSummary) -> list[tuple[str, str]]:
    return [(name, _short(text)) for name, text in flat(node.context or {}).items()]


def differences(nodes: Sequence[NodeSummary]) -> list[tuple[str, str, str]]:
    """What not all nodes have the same of: subject, value, and the nodes that have it; the rarest value first."""
    found = among({node.host: node.context for node in nodes if node.context})
    return [
        (difference.subject, _short(str(group.value)), _few(group.hosts))
        for difference in found[:_MOST]
        for group in reversed(difference.groups)
    ]


def _few(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
    return ", ".join(hosts[:_NAMED]) + more


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """A tree as dotted names: what context.json says, in two columns."""
    if isinstance(value, Mapping):
        return {name: text for key, item in value.items() for name, text in flat(item, f"{prefix}{key}.").items()}
    if isinstance(value, list | tuple):
        if all(not isinstance(item, Mapping | list | tuple) for item in value):
            return {prefix.rstrip("."): ", ".join(map(str, value))}
        return {
            name: text for place, item in enumerate(value) for name, text in flat(item, f"{prefix}{place}.").items()
        }
    return {prefix.rstrip("."): "" if value is None else str(value)}
