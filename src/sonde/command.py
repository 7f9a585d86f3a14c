"""The one place that runs another program: with a deadline, its output captured, its descendants ended with it.

Never called from a tick. The C locale makes messages and numbers the same everywhere.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from sonde.errors import ReadError, TimedOut, Unavailable

_SHOWN = 300  # characters of a program's complaint that are worth repeating


def run(argv: Sequence[str], *, timeout: float) -> str:
    """What the program wrote to its standard output.

    Unavailable when it cannot be started, TimedOut when it did not end in time, ReadError when it failed.
    """
    import subprocess  # 10 ms and 1 MB that a daemon without a batch system never pays

    try:
        process = subprocess.Popen(  # noqa: S603 (argv is ours, there is no shell)
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(f"{argv[0]}: {error.strerror}") from None
    with process:
        try:
            output, complaint = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # The whole session: a grandchild that holds the pipe would keep us waiting for its end.
            os.killpg(process.pid, signal.SIGKILL)
            raise TimedOut(f"{argv[0]} did not end within {timeout:g} s") from None
    if process.returncode:
        said = _gist(complaint.decode("utf-8", "replace").strip())
        raise ReadError(f"{argv[0]} ended with status {process.returncode}: {said}")
    return output.decode("utf-8", "replace")


def _gist(complaint: str) -> str:
    """All of a short complaint, else its last line: kubectl logs each try at length before it says what is wrong."""
    if len(complaint) > _SHOWN:
        complaint = complaint.rpartition("\n")[2]
    if len(complaint) > _SHOWN:
        complaint = (complaint[:_SHOWN].rpartition(" ")[0] or complaint[:_SHOWN]) + " …"
    return complaint
