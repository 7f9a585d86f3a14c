from __future__ import annotations

import io
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sonde.cli import targets
from sonde.cli.main import main
from sonde.cli.target_server import TargetPage
from sonde.errors import SondeError, Unavailable
from sonde.http import Server
from sonde.httpclient import request
from sonde.units import Duration

if TYPE_CHECKING:
    from tests.conftest import RunningLoop

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """scontrol and kubectl that print what real ones printed; kubectl keeps what it was asked."""
    folder = tmp_path / "programs"
    folder.mkdir()
    scripts = {
        "scontrol": f"cat {FIXTURES}/slurm/nodes.txt",
        "kubectl": f'echo "$@" >>{folder}/asked; case "$2" in nodes|pods) cat {FIXTURES}/kubernetes/$2.json ;; esac',
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(*words: str) -> Any:
        code = main(["targets", *words])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


def names(groups: list[dict[str, Any]]) -> list[str]:
    return [group["labels"]["node"] for group in groups]


@pytest.mark.usefixtures("programs")
def test_slurm_nodes_as_prometheus_reads_them(shown: Callable[..., Any]) -> None:
    groups = shown("slurm", "--port", "1800", "--label", "cluster=blue")

    assert groups[0] == {
        "targets": ["10.0.0.1:1800"],
        "labels": {
            "node": "n1",
            "partition": "main,debug",
            "cluster": "blue",
            "__meta_sonde_node": "n1",
            "__meta_sonde_partition": "main,debug",
            "__meta_sonde_state": "idle",
            "__meta_sonde_features": "rack1,cpu",
        },
    }
    assert names(groups) == ["n1", "n2", "n3"]


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("all", ["n1", "n2", "n3"]),
        ("up", ["n1", "n2"]),
        ("down", ["n3"]),
        ("!drain", ["n1", "n3"]),
        ("idle,!drain", ["n1"]),
        ("IDLE,down", ["n1", "n2", "n3"]),
        ("allocated", []),
    ],
)
def test_states_choose_the_nodes(shown: Callable[..., Any], states: str, expected: list[str]) -> None:
    assert names(shown("slurm", "--state", states)) == expected


@pytest.mark.usefixtures("programs")
def test_labels_come_out_of_facts_names_and_features(shown: Callable[..., Any]) -> None:
    words = ("--labels", "node,state", "--extract", "rack=^rack([0-9]+)", "--extract", "row=^n", "--address", "name")
    first, second, _ = shown("slurm", *words)

    assert first["targets"] == ["n1:1779"]
    plain = {name: value for name, value in first["labels"].items() if not name.startswith("__")}
    assert plain == {"node": "n1", "state": "idle", "rack": "1", "row": "n"}
    assert "rack" not in second["labels"]


def test_pods_and_nodes_of_kubernetes(programs: Path, shown: Callable[..., Any]) -> None:
    found = shown("kubernetes")
    pods = shown("kubernetes", "--pods", "app=sonde", "--namespace", "monitoring")

    assert [group["targets"] for group in found] == [["10.1.0.11:1779"], ["[fd00::12]:1779"]]
    assert [(group["targets"], group["labels"]["namespace"]) for group in pods] == [(["10.244.0.5:1779"], "monitoring")]
    assert (programs / "asked").read_text().splitlines() == [
        "get nodes --output=json",
        "get pods --namespace=monitoring --selector=app=sonde --output=json",
    ]


def test_lists_of_hosts_come_from_words_files_and_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hosts").write_text("gpu[01-02]  # the new ones\n\n# n9\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("login1\n"))

    assert main(["targets", "hosts", "n[1-2]", f"@{tmp_path}/hosts", "-", "--format", "text"]) == 0
    assert capsys.readouterr().out.split() == ["n1:1779", "n2:1779", "gpu01:1779", "gpu02:1779", "login1:1779"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["hosts"], 2, "takes a list"),
        (["slurm", "n1"], 2, "know theirs"),
        (["slurm", "--pods", "app=x"], 2, "for kubernetes"),
        (["hosts", "n1", "--state", "up"], 2, "nobody knows the states"),
        (["hosts", "n[1-"], 2, "host list"),
        (["hosts", ""], 2, "the list of hosts is empty"),
        (["hosts", "@/dev/null", "--write", "/nowhere/x"], 2, "the list of hosts is empty"),
        (["hosts", "n[3-1]", "--serve", "127.0.0.1:0"], 2, "ends before it begins"),
        (["hosts", "@/nowhere"], 2, "No such file"),
        (["hosts", "n1", "--label", "9=x"], 2, "NAME=VALUE"),
        (["hosts", "n1", "--extract", "rack=("], 2, "not an expression"),
        (["hosts", "n1", "--watch", "1s"], 2, "--write FILE or --serve"),
        (["slurm", "--state", ","], 2, "which?"),
        (["hosts", "n1", "--write", "/nowhere/x"], 1, "No such file"),
        (["hosts", "n1", "--serve", "0.0.0.0:0"], 2, "0.0.0.0"),
    ],
)
def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str) -> None:
    assert main(["targets", *words]) == code
    assert message in capsys.readouterr().err


