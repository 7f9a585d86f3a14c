"""The reference pages, from the code itself: metrics from the collectors, keys from their named tuples, commands from
their parsers.

    python docs/generate.py            write docs/reference/{metrics,config,cli,otlp,counters}.md
    python docs/generate.py --check    write nothing; exit 1 and name the pages that are not current
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import sys
import tokenize
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from sonde.cli.config import render
from sonde.cli.main import COMMANDS, parser_of
from sonde.config import (
    ArchiveConfig,
    CollectorConfig,
    Config,
    DaemonConfig,
    NoKeys,
    ReportConfig,
    SinkConfig,
    TracingConfig,
)
from sonde.counters import catalogue
from sonde.jobs import rules as job_rules
from sonde.jobs.figures.table import DEVICE, JOB, NODE, Figure
from sonde.model import MetricSpec
from sonde.registry import COLLECTORS, OFF_BY_DEFAULT, SINKS, load
from sonde.sinks.otlp_names import INSTRUMENTS, RULES, SCHEMA, Instrument, Rule
from sonde.sinks.prometheus import DROPPED
from sonde.units import Duration, Size

REFERENCE = Path(__file__).parent / "reference"
_MADE = "<!-- made by docs/generate.py (make docs); change the code, not this page -->\n"

_SINKS_RUN = "A sink runs when its section is there. `prometheus` runs without one, as long as `http_address` is set.\n"

_TYPES: dict[Any, str] = {
    str: "string",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Duration: "duration",
    Size: "size",
    tuple: "list of strings",
    Mapping: "table of strings",
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Write docs/reference from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing, name what is not current")
    check = parser.parse_args(arguments).check
    stale = [name for name, page in PAGES.items() if _current(name) != page()]
    for name in stale:
        if check:
            print(f"docs/reference/{name} is not current: run make docs")
        else:
            REFERENCE.mkdir(exist_ok=True)
            (REFERENCE / name).write_text(PAGES[name](), encoding="utf-8")
            print(f"docs/reference/{name}")
    return 1 if check and stale else 0


def _current(name: str) -> str:
    path = REFERENCE / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def metrics() -> str:
    """Every metric of every collector, in the order of the registry."""
    parts = [
        _MADE,
        "# Metrics\n",
        "Counters are raw and cumulative, units are base units, ratios are 0 to 1. A value that cannot be read is",
        "absent and counted in `sonde_collector_quality`; it is never 0. `sonde metrics --names` prints this list,",
        "`sonde metrics` the values. [config.md](config.md) has the keys of the collectors.\n",
    ]
    for name in COLLECTORS:
        cls: Any = load(COLLECTORS, name)
        parts += [f"## {name}\n", source_of(cls) + _off(name) + "\n"]
        if name == "textfile":
            parts.append("The metrics of the files in its directory, beside its own:\n")
        parts.append(_metric_table(cls.metrics))
    parts += ["## The /metrics page\n", "Made while the page is; on no other path.\n", _metric_table([DROPPED])]
    return "\n".join(parts)


def _metric_table(specs: Iterable[MetricSpec]) -> str:
    rows = [
        [f"`{spec.name}`", spec.kind.value, spec.unit.value, " ".join(f"`{x}`" for x in spec.labels), spec.help]
        for spec in specs
    ]
    return _table(("metric", "kind", "unit", "labels", "meaning"), rows)


def source_of(cls: type) -> str:
    """The first paragraph of the module: its subject and where it is read."""
    text = import_module(cls.__module__).__doc__ or ""
    return " ".join(text.split("\n\n")[0].split())


def _off(name: str) -> str:
    return " Off by default." if name in OFF_BY_DEFAULT else ""


def config() -> str:
    """Every key of the configuration with its type, its default and the comment behind it."""
    defaults = defaults_of_keys()
    parts = [
        _MADE,
        "# Configuration\n",
        "A TOML file: `--config FILE`, else `sonde.toml` in the directory of `--state`, else `/etc/sonde/sonde.toml`",
        "for root and `$XDG_CONFIG_HOME/sonde/sonde.toml` for a user. A flag goes before the file, the file before the",
        "default. A key that is not listed here is refused by",
        'name. Durations and sizes are strings with a unit: `"500ms"`, `"30s"`, `"7d"`, `"512MB"`, `"2GiB"`.',
        "`sonde config default` prints a file to start from, `sonde config check` says what is wrong with one;",
        "[how-to/configure.md](../how-to/configure.md) has examples.\n",
        "## [daemon]\n",
        _key_table(DaemonConfig, defaults["daemon"]),
        "## [archive]\n",
        _key_table(ArchiveConfig, defaults["archive"]),
        "## [tracing]\n",
        _key_table(TracingConfig, defaults["tracing"]),
        "## [report]\n",
        _key_table(ReportConfig, defaults["report"]),
        "## [collectors.NAME]: keys of every collector\n",
        _key_table(CollectorConfig, defaults["collectors.cpu"]),
    ]
    parts += _own_keys("collectors", COLLECTORS, defaults)
    parts += ["## [sinks.NAME]: keys of every sink\n", _SINKS_RUN]
    parts += [_key_table(SinkConfig, defaults["sinks.jsonl"]), *_own_keys("sinks", SINKS, defaults)]
    return "\n".join(parts)


def _own_keys(kind: str, plugins: dict[str, str], defaults: dict[str, dict[str, str]]) -> Iterator[str]:
    """The sections of the plug-ins that have keys of their own."""
    for name in plugins:
        cls: Any = load(plugins, name)
        section = f"{kind}.{name}"
        if section in defaults and cls.Config is not NoKeys:
            yield f"## [{section}]\n"
            yield _key_table(cls.Config, defaults[section])


def defaults_of_keys() -> dict[str, dict[str, str]]:
    """Section, key, default as TOML: from the file that `sonde config default` prints."""
    found: dict[str, dict[str, str]] = {}
    section = ""
    for line in render(Config()).splitlines():
        line = line.removeprefix("# ").removeprefix("# ")  # a sink that is off, and a key in it that is not set
        if line.startswith("["):
            section = line.strip("[]")
            found[section] = {}
        elif " = " in line:
            key, _, value = line.partition(" = ")
            found[section][key] = value.strip("()") if value == "(unset)" else f"`{value}`"
    return found


def _key_table(cls: type, defaults: dict[str, str]) -> str:
    hints = typing.get_type_hints(cls)
    meanings = comments_of(cls)
    names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    rows = [[f"`{name}`", type_name(hints[name]), defaults[name], meanings.get(name, "")] for name in names]
    return _table(("key", "type", "default", "meaning"), rows)


def type_name(hint: Any) -> str:
    """A type as people say it; the types are those of sonde.config.convert."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return type_name(next(argument for argument in arguments if argument is not type(None)))
    if origin is Literal:
        return " or ".join(f'`"{choice}"`' for choice in arguments)
    return _TYPES[origin or hint]


