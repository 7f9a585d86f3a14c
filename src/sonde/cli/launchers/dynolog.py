"""`dynolog`: reads dynolog's flags and then becomes the daemon they ask for.

dynolog --use_JSON --kernel_monitor_reporting_interval_s=1
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sonde.cli.daemon_process import Process, become
from sonde.cli.main import guarded
from sonde.dialects.dynolog.flags import configuration, given, help_text, notes
from sonde.version import describe


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    return guarded("dynolog", lambda: run(words))


def run(words: list[str]) -> int:
    flags = given(words)
    if flags.values["help"]:
        print(help_text())
        return 0
    if flags.values["version"]:
        print(f"dynolog, spoken by sonde {describe()}")
        return 0
    configuration(words)  # what is wrong is said by this process, not by the one it becomes
    for note in notes(flags):
        print(f"sonde: dynolog: {note}", file=sys.stderr)
    state = str(flags.values["state"]) or None
    return become(Process(config=None, state=state, changes={}, archive=False, dialect="dynolog", words=tuple(words)))
