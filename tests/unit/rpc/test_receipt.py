"""A streamed file, checked as it comes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import RpcError
from sonde.rpc.codec import Message
from sonde.rpc.receipt import Receipt
from sonde.tracing.transfer import send


def sent(data: bytes) -> list[Message]:
    """As a daemon sends it."""
    messages: list[Message] = []
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        send(os.dup(file.fileno()), 10**9, messages.append)
    return messages


def taken(messages: Sequence[Message], limit: int = 10**9) -> bytes:
    receipt = Receipt(limit, lambda size: f"{size} is too much")
    data = b"".join(receipt.take_plain(message) for message in messages)
    receipt.verify()
    return data


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_what_is_sent_arrives(size: int) -> None:
    data = os.urandom(size)

    assert taken(sent(data)) == data


def test_a_file_beyond_the_limit_is_refused_on_the_way() -> None:
    with pytest.raises(RpcError, match="is too much"):
        taken(sent(bytes(10**6)), limit=1000)


def test_a_piece_that_is_missing_is_noticed() -> None:
    messages = sent(os.urandom(10**6))
    with pytest.raises(RpcError):
        taken([messages[0], *messages[2:]])


@given(st.text(max_size=40) | st.none() | st.integers())
def test_any_message_is_taken_or_called_garbled(data: object) -> None:
    receipt = Receipt(10**6, str)
    codes = {"garbled"}
    try:
        codes = {"garbled", type(receipt.take_plain({"data": data})).__name__}
    except RpcError as error:
        codes |= {error.code}

    assert codes in ({"garbled"}, {"garbled", "bytes"})
