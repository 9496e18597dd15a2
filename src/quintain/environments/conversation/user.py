"""The user of a dialogue: the protocol of all users, and the scripted one, which follows rules and needs no model.

The scripted user answers what the agent asks and nothing else. A correction comes later than the fact that it replaces, and the
claims of a discussion come one after the other. Messages without progress cost patience; a user without patience leaves. The same
scenario and the same messages give the same answers.

It reads a message by word lists (`data/message_words.yaml`), which are part of the environment's definition. A sentence asks for its
words if it ends with a question mark, begins with a word such as `which`, contains one such as `please` or `tell`, or states what is
needed of `your` things. The time grows linearly with the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple, Protocol

from pydantic.dataclasses import dataclass

from quintain.environments.conversation.scenario import Claim, Fact, Scenario
from quintain.environments.data_files import read_data

_SENTENCE = re.compile(r"[^.?!\n]+[.?!]*")
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))", re.ASCII)
_NUMBER = re.compile(r"(?<![\w.-])\d{1,12}(?:\.\d{1,6})?", re.ASCII)

MOST_NUMBERS = 6
"""A message with more numbers names none of them: an agent could otherwise list every possible answer."""


@dataclass(frozen=True)
class WordLists:
    """Words by which scripted users understand a message."""

    asking: frozenset[str]
    question_openers: frozenset[str]
    disagreeing: frozenset[str]
    agreeing: frozenset[str]
    refusing: frozenset[str]
    recommending: frozenset[str]
    ending: re.Pattern[str]
    """Matches closing phrases."""


@cache
def word_lists() -> WordLists:
    """Return the words by which scripted users understand a message."""
    return read_data("conversation/data/message_words.yaml", WordLists)


class ParsedMessage(NamedTuple):
    """A message as a scripted user understands it."""

    text: str
    """In lower case, with single spaces."""
    words: frozenset[str]
    asked: frozenset[str]
    """Words of the sentences that ask."""
    recommended: str
    """Sentences that recommend without a contradiction."""
    numbers: frozenset[float]
    is_flood: bool
    """Whether it names more than `MOST_NUMBERS` numbers."""
    ends: bool
    """Whether it closes the dialogue: a goodbye, or the question whether there is anything else."""

    @property
    def disagrees(self) -> bool:
        """Whether it contradicts."""
        return _contradicts(self.words)

    @property
    def refuses(self) -> bool:
        """Whether it states that something cannot be done."""
        return self.disagrees or not word_lists().refusing.isdisjoint(self.words)

    @property
    def agrees(self) -> bool:
        """Whether it agrees without a contradiction."""
        return not word_lists().agreeing.isdisjoint(self.words) and not self.disagrees

    def names(self, value: str | int | float) -> bool:
        """Whether it contains this value: a number by value, a text as whole words in any case."""
        if isinstance(value, int | float):
            return float(value) in self.numbers
        return _contains_words(self.text, " ".join(value.casefold().split()))

    def names_only(self, value: str | int, rivals: Iterable[str | int]) -> bool:
        """Whether it contains this value and none of its rivals; if it recommends, only in sentences that recommend."""
        stated = self._replace(text=self.recommended) if self.recommended else self
        return stated.names(value) and not any(map(stated.names, rivals))


def _contradicts(words: Iterable[str]) -> bool:
    disagreeing = word_lists().disagreeing
    return any(word in disagreeing or word.endswith("n't") for word in words)


def _asks(sentence: str, words: list[str]) -> bool:
    lists = word_lists()
    return (
        sentence.endswith("?")
        or words[0] in lists.question_openers
        or not lists.asking.isdisjoint(words)
        or ("need" in words and "your" in words)
    )


def _contains_words(text: str, value: str) -> bool:
    """Whether a text contains the value, but not as a part of longer words; faster than a pattern for each value."""
    place = text.find(value) if value else -1
    while place >= 0:
        end = place + len(value)
        if not (text[place - 1 : place].isalnum() or text[end : end + 1].isalnum()):
            return True
        place = text.find(value, place + 1)
    return False


def numbers_in(text: str) -> frozenset[float]:
    """Return the numbers that a text names."""
    return frozenset(map(float, _NUMBER.findall(_GROUPED.sub("", text))))


def parse_message(message: str) -> ParsedMessage:
    """Return the message as a scripted user understands it; any text is valid."""
    lists = word_lists()
    text = " ".join(message.casefold().replace("\u2019", "'").split())
    words: set[str] = set()
    asked: set[str] = set()
    recommended: list[str] = []
    for sentence in _SENTENCE.findall(text):
        in_sentence = _WORD.findall(sentence)
        words.update(in_sentence)
        if in_sentence and _asks(sentence, in_sentence) and not lists.ending.search(sentence):
            asked.update(in_sentence)
        if not lists.recommending.isdisjoint(in_sentence) and not _contradicts(in_sentence):
            recommended.append(sentence)
    numbers = numbers_in(text)
    is_flood = len(numbers) > MOST_NUMBERS
    return ParsedMessage(
        text,
        frozenset(words),
        frozenset(asked),
        " ".join(recommended),
        frozenset() if is_flood else numbers,
        is_flood,
        lists.ending.search(text) is not None,
    )


PATIENCE = {"easy": 6, "medium": 5, "hard": 4}
"""Difficulty -> messages without progress after which the user leaves."""
MOST_WRONG = 1
"""Messages of a discussion with a wrong number against a claim: one may be a slip, more are guesses."""


class UserPhrases(NamedTuple):
    """Sentences of users besides facts and claims."""

    lost: str
    """They did not understand."""
    ask_about: str
    """Questions that they can be asked, with `{labels}`; users of easy tasks add it."""
    ask_clearly: str
    flood: str
    vague: str
    """Answer to the first question about a vague fact, with `{label}`."""
    corrects: str
    noted: str
    insists: str
    hurry: str
    """Start of the first answer of impatient users."""
    nothing_more: str
    thanks: str
    leaves: str
    """Their patience is at its end."""
    maintains: str
    """The agent contradicts a claim that is right."""
    what_then: str
    """The agent contradicts a wrong claim without naming the right value."""
    source: str
    concedes: str
    agreed: str
    next: str
    closes: str


@cache
def user_phrases(split: str) -> UserPhrases:
    """Return the phrases of the users in a split."""
    return read_data("conversation/data/users.yaml", dict[str, UserPhrases])[split]


class UserReply(NamedTuple):
    """Answer of a user."""

    text: str
    leaves: bool = False
    """Whether the user ends the dialogue with it."""


class User(Protocol):
    """The agent's partner in a dialogue."""

    known: set[str]
    """Names of the facts that the agent has learnt so far."""
    corrected: bool
    """Whether the user has corrected a fact."""
    misled: bool
    """Whether the agent agreed with a wrong claim, or repeatedly held other numbers of the library against a claim."""
    is_certain: bool
    """Whether `known` is exact; a model states facts in its own words."""

    def answer(self, message: str, parsed: ParsedMessage, makes_progress: bool) -> UserReply:
        """Answer a message.

        Args:
            message: As the agent wrote it.
            parsed: The same message as a scripted user understands it.
            makes_progress: Whether it states something for the first time that the agent has to state.
        """

    def costs(self) -> Mapping[str, float]:
        """Return the resources that this user has used so far, as metrics of the episode."""

    def close(self) -> None:
        """Release the user's resources."""


