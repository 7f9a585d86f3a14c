"""The argument parser of all commands, and types of arguments whose errors say what was expected."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
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
    """Keeps the lines of a description, and names the option or the verb that was probably meant."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, **settings})
        self._words: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            message = self._unknown(unknown.split()) or message
        self.exit(2, f"{self.prog}: {message}\n  {self.prog} --help explains\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A word in the place of a verb may also be the value of an option that there is not: `--durration 1s`."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            before = self._words[: self._words.index(value)] if value in self._words else self._words
            known = ", ".join(action.choices)
            meant = f"{value}: no such verb{_suggested(value, action.choices)}; there are {known}"
            raise argparse.ArgumentError(None, self._unknown(before) or meant)
        super()._check_value(action, value)

    def _unknown(self, words: Sequence[str]) -> str:
        """What is to be said of those words that look like options and are none."""
        known = options_of(self)
        names = [word.partition("=")[0] for word in words if word.startswith("--") and word != "--"]
        wrong = [name for name in names if not any(option.startswith(name) for option in known)]
        return ", ".join(f"{name}: no such option{_suggested(name, known)}" for name in dict.fromkeys(wrong))


def _suggested(word: str, known: Iterable[str]) -> str:
    import difflib  # only on the way to an error

    close = difflib.get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a parser and of its verbs."""
    known: set[str] = set()
    for action in parser._actions:
        known |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                known |= options_of(verb)
    return known
