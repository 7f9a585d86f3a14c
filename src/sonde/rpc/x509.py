"""X.509 certificates and revocation lists, read from their DER (RFC 5280, X.690): what TLS itself does not check.

    -----BEGIN CERTIFICATE-----           SEQUENCE 30 82 01 6b
    MIIBazCCARGgAwIBAgIUQ0…        →        SEQUENCE 30 82 01 11                 what is signed
    -----END CERTIFICATE-----                 [0] { INTEGER 2 }                 version 3
                                              INTEGER 4386…                     serial number
                                              SEQUENCE { 1.2.840.10045.4.3.2 }  ecdsa-with-SHA256
                                              SEQUENCE { … CN=authority }       issuer
                                              …

Nothing is verified here: signatures are OpenSSL's matter. A parser returns, or raises ParseError and nothing else.
"""

from __future__ import annotations

import binascii
import re
import socket
from collections.abc import Iterator
from typing import NamedTuple

from sonde.errors import ParseError
from sonde.rpc.der import (
    BITS,
    BOOLEAN,
    INTEGER,
    OCTETS,
    OID,
    SEQUENCE,
    SET,
    TIME,
    UTC_TIME,
    Malformed,
    Reader,
    identifier,
    integer,
    moment,
)

_STRINGS = {0x0C: "utf-8", 0x12: "ascii", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be"}
_STRINGS |= {0x1E: "utf-16-be"}

# The digest of each signature, by the OID of RFC 3279, 4055, 5758, 8410; of RSASSA-PSS it is a parameter.
_PSS = "1.2.840.113549.1.1.10"
SIGNATURES = {
    "1.2.840.113549.1.1.2": "RSA-MD2",
    "1.2.840.113549.1.1.3": "RSA-MD4",
    "1.2.840.113549.1.1.4": "RSA-MD5",
    "1.2.840.113549.1.1.5": "RSA-SHA1",
    "1.3.14.3.2.29": "RSA-SHA1",
    "1.2.840.113549.1.1.14": "RSA-SHA224",
    "1.2.840.113549.1.1.11": "RSA-SHA256",
    "1.2.840.113549.1.1.12": "RSA-SHA384",
    "1.2.840.113549.1.1.13": "RSA-SHA512",
    "1.2.840.10045.4.1": "ECDSA-SHA1",
    "1.2.840.10045.4.3.1": "ECDSA-SHA224",
    "1.2.840.10045.4.3.2": "ECDSA-SHA256",
    "1.2.840.10045.4.3.3": "ECDSA-SHA384",
    "1.2.840.10045.4.3.4": "ECDSA-SHA512",
    "1.2.840.10040.4.3": "DSA-SHA1",
    "2.16.840.1.101.3.4.3.2": "DSA-SHA256",
    "1.3.101.112": "Ed25519",
    "1.3.101.113": "Ed448",
}
_DIGESTS = {
    "1.2.840.113549.2.5": "MD5",
    "1.3.14.3.2.26": "SHA1",
    "2.16.840.1.101.3.4.2.4": "SHA224",
    "2.16.840.1.101.3.4.2.1": "SHA256",
    "2.16.840.1.101.3.4.2.2": "SHA384",
    "2.16.840.1.101.3.4.2.3": "SHA512",
}
_RSA, _EC = ("1.2.840.113549.1.1.1", _PSS), "1.2.840.10045.2.1"
_CURVES = {
    "1.2.840.10045.3.1.1": ("P-192", 192),
    "1.3.132.0.33": ("P-224", 224),
    "1.2.840.10045.3.1.7": ("P-256", 256),
    "1.3.132.0.34": ("P-384", 384),
    "1.3.132.0.35": ("P-521", 521),
    "1.3.132.0.10": ("secp256k1", 256),
}
_EDWARDS = {"1.3.101.112": ("Ed25519", 256), "1.3.101.113": ("Ed448", 456)}

_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
}
_USAGES = (  # bit 0 first (RFC 5280, 4.2.1.3)
    "digitalSignature",
    "nonRepudiation",
    "keyEncipherment",
    "dataEncipherment",
    "keyAgreement",
    "keyCertSign",
    "cRLSign",
    "encipherOnly",
    "decipherOnly",
)
_PURPOSES = {"1.3.6.1.5.5.7.3.1": "serverAuth", "1.3.6.1.5.5.7.3.2": "clientAuth", "2.5.29.37.0": "any"}
_BASIC_CONSTRAINTS, _KEY_USAGE, _PURPOSE, _ALTERNATIVE = "2.5.29.19", "2.5.29.15", "2.5.29.37", "2.5.29.17"

