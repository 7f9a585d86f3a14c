from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.healthy import GIB, HEALTHY, SECONDS, recording, steady
from tests.recordings import BEGUN_NS, make_recording

from sonde.clock import NS
from sonde.jobs.figures.sheet import Process
from sonde.jobs.figures.table import DEVICE, JOB, NODE, PLOTS
from sonde.jobs.summary import Summary, imbalance, summarise


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return summarise(recording(tmp_path_factory.mktemp("healthy") / "r"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("duration", 595),
        ("cpu_there", 4),
        ("cpu_used", 3.6),
        ("cpu_used_peak", 3.6),
        ("cpu_used_share", 0.9),
        ("cpu_seconds", 3.6 * 595),
        ("cpu_system_part", 0.2 / 3.6),
        ("host_user_share", 0.85),
        ("host_iowait_share", 0.01),
        ("memory_used_peak", 6 * GIB),
        ("memory_used_share", 0.75),
        ("memory_available_least", 20 * GIB),
        ("oom_kills", 0),
        ("page_faults", 200),
        ("read_bytes", 10e6 * 595),
        ("network_received", 10e6 * 595),
        ("infiniband_sent", 1e9 * 595),
        ("pressure_cpu", 0.01),
        ("context_switches_per_cpu", 1000),
        ("energy", 130 * 595),
        ("power", 130),
        ("frequency_share", 3.0 / 3.2),
        ("accelerator_busy", 0.9),
        ("clock_offset", 0.002),
        ("sampling_gap", 5),
        ("idle_longest", 0),
    ],
)
def test_a_node_has_the_figures_its_series_were_made_of(healthy: Summary, name: str, expected: float) -> None:
    assert healthy.nodes[0].figures[name] == pytest.approx(expected)


def test_the_job_has_the_sums_the_means_and_the_worst_of_its_nodes(healthy: Summary) -> None:
    assert healthy.figures["cpu_used"] == pytest.approx(7.2)
    assert healthy.figures["cpu_used_share"] == pytest.approx(0.9)
    assert healthy.figures["memory_used_peak"] == 6 * GIB
    assert healthy.figures["walltime_used_share"] == pytest.approx(595 / 800)
    assert healthy.figures["cpu_imbalance"] == pytest.approx(0)


def test_every_figure_and_plot_is_of_the_tables(healthy: Summary) -> None:
    assert healthy.nodes[0].figures.keys() == NODE.keys()
    assert healthy.figures.keys() == {name for name, figure in NODE.items() if figure.over} | JOB.keys()
    assert all(device.figures.keys() == DEVICE.keys() for device in healthy.nodes[0].devices)
    assert set(healthy.plots) <= PLOTS.keys()


def test_what_was_not_measured_is_none_and_named(tmp_path: Path) -> None:
    bare = make_recording(
        tmp_path / "r",
        ("n1",),
        series={"node_load1": HEALTHY["node_load1"]},
        gaps={"node_rapl_package_joules_total": ("denied", "readable by root only")},
    )

    summary = summarise(bare)

    measured = {name for name, value in summary.nodes[0].figures.items() if value is not None}
    assert measured == {"duration", "interrupted", "silent", "sampling_gap", "sampling_lost_share", "load_mean"}
    told = {absence.what: (absence.reason, absence.remedy) for absence in summary.absences}
    assert told["node_rapl_package_joules_total"][0] == "readable by root only"
    assert "root" in told["node_rapl_package_joules_total"][1]
    assert "memory of the job" in told
    assert "energy" not in told  # said once, with the reason


def test_a_value_that_was_estimated_is_called_so(tmp_path: Path) -> None:
    found = make_recording(
        tmp_path / "r", ("n1",), gaps={"sonde_job_memory_rss_bytes": ("estimated", "added up over processes")}
    )

    reasons = [absence.reason for absence in summarise(found).absences]

    assert "estimated: added up over processes" in reasons


def test_energy_that_nothing_measures_is_an_estimate_and_not_energy(tmp_path: Path) -> None:
    changes = {name: None for name in HEALTHY if name.startswith("node_rapl")}

    figures = summarise(recording(tmp_path / "r", changes)).nodes[0].figures

    assert figures["energy"] is None
    assert figures["energy_estimated"] == pytest.approx(12 * 3.6 * 595 + 0.3725 * 32 * 1.073741824 * 595)


def test_nodes_that_begin_apart_and_have_other_clocks_are_aligned_by_time(tmp_path: Path) -> None:
    spike = {
        "node_load1": lambda t, host: 9.0 if (30 <= t < 31 and host == "n1") or (20 <= t < 21 and host == "n2") else 1.0
    }
    nodes = {
        "n2": {
            "begun_ns": BEGUN_NS + 10 * NS + 3 * NS,
            "clock": {"offset_ns": 3 * NS, "bound_ns": 1000},
        }
    }

    summary = summarise(make_recording(tmp_path / "r", ("n1", "n2"), 60, 1.0, spike, nodes=nodes))

    first, second = (node.curves["load"].mean for node in summary.nodes)
    assert first.index(9.0) == second.index(9.0) == 30
    assert second[:10] == [None] * 10
    assert first[60:] == [None] * 10


