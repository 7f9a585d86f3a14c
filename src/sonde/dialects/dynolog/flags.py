"""dynolog's flags, and the configuration they stand for.

    dynolog --use_JSON --kernel_monitor_reporting_interval_s=1
    dynolog --flagfile=/etc/dynolog.gflags

Every flag of dynolog 0.6 is taken. One whose feature is not there is named at the start, with the reason; one that has
no meaning here is taken silently. The defaults are dynolog's, with one exception: RPC listens on loopback only, unless
`--insecure` says otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from sonde.config import Config, from_tree
from sonde.dialects.dynolog.gflags import Flag, Given, parse
from sonde.errors import ConfigError, UsageError

_GPU = "sonde reads no GPU yet"
_TPU = "sonde reads no TPU yet"
_PODS = "pods are not joined to devices yet"
_RECORDS = "samples are not sent as OTLP log records yet; --use_otlp sends them as metrics"
_GLOG = "inert"  # of glog: where its log goes and how much of it there is

_FLAGS = (
    Flag("port", 1778, "port of the RPC server; 0: the kernel chooses, and it is logged"),
    Flag("use_JSON", False, "write samples as lines of JSON to standard error"),
    Flag("use_prometheus", False, "serve samples to Prometheus"),
    Flag("use_otlp", False, "send samples as OTLP metrics over HTTP"),
    Flag("use_otel", False, "send samples as OTLP log records", _RECORDS),
    Flag("use_fbrelay", False, "send samples as JSON over TCP"),
    Flag("use_ODS", False, "post samples as an ODS form to --ods_url"),
    Flag("use_scuba", False, "post samples as a Scuba form to --scuba_url"),
    Flag("kernel_monitor_reporting_interval_s", 60, "seconds between two samples of CPU, network and uptime"),
    Flag("perf_monitor_reporting_interval_s", 60, "seconds between two samples of performance counters"),
    Flag("dcgm_reporting_interval_s", 10, "seconds between two samples of GPUs", _GPU),
    Flag("tpu_reporting_interval_s", 10, "seconds between two samples of TPUs", _TPU),
    Flag("enable_ipc_monitor", False, "let processes register for traces on demand"),
    Flag("enable_gpu_monitor", False, "read GPUs", _GPU),
    Flag("enable_perf_monitor", False, "count instructions and cycles of all CPUs: mips, mega_cycles_per_second"),
    Flag("enable_tpu_monitor", False, "read TPUs", _TPU),
    Flag("filter_nic_interfaces", False, "only network devices of --allow_interface_prefixes"),
    Flag("allow_interface_prefixes", "eno,ens,enp,enx,eth", "how the names of these devices begin"),
    Flag("prometheus_address", "127.0.0.1", "where the page for Prometheus is served"),
    Flag("prometheus_port", 8080, "its port"),
    Flag("otlp_endpoint", "", "URL of the collector; /v1/metrics is added. OTEL_EXPORTER_OTLP_ENDPOINT wins"),
    Flag("otlp_service_name", "dynolog", "the resource's service.name. OTEL_SERVICE_NAME wins"),
    Flag("otlp_headers", "", "further headers: name=value,name=value"),
    Flag("otlp_timeout_ms", 30000, "milliseconds for one export"),
    Flag("otlp_max_queue_size", 1000, "samples kept while the collector cannot be reached; then the oldest goes"),
    Flag("otlp_ssl_ca_cert_path", "", "PEM file of the authorities trusted"),
    Flag("otlp_ssl_client_cert_path", "", "PEM file of our certificate"),
    Flag("otlp_ssl_client_key_path", "", "PEM file of its key"),
    Flag("fbrelay_address", "127.0.0.1", "where --use_fbrelay sends"),
    Flag("fbrelay_port", 10000, "its port"),
    Flag("access_token", "", "@FILE that holds the token of --use_ODS and --use_scuba"),
    Flag("certificate_path", "/etc/ssl/certs/ca-certificates.crt", "PEM file of the authorities they trust"),
    Flag("category_id", "", "sent by --use_ODS"),
    Flag("ods_entity_prefix", "", "before the host's name in what --use_ODS sends"),
    Flag("scribe_category", "perfpipe_fair_cluster_gpu_stats", "sent by --use_scuba"),
    Flag("dcgm_lib_path", "/lib64/libdcgm.so", "the library of DCGM", _GPU),
    Flag("dcgm_major_version", 2, "its version", _GPU),
    Flag("dcgm_fields", "50,100,155,204," + ",".join(map(str, range(1001, 1013))), "fields of DCGM to read", _GPU),
    Flag("dcgm_standalone_address", "", "a host engine of DCGM that runs already", _GPU),
    Flag("enable_env_var_attribution", True, "job, user and account of GPU processes, by their environment", _GPU),
    Flag("env_attribution_mappings_file", "", "CSV of variables and columns", _GPU),
    Flag("enable_pod_resources_attribution", False, "namespace, pod and container of devices", _PODS),
    Flag("pod_resources_socket", "/var/lib/kubelet/pod-resources/kubelet.sock", "the kubelet's socket", _PODS),
    Flag("pod_resources_gpu_resource", "nvidia.com/gpu", "the resource that GPUs are", _PODS),
    Flag("pod_resources_tpu_resource", "google.com/tpu", "the resource that TPUs are", _PODS),
    Flag("tpu_device_plugin_url", "http://localhost:2112/metrics", "the page of the TPU device plug-in", _TPU),
    Flag("tpu_scrape_timeout_ms", 2000, "milliseconds for reading it", _TPU),
    Flag("use_otel_for_kernel_monitor", False, "log records of CPU and network too", _RECORDS),
    Flag("otel_endpoint", "http://localhost:4318", "URL of the collector of log records", _RECORDS),
    Flag("otel_resource_env_file", "", "attributes of their resource", _RECORDS),
    Flag("otel_resource_attrs", "", "attributes of their resource", _RECORDS),
    Flag("otel_metric_mappings_file", "", "CSV of names and scales", _RECORDS),
    Flag("minloglevel", 0, "the least that is logged: 0 info, 1 warning, 2 and more error"),
    *(Flag(name, default, "of glog; no effect here", _GLOG) for name, default in (
        ("logtostderr", False),
        ("logtostdout", False),
        ("alsologtostderr", False),
        ("colorlogtostderr", False),
        ("stderrthreshold", 2),
        ("log_dir", ""),
        ("log_prefix", True),
        ("logbuflevel", 0),
        ("logbufsecs", 30),
        ("max_log_size", 1800),
        ("stop_logging_if_full_disk", False),
        ("v", 0),
        ("vmodule", ""),
    )),
    Flag("help", False, "this text"),
    Flag("version", False, "the version, with the commit"),
)  # fmt: skip

# What dynolog does not have.
_OURS = (
    Flag("insecure", False, "RPC on all interfaces, as dynolog has it; nothing proves who is calling"),
    Flag("ods_url", "", "where --use_ODS posts; dynolog's is https://graph.facebook.com/v2.2/ods_metrics"),
    Flag("scuba_url", "", "where --use_scuba posts; dynolog's is https://graph.facebook.com/v2.2/scribe_logs"),
    Flag("state", "", "directory of the RPC socket (default: as sonde daemon)"),
)
FLAGS: Mapping[str, Flag] = {flag.name: flag for flag in (*_FLAGS, *_OURS)}

# The names that dynolog's README still has.
ALIASES = {
    "reporting_interval_s": "kernel_monitor_reporting_interval_s",
    "dcgm_report_interval_s": "dcgm_reporting_interval_s",
}
_LEVELS = ("info", "warning", "error")
_FRAMES = 3  # that make a sample: CPU, network, uptime; a queue of dynolog's counts samples
_SOURCE = "dynolog's flags"


def given(words: Sequence[str]) -> Given:
    return parse(words, FLAGS, ALIASES)


def configuration(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration of a command line; flag files are read anew at every call."""
    return from_tree(tree(given(words).values, environ), _SOURCE)


