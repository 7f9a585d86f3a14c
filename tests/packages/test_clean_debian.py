"""The packages on a clean Debian 12: installed, run by root and by a normal user, upgraded, removed, purged."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import require
from tests.packages.conftest import Built, Debian

from packages import deb
from packages.release import Release, release
from sonde.cli.main import COMMANDS

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]  # the first time a Debian is made

SIZE_BAR_KIB = 60_000_000 / 1024
# Printed by the daemon's own Python: the clean Debian has neither curl nor wget.
FETCH = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=10).read().decode())"


@pytest.fixture
def installed(debian: Debian, built: Built) -> Debian:
    install(debian, built.deb)
    return debian


def install(debian: Debian, package: Path) -> str:
    # All it needs is there already: there is no network to get it from.
    return debian.run("apt-get", "install", "-y", debian.bring(package))


@contextmanager
def running(debian: Debian, user: str = "") -> Iterator[dict[str, Any]]:
    """A daemon, and what `sonde status` says of it after a tick of every collector."""
    process = subprocess.Popen(debian.command("sonde", "daemon", "--period", "500ms", "--no-tracing", user=user))
    try:
        until = time.monotonic() + 30
        while not (status := ask(debian, user)):
            assert process.poll() is None, "the daemon ended at once"
            assert time.monotonic() < until
            time.sleep(0.2)
        yield status
        debian.run("sh", "-c", f"kill -TERM {status['pid']}")
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def ask(debian: Debian, user: str) -> dict[str, Any] | None:
    ended = subprocess.run(
        debian.command("sonde", "status", "--json", user=user), capture_output=True, text=True, timeout=30
    )
    if ended.returncode not in (0, 1):
        return None
    status: dict[str, Any] = json.loads(ended.stdout)
    return status if all(item["ticks"] for item in status["collectors"]) else None


def page(debian: Debian, status: dict[str, Any]) -> str:
    return debian.run("/usr/lib/sonde/bin/python", "-c", FETCH, status["addresses"]["metrics"])


def test_root_runs_the_daemon_of_the_deb(installed: Debian) -> None:
    with running(installed) as status:
        text = page(installed, status)
        installed.run("sonde", "status")

    assert status["config"] == "/etc/sonde/sonde.toml"
    assert "\nnode_cpu_seconds_total{" in text
    assert (installed.root / "var/lib/sonde/archive.db").exists()
    assert installed.run("sonde", "query", "node_load1", "--since", "5m").startswith("node_load1")


def test_a_normal_user_runs_it_and_learns_what_is_denied(installed: Debian) -> None:
    installed.run("useradd", "--create-home", "user")
    with running(installed, "user") as status:
        text = page(installed, status)
        said = installed.run("sonde", "status", user="user")

    gaps = [gap for item in status["collectors"] for gap in item["gaps"]]
    assert any(gap["quality"] == "denied" for gap in gaps)
    assert " denied: " in said
    assert "\nnode_cpu_seconds_total{" in text
    assert (installed.root / "home/user/.local/state/sonde/archive.db").exists()


def test_the_deb_brings_what_a_node_needs(installed: Debian) -> None:
    """One installation, many questions: each would need a root of its own."""
    root = installed.root
    assert installed.run("sonde", "config", "check") == "/etc/sonde/sonde.toml: good\n"
    assert "WantedBy=multi-user.target" in (root / "usr/lib/systemd/system/sonde.service").read_text()
    assert (root / "etc/systemd/system/multi-user.target.wants/sonde.service").is_symlink()
    assert installed.run("systemd-analyze", "verify", "sonde.service") == ""
    installed.run("logrotate", "--debug", "/etc/logrotate.d/sonde")
    installed.run("dpkg", "--verify", "sonde")
    for name in COMMANDS:
        assert f"sonde-{name} - " in installed.run("man", f"sonde-{name}")
    assert "period = duration" in installed.run("man", "sonde.toml")
    script = "source /usr/share/bash-completion/completions/sonde; COMP_WORDS=(sonde config sh); COMP_CWORD=2; _sonde"
    assert installed.run("bash", "-c", f"{script}; echo $COMPREPLY") == "show\n"
    assert installed.run("sonde", "version").startswith(f"sonde {release().version}, Python 3.11")
    assert installed.run("env", "PYTHONHOME=/nonsense", "sonde", "version").startswith("sonde ")

    compiled = list((root / "usr/lib/sonde").rglob("__pycache__/*.cpython-311.pyc"))
    assert len(compiled) >= 100
    kib = int(installed.run("du", "-sk", "/usr/lib/sonde").split()[0])
    assert kib <= SIZE_BAR_KIB


def test_the_environment_is_private_and_can_be_added_to(installed: Debian) -> None:
    dist = installed.root / "usr/lib/python3/dist-packages"
    added = installed.root / "usr/local/lib/sonde"
    added.mkdir(parents=True)
    (dist / "sonde.py").write_text("raise SystemExit('the wrong one')\n")
    (added / "extra.py").write_text("")
    listing = "import sys, cramjam, extra; print(*sys.path)"

    assert "dist-packages" not in installed.run("/usr/lib/sonde/bin/python", "-I", "-c", listing)
    assert installed.run("sonde", "version").startswith("sonde ")


def test_a_new_version_of_python_gets_compiled_files(installed: Debian) -> None:
    hook = "/usr/share/python3/runtime.d/sonde.rtupdate"
    cache = installed.root / "usr/lib/sonde/lib/python3/site-packages/sonde/__pycache__"
    (cache / "old.cpython-310.pyc").write_bytes(b"")
    installed.run(hook, "rtupdate", "python3.10", "python3.11")

    assert not (cache / "old.cpython-310.pyc").exists()
    assert (cache / "model.cpython-311.pyc").exists()


def test_an_upgrade_keeps_the_configuration_and_a_purge_leaves_nothing(
    debian: Debian, built: Built, tmp_path: Path
) -> None:
    before = debian.files()
    install(debian, built.deb)
    config = debian.root / "etc/sonde/sonde.toml"
    config.write_text('[daemon]\nperiod = "2s"\n')
    (debian.root / "var/lib/sonde").mkdir(exist_ok=True)
    (debian.root / "var/lib/sonde/archive.db").write_text("kept until purged")
    (debian.root / "var/log/sonde").mkdir()
    said = install(debian, newer(built, tmp_path))
    upgraded = debian.run("dpkg-query", "-W", "-f", "${Version} ${db:Status-Status}", "sonde")
    kept = config.read_text()
    debian.run("sonde", "config", "check")
    debian.run("apt-get", "remove", "-y", "sonde")
    removed = debian.files() - before
    debian.run("apt-get", "purge", "-y", "sonde")
    purged = debian.files() - before

    assert "Unpacking sonde (99.0) over" in said
    assert upgraded == "99.0 installed"
    assert kept == '[daemon]\nperiod = "2s"\n'
    enabled = re.compile(r"etc/systemd/system/|var/lib/systemd/deb-systemd-helper-enabled")
    assert {path for path in removed if not enabled.match(path)} == {
        "etc/sonde", "etc/sonde/sonde.toml", "etc/logrotate.d/sonde", "var/lib/sonde", "var/lib/sonde/archive.db"
    }  # fmt: skip
    assert purged == set()
    assert not (debian.root / "var/log/sonde").exists()


def newer(built: Built, work: Path) -> Path:
    """The same under a later version, without what is bundled: it is about dpkg."""
    later: Release = release()._replace(version="99.0")
    return deb.build(later, [built.sonde], work / "newer", work)


def test_lintian_has_nothing_to_say(built: Built) -> None:
    ended = subprocess.run(
        [require("lintian"), "--allow-root", "--fail-on", "error,warning", str(built.deb)],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (ended.returncode, ended.stdout) == (0, "")


def test_the_rpm_installs_runs_and_goes(debian: Debian, built: Built) -> None:
    # This machine's rpm, into that root: its scripts run there. --nodeps: what Debian has is not in rpm's database.
    before = debian.files()
    rpm = [require("rpm"), "--root", str(debian.root)]
    debian.run(*rpm, "--install", "--nodeps", str(built.rpm), shared=True)
    changed = debian.run(*rpm, "--verify", "--nodeps", "sonde", shared=True)
    python = (debian.root / "usr/lib/sonde/bin/python").readlink()
    with running(debian) as status:
        text = page(debian, status)
    debian.run(*rpm, "--erase", "sonde", shared=True)
    left = debian.files() - before

    assert changed == ""
    assert str(python) == "/usr/bin/python3"
    assert "\nnode_cpu_seconds_total{" in text
    # A system of rpm has these already: its database, and a directory for licences.
    left = {path for path in left if not path.startswith(("var/lib/rpm", "usr/lib/sysimage", "usr/share/licenses"))}
    assert left <= {"var/lib/sonde", "var/lib/sonde/archive.db", "var/lib/sonde/archive.db.lock", "run/sonde"}
