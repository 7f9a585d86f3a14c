"""dynolog's flags as a configuration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from sonde.config import Config
from sonde.dialects.dynolog.flags import ALIASES, FLAGS, configuration, given, help_text, notes
from sonde.errors import ConfigError, UsageError
from sonde.units import Duration

DECLARED = """
port use_JSON use_fbrelay use_ODS use_scuba kernel_monitor_reporting_interval_s perf_monitor_reporting_interval_s
dcgm_reporting_interval_s enable_ipc_monitor enable_gpu_monitor enable_perf_monitor filter_nic_interfaces
allow_interface_prefixes fbrelay_address fbrelay_port access_token certificate_path category_id ods_entity_prefix
scribe_category dcgm_lib_path dcgm_major_version dcgm_fields dcgm_standalone_address enable_env_var_attribution
env_attribution_mappings_file use_prometheus prometheus_address prometheus_port use_otlp otlp_endpoint
otlp_service_name otlp_headers otlp_timeout_ms otlp_max_queue_size otlp_ssl_ca_cert_path otlp_ssl_client_cert_path
otlp_ssl_client_key_path use_otel use_otel_for_kernel_monitor otel_endpoint otel_resource_env_file otel_resource_attrs
otel_metric_mappings_file enable_tpu_monitor tpu_reporting_interval_s tpu_scrape_timeout_ms tpu_device_plugin_url
enable_pod_resources_attribution pod_resources_socket pod_resources_gpu_resource pod_resources_tpu_resource
"""  # by the sources of dynolog 0.6
DOCUMENT = Path(__file__).parents[4] / "docs/how-to/dynolog.md"


def config(*words: str, **environ: str) -> Config:
    return configuration(words, environ)


def test_the_defaults_are_dynologs_but_for_the_address() -> None:
    plain = config()

    assert plain.daemon.rpc_address == "127.0.0.1:1778"
    assert plain.daemon.period == Duration(60)
    assert plain.daemon.collectors == ("cpu", "host", "network")
    assert plain.daemon.http_address == ""
    assert not plain.archive.enabled
    assert plain.sinks == {}
    assert plain.collectors["network"] == {"exclude": ""}


@pytest.mark.parametrize(
    ("words", "sink", "keys"),
    [
        (["--use_JSON"], "dynolog_log", {}),
        (["--use_prometheus"], "dynolog_prometheus", {"address": "127.0.0.1:8080"}),
        (
            ["--use_prometheus", "--prometheus_address=::1", "--prometheus_port=9"],
            "dynolog_prometheus",
            {"address": "[::1]:9"},
        ),
        (["--use_fbrelay"], "dynolog_relay", {"address": "127.0.0.1:10000"}),
        (
            ["--use_fbrelay", "--fbrelay_address=10.0.0.1", "--fbrelay_port=7"],
            "dynolog_relay",
            {"address": "10.0.0.1:7"},
        ),
        (
            ["--use_ODS", "--ods_url=http://x/", "--category_id=5", "--ods_entity_prefix=p", "--access_token=@/t"],
            "dynolog_ods",
            {"url": "http://x/", "category_id": "5", "entity_prefix": "p", "token_file": "/t", "ca_file": ""},
        ),
        (
            ["--use_scuba", "--scuba_url=https://x/", "--scribe_category=c", "--certificate_path=/ca"],
            "dynolog_scuba",
            {"url": "https://x/", "category": "c", "token_file": "", "ca_file": "/ca"},
        ),
    ],
)
def test_a_logger_is_a_sink(words: Sequence[str], sink: str, keys: dict[str, object]) -> None:
    sinks = config(*words).sinks

    assert sinks == {sink: {"interface_prefixes": [], **keys}}


def test_otlp_is_a_sink_too() -> None:
    words = ["--use_otlp", "--otlp_endpoint=http://c:4318", "--otlp_headers=a=b=c, d=e", "--otlp_timeout_ms=1500"]
    words += ["--otlp_max_queue_size=10", "--otlp_ssl_ca_cert_path=/ca", "--otlp_ssl_client_cert_path=/c"]

    assert config(*words, "--otlp_ssl_client_key_path=/k").sinks == {
        "dynolog_otlp": {
            "interface_prefixes": [],
            "endpoint": "http://c:4318",
            "service_name": "dynolog",
            "headers": {"a": "b=c", "d": "e"},
            "timeout": "1500ms",
            "queue": 30,
            "ca_file": "/ca",
            "certificate_file": "/c",
            "key_file": "/k",
        }
    }


def test_two_variables_win_over_their_flags() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://env:1", "OTEL_SERVICE_NAME": "env"}

    table = config("--use_otlp", "--otlp_endpoint=http://flag:1", "--otlp_service_name=flag", **environ).sinks

    assert (table["dynolog_otlp"]["endpoint"], table["dynolog_otlp"]["service_name"]) == ("http://env:1", "env")


def test_several_loggers_are_on_at_once() -> None:
    assert set(config("--use_JSON", "--use-prometheus", "--use_fbrelay").sinks) == {
        "dynolog_log",
        "dynolog_prometheus",
        "dynolog_relay",
    }


@pytest.mark.parametrize(
    "name", ["kernel_monitor_reporting_interval_s", "reporting_interval_s", "reporting-interval-s"]
)
def test_the_interval_has_its_old_name_too(name: str) -> None:
    assert config(f"--{name}=7").daemon.period == Duration(7)


def test_the_devices_are_filtered_when_asked_for() -> None:
    words = ["--use_JSON", "--filter_nic_interfaces"]

    assert config(*words).sinks["dynolog_log"]["interface_prefixes"] == ["eno", "ens", "enp", "enx", "eth"]
    assert config(*words, "--allow_interface_prefixes=ib,").sinks["dynolog_log"]["interface_prefixes"] == ["ib"]


def test_all_interfaces_need_a_word() -> None:
    open_to_all = config("--insecure", "--port=5").daemon

    assert open_to_all.rpc_address in ("[::]:5", "0.0.0.0:5")
    assert open_to_all.insecure


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kernel_monitor_reporting_interval_s=0"], "at least 1"),
        (["--port=65536"], "highest port"),
        (["--port=-1"], "at least 0"),
        (["--use_otlp", "--otlp_headers=secret"], "--otlp_headers: item 1 is not written name=value"),
        (["--use_otlp", "--otlp_timeout_ms=0"], "at least 1"),
        (["--use_ODS"], "--use_ODS needs --ods_url"),
        (["--use_scuba"], "--use_scuba needs --scuba_url"),
        (["--use_ODS", "--ods_url=http://x/", "--access_token=abc"], "--access_token takes a file"),
    ],
)
def test_what_cannot_be_done_is_refused_by_flag(words: Sequence[str], message: str) -> None:
    with pytest.raises((UsageError, ConfigError), match=message):
        config(*words)


def test_flags_of_later_features_are_taken_and_named() -> None:
    words = ["--enable_ipc_monitor", "--enable-gpu-monitor", "--dcgm_report_interval_s=3", "--use_otel"]
    words += ["--logtostderr", "--v=2"]

    assert config(*words).sinks == {}
    said = "\n".join(notes(given(words)))
    for name in ("enable_gpu_monitor", "dcgm_reporting_interval_s", "use_otel"):
        assert f"--{name} has no effect: " in said
    assert "logtostderr" not in said
    assert "written nowhere" in said


def test_nothing_is_said_about_flags_that_work_or_stay_at_their_default() -> None:
    assert notes(given(["--use_JSON", "--port=5", "--enable_env_var_attribution", "--noenable_tpu_monitor"])) == []


def test_the_help_lists_every_flag_and_what_has_no_effect() -> None:
    text = help_text()

    for name in FLAGS:
        assert re.search(rf"\b{name}\b", text), name
    assert "--enable_gpu_monitor\n      read GPUs [no effect: " in text


def test_the_document_has_every_flag() -> None:
    text = DOCUMENT.read_text()

    for name in [*FLAGS, *ALIASES, "flagfile", "undefok"]:
        assert re.search(rf"`(--)?{name}\b", text), name


def test_every_flag_of_dynolog_is_known() -> None:
    assert set(DECLARED.split()) <= set(FLAGS)
