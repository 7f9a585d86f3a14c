"""Record what a job does on this node, to the last second: for sonde report, sonde export and sonde compare.

  sonde record -- python train.py                   around a command: same exit code, signals and terminal
  sonde record --pid 4711                           a process that runs already, with all below it
  srun -n $SLURM_JOB_NUM_NODES --ntasks-per-node 1 sonde record &      beside a job, on each of its nodes
  mpirun --map-by node -np 2 sonde record &         likewise, with PBS or OAR

Beside a job it finds the job's processes by itself and ends with them, at SIGTERM, or when the script says
`echo FINISHED > .ipc-$SLURM_JOB_ID`. Each node writes its own part of the directory.

  sonde record gather DIR [--hosts n[1-4]]          fetch the parts of nodes that share no filesystem
  sonde record resume DIR                           go on with what was interrupted, if the job still runs
  sonde record recover DIR                          finish what was interrupted

Exit code around a command: the command's. Beside a job: 0, or 1 when a part is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sonde.cli.arguments import duration
from sonde.errors import SondeError, Unavailable, UsageError
from sonde.jobs.recording import About
from sonde.units import Duration

if TYPE_CHECKING:
    from sonde.jobs.course import Ending
    from sonde.jobs.follow import Followed
    from sonde.jobs.recorder import Plan, Recorder, Source
    from sonde.jobs.signals import Command, Signals
    from sonde.jobs.stopfile import StopFile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [OPTIONS] [-- COMMAND ...]"
    parser.add_argument("-o", "--output", metavar="DIR", help="where to (default: ./sonde-JOB, or ./sonde-TIME)")
    parser.add_argument(
        "-i", "--period", type=duration, default=Duration(1), metavar="1s", help="time between two readings, from 10ms"
    )
    parser.add_argument(
        "--pid", type=_pid, action="append", default=[], metavar="N", help="follow this process; may be repeated"
    )
    parser.add_argument("--job", metavar="ID", default="", help="follow this job (default: the one this is part of)")
    parser.add_argument("--collectors", metavar="A,B", help="only these; with a + before the first, these as well")
    parser.add_argument(
        "--label", type=_label, action="append", default=[], metavar="K=V", help="kept with the recording"
    )
    parser.add_argument(
        "--wait", type=duration, default=Duration(60), metavar="60s", help="for the job's first process"
    )
    parser.add_argument(
        "--linger", type=duration, default=Duration(5), metavar="5s", help="go on this long without any process of it"
    )
    parser.add_argument("--stop-file", metavar="FILE", help="end when this says anything but INPROGRESS")
    parser.add_argument("--from-daemon", action="store_true", help="read nothing: take it from the daemon's archive")
    parser.add_argument("--report", action="store_true", help="then report on it: the text here, a page in DIR")
    parser.add_argument(
        "--export", nargs="+", default=[], metavar="FORMAT", help="then export it, as sonde export --to FORMAT does"
    )
    parser.add_argument("--no-gather", action="store_true", help="leave the parts of other nodes where they are")
    parser.add_argument("--hosts", metavar="LIST", help="the nodes of it (default: the job's): n[1-4],x or @FILE")
    parser.add_argument("--json", action="store_true", help="say how it went as an object, on standard error")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is recorded, on standard error")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="what to run")


def run(args: argparse.Namespace) -> int:
    if args.command[:1] and args.command[0] in ("gather", "resume", "recover"):
        from sonde.cli.record_verbs import run as run_verb

        return run_verb(args.command[0], args.command[1:])
    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if words and (args.pid or args.job):
        raise UsageError("a command, --pid and --job are three ways to say what is recorded: give one")
    if args.pid and args.job:
        raise UsageError("--pid and --job are two ways to say what is recorded: give one")
    if args.verbose:
        import logging

        logging.basicConfig(format="sonde: record: %(message)s", level=logging.INFO)
    from sonde.jobs.signals import Signals

    with Signals() as signals:
        if not words:
            return _beside(args, signals)
        code = _around(args, words, signals)
    if code < 0:
        from sonde.jobs.signals import die_by

        sys.stdout.flush()
        die_by(-code)
    return code


def _around(args: argparse.Namespace, words: Sequence[str], signals: Signals) -> int:
    """The exit code of the command, negative when a signal has ended it."""
    from sonde.cli.run import found
    from sonde.cli.run_environment import original
    from sonde.jobs.course import around, outlast
    from sonde.jobs.follow import batch_job
    from sonde.jobs.signals import Command

    program = found(words[0])
    environ = original(os.environ)
    name = f"{os.path.basename(words[0])}-{os.getpid()}"
    if batch_job() is None:
        name = environ.setdefault("SONDE_JOB_ID", name)
        _refuse_used(args)  # in a job of many tasks the first of a node records, and the others just run
    begun_ns = time.time_ns()
    command = Command(program, words, environ, signals)
    recorder = _begun(args, command, name, About(host="", begun_ns=begun_ns, period_ns=0, command=tuple(words)))
    if recorder is None:
        return _over(command, outlast(command, signals))
    ending = around(command, signals, _stop(args, recorder))
    about = _finished(args, recorder, ending)
    code = _over(command, outlast(command, signals))
    if about is not None:
        _follow_up(args, recorder, about)
    return code


def _over(command: Command, code: int) -> int:
    command.reap()
    return code


def _begun(args: argparse.Namespace, command: Command, name: str, about: About) -> Recorder | None:
    """The recorder of a command. When there cannot be one, the command runs all the same."""
    from sonde.hostfs import HostFS
    from sonde.jobs.follow import find

    try:
        followed = find(HostFS(), os.environ, command=command.pid, name=name)
        return start(args, followed, about)
    except (SondeError, OSError) as error:
        print(f"sonde: record: {error}", file=sys.stderr)
        print("  the command runs without being recorded", file=sys.stderr)
        return None


def _beside(args: argparse.Namespace, signals: Signals) -> int:
    from sonde.hostfs import HostFS
    from sonde.jobs.follow import find

    name = "+".join(f"pid-{pid}" for pid in args.pid)
    followed = find(HostFS(), os.environ, job_id=args.job, pids=args.pid, name=name)
    recorder = start(args, followed, About(host="", begun_ns=time.time_ns(), period_ns=0))
    about = until_ended(args, recorder, followed, signals)
    return 1 if about is None else _follow_up(args, recorder, about)


def until_ended(args: argparse.Namespace, recorder: Recorder, followed: Followed, signals: Signals) -> About | None:
    """Record until the job or the processes have ended; None when values were lost, which was said."""
    from sonde.hostfs import HostFS
    from sonde.jobs.course import beside
    from sonde.jobs.follow import Presence, about_job

    presence = Presence(HostFS(), followed, os.environ)
    try:
        by, linger = ("pid", 0.0) if followed.pids else ("job", float(args.linger))
        ending = beside(presence, signals, _stop(args, recorder), by=by, wait=float(args.wait), linger=linger)
    finally:
        presence.close()
    if not followed.job.id.scheduler and presence.job is not None:  # it was given by its number only
        recorder.add(job=about_job(presence.job))
    about = _finished(args, recorder, ending)
    if not ending.seen and ending.by in ("job", "pid"):
        raise Unavailable(
            f"no process of job {followed.job.id.text} was seen here", hint="--wait says for how long to look for one"
        )
    return about


def resume(args: argparse.Namespace) -> int:
    """Go on with a recording of this node."""
    from sonde.hostfs import HostFS
    from sonde.jobs.follow import Presence, node_name
    from sonde.jobs.interrupted import followed_again, own_part, resumed_about
    from sonde.jobs.recorder import Pipeline, Recorder
    from sonde.jobs.signals import Signals

    node = own_part(args.directory, node_name(os.environ))
    followed = followed_again(HostFS(), node.about, _boot_id())
    presence = Presence(HostFS(), followed, os.environ)
    try:
        if not presence.works():
            raise Unavailable(
                "what it was about has ended", hint=f"finish it with: sonde record recover {args.directory}"
            )
    finally:
        presence.close()
    args.period, args.label, args.wait = Duration(node.about.period_ns / 1e9), list(node.about.labels.items()), 0.0
    with Signals() as signals:
        recorder = Recorder(node.directory, resumed_about(node))
        recorder.start(Pipeline(_plan(args, followed), node.host, recorder.sink()))
        about = until_ended(args, recorder, followed, signals)
    return 1 if about is None else 0


def _plan(args: argparse.Namespace, followed: Followed) -> Plan:
    from sonde.jobs.recorder import DEFAULT, Plan, check_plan
    from sonde.registry import COLLECTORS

    named = args.collectors or ""
    names = tuple(filter(None, named.removeprefix("+").split(",")))
    if named.startswith("+"):
        names = tuple(dict.fromkeys((*(name for name in DEFAULT if name in COLLECTORS), *names)))
    plan = Plan(followed, args.period, names, dict(args.label))
    check_plan(plan)
    return plan


def start(args: argparse.Namespace, followed: Followed, begun: About) -> Recorder:
    """Begin a recording of this node, of which `begun` tells the beginning and the command."""
    from sonde.jobs.follow import about_job, node_name
    from sonde.jobs.recorder import Recorder
    from sonde.version import VERSION

    plan = _plan(args, followed)
    host = node_name(os.environ)
    about = begun._replace(
        host=host,
        period_ns=plan.period.ns,
        pids=followed.pids,
        job=about_job(followed.job),
        rank=followed.rank,
        uid=os.getuid(),
        boot_id=_boot_id(),
        labels=plan.labels,
        version=VERSION,
    )
    recorder = Recorder(_directory(args, followed, host), about)
    try:
        recorder.start(_source(args, plan, recorder), lambda: _details(args, followed, host))
    except BaseException:
        recorder.close()
        raise
    if args.verbose:
        print(f"sonde: record: {followed.job.id.text} into {recorder.directory}", file=sys.stderr)
    return recorder


def _source(args: argparse.Namespace, plan: Plan, recorder: Recorder) -> Source:
    from sonde.jobs.recorder import Pipeline

    if not args.from_daemon:
        return Pipeline(plan, recorder.about.host, recorder.sink())
    from sonde.cli.connection import address_of
    from sonde.jobs.excerpt import Excerpt
    from sonde.rpc import client

    archive = client.call(address_of(argparse.Namespace(host=None)), "daemon.status").get("archive")
    if not archive:
        raise Unavailable("the daemon of this node keeps no archive", hint="leave out --from-daemon")
    job = plan.followed.job
    return Excerpt(archive, recorder.sink(), (job.id.text, job.key.text))


def _details(args: argparse.Namespace, followed: Followed, host: str) -> Mapping[str, Any]:
    """What takes longer to find out: the hosts of the job, what it has asked for."""
    from sonde.jobs.asked import asked
    from sonde.jobs.follow import about_job, with_nodes

    job = with_nodes(followed.job, os.environ)
    if args.hosts:
        from sonde.schedulers.hosts import hosts_of

        job = job._replace(nodes=hosts_of(args.hosts))
    requested = asked(job.id.scheduler, os.environ, host)
    return {
        "job": about_job(job._replace(walltime_seconds=job.walltime_seconds or requested.get("seconds"))),
        "asked": requested or None,
    }


def _directory(args: argparse.Namespace, followed: Followed, host: str) -> str:
    """The directory of this node. A default one is numbered when it has been used; a given one is not used twice."""
    from sonde.jobs.recorder import unused

    if args.output:
        _refuse_used(args)
        return os.path.join(args.output, host)
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return os.path.join(unused(f"sonde-{moment if followed.is_local else followed.job.id.text}", host), host)


def _refuse_used(args: argparse.Namespace) -> None:
    from sonde.jobs.follow import node_name
    from sonde.jobs.recorder import is_held, is_recorded

    directory = os.path.join(args.output or "", node_name(os.environ))
    if args.output and is_recorded(directory) and not is_held(directory):
        raise UsageError(
            f"{directory} holds a recording", hint="give another --output, or go on with: sonde record resume"
        )


def _stop(args: argparse.Namespace, recorder: Recorder) -> StopFile | None:
    from sonde.jobs.stopfile import StopFile, places

    job = recorder.about.job or {}
    ids = [str(job.get("id", "")), str(job.get("raw_id", ""))] if job.get("scheduler") != "local" else []
    named = [args.stop_file] if args.stop_file else []
    paths = [*named, *places(os.path.dirname(recorder.directory), ids)]
    return StopFile(paths) if paths else None


def _finished(args: argparse.Namespace, recorder: Recorder, ending: Ending) -> About | None:
    """What recording.json says at the end; None when values were lost, which is said."""
    try:
        return recorder.finish(ending.by, exit_code=ending.exit_code, ended_ns=ending.time_ns)
    except (SondeError, OSError) as error:
        print(f"sonde: record: {error}", file=sys.stderr)
        print("  what has reached the archive is good: sonde record recover finishes it", file=sys.stderr)
        return None
    finally:
        recorder.close()


def _follow_up(args: argparse.Namespace, recorder: Recorder, about: About) -> int:
    """Tell how it went, then gather, report and export."""
    from sonde.cli.record_after import finish

    path = os.path.dirname(recorder.directory) or "."
    _tell(args, path, about)
    return finish(args, path, about)


def _tell(args: argparse.Namespace, path: str, about: About) -> None:
    import json

    seconds = ((about.ended_ns or about.begun_ns) - about.begun_ns) / 1e9
    if args.json:
        said = {"directory": path, "host": about.host, "seconds": seconds, "ended_by": about.ended_by}
        print(json.dumps({**said, "exit_code": about.exit_code, "notes": about.notes}), file=sys.stderr)
    elif args.verbose or sys.stderr.isatty():
        print(f"sonde: record: {seconds:.1f} s recorded; see them with: sonde report {path}", file=sys.stderr)


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _pid(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 31):
        raise argparse.ArgumentTypeError(f"{text!r} is not a process id")
    return int(text)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value
