"""Launchers that speak other systems' command lines, for scripts that call them by their names.

  sonde compat list           the launchers there are
  sonde compat link DIR       write them into DIR; put DIR on the PATH where they are wanted

They are not installed by default, because the names belong to others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from sonde.cli.terminal import table
from sonde.errors import SondeError, Unavailable

# name on the PATH: (module with a `main() -> int`, what it stands in for). A dialect adds its line here.
LAUNCHERS: dict[str, tuple[str, str]] = {
    "dynolog": ("sonde.cli.launchers.dynolog", "dynolog: its flags, its metrics, its log lines"),
    "perfmon": ("sonde.cli.launchers.perfmon", "ska-sdp-perfmon: its options, its files"),
    "dyno": ("sonde.cli.launchers.dyno", "dyno: dynolog's command for traces, its flags and its printed lines"),
}

_SCRIPT = """#!{python}
# Written by `sonde compat link`: stands in for {what}.
from {module} import main

raise SystemExit(main())
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|link")
    listing = verbs.add_parser("list", help="the launchers there are")
    listing.add_argument("--json", action="store_true", help="print an object")
    link = verbs.add_parser("link", help="write launchers into a directory")
    link.add_argument("directory", help="where to; made when it is not there")
    link.add_argument("name", nargs="*", help="only these (default: all)")
    link.add_argument("--force", action="store_true", help="replace files that sonde did not write")


def run(args: argparse.Namespace) -> int:
    if args.verb == "list":
        if args.json:
            print(json.dumps({name: what for name, (_, what) in LAUNCHERS.items()}))
        else:
            print(table([[name, what] for name, (_, what) in LAUNCHERS.items()]) or "no dialect has a launcher yet")
        return 0
    for path in link(args.directory, args.name, force=args.force):
        print(path)
    return 0


def link(directory: str, names: list[str], *, force: bool) -> list[str]:
    """Write the launchers and return their paths. A foreign file of the name is left alone unless forced."""
    for name in names:
        if name not in LAUNCHERS:
            raise Unavailable(f"{name}: no such launcher", hint=f"there are: {', '.join(LAUNCHERS) or 'none yet'}")
    chosen = names or list(LAUNCHERS)
    if not chosen:
        raise Unavailable("no dialect has a launcher yet")
    try:
        os.makedirs(directory, exist_ok=True)
        return [_write(directory, name, force=force) for name in chosen]
    except OSError as error:
        raise SondeError(f"{error.filename}: {error.strerror}") from None


def _write(directory: str, name: str, *, force: bool) -> str:
    module, what = LAUNCHERS[name]
    path = os.path.join(directory, name)
    if os.path.exists(path) and not force:
        with open(path, "rb") as file:
            if b"sonde compat link" not in file.read(4096):
                raise SondeError(f"{path} is not ours", hint="give another directory, or --force to replace it")
    with open(path, "w", encoding="utf-8") as file:
        file.write(_SCRIPT.format(python=sys.executable, module=module, what=what))
    os.chmod(path, 0o755)  # noqa: S103 - a launcher is there to be run by everybody
    return path
