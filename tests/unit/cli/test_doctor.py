"""`sonde doctor` where there is nothing to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from sonde.cli.main import main


def test_a_root_without_proc_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--root", str(tmp_path)])

    assert code == 3
    assert "has no proc directory" in capsys.readouterr().err
