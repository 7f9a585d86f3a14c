"""Hardware and software of the nodes, from context.json: what each has, and in what they differ."""

from __future__ import annotations

from collections.abc import Sequence

from sonde.jobs.report.plain import flat
from sonde.jobs.summary import NodeSummary

# What differs by nature: a node's own name, its addresses, when it was asked.
_OWN = ("host", "hostname", "fqdn", "time", "boot", "uptime", "address", "mac", "serial", "uuid", "free", "available")
_MOST = 40  # differences that are told
_LONGEST = 120


def facts(node: NodeSummary) -> list[tuple[str, str]]:
    return [(name, _short(text)) for name, text in flat(node.context or {}).items()]


def differences(nodes: Sequence[NodeSummary]) -> list[tuple[str, str, str]]:
    """What not all nodes have the same of: name, value, and the nodes that have it; the rarest value first."""
    trees = [(node.host, flat(node.context or {})) for node in nodes]
    found: list[tuple[str, str, str]] = []
    for name in dict.fromkeys(name for _, tree in trees for name in tree):
        if any(word in name.lower().rpartition(".")[2] for word in _OWN):
            continue
        hosts: dict[str, list[str]] = {}
        for host, tree in trees:
            hosts.setdefault(tree.get(name, "(not there)"), []).append(host)
        if len(hosts) > 1:
            ordered = sorted(hosts.items(), key=lambda item: len(item[1]))
            found += [(name, _short(value), _named(names, len(trees))) for value, names in ordered]
    return found[:_MOST]


def _named(hosts: Sequence[str], every: int) -> str:
    if len(hosts) <= 4:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:3])} and {len(hosts) - 3} more of {every}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
