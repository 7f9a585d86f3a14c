from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.healthy import ETH, GIB, GPU, HEALTHY, HOSTS, IB, JOB, LUSTRE, NFS, ROOT, TMP, recording, steady, still
from tests.recordings import JOB as RECORDED_JOB
from tests.recordings import Course

from sonde.errors import ConfigError
from sonde.jobs.rules import Finding, Judgement, judge, known_names, load_rules, told, verdict, where
from sonde.jobs.summary import summarise

USED = f'sonde_job_cpu_seconds_total{{{JOB},mode="user"}}'
RSS = f"sonde_job_memory_rss_bytes{{{JOB}}}"


def modes(**shares: float) -> dict[str, Course | None]:
    return {f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}}': steady(share)
            for cpu in range(4) for mode, share in shares.items()}  # fmt: skip


def waits(resource: str, share: float) -> dict[str, Course | None]:
    return {f'sonde_job_pressure_waiting_seconds_total{{{JOB},resource="{resource}"}}': steady(share)}


def filled(labels: str, share: float) -> dict[str, Course | None]:
    return {f"node_filesystem_{name}_bytes{{{labels}}}": still((1 - share) * 100 * GIB) for name in ("free", "avail")}


def only(host: str, course: Course, otherwise: Course) -> Course:
    return lambda t, name: course(t, name) if name == host else otherwise(t, name)


def late(rate: float, at: float) -> Course:
    return lambda t, host: max(0.0, t - at) * rate


# What makes each rule fire: changes of the healthy job's series, and of what it says of itself.
FAULTS: dict[str, tuple[dict[str, Course | None], dict[str, Any]]] = {
    "oom_kill": ({f"sonde_job_oom_kills_total{{{JOB}}}": lambda t, host: int(t > 300)}, {}),
    "near_oom": ({RSS: still(7.9 * GIB)}, {}),
    "memory_growing": ({RSS: lambda t, host: int((2 + t * 0.009) * GIB)}, {}),
    "memory_asked_too_much": ({RSS: still(2 * GIB)}, {}),
    "cpus_asked_too_many": ({USED: steady(1.3)}, {}),
    "single_threaded": ({USED: steady(0.8)}, {}),
    "cpu_limit": ({f"sonde_job_cpu_throttled_seconds_total{{{JOB}}}": steady(1.0)}, {}),
    "oversubscribed": ({f"sonde_job_threads{{{JOB}}}": still(40), **waits("cpu", 0.8)}, {}),
    "steal": (modes(steal=0.2), {}),
    "io_wait": ({USED: steady(2.0), **modes(iowait=0.4, idle=0.01)}, {}),
    "io_wait_accelerator": (
        {f"sonde_accelerator_utilization_ratio{{{GPU}}}": still(0.4), **modes(iowait=0.4, idle=0.01)},
        {},
    ),
    "io_pressure": (waits("io", 0.5), {}),
    "memory_pressure": (waits("memory", 0.2), {}),
    "swap": ({f"sonde_job_memory_swap_bytes{{{JOB}}}": still(GIB)}, {}),
    "page_fault_storm": ({f"sonde_job_major_page_faults_total{{{JOB}}}": steady(900)}, {}),
    "filesystem_full": (filled(ROOT, 0.99), {}),
    "tmp_full": (filled(TMP, 0.95), {}),
    "files_full": ({f"node_filesystem_files_free{{{ROOT}}}": still(10)}, {}),
    "disk_busy": ({'node_disk_io_time_seconds_total{device="sda"}': steady(0.95)}, {}),
    "network_saturated": ({f"node_network_receive_bytes_total{{{ETH}}}": steady(120e6)}, {}),
    "infiniband_saturated": ({f"node_infiniband_port_data_received_bytes_total{{{IB}}}": steady(12e9)}, {}),
    "network_lossy": ({f"node_network_receive_drop_total{{{ETH}}}": steady(100)}, {}),
    "nfs_slow": ({f"node_mountstats_nfs_operations_response_time_seconds_total{{{NFS}}}": steady(9)}, {}),
    "lustre_slow": ({f"sonde_lustre_client_target_wait_seconds_total{{{LUSTRE}}}": steady(9)}, {}),
    "node_imbalance": ({USED: only("n1", steady(3.6), steady(1.5))}, {}),
    "rank_imbalance": (
        {f'sonde_process_cpu_seconds_total{{pid="812",comm="python",{JOB},mode="user"}}': steady(0.2)},
        {},
    ),
    "walltime_asked_too_much": ({}, {"asked": {"cpus": 4, "memory_bytes": 8 * GIB, "seconds": 7200}}),
    "walltime_nearly_over": ({}, {"asked": {"cpus": 4, "memory_bytes": 8 * GIB, "seconds": 610}}),
    "slow_start": (
        {USED: late(3.6, 200), f'sonde_job_cpu_seconds_total{{{JOB},mode="system"}}': late(0.2, 200)},
        {},
    ),
    "idle": (
        {USED: late(3.6, 250), f'sonde_job_cpu_seconds_total{{{JOB},mode="system"}}': late(0.2, 250)},
        {},
    ),
    "thermal_throttling": (
        {'sonde_cpu_core_throttled_seconds_total{package="0",core="0"}': steady(0.2)},
        {},
    ),
    "frequency_low": ({f'node_cpu_scaling_frequency_hertz{{cpu="{cpu}"}}': still(1.5e9) for cpu in range(4)}, {}),
    "powersave": (
        {
            **{f'node_cpu_scaling_governor{{cpu="{cpu}",governor="powersave"}}': still(1) for cpu in range(4)},
            **{f'node_cpu_scaling_frequency_hertz{{cpu="{cpu}"}}': still(2.2e9) for cpu in range(4)},
        },
        {},
    ),
    "context_switching": ({"node_context_switches_total": steady(200_000)}, {}),
    "accelerator_idle": ({f"sonde_accelerator_utilization_ratio{{{GPU}}}": still(0.1)}, {}),
    "clock_off": ({}, {"clock": {"offset_ns": -3_000_000_000, "bound_ns": 100_000}}),
    "node_missing": ({}, {"job": {**RECORDED_JOB, "nodes": [*HOSTS, "n3"]}}),
    "interrupted": ({}, {"nodes": {"n2": {"ended_ns": None, "ended_by": ""}}}),
    "failed": ({}, {"exit_code": 137}),
}
RULES = load_rules()


