r"""Traces in Chrome's Trace Event Format, event by event, from the files libkineto writes (plain or gzip).

    {
      "schemaVersion": 1, "trace_id": "965A83D4…", "baseTimeNanoseconds": 1790857026000000000,
      "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 812, "tid": 812, "ts": 3944420974198.196, "dur": 66.114,
         "args": {"External id": 6, "Input Dims": [[8, 16], [16, 32]]}},
        …
      ], "traceName": "/tmp/trace_812.json" }

A trace may be a bare array of events, too. Files of 100 MB are usual, so a window of the text moves over the file and
an event is what one pattern matches: its text stays as it is, and the places of the fields that matter are known. The
pattern is the grammar of JSON (RFC 8259) down to six levels (a list of tensors' shapes has five); it takes as long as
json takes to build the objects, and spares to find the fields in the text or to write it anew. What it does not match
goes through json and comes out as text in which the fields are found as easily.
"""

from __future__ import annotations

import codecs
import gzip
import json
import math
import os
import re
import zlib
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import IO, Any

from sonde.errors import ParseError, ReadError

_CHUNK = 1 << 18  # bytes read at once
_LIMIT = 1 << 23  # characters of one event or one value beside the events; the memory it takes is bounded by this
_LOOKAHEAD = 16  # what an unfinished token may have before the end: `-Infinity`, two \uXXXX

_W = r"[ \t\n\r]*+"
_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
# int() refuses more than 4300 digits, or 640 where the environment says so.
_NUMBER = r"-?(?:0|[1-9][0-9]{0,600}+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
_SCALAR = rf"(?:{_STRING}|{_NUMBER}|true|false|null)"
# No escapes in the keys of an event: `"p\u0069d"` is a pid as well, and is left to json.
_KEY = r'"[^"\\\x00-\x1f]*+"'


def _list(value: str) -> str:
    return rf"\[{_W}(?:{value}{_W}(?:,{_W}(?!\])|(?=\])))*+\]"


def _object(member: str) -> str:
    return rf"\{{{_W}(?:{member}{_W}(?:,{_W}(?!\}})|(?=\}})))*+\}}"


def _value(depth: int) -> str:
    if depth == 0:
        return _SCALAR
    inner = _value(depth - 1)
    return rf"(?:{_STRING}|{_NUMBER}|{_list(inner)}|{_object(f'{_STRING}{_W}:{_W}{inner}')}|true|false|null)"


def _member(value: str) -> str:
    """A field of an event; those that matter are groups. Of a key that is there twice the last counts, as in json."""
    flat = _object(f"{_STRING}{_W}:{_W}{_SCALAR}")
    fields = "|".join(
        [rf'"{key}"{_W}:{_W}(?P<{key}>{_STRING}|{_NUMBER})' for key in ("ph", "cat", "name", "pid", "ts", "dur", "id")]
        + [rf'"bind_id"{_W}:{_W}(?P<bind_id>{_STRING}|{_NUMBER})', rf'"id2"{_W}:{_W}(?P<id2>{flat})']
    )
    return rf"(?:{fields}|{_KEY}{_W}:{_W}{value})"


_EVENT = re.compile(rf"{_W}(?P<event>{_object(_member(_value(5)))}){_W}(?:,|(?=\]))")
_ODD = re.compile(rf"(?P<event>\{{(?:{_member(_SCALAR)}(?:,|(?=\}})))*+(?s:.*))")  # made by _canonical, valid by itself
_BLANK = re.compile(_W)
# An event as libkineto lays it out. It does not escape quotation marks in names (torch 2.13), and so writes
# `"name": "say "hi"",` on a line of its own.
_BLOCK = re.compile(r"\{\n(?: {4}.*\n| *\n)*? {2}\}(?=,|\n)")
_NAME = re.compile(r'^( {4}"(?:name|cat)": )"(.*)"(,?)$', re.MULTILINE)


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


# NaN and Infinity are no JSON and a viewer refuses them: they become text. Control characters in strings are no JSON
# either, and are escaped when they are written again.
_DECODER = json.JSONDecoder(strict=False, parse_constant=str, parse_float=_finite)


