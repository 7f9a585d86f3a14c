"""The argument parser of all commands, and types of arguments whose errors say what was expected."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

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


class Parser(argparse.ArgumentParser):
    """Keeps the lines of a description, and names the option that was probably meant."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, **settings})

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            message += "".join([f"; did you mean {close}?" for close in self._meant(unknown.split())])
        super().error(message)

    def _meant(self, words: Sequence[str]) -> list[str]:
        import difflib  # only on the way to an error

        known = sorted(options_of(self))
        close = [difflib.get_close_matches(word.partition("=")[0], known, n=1) for word in words if word[:1] == "-"]
        return [found[0] for found in close if found]


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a parser and of its verbs."""
    known: set[str] = set()
    for action in parser._actions:
        known |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                known |= options_of(verb)
    return known