_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s(.*?)-----END \1-----", re.DOTALL)


class Key(NamedTuple):
    kind: str  # `RSA`, `EC P-256`, `Ed25519`, or the OID of what is not known
    bits: int  # 0: not known


class Certificate(NamedTuple):
    version: int
    serial: int
    signature: str  # `ECDSA-SHA256`; the OID of one that is not known
    issuer: str  # `O=cluster, CN=authority`
    subject: str
    issuer_der: bytes  # to be compared: two names that read alike may differ
    subject_der: bytes
    users: tuple[str, ...]  # every CN of the subject
    not_before: int  # seconds since the epoch
    not_after: int
    key: Key
    authority: bool  # the CA bit of basicConstraints
    usage: frozenset[str] | None  # None: there is no keyUsage
    purposes: frozenset[str] | None  # of extendedKeyUsage; None: for everything
    names: tuple[str, ...]  # of subjectAltName: `DNS:n1.cluster`, `IP:10.0.0.1`

    @property
    def user(self) -> str:
        """The one CN; empty when there is none, or more than one to choose from."""
        return self.users[0] if len(self.users) == 1 else ""


class RevocationList(NamedTuple):
    signature: str
    issuer: str
    issuer_der: bytes
    this_update: int  # seconds since the epoch
    next_update: int | None  # None: it does not say
    serials: frozenset[int]


def parse_pem(text: bytes, label: str, source: str) -> list[bytes]:
    """The DER of every block with this label, `CERTIFICATE` or `X509 CRL`, in order; an empty list for none."""
    found = []
    for name, body in _PEM.findall(text):
        if name == label.encode():
            try:
                found.append(binascii.a2b_base64(b"".join(body.split()), strict_mode=True))
            except ValueError as error:
                raise ParseError(source, body[:40], str(error)) from None
    return found


def parse_certificate(der: bytes, source: str = "certificate") -> Certificate:
    try:
        return _certificate(der)
    except Malformed as error:
        raise ParseError(source, der[:32].hex(), str(error)) from None


def parse_revocation_list(der: bytes, source: str = "revocation list") -> RevocationList:
    try:
        return _revocation_list(der)
    except Malformed as error:
        raise ParseError(source, der[:32].hex(), str(error)) from None


def _signed(der: bytes) -> tuple[Reader, bytes]:
    """What is signed, and the name of the algorithm, which stands inside a second time."""
    outer = Reader(der)
    parts = outer.inside()
    outer.end()
    body, algorithm = parts.inside(), parts.whole(SEQUENCE)
    parts.take(BITS)
    parts.end()
    return body, algorithm


def _certificate(der: bytes) -> Certificate:
    body, algorithm = _signed(der)
    version = 1
    if body.tag == 0xA0:
        version = integer(body.inside(0xA0)) + 1
    serial = integer(body)
    _same(body.whole(SEQUENCE), algorithm)
    issuer_der = body.whole(SEQUENCE)
    validity = body.inside()
    not_before, not_after = moment(validity), moment(validity)
    subject_der = body.whole(SEQUENCE)
    subject = list(_attributes(subject_der))
    key = _key(body.inside())
    for unique_id in (0x81, 0x82):  # version 2 had them
        if body.tag == unique_id:
            body.element()
    extensions = _extensions(body.inside(0xA3)) if body.tag == 0xA3 else {}
    body.end()
    return Certificate(
        version=version,
        serial=serial,
        signature=_signature(Reader(algorithm)),
        issuer=_text(_attributes(issuer_der)),
        subject=_text(subject),
        issuer_der=issuer_der,
        subject_der=subject_der,
        users=tuple(value for name, value in subject if name == "CN"),
        not_before=not_before,
        not_after=not_after,
        key=key,
        authority=_is_authority(extensions.get(_BASIC_CONSTRAINTS)),
        usage=_usage(extensions.get(_KEY_USAGE)),
        purposes=_purposes(extensions.get(_PURPOSE)),
        names=tuple(_alternatives(extensions.get(_ALTERNATIVE))),
    )


