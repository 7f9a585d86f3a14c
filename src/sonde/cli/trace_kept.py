"""What an earlier command has gathered of a session already, by its manifest.json and the files beside it.

The hosts may have deleted theirs since, or be gone: what is here stays, and is not asked for again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sonde.cli.trace_gather import Gathered, Key, key_of, summarised
from sonde.cli.trace_hosts import Node
from sonde.cli.trace_table import Row, by_rank

Place = tuple[str, int | None, int | None]


def kept_rows(output: str, manifest: dict[str, Any]) -> list[Row]:
    """The rows of a manifest whose files are here, as they were written."""
    told = [{name: entry[name] for name in Row._fields if name in entry} for entry in manifest["ranks"]]
    return [row for row in (Row(**entry) for entry in told) if row.ok and _is_here(output, row)]


def _is_here(output: str, row: Row) -> bool:
    try:
        size = os.stat(os.path.join(output, row.file)).st_size if row.file else -1
    except OSError:
        return False
    return size >= 0 and row.stored in (None, size)


def restored(output: str, kept: Sequence[Row], nodes: Sequence[Node]) -> dict[Key, Gathered]:
    """The files of targets that are here, and what is in them; without those that can no longer be read."""
    rows = {_place(row): row for row in kept}
    found = {}
    for node in nodes:
        for target in node.targets:
            row = rows.get((node.name, target["rank"], target["pid"] or target["own_pid"]))
            if row is not None:
                file = Gathered(row.file, row.size or 0, row.stored or 0, row.sha256)
                found[key_of(node, target)] = summarised(output, file, node.asked_for)
    return {key: one for key, one in found.items() if not one.error}


def with_kept(rows: Sequence[Row], kept: Sequence[Row]) -> list[Row]:
    """What is known now, but for what is here in spite of it: its host does not answer, or was not asked."""
    before = {_place(row): row for row in kept}
    now = [row if row.ok else before.get(_place(row), row) for row in rows]
    told = {_place(row) for row in now}
    return by_rank([*now, *(row for place, row in before.items() if place not in told)])


def _place(row: Row) -> Place:
    return row.host, row.rank, row.pid
