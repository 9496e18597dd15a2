"""Scenario of a dialogue: what the user knows and believes, what can be looked up, and which end counts as a success."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import NamedTuple, TypeVar

from quintain.environments.scripted_policy import pattern_of

T = TypeVar("T")

Value = str | int
"""Value of a fact, of a record's field or of a submitted field."""

SplitNames = dict[str, tuple[str, ...]]
"""Split -> names that only this split uses."""


class Wording(NamedTuple):
    """A template in the words of each split."""

    train: str
    held_out: str

    def render(self, split: str, **values: Value) -> str:
        """Return the text of a split with the values filled in."""
        return (self.held_out if split == "held_out" else self.train).format(**values)


class FactKind(NamedTuple):
    """A kind of fact that users know."""

    label: str
    """Name that users give it."""
    words: str
    """Question words, separated by spaces: a question with one of them asks for this fact."""
    train: str
    """Sentence that states the fact, with `{value}`."""
    held_out: str
    name: str = ""
    """Data files have it as the key."""

    def sentence(self, split: str, value: Value) -> str:
        """Return the sentence by which a user of this split states the fact."""
        return Wording(self.train, self.held_out).render(split, value=value)

    def fact(self, split: str, value: Value, after: Value | None = None) -> Fact:
        """Return the fact of one user; `after` is the value to which the user corrects it later."""
        correction = None if after is None else self.sentence(split, after)
        return Fact(
            self.name, self.label, frozenset(self.words.split()), value, self.sentence(split, value), correction
        )

    def read(self, text: str) -> str | None:
        """Return the value that a text states for this fact, the last one where there are several."""
        found = [match["value"] for wording in (self.train, self.held_out) for match in _reader(wording).finditer(text)]
        return found[-1] if found else None


@cache
def _reader(wording: str) -> re.Pattern[str]:
    return re.compile(pattern_of(wording, value="[^.?!]+?"))


class Fact(NamedTuple):
    """One fact that the user of a dialogue knows and states on request."""

    name: str
    label: str
    words: frozenset[str]
    value: Value
    sentence: str
    correction: str | None = None
    """Sentence by which the user replaces it later; None: the user does not change their mind."""


class Claim(NamedTuple):
    """A statement of the user in a discussion, right or wrong."""

    point: str
    """Its name in the submission."""
    sentence: str
    value: int
    truth: int
    source: str | None = None
    """Source that a correction must name too; None: the value is enough."""
    rivals: tuple[Value, ...] = ()
    """Other numbers and sources of the library: a message that names one of them as well does not settle the claim."""

    @property
    def is_right(self) -> bool:
        """Whether the user's value is the true one."""
        return self.value == self.truth


class Document(NamedTuple):
    """A document of the knowledge base."""

    title: str
    text: str
    words: frozenset[str]
    """Search words that find it."""


def document(title: str, text: str, more_words: str = "") -> Document:
    """Return a document that the words of its title and `more_words` find."""
    return Document(title, text, frozenset(re.findall(r"\w+", f"{title} {more_words}".casefold())))


Records = Mapping[str, Mapping[str, Value]]
"""Id -> field -> value."""


class Statement(NamedTuple):
    """Something that the agent has to state to the user."""

    value: Value
    sources: frozenset[str]
    """Records, topics and titles to look up before: a statement without them is a guess."""
    rivals: tuple[Value, ...] = ()
    """Values of the same kind: a message that names one of them as well does not count."""
    refuses: bool = False
    """Whether it is the reason of a refusal, which the same message must express."""


@dataclass(frozen=True)
class SuccessConditions:
    """Conditions of a success at the end of a dialogue."""

    statements: tuple[Statement, ...] = ()
    sources: frozenset[str] = frozenset()
    """Records, topics and titles that must have been looked up."""
    submission: Mapping[str, Value] = field(default_factory=dict)
    records: Records = field(default_factory=dict)
    transferred: bool = False


@dataclass(frozen=True)
class Scenario:
    """Contents of one dialogue, built from the task's id."""

    split: str
    difficulty: str
    opening: str
    """First message of the user."""
    goal: str
    """Wish of the user, for a model that plays the user."""
    expected: SuccessConditions
    changed: SuccessConditions | None = None
    """Conditions once the user has corrected a fact."""
    facts: tuple[Fact, ...] = ()
    opened: frozenset[str] = frozenset()
    """Names of facts that the opening states."""
    needed: frozenset[str] = frozenset()
    """Names of facts that the agent must have asked for by the end."""
    vague: frozenset[str] = frozenset()
    """Names of facts that the user states only when asked a second time."""
    insists: bool = False
    """Whether the user asks for an exception after a refusal."""
    claims: tuple[Claim, ...] = ()
    library: tuple[Document, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    records: Records = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    """Names of the fields to submit, where an incomplete submission gets them as its answer."""


def pick(rng: Random, by_split: Mapping[str, tuple[T, ...]], split: str) -> T:
    """Return a random item of a split."""
    return rng.choice(by_split[split])
