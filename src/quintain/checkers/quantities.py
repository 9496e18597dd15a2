"""Parse numbers with units as exact fractions, and compare them.

Two numbers are equal if they are equal as fractions. An expected integer needs an exact match. An expected decimal with two or
more places also matches a more precise number that rounds to it. A fraction without a finite decimal (1/3) matches three or
more correct places. A unit that one side omits is ignored, units of one kind are converted, and other units or symbols differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from quintain.checkers.units import Unit, unit_of

SYMBOLS = frozenset(
    (
        *("pi", "π", "e", "i", "infty", "mod", "sqrt", "ln", "log", "exp", "sin", "cos", "tan"),
        *("arcsin", "arccos", "arctan", "alpha", "beta", "gamma", "delta", "theta", "lambda"),
        *("mu", "phi", "omega", "sigma", "rho", "tau", "epsilon"),
    )
)
"""Names that belong to a formula and to no language."""
_DIGITS = (
    r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+,\d+|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?"
    r"|\d{1,40},\d{1,2}(?![\d,])|\d{1,400}(?:\.\d{1,400})?|\.\d{1,400})"
)
_POWER = r"(?:[eE][-+]?\d{1,3}|\s?[*x]\s?10\s?\^\s?\(?[-+]?\d{1,3}\)?|\s?\^\s?\(?[-+]?\d{1,3}\)?)?"
_ONE = rf"(?:{_DIGITS}{_POWER}|\(\s*-?\s*{_DIGITS}\s*\))"
NUMBER = re.compile(
    rf"(?<![A-Za-z_\d.])(?<![A-Za-z]-)(?<!\d:)(?:(?<![\w)])[-+]\s?)?(?:[$€£¥₹]\s?)?(?:(?<![\w)])-)?"
    rf"(?:\d{{1,9}}\s+(?=\(?\d+\)?\s?/))?{_ONE}(?:\s?/\s?{_ONE})?(?:\s?(?:%|percent\b|per cent\b))?(?!:\d)"
)
"""A number as people write it, with its sign, currency, fraction and percent sign."""

_WHOLE = re.compile(
    r"^(?:(?:about|approximately|approx\.?|around|roughly|exactly|just|only|a total of|≈|=)\s*)*"
    r"(?P<minus>(?:minus|negative)\s|[-+]\s?)?(?P<currency>[$€£¥₹]|USD|EUR|GBP|JPY|INR)?\s?(?P<sign>[-+]\s?)?"
    rf"(?:(?P<whole>\d{{1,9}})\s+(?=\(?\d+\)?\s?/))?(?P<above>{_ONE})(?:\s?/\s?(?P<below>{_ONE}))?"
    r"\s?(?P<percent>%|percent\b|per cent\b)?(?P<rest>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_SPACED = re.compile(r"^(?:[^\w\s]\s?)?\d{1,3}(?: \d{3})+(?![\d/])")
"""1 000 000, where that is all of it."""
_REST = re.compile(r"^[\s\-]*(?:/\s?)?[A-Za-zµμ°Ω€£$¥₹][A-Za-zµμ°Ω.\- /*^()1-9$]{0,60}[.!\s]*$")
_TIMES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "bn": 10**9,
}
_STUCK = {"k": 1000, "M": 10**6, "B": 10**9, "K": 1000}
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "of in per for to every each a an the more left total is are was and because which that with from at on as so or by when if",
    )
)
_MOST_EXPONENT, _MOST_DIGITS = 400, 20_000
_BOUND_BEFORE = re.compile(r"(?:≠|(?<![-=])[<>≤≥])\s*[$€£]?\s?$")
_RANGE_AFTER = re.compile(r"\s*(?:±|\+/?-\s?\d|\+\s*(?:$|[A-Za-z]{2}))")
"""Signs beside a number that make it a bound or a range."""


class Quantity(NamedTuple):
    """A number with its unit, noun and notation."""

    value: Fraction
    unit: Unit | None
    """None without a unit, or where the unit is only a noun."""
    noun: str
    """The noun that is counted, such as `apples`; empty for a unit."""
    percent: bool
    places: int
    """Number of decimal places in the text."""
    is_ratio: bool


def quantity(text: str) -> Quantity | None:
    """Return the quantity that a whole text consists of; None for formulas, several numbers and other text."""
    found = _WHOLE.match(_SPACED.sub(lambda spaced: spaced.group().replace(" ", ""), text.strip()))
    if found is None:
        return None
    end = next(found.end(part) for part in ("percent", "below", "above") if found[part])
    rest = found.string[end:]
    if rest.strip(" .!\t\n") and (not _REST.match(rest) or _RANGE_AFTER.match(rest) or re.search(r"[\s$€£]\d", rest)):
        return None
    value = _value(found)
    if value is None:
        return None
    times, rest = _multiplier(rest, has_currency=bool(found["currency"]))
    found_unit = _unit_or_noun(rest)
    if found_unit is None:
        return None
    unit, noun = found_unit
    if found["currency"]:
        money = unit_of(found["currency"])
        unit, noun = (money[0], "") if money else (None, found["currency"])
    written = found["above"].replace(",", "") if not found["below"] else ""
    places = len(written.partition(".")[2]) if re.fullmatch(r"\d*\.\d+", written) and times == 1 else 0
    return Quantity(value * times, unit, noun, bool(found["percent"]), places, bool(found["below"]))


def quantity_at(text: str, number: re.Match[str]) -> Quantity | None:
    """Return a number within a sentence with its unit; None if it is a bound (`> 5`), a range (`5 ± 1`), or part of a formula."""
    before, after = text[max(0, number.start() - 60) : number.start()], text[number.end() : number.end() + 60]
    before = re.sub(r"<[^<>\n]{1,40}>\s*$", "", before)
    signs = _BOUND_BEFORE.search(before) or _OPERATOR_BEFORE.search(before)
    if signs or _RANGE_AFTER.match(after) or _FORMULA.match(after):
        return None
    near = re.match(r"[^\n,;:.!?]*", after)
    tail = near.group() if near else ""
    if _unit_or_noun(_multiplier(tail, has_currency=False)[1], strict=False) is None:
        return None
    for end in (re.match(r"\s?[A-Za-zµμ°Ω$€£¥₹][A-Za-zµμ°Ω²³\-/^()23]*(?:\s[A-Za-z/°]+){0,3}", tail), None):
        whole = quantity(number.group() + end.group()) if end else quantity(number.group())
        if whole is not None:
            return whole._replace(noun="")
    return None


def _multiplier(rest: str, *, has_currency: bool) -> tuple[int, str]:
    """Return the factor of a word such as `million` or of its letter, and the text after it."""
    found = re.match(r"[\s\-]*([A-Za-z]+)\b(.*)$", rest, re.DOTALL)
    if found and found[1].lower() in _TIMES:
        return _TIMES[found[1].lower()], found[2]
    stuck = re.match(r"(k|M|K|B)(?![A-Za-z/])(.*)$", rest, re.DOTALL)
    if stuck and (has_currency or stuck[1] in "kM"):
        return _STUCK[stuck[1]], stuck[2]
    return 1, rest


def _unit_or_noun(rest: str, *, strict: bool = True) -> tuple[Unit | None, str] | None:
    """Return the unit or noun after a number; None for a symbol, which makes the text a formula."""
    text = rest.strip(" .!-\t\n")
    if not text:
        return None, ""
    if re.match(r"[ap]\.?\s?m\b", text, re.IGNORECASE):
        return None, text[:1]
    if text[0] == "/":  # per hour is not part of what is counted; 3/x is a formula
        return (
            (None, "")
            if _unit_or_noun(text[1:], strict=strict) and re.match(r"/\s?[A-Za-z]{2}|/\s?[hsd]$", text)
            else None
        )
    is_stuck = rest[:1].isalpha()
    first = re.match(r"[A-Za-z]+", text)
    word = first.group() if first else ""
    if rest[:1] == "(" or text[0] == "*" or (word in SYMBOLS and (len(word) > 1 or is_stuck or text == word)):
        return None
    if is_stuck and re.fullmatch(r"[tdhHTn]", word):  # 3t is a formula, 3 t may be a weight
        return None
    if (found := unit_of(text)) is not None and not (
        len(word) == 1 and re.match(r"\s+[a-z]{2}", text[1:]) and word in "aAIi"
    ):
        return found[0], ""
    if len(word) == 1 and (is_stuck or text == word or not re.match(r"\s+[A-Za-z]", text[1:])) and word not in "¥":
        return None
    if is_stuck and word and len(word) <= 3 and word not in {"st", "nd", "rd", "th"}:
        return None
    if word.lower() in _FUNCTION_WORDS or not strict:
        return None, ""
    return None, text


_FORMULA = re.compile(r"\s?[A-Za-z]?\s*[-+*/^]\s*(?:\d|\(|[b-hj-zB-HJ-Z]\b)|\s?\(\s*[A-Za-z\d]\s*[-+*/^)]")
"""An unevaluated formula such as 10 - 5 or 2x + 1."""
_OPERATOR_BEFORE = re.compile(r"(?:[\d)]|\b[A-Za-z])\s*[-+*/^]\s*$")


def agree(expected: Quantity, stated: Quantity, tolerance: float = 0.0) -> bool | None:
    """Whether two quantities are equal within a tolerance; None if the numbers are equal but the nouns differ."""
    if expected.unit and stated.unit and expected.unit.kind != stated.unit.kind:
        return False
    if not _close(expected, stated, tolerance):
        return False
    names = [quantity.noun or (quantity.unit.kind if quantity.unit else "") for quantity in (expected, stated)]
    if all(names) and not (expected.unit and stated.unit):
        left, right = ({word.rstrip("s.") for word in name.casefold().split()} for name in names)
        return True if left & right else None
    return True


def _close(expected: Quantity, stated: Quantity, tolerance: float) -> bool:
    for left, right in _readings(expected, stated):
        gap = abs(left - right)
        if gap == 0 or (tolerance and gap <= Fraction(tolerance)):
            return True
        exact = left.denominator == 1 and expected.places == 0 and not expected.is_ratio
        if not exact and gap <= abs(left) * Fraction(1, 10**9):
            return True
        places = expected.places + (2 if expected.percent and left == expected.value / 100 else 0)
        finer = stated.places > expected.places or stated.is_ratio
        if expected.places >= 2 and finer and _rounds(right, left, places):
            return True
        if (
            expected.is_ratio
            and stated.places >= 3
            and not _ends(left)
            and _rounds(left, right, stated.places + (2 if stated.percent and right == stated.value / 100 else 0))
        ):
            return True
    return False


def _readings(expected: Quantity, stated: Quantity) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield both readings of a percentage: 25 % as 0.25, and as 25 if the other side omits the sign."""
    left, right = expected.value, stated.value
    if expected.unit and stated.unit and expected.unit != stated.unit:
        left, right = ((q.value + q.unit.offset) * q.unit.size for q in (expected, stated) if q.unit)
    if expected.percent == stated.percent:
        yield left, right
        return
    yield (left / 100 if expected.percent else left), (right / 100 if stated.percent else right)
    if not 0 < abs(left) < 1:  # 0.5 % and 0.5 are two things
        yield left, right


