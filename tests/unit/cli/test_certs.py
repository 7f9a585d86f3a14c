"""`sonde certs`: what it makes passes the checks of the daemon and of openssl, and what it revokes no longer does."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.authority import openssl

from sonde.cli.main import main
from sonde.errors import ConfigError
from sonde.rpc.tls import client_context, read_certificates, server_context


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    assert main(["certs", "init", "--dir", f"{tmp_path}/ca"]) == 0
    return tmp_path / "ca"


def certs(authority: Path, *words: str) -> int:
    return main(["certs", *words, "--dir", str(authority)])


def test_an_authority_lasts_ten_years_and_is_nobody_elses_to_read(authority: Path) -> None:
    made = read_certificates(f"{authority}/ca.crt")[0]

    assert made.authority
    assert made.key.kind == "EC P-256"
    assert made.signature == "ECDSA-SHA256"
    assert 3650 <= (made.not_after - made.not_before) / 86400 <= 3654
    assert stat.S_IMODE(authority.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in authority.iterdir()} == {0o600}


def test_a_node_and_a_user_get_directories_that_work(authority: Path) -> None:
    assert certs(authority, "host", "n1", "--name", "n1.cluster", "--address", "10.0.0.1", "--address", "fd00::1") == 0
    assert certs(authority, "client", "ada", "--rsa") == 0

    host, user = authority / "hosts/n1", authority / "clients/ada"
    assert server_context(str(host))
    assert client_context(str(user))
    assert read_certificates(f"{host}/server.crt")[0].names == ("DNS:n1", "DNS:n1.cluster", "IP:10.0.0.1", "IP:fd00::1")
    made = read_certificates(f"{user}/client.crt")[0]
    assert (made.user, made.key.bits) == ("ada", 3072)
    assert sorted(path.name for path in host.iterdir()) == ["ca.crl", "ca.crt", "server.crt", "server.key"]
    for folder in (host, user):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_openssl_verifies_what_was_made(authority: Path) -> None:
    certs(authority, "host", "n1")
    certs(authority, "client", "ada")

    common = ["-x509_strict", "-crl_check", "-CAfile", f"{authority}/ca.crt", "-CRLfile", f"{authority}/ca.crl"]
    openssl("verify", *common, "-purpose", "sslserver", "-verify_hostname", "n1", f"{authority}/hosts/n1/server.crt")
    openssl("verify", *common, "-purpose", "sslclient", f"{authority}/clients/ada/client.crt")


def test_many_nodes_are_written_as_a_list(authority: Path) -> None:
    assert certs(authority, "host", "n[1-3]", "gpu7", "--domain", "cluster") == 0

    assert sorted(path.name for path in (authority / "hosts").iterdir()) == ["gpu7", "n1", "n2", "n3"]
    assert read_certificates(f"{authority}/hosts/n2/server.crt")[0].names == ("DNS:n2", "DNS:n2.cluster")


def test_a_node_may_be_named_by_its_address(authority: Path) -> None:
    assert certs(authority, "host", "10.0.0.9") == 0

    assert read_certificates(f"{authority}/hosts/10.0.0.9/server.crt")[0].names == ("IP:10.0.0.9",)


@pytest.mark.parametrize(
    "words",
    [
        ["client", "../ada"],
        ["client", "a" * 65],
        ["host", "n[1-"],
        ["host", "n[1-2]", "--name", "x"],
        ["host", "n1", "--address", "nowhere"],
        ["client", "ada", "--days", "0"],
        ["init", "--force", "--cn", "x" * 65],
    ],
)
def test_what_cannot_be_is_a_usage_error(authority: Path, words: list[str]) -> None:
    assert certs(authority, *words) == 2


def test_nothing_is_overwritten_without_force(authority: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certs(authority, "client", "ada")
    before = {path: path.read_bytes() for path in authority.rglob("*.key")}

    assert certs(authority, "client", "ada") == 2
    assert certs(authority, "init") == 2
    assert "--force" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in authority.rglob("*.key")} == before
    assert certs(authority, "client", "ada", "--force") == 0
    assert (authority / "clients/ada/client.key").read_bytes() != before[authority / "clients/ada/client.key"]


def test_a_directory_without_an_authority_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certs(tmp_path, "client", "ada") == 2

    assert "sonde certs init" in capsys.readouterr().err


def test_revoking_puts_every_certificate_of_a_name_on_every_copy_of_the_list(
    authority: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certs(authority, "client", "ada")
    certs(authority, "client", "ada", "--force")
    certs(authority, "host", "n1")
    capsys.readouterr()

    assert certs(authority, "revoke", "ada", "--json") == 0

    said = json.loads(capsys.readouterr().out)
    assert len(said["revoked"]) == 2  # also the one that was replaced
    assert said["lists"] == [f"{authority}/{name}" for name in ("ca.crl", "hosts/n1/ca.crl", "clients/ada/ca.crl")]
    with pytest.raises(ConfigError, match="is revoked"):
        client_context(f"{authority}/clients/ada")
    assert server_context(f"{authority}/hosts/n1")
    assert certs(authority, "revoke", "ada") == 3  # all are
    assert certs(authority, "revoke", "bob") == 3  # there is none


def test_what_was_revoked_stays_so_when_the_list_is_written_anew(authority: Path) -> None:
    certs(authority, "client", "ada", "bob")
    certs(authority, "revoke", "ada")

    assert certs(authority, "revoke", "bob") == 0
    assert certs(authority, "revoke", "--days", "7") == 0
    for user in ("ada", "bob"):
        with pytest.raises(ConfigError, match="is revoked"):
            client_context(f"{authority}/clients/{user}")


def test_a_name_of_a_node_and_a_user_must_be_told_apart(authority: Path) -> None:
    certs(authority, "client", "n1")
    certs(authority, "host", "n1")

    assert certs(authority, "revoke", "n1") == 2
    assert certs(authority, "revoke", "n1", "--kind", "host") == 0
    assert client_context(f"{authority}/clients/n1")


def test_show_explains_a_directory_and_says_that_it_is_good(
    authority: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certs(authority, "host", "n1", "--address", "10.0.0.1")
    capsys.readouterr()

    assert main(["certs", "show", f"{authority}/hosts/n1"]) == 0

    said = capsys.readouterr().out
    for words in ("CN=n1", "EC P-256", "DNS:n1, IP:10.0.0.1", "directory of a server", "good: it passes every check"):
        assert words in said


def shown(capsys: pytest.CaptureFixture[str], path: str) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    code = main(["certs", "show", "--json", path])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return code, found


def test_show_names_every_defect(authority: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certs(authority, "client", "ada")
    certs(authority, "revoke", "ada")
    (authority / "clients/ada/client.key").chmod(0o644)

    code, found = shown(capsys, f"{authority}/clients/ada")

    assert code == 1
    assert [defect["code"] for defect in found[-1]["defects"]] == ["mode", "revoked"]


def test_show_says_when_a_key_is_of_another_certificate(authority: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certs(authority, "client", "ada", "bob")
    (authority / "clients/ada/client.key").write_bytes((authority / "clients/bob/client.key").read_bytes())

    code, found = shown(capsys, f"{authority}/clients/ada")

    assert code == 1
    assert "does not belong to" in found[-1]["defects"][0]["message"]


def test_show_does_not_ask_for_a_password(authority: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certs(authority, "client", "ada")
    key = authority / "clients/ada/client.key"
    openssl("pkcs8", "-topk8", "-in", str(key), "-out", f"{key}.new", "-passout", "pass:secret")
    (authority / "clients/ada/client.key.new").replace(key)
    key.chmod(0o600)

    code, found = shown(capsys, f"{authority}/clients/ada")

    assert code == 0
    assert "was not opened" in found[-1]["checked"]


def test_show_explains_single_files(authority: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certs(authority, "client", "ada")

    for name, kind in (
        ("ca.crt", "authority"),
        ("ca.crl", "revocation list"),
        ("clients/ada/client.crt", "certificate of a client"),
    ):
        code, found = shown(capsys, f"{authority}/{name}")
        assert (code, [one["kind"] for one in found]) == (0, [kind])
    assert [one["kind"] for one in shown(capsys, str(authority))[1]] == ["authority", "revocation list"]
    assert main(["certs", "show", f"{authority}/ca.key"]) == 2
    assert main(["certs", "show", f"{authority}/issued"]) == 2


_WITHOUT = """
import sys
sys.modules["cryptography"] = None  # as if it were not installed
from sonde.cli.main import main
print(main(["certs", "client", "ada", "--dir", sys.argv[1]]), main(["certs", "show", sys.argv[1]]))
"""


def test_without_the_package_only_making_is_not_available(authority: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT, str(authority)], capture_output=True, text=True, timeout=30)

    assert done.stdout.endswith("\n3 0\n")
    assert "pip install 'sonde[certs]'" in done.stderr
