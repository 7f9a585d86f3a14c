"""Trace running PyTorch jobs: the same time or steps of every rank, gathered here, with a verdict for each.

sonde trace                                       500 ms of the only job that you have on this host
sonde trace --job 77 --steps 10 --round-up 100    ten steps of every rank of a batch job, from the same step on
sonde trace --pid 812 --duration 2s --stacks      one process (or all below it: a shell, torchrun)
sonde trace --host n[1-4] --all --merge           everything of yours on four hosts, also as one file for Perfetto
sonde trace --job 77 --rank 0,8-15 --output /scratch/slow
sonde trace --job 77 --no-wait; sonde trace fetch SESSION       gather later
sonde trace list; sonde trace show SESSION; sonde trace cancel SESSION

A process can be traced when it was started with KINETO_USE_DAEMON=1 (or by sonde run) on a host whose sonde daemon has
tracing on. It learns of the request at its next poll, within 5 s. Files are gathered over the daemons' port: no
filesystem need be shared. manifest.json beside them tells who, when, what, and how each host's clock differs.
Exit code 0: every rank wrote and was gathered. 4: what is missing timed out. sonde doctor trace PID explains a process.
"""

from __future__ import annotations

import argparse
import os
import secrets
import threading
import time

from sonde.cli import trace_manifest
from sonde.cli.arguments import count, duration
from sonde.cli.connection import tls_of
from sonde.cli.ranks import parse_ranks
from sonde.cli.termination import terminable
from sonde.cli.trace_check import census, check, ended, lacks, learn_builds, name_of, remarks, shortened
from sonde.cli.trace_dynolog import arm_dynologs
from sonde.cli.trace_follow import GRACE
from sonde.cli.trace_hosts import nodes_of, settled
from sonde.cli.trace_plan import DEFAULT_DURATION, Plan, decided, plan_of, refuse_harm, refuse_outlasting
from sonde.cli.trace_run import Run, default_output
from sonde.cli.trace_sessions import add_hosts, add_verbs
from sonde.cli.trace_start import POLL, arm, earliest, measure_clocks, start_of
from sonde.cli.trace_steps import TRIES, Next, another, in_step
from sonde.cli.trace_table import expected, rows_of
from sonde.clock import NS
from sonde.errors import Unavailable
from sonde.schedulers.hosts import seconds_left
from sonde.tracing.kineto import ACTIVITIES
from sonde.units import Duration, Size, human_seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_choice(parser)
    _add_recording(parser)
    _add_ending(parser)
    add_verbs(parser)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which processes (default: your only job on this host)")
    which.add_argument(
        "--pid", action="append", type=count, default=[], metavar="N", help="a process, or all below it; repeatable"
    )
    add_hosts(which)
    which.add_argument("--rank", type=parse_ranks, default=(), metavar="R,..", help="these ranks only: 0,8-15")
    which.add_argument("--all", action="store_true", help="everything that you may trace")