def notes(flags: Given) -> list[str]:
    """What a user of these flags should be told once: what has no effect, and whether anything is written at all."""
    found = [
        f"--{name} has no effect: {FLAGS[name].missing}"
        for name in FLAGS
        if name in flags.named and FLAGS[name].missing not in ("", _GLOG) and flags.values[name] != FLAGS[name].default
    ]
    if not any(flags.values[name] for name, flag in FLAGS.items() if name.startswith("use_") and not flag.missing):
        found.append("no --use_… flag is given: samples are taken but written nowhere")
    return found


def tree(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The tables of the configuration that flags stand for."""
    return {
        "daemon": {
            "period": f"{_at_least(flags, 'kernel_monitor_reporting_interval_s', 1)}s",
            "collectors": ["cpu", "host", "network", *(["perf"] if flags["enable_perf_monitor"] else [])],
            "rpc_address": f"{_everywhere() if flags['insecure'] else '127.0.0.1'}:{_port(flags, 'port')}",
            "http_address": "",
            "insecure": flags["insecure"],
            "log_level": _LEVELS[min(_at_least(flags, "minloglevel", 0), 2)],
        },
        "archive": {"enabled": False},
        "tracing": _tracing(flags, environ),
        "collectors": {"network": {"exclude": ""}, **_heartbeat(flags)},  # dynolog counts lo too
        "sinks": _sinks(flags, environ),
    }


def _heartbeat(flags: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    if not flags["enable_perf_monitor"]:
        return {}
    return {"perf": {"period": f"{_at_least(flags, 'perf_monitor_reporting_interval_s', 1)}s", "groups": ["core"]}}


def _tracing(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """As in dynolog, the variable moves the socket from its abstract name into a directory."""
    directory = environ.get("KINETO_IPC_SOCKET_DIR", "")
    return {"enabled": flags["enable_ipc_monitor"], "socket_dir": directory, "abstract": not directory}


def _sinks(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    prefixes = [prefix for prefix in str(flags["allow_interface_prefixes"]).split(",") if prefix]
    chosen = {"interface_prefixes": prefixes if flags["filter_nic_interfaces"] else []}
    tables = {
        "use_JSON": ("dynolog_log", _nothing),
        "use_prometheus": ("dynolog_prometheus", _prometheus),
        "use_otlp": ("dynolog_otlp", _otlp),
        "use_fbrelay": ("dynolog_relay", _relay),
        "use_ODS": ("dynolog_ods", _ods),
        "use_scuba": ("dynolog_scuba", _scuba),
    }
    return {name: chosen | keys(flags, environ) for flag, (name, keys) in tables.items() if flags[flag]}


def _nothing(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    return {}


def _prometheus(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    return {"address": _address(flags["prometheus_address"], _port(flags, "prometheus_port"))}


def _otlp(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Two variables win over their flags, as with dynolog; everywhere else in sonde it is the other way round."""
    return {
        "endpoint": environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or flags["otlp_endpoint"],
        "service_name": environ.get("OTEL_SERVICE_NAME", "").strip() or flags["otlp_service_name"],
        "headers": _pairs("otlp_headers", flags["otlp_headers"]),
        "timeout": f"{_at_least(flags, 'otlp_timeout_ms', 1)}ms",
        "queue": _FRAMES * _at_least(flags, "otlp_max_queue_size", 1),
        "ca_file": flags["otlp_ssl_ca_cert_path"],
        "certificate_file": flags["otlp_ssl_client_cert_path"],
        "key_file": flags["otlp_ssl_client_key_path"],
    }


def _pairs(flag: str, text: str) -> dict[str, str]:
    """`name=value,name=value`. A value may be a secret: no message shows one."""
    pairs = {}
    for number, item in enumerate(filter(None, text.split(",")), start=1):
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--{flag}: item {number} is not written name=value")
        pairs[name.strip()] = value.strip()
    return pairs


def _relay(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    return {"address": _address(flags["fbrelay_address"], _port(flags, "fbrelay_port"))}


def _ods(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    keys = {"category_id": flags["category_id"], "entity_prefix": flags["ods_entity_prefix"]}
    return keys | _posting(flags, "use_ODS", "ods_url")


def _scuba(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    return {"category": flags["scribe_category"]} | _posting(flags, "use_scuba", "scuba_url")


def _posting(flags: Mapping[str, Any], switch: str, url: str) -> dict[str, Any]:
    if not flags[url]:
        raise ConfigError(
            f"--{switch} needs --{url}=URL: nothing is sent outside the site without being told where",
            hint=f"--help has the URL that dynolog posts to; it belongs to Meta: {FLAGS[url].help.rpartition(' ')[2]}",
        )
    token = str(flags["access_token"])
    if token and not token.startswith("@"):
        raise ConfigError(
            "--access_token takes a file, as --access_token=@FILE: every user can read a command line",
            hint="write the token into a file that only this user may read",
        )
    secure = str(flags[url]).startswith("https:")
    return {
        "url": flags[url],
        "token_file": token.removeprefix("@"),
        "ca_file": flags["certificate_path"] if secure else "",
    }


def _at_least(flags: Mapping[str, Any], name: str, least: int) -> int:
    value = int(flags[name])
    if value < least:
        raise UsageError(f"--{name}={value}: must be at least {least}")
    return value


def _port(flags: Mapping[str, Any], name: str) -> int:
    port = _at_least(flags, name, 0)
    if port > 65535:
        raise UsageError(f"--{name}={port}: the highest port is 65535")
    return port


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _everywhere() -> str:
    """dynolog binds an IPv6 socket for both families; a kernel without IPv6 has no such socket."""
    return "[::]" if os.path.exists("/proc/net/if_inet6") else "0.0.0.0"


def help_text() -> str:
    """Every flag with its default, those without effect marked."""
    lines = [
        "sonde, with dynolog's command line: samples of CPU, network and uptime under dynolog's names.",
        "",
        "usage: dynolog [--use_JSON] [--use_prometheus] [--flagfile=FILE] [--FLAG[=VALUE] …]",
        "",
        "  --flagfile=FILE",
        "      read flags from a file, one per line; # begins a comment; SIGHUP reads it again",
        "  --undefok=NAME,NAME",
        "      let these flags pass if they are unknown",
    ]
    for flag in FLAGS.values():
        if flag.missing == _GLOG:
            continue
        default = "" if isinstance(flag.default, bool) else f"={flag.default}"
        state = f" [no effect: {flag.missing}]" if flag.missing else ""
        off = " (default: on; --no… switches it off)" if flag.default is True else ""
        lines += [f"  --{flag.name}{default}", f"      {flag.help}{off}{state}"]
    glog = ", ".join(flag.name for flag in FLAGS.values() if flag.missing == _GLOG)
    lines += ["", f"Taken without effect, as glog's: {glog}."]
    lines += ["Dashes in names count as underscores; --noNAME switches a switch off."]
    return "\n".join(lines)
