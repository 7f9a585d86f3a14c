"""Findings: the rules of rules.toml, with a site's changes, against the figures of a recording.

    [steal]
    scope = "node"
    when = "host_steal_share > share"
    title = "CPUs shared with other virtual machines"
    text = "{host_steal_share:percent} CPU steal"
    share = 0.05

A rule of a node or device fires at places; they become one finding, told with the figures of the worst place. A rule
whose figures were not measured says nothing: `unjudged` names it.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sonde.clock import iso
from sonde.errors import ConfigError
from sonde.jobs.conditions import Expression
from sonde.jobs.figures.table import DEVICE, JOB, NODE
from sonde.jobs.summary import NodeSummary, Summary
from sonde.units import human_bytes, human_seconds

SEVERITIES = ("critical", "warning", "advice", "note")
DEVICES = ("disk", "filesystem", "network", "infiniband", "accelerator")
_WORDS = ("title", "scope", "severity", "when", "worst", "text", "advice", "enabled")
_RULES = os.path.join(os.path.dirname(__file__), "rules.toml")
_FIELD = re.compile(r"\{([^{}:]+)(?::([a-z_]+))?\}")
_TEXTS = {"job": {"missing"}, "node": {"host", "last"}, "device": {"host", "device"}}


class Rule(NamedTuple):
    name: str
    title: str
    scope: str
    severity: str
    when: Expression
    worst: Expression | None
    text: str
    advice: str
    thresholds: Mapping[str, float]


class Place(NamedTuple):
    """Where a rule fires: the whole job, a node, or a device of one."""

    host: str = ""
    device: str = ""

    def __str__(self) -> str:
        return f"{self.host} {self.device}".strip()


class Finding(NamedTuple):
    rule: str
    title: str
    severity: str
    places: tuple[Place, ...]  # the worst first; of the job: one without a name
    text: str
    advice: str
    evidence: Mapping[str, float | str | None]  # the figures the condition looked at, of the worst place


class Judgement(NamedTuple):
    findings: Sequence[Finding]  # the worst first
    unjudged: Sequence[str]  # rules none of whose places had the figures
    rules: int = 0  # how many there are

    @property
    def worst(self) -> str:
        return self.findings[0].severity if self.findings else ""


def load_rules(site: str | None = None) -> list[Rule]:
    """Those of sonde, changed by a site's file. ConfigError names the rule and the word."""
    tables = _tables(_RULES)
    for name, table in (_tables(site) if site else {}).items():
        if not isinstance(table, Mapping):
            raise ConfigError(f"{site}: {name} must be a table, [{name}], the name of a rule")
        tables[name] = {**tables.get(name, {}), **table}
    return [_rule(name, table, site or _RULES) for name, table in tables.items() if table.get("enabled", True)]


def _tables(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _rule(name: str, table: Mapping[str, Any], source: str) -> Rule:
    try:
        return _checked(name, table)
    except ConfigError as error:
        raise ConfigError(f"{source}: [{name}] {error}", hint=error.hint) from None


def _checked(name: str, table: Mapping[str, Any]) -> Rule:
    for word in ("title", "scope", "severity", "when", "text", "advice"):
        if not isinstance(table.get(word), str):
            raise ConfigError(f"{word} must be a text")
    scope, severity = table["scope"], table["severity"]
    if scope not in ("job", "node", *DEVICES):
        raise ConfigError(f"scope must be job, node, {', '.join(DEVICES)}, not {scope!r}")
    if severity not in SEVERITIES:
        raise ConfigError(f"severity must be {', '.join(SEVERITIES)}, not {severity!r}")
    thresholds = {word: value for word, value in table.items() if word not in _WORDS}
    for word, value in thresholds.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{word} must be a number: it is a threshold", hint=f"known words: {', '.join(_WORDS)}")
    worst = Expression(table["worst"]) if table.get("worst") else None
    title, text, advice = table["title"], table["text"], table["advice"]
    rule = Rule(name, title, scope, severity, Expression(table["when"]), worst, text, advice, thresholds)
    _refuse_unknown(rule)
    return rule


def known_names(scope: str) -> set[str]:
    """The figures a rule of this scope may name, without its thresholds."""
    of_job = {name for name, figure in NODE.items() if figure.over} | JOB.keys()
    if scope == "job":
        return of_job | _TEXTS["job"]
    if scope == "node":
        return NODE.keys() | JOB.keys() | _TEXTS["node"]
    return DEVICE.keys() | JOB.keys() | _TEXTS["device"]


def _refuse_unknown(rule: Rule) -> None:
    known = known_names(rule.scope) | rule.thresholds.keys()
    expressions = [rule.when, *([rule.worst] if rule.worst else [])]
    for template in (rule.text, rule.advice):
        for found in _FIELD.finditer(template):
            expressions.append(Expression(found[1]))
            if found[2] is not None and found[2] not in FORMATS:
                raise ConfigError(f"no format {found[2]!r}", hint=f"formats: {', '.join(FORMATS)}")
    for expression in expressions:
        if unknown := expression.names - known:
            raise ConfigError(
                f"{expression.text!r}: {', '.join(sorted(unknown))} is neither a figure of a {rule.scope} nor a"
                " threshold",
                hint="docs/reference/rules.md has the figures",
            )


def judge(summary: Summary, rules: Sequence[Rule]) -> Judgement:
    found, unjudged = [], []
    for rule in rules:
        fired = []
        judged = False
        for place, figures in _places(summary, rule.scope):
            figures = {**figures, **rule.thresholds}
            answer = rule.when.value(figures)
            judged = judged or answer is not None
            if answer is True:
                fired.append((place, figures))
        if fired:
            found.append(_finding(rule, fired))
        elif not judged:
            unjudged.append(rule.name)
    return Judgement(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)), unjudged, len(rules))


