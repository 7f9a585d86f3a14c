"""`dyno`: dynolog's command line, spoken to a dynolog or to a sonde daemon.

dyno status                                             is a daemon there
dyno gputrace --log-file /tmp/trace.json                trace what registered there, for half a second
dyno gputrace --log-file /tmp/t.json --iterations 5     or for five optimizer steps
dyno --hostname node07 gputrace --log-file /tmp/t.json --job-id 77 --process-limit 8

Each process puts its pid into the name: /tmp/trace_812.json. dyno does not wait for the files; `sonde trace` does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from sonde.address import Address
from sonde.cli.arguments import Parser
from sonde.cli.main import guarded
from sonde.dialects.dynolog import gputrace
from sonde.errors import RpcError, UsageError
from sonde.rpc.client import exchange
from sonde.rpc.codec import Message, decode, parse_error
from sonde.tracing.kineto import Options, config_text

_PATIENCE = 30.0  # seconds; dynolog answers one client after the other
_EXIT_CODES = (
    "exit codes: 0 done, 1 refused, or nothing will be traced (without a match only with --fail-on-no-process),"
    " 2 usage, 3 no daemon answers, 4 it did not answer in time"
)


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    return guarded("dyno", lambda: run(words))


def run(words: list[str]) -> int:
    top, verbs = parsers()
    if not words:
        print(top.format_help(), file=sys.stderr)
        return 2
    args = top.parse_args(words)
    if args.command == "help":
        print((verbs[args.verb] if args.verb else top).format_help())
        return 0
    command: Callable[[argparse.Namespace], int] = _COMMANDS[args.command]
    return command(args)


def parsers() -> tuple[_Parser, dict[str, argparse.ArgumentParser]]:
    """The parser of everything, and those of the subcommands by name."""
    top = _Parser(prog="dyno", description=__doc__)
    _add_connection(top, hostname="localhost", port=1778)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    found: dict[str, argparse.ArgumentParser] = {}
    for name, text in _HELP.items():
        # After the command too; its default is the top's, else it would undo what stood before the command.
        found[name] = verb = commands.add_parser(name, help=text, description=text)
        if name != "help":
            _add_connection(verb, hostname=argparse.SUPPRESS, port=argparse.SUPPRESS)
    _add_gputrace(found["gputrace"])
    found["dcgm-pause"].add_argument(
        "--duration-s", type=_integer(-(2**31), 2**31), default=300, metavar="S", help="for how long (default: 300)"
    )
    found["help"].add_argument("verb", nargs="?", choices=list(found), metavar="COMMAND", help="of this command")
    return top, found


class _Parser(Parser):
    def __init__(self, **settings: Any) -> None:
        # clap takes no abbreviations, and a script must not come to depend on them.
        super().__init__(epilog=_EXIT_CODES, allow_abbrev=False, **settings)


def _add_connection(parser: argparse.ArgumentParser, *, hostname: object, port: object) -> None:
    parser.add_argument("--hostname", default=hostname, metavar="HOST", help="of the daemon (default: localhost)")
    parser.add_argument("--port", type=_integer(0, 2**16), default=port, metavar="N", help="its port (default: 1778)")


def _add_gputrace(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    unsigned = _integer(0, 2**64)
    add("--log-file", required=True, metavar="FILE", help="on that host, ending in .json; the pid is put before that")
    add("--job-id", type=unsigned, default=0, metavar="ID", help="processes of this Slurm job (default: of none)")
    add("--pids", type=_pids, default=(0,), metavar="A,B", help="these, or children of these (default: all of the job)")
    add("--duration-ms", type=unsigned, default=500, metavar="MS", help="how long to record (default: 500)")
    add("--iterations", type=_integer(-(2**63), 2**63), default=-1, metavar="N", help="steps to record instead")
    add("--profile-start-time", type=unsigned, default=0, metavar="MS", help="Unix time, the same on many hosts")
    add("--profile-start-iteration-roundup", type=unsigned, default=1, metavar="N", help="begin at a multiple of this")
    add("--process-limit", type=_integer(0, 2**32), default=3, metavar="N", help="trace at most so many (default: 3)")
    add("--record-shapes", action="store_true", help="shapes and types of operators' inputs")
    add("--profile-memory", action="store_true", help="a memory snapshot over the duration; GPU builds of PyTorch only")
    add("--with-stacks", action="store_true", help="Python stacks")
    add("--with-flops", action="store_true", help="estimated floating point operations")
    add("--with-modules", action="store_true", help="names of PyTorch modules")
    add("--fail-on-no-process", action="store_true", help="exit with 1 when no process matches")


def _integer(first: int, end: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text) if text.isascii() and "_" not in text else None
        except ValueError:
            number = None
        if number is None or not first <= number < end:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {first} to {end - 1}")
        return number

    return parse


def _pids(text: str) -> tuple[int, ...]:
    return tuple(_integer(0, 2**31)(word.strip()) for word in text.split(",")) if text.strip() else ()


def _asked(args: argparse.Namespace, body: bytes, first: str = "") -> Message:
    """Ask, and print what dyno prints of an answer."""
    try:
        reply = exchange(str(Address(args.hostname, args.port)), body, timeout=_PATIENCE)
        text = reply.decode()
    except UnicodeDecodeError:
        raise RpcError("bad-json", "the reply is not UTF-8") from None
    print(f"{first}response length = {len(reply)}\nresponse = {text}")
    message = decode(reply)
    error = parse_error(message)
    if error is not None:
        raise error
    return message


def _status(args: argparse.Namespace) -> int:
    _asked(args, b'{"fn":"getStatus"}')
    return 0


def _version(args: argparse.Namespace) -> int:
    _asked(args, b'{"fn":"getVersion"}')
    return 0


def _pause(args: argparse.Namespace) -> int:
    _asked(args, b'\n{\n    "fn": "dcgmProfPause",\n    "duration_s": %d\n}' % args.duration_s)
    return 0


def _resume(args: argparse.Namespace) -> int:
    _asked(args, b'{"fn":"dcgmProfResume"}')
    return 0


def _gputrace(args: argparse.Namespace) -> int:
    ask = _ask(args)
    reply = _asked(args, gputrace.request_text(ask), f"Kineto config = \n{config_text(ask.options)}\n")
    print()
    result = gputrace.parse_result(reply)
    for line in gputrace.result_lines(ask.options, result):
        print(line)
    for note in gputrace.notes(ask.options, result, ask.process_limit):
        print(f"sonde: dyno: {note}", file=sys.stderr)
    if not result.matched and args.fail_on_no_process:
        print(f"Error: {gputrace.NO_MATCH}", file=sys.stderr)
        return 1
    return 1 if result.matched and not result.triggered else 0


def _ask(args: argparse.Namespace) -> gputrace.Ask:
    steps = max(0, args.iterations)
    if args.profile_memory and steps:
        raise UsageError("--profile-memory goes with a duration, not with --iterations", hint="leave out --iterations")
    options = Options(
        log_file=args.log_file,
        duration_ms=args.duration_ms,
        start_ms=args.profile_start_time,
        steps=steps,
        round_up=args.profile_start_iteration_roundup,
        shapes=args.record_shapes,
        snapshot=args.profile_memory,
        stacks=args.with_stacks,
        flops=args.with_flops,
        modules=args.with_modules,
    )
    gputrace.check(options)
    return gputrace.Ask(options, args.job_id, args.pids, args.process_limit)


_COMMANDS = {
    "status": _status,
    "version": _version,
    "gputrace": _gputrace,
    "dcgm-pause": _pause,
    "dcgm-resume": _resume,
}
_HELP = {
    "status": "whether a daemon answers",
    "version": "its version",
    "gputrace": "have PyTorch processes write a trace each",
    "dcgm-pause": "pause the profiling counters of GPUs, for tools that need them",
    "dcgm-resume": "go on with them",
    "help": "how a command is used",
}