def test_a_malformed_line_of_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hosts").write_text("n1\nn2 n3,n4\n")

    assert main(["targets", "hosts", f"@{tmp_path}/hosts"]) == 2
    assert f"{tmp_path}/hosts, line 2: host list: cannot make sense of 'n2 n3,n4': " in capsys.readouterr().err


def test_an_address_that_is_taken_is_answered_without_options_of_other_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code = main(["targets", "hosts", "n1", "--serve", f"127.0.0.1:{taken.getsockname()[1]}"])

    err = capsys.readouterr().err
    assert code == 3
    assert "is already taken by" in err
    assert "--rpc-address" not in err


def test_without_a_batch_system_it_is_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert main(["targets", "slurm"]) == 3
    assert "scontrol: No such file" in capsys.readouterr().err


def test_a_file_is_replaced_in_one_step_and_only_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"

    assert targets.write(str(path), "[]\n") is True
    before = path.stat()
    assert targets.write(str(path), "[]\n") is False
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert targets.write(str(path), "[1]\n") is True
    assert path.stat().st_ino != before.st_ino  # a reader of the old one still has it whole
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["targets.json"]


class Looks:
    """Gives one list after another; None is a controller that does not answer."""

    def __init__(self, *answers: str | None) -> None:
        self._answers = list(answers)

    def text(self) -> str:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            raise Unavailable("the controller is away")
        return answer


@pytest.fixture
def served(loop: RunningLoop) -> Iterator[Callable[[TargetPage], str]]:
    servers: list[Server] = []

    def serve(page: TargetPage) -> str:
        servers.append(Server(loop, {"/targets": page.answer}))
        return f"http://{loop.call(lambda: servers[-1].listen('127.0.0.1:0'))}/targets"

    yield serve
    for server in servers:
        loop.call(server.close)


def test_the_last_good_list_is_served_while_looking_fails(
    served: Callable[[TargetPage], str], capsys: pytest.CaptureFixture[str]
) -> None:
    page = TargetPage(Looks(None, "[]\n", None, None, "[7]\n"), Duration(60))
    url = served(page)

    page.look()
    assert request(url).status == 503
    page.look()
    reply = request(url)
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"[]\n", "application/json")
    page.look()
    page.look()
    assert request(url).body == b"[]\n"
    page.look()
    assert request(url).body == b"[7]\n"
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": targets: ")[2] for line in said] == [
        "the controller is away; the targets stay as they are",
        "works again",
        "the controller is away; the targets stay as they are",
        "works again",
    ]


def test_a_page_looks_once_per_period_until_it_is_stopped(tmp_path: Path) -> None:
    page = TargetPage(Looks("[]\n", "[1]\n"), Duration(0.01), str(tmp_path / "targets.json"))
    page.start()
    until = time.monotonic() + 10
    while not (tmp_path / "targets.json").exists() or (tmp_path / "targets.json").read_text() != "[1]\n":
        assert time.monotonic() < until
        time.sleep(0.01)

    assert page.stop(5.0)
    assert not any(thread.name == "targets" for thread in threading.enumerate())


def test_a_watch_goes_on_when_a_look_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Ends(Exception):
        pass

    class Three(Looks):
        def text(self) -> str:
            if not self._answers:
                raise Ends
            answer = self._answers.pop(0)
            if answer is None:
                raise SondeError("away")
            return answer

    with pytest.raises(Ends):
        targets._watch(Three("[]\n", None, "[1]\n"), str(tmp_path / "t"), Duration(0.01))

    assert (tmp_path / "t").read_text() == "[1]\n"
    assert "works again" in capsys.readouterr().err
