"""Kubernetes: pods and the training jobs they are of, from cgroup paths, environments, labels and kubectl.

/kubepods.slice/…/kubepods-burstable-pod1f2e_….slice/cri-containerd-6b0c….scope        the pod (container.py)
KUBERNETES_SERVICE_HOST=10.96.0.1 JOB_NAME=train POD_NAME=train-0-x7k2p JOB_COMPLETION_INDEX=0
training.kubeflow.org/job-name="train"                        a label in a downward API volume, or told by kubectl

A pod is a job unless something names the job it is a pod of; then all its pods on this node are one job, and `part` is
the uid of the pod. The account of a pod is that of its cgroup, whoever names it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sonde import command
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.schedulers.container import POD_PARENTS, pod_of
from sonde.schedulers.job import Environ, Job, JobId
from sonde.schedulers.pods import LogNames, Names, names_from_environ, read_labels

# The larger job first: a pod of a JobSet is of a batch job as well.
_JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
    "job-name",  # the same before Kubernetes 1.27
)
_QUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name")
_INDEX_LABELS = ("training.kubeflow.org/replica-index", "batch.kubernetes.io/job-completion-index")
_INDEXES = ("JOB_COMPLETION_INDEX", "PET_NODE_RANK", "VC_TASK_INDEX")
# Kubeflow's operators name the pods of job x x-master-0, x-worker-3, and set one of these in them.
_OPERATOR_MARKS = ("MASTER_ADDR", "PET_RDZV_ENDPOINT", "PET_MASTER_ADDR", "TF_CONFIG", "K_MPI_JOB_ROLE")
_REPLICA = re.compile(r"(?P<job>.+)-(?:master|worker|launcher|chief|ps|evaluator|node)-(?P<index>[0-9]{1,6})")
_TIMEOUT = 10.0  # seconds; the API server may be far away
_REMEMBERED = 10_000  # pods whose files have been looked at


class KubernetesScheduler:
    name: ClassVar[str] = "kubernetes"
    environ_marks: ClassVar[tuple[bytes, ...]] = (b"KUBERNETES_SERVICE_HOST=",)
    cgroup_parents: ClassVar[tuple[str, ...]] = POD_PARENTS
    by_session: ClassVar[bool] = False
    node_files: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._logs = LogNames()
        self._told: dict[str, Job] = {}  # by pod uid, what files say

    def job_from_cgroup(self, path: str) -> Job | None:
        pod = pod_of(path)
        if pod is None:
            return None
        return Job(id=JobId(self.name, pod.uid), raw_id=pod.uid, cgroup=pod.cgroup, part=pod.uid)

    def job_from_environ(self, environ: Environ) -> Job | None:
        if "KUBERNETES_SERVICE_HOST" not in environ:
            return None
        names = names_from_environ(environ)
        index = next((environ[name] for name in _INDEXES if _is_index(environ.get(name, ""))), "")
        job = environ.get("JOB_NAME", "") or _job_of_pod(names.pod, environ)
        return self._job(names, job, uid=environ.get("POD_UID", ""), step=index)

    def job_from_files(self, host: HostFS, pid: int, job: Job) -> Job | None:
        """What the kubelet's logs and the pod's downward API volume tell of a pod; looked up once."""
        uid = job.part
        if uid not in self._told:
            if len(self._told) >= _REMEMBERED:
                self._told.clear()
            labels = read_labels(host, pid)
            found = self._from_labels(self._logs.of_pod(host, uid), uid, labels)
            if found is None or not labels:
                return found  # the sandbox's process comes first, and has no volumes
            self._told[uid] = found
        return self._told[uid]

    def running_here(self) -> Sequence[Job]:
        node = os.environ.get("NODE_NAME") or os.uname().nodename
        return self.parse_pods(self._kubectl("--all-namespaces", f"--field-selector=spec.nodeName={node}"))

    def describe(self, job: Job) -> Job:
        """With the nodes of all its pods. A job is found by its label, a pod by its name."""
        where = f"--namespace={job.account}" if job.account else "--all-namespaces"
        pods = self.parse_pods(self._kubectl(where))
        same = [pod for pod in pods if pod.key == job.key or pod.id == job.id or (job.part and pod.part == job.part)]
        if not same:
            return job
        first = same[0]
        # The pod that was asked about tells the job; all pods of that job tell the nodes.
        mates = [pod for pod in pods if pod.key == first.key]
        nodes = tuple(sorted({node for pod in mates for node in pod.nodes}))
        return first._replace(nodes=nodes, step=job.step, cgroup=job.cgroup, part=job.part, uid=job.uid)

    def _kubectl(self, *options: str) -> str:
        return command.run(["kubectl", "get", "pods", *options, "--output=json"], timeout=_TIMEOUT)

    def parse_pods(self, text: str) -> list[Job]:
        """The running pods of `kubectl get pods -o json`: {"kind": "List", "items": [{"metadata": …}]}."""
        import json

        try:
            tree = json.loads(text)
            items = tree["items"]
            found = [self._parse_pod(item) for item in items]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ParseError("kubectl get pods", text) from None
        return [job for job in found if job is not None]

    def _parse_pod(self, item: Mapping[str, Any]) -> Job | None:
        metadata, spec = item["metadata"], item["spec"]
        if item["status"].get("phase") != "Running":
            return None
        names = Names(_text(metadata["namespace"]), _text(metadata["name"]))
        labels = {_text(name): _text(value) for name, value in (metadata.get("labels") or {}).items()}
        # A static pod goes by its configuration's hash in cgroups, and by its mirror's uid in the API.
        uid = (metadata.get("annotations") or {}).get("kubernetes.io/config.hash") or metadata["uid"]
        job = self._from_labels(names, _text(uid), labels)
        node = spec.get("nodeName")
        return job._replace(nodes=(_text(node),) if node else ()) if job is not None else None

    def _from_labels(self, names: Names, uid: str, labels: Mapping[str, str]) -> Job | None:
        name = next((labels[label] for label in _JOB_LABELS if labels.get(label)), "")
        index = next((labels[label] for label in _INDEX_LABELS if _is_index(labels.get(label, ""))), "")
        queue = next((labels[label] for label in _QUEUE_LABELS if labels.get(label)), "")
        job = self._job(names, name, uid=uid, step=index)
        return job._replace(partition=queue) if job is not None else None

    def _job(self, names: Names, job: str, *, uid: str, step: str) -> Job | None:
        text = job or names.pod
        if not text:
            return None
        whole = f"{names.namespace}/{job}" if names.namespace else job
        return Job(
            id=JobId(self.name, text),
            raw_id=whole if job else uid,  # two namespaces may each have a job of this name
            step=step,
            name=text,
            account=names.namespace,
            part=uid,
        )


def _job_of_pod(pod: str, environ: Environ) -> str:
    """The job whose controller named the pod so."""
    index, host = environ.get("JOB_COMPLETION_INDEX", ""), environ.get("HOSTNAME", "")
    if _is_index(index) and host.endswith(f"-{index}"):
        return host.removesuffix(f"-{index}")  # an indexed Job sets the host name to NAME-INDEX
    match = _REPLICA.fullmatch(pod) if any(mark in environ for mark in _OPERATOR_MARKS) else None
    return match["job"] if match is not None else ""


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
