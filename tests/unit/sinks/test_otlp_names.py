"""The names in OTLP, held against the published package of OpenTelemetry's semantic conventions."""

from __future__ import annotations

import inspect
import pkgutil
import re
from importlib import import_module
from typing import Any

import pytest
from opentelemetry.semconv import _incubating, attributes, schemas

from sonde.model import Kind, MetricSpec
from sonde.registry import COLLECTORS, load
from sonde.sinks.otlp_names import INSTRUMENTS, INTEGERS, RULES, SCHEMA, Instrument, Rule

EVERY = [(name, rule) for name, rules in RULES.items() for rule in rules]
# Labels that stay attributes of ours: no convention has them.
BEYOND = {"job_id", "scheduler", "index"}


def _source(package: Any) -> str:
    modules = [import_module(f"{package.__name__}.{found.name}") for found in pkgutil.iter_modules(package.__path__)]
    return "\n".join(inspect.getsource(module) for module in modules if not hasattr(module, "__path__"))


@pytest.fixture(scope="module")
def conventions() -> dict[str, tuple[str, str]]:
    """Instrument and unit of every metric, as the documentation of the constants has them."""
    package = import_module(f"{_incubating.__name__}.metrics")
    pattern = r'^[A-Z_]+: Final = "([a-z_.]+)"\n"""\n[^"]*?Instrument: (\w+)\nUnit: (\S+)'
    return {name: (kind, unit) for name, kind, unit in re.findall(pattern, _source(package), re.MULTILINE)}


@pytest.fixture(scope="module")
def known_attributes() -> set[str]:
    package = import_module(f"{_incubating.__name__}.attributes")
    return set(re.findall(r'^[A-Z_]+: Final = "([a-z_.]+)"', _source(package) + _source(attributes), re.MULTILINE))


@pytest.fixture(scope="module")
def specs() -> dict[str, MetricSpec]:
    classes: list[Any] = [load(COLLECTORS, name) for name in COLLECTORS]
    return {spec.name: spec for cls in classes for spec in cls.metrics}


@pytest.mark.parametrize(("name", "rule"), EVERY)
def test_a_rule_is_what_its_convention_says(
    name: str, rule: Rule, conventions: dict[str, tuple[str, str]], specs: dict[str, MetricSpec]
) -> None:
    instrument = rule.instrument or INSTRUMENTS.get(specs[name].kind, Instrument.GAUGE)

    assert conventions[rule.name] == (instrument.value, rule.unit)


@pytest.mark.parametrize(("name", "rule"), EVERY)
def test_a_rule_speaks_of_metrics_and_labels_that_exist(
    name: str, rule: Rule, known_attributes: set[str], specs: dict[str, MetricSpec]
) -> None:
    used = {rule.labels.get(label, label) for label in specs[name].labels} | set(rule.attributes)

    assert used - known_attributes <= BEYOND
    for other in rule.minus:
        assert specs[other].labels == specs[name].labels


def test_values_that_are_named_one_by_one_are_the_conventions_own() -> None:
    enums = import_module(f"{_incubating.__name__}.attributes")
    source = _source(enums)
    listed = set(re.findall(r'^    [A-Z_]+ = "([a-z_0-9]+)"', source, re.MULTILINE))
    fixed = {value for _, rule in EVERY for value in [*rule.attributes.values(), *rule.values.values()]}

    assert fixed <= listed


def test_a_metric_that_has_a_difference_is_no_histogram(specs: dict[str, MetricSpec]) -> None:
    assert all(specs[name].kind is not Kind.HISTOGRAM for name, _ in EVERY)


def test_the_schema_is_that_of_the_package() -> None:
    assert list(schemas.Schemas)[-1].value == SCHEMA


def test_whole_numbers_among_attributes_are_of_the_conventions(known_attributes: set[str]) -> None:
    assert known_attributes >= INTEGERS
