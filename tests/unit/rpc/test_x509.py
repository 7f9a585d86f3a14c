"""The reader of certificates, beside another one (the package cryptography), and on bytes that are none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.authority import P256, Authority, openssl

from sonde.errors import ParseError
from sonde.rpc.x509 import Key, parse_certificate, parse_pem, parse_revocation_list

if TYPE_CHECKING:
    from tests.unit.rpc.conftest import Stock

KINDS = ["server", "rsa", "ed25519", "p224", "sha1", "md5", "v1", "ca-as-leaf", "no-usage", "for-servers", "two-cns"]


def der_of(path: str, label: str = "CERTIFICATE") -> bytes:
    return parse_pem(Path(path).read_bytes(), label, path)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_certificate_reads_as_another_reader_reads_it(stock: Stock, kind: str) -> None:
    der = der_of(stock[kind].certificate)

    found = parse_certificate(der)

    other = x509.load_der_x509_certificate(der)
    assert found.version == (3 if other.version is x509.Version.v3 else 1)
    assert found.serial == other.serial_number
    assert found.users == tuple(
        attribute.value for attribute in other.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    )
    assert found.not_before == int(other.not_valid_before_utc.timestamp())
    assert found.not_after == int(other.not_valid_after_utc.timestamp())
    assert found.issuer_der == other.issuer.public_bytes()
    assert found.subject_der == other.subject.public_bytes()


@pytest.mark.parametrize(
    ("kind", "signature"),
    [("server", "ECDSA-SHA256"), ("sha1", "ECDSA-SHA1"), ("md5", "RSA-MD5"), ("rsa", "ECDSA-SHA256")],
)
def test_the_signature_is_named(stock: Stock, kind: str, signature: str) -> None:
    assert parse_certificate(der_of(stock[kind].certificate)).signature == signature


@pytest.mark.parametrize("kind", ["server", "rsa", "short", "p224", "ed25519"])
def test_the_key_is_measured(stock: Stock, kind: str) -> None:
    der = der_of(stock[kind].certificate)
    public = x509.load_der_x509_certificate(der).public_key()

    key = parse_certificate(der).key

    if isinstance(public, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        assert key.bits == public.key_size
    else:
        assert key == Key("Ed25519", 256)


def test_names_usage_and_purposes_are_those_that_were_asked_for(stock: Stock) -> None:
    found = parse_certificate(der_of(stock["for-servers"].certificate))

    assert found.names == ("DNS:localhost", "IP:127.0.0.1", "IP:::1")
    assert found.usage == frozenset({"digitalSignature"})
    assert found.purposes == frozenset({"serverAuth"})
    assert not found.authority


def test_an_authority_can_sign(stock: Stock) -> None:
    found = parse_certificate(der_of(stock.authority.ca))

    assert found.authority
    assert found.usage == frozenset({"keyCertSign", "cRLSign"})
    assert found.issuer == found.subject == "CN=authority"


def test_the_digest_of_pss_is_found_among_its_parameters(tmp_path: Path) -> None:
    files = ["-keyout", f"{tmp_path}/key", "-out", f"{tmp_path}/crt"]
    openssl(
        "req", "-x509", "-newkey", "rsa:3072", "-nodes", *files, "-subj", "/CN=x", "-sigopt", "rsa_padding_mode:pss"
    )

    assert parse_certificate(der_of(f"{tmp_path}/crt")).signature == "RSA-PSS-SHA256"


def test_a_date_beyond_2049_is_understood(tmp_path: Path) -> None:
    authority = Authority(tmp_path, key=P256, options=("-days", "20000"))

    assert parse_certificate(der_of(authority.ca)).not_after > 2_524_608_000  # 2050


def test_two_users_in_one_name_are_nobody(stock: Stock) -> None:
    found = parse_certificate(der_of(stock["two-cns"].certificate))

    assert found.users == ("ada", "root")
    assert found.user == ""


def test_a_revocation_list_reads_as_another_reader_reads_it(stock: Stock) -> None:
    der = der_of(stock.crl, "X509 CRL")

    found = parse_revocation_list(der)

    other = x509.load_der_x509_crl(der)
    assert found.serials == {entry.serial_number for entry in other}
    assert found.serials == {parse_certificate(der_of(stock["revoked"].certificate)).serial}
    assert found.issuer_der == other.issuer.public_bytes()
    assert found.this_update == int(other.last_update_utc.timestamp())
    assert other.next_update_utc is not None
    assert found.next_update == int(other.next_update_utc.timestamp())


def test_pem_that_is_not_base64_is_a_parse_error() -> None:
    with pytest.raises(ParseError, match=r"some\.crt"):
        parse_pem(b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n", "CERTIFICATE", "some.crt")


def test_blocks_of_another_kind_are_passed_over(stock: Stock) -> None:
    text = Path(stock["server"].key).read_bytes() + Path(stock["server"].certificate).read_bytes()

    assert len(parse_pem(text, "CERTIFICATE", "x")) == 1
    assert parse_pem(text, "X509 CRL", "x") == []


@given(data=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_bytes_are_a_certificate_or_a_parse_error(data: bytes) -> None:
    for parse in (parse_certificate, parse_revocation_list):
        with pytest.raises(ParseError):
            parse(data)


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_a_certificate_with_some_bytes_changed_parses_or_is_a_parse_error(stock: Stock, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*KINDS[:3], "list"]))
    der = bytearray(der_of(stock.crl, "X509 CRL") if kind == "list" else der_of(stock[kind].certificate))
    for _ in range(data.draw(st.integers(1, 4))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 8))
    text = bytes(der[: len(der) - cut]) + os.urandom(data.draw(st.integers(0, 2)))

    try:
        parsed = parse_revocation_list(text) if kind == "list" else parse_certificate(text)
    except ParseError:
        return

    assert parsed.issuer_der
