"""packaging/: the unit systemd runs and the rules logrotate follows."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from sonde.cli.main import parser_of
from sonde.config import DaemonConfig, bind
from sonde.daemon.paths import default_paths

PACKAGING = Path(__file__).parents[2] / "packaging"
UNIT = PACKAGING / "sonde.service"
LOGROTATE = PACKAGING / "sonde.logrotate"


@pytest.fixture
def unit() -> configparser.ConfigParser:
    # systemd lets a key come twice and is exact about capitals; it interpolates nothing that begins with a percent.
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def without_root() -> dict[str, str]:
    """The settings that are there as comments, for a daemon of a normal user."""
    return dict(re.findall(r"^#(User|Group|AmbientCapabilities|Environment)=(.*)$", UNIT.read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Type", "exec"),
        ("Restart", "always"),
        ("CPUQuota", "100%"),
        ("MemoryMax", "1G"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("PrivateTmp", "yes"),
        ("ExecReload", "/bin/kill -HUP $MAINPID"),
    ],
)
def test_the_unit_restarts_limits_and_confines_the_daemon(
    unit: configparser.ConfigParser, key: str, value: str
) -> None:
    assert unit["Service"][key] == value


@pytest.mark.parametrize("key", ["ProtectProc", "ProcSubset", "PrivateUsers", "PrivateNetwork", "PrivateDevices"])
def test_nothing_hides_the_host_from_the_daemon(unit: configparser.ConfigParser, key: str) -> None:
    assert key not in unit["Service"]


def test_the_start_command_is_one_that_sonde_understands(unit: configparser.ConfigParser) -> None:
    program, command, *words = shlex.split(unit["Service"]["ExecStart"])
    parser, _ = parser_of(command)

    assert program == "/usr/bin/sonde"
    assert parser.parse_args(words).live is False


def test_the_directories_are_those_of_a_root_daemon(unit: configparser.ConfigParser) -> None:
    paths = default_paths(uid=0)
    service = unit["Service"]

    assert paths.state == f"/var/lib/{service['StateDirectory']}"
    assert paths.runtime == f"/run/{service['RuntimeDirectory']}"
    assert LOGROTATE.read_text().count(f"\n/var/log/{service['LogsDirectory']}/sonde.log {{\n") == 1


def test_the_daemon_of_a_normal_user_finds_the_same_places() -> None:
    environ = dict(word.split("=", 1) for word in without_root()["Environment"].split())

    assert default_paths(uid=1000, environ=environ) == default_paths(uid=0)


def test_the_daemon_of_a_normal_user_gets_what_root_is_left_with(unit: configparser.ConfigParser) -> None:
    assert without_root()["AmbientCapabilities"] == unit["Service"]["CapabilityBoundingSet"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this host")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    # Verified with a program that is there: /usr/bin/sonde need not be installed where the tests run.
    true = shutil.which("true")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/sonde daemon", f"{true}"))
    ended = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_logrotate_keeps_a_week_and_tells_the_daemon() -> None:
    rules = LOGROTATE.read_text().partition("sonde.log {")[2]

    assert {"daily", "maxsize 10M", "rotate 7", "compress"} <= {line.strip() for line in rules.splitlines()}
    assert "systemctl reload sonde.service" in rules.partition("postrotate")[2]


def test_the_key_that_leaves_rotation_to_logrotate_is_a_good_one() -> None:
    (text,) = re.findall(r'log_max_size = "(\w+)"', LOGROTATE.read_text())

    assert bind(DaemonConfig, {"log_max_size": text}, "daemon").log_max_size == 0


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="no logrotate on this host")
def test_logrotate_accepts_the_rules(tmp_path: Path) -> None:
    ended = subprocess.run(
        ["logrotate", "--debug", "--state", str(tmp_path / "state"), str(LOGROTATE)],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.returncode == 0
    assert "error:" not in ended.stderr