def judged(found: Any) -> Judgement:
    return judge(summarise(found), RULES)


def found_by(judgement: Judgement, rule: str) -> Finding:
    return next(finding for finding in judgement.findings if finding.rule == rule)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    return judged(recording(tmp_path_factory.mktemp("healthy") / "r"))


def test_a_healthy_job_has_no_findings_though_every_rule_had_its_figures(healthy: Judgement) -> None:
    assert (list(healthy.findings), list(healthy.unjudged)) == ([], [])
    assert healthy.rules == len(RULES) >= 15


@pytest.mark.parametrize("rule", [rule.name for rule in RULES if rule.name != "sampling_gaps"])
def test_a_fault_is_found_by_its_rule(rule: str, tmp_path: Path) -> None:
    changes, about = FAULTS[rule]

    finding = found_by(judged(recording(tmp_path / "r", changes, **about)), rule)

    assert finding.advice
    assert "{" not in finding.text + finding.advice
    assert "unknown" not in finding.text


def test_values_that_are_missing_for_a_while_are_found(tmp_path: Path) -> None:
    def gapped(course: Course) -> Course:
        return lambda t, host: None if 100 < t < 200 else course(t, host)

    finding = found_by(
        judged(recording(tmp_path / "r", {name: gapped(course) for name, course in HEALTHY.items()})), "sampling_gaps"
    )

    assert finding.text == "16 % of the values are missing, 100 s at a stretch"


def test_the_evidence_and_the_advice_have_the_numbers(tmp_path: Path) -> None:
    asked = {"cpus": 4, "memory_bytes": 64 * GIB, "seconds": 800}

    finding = found_by(judged(recording(tmp_path / "r", {RSS: still(6.1 * GIB)}, asked=asked)), "memory_asked_too_much")

    assert finding.text == "peak memory 6.1 GiB of 64.0 GiB asked for on each node"
    assert finding.advice.startswith("ask for 8 GiB: ")
    assert finding.evidence["memory_asked_per_node"] == 64 * GIB


def test_nodes_with_the_same_fault_are_one_finding_and_the_worst_is_told(tmp_path: Path) -> None:
    changes = {f'node_cpu_seconds_total{{cpu="{cpu}",mode="steal"}}': only("n2", steady(0.4), steady(0.2))
               for cpu in range(4)}  # fmt: skip

    finding = found_by(judged(recording(tmp_path / "r", changes)), "steal")

    assert [place.host for place in finding.places] == ["n2", "n1"]
    assert where(finding) == "n2 and n1"
    assert finding.text.startswith("29 % CPU steal")


def test_a_killed_job_is_not_advised_to_ask_for_less_memory(tmp_path: Path) -> None:
    changes: dict[str, Course] = {
        RSS: still(2 * GIB),
        f"sonde_job_oom_kills_total{{{JOB}}}": lambda t, host: int(t > 300),
    }

    rules = [finding.rule for finding in judged(recording(tmp_path / "r", changes)).findings]

    assert rules == ["oom_kill"]


def test_what_was_not_measured_is_not_judged(tmp_path: Path) -> None:
    changes = dict.fromkeys(modes(user=0, system=0, idle=0, iowait=0, steal=0))

    judgement = judged(recording(tmp_path / "r", changes))

    assert "steal" in judgement.unjudged
    assert not judgement.findings


