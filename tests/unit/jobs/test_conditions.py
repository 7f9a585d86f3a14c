from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import ConfigError
from sonde.jobs.conditions import Expression


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 1", True),
        ("a > 1 and b < 1", True),
        ("not a > 1", False),
        ("a * 2 + 1 == 5", True),
        ("1 < a < 3", True),
        ("max(a, b, 7) == 7", True),
        ("ceil(b * 3) == 2", True),
        ("2 * GiB == 2147483648", True),
        ("-a < 0", True),
        ("name == 'tmp'", True),
        ("first(absent, a) == 2", True),
        ("first(absent)", None),
        ("absent > 1", None),
        ("absent > 1 and a > 5", False),
        ("absent > 1 or a > 1", True),
        ("absent > 1 or a > 5", None),
        ("not absent", None),
        ("a / 0 > 1", None),
        ("name > 1", None),
    ],
)
def test_a_condition_has_three_values(text: str, expected: object) -> None:
    figures = {"a": 2, "b": 0.5, "name": "tmp", "absent": None}

    assert Expression(text).value(figures) is expected


def test_the_names_of_a_condition_are_known_before_it_is_evaluated() -> None:
    assert Expression("max(a, b) > c * GiB and not d").names == {"a", "b", "c", "d"}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.b > 1",
        "a[0] > 1",
        "lambda: 1",
        "[x for x in a]",
        "a if b else c",
        "(a := 1)",
        "a ** 9999999",
        "open('/etc/passwd')",
        "max()",
        "max(a, key=b)",
        "a >",
        "",
        "f'{a}'",
        "a in b",
        "1j > a",
        "(" * 300 + "a" + ")" * 300,
    ],
)
def test_what_is_not_of_the_language_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Expression(text)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab01 +-*/<>=!()andornot,.'\"[]{}:maxfirst", max_size=40))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        expression = Expression(text)
    except ConfigError:
        return
    value = expression.value({"a": 1.0, "b": None})

    assert value is None or isinstance(value, bool | int | float | str)
