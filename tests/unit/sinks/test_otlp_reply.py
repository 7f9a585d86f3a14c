"""What receivers of OTLP answer, made with the published classes and with chance."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from sonde.errors import ParseError
from sonde.sinks.otlp_reply import PartialSuccess, parse_fields, partial_success, status_message
from sonde.sinks.protobuf import VARINT, double, field, message, text, varint

NOW = 1_794_778_958  # Sun, 15 Nov 2026 21:42:38 GMT


@given(st.integers(0, 2**63 - 1), st.text(alphabet=st.characters(categories=["L", "N"]), max_size=50))
@settings(max_examples=100)
def test_a_partial_success_is_read(rejected: int, said: str) -> None:
    partial = ExportMetricsPartialSuccess(rejected_data_points=rejected, error_message=said)
    body = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()

    assert partial_success(body) == PartialSuccess(rejected, said)


def test_no_answer_is_a_full_success() -> None:
    assert partial_success(b"") == (0, "")


def test_a_message_is_one_printable_line_and_not_too_long() -> None:
    partial = ExportMetricsPartialSuccess(error_message="bad\n\x1b[31m point " + "x" * 1000)
    said = partial_success(ExportMetricsServiceResponse(partial_success=partial).SerializeToString()).message

    assert said.startswith("bad [31m point xxx")
    assert len(said) == 300


def test_a_number_below_zero_rejects_nothing() -> None:
    partial = ExportMetricsPartialSuccess(rejected_data_points=-3, error_message="x")

    assert partial_success(ExportMetricsServiceResponse(partial_success=partial).SerializeToString()).rejected == 0


def test_fields_that_are_not_known_are_passed_over() -> None:
    strange = field(9, 5) + b"1234" + double(8, 1.5) + field(7, VARINT) + varint(300) + text(6, "x")
    body = strange + message(1, strange + field(1, VARINT) + varint(4))

    assert partial_success(body).rejected == 4


@given(st.binary(max_size=60))
@settings(max_examples=300)
def test_garbage_is_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(ParseError):
        partial_success(body)
    status_message(body, "application/x-protobuf")
    status_message(body, "text/html")


@pytest.mark.parametrize("body", [b"\x0a", b"\x0a\x05abc", b"\x80" * 11, b"\x0b", b"\x00\x01", b"<html>", b"{}"])
def test_what_is_no_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises(ParseError):
        list(parse_fields(body))


def test_the_message_of_a_status_or_of_a_page_is_shown() -> None:
    status = field(1, VARINT) + varint(3) + text(2, "unknown metric")

    assert status_message(status, "application/x-protobuf; charset=x") == "unknown metric"
    assert status_message(b"<h1>404</h1>\n nothing", "text/html") == "<h1>404</h1> nothing"
    assert status_message(b"", "") == ""