def comments_of(cls: type) -> dict[str, str]:
    """The comment behind each field; one that stands alone is for the fields below it that have none."""
    source = inspect.getsource(cls)
    alone, behind = _comments(source)
    definition = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    found: dict[str, str] = {}
    shared = ""
    last = definition.lineno
    for node in definition.body:
        above = [alone[number] for number in range(last + 1, node.lineno) if number in alone]
        shared = " ".join(above) or shared
        last = node.end_lineno or node.lineno
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own = [behind[number] for number in range(node.lineno, last + 1) if number in behind]
            found[node.target.id] = " ".join(own) or shared
    return found


def _comments(source: str) -> tuple[dict[int, str], dict[int, str]]:
    """Comments by line: those with a line of their own, and those behind code."""
    alone: dict[int, str] = {}
    behind: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            place = alone if token.line.lstrip().startswith("#") else behind
            place[token.start[0]] = token.string.lstrip("# ")
    return alone, behind


def cli() -> str:
    """Every command with its arguments. argparse's own text differs between versions of Python; this does not."""
    parts = [_MADE, "# Command line\n", "`sonde COMMAND --help` says the same.\n"]
    parts.append(
        _table(("command", ""), [[f"[`{name}`](#sonde-{name})", text] for name, (_, text) in COMMANDS.items()])
    )
    for name in COMMANDS:
        parser, module = parser_of(name)
        parts += [f"## sonde {name}\n", "```text", inspect.cleandoc(module.__doc__), "```\n", *_arguments(parser)]
    parts += ["## Exit codes\n", _table(("code", "meaning"), EXIT_CODES)]
    return "\n".join(parts)


EXIT_CODES = [
    ["0", "all done"],
    ["1", "failed, or only partly done"],
    ["2", "the command line or the configuration is wrong"],
    ["3", "not available here, or denied"],
    ["4", "somebody did not answer in time"],
    ["130", "interrupted"],
]


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows = [[usage_of(action), action.help or ""] for action in parser._actions if shown(action)]
    if rows:
        yield _table(("argument", "meaning"), rows)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, sub in action.choices.items():
                yield f"### {parser.prog} {verb}\n"
                yield from _arguments(sub)


def shown(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)


def usage_of(action: argparse.Action) -> str:
    """`--period 1s`, `[PATTERN …]`, `bash|zsh|fish`."""
    value = "|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest.upper())
    if action.option_strings:
        return f"`{' '.join([*action.option_strings, *([value] if action.nargs != 0 else [])])}`"
    return {"?": f"`[{value}]`", "*": f"`[{value} …]`"}.get(str(action.nargs), f"`{value}`")


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "".join(f"| {cell.replace('|', chr(92) + '|')} " if cell else "| " for cell in cells) + "|"

    names = list(header)
    return "\n".join([line(names), "|" + "---|" * len(names), *map(line, rows)]) + "\n"


