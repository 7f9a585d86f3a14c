"""dynolog's framing, byte for byte."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import RpcError
from sonde.rpc.codec import REQUEST_LIMIT, decode, encode, error_reply, parse_error, parse_length

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=10,
)


def test_a_status_reply_has_the_bytes_dynolog_sends() -> None:
    assert encode({"status": 1}) == struct.pack("=i", 12) + b'{"status":1}'


def test_keys_are_sorted_and_text_is_compact_ascii() -> None:
    assert encode({"b": [1, 2], "a": "é\ud800"})[4:] == b'{"a":"\\u00e9\\ud800","b":[1,2]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_what_json_cannot_say_is_not_encoded(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        encode({"value": value})


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_a_message_survives_the_way_there_and_back(message: dict[str, object]) -> None:
    data = encode(message)

    assert parse_length(data[:4]) == len(data) - 4
    assert decode(data[4:]) == message


@pytest.mark.parametrize("length", [0, -1, -(2**31), REQUEST_LIMIT + 1, 2**31 - 1])
def test_a_length_no_request_has_is_an_error(length: int) -> None:
    with pytest.raises(RpcError) as refused:
        parse_length(struct.pack("=i", length))

    assert refused.value.code == "bad-length"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "bad-json"),
        (b"{", "bad-json"),
        (b"\xff\xfe", "bad-json"),
        (b'{"fn":NaN}', "bad-json"),
        (b'{"fn":' + b"9" * 5000 + b"}", "bad-json"),
        (b"[" * 100_000, "bad-json"),
        (b'{"a":' * 50_000, "bad-json"),
        (b"[]", "bad-request"),
        (b'"getStatus"', "bad-request"),
        (b"null", "bad-request"),
    ],
)
def test_a_body_that_is_no_object_is_an_error_with_a_code(body: bytes, code: str) -> None:
    with pytest.raises(RpcError) as refused:
        decode(body)

    assert refused.value.code == code


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_an_rpc_error(body: bytes) -> None:
    try:
        message = decode(body)
    except RpcError:
        return

    assert json.loads(body) == message


def test_an_error_survives_the_way_there_and_back() -> None:
    error = parse_error(error_reply(RpcError("denied", "not you", hint="ask root")))

    assert error is not None
    assert (error.code, str(error), error.hint) == ("denied", "not you", "ask root")


def test_dynologs_replies_without_ok_are_answers() -> None:
    assert parse_error({"status": 0}) is None
    assert parse_error({"status": "failed"}) is None


@pytest.mark.parametrize("reply", [{"ok": False}, {"ok": False, "error": "text"}, {"ok": False, "error": {}}])
def test_an_error_without_its_parts_is_still_an_error(reply: dict[str, object]) -> None:
    error = parse_error(reply)

    assert error is not None
    assert error.code == "unknown"
