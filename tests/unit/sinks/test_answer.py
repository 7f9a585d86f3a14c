"""What a server's refusal means."""

from __future__ import annotations

import time

import pytest

from sonde.httpclient import Reply
from sonde.sinks.answer import refusal, retry_after

URL = "http://victoria:8428/api/v1/write"


@pytest.mark.parametrize(("status", "retry"), [(429, True), (500, True), (503, True), (400, False), (401, False)])
def test_overload_and_server_errors_pass_and_the_rest_stays(status: int, retry: bool) -> None:
    assert refusal(URL, Reply(status, {}, b"")).retry is retry


def test_the_servers_words_and_the_next_step_are_told() -> None:
    error = refusal(URL, Reply(401, {}, b"no\n such   user\n" + b"x" * 1000))

    assert str(error).startswith(f"{URL}: 401: no such user xxx")
    assert len(str(error)) < 300
    assert "bearer_token_file" in error.hint


def test_a_server_that_has_moved_is_named() -> None:
    assert "http://b/write" in refusal(URL, Reply(301, {"location": "http://b/write"}, b"")).hint


def test_a_server_may_say_when_in_seconds_or_by_date() -> None:
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))

    assert retry_after(Reply(429, {"retry-after": "7"}, b"")) == 7
    assert 50 < retry_after(Reply(503, {"retry-after": later}, b"")) <= 60


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0), ("soon", 0), ("-5", 0), ("86400", 300), ("9" * 30, 300), ("Thu, 01 Jan 1970 00:00:00 GMT", 0)],
)
def test_nonsense_and_days_are_not_waited_for(text: str, seconds: float) -> None:
    assert retry_after(Reply(503, {"retry-after": text}, b"")) == seconds