class Trace:
    """One trace file, read once from its beginning to its end; closed as a context.

    `metadata` has the keys beside the events: after `begin()` those before them, at the end all.
    """

    def __init__(self, path: str, *, chunk: int = _CHUNK) -> None:
        self.path = path
        self._chunk = chunk
        self.metadata: dict[str, Any] = {}
        self.count = 0  # events so far
        self.has_events = False  # was there an array for them? Known after `begin()`
        self._file = _opened(path)
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self._source = _unpacked(self._file)
        except BaseException:
            self._file.close()
            raise
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes = 0
        self._text = ""
        self._at = 0
        self._ended = False
        self._begun = False
        self._bare = False
        self._inside = False  # an array of events

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def share(self) -> float:
        """How much of the file was read, 0 to 1."""
        return self._file.tell() / self._size if self._size else 1.0

    @property
    def base_ns(self) -> int:
        """What the times of the events count from, in Unix nanoseconds. 0 when the file does not say."""
        base = self.metadata.get("baseTimeNanoseconds", 0)
        if not isinstance(base, int) or not 0 <= base < 1 << 63:
            raise ParseError(self.path, base, "baseTimeNanoseconds is not a time")
        return base

    def begin(self) -> None:
        """Read as far as the events."""
        if self._begun:
            return
        self._begun = True
        self._char()
        self._text = self._text.removeprefix("\ufeff")
        opening = self._char()
        if opening not in ("{", "["):
            raise self._error("a trace begins with { or [" if opening else "there is no trace in it")
        self._at += 1
        self._bare = self._inside = self.has_events = opening == "["
        if not self._bare and self._char() == "}":
            self._at += 1
            self._finish()
        elif not self._bare:
            self._between()

    def events(self) -> Iterator[re.Match[str]]:
        """Each event as a match: group `event` is its text; `ph`, `cat`, `name`, `pid`, `ts`, `dur`, `id`, `bind_id`
        and `id2` are the texts of these fields, None where they are missing."""
        self.begin()
        while self._inside:
            text, at = self._text, self._at
            while (found := _EVENT.match(text, at)) is not None:
                self._at = at = found.end()
                self.count += 1
                yield found
            if (odd := self._difficult()) is not None:
                self.count += 1
                yield odd

    def _between(self) -> None:
        """Read keys and values as far as the next array of events, or the end of the file."""
        while True:
            key = self._next_value() if self._char() == '"' else None
            if key is None or self._char() != ":":
                raise self._error("a key is expected" if key is None else f"a colon is expected behind {key!r}")
            self._at += 1
            if key == "traceEvents" and self._char() == "[":
                self._at += 1
                self._inside = self.has_events = True
                return
            self._char()
            self.metadata[key] = self._next_value()
            if self._separator() == "}":
                self._finish()
                return

    def _separator(self) -> str:
        found = self._char()
        if found not in (",", "}"):
            raise self._error("a comma or } is expected")
        self._at += 1
        return found

    def _finish(self) -> None:
        if self._char():
            raise self._error("there is more behind its end")

    def _leave(self) -> None:
        """Behind the `]` of an array of events."""
        self._at += 1
        self._inside = False
        if self._bare or self._separator() == "}":
            self._finish()
        else:
            self._between()

    def _difficult(self) -> re.Match[str] | None:
        """What the pattern does not match: the end, an event that is not all there, or is odd. None: go on."""
        if self._char() == "]":
            self._leave()
            return None
        if self._char() != "{":
            raise self._error("an event is expected")
        try:
            text, end = _canonical(self._text, self._at)
        except json.JSONDecodeError as error:
            if (self._unfinished(error) or self._unfinished_block()) and self._more():
                return None
            text, end = self._mended(error)
        except (ValueError, RecursionError) as error:  # integers of more than 4300 digits; nesting of some thousands
            raise self._error(str(error)) from None
        following = _blank_end(self._text, end)
        if following == len(self._text) and self._more():
            return None  # with what separates it from the next one it may well match
        if self._text[following : following + 1] not in (",", "]"):
            self._at = end
            raise self._error("a comma or ] is expected")
        self._at = following + (self._text[following] == ",")
        return _ODD.match(text)

    def _mended(self, error: json.JSONDecodeError) -> tuple[str, int]:
        """The event with the quotation marks in its name escaped, and where it ends."""
        block = _BLOCK.match(self._text, self._at)
        if block is not None:
            try:
                return _canonical(_NAME.sub(_escaped, block.group()), 0)[0], block.end()
            except (ValueError, RecursionError):
                pass
        raise self._refusal(error) from None

    def _next_value(self) -> Any:
        """The value at this place, which is not a blank."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._unfinished(error) and self._more():
                    continue
                raise self._refusal(error) from None
            except (ValueError, RecursionError) as error:
                raise self._error(str(error)) from None
            if len(self._text) - end < _LOOKAHEAD and self._more():
                continue  # a number that ends near the end of the window may go on: `1` of `1.5`, or of `1e+3`
            self._at = end
            return value

    def _unfinished(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated") or error.pos + _LOOKAHEAD >= len(self._text)

    def _unfinished_block(self) -> bool:
        return self._text.startswith('{\n    "', self._at) and _BLOCK.match(self._text, self._at) is None

    def _char(self) -> str:
        """The next character that is not a blank, which is now at this place; at the end an empty string."""
        while True:
            self._at = _blank_end(self._text, self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Move the window on: it begins at this place, and has more of what follows. At the end it stays: False."""
        rest = self._text[self._at :]
        if len(rest) > _LIMIT:
            raise self._error(f"one value has more than {_LIMIT >> 20} million characters")
        grown = ""
        while not grown and not self._ended:
            data = self._read(max(self._chunk, min(len(rest), _LIMIT - len(rest))))
            self._bytes += len(data)
            self._ended = not data
            grown = self._decoder.decode(data, final=self._ended)
        if not grown:
            return False
        self._text = rest + grown
        self._at = 0
        return True

    def _read(self, size: int) -> bytes:
        try:
            return self._source.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._error(f"the compressed file is damaged or cut off ({error})") from None
        except OSError as error:
            raise ReadError(f"{self.path}: {error.strerror or error}") from None

    def _refusal(self, error: json.JSONDecodeError) -> ParseError:
        looks_cut = ", it looks cut off" if self._unfinished(error) and error.pos < len(self._text) else ""
        self._at = error.pos
        return self._error(error.msg + looks_cut)

    def _error(self, why: str) -> ParseError:
        rest = self._text[self._at :]
        if not rest and self._ended and self._bytes:
            why += ", it looks cut off"
        at = self._bytes - len(rest.encode("utf-8", "replace"))
        return ParseError(self.path, rest, f"{why}, after {self.count} events and {max(0, at)} bytes")


