"""The keys of [sinks.otlp], and the OTEL_* variables that fill what the configuration leaves unset.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318        /v1/metrics is appended
    OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://vm:8428/push  as it is
    OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20abc,x-tenant=7

After https://opentelemetry.io/docs/specs/otel/protocol/exporter/: a variable with METRICS_ in its name goes before the
one without, an empty one counts as unset. That specification lets the program decide between its configuration and the
environment: here the configuration wins, as everywhere in sonde.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from sonde.errors import ConfigError
from sonde.units import Duration

_DEFAULT_ENDPOINT = "http://localhost:4318"
_PATH = "/v1/metrics"
_DEFAULT_TIMEOUT = Duration(10)
_PREFIX = "OTEL_EXPORTER_OTLP_"
_NOTHING: Mapping[str, str] = MappingProxyType({})


class OtlpConfig(NamedTuple):
    endpoint: str = ""  # of the receiver, for all signals: /v1/metrics is appended; http://localhost:4318 when empty
    metrics_endpoint: str = ""  # the whole URL for metrics, used as it is; goes before endpoint
    naming: Literal["semantic", "native"] = "semantic"  # OpenTelemetry's names where there are such, or always ours
    headers: Mapping[str, str] = _NOTHING  # sent with every request
    timeout: Duration | None = None  # for one delivery; 10s when unset
    compression: Literal["auto", "gzip", "none"] | None = None  # auto, when unset: gzip unless it stays on this machine
    ca_file: str = ""  # the authorities to trust, PEM; empty: the system's
    certificate_file: str = ""  # our own certificate, PEM, for receivers that ask for one
    key_file: str = ""  # its key; empty: in certificate_file
    service_name: str = ""  # the resource's service.name; sonde when empty
    attributes: Mapping[str, str] = _NOTHING  # more attributes of the resource; they go before those sonde gives


def filled(config: OtlpConfig, environ: Mapping[str, str]) -> OtlpConfig:
    """The configuration, with what it leaves unset from the environment, and defaults. Raises ConfigError."""
    _check_protocol(environ)
    variables = _Variables(environ)
    return config._replace(
        metrics_endpoint=config.metrics_endpoint or _endpoint(config.endpoint, environ),
        headers={**_pairs(*variables.named("HEADERS")), **config.headers},
        timeout=config.timeout if config.timeout is not None else _timeout(*variables.named("TIMEOUT")),
        compression=config.compression or _compression(*variables.named("COMPRESSION")),
        ca_file=config.ca_file or variables.named("CERTIFICATE")[1],
        certificate_file=config.certificate_file or variables.named("CLIENT_CERTIFICATE")[1],
        key_file=config.key_file or variables.named("CLIENT_KEY")[1],
        attributes=_resource(config, environ),
    )


def is_disabled(environ: Mapping[str, str]) -> bool:
    """OTEL_SDK_DISABLED switches everything OpenTelemetry off; only the word true does (any case)."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


class _Variables:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def named(self, name: str) -> tuple[str, str]:
        """The variable for metrics, else the one for all signals: what it is called, and its value."""
        for variable in (f"{_PREFIX}METRICS_{name}", f"{_PREFIX}{name}"):
            value = self._environ.get(variable, "").strip()
            if value:
                return variable, value
        return f"{_PREFIX}{name}", ""


def _check_protocol(environ: Mapping[str, str]) -> None:
    variable, value = _Variables(environ).named("PROTOCOL")
    if value not in ("", "http/protobuf"):
        raise ConfigError(
            f"{variable} asks for {value!r}; this sink speaks http/protobuf only",
            hint=f"start with {variable}=http/protobuf and the endpoint's HTTP port, commonly 4318",
        )


def _endpoint(base: str, environ: Mapping[str, str]) -> str:
    if not base:
        specific = environ.get(f"{_PREFIX}METRICS_ENDPOINT", "").strip()
        if specific:
            return specific
        base = environ.get(f"{_PREFIX}ENDPOINT", "").strip() or _DEFAULT_ENDPOINT
    # Somebody who writes the whole URL means it.
    return base if base.endswith(_PATH) else base.rstrip("/") + _PATH


def _timeout(variable: str, value: str) -> Duration:
    if not value:
        return _DEFAULT_TIMEOUT
    if not (value.isascii() and value.isdigit()) or not int(value):
        raise ConfigError(f"{variable} must be a whole number of milliseconds, not {value!r}")
    return Duration(int(value) / 1000)


def _compression(variable: str, value: str) -> Literal["auto", "gzip", "none"]:
    if value in ("gzip", "none"):
        return "gzip" if value == "gzip" else "none"
    if value:
        raise ConfigError(f"{variable} must be gzip or none, not {value!r}")
    return "auto"


def _resource(config: OtlpConfig, environ: Mapping[str, str]) -> Mapping[str, str]:
    attributes = dict(_pairs("OTEL_RESOURCE_ATTRIBUTES", environ.get("OTEL_RESOURCE_ATTRIBUTES", "").strip()))
    service = environ.get("OTEL_SERVICE_NAME", "").strip()
    if service:
        attributes["service.name"] = service
    attributes |= config.attributes
    if config.service_name:
        attributes["service.name"] = config.service_name
    return attributes


def _pairs(variable: str, value: str) -> dict[str, str]:
    """`key=value,key=value`, percent-encoded as W3C baggage is. The values may be secrets: no message shows one."""
    pairs: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in value.split(","))):
        key, found, text = item.partition("=")
        if not found or not key.strip():
            raise ConfigError(f"{variable}: item {len(pairs) + 1} is not written key=value")
        pairs[_decoded(key.strip())] = _decoded(text.strip())
    return pairs


def _decoded(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote

    return unquote(text)
