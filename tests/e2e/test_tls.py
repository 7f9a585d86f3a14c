"""The daemon with certificates: who may reach it from elsewhere, and how certificates change while it runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.conftest import SONDE, RunningDaemon
from tests.lacking import lacking

from sonde.cli.main import main

Start = Callable[..., RunningDaemon]


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    folder = tmp_path / "authority"
    for words in (
        ["init"],
        ["host", "n1", "--address", "127.0.0.1", "--address", "10.9.0.1"],
        ["client", "root", "no-such-user", "eve"],
    ):
        assert main(["certs", *words, "--dir", str(folder)]) == 0
    return folder


def ask(running: RunningDaemon, authority: Path, user: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command over TCP, with the certificate of a user."""
    address = running.status()["addresses"]["tcp"]
    environ = {**os.environ, "SONDE_CERTS_DIR": f"{authority}/clients/{user}"}
    command = [SONDE, *words, "--host", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environ)


def test_a_daemon_with_certificates_answers_those_who_have_one(daemon: Start, authority: Path) -> None:
    running = daemon("--certs-dir", f"{authority}/hosts/n1")

    answer = ask(running, authority, "root", "status")
    plain = running.sonde("status", "--host", running.status()["addresses"]["tcp"])

    assert answer.returncode == 0, answer.stderr
    assert (plain.returncode, "speaks TLS only" in plain.stderr) == (1, True)
    assert ask(running, authority, "no-such-user", "metrics", "node_load1").returncode == 0
    assert running.sonde("status").returncode == 0  # the Unix socket needs none
    flag = ["--certs-dir", f"{authority}/clients/root", "--host", running.status()["addresses"]["tcp"]]
    assert running.sonde("version", *flag).returncode == 0


def test_sighup_takes_over_a_revocation_list_and_refuses_a_bad_certificate(daemon: Start, authority: Path) -> None:
    certs = authority / "hosts/n1"
    running = daemon("--certs-dir", str(certs))
    assert ask(running, authority, "eve", "status").returncode == 0
    own = (authority / "clients/eve/ca.crl").read_bytes()
    main(["certs", "revoke", "eve", "--dir", str(authority)])
    (authority / "clients/eve/ca.crl").write_bytes(own)  # eve goes on with her old list

    running.process.send_signal(signal.SIGHUP)
    running.wait_for_log("the certificates are read again")

    refused = ask(running, authority, "eve", "status")
    assert (refused.returncode, "it is revoked" in refused.stderr) == (3, True)
    assert ask(running, authority, "root", "status").returncode == 0

    (certs / "server.crt").write_bytes((authority / "clients/root/client.crt").read_bytes())
    running.process.send_signal(signal.SIGHUP)
    running.wait_for_log("the certificates are refused and the old ones stay")

    assert "server.crt is not for a server" in running.log()
    assert ask(running, authority, "root", "status").returncode == 0


@pytest.mark.parametrize("verb", ["daemon", "config"])
def test_a_bad_directory_is_refused_at_the_start_and_by_the_check(authority: Path, tmp_path: Path, verb: str) -> None:
    (authority / "hosts/n1/server.key").chmod(0o644)
    config = tmp_path / "sonde.toml"
    config.write_text(f'[daemon]\ncerts_dir = "{authority}/hosts/n1"\nrpc_address = "0.0.0.0:0"\n')
    words = ["daemon", "--state", str(tmp_path / "state"), "--config"] if verb == "daemon" else ["config", "check"]

    done = subprocess.run([SONDE, *words, str(config)], capture_output=True, text=True, timeout=30)

    assert done.returncode == 2
    assert "daemon.certs_dir: " in done.stderr
    assert "server.key may be read by others" in done.stderr
    assert "chmod 600" in done.stderr


def test_an_encrypted_key_is_opened_with_a_password_from_a_file(
    daemon: Start, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = authority / "hosts/n1/server.key"
    locked = ["-topk8", "-in", str(key), "-out", f"{key}.new", "-passout", "pass:secret"]
    subprocess.run(["openssl", "pkcs8", *locked], check=True, timeout=30)
    (authority / "hosts/n1/server.key.new").replace(key)
    key.chmod(0o600)
    (tmp_path / "password").touch(mode=0o600)
    (tmp_path / "password").write_text("secret\n")
    monkeypatch.setenv("SONDE_KEY_PASSWORD_FILE", str(tmp_path / "password"))
    running = daemon("--certs-dir", str(key.parent))

    assert ask(running, authority, "root", "status").returncode == 0
    running.process.send_signal(signal.SIGHUP)
    running.wait_for_log("the certificates are read again")


# A network of its own with an address that is not loopback's; nobody else is on it.
_IN_A_NETWORK = 'ip link set lo up && ip addr add 10.9.0.1/32 dev lo && exec "$@"'


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes a network of its own")
def test_with_certificates_the_address_may_be_any(daemon: Start, authority: Path) -> None:
    if shutil.which("ip") is None:
        lacking("ip is not installed")
    wrapper = ["unshare", "--net", "sh", "-c", _IN_A_NETWORK, "sh"]
    running = daemon(
        "--certs-dir", f"{authority}/hosts/n1", "--rpc-address", "10.9.0.1:1778", "--http-address", "", wrapper=wrapper
    )

    within = ["nsenter", "--net", "-t", str(running.process.pid), SONDE, "status", "--host", "10.9.0.1"]
    certified = [*within, "--certs-dir", f"{authority}/clients/root"]
    answer = subprocess.run(certified, capture_output=True, text=True, timeout=30)
    plain = subprocess.run(within, capture_output=True, text=True, timeout=30)

    assert answer.returncode == 0, answer.stderr
    assert "speaks TLS only" in plain.stderr
    assert "without authentication" not in running.log()


def test_the_client_does_not_load_ssl_for_a_unix_socket(daemon: Start, authority: Path) -> None:
    running = daemon("--certs-dir", f"{authority}/hosts/n1")
    code = "import sys; from sonde.cli.main import main; main(['version', '--host', sys.argv[1]])"
    code += "; print('ssl' in sys.modules)"
    environ = {**os.environ, "SONDE_CERTS_DIR": "/nowhere"}
    command = [sys.executable, "-c", code, f"unix:{running.state}/rpc.sock"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environ)

    assert done.stdout.splitlines()[-1] == "False"
