"""What changed between two runs, in what they used and in what they ran on, told apart from noise.

  sonde compare DIR_A DIR_B                     two recordings; A is the one before
  sonde compare A B --again A2 --again A3       further runs like A: the noise between runs is measured, not assumed
  sonde compare A B --higher app_tokens_total   a counter or gauge of your own, and which way is better
  sonde compare A B --fail-on worse             for a pipeline: exit code 1 when B is worse

A change counts when it is beyond the noise and at least --margin. The noise is estimated from both runs in blocks of
time, and like runs are taken to differ by --run-noise (one standard deviation) unless --again tells. The chance of even
one false finding in a whole comparison is kept below 5 % (Holm). A comparison of like runs says "no difference".

Exit code 0 when the comparison was made, whatever it says; with --fail-on, 1 when it says that.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING, Any

from sonde.cli.terminal import paint, table
from sonde.errors import Unavailable, UsageError
from sonde.jobs.differences import Difference, differences
from sonde.jobs.recording import Recording, open_recording
from sonde.units import human_bytes, human_seconds

if TYPE_CHECKING:
    from sonde.jobs.compare import Change, Comparison
    from sonde.jobs.measures import Measure

_COLOURS = {"worse": "red", "better": "green", "changed": "yellow", "cannot tell": "grey", "no difference": "grey"}
_FAILS = {"worse": ("worse",), "changed": ("worse", "better", "changed")}
_MOST = 12  # differences of the hosts that are shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="DIR_A", help="a recording")
    parser.add_argument("b", metavar="DIR_B", help="the recording to compare with it")
    parser.add_argument(
        "--again", action="append", default=[], metavar="DIR", help="a further run like A; at least two"
    )
    for better, meaning in (
        ("lower", "lower is better"),
        ("higher", "higher is better"),
        ("metric", "neither is better"),
    ):
        parser.add_argument(
            f"--{better}", action="append", default=[], metavar="METRIC", help=f"compare this too: {meaning}"
        )
    parser.add_argument(
        "--margin", type=_share, default=0.02, metavar="SHARE", help="smaller changes do not count (2%%)"
    )
    parser.add_argument(
        "--run-noise",
        type=_share,
        default=0.01,
        metavar="SHARE",
        help="how much like runs differ, without --again (1%%)",
    )
    parser.add_argument(
        "--fail-on", choices=sorted(_FAILS), help="end with 1 when B is worse, or when anything changed"
    )
    parser.add_argument("--json", action="store_true", help="print an object")


def _share(text: str) -> float:
    """`2%` or `0.02`."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: write it as 2% or 0.02") from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError("must be from 0 to less than 100%")
    return value


def run(args: argparse.Namespace) -> int:
    try:
        from sonde.jobs.compare import FEWEST_RUNS, compare
        from sonde.jobs.measures import measured
    except ImportError as error:
        raise Unavailable(f"{error.name} is not installed", hint="pip install 'sonde[report]'") from None
    if 0 < len(args.again) < FEWEST_RUNS - 1:
        raise UsageError("one further run does not tell how much runs differ", hint=f"give {FEWEST_RUNS - 1} or more")
    more = _asked(args)
    a, b, *again = (open_recording(path) for path in (args.a, args.b, *args.again))
    runs = [measured(recording, more) for recording in (a, b, *again)]
    for recording, found in zip((a, b, *again), runs, strict=True):
        if not found:
            raise Unavailable(f"{recording.path} has no values", hint="its recorder was ended before its first second")
    result = compare(runs[0], runs[1], runs[2:], margin=args.margin, run_noise=args.run_noise)
    host = host_differences(a, b)
    print(json.dumps(as_object(result, a, b, host), indent=2) if args.json else render(result, a, b, host))
    return 1 if args.fail_on and any(one.verdict.value in _FAILS[args.fail_on] for one in result.changes) else 0


def _asked(args: argparse.Namespace) -> list[Measure]:
    from sonde.jobs.measures import Better, Measure

    ways = ((args.lower, Better.LESS), (args.higher, Better.MORE), (args.metric, Better.NEITHER))
    return [Measure(name, "", better, 0.0, (name,), "own", primary=True) for names, better in ways for name in names]


