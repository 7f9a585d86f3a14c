"""DER: elements, numbers, identifiers, times."""

from __future__ import annotations

import pytest

from sonde.rpc.der import INTEGER, OID, SEQUENCE, TIME, UTC_TIME, Malformed, Reader, identifier, integer, moment


def element(tag: int, contents: bytes) -> bytes:
    return bytes([tag, len(contents)]) + contents


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x30",
        b"\x30\x05\x00",
        b"\x30\x80\x00\x00",  # without a length: BER
        b"\x30\x85\x00\x00\x00\x00\x00",
        b"\x30\x82\x01",
        b"\x1f\x81\x00\x00",
    ],
)
def test_what_is_no_element_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        Reader(data).element()


def test_a_length_of_several_bytes_is_read() -> None:
    assert Reader(b"\x30\x82\x01\x00" + b"x" * 256).take(SEQUENCE) == b"x" * 256


def test_more_than_belongs_there_is_malformed() -> None:
    reader = Reader(element(INTEGER, b"\1") + b"\0")
    assert integer(reader) == 1

    with pytest.raises(Malformed):
        reader.end()


@pytest.mark.parametrize(("contents", "number"), [(b"\0", 0), (b"\x7f", 127), (b"\0\x80", 128), (b"\xff", -1)])
def test_integers_have_a_sign(contents: bytes, number: int) -> None:
    assert integer(Reader(element(INTEGER, contents))) == number


@pytest.mark.parametrize(
    ("contents", "text"), [("2a8648ce3d0301", "1.2.840.10045.3.1"), ("550403", "2.5.4.3"), ("8837", "2.999")]
)
def test_identifiers_are_written_with_dots(contents: str, text: str) -> None:
    assert identifier(Reader(element(OID, bytes.fromhex(contents)))) == text


@pytest.mark.parametrize("contents", [b"", b"\x2a\x86", b"\xff" * 100 + b"\1"])
def test_identifiers_without_an_end_are_malformed(contents: bytes) -> None:
    with pytest.raises(Malformed):
        identifier(Reader(element(OID, contents)))


@pytest.mark.parametrize(
    ("tag", "text", "seconds"),
    [
        (UTC_TIME, b"700101000000Z", 0),
        (UTC_TIME, b"491231235959Z", 2_524_607_999),
        (UTC_TIME, b"500101000000Z", -631_152_000),
        (TIME, b"20500101000000Z", 2_524_608_000),
    ],
)
def test_times_are_seconds_since_the_epoch(tag: int, text: bytes, seconds: int) -> None:
    assert moment(Reader(element(tag, text))) == seconds


@pytest.mark.parametrize(
    "text", [b"", b"7001010000Z", b"700101000000+", b"701301000000Z", b"700101250000Z", b"70010100000\xb2Z"]
)
def test_what_is_no_time_is_malformed(text: bytes) -> None:
    with pytest.raises(Malformed):
        moment(Reader(element(UTC_TIME, text)))