def test_the_worst_findings_come_first(tmp_path: Path) -> None:
    changes: dict[str, Course | None] = {**modes(steal=0.2), **filled(ROOT, 0.99), RSS: still(2 * GIB)}

    found = [finding.severity for finding in judged(recording(tmp_path / "r", changes)).findings]

    assert found == ["critical", "warning", "advice"]


def test_the_verdict_is_one_line_that_names_the_worst(tmp_path: Path) -> None:
    summary = summarise(recording(tmp_path / "r", {**modes(steal=0.2), **filled(ROOT, 0.99)}))

    line = verdict(summary, judge(summary, RULES))

    assert line == "Job 4711, 2 nodes, 9 m 55 s: a filesystem is full; 1 more finding"


def test_a_verdict_without_findings_says_how_much_was_judged(tmp_path: Path) -> None:
    summary = summarise(recording(tmp_path / "r", {"node_context_switches_total": None}))

    line = verdict(summary, judge(summary, RULES))

    assert line.endswith(f"nothing to change, as far as {len(RULES) - 1} of {len(RULES)} rules could tell")


def test_a_recording_without_values_is_said_to_be_empty(tmp_path: Path) -> None:
    empty = recording(tmp_path / "r")
    for host in HOSTS:
        (tmp_path / "r" / host / "archive.db").unlink()

    summary = summarise(empty)

    assert verdict(summary, judge(summary, RULES)) == "Job 4711: nothing was recorded"
    assert {host for absence in summary.absences for host in absence.hosts} == set(HOSTS)


class TestASite:
    def test_changes_a_threshold(self, tmp_path: Path) -> None:
        site = tmp_path / "site.toml"
        site.write_text("[steal]\nshare = 0.5\n")
        summary = summarise(recording(tmp_path / "r", modes(steal=0.2)))

        assert not judge(summary, load_rules(str(site))).findings
        assert judge(summary, RULES).findings

    def test_switches_a_rule_off(self, tmp_path: Path) -> None:
        site = tmp_path / "site.toml"
        site.write_text("[steal]\nenabled = false\n")

        assert "steal" not in {rule.name for rule in load_rules(str(site))}

    def test_adds_a_rule(self, tmp_path: Path) -> None:
        site = tmp_path / "site.toml"
        site.write_text(
            '[chatty]\ntitle = "chatty"\nscope = "node"\nseverity = "note"\nwhen = "network_sent > most"\n'
            'text = "{host} sent {network_sent:bytes}"\nadvice = "send less"\nmost = 1000\n'
        )
        summary = summarise(recording(tmp_path / "r"))

        finding = found_by(judge(summary, load_rules(str(site))), "chatty")

        assert finding.text == "n1 sent 2.8 GiB"

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("[steal]\nshare = 'much'\n", "share must be a number"),
            ("[steal]\nwhen = 'host_steel_share > share'\n", "host_steel_share is neither"),
            ("[steal]\nwhen = '__import__(\"os\").getpid() > 0'\n", "only min, max"),
            ("[steal]\nscope = 'rack'\n", "scope must be"),
            ("[steal]\nseverity = 'fatal'\n", "severity must be"),
            ("[steal]\ntext = '{host_steal_share:furlongs}'\n", "no format 'furlongs'"),
            ("[new]\nwhen = 'nodes > 1'\n", "title must be a text"),
            ("steal = 1\n", "steal must be a table"),
            ("[steal\n", "not TOML"),
        ],
    )
    def test_is_told_what_is_wrong_with_its_file(self, text: str, complaint: str, tmp_path: Path) -> None:
        site = tmp_path / "site.toml"
        site.write_text(text)

        with pytest.raises(ConfigError, match=complaint) as caught:
            load_rules(str(site))

        assert "site.toml" in str(caught.value)


def test_a_template_tells_what_was_not_measured() -> None:
    assert told("{memory_used_peak:bytes} and {steal:percent}", {}) == "an unknown amount and unknown"


def test_every_scope_knows_its_figures() -> None:
    assert "busy_share" in known_names("disk")
    assert "busy_share" not in known_names("node")
    assert "memory_asked_per_node" in known_names("job")


def test_a_report_without_numpy_has_the_same_findings(tmp_path: Path) -> None:
    """The text report needs nothing but sonde."""
    recording(tmp_path / "r", modes(steal=0.2))
    program = """
import sys
sys.modules["numpy"] = None
from sonde.cli.main import main
raise SystemExit(main(["report", sys.argv[1]]))
"""

    out = subprocess.run([sys.executable, "-c", program, str(tmp_path / "r")], capture_output=True, text=True)

    assert (out.returncode, out.stderr) == (0, "")
    assert "17 % CPU steal" in out.stdout


def test_the_fault_of_each_rule_is_known() -> None:
    assert {*FAULTS, "sampling_gaps"} == {rule.name for rule in RULES}
