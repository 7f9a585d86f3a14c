"""Host lists as Slurm writes them: `n[1-4,7],gpu[001-003]`, from and to plain names.

A bracket holds numbers and ranges; the digits of a range's low end give the width (`[001-003]` is 001, 002, 003). A
name may have several brackets (`r[1-2]n[1-3]`, the last one turns fastest) and text after them (`n[1-2]-ib`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, product

from sonde.errors import ParseError

LIMIT = 1_000_000  # names in one list; beyond it is a typing error, not a cluster
_TOO_MANY = f"more than {LIMIT} names"
_BRACKET = "brackets hold numbers and ranges, as n[1-4,7]"
_ITEM = re.compile(r"(?:[^\[\],\s]|\[[0-9,-]+\])+")
_PART = re.compile(r"\[([0-9,-]+)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NAME = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,252}")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)


def expand(text: str) -> list[str]:
    """The names of a list in the order written; ParseError when it is malformed or absurdly long."""
    hosts: list[str] = []
    for item in _items(text):
        parts = [_numbers(match[1], text) if match[1] else [match[2]] for match in _PART.finditer(item)]
        size = 1
        for part in parts:
            size *= len(part)
        if len(hosts) + size > LIMIT:
            raise ParseError("host list", text, _TOO_MANY)
        hosts += ["".join(chosen) for chosen in product(*parts)]
    return hosts


def _items(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None:
            raise ParseError("host list", text, _reason(text, position))
        yield match[0]
        position = match.end()
        if position < len(text):
            if text[position] != "," or position + 1 == len(text):
                raise ParseError("host list", text, _reason(text, position))
            position += 1


def _reason(text: str, position: int) -> str:
    """Why a list ends to make sense at some character."""
    character = text[position]
    if character.isspace():
        return "names are separated by commas, without spaces"
    return "a name is missing beside a comma" if character == "," else f"{character!r}: {_BRACKET}"


def _numbers(inside: str, text: str) -> list[str]:
    numbers: list[str] = []
    for item in inside.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise ParseError("host list", text, f"{item!r}: {_BRACKET}")
        low, high = match[1], match[2] or match[1]
        count = int(high) - int(low) + 1
        if count < 1:
            raise ParseError("host list", text, f"the range {item} ends before it begins")
        if len(numbers) + count > LIMIT:
            raise ParseError("host list", text, _TOO_MANY)
        numbers += [f"{number:0{len(low)}d}" for number in range(int(low), int(high) + 1)]
    return numbers


def parse_node_file(text: str) -> list[str]:
    """The hosts of a node file (PBS_NODEFILE, OAR_NODEFILE, a machine file): one line per slot, each host once.

    Behind the name there may be more (`n1 slots=8`, `n1:8`); a line may be a list; `#` begins a comment.
    """
    hosts: dict[str, None] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            hosts.update(dict.fromkeys(expand(words[0].partition(":")[0])))
    if not all(_NAME.fullmatch(host) for host in hosts):
        raise ParseError("node file", text)
    return list(hosts)


def compress(hosts: Iterable[str]) -> str:
    """The shortest list of these names that folds each name's last number. Repeated names are written once.

    The order is that of the first name of each family, then of the numbers: `expand(compress(x))` has the same set of
    names as `x`, in this order.
    """
    families: dict[tuple[str, str], dict[str, None]] = {}
    for host in hosts:
        match = _LAST_NUMBER.fullmatch(host)
        prefix, digits, suffix = match.groups() if match else (host, "", "")
        families.setdefault((prefix, suffix), {})[digits] = None
    return ",".join(
        piece for (prefix, suffix), digits in families.items() for piece in _folded(prefix, list(digits), suffix)
    )


def _folded(prefix: str, digits: list[str], suffix: str) -> Iterator[str]:
    if "" in digits:  # a name without any number is its own family member
        yield prefix + suffix
    numbers = [text for text in digits if text]
    # 098 and 099 make 100 a padded number too, so that 098-100 is one range; 5 among 098 stays apart.
    padded = {len(text) for text in numbers if text[0] == "0" and len(text) > 1}
    keyed = sorted((len(text) if len(text) in padded else 0, int(text), text) for text in numbers)
    if len(keyed) == 1:
        yield prefix + numbers[0] + suffix
    elif keyed:
        yield f"{prefix}[{','.join(_ranges(keyed))}]{suffix}"


def _ranges(keyed: list[tuple[int, int, str]]) -> Iterator[str]:
    # Numbers in a row keep a constant difference to their index.
    for _, run in groupby(enumerate(keyed), key=lambda item: (item[1][0], item[1][1] - item[0])):
        texts = [text for _, (_, _, text) in run]
        yield texts[0] if len(texts) == 1 else f"{texts[0]}-{texts[-1]}"
