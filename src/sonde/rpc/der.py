"""DER, the encoding of certificates (X.690): elements that are a tag, a length and that many bytes.

30 0d 06 09 2a 86 48 86 f7 0d 01 01 0b 05 00      SEQUENCE { OID 1.2.840.113549.1.1.11, NULL }
"""

from __future__ import annotations

import calendar

BOOLEAN, INTEGER, BITS, OCTETS, OID, SEQUENCE, SET = 0x01, 0x02, 0x03, 0x04, 0x06, 0x30, 0x31
UTC_TIME, TIME = 0x17, 0x18
_LONGEST_OID = 64  # bytes; those in use have 3 to 11, and an arc of 2,000 bytes is a number that int() will not print


class Malformed(Exception):
    """Not DER, or not what belongs there; says why."""


class Reader:
    """Goes through the elements of one DER value: a tag, a length, that many bytes (X.690, 8.1)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    @property
    def tag(self) -> int:
        """Of the next element; -1 at the end."""
        return self._data[self._at] if self else -1

    def element(self) -> tuple[int, bytes]:
        """The next element, whatever it is."""
        data, at = self._data, self._at
        if at + 2 > len(data):
            raise Malformed("it ends early")
        tag, length, at = data[at], data[at + 1], at + 2
        if tag & 0x1F == 0x1F:
            raise Malformed("a tag of more than one byte")
        if length >= 0x80:
            count = length - 0x80
            if not 1 <= count <= 4 or at + count > len(data):
                raise Malformed("a length that DER does not have")
            length, at = int.from_bytes(data[at : at + count], "big"), at + count
        if at + length > len(data):
            raise Malformed("an element that is longer than what holds it")
        self._at = at + length
        return tag, data[at : at + length]

    def take(self, tag: int) -> bytes:
        """The contents of the next element, which must have this tag."""
        found, contents = self.element()
        if found != tag:
            raise Malformed(f"tag {found:#x} where {tag:#x} belongs")
        return contents

    def inside(self, tag: int = SEQUENCE) -> Reader:
        return Reader(self.take(tag))

    def whole(self, tag: int) -> bytes:
        """The next element with its tag and length."""
        begin = self._at
        self.take(tag)
        return self._data[begin : self._at]

    def end(self) -> None:
        if self:
            raise Malformed("more than belongs there")


def integer(reader: Reader) -> int:
    contents = reader.take(INTEGER)
    if not contents:
        raise Malformed("a number without digits")
    return int.from_bytes(contents, "big", signed=True)


def identifier(reader: Reader) -> str:
    contents = reader.take(OID)
    if not 1 <= len(contents) <= _LONGEST_OID or contents[-1] & 0x80:
        raise Malformed("an identifier that is none")
    arcs, value = [], 0
    for byte in contents:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, [first, arcs[0] - 40 * first, *arcs[1:]]))


def moment(reader: Reader) -> int:
    """`261115214238Z`, years 1950 to 2049, or `20500101000000Z` (RFC 5280, 4.1.2.5)."""
    tag, contents = reader.element()
    if tag not in (UTC_TIME, TIME):
        raise Malformed("no time where one belongs")
    text = contents.decode("latin-1")
    digits = text[:-1]
    if len(text) != (13 if tag == UTC_TIME else 15) or text[-1] != "Z" or not (digits.isascii() and digits.isdigit()):
        raise Malformed(f"{text[:20]!r} is not a time")
    if tag == UTC_TIME:
        digits = ("19" if digits >= "50" else "20") + digits
    year, month, day, hour, minute, second = (int(digits[:4]), *(int(digits[n : n + 2]) for n in range(4, 14, 2)))
    if hour > 23 or minute > 59 or second > 60:
        raise Malformed(f"{text!r} is not a time")
    try:
        return calendar.timegm((year, month, day, hour, minute, second))
    except ValueError:
        raise Malformed(f"{text!r} is not a day") from None
