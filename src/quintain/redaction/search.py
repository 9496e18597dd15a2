"""Search for the literals of all rules, in one text or in all texts of a run at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, count
from operator import add
from typing import TYPE_CHECKING

from quintain.records.imports import BOTH_LEVELS, RedactionLevel
from quintain.redaction.contact_details import contact_rules, phone_rules, private_address_rules
from quintain.redaction.credentials import credential_rules, credential_shapes
from quintain.redaction.national_ids import national_id_rules
from quintain.redaction.payment_numbers import payment_rules
from quintain.redaction.private_keys import private_key_rules
from quintain.redaction.secrets import Reader, Rule, Span, token_rules
from quintain.redaction.shapes import ShapeRule, rules_that_fit, shape_spans

if TYPE_CHECKING:
    from ahocorasick_rs import AhoCorasick

_BLOCK = 65_536
"""Number of characters searched at once; bounds the list of hits in a hostile text."""
_GROUP = 2**20
"""Characters of texts that are joined for one search."""
_LONGEST = 64
"""Upper bound of the length of a literal."""
_SEPARATOR_CHARACTER = "\0"
"""Separates texts that are searched together. Literals do not contain it, so matches never span two texts."""


@dataclass(frozen=True)
class _Search:
    """All literals and their rules."""

    literals: AhoCorasick
    readers: tuple[tuple[Reader, ...], ...]
    """By literal: first the rules for specific tokens, then those for any secret."""
    initials: tuple[str, ...]
    """By literal: possible first characters as written; empty for either case."""

    def hits(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the number and the position of every literal in a text."""
        for start in range(0, len(text), _BLOCK):
            block = _lowered(text[start : start + _BLOCK + _LONGEST])
            for literal, begin, _ in self.literals.find_matches_as_indexes(block, overlapping=True):
                initials = self.initials[literal]
                if begin < _BLOCK and (not initials or text[start + begin] in initials):
                    yield literal, start + begin

    def spans(self, text: str) -> list[Span]:
        """Return the spans found by the rules, in the order of the literals."""
        found: list[Span] = []
        read_to: dict[Reader, int] = {}
        for literal, begin in self.hits(text):
            for read in self.readers[literal]:
                # A rule skips its own earlier spans, so that a text of repeated literals takes linear time.
                if begin >= read_to.get(read, 0) and (span := read(text, begin)):
                    read_to[read] = span.end
                    found.append(span)
        return found

    def matching_texts(self, texts: Sequence[str], joined: str) -> set[int]:
        """Return the indices of the texts in which a rule finds a span."""
        starts = [0, *map(add, accumulate(map(len, texts)), count(1))]
        found: set[int] = set()
        for literal, begin in self.hits(joined):
            number = bisect_right(starts, begin) - 1
            for read in self.readers[literal]:
                if number not in found and read(texts[number], begin - starts[number]):
                    found.add(number)
        return found


Levels = frozenset[RedactionLevel]
_BOTH: Levels = frozenset(BOTH_LEVELS)


@cache
def _search(levels: Levels) -> _Search:
    # Imported at the first redaction, because the import takes 0.15 s.
    from ahocorasick_rs import AhoCorasick, Implementation

    chosen: list[Rule] = []
    if "secrets" in levels:
        chosen += [*private_key_rules(), *token_rules(), *credential_rules()]
    if "personal" in levels:
        chosen += [*contact_rules(), *private_address_rules()]
    rules: dict[str, list[Rule]] = {}
    for rule in chosen:
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


@cache
def _shapes(levels: Levels) -> tuple[ShapeRule, ...]:
    of_secrets = credential_shapes() if "secrets" in levels else []
    personal = [*payment_rules(), *phone_rules(), *national_id_rules()] if "personal" in levels else []
    return (*of_secrets, *personal)


def spans_of(text: str, levels: Levels = _BOTH) -> list[Span]:
    """Return all spans to redact; rules for specific tokens come before those for any secret."""
    return [*_search(levels).spans(text), *shape_spans(text, _shapes(levels))]


def texts_with_spans(texts: Sequence[str], levels: Levels = _BOTH) -> frozenset[str]:
    """Return the texts in which `spans_of` finds a span, by common searches over about a million characters each."""
    found: set[str] = set()
    for group in _groups(texts):
        joined = _SEPARATOR_CHARACTER.join(group)
        found.update(group[n] for n in _search(levels).matching_texts(group, joined))
        if fit := rules_that_fit(joined, _shapes(levels)):
            found.update(text for text in group if text not in found and any(shape_spans(text, fit)))
    return frozenset(found)


def _groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield consecutive texts, so that their join and its hits stay small beside them."""
    begin, size = 0, 0
    for end, text in enumerate(texts, 1):
        size += len(text)
        if size >= _GROUP:
            yield texts[begin:end]
            begin, size = end, 0
    if begin < len(texts):
        yield texts[begin:]


def _lowered(text: str) -> str:
    low = text.lower()
    # `İ` becomes two characters, which would shift all later positions.
    return low if len(low) == len(text) else "".join(c if len(c.lower()) != 1 else c.lower() for c in text)
