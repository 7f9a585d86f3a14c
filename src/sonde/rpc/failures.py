"""What went wrong with a call, in words: from errno(3), getaddrinfo(3) and OpenSSL's reasons to the error tree.

One place for those who wait for a reply (rpc/client.py) and those who do not (rpc/exchange.py).
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from sonde.address import Address
from sonde.errors import Denied, RpcError, TimedOut, Unavailable

if TYPE_CHECKING:
    import ssl

_START = "is the daemon running? start it with: sonde daemon"
# Alerts, as OpenSSL names them, about the certificate that the other side was shown.
_OF_OURS = (
    "ALERT_ACCESS_DENIED",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE",
    "ALERT_HANDSHAKE",
    "ALERT_UNKNOWN_CA",
    "ALERT_UNSUPPORTED_CERTIFICATE",
)
_NOT_TLS = ("HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE", "WRONG_VERSION_NUMBER")


def late(where: Address, timeout: float) -> TimedOut:
    return TimedOut(f"{where} did not answer within {timeout:g} s")


def unreachable(where: Address, error: OSError | ValueError) -> Unavailable:
    """Why no connection was made. A ValueError is a host that cannot be one: a label of 64 characters, a zero."""
    if isinstance(error, PermissionError):
        return Denied(f"this user may not connect to {where}")
    if isinstance(error, socket.gaierror):
        return Unavailable(
            f"the host {where.host} is not found: {error.strerror}",
            hint=f"is the name right? what this machine knows of it is shown by: getent ahosts {where.host}",
        )
    if isinstance(error, OSError):
        return Unavailable(f"nothing answers on {where}: {error.strerror or error}", hint=_START)
    return Unavailable(f"{where.host!r} is not the name of a host: {error}", hint="write 127.0.0.1:1778 or node01:1778")


def closed(where: Address, size: int, count: int) -> RpcError:
    """The other side has ended the connection before its reply was complete."""
    return RpcError(
        "closed",
        f"{where} closed the connection after {size} of {count} bytes",
        hint="a dynolog daemon does that with a function it does not know",
    )


def closed_unanswered(where: Address) -> Unavailable:
    """The same where TLS was to be spoken, before the first byte of an answer."""
    return Unavailable(
        f"{where} closed the connection before it answered",
        hint="it may not speak TLS, or may want another certificate of ours: its log has the reason",
    )


def refused_by_tls(where: Address, error: ssl.SSLError) -> Unavailable:
    """Why TLS did not come about, or ended: their certificate, ours, or no TLS at all."""
    message = getattr(error, "verify_message", "")
    if message:
        return Unavailable(
            f"{where}: the daemon's certificate is refused: {message}",
            hint="it must be of an authority we trust and carry the name that was asked for",
        )
    reason = error.reason or ""
    if any(word in reason for word in _OF_OURS):
        # The daemon's alert (RFC 8446, 6.2). In TLS 1.3 it comes after the handshake, in place of the answer.
        return Denied(
            f"{where}: the daemon refuses our certificate: {_words(reason)}",
            hint="show one of an authority that the daemon trusts, and that has not expired",
        )
    if reason in _NOT_TLS:
        return Unavailable(f"{where} does not speak TLS", hint="is it another port, or a daemon without certificates?")
    return Unavailable(f"{where}: TLS: {_words(reason) or error}")


def _words(reason: str) -> str:
    """`TLSV13_ALERT_CERTIFICATE_REQUIRED` as `tlsv13 alert certificate required`."""
    return reason.replace("_", " ").lower()
