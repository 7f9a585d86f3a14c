"""dynolog's metrics over OTLP: its names, in base units, with OpenTelemetry's attributes; gauges of one double each.

    cpu_u 27.638              -> cpu_u 0.27638, unit 1, cpu.mode=user
    cpu_u_ms 550              -> cpu_u_ms 0.55, unit s: the name keeps its _ms
    rx_bytes{net="eth0"} 8021 -> rx_bytes 8021, unit By, network.io.direction=receive, network.interface.name=eth0

Per-device series always carry their device: dynolog sends those it has no rule for as one series for all devices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from sonde.dialects.dynolog import names
from sonde.dialects.dynolog.translate import Translator
from sonde.errors import ConfigError
from sonde.hostfs import HostFS
from sonde.sinks.otlp import OtlpSink
from sonde.sinks.otlp_names import Rule, Rules
from sonde.sinks.otlp_settings import OtlpConfig
from sonde.units import Duration

_SOCKETS = 32  # the most that a machine with one kernel has been built with
_GPU = {"device": "hw.id"}
_INTERFACE = {names.DEVICE: "network.interface.name"}
_COUNTED = {"bytes": "By", "packets": "{packet}", "errors": "{error}", "drops": "{packet}"}
_DIRECTIONS = {"rx": "receive", "tx": "transmit"}


def _cpu() -> Iterator[Rule]:
    """Percent become ratios, milliseconds seconds. A scale that is a float makes doubles of all."""
    yield Rule("cpu_util", "1", 0.01, {"cpu.mode": "active"})
    for mode, spec in names.SHARES.items():
        yield Rule(spec.name, "1", 0.01, {"cpu.mode": mode})
        for socket in range(_SOCKETS):
            name = names.socket_share(mode, socket).name
            yield Rule(name, "1", 0.01, {"cpu.mode": mode, "cpu.socket": str(socket)})
    for mode, spec in names.TIMES.items():
        yield Rule(spec.name, "s", 0.001, {"cpu.mode": mode})
    for mode, word in names.GUEST_MODES.items():
        yield Rule(names.GUEST_SHARES[mode].name, "1", 0.01, {"cpu.mode": word})
        yield Rule(names.GUEST_TIMES[mode].name, "s", 0.001, {"cpu.mode": word})


def _network() -> Iterator[Rule]:
    for spec in names.TRAFFIC.values():
        direction, _, what = spec.name.partition("_")
        attributes = {"network.io.direction": _DIRECTIONS[direction]}
        yield Rule(spec.name, _COUNTED[what], 1.0, attributes, _INTERFACE)


def _gpu() -> Iterator[Rule]:
    """What dynolog reads of GPUs through DCGM."""
    for name in ("sm_active_ratio", "sm_occupancy", "hbm_mem_bw_util"):
        yield Rule(name, "1", 1.0, labels=_GPU)
    yield Rule("graphics_engine_active_ratio", "1", 1.0, {"hw.gpu.task": "general"}, _GPU)
    for pipe in ("tensorcore", "fp64", "fp32", "fp16"):
        yield Rule(f"{pipe}_active", "1", 1.0, {"pipe": pipe}, _GPU)
    yield Rule("gpu_device_utilization", "1", 0.01, {"hw.gpu.task": "device"}, _GPU)
    yield Rule("gpu_memory_utilization", "1", 0.01, labels=_GPU)
    yield Rule("gpu_frequency_mhz", "MHz", 1.0, labels=_GPU)
    yield Rule("gpu_power_draw", "W", 1.0, {"hw.type": "gpu"}, _GPU)
    yield Rule("dcgm_error", "{error}", 1.0, {"hw.type": "gpu"}, _GPU)
    for link in ("pcie", "nvlink"):
        for direction, word in _DIRECTIONS.items():
            yield Rule(f"{link}_{direction}_bytes", "By/s", 1.0, {"network.io.direction": word}, _GPU)


RULES: Rules = {
    **{rule.name: (rule,) for rules in (_cpu(), _network(), _gpu()) for rule in rules},
    names.UPTIME.name: (Rule(names.UPTIME.name, "s", 1.0),),
    "minor_id": (),  # a number for a name
    "device": (),
}


class DynologOtlpConfig(NamedTuple):
    endpoint: str = ""  # of the collector: /v1/metrics is appended; http://localhost:4318 when empty
    service_name: str = "dynolog"  # the resource's service.name
    headers: Mapping[str, str] = MappingProxyType({})  # sent with every request
    timeout: Duration = Duration(30)  # for one delivery
    ca_file: str = ""  # the authorities to trust, PEM; empty: the system's
    certificate_file: str = ""  # our own certificate, PEM, for collectors that ask for one
    key_file: str = ""  # its key; empty: in certificate_file
    interface_prefixes: tuple[str, ...] = ()  # only network devices whose names begin so; empty: all


class DynologOtlpSink(OtlpSink):
    Config: ClassVar[type] = DynologOtlpConfig
    reads_host: ClassVar[bool] = True

    def __init__(
        self, config: DynologOtlpConfig, *, host: str, files: HostFS, environ: Mapping[str, str] = os.environ
    ) -> None:
        with _own_name():
            super().__init__(_settings(config), host=host, rules=RULES, scope="dynolog", environ=environ)
        self.translate = Translator(files, config.interface_prefixes).frames

    @staticmethod
    def check(config: Any) -> None:
        with _own_name():
            OtlpSink.check(_settings(config))


def _settings(config: DynologOtlpConfig) -> OtlpConfig:
    return OtlpConfig(**{name: value for name, value in config._asdict().items() if name in OtlpConfig._fields})


@contextmanager
def _own_name() -> Iterator[None]:
    """Errors name the section they are about."""
    try:
        yield
    except ConfigError as error:
        said = str(error).replace("sinks.otlp", "sinks.dynolog_otlp", 1)
        raise ConfigError(said, hint=error.hint) from None
