"""The environment that `sonde run` gives to a command."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.cli.run_daemon import Meeting
from sonde.cli.run_environment import POLL_KEY, environment, with_poll_period

AT_NAME = Meeting("127.0.0.1:1778", "")


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="xdg") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def test_at_the_abstract_name_a_directory_from_before_is_taken_out() -> None:
    told = environment({"KINETO_IPC_SOCKET_DIR": "/old", "HOME": "/home/ada"}, AT_NAME, 1, "")

    assert "KINETO_IPC_SOCKET_DIR" not in told.environ
    assert told.environ["SONDE_DAEMON"] == "127.0.0.1:1778"
    assert told.environ["HOME"] == "/home/ada"
    assert "KINETO_IPC_SOCKET_DIR is taken out" in told.said


def test_the_configuration_beside_a_daemon_of_the_node_is_one_file_for_each_content(runtime: Path) -> None:
    one, same, other = (environment({}, AT_NAME, seconds, "").environ["KINETO_CONFIG"] for seconds in (1, 1, 5))

    assert one == same != other
    assert Path(other).read_text().splitlines()[0] == f"{POLL_KEY}=5"
    assert sorted(os.listdir(runtime / "sonde")) == sorted({os.path.basename(one), os.path.basename(other)})


def test_a_configuration_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    told = environment({"KINETO_CONFIG": f"{tmp_path}/none"}, AT_NAME, 1, "")

    assert f"KINETO_CONFIG={tmp_path}/none is left out: No such file or directory" in told.said
    assert told.environ["KINETO_CONFIG"] != f"{tmp_path}/none"


def test_a_tag_names_the_job_unless_a_batch_system_has() -> None:
    free = environment({}, AT_NAME, 1, "tune-3")
    slurm = environment({"SLURM_JOB_ID": "77", "SLURM_PROCID": "0"}, AT_NAME, 1, "tune-3")

    assert free.environ["SONDE_JOB_ID"] == "tune-3"
    assert "SONDE_JOB_ID" not in slurm.environ
    assert "--tag tune-3 is not needed: this is slurm job 77" in slurm.said


def test_without_a_daemon_nothing_is_looked_for() -> None:
    told = environment({"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": "/x"}, None, 1, "tune-3")

    assert told.environ == {"SONDE_JOB_ID": "tune-3"}


@settings(max_examples=40)
@given(st.text(max_size=200), st.integers(1, 3600))
def test_the_poll_period_comes_first_and_once_and_the_rest_stays(text: str, seconds: int) -> None:
    made = with_poll_period(f"{text}\n {POLL_KEY} = 60\n{text}", seconds).splitlines()

    assert made[0] == f"{POLL_KEY}={seconds}"
    assert not any(line.strip().startswith(f"{POLL_KEY} ") for line in made[1:])
    assert [line for line in made[1:] if line] == [line for line in (text.splitlines() * 2) if line]