class ScriptedUser:
    """A user that follows rules."""

    def __init__(self, scenario: Scenario) -> None:
        self.known: set[str] = set(scenario.opened)
        self.corrected = False
        self.misled = False
        self.is_certain = True
        self._scenario = scenario
        self._phrases = user_phrases(scenario.split)
        self._patience = PATIENCE[scenario.difficulty]
        self._vague = set(scenario.vague)
        self._insists = scenario.insists
        self._claim = 0
        self._wrong = 0
        self._wants_source = True
        self._hurries = scenario.difficulty == "hard"
        self._to_correct = next((fact for fact in scenario.facts if fact.correction), None)

    def answer(self, message: str, parsed: ParsedMessage, makes_progress: bool) -> UserReply:
        """Answer questions, continue the discussion, or report that the message was not understood."""
        parts, moved = self._answer_questions(parsed)
        if self._scenario.claims:
            more, on = self._discuss(parsed)
            parts, moved = [*parts, *more], moved or on
        elif not parts and makes_progress:
            parts = [self._phrases.insists if self._insists else self._phrases.noted]
            if parsed.ends and self._scenario.records and not self._insists:
                return UserReply(self._phrases.thanks, leaves=True)
            self._insists = False
        elif not parts and parsed.ends:
            if self._scenario.records:
                return UserReply(self._phrases.thanks, leaves=True)
            parts = [self._phrases.nothing_more]
        if not (moved or makes_progress):
            self._patience -= 1
            if self._patience <= 0:
                return UserReply(self._phrases.leaves, leaves=True)
        return UserReply(self._joined(parts or [self._not_understood(parsed)]))

    def costs(self) -> Mapping[str, float]:
        """Return no costs."""
        return {}

    def close(self) -> None:
        """Do nothing."""

    def _answer_questions(self, parsed: ParsedMessage) -> tuple[list[str], bool]:
        """Return sentences for the facts that are asked for, and whether the agent learns something new."""
        correction = self._due_correction(parsed)
        asked = [fact for fact in self._scenario.facts if not fact.words.isdisjoint(parsed.asked)]
        new = [fact for fact in asked if fact.name not in self.known]
        parts, moved = [], bool(new)
        for fact in new or asked:  # repeats known facts if nothing else is asked
            if fact.name in self._vague:
                self._vague.remove(fact.name)
                parts.append(self._phrases.vague.format(label=fact.label))
                continue
            self.known.add(fact.name)
            if fact is not correction:
                parts.append(fact.correction if self.corrected and fact.correction else fact.sentence)
        if correction is not None:
            assert correction.correction is not None
            self.corrected, moved = True, True
            parts += [self._phrases.corrects, correction.correction]
        return parts, moved

    def _due_correction(self, parsed: ParsedMessage) -> Fact | None:
        """Return the fact to correct now: a known one, at a desk only when the agent closes the dialogue."""
        fact = self._to_correct
        if fact is None or fact.name not in self.known or (self._scenario.records and not parsed.ends):
            return None
        self._to_correct = None
        return fact

    def _discuss(self, parsed: ParsedMessage) -> tuple[list[str], bool]:
        """Return the reaction to a message about the present claim, and whether the discussion advances."""
        phrases, claims = self._phrases, self._scenario.claims
        if self._claim >= len(claims):
            return [phrases.closes], False
        claim = claims[self._claim]
        if parsed.names_only(claim.truth, claim.rivals) and not (claim.is_right and parsed.disagrees):
            if not claim.is_right and claim.source and self._wants_source and not parsed.names(claim.source):
                self._wants_source = False
                return [phrases.source], True
            return self._settle(phrases.agreed if claim.is_right else phrases.concedes)
        if claim.source and not self._wants_source and parsed.names_only(claim.source, claim.rivals):
            return self._settle(phrases.concedes)
        if parsed.agrees:
            self.misled = self.misled or not claim.is_right
            return self._settle(phrases.agreed)
        self._wrong += any(map(parsed.names, claim.rivals))
        self.misled = self.misled or self._wrong > MOST_WRONG
        if parsed.disagrees:
            return [phrases.maintains if claim.is_right else phrases.what_then], False
        return [], False

    def _settle(self, reaction: str) -> tuple[list[str], bool]:
        self._claim, self._wants_source = self._claim + 1, True
        left: tuple[Claim, ...] = self._scenario.claims[self._claim :]
        return [reaction, *((self._phrases.next, left[0].sentence) if left else (self._phrases.closes,))], True

    def _not_understood(self, parsed: ParsedMessage) -> str:
        phrases = self._phrases
        if parsed.is_flood:
            return phrases.flood
        open_facts = [fact.label for fact in self._scenario.facts if fact.name not in self.known]
        if self._scenario.difficulty == "easy" and open_facts:
            return f"{phrases.lost} {phrases.ask_about.format(labels=', '.join(open_facts))}"
        return f"{phrases.lost} {phrases.ask_clearly}"

    def _joined(self, parts: list[str]) -> str:
        hurry = [self._phrases.hurry] if self._hurries else []
        self._hurries = False
        return " ".join([*hurry, *parts])