def test_a_counter_is_scaled_up_from_the_share_of_the_time_it_was_counted(healthy: Summary) -> None:
    (counter,) = healthy.nodes[0].counters

    assert (counter.name, counter.scope) == ("instructions", "job")
    assert counter.value == pytest.approx(2e9 * 595 * 4)
    assert counter.running == pytest.approx(0.25)


def test_an_event_of_two_groups_is_counted_once(tmp_path: Path) -> None:
    twice = {
        'sonde_perf_events_total{event="instructions",group="other",scope="job"}': steady(5e8),
        'sonde_perf_enabled_seconds_total{group="other",scope="job"}': steady(4),
        'sonde_perf_running_seconds_total{group="other",scope="job"}': steady(2),
    }

    (counter,) = summarise(recording(tmp_path / "r", twice)).nodes[0].counters

    assert counter.value == pytest.approx(5e8 * 595 * 2)
    assert counter.running == pytest.approx(0.5)


def test_processes_are_listed_by_cpu_time_with_their_ranks(healthy: Summary) -> None:
    first = healthy.processes[0]

    assert first._replace(cpu_seconds=None) == Process("n1", "811", "python", "0", None, 3 * GIB)
    assert first.cpu_seconds == pytest.approx(1000 + 1.7 * 595)
    assert healthy.figures["ranks"] == 2


def test_a_loopback_is_no_network(tmp_path: Path) -> None:
    changes = {f'node_network_{way}_bytes_total{{device="lo"}}': steady(1e9) for way in ("receive", "transmit")}

    node = summarise(recording(tmp_path / "r", changes)).nodes[0]

    assert [device.name for device in node.devices if device.kind == "network"] == ["eth0"]


def test_the_job_of_a_recorder_without_its_own_figures_is_the_tree_of_processes(tmp_path: Path) -> None:
    tree = 'root="811",job_id="",scheduler=""'
    changes = {name: None for name in HEALTHY if name.startswith("sonde_job_")}
    changes |= {f'sonde_process_tree_cpu_seconds_total{{{tree},mode="user"}}': steady(2.5)}  # type: ignore[dict-item]

    figures = summarise(recording(tmp_path / "r", changes)).nodes[0].figures

    assert figures["cpu_used"] == pytest.approx(2.5)


def test_other_jobs_of_the_node_are_left_out(tmp_path: Path) -> None:
    other = {'sonde_job_cpu_seconds_total{job_id="9",scheduler="slurm",mode="user"}': steady(50)}

    figures = summarise(recording(tmp_path / "r", other)).nodes[0].figures

    assert figures["cpu_used"] == pytest.approx(3.6)


def test_a_damaged_description_of_the_hardware_is_not_fatal(tmp_path: Path) -> None:
    damaged = recording(tmp_path / "r")
    (tmp_path / "r" / "n1" / "context.json").write_text('{"cpu": ')

    summary = summarise(damaged)

    assert summary.nodes[0].context is None
    assert any(absence.what == "hardware and software" for absence in summary.absences)


def test_a_node_that_was_recovered_after_a_crash_was_interrupted(tmp_path: Path) -> None:
    found = summarise(recording(tmp_path / "r", nodes={"n2": {"ended_by": "crash"}}))

    assert [node.figures["interrupted"] for node in found.nodes] == [0, 1]


def test_a_node_that_is_still_recorded_was_not_interrupted(tmp_path: Path) -> None:
    begun_ns = time.time_ns() - SECONDS * NS

    found = summarise(recording(tmp_path / "r", begun_ns=begun_ns, ended_ns=None, ended_by=""))

    assert [node.figures["interrupted"] for node in found.nodes] == [0, 0]
    assert "the end" in [absence.what for absence in found.absences]


def test_a_node_whose_archive_is_gone_is_there_without_figures(tmp_path: Path) -> None:
    damaged = recording(tmp_path / "r")
    (tmp_path / "r" / "n2" / "archive.db").unlink()

    summary = summarise(damaged)

    assert [node.last_ns is None for node in summary.nodes] == [False, True]
    assert summary.figures["nodes"] == 1
    assert any(absence.what == "all values" and absence.hosts == ("n2",) for absence in summary.absences)


def test_long_recordings_of_many_nodes_are_drawn_in_fewer_cells(tmp_path: Path) -> None:
    summary = summarise(make_recording(tmp_path / "r", ("n1",), 7200, 2.0, {"node_load1": steady(1)}))

    assert summary.grid.cells <= 900
    assert summary.grid.width_ns >= 2 * NS


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 1, 1], 0), ([4, 0], 0.5), ([3], None), ([None, 2], None), ([0, 0], None)]
)
def test_imbalance_is_what_the_mean_is_below_the_largest(values: list[float | None], expected: float | None) -> None:
    assert imbalance(values) == expected


def test_progress_is_told_for_every_node(tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []

    summarise(recording(tmp_path / "r"), lambda share, host: told.append((share, host)))

    assert told == [(0.0, "n1"), (0.5, "n2")]
