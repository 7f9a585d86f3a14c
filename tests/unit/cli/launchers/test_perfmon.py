"""`perfmon`'s command line."""

from __future__ import annotations

import pytest

from sonde.cli.launchers.perfmon import main, parser


def test_every_option_is_taken_by_both_its_names() -> None:
    words = ["-d", "dir", "-p", "77", "-l", "mpirun", "-i", "5", "-c", "60", "-r", "-e", "csv", "hdf5", "-v"]
    words += ["--system", "s", "--partition", "p", "--env", "e", "--name", "n"]
    args = parser().parse_args(words)

    assert (args.save_dir, args.prefix, args.launcher) == ("dir", "77", "mpirun")
    assert (args.sampling_freq, args.check_point) == (5, 60)
    assert (args.gen_report, args.export, args.verbose) == (True, ["csv", "hdf5"], True)
    assert (args.system, args.partition, args.env, args.name) == ("s", "p", "e", "n")
    long = ["--save_dir=dir", "--prefix=77", "--launcher=x", "--sampling_freq=5", "--check_point=60", "--export=orc"]
    assert parser().parse_args([*long, "--gen_report", "--verbose"]).check_point == 60


def test_its_defaults_are_its_own() -> None:
    args = parser().parse_args([])

    assert (args.sampling_freq, args.check_point, args.export, args.gen_report) == (30, 900, None, False)


def test_an_export_without_a_format_is_one() -> None:
    assert parser().parse_args(["-i", "5", "-v", "-r", "-e"]).export == []


def test_a_checkpoint_shorter_than_a_sample_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """perfmon divides by zero."""
    code = main(["-i", "30", "-c", "10"])

    assert code == 2
    assert "--check_point 10 is shorter than --sampling_freq 30" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["-e", "xlsx"], ["-i", "0"], ["-i", "fast"], ["--nonsense"]])
def test_what_it_does_not_know_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)

    assert caught.value.code == 2


def test_outside_of_a_job_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SONDE_JOB_ID", "SONDE_TAG"):
        monkeypatch.delenv(name, raising=False)

    assert main([]) == 3
    assert "no job" in capsys.readouterr().err
