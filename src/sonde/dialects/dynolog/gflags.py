"""The command line of gflags: `--name=value`, `--name value`, `--switch`, `--noswitch`, `--flagfile=FILE`.

    # /etc/dynolog.gflags                     one flag per line
    --use_JSON
    --kernel_monitor_reporting_interval_s=10

Dashes in names count as underscores. What comes later wins. Unlike gflags, words that are no flags are refused: after
`--use_JSON false` it ignores the `false` and writes JSON.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sonde.errors import UsageError

Value = bool | int | str
_TRUE = ("1", "t", "true", "y", "yes")
_FALSE = ("0", "f", "false", "n", "no")
_LONGEST = 1_000_000  # bytes of a flag file


class Flag(NamedTuple):
    name: str
    default: Value
    help: str
    missing: str = ""  # why it has no effect; empty: it has one


class Given(NamedTuple):
    """The flags of a command line."""

    values: Mapping[str, Value]  # of every flag, by its name
    named: frozenset[str]  # those that were on the command line or in a flag file


class _Word(NamedTuple):
    """A flag as it was written, and where."""

    name: str
    value: str | None
    where: str  # "" on the command line; "FILE:LINE: " in a file


def parse(words: Sequence[str], flags: Mapping[str, Flag], aliases: Mapping[str, str]) -> Given:
    """Read a command line. Raises UsageError naming the flag, the file and the line."""
    values = {name: flag.default for name, flag in flags.items()}
    named = set()
    optional: set[str] = set()
    unknown: list[_Word] = []
    for word in _words(words, flags, aliases):
        if word.name == "undefok":
            optional.update(_canonical(name) for name in (word.value or "").split(","))
            continue
        flag, switched = _find(word.name, flags, aliases)
        if flag is None:
            unknown.append(word)
            continue
        values[flag.name] = _value(flag, word, switched)
        named.add(flag.name)
    for word in unknown:  # --undefok may come after the flag it forgives
        if word.name not in optional:
            raise UsageError(
                f"{word.where}--{word.name} is not a flag of dynolog{_meant(word.name, flags)}", hint=_HINT
            )
    return Given(values, frozenset(named))


_HINT = "--help lists the flags; --undefok=NAME lets an unknown one pass"


def _words(words: Iterable[str], flags: Mapping[str, Flag], aliases: Mapping[str, str]) -> Iterator[_Word]:
    """The flags of a command line and of the flag files it names, in the order they take effect."""
    rest = iter(words)
    for text in rest:
        name, value = _split(text, "")
        flag, switched = _find(name, flags, aliases)
        takes = name in ("flagfile", "undefok") or (flag is not None and not isinstance(flag.default, bool))
        if value is None and takes and switched is None:
            value = next(rest, None)
            if value is None:
                raise UsageError(f"--{name} needs a value")
        if name == "flagfile":
            yield from _from_files(value or "")
        else:
            yield _Word(name, value, "")


def _from_files(paths: str, within: tuple[str, ...] = ()) -> Iterator[_Word]:
    for path in filter(None, paths.split(",")):
        if os.path.realpath(path) in within:
            raise UsageError(f"--flagfile={path} names itself, by way of {', '.join(within)}")
        for number, line in enumerate(_lines(path), start=1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            where = f"{path}:{number}: "
            # gflags takes `--name=value` only; with a blank the meaning is as clear.
            head, _, tail = text.partition(" ") if "=" not in text.partition(" ")[0] else (text, "", "")
            name, value = _split(head, where)
            value = tail.strip() if tail else value
            if name == "flagfile":
                yield from _from_files(value or "", (*within, os.path.realpath(path)))
            else:
                yield _Word(name, value, where)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)
    except OSError as error:
        raise UsageError(f"--flagfile={path}: {error.strerror}") from None
    except ValueError:  # not UTF-8, or a NUL in the path
        raise UsageError(f"--flagfile={path!r} is not a file of text") from None
    if len(text) > _LONGEST:
        raise UsageError(f"--flagfile={path} is too long for a flag file")
    return text.splitlines()


def _split(text: str, where: str) -> tuple[str, str | None]:
    """The name and the value of `--name=value`."""
    if not text.startswith("-") or text.strip("-") == "":
        hint = "a switch takes its value with an equals sign: --use_JSON=false"
        raise UsageError(f"{where}{text!r} is not a flag", hint=hint)
    body = text[2:] if text.startswith("--") else text[1:]
    name, equals, value = body.partition("=")
    return _canonical(name), value if equals else None


def _canonical(name: str) -> str:
    return name.strip().replace("-", "_")


def _find(name: str, flags: Mapping[str, Flag], aliases: Mapping[str, str]) -> tuple[Flag | None, bool | None]:
    """The flag of a name; with False when it was `no` and the name of a switch."""
    flag = flags.get(aliases.get(name, name))
    if flag is not None:
        return flag, None
    if name.startswith("no"):
        flag = flags.get(aliases.get(name[2:], name[2:]))
        if flag is not None and isinstance(flag.default, bool):
            return flag, False
    return None, None


def _value(flag: Flag, word: _Word, switched: bool | None) -> Value:
    text = word.value
    if switched is not None:
        if text is not None:
            raise UsageError(f"{word.where}--{word.name} takes no value")
        return switched
    if isinstance(flag.default, bool):
        return _switch(word, "true" if text is None else text)
    if text is None:
        raise UsageError(f"{word.where}--{word.name} needs a value")
    return _number(word, text) if isinstance(flag.default, int) else text


def _switch(word: _Word, text: str) -> bool:
    lower = text.lower()
    if lower in _TRUE:
        return True
    if lower in _FALSE:
        return False
    raise UsageError(f"{word.where}--{word.name}: {text!r} is neither true nor false")


def _number(word: _Word, text: str) -> int:
    try:
        number = int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        number = 2**31
    if not -(2**31) <= number < 2**31:  # gflags' int32
        raise UsageError(f"{word.where}--{word.name}: {text!r} is not a whole number")
    return number


def _meant(name: str, flags: Mapping[str, Flag]) -> str:
    import difflib  # only on the way to an error

    lower = {known.lower(): known for known in flags}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"; did you mean --{lower[close[0]]}?" if close else ""