def _rounds(exact: Fraction, shown: Fraction, places: int) -> bool:
    """Whether `exact`, rounded half away from zero to `places` decimals, is `shown`."""
    return (exact < 0) == (shown < 0) and (abs(exact) * 10**places + Fraction(1, 2)) // 1 == abs(shown) * 10**places


def _ends(value: Fraction) -> bool:
    """Whether a fraction has a finite decimal expansion."""
    below = value.denominator
    for prime in (2, 5):
        while below % prime == 0:
            below //= prime
    return below == 1


def _value(found: re.Match[str]) -> Fraction | None:
    above = _number(found["above"])
    below = _number(found["below"]) if found["below"] else Fraction(1)
    if above is None or not below:
        return None
    value = above / below
    if found["whole"]:
        value += int(found["whole"])
    signs = (found["minus"] or "", found["sign"] or "")
    flips = sum(sign.strip().lower() in {"-", "minus", "negative"} for sign in signs)
    return -value if flips % 2 else value


def _number(written: str) -> Fraction | None:
    text = written.strip().strip("()").replace(" ", "")
    sign = -1 if text.startswith("-") else 1
    text = text.lstrip("-+")
    scaled = re.fullmatch(r"(.+?)(?:[eE]|[*x]10\^)\(?([-+]?\d{1,3})\)?", text)
    raised = None if scaled else re.fullmatch(r"(.+?)\^\(?([-+]?\d{1,3})\)?", text)
    power_of = scaled or raised
    body, exponent = (power_of[1], power_of[2]) if power_of else (text, "0")
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+,\d+", body) or (re.fullmatch(r"\d+,\d{1,2}", body)):
        body = body.replace(".", "").replace(",", ".")  # 1.234,56 and 1,5: a decimal comma
    value, power = Fraction(body.replace(",", "")), int(exponent)
    if abs(power) > _MOST_EXPONENT:
        return None
    if raised and len(body) * abs(power) > _MOST_DIGITS:
        return None
    if raised:
        return None if not value and power < 0 else sign * value**power
    return sign * value * Fraction(10) ** power
