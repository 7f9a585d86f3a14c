"""The HTTP client over TLS: whom it trusts, who it is, and what it says when that does not work out."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from tests.authority import Authority, Pair, openssl
from tests.receiver import receiving

from sonde.errors import ConfigError, TimedOut, Unavailable
from sonde.httpclient import Client, Tls


@pytest.fixture(scope="session")
def server(authority: Authority) -> Pair:
    return authority.signed("server")


@pytest.fixture(scope="session")
def client(authority: Authority) -> Pair:
    return authority.signed("client")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


def test_a_server_of_a_trusted_authority_is_spoken_to_and_the_connection_kept(
    authority: Authority, server: Pair
) -> None:
    body = b"x" * 300_000  # more than a record of TLS holds, and than the buffers of a socket
    with receiving(server) as there, Client(there.url, tls=Tls(authority.ca)) as sender:
        statuses = [sender.send(body).status for _ in range(3)]

    assert statuses == [200] * 3
    assert [request.body for request in there.received] == [body] * 3
    assert there.connections == 1


def test_a_kept_connection_that_the_server_closed_is_made_anew(authority: Authority, server: Pair) -> None:
    with receiving(server) as there, Client(there.url, tls=Tls(authority.ca)) as sender:
        there.per_connection = 2
        statuses = [sender.send(b"x").status for _ in range(6)]

    assert statuses == [200] * 6
    assert there.connections == 3


def test_a_server_of_another_authority_is_refused(stranger: Authority, server: Pair) -> None:
    with receiving(server) as there, Client(there.url, tls=Tls(stranger.ca)) as sender:
        with pytest.raises(Unavailable, match=r"the server's certificate is refused: unable to get local issuer") as e:
            sender.send(b"x")

    assert "CA file" in e.value.hint


def test_a_server_that_the_system_does_not_trust_is_refused(server: Pair) -> None:
    with receiving(server) as there, Client(there.url) as sender:
        with pytest.raises(Unavailable, match="certificate is refused"):
            sender.send(b"x")


def test_an_expired_certificate_is_refused(authority: Authority) -> None:
    with receiving(authority.signed("expired", days=-1)) as there, Client(there.url, tls=Tls(authority.ca)) as sender:
        with pytest.raises(Unavailable, match="is refused: certificate has expired"):
            sender.send(b"x")


def test_a_certificate_of_another_name_is_refused(authority: Authority) -> None:
    pair = authority.signed("elsewhere", names="DNS:elsewhere.example")
    with receiving(pair) as there, Client(there.url, tls=Tls(authority.ca)) as sender:
        with pytest.raises(Unavailable, match=r"is refused: Hostname mismatch.*'localhost'"):
            sender.send(b"x")


def test_an_address_in_numbers_is_verified_too(authority: Authority, server: Pair) -> None:
    with receiving(server) as there:
        with Client(f"https://127.0.0.1:{there.port}/", tls=Tls(authority.ca)) as sender:
            assert sender.send(b"x").status == 200


def test_a_client_shows_its_certificate(authority: Authority, server: Pair, client: Pair) -> None:
    with receiving(server, client_ca=authority.ca) as there:
        with Client(there.url, tls=Tls(authority.ca, *client)) as sender:
            assert sender.send(b"x").status == 200


def test_certificate_and_key_may_be_in_one_file(
    authority: Authority, server: Pair, client: Pair, tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    both.write_text(Path(client.certificate).read_text() + Path(client.key).read_text())
    with receiving(server, client_ca=authority.ca) as there:
        with Client(there.url, tls=Tls(authority.ca, str(both))) as sender:
            assert sender.send(b"x").status == 200


def test_a_server_that_wants_a_certificate_says_so(authority: Authority, server: Pair) -> None:
    with receiving(server, client_ca=authority.ca) as there:
        with Client(there.url, tls=Tls(authority.ca)) as sender:
            with pytest.raises(
                Unavailable, match=r"the server wants a certificate of ours: .*certificate required"
            ) as e:
                sender.send(b"x")

    assert "certificate and key" in e.value.hint


def test_a_server_that_does_not_know_our_authority_says_so(
    authority: Authority, server: Pair, stranger: Authority
) -> None:
    with receiving(server, client_ca=authority.ca) as there:
        with Client(there.url, tls=Tls(authority.ca, *stranger.signed("client"))) as sender:
            with pytest.raises(Unavailable, match=r"the server refuses our certificate: .*unknown ca"):
                sender.send(b"x")


def test_our_expired_certificate_is_refused_by_the_server(authority: Authority, server: Pair) -> None:
    with receiving(server, client_ca=authority.ca) as there:
        with Client(there.url, tls=Tls(authority.ca, *authority.signed("old", days=-1))) as sender:
            with pytest.raises(Unavailable, match=r"the server refuses our certificate: .*certificate expired"):
                sender.send(b"x")


def test_a_server_without_tls_is_recognised(authority: Authority) -> None:
    with receiving() as there:
        there.answers = [b"HTTP/1.1 400 Bad Request\r\n\r\n"]
        with Client(f"https://localhost:{there.port}/", timeout=2.0, tls=Tls(authority.ca)) as sender:
            there._converse = lambda stream: stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")  # type: ignore[method-assign]
            with pytest.raises(Unavailable, match="does not speak TLS") as e:
                sender.send(b"x")

    assert "http://" in e.value.hint


def test_a_server_that_never_shakes_hands_has_timed_out(authority: Authority) -> None:
    with receiving() as there:
        begun = time.monotonic()
        with Client(f"https://localhost:{there.port}/", timeout=0.3, tls=Tls(authority.ca)) as sender:
            with pytest.raises(TimedOut, match=r"no answer within 0\.3 s"):
                sender.send(b"x")

    assert time.monotonic() - begun < 5


def test_a_server_that_reads_nothing_has_timed_out(authority: Authority, server: Pair) -> None:
    with receiving(server) as there:
        there._converse = lambda stream: time.sleep(1.0)  # type: ignore[method-assign]
        begun = time.monotonic()
        with Client(there.url, timeout=0.3, tls=Tls(authority.ca)) as sender:
            with pytest.raises(TimedOut):
                sender.send(b"x" * 20_000_000)

        assert time.monotonic() - begun < 0.9


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (Tls(ca="missing"), "cannot use the CA file missing: No such file"),
        (Tls(ca="garbage"), "cannot use the CA file garbage: no certificate or crl found"),
        (Tls(certificate="missing"), "cannot use the certificate missing: No such file"),
        (Tls(certificate="garbage"), "cannot use the certificate garbage: "),
        (Tls(certificate="client.crt"), "cannot use the certificate client.crt: "),
        (Tls(certificate="client.crt", key="garbage"), "cannot use the certificate client.crt with the key garbage: "),
        (Tls(certificate="client.crt", key="other.key"), "with the key other.key: key values mismatch"),
        (Tls(certificate="client.crt", key="locked.key"), "with the key locked.key: "),
        (Tls(key="other.key"), "the key other.key is of no use without its certificate"),
    ],
)
def test_files_that_cannot_be_used_are_named_before_anything_is_sent(
    files: Tls, message: str, tmp_path: Path, client: Pair, server: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(client.certificate, "client.crt")
    shutil.copy(server.key, "other.key")
    openssl("ec", "-in", client.key, "-aes256", "-passout", "pass:secret", "-out", "locked.key")
    Path("garbage").write_text("not PEM\n")

    with pytest.raises(ConfigError) as raised:
        Client("https://localhost:1/", tls=files)
    assert message in str(raised.value)


def test_renewed_files_are_read_again(authority: Authority, server: Pair, client: Pair, tmp_path: Path) -> None:
    certificate, key = tmp_path / "c.crt", tmp_path / "c.key"
    for source, target in zip(authority.signed("older", days=-1), (certificate, key), strict=True):
        shutil.copy(source, target)
    with receiving(server, client_ca=authority.ca) as there:
        with Client(there.url, tls=Tls(authority.ca, str(certificate), str(key))) as sender:
            with pytest.raises(Unavailable, match="certificate expired"):
                sender.send(b"x")
            for source, target in zip(client, (certificate, key), strict=True):
                shutil.copy(source, f"{target}.new")
                os.replace(f"{target}.new", target)

            assert sender.send(b"x").status == 200
