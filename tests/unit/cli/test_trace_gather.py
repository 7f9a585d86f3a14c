"""Streams of files: what is believed of them, and what they are called."""

from __future__ import annotations

import base64
import gzip
import hashlib
from typing import Any

import pytest

from sonde.cli.trace_gather import Receipt, file_name, names_of
from sonde.cli.trace_hosts import Node
from sonde.errors import RpcError

PLAIN = b'{"traceEvents": []}' * 1000


def target(pid: int | None = 812, rank: int | None = 0) -> dict[str, Any]:
    return {"pid": pid, "own_pid": pid or 7, "rank": rank, "path": "/tmp/t.json"}


def receipt(limit: int = 10**6) -> Receipt:
    return Receipt(limit, Node("n1", "n1:1778"), target())


def piece(data: bytes) -> dict[str, Any]:
    return {"data": base64.b64encode(data).decode()}


def end(size: int = len(PLAIN), text: bytes = PLAIN) -> dict[str, Any]:
    return {"done": True, "size": size, "sha256": hashlib.sha256(text).hexdigest()}


def test_a_whole_stream_is_believed() -> None:
    packed, taken = gzip.compress(PLAIN), receipt()
    stored = b"".join(taken.take(piece(packed[at : at + 7])) for at in range(0, len(packed), 7))
    taken.take(end())
    taken.verify()

    assert (stored, taken.size, taken.sha256) == (packed, len(PLAIN), hashlib.sha256(PLAIN).hexdigest())


@pytest.mark.parametrize("last", [end(text=b"another"), end(size=5), {"done": True}])
def test_another_sum_or_size_is_not(last: dict[str, Any]) -> None:
    taken = receipt()
    taken.take(piece(gzip.compress(PLAIN)))
    taken.take(last)

    with pytest.raises(RpcError, match="the checksum is wrong"):
        taken.verify()


def test_a_stream_that_ends_early_is_not() -> None:
    taken = receipt()
    taken.take(piece(gzip.compress(PLAIN)[:-9]))
    taken.take(end())

    with pytest.raises(RpcError, match="too early"):
        taken.verify()


def test_what_follows_a_stream_is_not() -> None:
    taken = receipt()
    taken.take(piece(gzip.compress(PLAIN) + b"more"))
    taken.take(end())

    with pytest.raises(RpcError, match="too late"):
        taken.verify()


@pytest.mark.parametrize("message", [{"data": "%%%"}, {"data": 5}, {"data": "é"}, {"data": "a"}, piece(b"not gzip")])
def test_what_is_not_base64_of_gzip_is_an_error(message: dict[str, Any]) -> None:
    taken = receipt()

    with pytest.raises(RpcError, match="what is not"):
        taken.take(message)


def test_a_bomb_ends_at_the_limit() -> None:
    taken = receipt(limit=3 * 2**20)

    with pytest.raises(RpcError, match="beyond --max-size"):
        taken.take(piece(gzip.compress(bytes(100 * 2**20))))
    assert taken.size <= 4 * 2**20


@pytest.mark.parametrize(
    ("rank", "host", "name"),
    [
        (0, "n1", "rank-0_n1_812.json.gz"),
        (None, "n1", "n1_812.json.gz"),
        (3, "../a/b c", "rank-3_..-a-b-c_812.json.gz"),
    ],
)
def test_a_file_is_named_after_rank_host_and_pid(rank: int | None, host: str, name: str) -> None:
    assert file_name(rank, host, 812) == name


def test_hosts_of_one_name_have_files_of_two() -> None:
    written = [(Node("n1", "a:1"), target()), (Node("n1", "b:1"), target())]

    assert list(names_of(written).values()) == ["rank-0_n1_812.json.gz", "rank-0_n1-2_812.json.gz"]


def test_a_process_without_a_pid_of_ours_has_its_own() -> None:
    assert list(names_of([(Node("n1", "a:1"), target(pid=None, rank=None))]).values()) == ["n1_7.json.gz"]
