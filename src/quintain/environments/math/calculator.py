"""A calculator for agents: exact arithmetic on fractions.

The text is matched against the signs of arithmetic before it is parsed, and only syntax nodes of arithmetic are evaluated. The size of
every intermediate result is bounded before it is computed: `9**9**9` is refused at once.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction

from quintain.errors import InvalidInput
from quintain.records.wording import clip

MAX_CHARS = 300
MAX_BITS = 1024
"""Maximum size of numerator and denominator of every intermediate result."""
_PLACES = 10

_NAME = "sqrt|abs|round"
_SIGNS = re.compile(
    rf"(?:\s|\d+(?:\.\d*)?(?:e[-+]?\d{{1,3}})?|\.\d+(?:e[-+]?\d{{1,3}})?|{_NAME}|\*\*|//|[-+*/%()])*", re.ASCII
)
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))", re.ASCII)
_WRITTEN = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "$": " "})

Number = int | Fraction
"""Integers stay integers: Python adds them ten times as fast as fractions."""

_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: Fraction(a) / b,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def calculate(expression: str) -> Fraction:
    """Return the value of an arithmetic expression: `+ - * / // % **`, parentheses, sqrt, abs, round.

    Raises:
        InvalidInput: not arithmetic, too long, too large, or a division by zero.
    """
    if len(expression) > MAX_CHARS:
        raise InvalidInput(f"the expression has {len(expression):,} characters; at most {MAX_CHARS}")
    text = " ".join(_GROUPED.sub("", expression.translate(_WRITTEN)).replace("^", "**").split())
    matched = _SIGNS.match(text)
    assert matched is not None
    if matched.end() < len(text):
        raise InvalidInput(
            f"{clip(text[matched.end() :])!r} is no arithmetic; write numbers, + - * / // % **, parentheses, sqrt, abs, round"
        )
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InvalidInput(f"{clip(text)!r} cannot be read; write one expression, such as (3 + 4) * 12") from None
    return Fraction(_value(tree.body, text))


def _value(node: ast.expr, text: str) -> Number:
    match node:
        case ast.Constant():
            literal = text[node.col_offset : node.end_col_offset]
            return _bounded(int(literal) if literal.isdigit() else Fraction(literal))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, text)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, text)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left, text), _value(right, text))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _value(left, text), _value(right, text)
            if b == 0 and isinstance(op, ast.Div | ast.FloorDiv | ast.Mod):
                raise InvalidInput(f"a division by zero in {clip(text)!r}")
            return _bounded(_BINARY[type(op)](a, b))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            return _function(name, _value(argument, text))
    raise InvalidInput(f"{clip(text)!r} is no arithmetic; write one expression, such as (3 + 4) * 12")


def _power(base: Number, exponent: Number) -> Number:
    if exponent == Fraction(1, 2):
        return _function("sqrt", base)
    if exponent.denominator != 1:
        raise InvalidInput("powers with a fraction as exponent are not computed, but for 1/2")
    power = int(exponent)
    if base == 0 and power < 0:
        raise InvalidInput("a division by zero: 0 to a negative power")
    if abs(base) != 1 and abs(power) * max(base.numerator.bit_length(), base.denominator.bit_length()) > 2 * MAX_BITS:
        raise InvalidInput(f"a power is too large; results have at most about {int(MAX_BITS * math.log10(2))} digits")
    return _bounded(Fraction(base) ** power if power < 0 else base**power)


def _function(name: str, value: Number) -> Number:
    if name == "abs":
        return value if value >= 0 else -value
    if name == "round":
        away_from_zero = math.floor((value if value >= 0 else -value) + Fraction(1, 2))
        return away_from_zero if value >= 0 else -away_from_zero
    if value < 0:
        raise InvalidInput("the square root of a negative number")
    above, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if above**2 == value.numerator and below**2 == value.denominator:
        return Fraction(above, below)
    return Fraction(math.isqrt(value.numerator * 10**40 // value.denominator), 10**20)


def _bounded(value: Number) -> Number:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise InvalidInput(f"a result is too large; at most about {int(MAX_BITS * math.log10(2))} digits")
    return value


def format_number(value: Fraction) -> str:
    """Return a number as the calculator shows it: exact with at most 10 decimal places, else rounded to them."""
    if value.denominator == 1:
        return str(value.numerator)
    scaled = Fraction(round(value * 10**_PLACES))
    sign, digits = "-" if scaled < 0 else "", f"{abs(int(scaled)):0{_PLACES + 1}d}"
    return f"{sign}{digits[:-_PLACES]}.{digits[-_PLACES:]}".rstrip("0").rstrip(".")
