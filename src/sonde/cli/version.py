"""The version of this sonde and, when one answers, of the daemon."""

from __future__ import annotations

import argparse
import json
import platform

from sonde.cli.connection import add_connection, call
from sonde.errors import SondeError
from sonde.version import describe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("--json", action="store_true", help="print an object")


def run(args: argparse.Namespace) -> int:
    try:
        daemon = str(call(args, "getVersion", timeout=1.0)["version"])
    except (SondeError, KeyError):
        daemon = ""
    if args.json:
        print(json.dumps({"sonde": describe(), "python": platform.python_version(), "daemon": daemon or None}))
    else:
        print(f"sonde {describe()}, Python {platform.python_version()}")
        print(f"daemon {daemon}" if daemon else "daemon: none answers here")
    return 0
