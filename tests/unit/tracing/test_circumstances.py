"""How a process stands to libkineto's socket."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.lacking import lacking

from sonde.tracing.circumstances import Circumstances, circumstances_of, is_forked, obstacle

if TYPE_CHECKING:
    from tests.unit.tracing.conftest import Scene, Tree

    from sonde.hostfs import HostFS

ABSTRACT = ["@dynolog"]


def of(host: HostFS, pid: int) -> Circumstances:
    found = circumstances_of(host, pid)
    assert found is not None
    return found


def why(host: HostFS, pid: int, addresses: list[str] | None) -> str:
    return obstacle(of(host, pid), addresses, host, pid)


def test_a_process_that_is_gone_has_no_circumstances(tree: Tree) -> None:
    assert circumstances_of(tree.host, 812) is None


@pytest.mark.parametrize(
    ("environ", "addresses", "reason"),
    [
        ({}, ABSTRACT, "KINETO_USE_DAEMON is not set"),
        ({"KINETO_USE_DAEMON": ""}, ABSTRACT, "it has not asked: is it registered with another daemon, or blocked?"),
        ({"KINETO_USE_DAEMON": "1"}, [], "tracing is switched off in the daemon"),
        ({"KINETO_USE_DAEMON": "1"}, None, "no daemon answers"),
        (
            {"KINETO_USE_DAEMON": "1"},
            ["/run/x/dynolog"],
            "KINETO_IPC_SOCKET_DIR is not set: this daemon listens at /run/x/dynolog only",
        ),
        (
            {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": "/run/y"},
            ["@dynolog", "/run/x/dynolog"],
            "KINETO_IPC_SOCKET_DIR is /run/y: this daemon listens at @dynolog, /run/x/dynolog",
        ),
    ],
)
def test_the_first_cause_is_told(environ: dict[str, str], addresses: list[str] | None, reason: str, tree: Tree) -> None:
    tree.add(812, environ=environ)

    assert why(tree.host, 812, addresses) == reason


def test_what_may_not_be_read_is_not_guessed_at(tree: Tree) -> None:
    tree.add(812)
    (tree.root / "proc/812/environ").unlink()
    hidden = why(tree.host, 812, ABSTRACT)
    (tree.root / "proc/812/maps").unlink()
    unseen = why(tree.host, 812, ABSTRACT)

    assert hidden == "whether KINETO_USE_DAEMON is set cannot be seen: another user's process"
    assert unseen == "it may not be seen what it has loaded: another user's process"


def test_another_network_namespace_hides_the_abstract_socket(scene: Scene) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        lacking("needs root and unshare(1) for a network namespace")
    inside = scene.trainee({"KINETO_USE_DAEMON": "1"}, wrapper=["unshare", "--net"])
    beside = scene.trainee({"KINETO_USE_DAEMON": "1"})

    assert of(scene.host, inside.pid).same_network is False
    assert of(scene.host, beside.pid).same_network is True
    assert why(scene.host, inside.pid, ABSTRACT) == (
        "in another network namespace: the socket @dynolog is not visible; set KINETO_IPC_SOCKET_DIR"
    )


def test_a_directory_that_is_mounted_elsewhere_still_holds_the_same_socket(scene: Scene) -> None:
    real, other = scene.folder / "real", scene.folder / "other"
    real.mkdir()
    other.symlink_to(real)  # another name for the same place, as a mount gives it in a container
    address = f"{real}/dynolog"
    scene.loop.call(lambda: scene.endpoint.listen(address.encode()))
    trainee = scene.trainee({"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(other)})

    assert why(scene.host, trainee.pid, [address]) == "it has just started and not asked yet"


def test_libkinetos_socket_tells_of_a_variable_that_the_program_has_set_itself(scene: Scene) -> None:
    trainee = scene.trainee()
    before = of(scene.host, trainee.pid)
    trainee.poll()
    after = of(scene.host, trainee.pid)

    assert (before.client, before.switch) == (False, None)
    assert (after.client, after.switch) == (True, None)
    assert why(scene.host, trainee.pid, ABSTRACT) == "it has just started and not asked yet"


def test_a_child_of_fork_is_told_from_one_that_was_executed(scene: Scene) -> None:
    trainee = scene.trainee()
    child = trainee.fork()

    assert is_forked(scene.host, of(scene.host, child))
    assert not is_forked(scene.host, of(scene.host, trainee.pid))
