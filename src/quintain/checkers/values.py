"""Compare two written answers.

Numbers compare by value with their units, tuples and sets by their elements, formulas by `formulas`, other texts by words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from quintain.checkers.formulas import is_formula, same_formula
from quintain.checkers.quantities import NUMBER, Quantity, agree, quantity, quantity_at
from quintain.checkers.texts import plain


def same(expected: str, stated: str, *, tolerance: float = 0.0) -> bool:
    """Whether `compare` finds two answers equal; an undecided comparison counts as different."""
    return compare(expected, stated, tolerance=tolerance) is True


def compare(expected: str, stated: str, *, tolerance: float = 0.0) -> bool | None:
    """Whether the stated answer equals the expected one, numbers within a tolerance; None if only a reader can decide.

    A statement that contains the expected answer among others, or among words, is undecided.
    """
    left, right = plain(expected).strip(), plain(stated).strip()
    if not left or not right:
        return False
    name, number = _name(left), expected_number(left)
    may_be_two = re.fullmatch(r"-?\d+,\d{1,2}", left)  # 2,4 is a decimal, or two numbers
    if number is not None:
        listed = _listed_numbers(right)
        found = listed or stated_numbers(right)
        verdicts = {agree(number, one, tolerance) for one in found}
        verdict = verdicts.pop() if len(verdicts) == 1 else None if verdicts and not listed else False
        if verdict and name and _name(right) not in {"", name}:
            return None
        if verdict is not False:
            return verdict
        if found and not may_be_two:
            return same_formula(_unnamed(expected.strip()), stated, is_number=True)
    if words(left) == words(right) and _is_factorial(left) == _is_factorial(right):
        return True
    if number is not None and not may_be_two:
        return same_formula(_unnamed(expected.strip()), stated, is_number=True)
    parts = _parts(left)
    if parts is not None:
        found_parts = [other for text in _bracketed(right) if (other := _parts(text)) is not None]
        if any(_same_parts(parts, other, tolerance) for other in found_parts):
            return True
        if _are_numbers(parts) and any(_are_numbers(other) for other in found_parts):
            return False
    if is_formula(expected):
        return same_formula(expected, stated)
    return False if parts is not None else _same_words(left, right)


def _listed_numbers(stated: str) -> list[Quantity]:
    """Return the numbers of a statement of several numbers alone (`41, 42`, `1 2 3`, `x = 2 or x = 3`); else nothing."""
    if quantity(_unnamed(stated)) is not None:
        return []
    parts, pieces = _parts(stated), stated.split()
    items = pieces if all(map(NUMBER.fullmatch, pieces)) else parts.items if parts else ()
    numbers = [quantity(_unnamed(item)) for item in items]
    return [number for number in numbers if number is not None] if all(numbers) else []


def expected_number(text: str) -> Quantity | None:
    """Return the quantity of an expected answer; None for anything else, such as the factorial `5!` or the pair `(1,2)`."""
    value = _unnamed(text)
    return None if _is_factorial(text) or re.match(r"[(\[{].*,", value) else quantity(value)


def _is_factorial(text: str) -> bool:
    return re.search(r"\d\s?!$", text) is not None


def stated_numbers(stated: str) -> list[Quantity]:
    """Return the numbers of a statement that differ: the whole text, else those after its last `=`, else all of them."""
    stated = re.sub(r"[<>!]=", lambda sign: {"<=": "≤", ">=": "≥", "!=": "≠"}[sign.group()], stated)
    _, sign, tail = stated.rpartition("=") if "=" in stated else stated.rpartition("≈")
    text = tail if sign and NUMBER.search(tail) else stated
    if (whole := quantity(text)) is not None:
        return [whole]
    found = (quantity_at(text, number) for number in NUMBER.finditer(text))
    return list({(number.value, number.unit, number.percent): number for number in found if number}.values())


def words(text: str) -> str:
    """Normalize a text for comparison: drop case, quotes, articles, final punctuation and spaces around signs."""
    text = re.sub(r"(?<=\b[A-Za-z])\.(?=[A-Za-z]\b|\s|$)", "", " ".join(text.casefold().split()))
    text = text.strip(" \t\"'“”‘’«».,;:!?*")
    text = re.sub(r"^(?:the|a|an)\s+", "", text)
    text = re.sub(r"(?<!\w)\((\w+)\)", r"\1", text)
    text = re.sub(r"\s*\*\s*", "", text)
    return re.sub(r"\s*([,;:()\[\]{}=+/^<>-])\s*|(?<=\d)\s+(?=[a-z])", r"\1", text)


def _unnamed(text: str) -> str:
    """Return a text without the name of its value: 5 for `x = 5`, the interval for `x in [0, 1]`."""
    return re.sub(r"^[A-Za-z]\w{0,2}(?:\(\w\))?\s?=\s?|^[A-Za-z](?: in| ?∈) ?(?=[\[({])", "", text)


def _name(text: str) -> str:
    """Return the name of a value, such as `x` in `x = 5`; empty where it has none."""
    found = re.match(r"^([A-Za-z]\w{0,2})\s?=", text.strip())
    return found[1] if found else ""


class _Parts(NamedTuple):
    brackets: str
    items: tuple[str, ...]


def _parts(text: str) -> _Parts | None:
    """Return the elements of a tuple, list, interval, set, or of a bare row of numbers or letters; None for other texts."""
    text = text.strip().rstrip(".")
    if re.match(r"[A-Za-z](?: in\b| ?∈)", text):
        text = _unnamed(text)
    brackets = ""
    if len(text) > 2 and text[0] in "([{" and text[-1] in ")]}":
        brackets, inner = text[0] + text[-1], text[1:-1]
    else:
        inner = text
    items = _split(inner)
    if len(items) < 2 and brackets != "{}":
        return None
    if not brackets and not all(quantity(_unnamed(item)) or re.fullmatch(r"\(?[A-Za-z]\)?", item) for item in items):
        return None
    return _Parts(brackets, tuple(items)) if all(items) and len(items) <= 1000 else None


def _are_numbers(parts: _Parts) -> bool:
    return all(quantity(_unnamed(item)) is not None for item in parts.items)


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets, and at `and` and `or`."""
    items, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character in ",;" and depth == 0:
            items.append(text[start:place])
            start = place + 1
    items.append(text[start:])
    return [
        item.strip()
        for part in items
        for item in re.split(r"\s+(?:and|or)\s+|^(?:and|or)\s+", part.strip())
        if item.strip()
    ]


