"""Which sonde this is."""

from __future__ import annotations

import os

VERSION = "0.1.0"
API = 1  # of our own RPC functions; fields are added, never renamed


def commit() -> str:
    """The commit of the checkout this runs from, shortened; empty when it runs from an installed package."""
    git = os.path.join(os.path.dirname(__file__), "..", "..", ".git")
    try:
        with open(os.path.join(git, "HEAD"), encoding="ascii") as file:
            head = file.read().strip()
        if head.startswith("ref: "):
            with open(os.path.join(git, head[5:]), encoding="ascii") as file:
                head = file.read().strip()
    except OSError:
        return ""
    return head[:12]


def describe() -> str:
    """`0.1.0 (git 0123456789ab)`, or only the number."""
    hash_ = commit()
    return f"{VERSION} (git {hash_})" if hash_ else VERSION
