"""The keys of the OTLP sink and the variables that fill them."""

from __future__ import annotations

import pytest

from sonde.errors import ConfigError
from sonde.sinks.otlp_settings import OtlpConfig, filled, is_disabled
from sonde.units import Duration

ALL = "OTEL_EXPORTER_OTLP_"
METRICS = "OTEL_EXPORTER_OTLP_METRICS_"


@pytest.mark.parametrize(
    ("config", "environ", "url"),
    [
        (OtlpConfig(), {}, "http://localhost:4318/v1/metrics"),
        (OtlpConfig("http://c:4318"), {}, "http://c:4318/v1/metrics"),
        (OtlpConfig("http://c:4318/otlp/"), {}, "http://c:4318/otlp/v1/metrics"),
        (OtlpConfig("http://c:4318/v1/metrics"), {}, "http://c:4318/v1/metrics"),
        (OtlpConfig("http://c", "http://c/push"), {}, "http://c/push"),
        (OtlpConfig(), {f"{ALL}ENDPOINT": "http://e:1/x"}, "http://e:1/x/v1/metrics"),
        (OtlpConfig(), {f"{ALL}ENDPOINT": "http://e:1", f"{METRICS}ENDPOINT": "http://m:2/y"}, "http://m:2/y"),
        (OtlpConfig(), {f"{ALL}ENDPOINT": "  "}, "http://localhost:4318/v1/metrics"),
        (OtlpConfig("http://c:4318"), {f"{METRICS}ENDPOINT": "http://m:2/y"}, "http://c:4318/v1/metrics"),
        (OtlpConfig("", "http://c/push"), {f"{METRICS}ENDPOINT": "http://m:2/y"}, "http://c/push"),
    ],
)
def test_where_it_goes(config: OtlpConfig, environ: dict[str, str], url: str) -> None:
    assert filled(config, environ).metrics_endpoint == url


def test_what_the_configuration_leaves_unset_comes_from_the_environment() -> None:
    environ = {
        f"{ALL}HEADERS": "Authorization=Bearer%20abc, x-tenant = 7 ,",
        f"{ALL}TIMEOUT": "2500",
        f"{ALL}COMPRESSION": "gzip",
        f"{ALL}CERTIFICATE": "/ca",
        f"{ALL}CLIENT_CERTIFICATE": "/crt",
        f"{ALL}CLIENT_KEY": "/key",
        f"{ALL}PROTOCOL": "http/protobuf",
    }

    assert filled(OtlpConfig(), environ)._replace(attributes={}) == OtlpConfig(
        metrics_endpoint="http://localhost:4318/v1/metrics",
        headers={"Authorization": "Bearer abc", "x-tenant": "7"},
        timeout=Duration(2.5),
        compression="gzip",
        ca_file="/ca",
        certificate_file="/crt",
        key_file="/key",
        attributes={},
    )


def test_a_variable_for_metrics_goes_before_the_one_for_all() -> None:
    names = ("TIMEOUT", "COMPRESSION", "CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE", "HEADERS")
    general = dict(zip((ALL + name for name in names), ("1", "none", "a", "a", "a", "a=1"), strict=True))
    metrics = dict(zip((METRICS + name for name in names), ("2", "gzip", "b", "b", "b", "b=2"), strict=True))
    settings = filled(OtlpConfig(), general | metrics)

    assert (settings.timeout, settings.compression, settings.headers) == (Duration(0.002), "gzip", {"b": "2"})
    assert (settings.ca_file, settings.key_file, settings.certificate_file) == ("b", "b", "b")


def test_the_configuration_goes_before_the_environment_header_by_header() -> None:
    config = OtlpConfig(headers={"x-tenant": "8"}, timeout=Duration(1), compression="auto", ca_file="/mine")
    environ = {
        f"{ALL}HEADERS": "Authorization=secret,x-tenant=7",
        f"{ALL}TIMEOUT": "2500",
        f"{ALL}COMPRESSION": "gzip",
        f"{ALL}CERTIFICATE": "/ca",
    }
    settings = filled(config, environ)

    assert settings.headers == {"Authorization": "secret", "x-tenant": "8"}
    assert (settings.timeout, settings.compression, settings.ca_file) == (Duration(1), "auto", "/mine")


def test_defaults() -> None:
    settings = filled(OtlpConfig(), {})

    assert (settings.timeout, settings.compression) == (Duration(10), "auto")
    assert settings.attributes == {}


@pytest.mark.parametrize(
    ("config", "environ", "name"),
    [
        (OtlpConfig(), {"OTEL_RESOURCE_ATTRIBUTES": "service.name=a,team=b"}, "a"),
        (OtlpConfig(), {"OTEL_RESOURCE_ATTRIBUTES": "service.name=a,team=b", "OTEL_SERVICE_NAME": "c"}, "c"),
        (OtlpConfig(attributes={"service.name": "d"}), {"OTEL_SERVICE_NAME": "c"}, "d"),
        (OtlpConfig(attributes={"service.name": "d"}, service_name="e"), {"OTEL_SERVICE_NAME": "c"}, "e"),
    ],
)
def test_who_it_is(config: OtlpConfig, environ: dict[str, str], name: str) -> None:
    assert filled(config, environ).attributes["service.name"] == name


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (f"{ALL}PROTOCOL", "grpc", "speaks http/protobuf only"),
        (f"{METRICS}PROTOCOL", "http/json", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL asks for 'http/json'"),
        (f"{ALL}TIMEOUT", "10s", "whole number of milliseconds"),
        (f"{ALL}TIMEOUT", "0", "whole number of milliseconds"),
        (f"{ALL}COMPRESSION", "zstd", "must be gzip or none, not 'zstd'"),
        (f"{ALL}HEADERS", "a=b,hunter2", "item 2 is not written key=value"),
        ("OTEL_RESOURCE_ATTRIBUTES", "=x", "item 1"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_name_of_its_variable(variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        filled(OtlpConfig(), {variable: value})

    assert variable in str(raised.value)
    assert message in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(("value", "disabled"), [("true", True), ("TRUE", True), ("1", False), ("", False)])
def test_only_true_switches_it_off(value: str, disabled: bool) -> None:
    assert is_disabled({"OTEL_SDK_DISABLED": value}) is disabled