def _revocation_list(der: bytes) -> RevocationList:
    body, algorithm = _signed(der)
    if body.tag == INTEGER:
        integer(body)  # the version: 2, or 1 and not written
    _same(body.whole(SEQUENCE), algorithm)
    issuer_der = body.whole(SEQUENCE)
    this_update = moment(body)
    next_update = moment(body) if body.tag in (UTC_TIME, TIME) else None
    serials = []
    if body.tag == SEQUENCE:
        entries = body.inside()
        while entries:
            serials.append(integer(entries.inside()))
    signature, issuer = _signature(Reader(algorithm)), _text(_attributes(issuer_der))
    return RevocationList(signature, issuer, issuer_der, this_update, next_update, frozenset(serials))


def _same(inner: bytes, outer: bytes) -> None:
    if inner != outer:
        raise Malformed("two algorithms for one signature")


def _attributes(name: bytes) -> Iterator[tuple[str, str]]:
    """`("CN", "ada")` and so on, in the order of a name."""
    sets = Reader(name).inside()
    while sets:
        attributes = sets.inside(SET)
        while attributes:
            attribute = attributes.inside()
            oid = identifier(attribute)
            yield _NAMES.get(oid, oid), _string(*attribute.element())


def _string(tag: int, contents: bytes) -> str:
    try:
        return contents.decode(_STRINGS[tag])
    except KeyError:
        raise Malformed(f"tag {tag:#x} where text belongs") from None
    except UnicodeDecodeError:
        raise Malformed("text that cannot be decoded") from None


def _text(attributes: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={value if value.isprintable() else repr(value)}" for name, value in attributes)


def _signature(reader: Reader) -> str:
    algorithm = reader.inside()
    oid = identifier(algorithm)
    if oid != _PSS:
        return SIGNATURES.get(oid, oid)
    digest = "SHA1"  # what is meant when nothing is said (RFC 4055, 3.1)
    if algorithm.tag == SEQUENCE:
        parameters = algorithm.inside()
        if parameters.tag == 0xA0:
            name = identifier(parameters.inside(0xA0).inside())
            digest = _DIGESTS.get(name, name)
    return f"RSA-PSS-{digest}"


def _key(reader: Reader) -> Key:
    algorithm = reader.inside()
    bits = reader.take(BITS)
    oid = identifier(algorithm)
    if oid in _RSA:
        return Key("RSA", integer(Reader(bits[1:]).inside()).bit_length())
    if oid == _EC and algorithm.tag == OID:
        curve = identifier(algorithm)
        name, size = _CURVES.get(curve, (curve, 0))
        return Key(f"EC {name}", size)
    return Key(*_EDWARDS.get(oid, (oid, 0)))


def _extensions(reader: Reader) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    extensions = reader.inside()
    while extensions:
        extension = extensions.inside()
        oid = identifier(extension)
        if extension.tag == BOOLEAN:
            extension.element()  # critical: OpenSSL refuses the critical ones that it does not know
        if oid in found:
            raise Malformed(f"the extension {oid} twice")
        found[oid] = extension.take(OCTETS)
    return found


def _is_authority(contents: bytes | None) -> bool:
    if contents is None:
        return False
    constraints = Reader(contents).inside()
    return constraints.tag == BOOLEAN and constraints.take(BOOLEAN) != b"\0"


def _usage(contents: bytes | None) -> frozenset[str] | None:
    if contents is None:
        return None
    bits = Reader(contents).take(BITS)[1:]  # before them, how many of the last byte are not used
    places = [place for place in range(8 * len(bits)) if bits[place // 8] & 0x80 >> place % 8]
    return frozenset(_USAGES[place] for place in places if place < len(_USAGES))


def _purposes(contents: bytes | None) -> frozenset[str] | None:
    if contents is None:
        return None
    reader, found = Reader(contents).inside(), []
    while reader:
        oid = identifier(reader)
        found.append(_PURPOSES.get(oid, oid))
    return frozenset(found)


def _alternatives(contents: bytes | None) -> Iterator[str]:
    """The names and addresses of a host; other kinds of names are of no use to us."""
    reader = Reader(contents).inside() if contents is not None else Reader(b"")
    while reader:
        tag, value = reader.element()
        if tag == 0x82:
            yield f"DNS:{value.decode('ascii', 'backslashreplace')}"
        elif tag == 0x87 and len(value) in (4, 16):
            yield f"IP:{socket.inet_ntop(socket.AF_INET if len(value) == 4 else socket.AF_INET6, value)}"
