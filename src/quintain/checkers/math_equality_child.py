"""Child process that compares formulas with math-verify and SymPy, one JSON line for each question.

SymPy cannot be interrupted: a power or a factorial of a hostile answer would block the caller for ever. Hence the comparison runs
in a separate process, which the kernel ends when a question has used its CPU time, and whose memory is limited.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
from contextlib import suppress
from typing import Any

IDLE_S = 300
"""Seconds without a question after which the process ends."""
_MEMORY = 2 << 30
_POINTS = (("0.7390851", "1.3247179"), ("2.2360679", "0.5671432"), ("-1.6449340", "3.3598856"))
"""Values that variables take in turn: negative and positive, and of no simple relation to each other."""
_NEAR = 1e-9
_OR = re.compile(r"\\text\s*\{\s*or\s*\}|\\lor(?![A-Za-z])|\\vee(?![A-Za-z])|(?<![A-Za-z\\])or(?![A-Za-z])")


def main() -> None:
    """Answer the questions of standard input until it ends, or none comes for `IDLE_S`."""
    cpu_s = float(sys.argv[1])
    _limit_memory()
    logging.disable(logging.CRITICAL)
    import math_verify  # noqa: F401  before the first question, whose time it would take

    while True:
        _set_timers(idle=IDLE_S)
        line = sys.stdin.readline()
        if not line:
            return
        _set_timers(cpu=cpu_s)
        expected, stated = json.loads(line)
        try:
            verdict = compare(expected, stated)
        except Exception:  # SymPy raises whatever its algorithms run into; none of it decides anything
            verdict = None
        sys.stdout.write(json.dumps(verdict) + "\n")
        sys.stdout.flush()


def compare(expected: str, stated: str) -> bool | None:
    """Whether two formulas in LaTeX without dollar signs are equal.

    Returns:
        True where math-verify, a sample of points or set algebra finds them equal; False where a point or a set refutes it;
        None where a side cannot be parsed, where neither is shown, or where a decimal is near the expected value.
    """
    gold, answer = _parsed(expected), _parsed(stated)
    if gold is None or answer is None:
        return None
    import sympy
    from math_verify import verify

    sides = (gold, answer)
    if all(isinstance(side, sympy.Expr) and side.is_rational and not side.has(sympy.Float) for side in sides):
        return bool(gold.doit() == answer.doit())
    with suppress(Exception):
        if verify(gold, answer, allow_set_relation_comp=True, timeout_seconds=None):
            return True
    equal = _equal(gold, answer)
    decimal = re.fullmatch(r"-?\d*\.(\d{3,})", stated)
    if equal is False and decimal and _difference_below(gold, answer, 10.0 ** -len(decimal[1])):
        return None
    return equal


def _parsed(latex: str) -> Any:
    """The SymPy object of a formula; alternatives joined by "or" become the union of their sets."""
    parts = [part.strip(" ,") for part in _OR.split(latex)]
    if len(parts) > 1:
        import sympy

        sets = [_as_set(_parsed(part)) for part in parts]
        return None if None in sets else sympy.Union(*sets)
    from math_verify import LatexExtractionConfig, parse

    found = parse(f"${latex}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    return _with_constants(found[0]) if found else None


def _with_constants(value: Any) -> Any:
    """The value with the letters e and i as the constants, which the parser takes for variables in places."""
    import sympy

    names = {"e": sympy.E, "i": sympy.I}
    if isinstance(value, sympy.Expr | sympy.MatrixBase):
        return value.subs({symbol: names[symbol.name] for symbol in value.free_symbols if symbol.name in names})
    return value


def _equal(gold: Any, answer: Any) -> bool | None:
    import sympy

    if isinstance(gold, sympy.MatrixBase) and isinstance(answer, sympy.MatrixBase):
        return gold.shape == answer.shape and _all_equal(zip(gold, answer, strict=True))
    if isinstance(gold, sympy.Tuple) and isinstance(answer, sympy.Tuple):
        return len(gold) == len(answer) and _all_equal(zip(gold, answer, strict=True))
    if isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr):
        return _equal_values(gold, answer)
    if isinstance(gold, sympy.Eq) and isinstance(answer, sympy.Eq):
        return _equal_equations(gold, answer)
    for side, other in ((gold, answer), (answer, gold)):
        if isinstance(side, sympy.Eq) and isinstance(other, sympy.Expr):
            is_definition = side.lhs.is_Symbol or isinstance(side.lhs, sympy.core.function.AppliedUndef)
            return _equal(side.rhs, other) if is_definition and isinstance(side.rhs, sympy.Expr) else None
        if isinstance(side, sympy.Set) and isinstance(other, sympy.Expr):
            alone = isinstance(side, sympy.FiniteSet) and len(side) == 1
            return _equal(next(iter(side)), other) if alone else False
    left, right = _as_set(gold), _as_set(answer)
    return None if left is None or right is None else _equal_sets(left, right)


def _all_equal(pairs: Any) -> bool | None:
    verdicts = [_equal(left, right) for left, right in pairs]
    return False if False in verdicts else None if None in verdicts else True


def _equal_values(gold: Any, answer: Any) -> bool | None:
    """Whether two expressions have the same value at every sample point where both have one; None: there is no such point."""
    pairs = [(a, b) for a, b in (_values(point, gold, answer) for point in range(len(_POINTS))) if a is not None]
    if not pairs:
        return None
    return all(abs(a - b) <= _NEAR * max(abs(a), abs(b), 1e-12) for a, b in pairs)


def _values(point: int, *expressions: Any) -> list[Any]:
    """The complex values of expressions at a point; [None, None]: one is not finite there, or too large for a float."""
    names = sorted({symbol.name for expression in expressions for symbol in expression.free_symbols})
    values = []
    for expression in expressions:
        places = {
            symbol: float(_POINTS[point][names.index(symbol.name) % 2]) + names.index(symbol.name) // 2
            for symbol in expression.free_symbols
        }
        try:
            value = complex(expression.doit().evalf(20, subs=places))
        except (TypeError, ValueError, OverflowError, ZeroDivisionError):
            return [None, None]
        if not abs(value) < 1e300:
            return [None, None]
        values.append(value)
    return values


def _difference_below(gold: Any, answer: Any, bound: float) -> bool:
    import sympy

    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)) or gold.free_symbols or gold.is_Rational:
        return False
    left, right = _values(0, gold, answer)
    return left is not None and abs(left - right) <= bound


def _equal_equations(gold: Any, answer: Any) -> bool | None:
    """Whether two equations have the same solutions: equal by a constant factor, or refuted by a point of one alone."""
    import sympy

    if gold.lhs == answer.lhs and gold.lhs.is_Symbol:
        return _equal(gold.rhs, answer.rhs)
    if not all(isinstance(side, sympy.Expr) for equation in (gold, answer) for side in equation.args):
        return None
    left, right = (sympy.expand(equation.lhs - equation.rhs) for equation in (gold, answer))
    values = [_values(point, left, right) for point in range(len(_POINTS))]
    ratios = [a / b for a, b in values if a is not None and a and b]
    if len(ratios) == len(_POINTS) and all(abs(r - ratios[0]) <= _NEAR * abs(ratios[0]) for r in ratios):
        return True
    for one, other in ((left, right), (right, left)):
        for symbol in sorted(one.free_symbols, key=str):
            if sympy.Poly(one, symbol).degree() == 1:
                solution = sympy.solve(one, symbol)[0]
                differs = _equal_values(other.subs(symbol, solution), sympy.Integer(0))
                if differs is False:
                    return False
    return None


def _as_set(value: Any) -> Any:
    """The set that a value names: itself, the solutions of an inequality in one variable, or the values of a variable."""
    import sympy

    if isinstance(value, sympy.FiniteSet) and any(isinstance(item, sympy.Rel) for item in value):
        sets = [_as_set(item) for item in value]
        return None if None in sets or len(value.free_symbols) > 1 else sympy.Union(*sets)
    if isinstance(value, sympy.Set):
        return value
    if isinstance(value, sympy.Eq):
        if not value.lhs.is_Symbol:
            return None
        return value.rhs if isinstance(value.rhs, sympy.Set) else sympy.FiniteSet(value.rhs)
    if isinstance(value, sympy.Rel | sympy.And | sympy.Or) and len(value.free_symbols) == 1:
        return value.as_set()
    return None


def _equal_sets(gold: Any, answer: Any) -> bool | None:
    import sympy

    if isinstance(gold, sympy.FiniteSet) and isinstance(answer, sympy.FiniteSet):
        left, right = list(gold), list(answer)
        matches = [[_equal(a, b) for b in right] for a in left]
        if all(True in row for row in matches) and all(any(row[j] for row in matches) for j in range(len(right))):
            return True
        refuted = any(all(v is False for v in row) for row in matches)
        return False if refuted or any(all(row[j] is False for row in matches) for j in range(len(right))) else None
    empty = gold.symmetric_difference(answer).is_empty
    return None if empty is None else bool(empty)


def _limit_memory() -> None:
    with suppress(ImportError, OSError, ValueError):  # not on Windows, and not above a lower limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _set_timers(*, idle: int = 0, cpu: float = 0.0) -> None:
    """Have the kernel end this process after so many seconds of waiting or of CPU time; 0: never. Windows has neither."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, idle)
        signal.setitimer(signal.ITIMER_PROF, cpu)


if __name__ == "__main__":
    main()
