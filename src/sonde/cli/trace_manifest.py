"""`manifest.json` beside the gathered files: who, when, what was asked for, every rank, every host's clock, versions.

It is there from the moment the hosts were asked, so that `sonde trace fetch` finds them again.
"""

from __future__ import annotations

import json
import os
from typing import Any

from sonde.cli.trace_check import Lack
from sonde.cli.trace_hosts import Node
from sonde.errors import ParseError, UsageError
from sonde.rpc.clocks import Offset

NAME = "manifest.json"
FORMAT = 1


def check_output(output: str, session: str) -> None:
    """Refuse a directory that has another trace, or is none; before anything is armed."""
    if os.path.exists(output) and not os.path.isdir(output):
        raise UsageError(f"{output} is not a directory")
    if os.path.exists(os.path.join(output, NAME)) and read(output).get("session") != session:
        raise UsageError(f"{output} has a trace already", hint="name another directory with --output")


def make(output: str) -> None:
    try:
        os.makedirs(output, exist_ok=True)
        with open(os.path.join(output, f".{NAME}.part"), "wb"):
            pass
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}", hint="name another directory with --output") from None


def write(output: str, manifest: dict[str, Any]) -> None:
    """A reader finds the one before or this one, never a part."""
    part = os.path.join(output, f".{NAME}.part")
    with open(part, "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
        file.write("\n")
    os.replace(part, os.path.join(output, NAME))


def remove(output: str) -> None:
    """Nothing came of it: take back what make() and write() have done."""
    for name in (NAME, f".{NAME}.part"):
        try:
            os.unlink(os.path.join(output, name))
        except FileNotFoundError:
            pass
    try:
        os.rmdir(output)
    except OSError:
        pass  # it was there before, and has other files


def read(output: str) -> dict[str, Any]:
    path = os.path.join(output, NAME)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="say where the trace is: --output DIR") from None
    except ValueError as error:
        raise ParseError(path, error) from None
    if not isinstance(found, dict) or found.get("manifest") != FORMAT:
        raise ParseError(path, found, "not a manifest that this version can read")
    return found


def host_entry(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "address": node.address,
        "daemon": node.build,
        "dynolog": node.foreign,
        "error": str(node.error) if node.error else "",
        "clock": node.offset._asdict() if node.offset else None,
        "processes": node.found,
    }


def nodes_in(manifest: dict[str, Any]) -> list[Node]:
    """The hosts that had something to trace."""
    nodes = []
    for entry in manifest["hosts"]:
        if entry["dynolog"] or not entry["processes"]:
            continue
        node = Node(entry["name"], entry["address"])
        node.build, node.found = entry["daemon"], entry["processes"]
        node.offset = Offset(**entry["clock"]) if entry["clock"] else None
        nodes.append(node)
    return nodes


def lacks_in(manifest: dict[str, Any]) -> list[Lack]:
    return [Lack(**entry) for entry in manifest["lacking"]]
