"""Kubernetes' cgroup paths, environments, files and kubectl."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import ParseError, ReadError, Unavailable
from sonde.hostfs import HostFS
from sonde.schedulers.job import Job, JobId
from sonde.schedulers.kubernetes import KubernetesScheduler

UID = "1f2e3d4c-5b6a-4789-8abc-def012345678"
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
PODS = Path(__file__).parents[2] / "fixtures/kubectl/pods.json"
INSIDE = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
KUBE = KubernetesScheduler()


def told(**environ: str) -> Job | None:
    return KUBE.job_from_environ({**INSIDE, **environ})


def test_a_cgroup_names_the_pod() -> None:
    job = KUBE.job_from_cgroup(f"{SLICE}/cri-containerd-{'ab' * 32}.scope")

    assert job == Job(JobId("kubernetes", UID), raw_id=UID, cgroup=SLICE, part=UID)
    assert KUBE.job_from_cgroup("/system.slice") is None


def test_the_job_name_a_manifest_passes_on_is_the_job() -> None:
    job = told(JOB_NAME="train", POD_NAME="train-x7k2p", POD_NAMESPACE="ml", POD_UID=UID)

    assert job is not None
    assert (job.id, job.raw_id, job.part) == (JobId("kubernetes", "train"), "ml/train", UID)
    assert (job.name, job.account) == ("train", "ml")


@pytest.mark.parametrize(
    ("environ", "text", "step"),
    [
        ({"HOSTNAME": "sweep-2", "POD_NAME": "sweep-2-q9zxv", "JOB_COMPLETION_INDEX": "2"}, "sweep", "2"),
        ({"HOSTNAME": "train-worker-3", "MASTER_ADDR": "train-master-0", "PET_NODE_RANK": "4"}, "train", "4"),
        ({"HOSTNAME": "mpi-launcher-0", "K_MPI_JOB_ROLE": "launcher"}, "mpi", ""),
        ({"HOSTNAME": "tune-node-0-1", "PET_MASTER_ADDR": "tune-node-0-0.tune"}, "tune-node-0-1", ""),
        ({"HOSTNAME": "web-worker-3"}, "web-worker-3", ""),  # no operator's mark: only a name
        ({"HOSTNAME": "shop-6d5f", "JOB_COMPLETION_INDEX": "x"}, "shop-6d5f", ""),
    ],
)
def test_the_job_of_a_pod_that_a_controller_named(environ: dict[str, str], text: str, step: str) -> None:
    job = told(**environ)

    assert job is not None
    assert (job.id.text, job.step) == (text, step)


def test_an_environment_outside_of_a_pod_is_nobodys() -> None:
    assert KUBE.job_from_environ({"JOB_NAME": "nightly", "HOSTNAME": "jenkins"}) is None
    assert told() is None


def test_files_name_the_job_its_queue_and_its_namespace(captured: Callable[[str], HostFS]) -> None:
    pod = KUBE.job_from_cgroup(SLICE)
    assert pod is not None

    job = KubernetesScheduler().job_from_files(captured("kube_systemd"), 410, pod)

    assert job is not None
    assert (job.id.text, job.key.text, job.partition, job.account) == ("train", "ml/train", "gpu-queue", "ml")


def test_the_sandbox_that_comes_first_does_not_hide_the_volume(captured: Callable[[str], HostFS]) -> None:
    pod = KUBE.job_from_cgroup(SLICE)
    assert pod is not None
    scheduler, host = KubernetesScheduler(), captured("kube_systemd")

    found = [scheduler.job_from_files(host, pid, pod) for pid in (400, 410, 400)]

    assert [job.id.text for job in found if job is not None] == ["train-worker-0", "train", "train"]


def program(directory: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / "kubectl"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


def test_kubectl_tells_what_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f'echo "$@" >"$0.asked"; cat {PODS}', monkeypatch)
    monkeypatch.setenv("NODE_NAME", "node7")

    jobs = KUBE.running_here()

    assert "--field-selector=spec.nodeName=node7" in (tmp_path / "kubectl.asked").read_text()
    assert [(job.id.text, job.key.text, job.nodes) for job in jobs] == [
        ("train", "ml/train", ("node7",)),
        ("train", "ml/train", ("node8",)),
        ("etcd-node7", "0123456789abcdef0123456789abcdef", ("node7",)),
    ]
    assert (jobs[0].partition, jobs[0].step, jobs[0].account) == ("gpu-queue", "0", "ml")


def test_a_pod_is_described_by_its_job_and_all_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f"cat {PODS}", monkeypatch)
    pod = KUBE.job_from_cgroup(SLICE)
    assert pod is not None

    job = KUBE.describe(pod._replace(step="0", uid=1000))

    assert (job.id.text, job.nodes, job.cgroup, job.step, job.uid) == ("train", ("node7", "node8"), SLICE, "0", 1000)


def test_a_pod_the_api_has_forgotten_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, """echo '{"kind": "List", "items": []}'""", monkeypatch)
    job = Job(JobId("kubernetes", "gone"), raw_id="gone")

    assert KUBE.describe(job) == job


@pytest.mark.parametrize(("text", "error"), [("echo forbidden >&2; exit 1", ReadError), ("echo nonsense", ParseError)])
def test_a_kubectl_that_fails_or_babbles_is_an_error(
    text: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, text, monkeypatch)

    with pytest.raises(error):
        KUBE.running_here()


def test_without_kubectl_it_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match="kubectl"):
        KUBE.running_here()


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["Running", "ml"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["items", "metadata", "spec", "status", "namespace", "name", "uid", "labels", "phase"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(TREES.map(json.dumps) | st.text(max_size=30))
def test_any_answer_is_jobs_or_a_parse_error(text: str) -> None:
    try:
        jobs = KUBE.parse_pods(text)
    except ParseError:
        return

    assert all(job.id.scheduler == "kubernetes" for job in jobs)
