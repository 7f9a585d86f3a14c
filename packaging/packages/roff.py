r"""A page of the manual in the language of man(7), from plain text: made of ASCII only, so that every reader shows it.

.TH SONDE\-STATUS 1 2026-11-16 "sonde 0.1.0" sonde
.SH NAME
sonde\-status \- what the daemon collects
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

_CODE = re.compile(r"`([^`]+)`")
_ESCAPES = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
_ESCAPES["|"] = r"|\:"  # a line may end behind it: the default patterns of collectors are longer than one
_WIDTH = 100


def escape(text: str) -> str:
    """Text as it is typed: a hyphen stays one that can be copied, and nothing is taken for a request."""
    escaped = "".join(
        _ESCAPES.get(letter, letter if letter.isascii() else f"\\[u{ord(letter):04X}]") for letter in text
    )
    return r"\&" + escaped if escaped.startswith(".") else escaped


def inline(text: str) -> str:
    """Prose in which `code` is set in bold."""
    parts = _CODE.split(text)
    return "".join(escape(part) if index % 2 == 0 else rf"\fB{escape(part)}\fR" for index, part in enumerate(parts))


class Page:
    """Lines are added from top to bottom; `text` is the page."""

    def __init__(self, title: str, section: int, *, date: str, source: str) -> None:
        self.name = f"{title}.{section}"
        self._lines = [f'.TH {escape(title.upper())} {section} {date} "{escape(source)}" sonde', ".ad l"]

    def section(self, title: str) -> None:
        self._lines.append(f'.SH "{escape(title)}"')

    def subsection(self, title: str) -> None:
        self._lines.append(f'.SS "{escape(title)}"')

    def line(self, markup: str) -> None:
        """A line that is already in the language of the page."""
        self._lines.append(markup)

    def paragraph(self, text: str) -> None:
        self._apart()
        self._lines += self._filled(text)

    def item(self, tag: str, text: str) -> None:
        """A term (in the language of the page) and what it means."""
        self._lines += [".TP", tag, *(self._filled(text) or [r"\&"])]

    def example(self, lines: Iterable[str]) -> None:
        self._apart()
        self._lines += [".RS 4", ".EX", *(escape(line) or r"\&" for line in lines), ".EE", ".RE"]

    def _apart(self) -> None:
        if not self._lines[-1].startswith((".SH", ".SS")):
            self._lines.append(".PP")

    def document(self, text: str) -> None:
        """A docstring: paragraphs, and blocks in columns or indented, which stay as they are."""
        for block in text.strip("\n").split("\n\n"):
            lines = block.splitlines()
            if any("  " in line for line in lines):
                self.example(textwrap.dedent(block).splitlines())
            else:
                self.paragraph(" ".join(lines))

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    @staticmethod
    def _filled(text: str) -> list[str]:
        wrapped = textwrap.wrap(" ".join(text.split()), _WIDTH, break_on_hyphens=False, break_long_words=False)
        # Code that goes over the end of a line would leave a backquote on either.
        joined = _CODE.sub(lambda code: code[0].replace("\n", " "), "\n".join(wrapped))
        return [inline(line) for line in joined.split("\n")] if text else []
