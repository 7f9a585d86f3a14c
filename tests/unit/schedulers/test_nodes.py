"""Nodes as scontrol 22.05 and kubectl 1.32 print them (tests/fixtures/slurm, tests/fixtures/kubernetes)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import ParseError
from sonde.schedulers import nodes
from sonde.schedulers.nodes import Node, parse_scontrol

FIXTURES = Path(__file__).parents[2] / "fixtures"
SCONTROL = (FIXTURES / "slurm/nodes.txt").read_text()


def kubernetes(name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads((FIXTURES / f"kubernetes/{name}.json").read_text())["items"]
    return items


def test_slurm_nodes_have_address_states_partitions_and_features() -> None:
    idle, drained, down = parse_scontrol(SCONTROL)

    assert (idle.name, idle.address, idle.states, idle.words) == ("n1", "10.0.0.1", ("idle",), ("rack1", "cpu"))
    assert idle.facts == {"node": "n1", "partition": "main,debug", "state": "idle", "features": "rack1,cpu"}
    assert drained.facts["state"] == "idle+completing+drain"  # not what the reason says
    assert (drained.name, drained.words) == ("n2", ())
    assert down.states == ("down", "not_responding")
    assert down.facts["partition"] == ""


def test_a_drained_node_is_up_and_one_that_does_not_answer_is_not() -> None:
    assert [node.is_up for node in parse_scontrol(SCONTROL)] == [True, True, False]


def test_an_empty_cluster_has_no_nodes() -> None:
    assert parse_scontrol("No nodes in the system\n") == []


def test_kubernetes_nodes_are_reached_by_their_internal_address() -> None:
    ready, cordoned = map(nodes.kubernetes_node, kubernetes("nodes"))

    assert (ready.name, ready.address, ready.states) == ("gpu-a", "10.1.0.11", ("ready",))
    assert (ready.facts["zone"], ready.facts["instance_type"]) == ("zone-1", "p5.48xlarge")
    assert "rack=r7" in ready.words
    assert (cordoned.address, cordoned.states, cordoned.is_up) == ("fd00::12", ("not_ready", "cordoned"), False)


def test_pods_are_named_after_their_nodes() -> None:
    running, pending = map(nodes.kubernetes_pod, kubernetes("pods"))

    assert (running.name, running.address, running.is_up) == ("gpu-a", "10.244.0.5", True)
    assert (running.facts["namespace"], running.facts["pod"]) == ("monitoring", "sonde-x7f2p")
    assert (pending.address, pending.is_up) == ("", False)


def test_hosts_of_lists_come_once_each_in_order() -> None:
    assert nodes.listed_nodes(["n[2-3]", "n1,n2"]) == [Node(n, n, facts={"node": n}) for n in ("n2", "n3", "n1")]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*SCONTROL.split(" "), "NodeName=", "State=", "\n", "*"]), max_size=40))
def test_mutated_scontrol_text_gives_nodes_or_a_parse_error(words: list[str]) -> None:
    try:
        found = parse_scontrol(" ".join(words))
    except ParseError:
        return

    assert all(node.name and node.address for node in found)


JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["items", "metadata", "status", "spec", "name", "conditions", "type", "addresses", "labels"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_odd_objects_of_kubernetes_are_parse_errors(tree: object) -> None:
    for parse in (nodes.kubernetes_node, nodes.kubernetes_pod):
        for text in (json.dumps(tree), json.dumps({"items": [tree]}), str(tree)):
            try:
                found = nodes._parsed(text, parse)
            except ParseError:
                continue
            assert all(isinstance(node.address, str) for node in found)


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"items": 5}', "[" * 100_000])
def test_what_is_no_list_of_objects_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        nodes._parsed(text, nodes.kubernetes_node)
