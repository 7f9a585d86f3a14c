from __future__ import annotations

import pytest

from sonde.store.metadata import Family, Metadata

TOLD = {
    "node_load1": [{"type": "gauge", "help": "1m load average.", "unit": ""}],
    "node_cpu_seconds": [{"type": "counter", "help": "Seconds the CPUs spent in each mode.", "unit": ""}],
    "sonde_wait_seconds": [{"type": "histogram", "help": "Waits.", "unit": "seconds"}],
    "go_gc_duration_seconds": [{"type": "summary", "help": "Pauses.", "unit": ""}],
    "node_uname": [{"type": "info", "help": "Who.", "unit": ""}],
    "node_netstat_Tcp_InSegs": [{"type": "unknown", "help": "", "unit": ""}],
    "jobs_count": [{"type": "gauge", "help": "Jobs now.", "unit": ""}],
}


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("node_load1", Family("gauge", "")),
        ("node_cpu_seconds_total", Family("counter", "seconds")),  # known without its ending
        ("sonde_wait_seconds_bucket", Family("counter", "seconds")),
        ("sonde_wait_seconds_sum", Family("counter", "seconds")),
        ("go_gc_duration_seconds", Family("gauge", "seconds")),  # its quantiles
        ("go_gc_duration_seconds_count", Family("counter", "seconds")),
        ("node_uname_info", Family("info", "")),
        ("node_netstat_Tcp_InSegs", Family("untyped", "")),
        ("jobs_count", Family("gauge", "")),
    ],
)
def test_a_family_is_what_the_server_says(metric: str, expected: Family) -> None:
    assert Metadata(TOLD).family(metric) == expected


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("node_network_receive_bytes_total", Family("counter", "bytes")),
        ("sonde_wait_seconds_bucket", Family("counter", "seconds")),
        ("node_uname_info", Family("info", "")),
        ("node_memory_MemFree_bytes", Family("untyped", "bytes")),
        ("node_load1", Family("untyped", "")),  # nobody knows
    ],
)
def test_without_a_word_from_the_server_names_tell(metric: str, expected: Family) -> None:
    assert Metadata({}).family(metric) == expected


@pytest.mark.parametrize("told", [None, [], {"node_load1": 7}, {"node_load1": []}, {"node_load1": ["gauge"]}])
def test_odd_metadata_is_as_good_as_none(told: object) -> None:
    assert Metadata(told).family("node_load1") == Family("untyped", "")
