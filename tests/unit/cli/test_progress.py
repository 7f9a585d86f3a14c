from __future__ import annotations

import io

import pytest

from sonde.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")

    with Progress("replay") as progress:
        progress.show(0.5, "7 frames")
        progress.show(0.6, "too soon to draw again")

    drawn = terminal.getvalue()
    assert drawn.startswith("\r\x1b[Kreplay " + "█" * 15 + "░" * 15 + "  50% 7 frames")
    assert "too soon" not in drawn
    assert drawn.endswith("\r\x1b[K")


@pytest.mark.parametrize(("stream", "term"), [(io.StringIO, "xterm"), (Terminal, "dumb")])
def test_a_pipe_and_a_dumb_terminal_get_nothing(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], term: str
) -> None:
    written = stream()
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setenv("TERM", term)

    with Progress("replay") as progress:
        progress.show(0.5)

    assert written.getvalue() == ""
