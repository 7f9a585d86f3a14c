"""What follows from counts: expressions of + - * / ( ) min max, names and numbers, and nothing else.

    64 * (l2_lines_in_all + l2_trans_l2_wb) / seconds

Python's own parser reads them, but only these nodes of its tree are accepted and they are computed here: no attribute,
call or name reaches Python. A name is a whole identifier, so `l2` never matches within `l2cache`. What divides by zero,
lacks a value or is not finite has no value.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sonde.errors import ParseError

_LONGEST = 2000  # characters; the longest formula of the data files has 200
_DEEPEST = 100  # nodes above one another, well within the interpreter's own limit
_SIGNS: Mapping[type, Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}


class Arithmetic(NamedTuple):
    """How operands are treated that are not plain numbers."""

    divide: Callable[[Any, Any], Any] = operator.truediv
    minimum: Callable[[Any, Any], Any] = min
    maximum: Callable[[Any, Any], Any] = max


PLAIN: Final = Arithmetic()
Compute = Callable[[Mapping[str, Any], Arithmetic], Any]


class Formula:
    """An expression, checked when it is made: ParseError says what is not allowed in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._names: set[str] = set()
        self._compute = self._compiled(self._tree(text), 0)
        self.names: Final = frozenset(self._names)

    def value(self, values: Mapping[str, int | float]) -> float | None:
        """The result for plain numbers; None when there is none."""
        try:
            result = self._compute(values, PLAIN)
            return float(result) if math.isfinite(result) else None
        except (KeyError, ZeroDivisionError, OverflowError):
            return None

    def compute(self, values: Mapping[str, Any], arithmetic: Arithmetic) -> Any:
        """The result for whatever has these operators, an array for one. Raises KeyError for a name without value."""
        return self._compute(values, arithmetic)

    def _tree(self, text: str) -> ast.expr:
        if len(text) > _LONGEST:
            raise ParseError("formula", text, f"longer than {_LONGEST} characters")
        try:
            return ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ParseError("formula", text, str(error)) from None

    def _compiled(self, node: ast.expr, depth: int) -> Compute:
        if depth > _DEEPEST:
            raise ParseError("formula", self.text, f"more than {_DEEPEST} levels deep")
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and math.isfinite(
                number
            ):
                return lambda values, arithmetic: number
            case ast.Name(id=name):
                self._names.add(name)
                return lambda values, arithmetic: values[name]
            case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
                return _signed(_SIGNS[type(sign)], self._compiled(operand, depth + 1))
            case ast.BinOp(op=symbol, left=left, right=right) if type(symbol) in _PAIRS:
                return _PAIRS[type(symbol)](self._compiled(left, depth + 1), self._compiled(right, depth + 1))
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as args, keywords=[]):
                return _extreme(name, [self._compiled(arg, depth + 1) for arg in args])
        raise ParseError("formula", self.text, "only + - * / ( ) min max, names and numbers are allowed")


def _signed(sign: Callable[[Any], Any], operand: Compute) -> Compute:
    return lambda values, arithmetic: sign(operand(values, arithmetic))


def _pair(function: Callable[[Any, Any], Any]) -> Callable[[Compute, Compute], Compute]:
    return lambda left, right: lambda values, arithmetic: function(left(values, arithmetic), right(values, arithmetic))


def _quotient(left: Compute, right: Compute) -> Compute:
    return lambda values, arithmetic: arithmetic.divide(left(values, arithmetic), right(values, arithmetic))


def _extreme(name: str, operands: list[Compute]) -> Compute:
    def compute(values: Mapping[str, Any], arithmetic: Arithmetic) -> Any:
        choose = arithmetic.minimum if name == "min" else arithmetic.maximum
        result = operands[0](values, arithmetic)
        for operand in operands[1:]:
            result = choose(result, operand(values, arithmetic))
        return result

    return compute


_PAIRS: Mapping[type, Callable[[Compute, Compute], Compute]] = {
    ast.Add: _pair(operator.add),
    ast.Sub: _pair(operator.sub),
    ast.Mult: _pair(operator.mul),
    ast.Div: _quotient,
}
