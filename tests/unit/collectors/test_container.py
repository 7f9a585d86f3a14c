"""Containers of captured nodes: their accounts, their names, their coming and going."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sonde.collectors.container import ContainerCollector, ContainerConfig
from sonde.errors import Unavailable
from sonde.hostfs import HostFS
from sonde.model import Quality, Reading, Value
from sonde.units import Duration

EAGER = ContainerConfig(scan=Duration(0))  # a scan at every tick
POD = "1f2e3d4c-5b6a-4789-8abc-def012345678"
SCOPE = (
    f"sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/"
    f"cri-containerd-{'b1' * 32}.scope"
)


def table(reading: Reading) -> dict[tuple[str, ...], Value]:
    """By name and labels, container ids shortened."""
    return {
        (spec.name.removeprefix("sonde_container_"), labels[0][:2], *labels[1:]): value
        for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
    }


@pytest.fixture
def collector() -> Iterator[Callable[..., ContainerCollector]]:
    made: list[ContainerCollector] = []

    def make(host: HostFS, config: ContainerConfig = EAGER) -> ContainerCollector:
        made.append(ContainerCollector(host, config))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[..., ContainerCollector]


def test_pods_of_the_systemd_driver_are_named_by_the_kubelets_logs(
    captured: Callable[[str], HostFS], collector: Make
) -> None:
    found = table(collector(captured("kube_systemd")).collect())

    assert {key[1:] for key in found if key[0] == "info"} >= {
        ("b1", POD, "ml", "train-worker-0", "pytorch", "containerd", "burstable"),
        ("a0", POD, "ml", "train-worker-0", "", "containerd", "burstable"),  # the sandbox has no name
    }
    assert len([key for key in found if key[0] == "info"]) == 5


def test_other_drivers_and_runtimes_are_named_by_environment_and_mounts(
    captured: Callable[[str], HostFS], collector: Make
) -> None:
    found = table(collector(captured("kube_cgroupfs")).collect())

    assert {key[1:] for key in found if key[0] == "info"} == {
        ("d5", "4d5e6f70-8192-4a34-babc-bcdef0123456", "research", "sweep-2-q9zxv", "main", "", "burstable"),
        ("e6", "0123456789abcdef0123456789abcdef", "", "", "etcd", "", "besteffort"),
        ("f7", "", "", "", "", "docker", ""),
        ("98", "", "", "", "", "podman", ""),
    }


def test_the_account_is_that_of_the_containers_own_cgroup(captured: Callable[[str], HostFS], collector: Make) -> None:
    found = table(collector(captured("kube_systemd")).collect())

    assert found["cpu_usage_seconds_total", "b1"] == 89.98
    assert (found["cpu_seconds_total", "b1", "user"], found["cpu_seconds_total", "b1", "system"]) == (67.485, 22.495)
    assert (found["cpu_periods_total", "b1"], found["cpu_throttled_periods_total", "b1"]) == (100, 7)
    assert found["cpu_throttled_seconds_total", "b1"] == 0.35
    usage, cached = found["memory_usage_bytes", "b1"], 512 << 20
    assert usage == (2 << 30) - 40960 + cached + 1048576
    assert found["memory_working_set_bytes", "b1"] == usage - cached // 2
    assert (found["memory_limit_bytes", "b1"], found["oom_kills_total", "b1"]) == (8 << 30, 1)
    assert (found["read_bytes_total", "b1"], found["written_bytes_total", "b1"]) == (4096, 8192)
    assert (found["threads", "b1"], found["processes", "b1"]) == (39, 3)
    assert found["pressure_waiting_seconds_total", "b1", "memory"] == 0.8998


def test_a_series_per_process_only_on_request(captured: Callable[[str], HostFS], collector: Make) -> None:
    host = captured("kube_systemd")
    without = table(collector(host).collect())
    found = table(collector(host, ContainerConfig(per_process=True)).collect())

    assert not [key for key in without if key[0] == "process_info"]
    assert {key[2] for key in found if key[:2] == ("process_info", "b1")} == {"410", "411", "412"}


def test_nothing_else_of_an_environment_is_exported(captured: Callable[[str], HostFS], collector: Make) -> None:
    reading = collector(captured("kube_systemd")).collect()

    assert "not-for-export" not in repr((list(reading.layout), reading.events, reading.gaps))


def test_start_and_end_of_a_container_are_events(scratch: Callable[[str], HostFS], collector: Make) -> None:
    host = scratch("kube_systemd")
    containers = collector(host)
    first = containers.collect()
    shutil.rmtree(host.path("proc/600"))
    second = containers.collect()

    assert [event.name for event in first.events] == ["container.start"] * 5
    assert [(event.name, event.attrs["container"]) for event in second.events] == [("container.end", "coredns")]
    assert not [key for key in table(second) if key[1] == "c4"]


def test_an_oom_kill_is_an_event_when_the_counter_rises(scratch: Callable[[str], HostFS], collector: Make) -> None:
    host = scratch("kube_systemd")
    containers = collector(host)
    before = containers.collect()
    events = Path(host.path(f"{SCOPE}/memory.events"))
    events.write_text(events.read_text().replace("oom_kill 1", "oom_kill 3"))
    after = containers.collect()

    assert "container.oom_kill" not in [event.name for event in before.events]
    assert [(event.name, event.attrs["kills"]) for event in after.events] == [("container.oom_kill", 2)]


def test_a_limit_that_is_lifted_takes_only_its_own_series(scratch: Callable[[str], HostFS], collector: Make) -> None:
    host = scratch("kube_systemd")
    containers = collector(host, ContainerConfig())
    before = table(containers.collect())
    Path(host.path(f"{SCOPE}/memory.max")).write_text("max\n")
    readings = [containers.collect() for _ in range(12)]

    assert before.keys() - table(readings[-1]).keys() == {("memory_limit_bytes", "b1")}
    assert [gap.reason for gap in readings[-1].gaps if gap.labels == ("b1" * 32,)] == ["no limit is set"]


def test_a_controller_that_is_off_is_a_gap_with_the_reason(scratch: Callable[[str], HostFS], collector: Make) -> None:
    host = scratch("kube_cgroupfs")
    for path in Path(host.path("sys")).rglob("io.stat"):
        path.unlink()
    reading = collector(host).collect()

    gaps = [gap for gap in reading.gaps if gap.spec.name == "sonde_container_read_bytes_total"]
    assert len(gaps) == 4
    assert {(gap.quality, gap.reason) for gap in gaps} == {
        (Quality.UNSUPPORTED, "the container is in no cgroup of the blkio controller")
    }


def test_more_containers_than_allowed_are_left_out_and_said_to_be(
    captured: Callable[[str], HostFS], collector: Make
) -> None:
    reading = collector(captured("kube_systemd"), ContainerConfig(max_containers=2)).collect()

    assert len([key for key in table(reading) if key[0] == "info"]) == 2
    assert "3 containers are beyond max_containers" in [gap.reason for gap in reading.gaps]


def test_without_cgroups_it_is_unavailable(scratch: Callable[[str], HostFS], collector: Make) -> None:
    host = scratch("kube_systemd")
    Path(host.path("proc/self/mountinfo")).write_text("22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n")

    with pytest.raises(Unavailable, match="cgroup"):
        collector(host)
