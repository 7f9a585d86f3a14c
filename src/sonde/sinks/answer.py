"""What an HTTP server's refusal means for a delivery: try again, when, or give up and why.

HTTP/1.1 429 Too Many Requests
Retry-After: 30                      or a date (RFC 9110, 10.2.3)
"""

from __future__ import annotations

import time

from sonde.errors import SinkError
from sonde.httpclient import Reply

_LONGEST_WAIT = 300.0  # seconds a server may ask for: a slip of the pen must not silence a node for a day
_SHOWN = 200  # characters of the server's own words
_HINTS = {
    401: "check bearer_token_file, or username and password_file",
    403: "check bearer_token_file, or username and password_file, and what this user may do there",
    404: "check the path of the URL",
    405: "check the path of the URL",
    413: "lower max_samples_per_request",
}


def refusal(url: str, reply: Reply) -> SinkError:
    """The error for an answer that is not 2xx: overload and server errors pass, everything else stays."""
    status = reply.status
    said = " ".join(reply.body.decode("utf-8", "replace").split())[:_SHOWN]
    message = f"{url}: {status}: {said}" if said else f"{url}: status {status}"
    if status == 429 or status >= 500:
        return SinkError(message, retry=True, retry_after=retry_after(reply))
    if 300 <= status < 400:
        return SinkError(
            message, retry=False, hint=f"the server says to use {reply.headers.get('location', 'another')}"
        )
    return SinkError(message, retry=False, hint=_HINTS.get(status, ""))


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