def otlp() -> str:
    """The names in OTLP, from the rules."""
    specs: dict[str, MetricSpec] = {spec.name: spec for name in COLLECTORS for spec in _specs(name)}
    rows = [_otlp_row(rule, specs[name]) for name, rules in RULES.items() for rule in rules]
    header = ("OTLP metric", "instrument", "unit", "attributes", "from")
    return "\n".join([_MADE, "# Names in OTLP\n", *_OTLP_INTRODUCTION, _table(header, sorted(rows))])


_OTLP_INTRODUCTION = (
    'What `naming = "semantic"` in `[sinks.otlp]` makes of sonde\'s names: those of the OpenTelemetry semantic',
    f"conventions ([{SCHEMA.rpartition('/')[2]}]({SCHEMA})). A metric that is not listed keeps its name, and its",
    "labels are its attributes; so do labels that are not listed here, as those of `[daemon] labels`.",
    "[how-to/otlp.md](../how-to/otlp.md) says how it is sent.\n",
)


def _specs(name: str) -> tuple[MetricSpec, ...]:
    cls: Any = load(COLLECTORS, name)
    specs: tuple[MetricSpec, ...] = cls.metrics
    return specs


def _otlp_row(rule: Rule, spec: MetricSpec) -> list[str]:
    instrument = rule.instrument or INSTRUMENTS.get(spec.kind, Instrument.GAUGE)
    fixed = [f"`{name}`={value}" for name, value in rule.attributes.items()]
    labels = [f"`{rule.labels.get(label, label)}`" for label in spec.labels]
    source = " − ".join(f"`{name}`" for name in (spec.name, *rule.minus))
    return [f"`{rule.name}`", instrument.value, f"`{rule.unit}`", " ".join(labels + fixed), source]


def counters() -> str:
    """The events and formulas of every processor, from the data files."""
    parts = [_MADE, "# Events and formulas by processor\n", *_COUNTERS_INTRODUCTION]
    generic = catalogue.load(catalogue.GENERIC)
    for name in [catalogue.GENERIC, *(name for name in catalogue.names() if name != catalogue.GENERIC)]:
        found = catalogue.load(name)
        known = () if name == catalogue.GENERIC else (*generic.groups, *generic.formulas)
        title = found.title[0].upper() + found.title[1:]
        parts += [
            f"## {title}\n",
            f"`{name}`. " + " ".join(f"Source: {source}." for source in _own(found, generic, "sources")),
        ]
        parts += [f"\n{caveat}" for caveat in _own(found, generic, "caveats")]
        groups = [group for group in found.groups if group not in known]
        rows = [[f"`{group.name}`", ", ".join(f"`{event.key}`" for event in group.events)] for group in groups]
        parts += ["", _table(("group", "events"), rows)]
        formulas = [formula for formula in found.formulas if formula not in known]
        parts.append(_table(("formula", "unit", "from", "meaning"), [_formula_row(formula) for formula in formulas]))
    return "\n".join(parts)


_COUNTERS_INTRODUCTION = (
    "What `[collectors.perf]` counts on which processor, and what readers derive from it; `seconds` is the time",
    "counted over. Every processor has the first list too. [counters.md](../counters.md) explains.\n",
)


def _own(found: catalogue.Catalogue, generic: catalogue.Catalogue, what: str) -> list[str]:
    shared = () if found.key == catalogue.GENERIC else getattr(generic, what)
    return [text for text in getattr(found, what) if text not in shared]


def _formula_row(formula: catalogue.Derived) -> list[str]:
    return [f"`{formula.name}`", formula.unit, f"`{formula.expression}`", formula.help]


def rules() -> str:
    """Every rule of a report and every figure a rule may name."""
    rows = [
        [f"`{rule.name}`", rule.severity, rule.scope, f"`{rule.when.text}`", _thresholds(rule), rule.title]
        for rule in job_rules.load_rules()
    ]
    parts = [_MADE, "# Rules of a report\n", *_RULES_INTRODUCTION]
    parts.append(_table(("rule", "severity", "scope", "fires when", "thresholds", "finding"), rows))
    for title, figures in (("a node", NODE), ("a device", DEVICE), ("the whole job", JOB)):
        parts += [f"## Figures of {title}\n", _figure_table(figures)]
    return "\n".join(parts)


_RULES_INTRODUCTION = (
    "What `sonde report` looks for, from `src/sonde/jobs/rules.toml`. A rule fires when its condition is true; one",
    "whose figures were not measured says nothing. [how-to/report.md](../how-to/report.md) tells how a site changes",
    "them.\n",
)


def _thresholds(rule: job_rules.Rule) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in rule.thresholds.items())


def _figure_table(figures: Mapping[str, Figure]) -> str:
    rows = [[f"`{name}`", figure.unit, figure.over, figure.meaning] for name, figure in figures.items()]
    return _table(("figure", "unit", "over the nodes", "meaning"), rows)


PAGES: dict[str, Callable[[], str]] = {
    "metrics.md": metrics,
    "config.md": config,
    "cli.md": cli,
    "otlp.md": otlp,
    "counters.md": counters,
    "rules.md": rules,
}

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
