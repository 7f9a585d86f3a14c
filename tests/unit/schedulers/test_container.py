"""Containers and pods in cgroup paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.schedulers.container import Pod, container_of, pod_of

ID = "6b0c" * 16
UID = "1f2e3d4c-5b6a-4789-8abc-def012345678"
SLICE_UID = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"

BURSTABLE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice"
GUARANTEED = f"/kubepods.slice/kubepods-pod{SLICE_UID}.slice"


@pytest.mark.parametrize(
    ("path", "uid", "qos", "directory"),
    [
        (f"{BURSTABLE}/cri-containerd-{ID}.scope", UID, "burstable", BURSTABLE),
        (f"{GUARANTEED}/crio-{ID}.scope/sub", UID, "guaranteed", GUARANTEED),
        (BURSTABLE, UID, "burstable", BURSTABLE),
        (f"/kubepods/besteffort/pod{UID}/{ID}", UID, "besteffort", f"/kubepods/besteffort/pod{UID}"),
        (f"/kubepods/pod{STATIC}/{ID}", STATIC, "guaranteed", f"/kubepods/pod{STATIC}"),
        # kind: a kubelet below a root of its own
        (f"/docker/{ID}/kubelet/kubepods/pod{UID}/{ID}", UID, "guaranteed", f"/docker/{ID}/kubelet/kubepods/pod{UID}"),
        (
            f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
            *(UID, "guaranteed", f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE_UID}.slice"),
        ),
        # from a cgroup namespace of our own
        (
            f"/../../kubepods-besteffort-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
            *(UID, "besteffort", f"/../../kubepods-besteffort-pod{SLICE_UID}.slice"),
        ),
        (f"/../../pod{UID}/{ID}", UID, "", f"/../../pod{UID}"),
        # containerd with its own driver under a kubelet with the other
        (
            f"/system.slice/containerd.service/kubepods-burstable-pod{SLICE_UID}.slice:cri-containerd:{ID}",
            *(UID, "burstable"),
            f"/system.slice/containerd.service/kubepods-burstable-pod{SLICE_UID}.slice:cri-containerd:{ID}",
        ),
    ],
)
def test_the_pod_of_a_path(path: str, uid: str, qos: str, directory: str) -> None:
    assert pod_of(path) == Pod(uid, qos, directory)


@pytest.mark.parametrize(
    ("path", "runtime", "directory"),
    [
        (f"{BURSTABLE}/cri-containerd-{ID}.scope", "containerd", f"{BURSTABLE}/cri-containerd-{ID}.scope"),
        (f"{GUARANTEED}/crio-{ID}.scope/init.scope", "cri-o", f"{GUARANTEED}/crio-{ID}.scope"),
        (f"{GUARANTEED}/docker-{ID}.scope", "docker", f"{GUARANTEED}/docker-{ID}.scope"),
        (f"/kubepods/burstable/pod{UID}/{ID}", "", f"/kubepods/burstable/pod{UID}/{ID}"),
        (f"/kubepods/burstable/pod{UID}/crio-{ID}", "cri-o", f"/kubepods/burstable/pod{UID}/crio-{ID}"),
        (f"/docker/{ID}", "docker", f"/docker/{ID}"),
        (f"/system.slice/docker-{ID}.scope", "docker", f"/system.slice/docker-{ID}.scope"),
        (f"/machine.slice/libpod-{ID}.scope/container", "podman", f"/machine.slice/libpod-{ID}.scope"),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope",
            *("podman", f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
        ),
        (f"/default/{ID}", "containerd", f"/default/{ID}"),
        (f"/system.slice/nerdctl-{ID}.scope", "containerd", f"/system.slice/nerdctl-{ID}.scope"),
        (f"/../cri-containerd-{ID}.scope", "containerd", f"/../cri-containerd-{ID}.scope"),
    ],
)
def test_the_container_of_a_path(path: str, runtime: str, directory: str) -> None:
    container = container_of(path)

    assert container is not None
    assert (container.id, container.runtime, container.cgroup) == (ID, runtime, directory)


def test_a_container_in_a_container_is_the_inner_one() -> None:
    container = container_of(f"/docker/{'a' * 64}/docker/{ID}/x")

    assert container is not None
    assert container.cgroup == f"/docker/{'a' * 64}/docker/{ID}"


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/init.scope", "/system.slice/docker.service", "/docker", f"/docker/{ID[:12]}", "/kubepods.slice"),
        f"/machine.slice/libpod-conmon-{ID}.scope",  # watches over the container
        f"{GUARANTEED}/crio-conmon-{ID}.scope",
        BURSTABLE,
    ],
)
def test_other_paths_are_no_containers(path: str) -> None:
    assert container_of(path) is None


@pytest.mark.parametrize(
    "path", ["/kubepods/burstable", f"/pod{UID}", f"/kubepods/pod{UID}x", f"/user.slice/pod{UID}", "/kubepods/podabc"]
)
def test_other_paths_are_no_pods(path: str) -> None:
    assert pod_of(path) is None


PIECES = ["/", "kubepods", ".slice", f"pod{UID}", f"-pod{SLICE_UID}", ID, "crio-", "docker", ".scope", "..", ":", "é\n"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_path_gives_a_directory_of_itself_or_none(path: str) -> None:
    pod, container = pod_of(path), container_of(path)

    assert pod is None or (path.startswith(pod.cgroup) and "_" not in pod.uid)
    assert container is None or (path.startswith(container.cgroup) and len(container.id) == 64)
