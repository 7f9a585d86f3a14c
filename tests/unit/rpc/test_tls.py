"""The contexts of a daemon and its clients: every defect of our own files is refused when they are loaded."""

from __future__ import annotations

import os
import pty
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.authority import RSA, SHORT_RSA, USAGE, Authority, openssl

from sonde.errors import ConfigError, Denied
from sonde.rpc.tls import PASSWORD_FILE, client_context, server_context

if TYPE_CHECKING:
    from tests.unit.rpc.conftest import Stock

Directory = Callable[..., Path]


def no_password(path: str) -> str:
    raise AssertionError(f"asked for the password of {path}")


@pytest.mark.parametrize("kind", ["server", "rsa", "ed25519"])
def test_a_good_directory_makes_a_context(directory: Directory, stock: Stock, kind: str) -> None:
    server = server_context(str(directory("server", kind, crl=stock.crl)), password=no_password)
    client = client_context(str(directory("client", kind, crl=stock.crl)), password=no_password)

    for context in (server, client):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
        assert context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    assert client.check_hostname


def test_a_revocation_list_is_optional(directory: Directory) -> None:
    context = server_context(str(directory("server", "server")))

    assert not context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("expired", r"server\.crt has expired on"),
        ("early", r"server\.crt is not valid before 2040"),
        ("short", r"server\.crt has an RSA key of 2048 bits"),
        ("p224", r"server\.crt has an EC P-224 key"),
        ("sha1", r"server\.crt is signed with ECDSA-SHA1"),
        ("v1", r"server\.crt is X\.509 version 1"),
        ("ca-as-leaf", r"server\.crt is an authority's own"),
        ("no-usage", r"server\.crt has no keyUsage"),
        ("for-clients", r"server\.crt is not for a server"),
        ("nameless", r"server\.crt names no host"),
        ("revoked", r"server\.crt is revoked"),
        ("stranger", r"server\.crt is not of an authority that ca\.crt holds"),
        ("impostor", r"server\.crt is not of an authority that ca\.crt holds"),
    ],
)
def test_each_defect_of_our_certificate_is_refused_by_name(
    directory: Directory, stock: Stock, kind: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        server_context(str(directory("server", kind, crl=stock.crl)))

    assert refused.value.hint


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("md5", r"client\.crt is signed with RSA-MD5"),
        ("for-servers", r"client\.crt is not for a client"),
        ("no-cn", r"client\.crt names no user"),
        ("revoked", r"client\.crt is revoked"),
        ("stranger", r"client\.crt is not of an authority"),
    ],
)
def test_each_defect_of_a_clients_certificate_too(directory: Directory, stock: Stock, kind: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        client_context(str(directory("client", kind, crl=stock.crl)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"usage": ""}, r"ca\.crt has a keyUsage without cRLSign and keyCertSign"),
        ({"key": SHORT_RSA}, r"ca\.crt has an RSA key of 2048 bits"),
    ],
)
def test_a_bad_authority_is_refused(tmp_path: Path, settings: dict[str, object], words: str) -> None:
    authority = Authority(tmp_path / "authority", **settings)  # type: ignore[arg-type]
    folder = authority.directory("server", authority.signed("server"), tmp_path / "certs")

    with pytest.raises(ConfigError, match=words):
        server_context(folder)


def test_an_expired_authority_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.signed("server")
    authority.expire()

    with pytest.raises(ConfigError, match=r"ca\.crt has expired on"):
        server_context(authority.directory("server", pair, tmp_path / "certs"))


def test_a_leaf_is_not_taken_for_an_authority(directory: Directory, stock: Stock) -> None:
    with pytest.raises(ConfigError, match=r"ca\.crt is no authority's"):
        server_context(str(directory("server", "server", ca=stock["server"].certificate)))


