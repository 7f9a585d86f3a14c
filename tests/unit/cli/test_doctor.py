"""`sonde doctor` where the daemon could not do its work."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from sonde.cli import doctor
from sonde.cli.main import main
from sonde.daemon.paths import Paths


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    return {finding["subject"]: finding for finding in json.loads(capsys.readouterr().out)}


def test_a_root_without_proc_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--root", str(tmp_path)])

    assert code == 3
    assert "has no proc directory" in capsys.readouterr().err


def test_a_root_with_an_empty_proc_is_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "proc").mkdir()
    code = main(["doctor", "--root", str(tmp_path), "--json"])

    root = findings(capsys)["root"]
    assert code == 1
    assert root["state"] == "broken"
    assert root["detail"] == f"{tmp_path}/proc is empty: the host's /proc is not mounted there"


def test_a_user_who_cannot_keep_anything_is_told_by_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").touch()  # nobody, not even root, can make a directory below a file
    state = f"{tmp_path}/home/state"
    monkeypatch.setattr(doctor, "default_paths", lambda: Paths(state, state, f"{state}/sonde.toml"))
    code = main(["doctor", "--json"])

    found = findings(capsys)
    assert code == 1
    assert found["state"]["state"] == found["archive"]["state"] == "broken"
    assert found["state"]["detail"] == f"{tmp_path}/home is not a directory: {state} cannot be made"


@pytest.mark.parametrize(
    ("text", "state", "detail"),
    [
        ("[archive]\nenabled = false\n", "ok", "switched off"),
        ("[archive]\npath = '/dev/null/archive.db'\n", "broken", "/dev/null is not a directory"),
        ("[archive]\nmax_size = '0B'\n", "broken", "archive.max_size: 0B is too small"),
    ],
)
def test_the_archive_of_the_configuration_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, state: str, detail: str
) -> None:
    (tmp_path / "sonde.toml").write_text(text)
    paths = Paths(str(tmp_path), str(tmp_path), str(tmp_path / "sonde.toml"))
    monkeypatch.setattr(doctor, "default_paths", lambda: paths)
    found = {finding.subject: finding for finding in doctor.check_host(Namespace(root="/", host="127.0.0.1:1"))}

    assert found["archive"].state == state
    assert detail in found["archive"].detail
