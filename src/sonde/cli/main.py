"""The entry: finds the command, imports its module, turns errors into messages and exit codes.

A command is a module with `add_arguments(parser)` and `run(args) -> int`; the first line of its docstring is its help.
The table below is all that `sonde --help` needs: it imports no command, and so no collector, sink or third party.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sonde.errors import SondeError

# name: (module, help). The order is the order of --help.
COMMANDS: dict[str, tuple[str, str]] = {
    "daemon": ("sonde.cli.daemon", "watch this node: collect, serve /metrics, keep the archive"),
    "status": ("sonde.cli.status", "what the daemon collects, where it sends it, and what fails"),
    "watch": ("sonde.cli.watch", "a line per second: CPU, memory, disk, network, jobs"),
    "run": ("sonde.cli.run", "run a command so that its PyTorch processes can be traced at any time"),
    "record": ("sonde.cli.record", "record what a job does on its nodes, around a command or beside it"),
    "processes": ("sonde.cli.processes", "the training processes that can be asked for a trace"),
    "trace": ("sonde.cli.trace", "the same steps of every rank of a running job, gathered, with a verdict each"),
    "merge": ("sonde.cli.merge", "traces of several ranks as one, on one clock, for Perfetto"),
    "report": ("sonde.cli.report", "what a recorded job did, and what to change: text, HTML, PDF, plots"),
    "metrics": ("sonde.cli.metrics", "the newest value of every metric, or of those that match"),
    "query": ("sonde.cli.query", "ranges, rates and sparklines from the archive or a Prometheus server"),
    "targets": ("sonde.cli.targets", "service discovery for Prometheus, from Slurm, Kubernetes or a host list"),
    "replay": ("sonde.cli.replay", "send the history of an archive through a sink, with its own times"),
    "export": ("sonde.cli.export", "a recording for pandas, DuckDB, Excel, Prometheus or any other tool"),
    "archive": ("sonde.cli.archive", "what the archive holds, and whether it is whole"),
    "context": ("sonde.cli.context", "what a node is, hardware to libraries, and in what nodes differ"),
    "compare": ("sonde.cli.compare", "what changed between two recorded runs, told apart from noise"),
    "memory": ("sonde.cli.memory", "proportional and unique memory of processes, read now"),
    "doctor": ("sonde.cli.doctor", "what works on this host, what does not, why, and what would enable it"),
    "certs": ("sonde.cli.certs", "certificates for mutual TLS between machines: make, show, revoke"),
    "config": ("sonde.cli.config", "check, show or print the default configuration"),
    "compat": ("sonde.cli.compat", "launchers that speak other systems' command lines"),
    "completion": ("sonde.cli.completion", "tab-completion for bash, zsh or fish"),
    "version": ("sonde.cli.version", "the version of sonde and of the daemon"),
}

_EXIT_CODES = "0 all done, 1 failed or partly, 2 usage or configuration, 3 not available or denied, 4 timed out"


def usage() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items())
    return (
        "sonde watches AI and HPC jobs: one small daemon per node, one command line.\n\n"
        "usage: sonde COMMAND [OPTIONS]\n"
        "       sonde COMMAND --help\n\n"
        f"{rows}\n\n"
        f"exit codes: {_EXIT_CODES}, 130 interrupted\n"
        "start here: sonde doctor, then sonde daemon"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stdout is None:  # started with standard output closed
        sys.stdout = open("/dev/null", "w", encoding="utf-8")  # noqa: SIM115 - for as long as we run
    if words[:1] == ["help"] and len(words) == 2 and words[1] in COMMANDS:
        words = [words[1], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    name = "version" if words[0] in ("-V", "--version") else words[0]
    if name not in COMMANDS:
        return _unknown(name)
    return guarded(name, lambda: _run(name, words[1:]))


def _unknown(name: str) -> int:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    print(f"sonde: {name}: no such command" + (f"; did you mean {close[0]}?" if close else ""), file=sys.stderr)
    print(f"commands: {', '.join(COMMANDS)}", file=sys.stderr)
    return 2


def parser_of(name: str):  # type: ignore[no-untyped-def]  # argparse is imported here, not for --help
    """The argument parser of one command and the module that runs it."""
    from importlib import import_module

    from sonde.cli.arguments import Parser

    module = import_module(COMMANDS[name][0])
    parser = Parser(prog=f"sonde {name}", description=module.__doc__, epilog=f"exit codes: {_EXIT_CODES}")
    module.add_arguments(parser)
    return parser, module


def explain(name: str, error: SondeError) -> int:
    """Say what went wrong, why, and what to do next; gives the exit code."""
    print(f"sonde: {name}: {error}", file=sys.stderr)
    if error.hint:
        print(f"  {error.hint}", file=sys.stderr)
    return error.exit_code


def _run(name: str, words: list[str]) -> int:
    parser, module = parser_of(name)
    return int(module.run(parser.parse_args(words)))


def guarded(name: str, command: Callable[[], int]) -> int:
    """Run a command; what goes wrong in it becomes a message and an exit code."""
    from sonde.errors import SondeError

    try:
        code = command()
        sys.stdout.flush()
        return code
    except SondeError as error:
        return explain(name, error)
    except KeyboardInterrupt as interrupt:
        return int(getattr(interrupt, "exit_code", 130))  # cli/termination.py has another
    except BrokenPipeError:
        # The reader of a pipe has gone (`sonde metrics | head`): nothing is wrong, and nothing more can be said.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # A full disk behind standard output, a closed terminal: everything else is caught where its cause is known.
        print(f"sonde: {name}: {error.strerror or error}", file=sys.stderr)
        return 1
