"""The language of the rules: arithmetic, comparisons, and, or, not over named figures. Nothing else is evaluated.

    memory_used_share < least and memory_asked > 2 * GiB
    max(disk_busy, 0.0) >= 0.9

A figure that was not measured is None, and so is what is computed from it; `and`, `or` and `not` are those of three
values (Kleene): `False and None` is False, `True and None` is None. `first(a, b)` is the first that was measured. A
rule fires when its condition is True.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from sonde.errors import ConfigError

Scalar = float | str | bool | None

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs, "ceil": math.ceil, "first": max}
_UNITS = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "minute": 60.0, "hour": 3600.0}
_LONGEST = 500  # characters: nobody writes a longer condition, and the parser recurses


class Expression:
    """A condition or a value, checked when it is made. ConfigError says what is wrong with it."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > _LONGEST:
            raise ConfigError(f"{text[:40]!r}…: longer than {_LONGEST} characters")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ConfigError(f"{text!r} is not an expression: {getattr(error, 'msg', error)}") from None
        self.names = frozenset(_names(self._tree, text)) - _UNITS.keys()

    def value(self, figures: Mapping[str, Any]) -> Any:
        """None when something in it is not known, or cannot be computed (0 / 0, a text compared with a number)."""
        try:
            return _value(self._tree, figures)
        except (ArithmeticError, TypeError, ValueError):
            return None


def _names(node: ast.expr, text: str) -> list[str]:
    """The names an expression needs; refuses whatever is not of this language."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        return []
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords or not node.args:
            raise ConfigError(f"{text!r}: only {', '.join(_FUNCTIONS)} can be called")
        return [name for part in node.args for name in _names(part, text)]
    return [name for part in _parts(node, text) for name in _names(part, text)]


def _parts(node: ast.expr, text: str) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return [node.operand]
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops):
        return [node.left, *node.comparators]
    raise ConfigError(f"{text!r}: {type(node).__name__} has no place in a condition")


def _value(node: ast.expr, figures: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _UNITS[node.id] if node.id in _UNITS else figures.get(node.id)
    if isinstance(node, ast.BoolOp):
        return _logic(node, figures)
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, figures)
        if operand is None:
            return None
        return not operand if isinstance(node.op, ast.Not) else -operand
    return _computed(node, figures)


def _computed(node: ast.expr, figures: Mapping[str, Any]) -> Any:
    parts = [_value(part, figures) for part in (node.args if isinstance(node, ast.Call) else _parts(node, ""))]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "first":
        return next((part for part in parts if part is not None), None)
    if any(part is None for part in parts):
        return None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*parts)
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](*parts)
    assert isinstance(node, ast.Compare)  # noqa: S101 - nothing else passes _parts
    pairs = zip(node.ops, parts, parts[1:], strict=False)
    return all(_COMPARISONS[type(op)](left, right) for op, left, right in pairs)


def _logic(node: ast.BoolOp, figures: Mapping[str, Any]) -> bool | None:
    decisive = isinstance(node.op, ast.Or)  # one True decides `or`, one False decides `and`
    unknown = False
    for part in node.values:
        found = _value(part, figures)
        if found is None:
            unknown = True
        elif bool(found) is decisive:
            return decisive
    return None if unknown else not decisive