def test_an_expired_or_foreign_revocation_list_is_refused(directory: Directory, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    stale = authority.revoking(dates=("-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z"))
    folder = authority.directory("server", authority.signed("server"), tmp_path / "stale", crl=stale)

    with pytest.raises(ConfigError, match=r"ca\.crl has expired on 2020-02-01") as refused:
        server_context(folder)
    assert "sonde certs revoke" in refused.value.hint
    forged = Authority(tmp_path / "other", "authority").revoking()
    with pytest.raises(ConfigError, match=r"our ca\.crl is not signed by its authority"):
        server_context(str(directory("server", "server", crl=forged)))


def test_a_certificate_between_ours_and_the_authority_may_stand_behind_ours(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "root")
    extensions = "basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign\n"
    between = authority.signed("between", names="", extensions=extensions)
    deputy = Authority(tmp_path / "deputy")
    for name, path in (("ca.crt", between.certificate), ("ca.key", between.key)):
        (tmp_path / "deputy" / name).write_bytes(Path(path).read_bytes())
    pair = deputy.signed("server")
    Path(pair.certificate).write_text(Path(pair.certificate).read_text() + Path(between.certificate).read_text())

    from_root = server_context(authority.directory("server", pair, tmp_path / "one"))
    from_deputy = server_context(deputy.directory("server", pair, tmp_path / "two"))

    assert [context.cert_store_stats()["x509_ca"] for context in (from_root, from_deputy)] == [1, 1]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_may_read_is_refused(directory: Directory, mode: int) -> None:
    folder = directory("server", "server")
    (folder / "server.key").chmod(mode)

    with pytest.raises(ConfigError, match=rf"server\.key may be read by others: its mode is {mode:o}") as refused:
        server_context(str(folder))

    assert refused.value.hint == f"chmod 600 {folder}/server.key"


def test_a_directory_that_others_may_enter_is_refused(directory: Directory) -> None:
    folder = directory("server", "server")
    folder.chmod(0o755)

    with pytest.raises(ConfigError, match=r"may be read by others: its mode is 755") as refused:
        server_context(str(folder))

    assert refused.value.hint == f"chmod 700 {folder}"


def test_an_authority_that_others_may_change_is_refused(directory: Directory) -> None:
    folder = directory("server", "server")
    (folder / "ca.crt").chmod(0o622)

    with pytest.raises(ConfigError, match=r"ca\.crt may be changed by others"):
        server_context(str(folder))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_refused(directory: Directory) -> None:
    folder = directory("server", "server")
    os.chown(folder / "server.key", 65534, 65534)

    with pytest.raises(ConfigError, match="belongs to uid 65534"):
        server_context(str(folder))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_directory_this_user_may_not_read_is_denied(directory: Directory) -> None:
    folder = directory("client", "root")
    os.seteuid(65534)
    try:
        with pytest.raises(Denied):
            client_context(str(folder))
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", ["server.crt", "server.key", "ca.crt"])
def test_a_missing_file_is_named(directory: Directory, name: str) -> None:
    folder = directory("server", "server")
    (folder / name).unlink()

    with pytest.raises(ConfigError, match=rf"{re.escape(name)} is not there") as refused:
        server_context(str(folder))

    assert "ca.crt" in refused.value.hint


def test_a_missing_directory_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere is not there") as refused:
        client_context(f"{tmp_path}/nowhere")

    assert "sonde certs" in refused.value.hint


@pytest.mark.parametrize("text", [b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"])
def test_a_file_that_holds_no_certificate_is_refused(directory: Directory, text: bytes) -> None:
    folder = directory("server", "server")
    (folder / "server.crt").write_bytes(text)

    with pytest.raises(ConfigError, match=r"server\.crt"):
        server_context(str(folder))


def test_a_key_of_another_certificate_is_refused(directory: Directory, stock: Stock) -> None:
    folder = directory("server", "server")
    (folder / "server.key").write_bytes(Path(stock["root"].key).read_bytes())

    with pytest.raises(ConfigError, match=r"server\.key does not belong to .*server\.crt"):
        server_context(str(folder))


def test_a_file_that_holds_no_key_is_refused(directory: Directory) -> None:
    folder = directory("server", "server")
    (folder / "server.key").write_bytes(b"garbage")

    with pytest.raises(ConfigError, match=r"cannot use .*server\.key"):
        server_context(str(folder))


@pytest.fixture
def locked(directory: Directory, stock: Stock) -> Path:
    """A client's directory with an encrypted key; the password is `open sesame`."""
    folder = directory("client", "root")
    key = f"{folder}/client.key"
    openssl("pkcs8", "-topk8", "-in", stock["root"].key, "-out", key, "-passout", "pass:open sesame")
    Path(key).chmod(0o600)
    return folder


@pytest.fixture
def password_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "password"
    path.touch(mode=0o600)
    monkeypatch.setenv(PASSWORD_FILE, str(path))
    return path


def test_an_encrypted_key_is_opened_with_the_password_of_a_file(locked: Path, password_file: Path) -> None:
    password_file.write_text("open sesame\n")

    assert client_context(str(locked)).verify_mode is ssl.CERT_REQUIRED


def test_a_wrong_password_is_refused(locked: Path, password_file: Path) -> None:
    password_file.write_text("open barley\n")

    with pytest.raises(ConfigError, match=r"the password does not open .*client\.key"):
        client_context(str(locked))


def test_a_password_that_others_may_read_is_refused(locked: Path, password_file: Path) -> None:
    password_file.chmod(0o644)

    with pytest.raises(ConfigError, match="password may be read by others"):
        client_context(str(locked))


_IN_A_SESSION = """
import os, sys
from sonde.errors import ConfigError
if len(sys.argv) > 2:
    os.open(sys.argv[2], os.O_RDWR)  # the first terminal a session opens is its own (tty_ioctl(4))
from sonde.rpc.tls import client_context
try:
    print(type(client_context(sys.argv[1])).__name__, flush=True)
except ConfigError as error:
    print(error, error.hint, flush=True)
"""


def in_a_session(folder: Path, *terminal: str) -> subprocess.Popen[str]:
    environ = {key: value for key, value in os.environ.items() if key != PASSWORD_FILE}
    command = [sys.executable, "-c", _IN_A_SESSION, str(folder), *terminal]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environ
    )


def test_an_encrypted_key_without_a_terminal_says_what_to_do(locked: Path) -> None:
    with in_a_session(locked) as process:
        said, _ = process.communicate(timeout=20)

    assert "client.key is encrypted, and there is no terminal" in said
    assert PASSWORD_FILE in said


def test_an_encrypted_key_asks_for_its_password_on_the_terminal(locked: Path) -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    with in_a_session(locked, os.ttyname(theirs)) as process:
        shown = b""
        deadline = time.monotonic() + 20
        while b"password of" not in shown and time.monotonic() < deadline:
            try:
                shown += os.read(ours, 1000)
            except BlockingIOError:
                time.sleep(0.02)
        os.write(ours, b"open sesame\n")
        said, _ = process.communicate(timeout=20)
    os.close(ours)
    os.close(theirs)

    assert said == "SSLContext\n"
    assert b"sesame" not in shown


def test_an_rsa_authority_signs_for_ec_and_the_other_way_round(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "rsa", key=RSA)
    pair = authority.signed("server", extensions=USAGE)

    assert server_context(authority.directory("server", pair, tmp_path / "certs"))
