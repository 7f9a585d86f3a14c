"""What is asked of certificates: each flaw by its name, on certificates that openssl made."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.authority import P224, P256, SHORT_RSA, Authority

from sonde.rpc.certificates import Flaw, Role, flaws_of_authority, flaws_of_leaf, flaws_of_list, is_revoked
from sonde.rpc.tls import read_certificates, read_lists

if TYPE_CHECKING:
    from tests.unit.rpc.conftest import Stock


def flaws(path: str, role: Role = "client") -> list[Flaw]:
    return list(flaws_of_leaf(read_certificates(path)[0], role, time.time()))


@pytest.mark.parametrize("role", ["server", "client"])
@pytest.mark.parametrize("kind", ["server", "rsa", "ed25519"])
def test_a_good_certificate_has_no_flaw(stock: Stock, kind: str, role: Role) -> None:
    assert flaws(stock[kind].certificate, role) == []


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("expired", "expired", "has expired on 20"),
        ("early", "early", "is not valid before 2040-01-01 00:00:00Z"),
        ("short", "key", "has an RSA key of 2048 bits; 3072 are needed"),
        ("p224", "key", "has an EC P-224 key of 224 bits; 256 are needed"),
        ("sha1", "digest", "is signed with ECDSA-SHA1"),
        ("md5", "digest", "is signed with RSA-MD5"),
        ("ca-as-leaf", "authority", "is an authority's own (CA:TRUE)"),
        ("no-usage", "usage", "has no keyUsage"),
        ("cannot-sign", "usage", "has a keyUsage without digitalSignature"),
        ("for-servers", "purpose", "is not for a client: extendedKeyUsage lacks clientAuth"),
        ("no-cn", "user", "names no user"),
        ("two-cns", "user", "names more than one user"),
    ],
)
def test_each_defect_is_one_flaw_with_words_of_its_own(stock: Stock, kind: str, code: str, words: str) -> None:
    found = flaws(stock[kind].certificate)

    assert [flaw.code for flaw in found] == [code]
    assert words in found[0].text
    assert found[0].hint


def test_a_certificate_of_version_1_also_lacks_what_only_extensions_say(stock: Stock) -> None:
    assert [flaw.code for flaw in flaws(stock["v1"].certificate)] == ["version", "usage"]


def test_a_server_is_for_servers_and_has_a_name(stock: Stock) -> None:
    assert [flaw.code for flaw in flaws(stock["for-clients"].certificate, "server")] == ["purpose"]
    assert [flaw.code for flaw in flaws(stock["nameless"].certificate, "server")] == ["names"]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, None),
        ({"usage": ""}, "usage"),
        ({"usage": "keyUsage=keyCertSign"}, "usage"),
        ({"key": SHORT_RSA}, "key"),
        ({"key": P224}, "key"),
        ({"options": ("-sha1", "-days", "2")}, "digest"),
    ],
)
def test_an_authority_must_be_able_to_sign(tmp_path: Path, settings: dict[str, object], code: str | None) -> None:
    authority = Authority(tmp_path, **settings)  # type: ignore[arg-type]

    found = list(flaws_of_authority(read_certificates(authority.ca)[0], time.time()))

    assert [flaw.code for flaw in found] == ([code] if code else [])


def test_an_authority_of_yesterday_has_expired(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.expire()

    found = list(flaws_of_authority(read_certificates(authority.ca)[0], time.time()))

    assert [flaw.code for flaw in found] == ["expired"]


def test_a_leaf_is_no_authority(stock: Stock) -> None:
    found = flaws_of_authority(read_certificates(stock["server"].certificate)[0], time.time())

    assert [flaw.code for flaw in found] == ["no-authority", "usage"]


def test_a_revocation_list_must_be_fresh_and_of_our_authority(tmp_path: Path, stock: Stock) -> None:
    authority = Authority(tmp_path / "one", key=P256)
    stale = authority.revoking(dates=("-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z"))
    early = authority.revoking(name="early.crl", dates=("-crl_lastupdate", "20400101000000Z", "-crldays", "1"))
    ours = read_certificates(authority.ca)

    assert [flaw.code for flaw in flaws_of_list(read_lists(stale)[0], ours, time.time())] == ["expired"]
    assert [flaw.code for flaw in flaws_of_list(read_lists(early)[0], ours, time.time())] == ["early"]
    assert [flaw.code for flaw in flaws_of_list(read_lists(stock.crl)[0], (), time.time())] == ["issuer"]
    assert list(flaws_of_list(read_lists(stock.crl)[0], read_certificates(stock.authority.ca), time.time())) == []


def test_a_serial_number_is_revoked_for_its_own_authority_only(stock: Stock) -> None:
    revoked = read_certificates(stock["revoked"].certificate)[0]
    lists = read_lists(stock.crl)

    assert is_revoked(revoked, lists)
    assert not is_revoked(read_certificates(stock["server"].certificate)[0], lists)
    assert not is_revoked(revoked._replace(issuer_der=b"another"), lists)
