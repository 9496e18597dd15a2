"""What a talk is about: what the user knows and believes, what can be looked up, and what must hold at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import NamedTuple, TypeVar

T = TypeVar("T")

Value = str | int
"""Of a fact, a field of a record, or a field that is handed in."""

PATIENCE = {"easy": 6, "medium": 5, "hard": 4}
"""Difficulty -> messages that lead to nothing, after which the user leaves."""


class FactKind(NamedTuple):
    """Something that users know, in the words of each split."""

    name: str
    label: str
    """What a user calls it."""
    words: str
    """Who asks for one of these words asks for it."""
    train: str
    """How a user says it, with `{value}`."""
    held_out: str

    def says(self, split: str, value: Value) -> str:
        """The sentence by which a user of this split tells it."""
        return (self.held_out if split == "held_out" else self.train).format(value=value)

    def fact(self, split: str, value: Value, after: Value | None = None) -> Fact:
        """What one user knows; `after` is what they say later that it is."""
        later = None if after is None else self.says(split, after)
        return Fact(self.name, self.label, frozenset(self.words.split()), value, self.says(split, value), later)

    def read(self, text: str) -> str | None:
        """The value in a text that says this fact; of several the last."""
        found = [match[1] for wording in (self.train, self.held_out) for match in _reader(wording).finditer(text)]
        return found[-1] if found else None


@cache
def _reader(wording: str) -> re.Pattern[str]:
    before, _, behind = wording.partition("{value}")
    return re.compile(f"{re.escape(before)}([^.?!]+?){re.escape(behind)}")


class Fact(NamedTuple):
    """One thing that the user of a talk knows, and tells who asks for it."""

    name: str
    label: str
    words: frozenset[str]
    value: Value
    says: str
    corrected: str | None = None
    """What the user says later in its place; None: they stay with it."""


class Claim(NamedTuple):
    """Something that the user says in a discussion, right or wrong."""

    point: str
    """What it is about, as it is handed in."""
    says: str
    value: int
    truth: int
    source: str | None = None
    """Who corrects it must name this too; None: the value is enough."""
    rivals: tuple[Value, ...] = ()
    """Other numbers and sources of the library: a message that names one of them as well says nothing about the claim."""

    @property
    def is_right(self) -> bool:
        """Is it true?"""
        return self.value == self.truth


class Document(NamedTuple):
    """Something that can be looked up."""

    title: str
    text: str
    words: frozenset[str]
    """What it is found by."""


def document(title: str, text: str, also: str = "") -> Document:
    """A document, found by the words of its title and by others."""
    return Document(title, text, frozenset(re.findall(r"\w+", f"{title} {also}".casefold())))


Records = Mapping[str, Mapping[str, Value]]
"""Id -> field -> value."""


class Due(NamedTuple):
    """Something that the agent has to say to the user."""

    value: Value
    sources: frozenset[str]
    """Records, topics and titles that must have been looked up before: who has not seen it guesses."""
    rivals: tuple[Value, ...] = ()
    """Values of the same kind: a message that names one of them as well tells nothing."""
    refuses: bool = False
    """Is it the reason of a refusal, that has to be said with it?"""


@dataclass(frozen=True)
class Expected:
    """What must hold at the end."""

    told: tuple[Due, ...] = ()
    """What the agent has to say to the user."""
    sources: frozenset[str] = frozenset()
    """Records, topics and titles that must have been looked up."""
    handed_in: Mapping[str, Value] = field(default_factory=dict)
    records: Records = field(default_factory=dict)
    transferred: bool = False


@dataclass(frozen=True)
class Scenario:
    """What a task's id stands for."""

    split: str
    difficulty: str
    opening: str
    """What the user says first."""
    goal: str
    """What the user is after, told to a model that plays them."""
    expected: Expected
    changed: Expected | None = None
    """What is expected once the user has corrected themselves."""
    facts: tuple[Fact, ...] = ()
    opened: frozenset[str] = frozenset()
    """Facts that the opening tells."""
    needed: frozenset[str] = frozenset()
    """Facts that must be known before the end."""
    vague: frozenset[str] = frozenset()
    """Facts that the user tells when asked a second time."""
    insists: bool = False
    """Does the user ask for an exception once they hear that there is nothing to be done?"""
    claims: tuple[Claim, ...] = ()
    library: tuple[Document, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    records: Records = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    """Names of what is handed in, where they are told to who forgets one."""


def pick(rng: Random, dealt: Mapping[str, tuple[T, ...]], split: str) -> T:
    """One of the things of a split."""
    return rng.choice(dealt[split])
