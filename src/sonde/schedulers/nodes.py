"""The nodes of a cluster, from scontrol, kubectl or a host list: their addresses, states and what else is known.

    NodeName=n1 … ActiveFeatures=rack1,cpu NodeAddr=10.0.0.1 … State=IDLE+DRAIN … Partitions=main,debug …

scontrol show nodes --oneliner; a `*` after the state says that the node does not answer its controller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sonde import command
from sonde.errors import ParseError
from sonde.schedulers import hostlist

_TIMEOUT = 30.0  # seconds; a controller with thousands of nodes and a full queue takes its time
_FIELD = re.compile(r"(?:^|\s)(NodeName|NodeAddr|State|Partitions|ActiveFeatures)=(\S*)")
_WORD = re.compile(r"[A-Z_]+")
# Words of node_state_string() in Slurm's src/common/slurm_protocol_defs.c for a node whose daemon cannot be there.
_AWAY = frozenset(
    ("down", "fail", "error", "unknown", "future", "powered_down", "powering_down", "power_down", "not_responding")
)
_READY = "ready"


class Node(NamedTuple):
    name: str
    address: str
    states: tuple[str, ...] = ()  # lower case; none when nobody keeps account of it
    facts: Mapping[str, str] = {}  # what can become a label
    words: tuple[str, ...] = ()  # features or labels, as their owner wrote them

    @property
    def is_up(self) -> bool:
        """Can a daemon on it be expected to answer? A drained node's can."""
        return not _AWAY & set(self.states) and f"not_{_READY}" not in self.states


def slurm_nodes() -> list[Node]:
    return parse_scontrol(command.run(["scontrol", "--oneliner", "show", "nodes"], timeout=_TIMEOUT))


def parse_scontrol(text: str) -> list[Node]:
    """One line per node; another line (`No nodes in the system`) is no node."""
    return [_slurm_node(line) for line in text.splitlines() if line.startswith("NodeName=")]


def _slurm_node(line: str) -> Node:
    # The first of each: a reason at the end is the operator's own text and may say anything.
    fields = dict(reversed(_FIELD.findall(line)))
    state = fields.get("State", "")
    name = fields.get("NodeName", "")
    if not name or not state:
        raise ParseError("scontrol show nodes", line)
    states = tuple(word.lower() for word in _WORD.findall(state)) + (("not_responding",) if "*" in state else ())
    features = _listed(fields.get("ActiveFeatures", ""))
    facts = {
        "node": name,
        "partition": ",".join(_listed(fields.get("Partitions", ""))),
        "state": "+".join(states),
        "features": ",".join(features),
    }
    return Node(name, fields.get("NodeAddr") or name, states, facts, features)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(item for item in text.split(",") if item and item != "(null)")


def kubernetes_nodes() -> list[Node]:
    return _parsed(command.run(["kubectl", "get", "nodes", "--output=json"], timeout=_TIMEOUT), kubernetes_node)


def kubernetes_pods(selector: str, namespace: str = "") -> list[Node]:
    """The pods of a DaemonSet, by the labels they carry; one that has no address yet is not there yet."""
    where = f"--namespace={namespace}" if namespace else "--all-namespaces"
    text = command.run(["kubectl", "get", "pods", where, f"--selector={selector}", "--output=json"], timeout=_TIMEOUT)
    return [node for node in _parsed(text, kubernetes_pod) if node.address]


def _parsed(text: str, parse: Callable[[Any], Node]) -> list[Node]:
    try:
        return [parse(item) for item in json.loads(text)["items"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ParseError("kubectl --output=json", text) from None


def kubernetes_node(item: Mapping[str, Any]) -> Node:
    """An object of kind Node: metadata.name, status.addresses, status.conditions, spec.unschedulable."""
    name = str(item["metadata"]["name"])
    states = _readiness(item) + (("cordoned",) if item.get("spec", {}).get("unschedulable") else ())
    labels = item["metadata"].get("labels") or {}
    found = {entry["type"]: str(entry["address"]) for entry in item["status"].get("addresses") or ()}
    facts = {
        "node": name,
        "state": "+".join(states),
        "zone": str(labels.get("topology.kubernetes.io/zone", "")),
        "instance_type": str(labels.get("node.kubernetes.io/instance-type", "")),
    }
    address = found.get("InternalIP") or found.get("Hostname") or name
    return Node(name, address, states, facts, _label_words(labels))


def kubernetes_pod(item: Mapping[str, Any]) -> Node:
    """An object of kind Pod: metadata.namespace, spec.nodeName, status.podIP, status.conditions."""
    metadata, status = item["metadata"], item["status"]
    node = str(item.get("spec", {}).get("nodeName") or "")
    states = (*_readiness(item), str(status.get("phase", "unknown")).lower())
    facts = {
        "node": node,
        "namespace": str(metadata.get("namespace", "")),
        "pod": str(metadata["name"]),
        "state": "+".join(states),
    }
    return Node(node, str(status.get("podIP") or ""), states, facts, _label_words(metadata.get("labels") or {}))


def _readiness(item: Mapping[str, Any]) -> tuple[str, ...]:
    conditions = {entry["type"]: entry.get("status") for entry in item["status"].get("conditions") or ()}
    return (_READY if conditions.get("Ready") == "True" else f"not_{_READY}",)


def _label_words(labels: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in labels.items())


def listed_nodes(texts: Iterable[str]) -> list[Node]:
    """The names of host lists, each once, in the order written."""
    names: Sequence[str] = list(dict.fromkeys(name for text in texts for name in hostlist.expand(text)))
    return [Node(name, name, facts={"node": name}) for name in names]
