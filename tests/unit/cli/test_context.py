"""`sonde context`: what a node is, for people and programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.compute_node import compute_node

from sonde.cli.main import main
from sonde.jobs.context import gather
from sonde.jobs.recording import About, write_about, write_json


def recording(path: Path, *hosts: str, odd: str = "") -> Path:
    for host in hosts:
        folder = path / "recording" / host
        folder.mkdir(parents=True)
        write_about(str(folder), About(host, begun_ns=1, period_ns=10**9))
        context = gather(compute_node(path / "trees" / host, host), (500, 501))
        if host == odd:
            context["kernel"]["release"] = "6.1.0-18-amd64"
        write_json(str(folder / "context.json"), context)
    return path / "recording"


def test_a_tree_is_told_a_line_per_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compute_node(tmp_path)
    assert main(["context", "--root", str(tmp_path), "--pid", "500"]) == 0

    text = capsys.readouterr().out
    for line in (
        "host          n1",
        "cpu           Intel(R) Xeon(R) Platinum 8468, sapphirerapids, x86-64-v4",
        "2 sockets, 8 cores, 16 threads, 2 NUMA nodes, SMT on",
        "L1d 8 × 48.0 KiB, L1i 8 × 32.0 KiB, L2 8 × 2.0 MiB, L3 2 × 105.0 MiB",
        "governor performance, 0.8 to 3.8 GHz, boost on",
        "accelerators  4 × NVIDIA H100 80GB HBM3, nvidia driver 535.161.08",
        "CPUs 0-3,8-11, quota 8 CPUs, memory 64.0 GiB",
        "torch 2.5.1+cu124",
        "not seen",
    ):
        assert line in text
    assert "\x1b" not in text
    assert "hunter2" not in text


def test_this_node_is_told_as_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["cpu"]["threads"] >= 1
    assert found["environment"]["variables"]["PATH"]


def test_the_nodes_of_a_recording_and_who_is_not_like_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path, "n1", "n2", "n3", odd="n3")
    assert main(["context", str(path)]) == 0

    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "3 nodes, 1 difference"
    assert second == "  n3: kernel.release 6.1.0-18-amd64 (others 6.1.0-21-amd64)"


def test_like_nodes_are_said_to_be_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recording(tmp_path, "n1", "n2")
    assert main(["context", str(path)]) == 0

    assert capsys.readouterr().out.startswith("2 nodes, no difference\n")


def test_differences_are_told_as_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recording(tmp_path, "n1", "n2", "n3", odd="n3")
    assert main(["context", str(path), "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert sorted(found["contexts"]) == ["n1", "n2", "n3"]
    assert found["differences"] == [
        {
            "subject": "kernel.release",
            "groups": [
                {"value": "6.1.0-21-amd64", "hosts": ["n1", "n2"]},
                {"value": "6.1.0-18-amd64", "hosts": ["n3"]},
            ],
        }
    ]


def test_what_is_no_context_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_about(str(tmp_path), About("n1", begun_ns=1, period_ns=1))
    (tmp_path / "other.json").write_text("{}")

    assert main(["context", str(tmp_path)]) == 3
    assert main(["context", str(tmp_path / "other.json")]) == 2
    assert main(["context", str(tmp_path), "--host", "n1"]) == 2
    assert main(["context", str(tmp_path / "none")]) == 2
    text = capsys.readouterr().err
    assert "has no context of any node" in text
    assert "is no context" in text


def test_a_host_that_does_not_answer_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "--host", "127.0.0.1:1"]) == 3

    assert "127.0.0.1:1" in capsys.readouterr().err
