"""Names of pods and containers without the API server."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.hostfs import HostFS
from sonde.schedulers.pods import LogNames, Names, container_name, names_from_environ, parse_labels, read_labels

UID = "1f2e3d4c-5b6a-4789-8abc-def012345678"
VOLUME = "root/etc/podinfo"


def test_the_log_directories_name_pods_and_containers(captured: Callable[[str], HostFS]) -> None:
    logs, host = LogNames(), captured("kube_systemd")

    assert logs.of_container(host, "b1" * 32) == Names("ml", "train-worker-0", "pytorch")
    assert logs.of_pod(host, UID) == Names("ml", "train-worker-0")
    assert logs.of_container(host, "00" * 32) == Names()


def test_without_log_directories_there_are_no_names(captured: Callable[[str], HostFS]) -> None:
    host = captured("kube_cgroupfs")

    assert (LogNames().of_pod(host, UID), LogNames().of_container(host, "b1" * 32)) == (Names(), Names())


def test_a_log_that_appears_late_is_found_and_one_that_never_does_is_given_up(tmp_path: Path) -> None:
    logs, host = LogNames(), HostFS(str(tmp_path))
    folder = tmp_path / "var/log/containers"
    folder.mkdir(parents=True)
    first = logs.of_container(host, "ab" * 32)
    (folder / f"web-0_shop_nginx-{'ab' * 32}.log").touch()
    second = logs.of_container(host, "ab" * 32)
    late = [logs.of_container(host, "cd" * 32) for _ in range(3)]
    (folder / f"web-1_shop_nginx-{'cd' * 32}.log").touch()

    assert (first, second) == (Names(), Names("shop", "web-0", "nginx"))
    assert {*late, logs.of_container(host, "cd" * 32)} == {Names()}


def test_the_environment_names_a_pod_only_inside_of_one() -> None:
    environ = {"HOSTNAME": "train-0", "POD_NAMESPACE": "ml"}

    assert names_from_environ(environ) == Names()
    assert names_from_environ({**environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == Names("ml", "train-0")


def test_the_mount_of_the_termination_log_names_the_container(captured: Callable[[str], HostFS]) -> None:
    host = captured("kube_cgroupfs")

    assert [container_name(host, pid) for pid in (700, 710, 720, 9999)] == ["main", "etcd", "", ""]


def test_labels_come_from_the_downward_api_volume(captured: Callable[[str], HostFS]) -> None:
    labels = read_labels(captured("kube_systemd"), 410)

    assert labels["training.kubeflow.org/job-name"] == "train"
    assert labels["note"] == 'a "quoted" word'


def test_a_folder_that_is_no_volume_of_the_kubelet_is_not_looked_into(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("kube_systemd")
    mounts = Path(host.path("proc/410/mountinfo"))
    mounts.write_text(mounts.read_text().replace("- tmpfs tmpfs", "- nfs4 server:/export"))

    assert read_labels(host, 410) == {}


@pytest.mark.parametrize("way", ["absolute", "climbing", "loop", "pipe", "folder"])
def test_a_file_that_leads_out_of_the_container_or_would_block_is_not_read(
    scratch: Callable[[str], HostFS], tmp_path: Path, way: str
) -> None:
    host = scratch("kube_systemd")
    secret = tmp_path / "secret"
    secret.write_text('leaked="yes"\n')
    volume = Path(host.path(f"proc/410/{VOLUME}"))
    (volume / "labels").unlink()
    if way == "absolute":
        (volume / "labels").symlink_to(secret)
    elif way == "climbing":
        (volume / "labels").symlink_to(os.path.relpath(secret, volume))
    elif way == "loop":
        (volume / "labels").symlink_to("labels")
    elif way == "pipe":
        os.mkfifo(volume / "labels")
    else:
        (volume / "labels").mkdir()

    assert set(read_labels(host, 410)) == {"note"}


def test_an_absolute_link_is_one_within_the_container(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("kube_systemd")
    volume = Path(host.path(f"proc/410/{VOLUME}"))
    (volume / "labels").unlink()
    (volume / "labels").symlink_to("/etc/../etc/./podinfo/real")
    (volume / "real").write_text('job-name="x"\n')

    assert read_labels(host, 410)["job-name"] == "x"


@given(st.binary(max_size=200) | st.text(alphabet='a="\\\n/.é', max_size=60).map(str.encode))
def test_any_labels_file_gives_strings(data: bytes) -> None:
    labels = parse_labels(data)

    assert all(isinstance(value, str) and '="' not in name for name, value in labels.items())
