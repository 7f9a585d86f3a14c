"""Types of arguments whose errors say what was expected."""

from __future__ import annotations

import argparse

from sonde.units import Duration


def duration(text: str) -> Duration:
    """`500ms`, `30s`, `5m`: longer than nothing."""
    try:
        parsed = Duration.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if parsed <= 0:
        raise argparse.ArgumentTypeError("must be longer than nothing")
    return parsed


def count(text: str) -> int:
    """A whole number that is not negative."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
