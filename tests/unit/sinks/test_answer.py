"""What a server's refusal means."""

from __future__ import annotations

import time

import pytest

from sonde.httpclient import Reply
from sonde.sinks.answer import Keys, hint, is_taken, refusal, retry_after

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


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        (Reply(404, {}, b""), "check the path of the URL"),
        (Reply(400, {}, b'remoteAddr: "10.0.0.1"; unsupported path requested: "/write"'), "check the path of the URL"),
        (Reply(400, {}, b"out of order sample"), ""),
        (Reply(401, {}, b""), "check headers"),
        (Reply(403, {}, b""), "check headers, and what this user may do there"),
        (Reply(413, {}, b""), "smaller"),
    ],
)
def test_the_next_step_names_the_keys_of_the_sink(reply: Reply, advice: str) -> None:
    assert hint(reply, Keys(credentials="headers", too_large="smaller")) == advice


def test_a_web_page_is_no_success() -> None:
    page = Reply(200, {"content-type": "Text/HTML; charset=utf-8"}, b"<html>welcome")

    assert is_taken(Reply(200, {"content-type": "application/json"}, b"{}"))
    assert is_taken(Reply(204, {}, b""))
    assert not is_taken(page)
    assert not refusal(URL, page).retry
    assert refusal(URL, page).hint == "this is a web page: check the URL"


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
