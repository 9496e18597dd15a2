"""Compare two written answers.

Numbers compare by value with their units, tuples and sets by their elements, formulas by `formulas`, other texts by words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from quintain.checkers.formulas import is_formula, same_formula
from quintain.checkers.quantities import DENIED, NUMBER, Quantity, agree, quantity, quantity_at
from quintain.checkers.texts import plain


def same(expected: str, stated: str, *, tolerance: float = 0.0) -> bool:
    """Whether `compare` finds two answers equal; an undecided comparison counts as different."""
    return compare(expected, stated, tolerance=tolerance) is True


def compare(expected: str, stated: str, *, tolerance: float = 0.0) -> bool | None:
    """Whether the stated answer equals the expected one; None if only a reader can decide.

    Args:
        expected: The task's answer, as written.
        stated: The agent's statement, as written.
        tolerance: Allowed absolute difference of two numbers.
    """
    left, right = plain(expected).strip(), plain(stated).strip()
    if not left or not right:
        return False
    name, number = _name(left), expected_number(left)
    may_be_two = re.fullmatch(r"-?\d+,\d{1,2}", left)  # 2,4 is a decimal, or two numbers
    if number is not None:
        found = single_number(right)
        verdict = agree(number, found, tolerance) if found is not None else False
        if verdict and name and _name(right) not in {"", name}:
            return None
        if verdict is not False:
            return verdict
        if found is not None and not may_be_two:
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


def expected_number(text: str) -> Quantity | None:
    """Return the quantity of an expected answer; None for anything else, such as the factorial `5!`."""
    return None if _is_factorial(text) else quantity(_unnamed(text))


def _is_factorial(text: str) -> bool:
    return re.search(r"\d\s?!$", text) is not None


def single_number(stated: str) -> Quantity | None:
    """Return the only number of a statement: the whole text, the part after its last `=`, its first, or its last number.

    None without a number, with alternatives ("41 or 42", "41, 42, 43"), and if the number is only negated or bounded.
    """
    reasoned = re.split(r"\s(?:because|since)\s", stated, maxsplit=1)
    stated = reasoned[0] if NUMBER.search(reasoned[0]) else stated
    stated = re.sub(r"[<>!]=", lambda sign: {"<=": "≤", ">=": "≥", "!=": "≠"}[sign.group()], stated)
    if _SEVERAL.search(stated) or _LISTED.search(stated):
        return quantity(stated)
    _, sign, tail = stated.rpartition("=") if "=" in stated else stated.rpartition("≈")
    if (found := quantity(tail if sign else stated)) is not None:
        return found
    text = tail if sign and NUMBER.search(tail) else stated
    numbers = list(NUMBER.finditer(text))
    named = [number for number in numbers if not DENIED.search(text[max(0, number.start() - 60) : number.start()])]
    if not named:
        return None
    starts = not re.search(r"[A-Za-z≠<>≤≥]", text[: numbers[0].start()])
    return quantity_at(text, named[0] if starts else named[-1])


_SEVERAL = re.compile(
    rf"{NUMBER.pattern}[^.\n]{{0,80}}?(?:\bor\b|\beither\b|\balternatively\b|\botherwise\b|\bmaybe\b|\bperhaps\b|\bpossibly\b"
    rf"|\b(?:could|might|may)\b|\bund?\b|\boder\b|\bou\b|或|或者)[^\n]{{0,80}}?{NUMBER.pattern}",
    re.IGNORECASE,
)
_LISTED = re.compile(
    rf"^[^A-Za-z\d]*{NUMBER.pattern}(?:\s*[,;|&]\s*(?:and\s+)?|\s+(?:and|to)\s+|\s+|\s?-\s?){NUMBER.pattern}(?![\d.]|\s?[A-Za-z(*+/=^])"
    rf"|\bbetween\b[^.\n]{{0,40}}?{NUMBER.pattern}[^.\n]{{0,40}}?\band\b[^.\n]{{0,40}}?{NUMBER.pattern}"
)


def names_several(stated: str) -> bool:
    """Whether a statement offers several numbers."""
    return bool(_SEVERAL.search(stated) or _LISTED.search(stated)) and quantity(stated) is None


def words(text: str) -> str:
    """Normalize a text for comparison: drop case, quotes, articles, final punctuation and spaces around signs."""
    text = re.sub(r"(?<=\b[A-Za-z])\.(?=[A-Za-z]\b|\s|$)", "", " ".join(text.casefold().split()))
    text = text.strip(" \t\"'“”‘’«».,;:!?*")
    text = re.sub(r"^(?:the|a|an)\s+", "", text)
    text = re.sub(r"(?<!\w)\((\w+)\)", r"\1", text)
    text = re.sub(r"\s*\*\s*", "", text)
    return re.sub(r"\s*([,;:()\[\]{}=+/^<>-])\s*|(?<=\d)\s+(?=[a-z])", r"\1", text)


def _unnamed(text: str) -> str:
    """`x = 5` is 5, and `x in [0, 1]` is the interval."""
    return re.sub(r"^[A-Za-z]\w{0,2}(?:\(\w\))?\s?=\s?|^[A-Za-z] (?:in|∈) ?(?=[\[({])", "", text)


def _name(text: str) -> str:
    """`x` of `x = 5`."""
    found = re.match(r"^([A-Za-z]\w{0,2})\s?=", text.strip())
    return found[1] if found else ""


class _Parts(NamedTuple):
    brackets: str
    items: tuple[str, ...]


def _parts(text: str) -> _Parts | None:
    """Return the elements of a tuple, list, interval, set, or of a bare row of numbers or letters; None for other texts."""
    text = (
        _unnamed(text.strip().rstrip("."))
        if re.match(r"^[A-Za-z] ?(?:in|∈)\b", text.strip())
        else text.strip().rstrip(".")
    )
    brackets = ""
    if len(text) > 2 and text[0] in "([{" and text[-1] in ")]}":
        brackets, inner = text[0] + text[-1], text[1:-1]
    else:
        inner = text
    items = _split(inner)
    if len(items) < 2 and brackets != "{}":
        return None
    if not brackets and not all(quantity(_unnamed(item)) or re.fullmatch(r"[A-Za-z]", item) for item in items):
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
_BOTH = re.compile(
    r"^\w+\W+(?:and|but|or|as well as)\s+(?:also\s+)?(?:yes|no|true|false)\b|\bor\b|^\w+\s*/\s*\w+|^\w+\s*\?"
)
_ASIDE = re.compile(
    r"\s*(?:\(|,?\s+(?:because|since|as|which|where|who|that)\b|,\s+(?:the|a|an|so|i\.e)\b|\s[-–—]\s|;)"
)
_BECAUSE = re.compile(r"(?:,|\s)\s?(?:because|since|as|due to|given that|while|whereas)\s|\s-\s", re.IGNORECASE)
_CHOICE = re.compile(
    r"(?<![\w'-])(?:(?P<open>[(\[])\s?)?(?P<letter>[A-Za-z])(?(open)\s?[)\]]|(?P<mark>[).:](?=\s|$)|(?![\w'-])))"
)
_NAMED = re.compile(
    r"\b(?:option|choice|answer|choose|chose|pick|select|go with|correct is)\s*(?:is\s*|:\s*)?$", re.IGNORECASE
)
_STRUCK = re.compile(
    r"(?:\bnot|n't|\bnor|\bneither|\bnever|\beliminat\w*|\brul(?:e|ed|ing) out"
    r"|\bexclud\w*|\bexcept|\brather than|\binstead of|\bunlike|\bthan)"
    r"(?:\s+(?:be|the|option|choice|answer|both|either)){0,3}[\s(]*(?:[A-Z][)]?(?:,\s*(?:and\s+|or\s+|nor\s+)?|\s+(?:and|or|nor)\s+)\(?){0,4}$"
)
_STRUCK_AFTER = re.compile(
    r"(?:(?:,|,?\s+(?:and|or|nor))\s*\(?[A-Z]\)?(?![A-Za-z])){0,4}\s*(?:\w+\s+)?(?:(?:is|are|was|were)\s+(?:\w+ly\s+)?(?:wrong|incorrect|false|not\b|out\b|impossible|invalid|eliminated"
    r"|excluded|ruled out)"
    r"|(?:is|are|was|were|does|do|can|could)n't\b|(?:does|do|can|could)\s+not\b|cannot\b)",
    re.IGNORECASE,
)


def _same_words(expected: str, stated: str) -> bool:
    """Compare by words, choices by their letter; an aside after the answer is ignored."""
    left = words(expected)
    if re.fullmatch(r"[a-z]", left):
        return chosen_letter(stated) == left
    head = words(_ASIDE.split(stated, maxsplit=1)[0])
    right = words(stated)
    if left in _TRUTHS:
        first = re.match(r"[a-z]+", right)
        return first is not None and _TRUTHS.get(first.group()) is _TRUTHS[left] and not _BOTH.search(right)
    return left == head or words(_unnamed(stated)) == left


def chosen_letter(stated: str) -> str | None:
    """Return the chosen letter in lower case, ignoring rejected ones; None if there is none or several."""
    text = _BECAUSE.split(stated.strip(" *\"'.!")[:_MOST_OF_CHOICE], maxsplit=1)[0]
    found: list[tuple[str, bool]] = []
    for letter in _CHOICE.finditer(text):
        before, after = text[max(0, letter.start() - 60) : letter.start()], text[letter.end() : letter.end() + 40]
        named = bool(_NAMED.search(before))
        alone = not before.strip() and not after.strip(" .")
        marked = letter["open"] or letter["mark"] or named
        is_word = re.match(r"\s+(?!(?:and|or|is|was|are|so)\b)\w", after)  # an article, or the speaker
        if letter["letter"] in "aAI" and not marked and is_word:
            continue
        if letter["letter"].islower() and not (marked or alone):
            continue
        if not _STRUCK.search(before) and not _STRUCK_AFTER.match(after):
            found.append((letter["letter"].lower(), named))
    letters = {letter for letter, _ in found}
    if len(letters) > 1:
        letters = {found[-1][0]} if found[-1][1] and [named for _, named in found].count(True) == 1 else set()
    return next(iter(letters), None)


_MOST_OF_CHOICE = 400
