"""The text of a trace's configuration, and what is refused before it is sent."""

from __future__ import annotations

import pytest

from sonde.errors import UsageError
from sonde.tracing.kineto import Options, check, config_text, written_path


def test_a_duration_is_written_as_dyno_writes_it() -> None:
    text = config_text(Options("/tmp/t.json", start_ms=1_700_000_000_000, shapes=True))

    assert text.split("\n") == [
        "ACTIVITIES_LOG_FILE=/tmp/t.json",
        "PROFILE_START_TIME=1700000000000",
        "ACTIVITIES_DURATION_MSECS=500",
        "PROFILE_REPORT_INPUT_SHAPES=true",
        "PROFILE_WITH_STACK=false",
        "PROFILE_WITH_FLOPS=false",
        "PROFILE_WITH_MODULES=false",
    ]


def test_steps_go_before_a_duration() -> None:
    text = config_text(Options("/tmp/t.json", steps=10, round_up=100))

    assert "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=100\nACTIVITIES_ITERATIONS=10\n" in text
    assert "DURATION" not in text


def test_warm_up_and_activities_come_last() -> None:
    text = config_text(Options("/tmp/t.json", warmup_seconds=0, activities=("cpu_op", "kernel")))

    assert text.endswith("\nACTIVITIES_WARMUP_PERIOD_SECS=0\nACTIVITY_TYPES=cpu_op,kernel")


def test_allocations_in_the_trace_are_not_a_snapshot() -> None:
    assert "\nPROFILE_MEMORY=" not in config_text(Options("/tmp/t.json", memory=True))
    assert "PROFILE_MEMORY=true\nPROFILE_MEMORY_DURATION_MSECS=500" in config_text(
        Options("/tmp/t.json", snapshot=True)
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (Options("/tmp/a=b.json"), "an equals sign"),
        (Options("/tmp/a#b.json"), "a number sign"),
        (Options("/tmp/a\nb.json"), "a line break"),
        (Options("t.json"), "not an absolute path"),
        (Options("/tmp/t.txt"), r"must end in \.json"),
        (Options("/tmp/t.json.gz"), r"must end in \.json"),
        (Options("/tmp/a.json/t.json"), r"must end in \.json"),
        (Options("/tmp/t.json", duration_ms=0), "at least 1 ms"),
        (Options("/tmp/t.json", steps=3, snapshot=True), "over a duration"),
        (Options("/tmp/t.json", activities=("gpu",)), "'gpu' is not an activity"),
        (Options("/tmp/t.json", steps=3, round_up=0), "multiple of a number from 1"),
    ],
)
def test_what_libkineto_would_misread_is_refused(options: Options, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        check(options)


def test_the_pid_goes_before_the_ending() -> None:
    assert written_path("/tmp/t.json", 812) == "/tmp/t_812.json"
    assert written_path("/tmp/t.pt.trace.json", 812) == "/tmp/t_812.pt.trace.json"
