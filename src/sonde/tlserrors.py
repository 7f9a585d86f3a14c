"""What a failed connection over TLS means, from the errors of OpenSSL that the ssl module raises.

    SSLError.reason: `TLSV13_ALERT_CERTIFICATE_REQUIRED`, `WRONG_VERSION_NUMBER`

An alert (RFC 8446, 6.2) is the other side's word. With TLS 1.3 one about our certificate comes after our handshake is
done, with the first answer.
"""

from __future__ import annotations

import ssl
from enum import Enum


class Failure(Enum):
    UNTRUSTED = "we refuse their certificate"
    REFUSED = "they refuse our certificate, or want one"
    PLAIN = "they do not speak TLS"
    TORN = "they closed the connection"
    OTHER = "something else"


TORN: tuple[type[OSError], ...] = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED", "DECRYPT_ERROR")
# What OpenSSL says of bytes that are no record of TLS: by the version, the length or the type it reads out of them.
_NO_RECORD = (
    "WRONG_VERSION_NUMBER",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "BAD_RECORD_TYPE",
)


def kind_of(error: OSError) -> Failure:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure.UNTRUSTED
    if isinstance(error, TORN) and not isinstance(error, ConnectionRefusedError):
        return Failure.TORN
    reason = reason_of(error)
    if any(word in reason for word in _ALERTS):
        return Failure.REFUSED
    return Failure.PLAIN if reason in _NO_RECORD else Failure.OTHER


def reason_of(error: Exception) -> str:
    """OpenSSL's name for it; empty for what is not its error."""
    return (error.reason or "") if isinstance(error, ssl.SSLError) else ""


def words(error: Exception) -> str:
    """`TLSV13_ALERT_CERTIFICATE_REQUIRED` as `tlsv13 alert certificate required`; other errors as they say it."""
    reason = reason_of(error) or getattr(error, "strerror", None) or str(error)
    return reason.replace("_", " ").lower() if reason.isupper() else reason
