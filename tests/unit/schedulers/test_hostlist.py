"""Host lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonde.errors import ParseError
from sonde.schedulers.hostlist import compress, expand, parse_node_file

NAMES = st.from_regex(r"[a-z]{1,3}([0-9]{1,4})?(-[a-z]{1,2})?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-4,7],gpu[001-003]", ["n1", "n2", "n3", "n4", "n7", "gpu001", "gpu002", "gpu003"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[098-100]", ["n098", "n099", "n100"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[1-2]-ib,login", ["n1-ib", "n2-ib", "login"]),
        ("n[1,1]", ["n1", "n1"]),
    ],
)
def test_a_list_is_expanded_in_the_order_written(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        *("n[", "n]", "n[]", "n[1", "n[a]", "n[1-]", "n[2-1]", "n[1,]", ",", "n1,", ",n1", "n1,,n2", "n[[1]]", "n 1"),
        *("n[1-99999999]", "a[1-9999]b[1-9999]"),
    ],
)
def test_a_malformed_or_absurd_list_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        expand(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n2 n3,n4", "separated by commas, without spaces"),
        ("n[3-1]", "the range 3-1 ends before it begins"),
        ("n[1-99999999]", "more than 1000000 names"),
        ("a[1-9999]b[1-9999]", "more than 1000000 names"),
        ("n1,,n2", "a name is missing beside a comma"),
        ("n1,", "a name is missing beside a comma"),
        ("n[a]", "brackets hold numbers and ranges"),
        ("n[1-]", "'1-': brackets hold numbers and ranges"),
    ],
)
def test_the_reason_is_told(text: str, why: str) -> None:
    with pytest.raises(ParseError) as caught:
        expand(text)

    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([], ""),
        (["login"], "login"),
        (["n1", "n2", "n3", "n7"], "n[1-3,7]"),
        (["n3", "n1", "n2", "n1"], "n[1-3]"),
        (["gpu001", "gpu002", "gpu010"], "gpu[001-002,010]"),
        (["n098", "n099", "n100"], "n[098-100]"),
        (["n9", "n10"], "n[9-10]"),
        (["n1", "n01"], "n[1,01]"),
        (["a1-ib", "a2-ib", "a1"], "a[1-2]-ib,a1"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
    ],
)
def test_names_are_compressed_by_their_last_number(hosts: list[str], text: str) -> None:
    assert compress(hosts) == text


@given(st.lists(NAMES, max_size=40))
def test_what_is_compressed_expands_to_the_same_names(hosts: list[str]) -> None:
    expanded = expand(compress(hosts))

    assert len(expanded) == len(set(expanded))
    assert set(expanded) == set(hosts)


@given(st.text(alphabet="ab01[]-,9 \n", max_size=20))
def test_any_text_is_a_list_or_a_parse_error(text: str) -> None:
    try:
        hosts = expand(text)
    except ParseError:
        return

    assert all(hosts)
    assert set(expand(compress(hosts))) == set(hosts)


def test_a_node_file_has_a_line_per_slot_and_names_each_host_once() -> None:
    assert parse_node_file("n2\nn2\nn1.example\n") == ["n2", "n1.example"]


@pytest.mark.parametrize("text", ["root:$6$x:1\n$6$y", "n1;reboot", "-oProxyCommand=x", "n[", "n1,,n2"])
def test_a_file_of_something_else_is_no_node_file(text: str) -> None:
    with pytest.raises(ParseError):
        parse_node_file(text)


@given(st.text(max_size=60))
def test_any_text_is_a_node_file_or_a_parse_error(text: str) -> None:
    try:
        hosts = parse_node_file(text)
    except ParseError:
        return
    assert len(set(hosts)) == len(hosts)
