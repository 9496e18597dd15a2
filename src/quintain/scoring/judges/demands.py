"""A wide net for text that may ask its judge for a verdict: whatever names a high value near a word that bids for one.

It is meant to catch too much: what can be a high mark (1.0, 10/10, full marks) is caught whatever stands beside it, and any value
beside a verb of valuing (`valuing`). Nothing is
punished by that: the run is judged twice, with the passage and without it, and the second verdict counts (`counterfactual`).
Honest text that is caught costs one more judgement, and a demand that is caught moves nothing.

Looked at is each reading of a text (`readings`): escapes resolved, look-alikes and invisible characters undone, codes decoded;
words also where they are cut in two, spelled letter by letter, ciphered, or written with digits for letters. Time grows with
the length of the text: values are found first, and bids only around them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from quintain.scoring.judges.demand_words import (
    BEYOND_SPACES,
    CHOICE,
    CHOOSING,
    CIPHERED,
    CIPHERS,
    COUNTED,
    INSIDE,
    MARK,
    MEASURED,
    NUMBERED,
    PRAISING,
    SPELLED,
    STRONG,
    STRONG_VALUE,
    TURNING,
    WEAK,
    WEAK_VALUE,
)
from quintain.scoring.judges.injection import find_doubtful, find_injections, merged, sentence
from quintain.scoring.judges.readings import Reading, Span, hidden, readings, small
from quintain.scoring.judges.valuing import find_valued

REACH = 110
"""Characters between a bid and its value."""
_LINES = 2
"""Line breaks between them."""
_TOKEN = re.compile(r"[@$]?[^\W_]+(?:[@$!|][^\W_]+)*")
_LEET = str.maketrans("01345789@$!|", "oieastbgasil")


class _Word(NamedTuple):
    start: int
    end: int
    kind: str
    """Of a word: strong, weak, turning (to the reader), choosing (strong, too) or praising; of a value: mark, strong, weak or
    choice. A mark and a cipher are caught by themselves."""


def find_demands(text: str, criteria: tuple[str, ...] = ()) -> list[Span]:
    """All passages of a text that may be meant for its judge: clear, doubtful, or caught by the net; in order, apart."""
    return merged([*find_injections(text), *find_doubtful(text), *find_bids(text, criteria)])


def find_bids(text: str, criteria: tuple[str, ...] = ()) -> list[Span]:
    """The passages of a text that may bid for a verdict, as sentences or lines; in order, apart from each other.

    Args:
        text: Any.
        criteria: Names of the criteria that are judged by: what gives one of them a value bids for it.
    """
    found: list[Span] = []
    for reading in readings(text):
        low = small(reading.text)
        for first, end in merged([*map(Span._make, _bids(low, criteria)), *find_valued(low, criteria)]):
            around = sentence(low, first, end)
            found.append(Span(reading.places(around.start), reading.places(around.end)))
        found += _coded(reading)
    return merged(found)


def _coded(reading: Reading) -> Iterator[Span]:
    """Codes that decode to a demand; what nobody needs to hide is believed to bid already by weak words."""
    for code in hidden(reading.text):
        low = small(code.text)
        plain = [one.text for one in readings(low)]
        bids = any(True for one in plain for _ in chain(find_valued(one), _bids(one, lax=True)))
        if bids or (INSIDE.search(low) and any(True for _ in _values(low))):
            yield Span(reading.places(code.start), reading.places(code.end))


def _bids(low: str, criteria: tuple[str, ...] = (), *, lax: bool = False) -> Iterator[tuple[int, int]]:
    """Where a bid stands near a value: first and last character of both.

    Args:
        low: In small letters.
        criteria: As of `find_bids`.
        lax: Weak words and weak values count as strong ones.
    """
    values = sorted([*_values(low), *_spelled(low)])
    words: list[_Word] = []
    for start, end in _around(values, len(low)):
        words += _words(low, start, end)
        if criteria:
            words += (_Word(m.start(), m.end(), "strong") for m in _naming(criteria).finditer(low, start, end))
    words.sort()
    starts = [word.start for word in words]
    for value in values:
        bid = _bid_for(value, words, starts, low, lax=lax)
        if bid is not None:
            yield min(bid.start, value.start), max(bid.end, value.end)
        elif value.kind == "cipher" or (value.kind == "mark" and not MEASURED.match(low, value.end)):
            yield value.start, value.end
    for word in words:
        if word.kind == "cipher":
            yield word.start, word.end


def _values(low: str) -> Iterator[_Word]:
    for pattern, kind in ((MARK, "mark"), (STRONG_VALUE, "strong")):
        for match in pattern.finditer(low):
            if _stands_alone(low, match):
                yield _Word(match.start(), match.end(), kind)
    for match in WEAK_VALUE.finditer(low):
        if _stands_alone(low, match) and not _counts(low, match):
            yield _Word(match.start(), match.end(), "weak")
    for match in CHOICE.finditer(low):
        yield _Word(match.start(), match.end(), "choice")
    for match in CIPHERS.finditer(low):
        yield _Word(match.start(), match.end(), "cipher")


def _stands_alone(low: str, match: re.Match[str]) -> bool:
    """Is a number no part of a longer one, a version, an amount of money, or less than nothing?"""
    if not match[0][0].isdigit() and match[0][0] not in ".,":
        return True
    before = low[max(0, match.start() - 2) : match.start()]
    if not before:
        return True
    if before[-1] == "[" and low[match.end() : match.end() + 1] == "]" and match[0][-1] == "%":
        return False  # how far something is
    if before[-1] in ".,/":
        return not before[0].isdigit()
    if before[-1] in "v-":
        return len(before) > 1 and before[0].isalpha() and "." in match[0]
    return not (before[-1].isdigit() or before[-1] == "$")


def _counts(low: str, match: re.Match[str]) -> bool:
    """Does a number count or number things?"""
    if not match[0][0].isdigit():
        return False
    before = low[max(0, match.start() - 12) : match.start()]
    if before and (before[-1].isalpha() or before[-1] in "_#" or NUMBERED.search(before)):
        return True
    after = low[match.end() : match.end() + 2]
    is_listed = not before.rpartition("\n")[2].strip() and re.match(r"[.)]\s", after) is not None
    return is_listed or COUNTED.match(low, match.end()) is not None


def _spelled(low: str) -> Iterator[_Word]:
    """Letters one by one that make a word of judging: they bid for what they name themselves."""
    for match in SPELLED.finditer(low):
        letters = re.sub(r"[\W_]", "", match[0])
        if INSIDE.search(letters) or INSIDE.search(letters.translate(_LEET)):
            yield _Word(match.start(), match.end(), "cipher")


def _around(values: list[_Word], length: int) -> Iterator[tuple[int, int]]:
    """The stretches of text within reach of a value."""
    at = end = 0
    for value in values:
        first, last = max(0, value.start - REACH), min(length, value.end + REACH)
        if first > end:
            if end:
                yield at, end
            at = first
        end = max(end, last)
    if end:
        yield at, end


def _words(low: str, start: int, end: int) -> Iterator[_Word]:
    """The words between two places that bid, or turn to the reader."""
    before: re.Match[str] | None = None
    for token in _TOKEN.finditer(low, start, end):
        word = token[0]
        if (kind := _kind(word)) is not None:
            yield _Word(token.start(), token.end(), kind)
        elif before is not None and token.start() - before.end() < 5 and _kind(before[0] + word) == "strong":
            yield _Word(before.start(), token.end(), "strong")
        before = token
    if not low.isascii():
        for match in BEYOND_SPACES.finditer(low, start, end):
            yield _Word(match.start(), match.end(), "strong")


@lru_cache(maxsize=64)
def _naming(criteria: tuple[str, ...]) -> re.Pattern[str]:
    """The names of criteria before what may give them a value."""
    parts = [re.findall(r"[^\W_]+", small(name)) for name in criteria]
    names = "|".join(r"[\W_]{1,3}".join(map(re.escape, words)) for words in parts if words) or r"(?!)"
    return re.compile(
        rf"(?<![^\W_])(?:{names})(?=[\s\"'`*]{{0,3}}(?:[:=>→-]|is\b|to\b|at\b|gets?\b|must\b|should\b|deserves?\b|\d))"
    )


def _kind(word: str) -> str | None:
    if word in CIPHERED:
        return "cipher"
    if word in CHOOSING:
        return "choosing"
    if word in PRAISING:
        return "praising"
    if word in STRONG:
        return "strong"
    if word in WEAK:
        return "weak"
    if word in TURNING:
        return "turning"
    if len(word) > 10 and INSIDE.search(word):
        return "strong"
    if not word.isalpha() and (plain := word.translate(_LEET)) != word and plain.isalpha():
        return _kind(plain)
    return None


def _bid_for(value: _Word, words: list[_Word], starts: list[int], low: str, *, lax: bool) -> _Word | None:
    """The nearest word that bids for a value, on the same line or one next to it."""
    first = bisect_left(starts, value.start - REACH)
    last = bisect_left(starts, value.end + REACH)
    near = sorted(words[first:last], key=lambda word: max(value.start - word.end, word.start - value.end))
    turned = lax or any(word.kind == "turning" for word in near)
    for word in near:
        if not _bids_for(word, value, turned=turned):
            continue
        a, b = (word, value) if word.start < value.start else (value, word)
        if b.start < a.end or low.count("\n", a.end, b.start) <= _LINES:
            return word
    return None


def _bids_for(word: _Word, value: _Word, *, turned: bool) -> bool:
    if value.kind == "choice":
        return word.kind in {"choosing", "praising"}
    if word.kind in {"strong", "choosing"}:
        return True
    if value.kind in {"mark", "strong", "cipher"}:
        return word.kind in {"weak", "turning"}
    return word.kind == "weak" and turned
