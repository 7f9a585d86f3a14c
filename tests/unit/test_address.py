"""Addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.address import Address, is_loopback, parse_address
from sonde.errors import UsageError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:1779", Address("127.0.0.1", 1779)),
        ("[::1]:0", Address("::1", 0)),
        ("node01:1778", Address("node01", 1778)),
        ("unix:/run/sonde/rpc.sock", Address(path="/run/sonde/rpc.sock")),
    ],
)
def test_an_address_is_read_and_written_alike(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


def test_a_host_alone_gets_the_default_port() -> None:
    assert parse_address("node01", default_port=1778) == Address("node01", 1778)


@pytest.mark.parametrize(
    "text", ["", "node01", ":1778", "::1:1778", "a b:1", "h:65536", "h:-1", "h:1x", "unix:", "h:١"]
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_address(text)

    assert "127.0.0.1:1778" in refused.value.hint


def test_a_unix_path_longer_than_the_kernel_allows_is_refused() -> None:
    with pytest.raises(UsageError, match="107 bytes"):
        parse_address("unix:/" + "x" * 107)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        address = parse_address(text)
    except UsageError:
        return
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("example.org", False),
        ("127.0.0.1.example.org", False),
    ],
)
def test_only_numeric_loopback_addresses_count_as_such(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    assert Address(host, 1).is_local is loopback
