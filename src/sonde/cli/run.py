"""Run a command so that its PyTorch processes can be traced at any time.

  sonde run -- python train.py                 as if it were run directly, but `sonde trace` reaches it
  sonde run -- torchrun --nproc-per-node 4 train.py
  srun sonde run -- python train.py            in every task of a job
  sonde run --tag tune-3 -- python train.py    a name for a job that no batch system has named

It sets KINETO_USE_DAEMON=1 and a poll period of one second, and then becomes the command: same process, terminal,
signals and exit code. The daemon of this node is used when it can be reached from here; otherwise the command gets a
private one that lives and ends with it, takes no port, and is found by `sonde processes` and `sonde trace`.

Exit code: the command's; 127 when it is not found, 126 when it cannot be run, 2 for a wrong option of this command.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from sonde.cli.arguments import duration
from sonde.cli.run_daemon import of_this_node, private
from sonde.cli.run_environment import Told, environment
from sonde.errors import SondeError, Unavailable, UsageError
from sonde.units import Duration

_NOT_FOUND = 127  # as shells have it, and env(1), nice(1) and timeout(1)
_NOT_RUN = 126


class _NotStarted(SondeError):
    def __init__(self, word: str, error: OSError) -> None:
        missing = isinstance(error, FileNotFoundError)
        super().__init__(f"{word}: {'not found' if missing else error.strerror}")
        self.exit_code = _NOT_FOUND if missing else _NOT_RUN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [-h] [--poll 1s] [--tag NAME] [--private] [-v] [--] COMMAND ..."
    parser.add_argument(
        "--poll", type=duration, default=Duration(1), metavar="1s", help="how often a process asks; whole seconds"
    )
    parser.add_argument("--tag", metavar="NAME", help="name of the job, where no batch system has given it one")
    parser.add_argument("--private", action="store_true", help="a daemon of its own, also when the node has one")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is set, on standard error")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="what to run, with its own options"
    )


def run(args: argparse.Namespace) -> int:
    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise UsageError("there is no command", hint="for example: sonde run -- python train.py")
    if args.poll != int(args.poll):
        raise UsageError(f"--poll {args.poll}: PyTorch counts it in whole seconds", hint="the shortest is 1s")
    program = found(words[0])
    told = prepared(args)
    if args.verbose:
        for line in told.said:
            print(f"sonde: run: {line}", file=sys.stderr)
    become(program, words, told.environ)


def prepared(args: argparse.Namespace) -> Told:
    """The environment of the command. When no daemon can be had, the command is run all the same, without one."""
    try:
        meeting = None if args.private else of_this_node(os.environ)
        return environment(os.environ, meeting or private(os.getpid()), int(args.poll), args.tag or "")
    except Unavailable as error:
        print(f"sonde: run: {error}", file=sys.stderr)
        print("  the command runs without: it cannot be traced", file=sys.stderr)
        return environment(os.environ, None, int(args.poll), args.tag or "")


def found(word: str) -> str:
    """The path of a program. Looked for before anything is started for it."""
    import shutil

    path = shutil.which(word)
    if path is not None:
        return path
    if shutil.which(word, mode=os.F_OK) is not None:
        raise _NotStarted(word, PermissionError(13, "it may not be executed"))
    raise _NotStarted(word, FileNotFoundError())


def become(program: str, words: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command's."""
    sys.stdout.flush()
    sys.stderr.flush()
    # The interpreter ignores these two, and what is ignored stays so in the next program (execve(2)).
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, list(words), environ)  # noqa: S606 - what the user asks for
    except OSError as error:
        import errno

        if error.errno == errno.ENOEXEC:  # a script without #!: every shell, and execvp(3), gives it to sh
            os.execve("/bin/sh", ["sh", program, *words[1:]], environ)  # noqa: S606
        raise _NotStarted(words[0], error) from None