def nanoseconds(microseconds: str, path: str) -> int:
    """`3944420974198.196`, as in the text of an event (with quotation marks, too), without a loss."""
    whole, _, fraction = microseconds.partition(".")
    if whole.isdecimal() and len(whole) < 20 and (fraction.isdecimal() or not fraction):
        return int(whole + fraction[:3].ljust(3, "0"))
    try:
        number = Decimal(microseconds.strip('"'))
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or number.adjusted() > 20:
        raise ParseError(path, microseconds, "not a time in microseconds")
    return int(number * 1000)


def _canonical(text: str, at: int) -> tuple[str, int]:
    """An event in the form of _ODD, and where it ends: its numbers as they are, lists and objects last."""
    fields: dict[str, str] = {}
    nested: dict[str, str] = {}
    event, end = _DECODER.raw_decode(text, at)
    if not event:
        return "{}", end
    place = at
    while text[place] != "}":
        place = _blank_end(text, place + 1)  # behind { or the comma
        key, place = _DECODER.raw_decode(text, place)
        place = _blank_end(text, _blank_end(text, place) + 1)
        value, behind = _DECODER.raw_decode(text, place)
        fields.pop(key, None)
        nested.pop(key, None)
        kind = nested if isinstance(value, list | dict) else fields
        number = isinstance(value, int | float) and not isinstance(value, bool)
        kind[key] = text[place:behind] if number else json.dumps(value)
        place = _blank_end(text, behind)
    if "id2" in nested:
        nested = {"id2": nested.pop("id2"), **nested}
    return "{" + ",".join([f"{json.dumps(key)}:{value}" for key, value in (fields | nested).items()]) + "}", end


def _escaped(line: re.Match[str]) -> str:
    start, content, end = line.groups()
    try:
        json.loads(f'"{content}"', strict=False)
    except ValueError:
        content = json.dumps(content)[1:-1]
    return f'{start}"{content}"{end}'


def _blank_end(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _opened(path: str) -> IO[bytes]:
    try:
        return open(path, "rb", buffering=_CHUNK)
    except OSError as error:
        raise ReadError(f"{path}: {error.strerror or error}", hint="name a trace file that can be read") from None


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    """By what it begins with, not by its name (RFC 1952)."""
    magic = file.read(2)
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if magic == b"\x1f\x8b" else file  # type: ignore[return-value]
