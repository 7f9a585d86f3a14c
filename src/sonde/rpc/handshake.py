"""The other side's certificate: what is asked of it beyond OpenSSL's verification, and what a failed handshake means.

OpenSSL verifies the chain, the dates, the revocation list and the host's name. It takes certificates of version 1,
authorities' own ones and those without keyUsage, so these are looked at afterwards, in DER.
"""

from __future__ import annotations

import socket
import ssl
import time
from functools import lru_cache

from sonde.address import Address
from sonde.errors import Denied, ParseError, SondeError, Unavailable
from sonde.rpc.certificates import Flaw, Role, flaws_of_leaf
from sonde.rpc.verdicts import verdict
from sonde.rpc.x509 import Certificate, parse_certificate
from sonde.tlserrors import Failure, kind_of, reason_of, words

# The daemon's word about our certificate (RFC 8446, 6.2), by a part of OpenSSL's name for the alert. Ours was checked
# when it was loaded, so it is the daemon's list, clock or authority that differs.
_ALERTS = {
    "CERTIFICATE_EXPIRED": "says that our certificate has expired, or its own revocation list has",
    "CERTIFICATE_REVOKED": "refuses our certificate: it is revoked",
    "UNKNOWN_CA": "refuses our certificate: it does not know its authority",
    "UNSUPPORTED_CERTIFICATE": "refuses our certificate: it is not for this use (unsupported certificate)",
    "BAD_CERTIFICATE": "refuses our certificate: it is not valid yet, or too weak (bad certificate)",
    "CERTIFICATE_REQUIRED": "wants a certificate of ours",
    "HANDSHAKE_FAILURE": "has no cipher, curve or kind of signature in common with us",
}


def flaw_of_peer(der: bytes | None, role: Role) -> tuple[Certificate | None, Flaw | None]:
    """A verified peer's certificate and the first thing that is wrong with it."""
    try:
        certificate = _parsed(der or b"")
    except ParseError as error:
        return None, Flaw("malformed", f"cannot be read: {error}", "")
    return certificate, next(flaws_of_leaf(certificate, role, time.time()), None)


@lru_cache(maxsize=256)  # 70 µs, and the same few come again and again
def _parsed(der: bytes) -> Certificate:
    return parse_certificate(der)


def secured(sock: socket.socket, context: ssl.SSLContext, where: Address) -> ssl.SSLSocket:
    """A client's handshake on a connected socket, within its time-out. Raises TimeoutError, Unavailable, Denied."""
    # The request goes out behind the end of the handshake, to which nobody answers: Nagle's algorithm would hold it
    # back until the other side's delayed acknowledgement, 40 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        line = context.wrap_socket(sock, server_hostname=where.host)
    except TimeoutError:
        raise
    except OSError as error:
        raise failure(where, error) from None
    except ValueError as error:
        raise Unavailable(f"{where} cannot be verified: {error}") from None
    try:
        check_server(line.getpeercert(True), where)
    except BaseException:
        line.close()
        raise
    return line


def check_server(der: bytes | None, where: Address) -> None:
    """Refuse a daemon whose certificate has a flaw; `der` is what getpeercert(True) gives after the handshake."""
    _, flaw = flaw_of_peer(der, "server")
    if flaw is not None:
        raise Unavailable(f"the certificate of {where} {flaw.text}", hint=flaw.hint)


def failure(where: Address, error: OSError) -> SondeError:
    """A client's handshake, or what came after it, has failed: in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        found = verdict(error)
        return Unavailable(f"the certificate of {where} {found.text}", hint=found.hint)
    kind = kind_of(error)
    if kind is Failure.REFUSED:
        return _denied(where, error)
    if kind is Failure.PLAIN:
        return Unavailable(
            f"{where} does not speak TLS",
            hint="leave out --certs-dir and $SONDE_CERTS_DIR, or start the daemon there with --certs-dir",
        )
    if kind is Failure.TORN:
        return Unavailable(
            f"{where} closed the connection during the handshake",
            hint="does it speak TLS? a dynolog does not; the log of a sonde daemon has the reason",
        )
    return Unavailable(f"{where}: TLS: {words(error)}")


def _denied(where: Address, error: OSError) -> Denied:
    reason = reason_of(error)
    text = next((text for part, text in _ALERTS.items() if part in reason), f"refuses our certificate: {words(error)}")
    return Denied(f"{where} {text}", hint="the log of the daemon has the reason; `sonde certs show DIR` explains yours")


def refusal(error: OSError) -> str:
    """Why a server's handshake has failed, for its log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate {verdict(error).text}"
    if reason_of(error) == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client shows no certificate"
    kind = kind_of(error)
    if kind is Failure.REFUSED:
        return f"the client refuses our certificate: {words(error)}"
    if kind is Failure.TORN:
        return "the client went away during the handshake"
    return f"not a handshake we understand: {words(error)}"
