"""What an HTTP server's answer means for a delivery: taken, try again, when, or give up and why.

HTTP/1.1 429 Too Many Requests
Retry-After: 30                      or a date (RFC 9110, 10.2.3)
"""

from __future__ import annotations

import time
from typing import NamedTuple

from sonde.errors import SinkError
from sonde.httpclient import Reply

_LONGEST_WAIT = 300.0  # seconds a server may ask for: a slip of the pen must not silence a node for a day
_SHOWN = 200  # characters of the server's own words
_WRONG_PATH = "check the path of the URL"


class Keys(NamedTuple):
    """The keys of a sink that a refusal sends its user to."""

    credentials: str = "bearer_token_file, or username and password_file"
    too_large: str = "lower max_samples_per_request"


_KEYS = Keys()


def is_taken(reply: Reply) -> bool:
    """2xx, and not a web page: a server of those says 200 to everything and keeps nothing."""
    return 200 <= reply.status < 300 and not _is_page(reply)


def _is_page(reply: Reply) -> bool:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/html"


def hint(reply: Reply, keys: Keys) -> str:
    """The next step after a refusal for good; empty when the server's own words must do."""
    status = reply.status
    if 200 <= status < 300:
        return "this is a web page: check the URL"
    if 300 <= status < 400:
        return f"the server says to use {reply.headers.get('location', 'another')}"
    # VictoriaMetrics answers 400 "unsupported path requested" where others say 404.
    if status in (404, 405) or (status == 400 and b"unsupported path" in reply.body):
        return _WRONG_PATH
    return {
        401: f"check {keys.credentials}",
        403: f"check {keys.credentials}, and what this user may do there",
        413: keys.too_large,
    }.get(status, "")


def refusal(url: str, reply: Reply) -> SinkError:
    """The error for an answer that is not `is_taken`: overload and server errors pass, everything else stays."""
    status = reply.status
    said = " ".join(reply.body.decode("utf-8", "replace").split())[:_SHOWN]
    message = f"{url}: {status}: {said}" if said else f"{url}: status {status}"
    if status == 429 or status >= 500:
        return SinkError(message, retry=True, retry_after=retry_after(reply))
    return SinkError(message, retry=False, hint=hint(reply, _KEYS))


def retry_after(reply: Reply) -> float:
    """Seconds until the server wants to hear from us again; 0 when it does not say."""
    text = reply.headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), _LONGEST_WAIT)
    try:
        due = time.strptime(text, "%a, %d %b %Y %H:%M:%S GMT")
        import calendar  # strptime has loaded it

        return min(max(calendar.timegm(due) - time.time(), 0.0), _LONGEST_WAIT)
    except (ValueError, OverflowError):
        return 0.0