def _places(summary: Summary, scope: str) -> Iterator[tuple[Place, dict[str, Any]]]:
    of_job = {name: summary.figures[name] for name in JOB}
    if scope == "job":
        yield Place(), {**summary.figures, "missing": _few(summary.missing)}
        return
    for node in summary.nodes:
        if scope == "node":
            yield Place(node.host), {**of_job, **node.figures, "host": node.host, "last": _last(node)}
            continue
        for device in node.devices:
            if device.kind == scope:
                own = {**of_job, **device.figures, "host": node.host, "device": device.name}
                yield Place(node.host, device.name), own


def _last(node: NodeSummary) -> str | None:
    return None if node.last_ns is None else iso(node.last_ns, digits=0)


def _finding(rule: Rule, fired: list[tuple[Place, dict[str, Any]]]) -> Finding:
    if rule.worst is not None:
        worst = rule.worst
        fired = sorted(fired, key=lambda item: -(worst.value(item[1]) or 0.0))
    figures = fired[0][1]
    evidence = {name: figures.get(name) for name in sorted(rule.when.names)}
    places = tuple(place for place, _ in fired)
    text, advice = told(rule.text, figures), told(rule.advice, figures)
    return Finding(rule.name, rule.title, rule.severity, places, text, advice, evidence)


def told(template: str, figures: Mapping[str, Any]) -> str:
    """A template with its expressions filled in; what was not measured is called so."""
    return _FIELD.sub(lambda found: shown(Expression(found[1]).value(figures), found[2] or ""), template)


def shown(value: Any, form: str) -> str:
    if value is None:
        return "an unknown amount" if form in ("bytes", "rate", "whole_gib") else "unknown"
    return FORMATS[form](value) if form in FORMATS else str(value)


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %") if share >= 0.1 or share == 0 else f"{share * 100:.2g} %"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"


def _gib(size: float) -> str:
    """Up to the next number a person would write: 512 MiB, 1, 2, 3 … 16, then fours, then sixteens of GiB."""
    gib = size / 2**30
    if gib <= 0.5:
        return f"{max(64, math.ceil(gib * 16) * 64):.0f} MiB"
    step = 1 if gib <= 16 else 4 if gib <= 64 else 16
    return f"{math.ceil(gib / step) * step:.0f} GiB"


def _whole_time(seconds: float) -> str:
    """Up to the next 5 minutes, half hour or hour: what a person would ask for."""
    step = 5 if seconds <= 3600 else 30 if seconds <= 6 * 3600 else 60
    hours, minutes = divmod(math.ceil(seconds / 60 / step) * step, 60)
    return " ".join([*([f"{hours} h"] if hours else []), *([f"{minutes} min"] if minutes else [])])


FORMATS: dict[str, Callable[[float], str]] = {
    "bytes": human_bytes,
    "rate": lambda value: f"{human_bytes(value)}/s",
    "percent": _percent,
    "seconds": human_seconds,
    "count": _count,
    "cores": lambda value: (
        f"{value:.0f}" if value == round(value) else f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"
    ),
    "whole": lambda value: f"{value:.0f}",
    "whole_time": _whole_time,
    "whole_gib": _gib,
}


def _few(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def where(finding: Finding) -> str:
    """`n3`, `n3 and n4`, `n3 and 6 more`; nothing when it is of the whole job."""
    names = list(dict.fromkeys(place.host for place in finding.places if place.host))
    return _few(names, 2) if len(names) != 2 else " and ".join(names)


def verdict(summary: Summary, judgement: Judgement) -> str:
    """One line: how it went, and the worst of what was found."""
    name = f"Job {summary.name}" if summary.job else summary.name
    seconds = summary.figures["duration"]
    if seconds is None:
        return f"{name}: nothing was recorded"
    ran = f"{name}, {len(summary.nodes)} node{'s' if len(summary.nodes) != 1 else ''}, {human_seconds(seconds)}"
    if not judgement.findings:
        return f"{ran}: nothing to change, as far as {_judged(judgement)} could tell"
    more = len(judgement.findings) - 1
    return f"{ran}: {judgement.findings[0].title}" + (f"; {more} more finding{'s' if more > 1 else ''}" if more else "")


def _judged(judgement: Judgement) -> str:
    judged = judgement.rules - len(judgement.unjudged)
    return f"all {judged} rules" if not judgement.unjudged else f"{judged} of {judgement.rules} rules"
