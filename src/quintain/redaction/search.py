"""Where redaction finds something: one search for the literals of all rules, in one text or in all texts of a run together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, count
from operator import add
from typing import TYPE_CHECKING

from quintain.redaction.credentials import credential_rules
from quintain.redaction.personal import (
    OptionalKind,
    holds_number,
    number_spans,
    personal_rules,
    spans_on_request,
)
from quintain.redaction.secrets import Reader, Rule, Span, token_rules

if TYPE_CHECKING:
    from ahocorasick_rs import AhoCorasick

_BLOCK = 65_536
"""Characters searched at once, so that a hostile text cannot make the list of hits large."""
_LONGEST = 64
"""Characters of the longest literal, and more."""
_BORDER = "\0"
"""Stands between texts that are searched together; no literal holds it, so none is found across a border."""


@dataclass(frozen=True)
class _Search:
    """All literals, and whose they are."""

    literals: AhoCorasick
    readers: tuple[tuple[Reader, ...], ...]
    """By number of the literal, rules for certain kinds of token before those for any secret."""
    initials: tuple[str, ...]
    """By number of the literal: how it may begin, as written; empty: in either case."""

    def hits(self, text: str) -> Iterator[tuple[int, int]]:
        """Every place where a literal begins: its number and the place."""
        for start in range(0, len(text), _BLOCK):
            block = _lowered(text[start : start + _BLOCK + _LONGEST])
            for literal, begin, _ in self.literals.find_matches_as_indexes(block, overlapping=True):
                initials = self.initials[literal]
                if begin < _BLOCK and (not initials or text[start + begin] in initials):
                    yield literal, start + begin

    def spans(self, text: str) -> list[Span]:
        """What the rules find, in the order of the literals."""
        found: list[Span] = []
        read_to: dict[Reader, int] = {}
        for literal, begin in self.hits(text):
            for read in self.readers[literal]:
                # What a rule has found it does not read again: a text of one literal after the other stays linear.
                if begin >= read_to.get(read, 0) and (span := read(text, begin)):
                    read_to[read] = span.end
                    found.append(span)
        return found

    def holders(self, texts: Sequence[str], joined: str) -> set[int]:
        """Numbers of the texts in which a rule finds something."""
        starts = [0, *map(add, accumulate(map(len, texts)), count(1))]
        found: set[int] = set()
        for literal, begin in self.hits(joined):
            number = bisect_right(starts, begin) - 1
            for read in self.readers[literal]:
                if number not in found and read(texts[number], begin - starts[number]):
                    found.add(number)
        return found


@cache
def _search() -> _Search:
    # Loaded when something is redacted for the first time: together 0.15 s.
    from ahocorasick_rs import AhoCorasick, Implementation

    rules: dict[str, list[Rule]] = {}
    for rule in (*token_rules(), *credential_rules(), *personal_rules()):
        for literal in rule.literals:
            rules.setdefault(literal, []).append(rule)
    return _Search(
        AhoCorasick(list(rules), implementation=Implementation.DFA),
        tuple(tuple(rule.read for rule in those) for those in rules.values()),
        tuple(
            "".join(rule.initials for rule in those) if all(rule.initials for rule in those) else ""
            for those in rules.values()
        ),
    )


def may_hold(text: str) -> bool:
    """Is there a place in this text that a rule has to look at?"""
    return holds_number(text) or any(True for _ in _search().hits(text))


def spans_of(text: str, also: frozenset[OptionalKind]) -> list[Span]:
    """All that has to go from a text; rules for certain kinds of token come before those for any secret."""
    found = _search().spans(text)
    if holds_number(text):
        found += number_spans(text)
    if also:
        found += spans_on_request(text, also)
    return found


def side_by_side(texts: Sequence[str]) -> str:
    """The texts as one, as `suspects` takes them."""
    return _BORDER.join(texts)


def suspects(texts: Sequence[str], joined: str) -> frozenset[str]:
    """Those of the texts in which `spans_of` finds something.

    One search over all of them (`side_by_side`) costs little more than a single text does, and most runs hold many short ones.
    """
    found = _search().holders(texts, joined)
    if holds_number(joined):
        found.update(n for n, text in enumerate(texts) if holds_number(text) and any(number_spans(text)))
    return frozenset(texts[n] for n in found)


def _lowered(text: str) -> str:
    low = text.lower()
    # `İ` becomes two characters, and every place after it would be wrong.
    return low if len(low) == len(text) else "".join(c if len(c.lower()) != 1 else c.lower() for c in text)
