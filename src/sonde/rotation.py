"""Rotated files: `path` becomes `path.1`, `path.1` becomes `path.2`; what is beyond `keep` is overwritten."""

from __future__ import annotations

import os


def rotate(path: str, keep: int) -> None:
    """Move a file and its predecessors one number up; with nothing to keep it is removed. Raises OSError."""
    for number in range(keep - 1, 0, -1):
        _move(f"{path}.{number}", f"{path}.{number + 1}")
    if keep:
        _move(path, f"{path}.1")
        return
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # moved by somebody else: a new file is due anyway


def _move(old: str, new: str) -> None:
    try:
        os.replace(old, new)
    except FileNotFoundError:
        pass  # not that many rotations yet