def _add_recording(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to record")
    length = what.add_mutually_exclusive_group()
    length.add_argument("--duration", type=duration, default=DEFAULT_DURATION, metavar="500ms", help="so long (500ms)")
    length.add_argument("--steps", type=count, metavar="N", help="so many optimizer steps")
    begin = what.add_mutually_exclusive_group()
    begin.add_argument("--at-step", type=count, metavar="N", help="begin at this step; one that has passed: at once")
    begin.add_argument("--round-up", type=count, metavar="N", help="begin at a multiple of this")
    what.add_argument("--delay", type=_span, default=Duration(0), metavar="2s", help="begin so much later")
    what.add_argument(
        "--warmup", type=_span, metavar="5s", help="of the profiler (default: 0s for a process without a GPU, else 5s)"
    )
    what.add_argument("--shapes", action="store_true", help="record the shapes of operators' inputs")
    what.add_argument("--memory", action="store_true", help="record allocations (PyTorch 2.13: none on demand)")
    what.add_argument("--memory-snapshot", action="store_true", help="CUDA's memory snapshot too, a file on its host")
    what.add_argument("--stacks", action="store_true", help="record Python calls, of modules too: costly, large")
    what.add_argument("--flops", action="store_true", help="estimate floating-point operations (as --memory)")
    what.add_argument("--modules", action="store_true", help="record calls of modules, with the stacks they are in")
    what.add_argument(
        "--activities", type=_activities, default=(), metavar="KIND,KIND", help="record these only, as cpu_op,kernel"
    )
    what.add_argument(
        "--directory", default="", metavar="NODE_DIR", help="where processes write, on their hosts (/tmp)"
    )


def _add_ending(parser: argparse.ArgumentParser) -> None:
    after = parser.add_argument_group("and then")
    after.add_argument("--output", default="", metavar="DIR", help="gather files here (./trace-SESSION)")
    after.add_argument("--wait", action=argparse.BooleanOptionalAction, default=True, help="stay until all is gathered")
    after.add_argument(
        "--timeout", type=duration, default=Duration(60), metavar="60s", help="for each file, from its start on (60s)"
    )
    after.add_argument("--limit", type=count, default=1000, metavar="N", help="processes per host at most (1000)")
    after.add_argument("--merge", action="store_true", help="write merged.json.gz too: ranks as processes, one clock")
    after.add_argument("--keep", action="store_true", help="leave the files on their hosts as well")
    after.add_argument("--max-size", type=_size, default=Size(2 * 10**9), metavar="2GB", help="of a file (2GB)")
    after.add_argument("--verbose", action="store_true", help="a line for each change, where there is no terminal")
    after.add_argument("--json", action="store_true", help="print the manifest, with the exit code, as an object")


def _span(text: str) -> Duration:
    """A duration that may be nothing."""
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _size(text: str) -> Size:
    try:
        return Size.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _activities(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in ACTIVITIES:
            raise argparse.ArgumentTypeError(f"{name!r} is not an activity; there are {', '.join(ACTIVITIES)}")
    return names


def run(args: argparse.Namespace) -> int:
    with terminable():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    if args.verb is not None:
        return int(args.run_verb(args))
    return record(args)


def record(args: argparse.Namespace) -> int:
    """A new session, from the choice of its hosts to the table."""
    plan = plan_of(args)
    nodes, said = nodes_of(args)
    session = new_session()
    output, tls = args.output or default_output(session), tls_of(args)
    trace_manifest.check_output(output, session)
    ending = _Ending(args.job)
    check(nodes, plan.choice, tls)
    nodes = settled(nodes)
    run = Run(args, session, output, nodes, tls)
    run.say(*said)
    plan = decided(plan, nodes, os.getuid())
    _say_findings(run, plan)
    refuse_harm(plan, nodes)
    run.say(*measure_clocks(nodes, run.tls))
    refuse_outlasting(_needed(run, plan), ending.seconds_left(), args.job)
    _arm(run, plan)
    if not args.wait and run.is_armed:
        return _left(run)
    run.complete(_limit_ns(run, plan))
    for more in range(TRIES - 1, -1, -1) if _are_together(run, plan) else ():
        following = _following(run, plan, more)
        if following is None:
            break
        plan = plan.again(following)
        run.renew(new_session())
        _arm(run, plan)
        run.complete(_limit_ns(run, plan))
    return run.finished()


def new_session() -> str:
    """`20261115-204211-7f3a`: when, and which of that second."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def _say_findings(run: Run, plan: Plan) -> None:
    nodes = run.nodes
    lacking = lacks(nodes, plan.choice.get("ranks", ()), plan.whole_job)
    run.lacking = [lack for lack in lacking if plan.is_named or not lack.host]
    found = any(node.found for node in nodes)
    if any(node.traceable for node in nodes):
        run.say(census(nodes))
    run.say(*remarks(nodes, plan.nobody), *ended(nodes, plan.choice.get("pids", ())), *shortened(lacking))
    if not found and not any(node.foreign for node in nodes):
        hints = [node.error.hint for node in nodes if node.error is not None and node.error.hint]
        usual = "sonde processes lists what there is, sonde doctor trace explains"
        raise Unavailable("nothing to trace", hint=hints[0] if len(hints) == len(nodes) else usual)


def _are_together(run: Run, plan: Plan) -> bool:
    """Are these the ranks of one training, of which the same steps are wanted, whichever they are?"""
    processes = [process for node in run.nodes for process in node.traceable]
    jobs = {process["job"]["id"] if process["job"] else "" for process in processes}
    ranked = all(process["rank"] is not None for process in processes)
    return bool(plan.options.steps and len(processes) > 1 and len(jobs) == 1 and ranked and run.args.at_step is None)


def _following(run: Run, plan: Plan, more: int) -> Next | None:
    """What to ask for when ranks have recorded different steps, if there are more tries; None when all is well."""
    begun = run.begun()
    options = plan.options
    if len(begun) < 2 or in_step(begun, options.steps, options.round_up):
        return None
    if not more:
        run.say("ranks have recorded different steps, or do not wait for one another")
        return None
    polls = [process["poll_seconds"] or POLL for node in run.nodes for process in node.traceable]
    following = another(begun, options.steps, options.round_up, max(polls), time.time_ns())
    apart = max(begun).first_ns - min(begun).first_ns
    run.say(
        f"ranks have recorded different steps, {human_seconds(apart / 1e9)} apart: once more, "
        f"from a multiple of {following.round_up}"
    )
    return following


def _needed(run: Run, plan: Plan) -> float:
    """Seconds until the recording is over, for certain."""
    wait = earliest(run.nodes, plan.options.warmup_seconds, time.monotonic())
    return wait + float(run.args.delay) + plan.seconds


class _Ending:
    """When a job must end, asked of its batch system while the hosts are asked what they have: it may take a while."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._left: int | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True)
        if job:
            self._thread.start()

    def _ask(self) -> None:
        self._left = seconds_left(self._job)

    def seconds_left(self) -> int | None:
        if self._job:
            self._thread.join()
        return self._left


def _arm(run: Run, plan: Plan) -> None:
    """Choose the start and ask all hosts for it."""
    delay = float(run.args.delay)
    if plan.options.steps:
        time.sleep(delay)  # libkineto takes a step or a time to begin at, not both
    trace_manifest.make(run.output)
    run.start_ns = start_of(run.nodes, plan, now=time.monotonic(), now_ns=time.time_ns(), delay=delay)
    run.request = {**plan.choice, **plan.recording}
    try:
        arm(run.nodes, plan, run.session, run.start_ns, tls=run.tls)
        arm_dynologs(run.nodes, plan, run.session, run.start_ns, tls=run.tls)
        learn_builds(run.nodes, run.tls)
        run.write_down()
    except KeyboardInterrupt:
        run.abandon()
        raise


def _limit_ns(run: Run, plan: Plan) -> int:
    """When to give up what has no deadline yet: it was not fetched, or its beginning was not seen."""
    begin: int = max(run.start_ns, plan.recording.get("not_before_ns", 0), time.time_ns()) + round(2 * POLL * NS)
    return begin + round((plan.seconds + float(run.args.timeout) + GRACE) * NS)


def _left(run: Run) -> int:
    """--no-wait: say how to come back."""
    rows = run.rows()
    idle = [row for row in rows if row.state not in ("requested", "delivered", "started", "written", "armed")]
    armed = len(rows) - len(idle)
    known = rows_of([], {}, run.lacking)  # these have been said
    run.say(*(f"{name_of(row.rank, row.pid, row.host)}: {row.verdict}" for row in idle if row not in known))
    run.say(f"session {run.session}: {armed} of {expected(rows)} armed; gather them with: {run.fetch_command()}")
    code = 0 if armed == len(rows) else 1
    if run.args.json:
        run.print_object(code, run.manifest(rows))
    else:
        print(run.session)
    return code
