"""The pages of the manual, from the same parsers, docstrings and comments as docs/reference: sonde(1), one page for
each command, and sonde.toml(5).
"""

from __future__ import annotations

import argparse
import inspect
import time
from collections.abc import Iterator

from docs.generate import EXIT_CODES, shown, usage_of

from packages.release import Release
from packages.roff import Page, escape
from packages.settings import sections
from sonde.cli.main import COMMANDS, parser_of
from sonde.daemon.paths import default_paths

_ENVIRONMENT = {
    "SONDE_DAEMON": "the daemon that commands ask when they are not told by `--host`: `HOST:PORT` or `unix:PATH`",
    "NO_COLOR": "no colours, whatever its value",
    "XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR": "where the daemon of a user who is not root has its files",
}


def pages(release: Release) -> Iterator[Page]:
    yield _overview(release)
    for name in COMMANDS:
        yield _command(name, release)
    yield _configuration(release)


def _page(title: str, section: int, about: str, release: Release) -> Page:
    date = time.strftime("%Y-%m-%d", time.gmtime(release.epoch))
    page = Page(title, section, date=date, source=f"sonde {release.version}")
    page.section("NAME")
    page.line(f"{escape(title)} \\- {escape(about)}")
    return page


def _overview(release: Release) -> Page:
    page = _page("sonde", 1, "watch AI and HPC jobs: one small daemon per node, one command line", release)
    page.section("SYNOPSIS")
    page.line(r"\fBsonde\fR \fICOMMAND\fR [\fIOPTIONS\fR]")
    page.section("DESCRIPTION")
    page.paragraph(release.summary)
    page.paragraph("Start with `sonde doctor`, which says what works on this host, then `sonde daemon`.")
    page.section("COMMANDS")
    for name, (_, text) in COMMANDS.items():
        page.item(rf"\fBsonde\-{escape(name)}\fR(1)", text)
    page.section("ENVIRONMENT")
    for name, text in _ENVIRONMENT.items():
        page.item(rf"\fB{escape(name)}\fR", text)
    _files(page)
    _exit_status(page)
    _see_also(page, [*(f"sonde-{name}(1)" for name in COMMANDS), "sonde.toml(5)"])
    return page


def _command(name: str, release: Release) -> Page:
    parser, module = parser_of(name)
    page = _page(f"sonde-{name}", 1, COMMANDS[name][1], release)
    page.section("SYNOPSIS")
    page.line("\n.br\n".join(synopsis(parser)))
    page.section("DESCRIPTION")
    page.document(inspect.cleandoc(module.__doc__))
    page.section("OPTIONS")
    _options(page, parser)
    for sub in verbs(parser):
        page.subsection(sub.prog)
        _options(page, sub)
    _exit_status(page)
    _see_also(page, ["sonde(1)", "sonde.toml(5)"])
    return page


def _configuration(release: Release) -> Page:
    page = _page("sonde.toml", 5, "the configuration of the sonde daemon", release)
    page.section("DESCRIPTION")
    page.paragraph(
        "A TOML file. A flag of `sonde daemon` goes before the file, the file before the default. A key that is not "
        "listed here is refused by name. Durations and sizes are strings with a unit: `500ms`, `30s`, `7d`, `512MB`, "
        "`2GiB`."
    )
    page.paragraph("`sonde config check` says what is wrong with a file, `sonde config show` what is in force.")
    for section in sections():
        page.section(f"[{section.name}]") if "." not in section.name else page.subsection(f"[{section.name}]")
        if section.about:
            page.paragraph(section.about)
        for key in section.keys:
            default = "" if key.default == "(unset)" else f" Default: `{key.default}`."
            page.item(rf"\fB{escape(key.name)}\fR = \fI{escape(key.type)}\fR", f"{key.meaning.rstrip('.')}.{default}")
    _files(page)
    _see_also(page, ["sonde(1)", "sonde-config(1)", "sonde-daemon(1)"])
    return page


def verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers below this one, each verb before its own verbs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield sub
                yield from verbs(sub)


def synopsis(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A line for the command, or one for each verb."""
    below = list(verbs(parser))
    for one in below or [parser]:
        parts = []
        for action in one._actions:
            if shown(action) and action.help != argparse.SUPPRESS:
                text = escape(usage_of(action).strip("`"))
                optional = action.option_strings and not action.required
                parts.append(f"[{text}]" if optional else text)
        yield " ".join([rf"\fB{escape(one.prog)}\fR", *parts])


def _options(page: Page, parser: argparse.ArgumentParser) -> None:
    actions = [action for action in parser._actions if shown(action) and action.help != argparse.SUPPRESS]
    for action in actions:
        page.item(rf"\fB{escape(usage_of(action).strip('`'))}\fR", (action.help or "").replace("%%", "%"))
    page.item(r"\fB\-h \-\-help\fR", "show how it is used, and end")


def _files(page: Page) -> None:
    paths = default_paths(uid=0)
    page.section("FILES")
    for path, text in (
        (paths.config, "the configuration of root's daemon; a user's is below `$XDG_CONFIG_HOME`"),
        (paths.archive, "the archive"),
        (paths.rpc_socket, "where the daemon answers the commands of this node"),
    ):
        page.item(rf"\fI{escape(path)}\fR", text)


def _exit_status(page: Page) -> None:
    page.section("EXIT STATUS")
    for code, meaning in EXIT_CODES:
        page.item(rf"\fB{code}\fR", meaning)


def _see_also(page: Page, names: list[str]) -> None:
    page.section("SEE ALSO")
    marked = [rf"\fB{escape(name[:-3])}\fR{name[-3:]}" for name in names]
    page.line(",\n".join(marked))
