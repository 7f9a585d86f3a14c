"""What is asked of certificates, beside what OpenSSL verifies: version, digest, key, validity, use (docs/adr/0021).

    flaws_of_leaf(certificate, "server", now)   →   Flaw("key", "has an RSA key of 2048 bits", "make one of …")

A flaw reads as the end of a sentence that begins with the name of a file, or with `the client's certificate`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from sonde.rpc.x509 import Certificate, Key, RevocationList

Role = Literal["server", "client"]

SMALLEST_RSA = 3072  # bits; as strong as P-256 (NIST SP 800-57 part 1, table 2)
SMALLEST_EC = 256
_CURVES = ("EC P-256", "EC P-384", "EC P-521")  # those TLS 1.3 signs with (RFC 8446, 4.2.3)
_EDWARDS = ("Ed25519", "Ed448")
_DIGESTS = ("SHA256", "SHA384", "SHA512")
_MAKE = "make one with `sonde certs host` or `sonde certs client`"
_SIGN = "an authority has keyUsage keyCertSign and cRLSign: make one with `sonde certs init`"


class Flaw(NamedTuple):
    code: str
    text: str
    hint: str


def day(seconds: int) -> str:
    """`2026-11-15 21:42:38Z`."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds))


def flaws_of_leaf(certificate: Certificate, role: Role, now: float) -> Iterator[Flaw]:
    """Why a certificate may not speak for a server or a client; nothing for a good one."""
    yield from _strength(certificate)
    yield from _validity(certificate, now)
    if certificate.authority:
        yield Flaw("authority", "is an authority's own (CA:TRUE): it signs others and speaks for nobody", _MAKE)
    if certificate.usage is None:
        yield Flaw("usage", "has no keyUsage: it does not say what it may be used for", _MAKE)
    elif "digitalSignature" not in certificate.usage:
        yield Flaw("usage", "has a keyUsage without digitalSignature, which TLS needs", _MAKE)
    purpose = f"{role}Auth"
    if certificate.purposes is not None and not {purpose, "any"} & certificate.purposes:
        yield Flaw("purpose", f"is not for a {role}: extendedKeyUsage lacks {purpose}", _MAKE)
    if role == "server" and not certificate.names:
        yield Flaw("names", "names no host: it has no subjectAltName", "sonde certs host NODE --name … --address …")
    if role == "client" and not certificate.user:
        text = "names no user: it has no CN" if not certificate.users else "names more than one user: its CN is not one"
        yield Flaw("user", text, "the CN is the name of the user it vouches for: sonde certs client USER")


def flaws_of_authority(certificate: Certificate, now: float) -> Iterator[Flaw]:
    yield from _strength(certificate)
    yield from _validity(certificate, now)
    if not certificate.authority:
        yield Flaw("no-authority", "is no authority's: basicConstraints does not say CA:TRUE", _SIGN)
    missing = {"keyCertSign", "cRLSign"} - (certificate.usage or frozenset())
    if missing:
        yield Flaw("usage", f"has a keyUsage without {' and '.join(sorted(missing))}", _SIGN)


def flaws_of_list(found: RevocationList, authorities: Sequence[Certificate], now: float) -> Iterator[Flaw]:
    digest = _digest(found.signature)
    if digest:
        yield Flaw("digest", digest, "let the authority write a new one, signed with SHA-256")
    if not any(found.issuer_der == authority.subject_der for authority in authorities):
        yield Flaw("issuer", f"is of another authority: {found.issuer}", "copy the ca.crl that belongs to ca.crt")
    if found.this_update > now:
        yield Flaw("early", f"is not valid before {day(found.this_update)}", "is the clock right?")
    if found.next_update is not None and found.next_update < now:
        yield Flaw(
            "expired",
            f"has expired on {day(found.next_update)}: what was revoked since is not in it",
            "copy a new one from the authority; `sonde certs revoke` without a name writes one",
        )


def is_revoked(certificate: Certificate, lists: Iterable[RevocationList]) -> bool:
    return any(found.issuer_der == certificate.issuer_der and certificate.serial in found.serials for found in lists)


def _strength(certificate: Certificate) -> Iterator[Flaw]:
    if certificate.version != 3:
        yield Flaw("version", f"is X.509 version {certificate.version}; 3 is needed", _MAKE)
    digest = _digest(certificate.signature)
    if digest:
        yield Flaw("digest", digest, "sign it with SHA-256 or better")
    key = _weakness(certificate.key)
    if key:
        yield Flaw("key", key, f"use RSA of {SMALLEST_RSA} bits or more, EC of P-256, P-384 or P-521, or Ed25519")


def _digest(signature: str) -> str:
    if signature in _EDWARDS or signature.rpartition("-")[2] in _DIGESTS:
        return ""
    return f"is signed with {signature}, which is not safe: SHA-256 or better is needed"


def _weakness(key: Key) -> str:
    if key.kind == "RSA":
        return f"has an RSA key of {key.bits} bits; {SMALLEST_RSA} are needed" if key.bits < SMALLEST_RSA else ""
    if key.kind in _CURVES or key.kind in _EDWARDS:
        return ""
    if key.kind.startswith("EC ") and 0 < key.bits < SMALLEST_EC:
        return f"has an {key.kind} key of {key.bits} bits; {SMALLEST_EC} are needed"
    return f"has a key of a kind that is not taken: {key.kind}"


def _validity(certificate: Certificate, now: float) -> Iterator[Flaw]:
    if certificate.not_before > now:
        yield Flaw("early", f"is not valid before {day(certificate.not_before)}", "wait, or set the clock right")
    if certificate.not_after < now:
        yield Flaw(
            "expired", f"has expired on {day(certificate.not_after)}", "renew it: sonde certs host|client --force"
        )