def host_differences(a: Recording, b: Recording) -> list[Difference] | None:
    """In what the hosts of two runs differ: each with its namesake, else the first of both. None: not recorded."""
    ours = {node.host: context for node in a.nodes if (context := node.context()) is not None}
    theirs = {node.host: context for node in b.nodes if (context := node.context()) is not None}
    if not ours or not theirs:
        return None
    shared = [host for host in ours if host in theirs]
    if not shared:
        first, second = next(iter(ours.items())), next(iter(theirs.items()))
        return differences(first[1], second[1], (f"A ({first[0]})", f"B ({second[0]})"))
    found: dict[Any, Difference] = {}
    for host in shared:
        for item in differences(ours[host], theirs[host], ("A", "B")):
            found.setdefault((item.subject, tuple(map(str, item.groups))), item)
    return list(found.values())


def as_object(result: Comparison, a: Recording, b: Recording, host: list[Difference] | None) -> dict[str, Any]:
    told = [] if host is None else host
    return {
        "verdict": result.verdict.value,
        "a": a.path,
        "b": b.path,
        "level": result.level,
        "control": "Holm",
        "margin": result.margin,
        "run_noise": result.run_noise,
        "runs_like_a": result.runs,
        "changes": [_object(change) for change in result.changes],
        "only_in_one": result.lacking,
        "hosts": [{"subject": item.subject, "groups": [group._asdict() for group in item.groups]} for item in told],
    }


def _object(change: Change) -> dict[str, Any]:
    numbers = {name: getattr(change, name) for name in ("a", "b", "change", "low", "high", "chance")}
    return {
        "measure": change.measure.name,
        "unit": change.measure.unit,
        "better": change.measure.better.value,
        **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
        "verdict": change.verdict.value,
        "reason": change.reason,
    }


def render(result: Comparison, a: Recording, b: Recording, host: list[Difference] | None) -> str:
    rows = [_row(change) for change in result.changes]
    header = ("measure", "A", "B", "change", "sure within", "verdict")
    lines = [headline(result), "", table(rows, header=header, right=(1, 2, 3, 4))]
    notes = [f"  {change.measure.name}: {change.reason}" for change in result.changes if change.reason]
    lines += ["", *notes] if notes else []
    lines += ["", *_hosts(host), "", _footer(result)]
    return "\n".join(lines)


def headline(result: Comparison) -> str:
    """The verdict and what it rests on, in one line."""
    verdict = result.verdict.value
    telling = [change for change in result.changes if change.verdict is result.verdict]
    if verdict in ("no difference", "cannot tell"):
        first = telling[0] if telling else None
        rest = f": {first.measure.name} {_percent(first.change)}" if first else ""
        seen = f", {_percent(first.seen)} or more would have shown" if first and math.isfinite(first.seen) else ""
        return paint(f"{verdict}{rest}{seen}", _COLOURS[verdict])
    told = ", ".join(f"{change.measure.name} {_percent(change.change)}" for change in telling[:4])
    return paint(f"{verdict}: {told}", _COLOURS[verdict])


def _row(change: Change) -> list[str]:
    unit = change.measure.unit
    sure = f"{_percent(change.low)} to {_percent(change.high)}" if math.isfinite(change.high) else ""
    return [
        change.measure.name,
        _value(change.a, unit),
        _value(change.b, unit),
        _percent(change.change),
        sure,
        paint(change.verdict.value, _COLOURS[change.verdict.value]),
    ]


def _percent(share: float) -> str:
    if not math.isfinite(share):
        return "from nothing"
    return f"{share:+.1%}" if abs(share) < 10 else f"×{share + 1:.0f}"


def _value(value: float, unit: str) -> str:
    if unit == "seconds":
        return human_seconds(value) if value < 1 or value >= 120 else f"{value:.1f} s"
    if unit == "bytes":
        return human_bytes(value)
    if unit == "ratio":
        return f"{value:.1%}"
    if unit == "joules":
        return f"{value / 1000:.1f} kJ"
    return f"{value:.5g}"


def _hosts(found: list[Difference] | None) -> list[str]:
    if found is None:
        return ["hosts: not compared: a recording has no context.json"]
    if not found:
        return ["hosts: no difference"]
    more = [f"  and {len(found) - _MOST} more: --json"] if len(found) > _MOST else []
    return [
        f"hosts: {len(found)} difference{'s' if len(found) > 1 else ''}",
        *[f"  {item.text}" for item in found[:_MOST]],
        *more,
    ]


def _footer(result: Comparison) -> str:
    runs = (
        f"like runs are taken to differ by {result.run_noise:.1%}; --again DIR measures it"
        if result.run_noise is not None
        else f"the noise is that of {result.runs} like runs"
    )
    return paint(f"{1 - result.level:.0%} sure of all lines together (Holm); {runs}", "grey")