def _bracketed(stated: str) -> list[str]:
    """Return the candidates for a bracketed statement: the whole text, the part after `=`, the last pair of brackets."""
    _, sign, tail = stated.rpartition("=")
    last = re.findall(r"[(\[{][^()\[\]{}]*[)\]}]", stated)[-1:]
    return [stated, *([tail.strip()] if sign and "," in tail else []), *last]


def _same_parts(expected: _Parts, stated: _Parts, tolerance: float) -> bool:
    left, right = expected.items, stated.items
    if len(left) != len(right):
        return False
    kinds = {expected.brackets, stated.brackets} - {""}
    if len(kinds) == 2 and (len(left) == 2 or kinds != {"()", "[]"}):
        return False
    names = [[_name(item) for item in items] for items in (left, right)]
    one_sided = (
        all(names[0]) and len(set(names[0])) > 1 and not any(names[1])
    )  # whose order is then all that tells them apart
    if (kinds & {"()", "[]", "(]", "[)"} or one_sided) and not (all(names[0]) and all(names[1])):
        return all(same(a, _bare(a, b), tolerance=tolerance) for a, b in zip(left, right, strict=True))
    return _paired(left, list(right), tolerance)


def _paired(left: Sequence[str], right: list[str], tolerance: float) -> bool:
    """Whether the elements match one to one, in any order."""
    for item in left:
        partner = next(
            (
                place
                for place, other in enumerate(right)
                if _name(other) in {"", _name(item) or _name(other)}
                and same(item, _bare(item, other), tolerance=tolerance)
            ),
            None,
        )
        if partner is None:
            return False
        right.pop(partner)
    return True


def _bare(expected: str, stated: str) -> str:
    return stated if "=" in expected else _unnamed(stated)


_TRUTHS = {"yes": True, "true": True, "correct": True, "no": False, "false": False, "incorrect": False}
_ASIDE = re.compile(r"\s*(?:\(|;|\s[-–—]\s)")
"""End of a short answer before an explanation."""
_CHOICE = re.compile(
    r"(?<![\w'-])(?:(?P<open>[(\[])\s?)?(?P<letter>[A-Za-z])(?(open)\s?[)\]]|(?P<mark>[).:](?=\s|$)|(?![\w'-])))"
)
_MOST_OF_CHOICE = 400


def _same_words(expected: str, stated: str) -> bool | None:
    """Compare by words, choices by their letter; None where the expected words stand among others."""
    left, right = words(expected), words(stated)
    if re.fullmatch(r"[a-z]", left):
        return _same_choice(left, stated)
    if left in _TRUTHS:
        return _same_truth(_TRUTHS[left], right)
    if left in {right, words(_ASIDE.split(stated, maxsplit=1)[0]), words(_unnamed(stated))}:
        return True
    edge = r"(?<!\w)" if left[:1].isascii() else "", r"(?!\w)" if left[-1:].isascii() else ""
    return None if left and re.search(edge[0] + re.escape(left) + edge[1], right) else False


def _same_truth(truth: bool, stated: str) -> bool | None:
    """Whether a statement begins with this truth value and does not name the other; None where it names both."""
    named = {_TRUTHS[word] for word in re.findall(r"[a-z]+", stated) if word in _TRUTHS}
    if truth not in named or all(item in _TRUTHS for item in _split(stated)):
        return named == {truth}
    first = re.match(r"[a-z]+", stated)
    return True if named == {truth} and first and first.group() in _TRUTHS else None


def _same_choice(letter: str, stated: str) -> bool | None:
    """Whether a statement names this choice alone; None where it names several in a sentence, or where a letter may be a word."""
    if (parts := _parts(stated)) is not None and len({words(item) for item in parts.items}) > 1:
        return False
    stated = stated.strip(" *\"'.!")[:_MOST_OF_CHOICE]
    named: dict[str, bool] = {}
    for found in _CHOICE.finditer(stated):
        is_alone = found.group() == stated
        is_marked = bool(found["open"] or found["mark"] or is_alone)
        is_word = found["letter"] in "aAI" and re.match(r"\s+\w", stated[found.end() :])
        if is_marked or (found["letter"].isupper() and not is_word):
            named[found["letter"].lower()] = True
        elif found["letter"].isupper():
            named.setdefault(found["letter"].lower(), False)
    if letter not in named:
        return False
    return True if named == {letter: True} else None
