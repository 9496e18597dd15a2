"""What a scripted user understands of a message: which words are asked for, which are said, and which numbers are named.

There is no model in it. A message is cut into sentences; one that ends with a question mark, begins with a word such as `which`, has
one such as `please` or `tell`, or says what is needed of `your` things, asks for what its words stand for. The time that this takes
grows with the message, and no faster.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

_SENTENCE = re.compile(r"[^.?!\n]+[.?!]*")
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))", re.ASCII)
_NUMBER = re.compile(r"(?<![\w.-])\d{1,12}(?:\.\d{1,6})?", re.ASCII)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ASKING = _words("please tell give provide describe explain could")
_OPENERS = _words("what which who whom when where why how can may would do does did is are let say confirm will should")
_DISAGREEING = _words(
    "not no wrong incorrect disagree false actually but however mistaken cannot instead rather error inaccurate"
)
_AGREEING = _words("agree agreed right correct correctly true yes indeed exactly confirm confirmed accurate")
_REFUSING = _words("sorry unfortunately unable impossible already late refuse refused decline declined denied")
_RECOMMENDING = _words("recommend recommended recommendation suggest suggested suggestion propose advise best")
_ENDING = re.compile(r"\b(?:good)?bye\b|\banything (?:else|more)\b|\bsomething else\b|\bnice day\b|\bfarewell\b")

MOST_NUMBERS = 6
"""A message that names more numbers than this names none: to say them all is to say nothing."""


class Heard(NamedTuple):
    """A message as it was understood."""

    text: str
    """In lower case, with single spaces."""
    words: frozenset[str]
    asked: frozenset[str]
    """Words of the sentences that ask."""
    recommended: str
    """The sentences that recommend, and do not say no to it."""
    numbers: frozenset[float]
    is_flood: bool
    """Does it name too many numbers to mean any?"""
    ends: bool
    """Does it say goodbye, or ask whether there is anything else?"""

    @property
    def disagrees(self) -> bool:
        """Does it contradict?"""
        return _contradicts(self.words)

    @property
    def refuses(self) -> bool:
        """Does it say that something cannot be done?"""
        return self.disagrees or not _REFUSING.isdisjoint(self.words)

    @property
    def agrees(self) -> bool:
        """Does it agree, and contradict nothing?"""
        return not _AGREEING.isdisjoint(self.words) and not self.disagrees

    def names(self, value: str | int | float) -> bool:
        """Is this value said? Numbers count by their value, texts as whole words, without case."""
        if isinstance(value, int | float):
            return float(value) in self.numbers
        return _stands_in(" ".join(value.casefold().split()), self.text)

    def names_only(self, value: str | int, rivals: Iterable[str | int]) -> bool:
        """Is this value said, and none of its rivals? Where something is recommended, what else is compared does not count."""
        said = self._replace(text=self.recommended) if self.recommended else self
        return said.names(value) and not any(map(said.names, rivals))


def _contradicts(words: Collection[str]) -> bool:
    return not _DISAGREEING.isdisjoint(words) or any(word.endswith("n't") for word in words)


def _asks(sentence: str, words: list[str]) -> bool:
    return (
        sentence.endswith("?")
        or words[0] in _OPENERS
        or not _ASKING.isdisjoint(words)
        or ("need" in words and "your" in words)
    )


def _stands_in(value: str, text: str) -> bool:
    """Is there this value, not as a part of longer words? By hand: a pattern for each value would have to be compiled."""
    place = text.find(value) if value else -1
    while place >= 0:
        end = place + len(value)
        if not (text[place - 1 : place].isalnum() or text[end : end + 1].isalnum()):
            return True
        place = text.find(value, place + 1)
    return False


def numbers_in(text: str) -> frozenset[float]:
    """The numbers that a text names."""
    return frozenset(map(float, _NUMBER.findall(_GROUPED.sub("", text))))


def understand(message: str) -> Heard:
    """What a message says; any text can be one."""
    text = " ".join(message.casefold().replace("\u2019", "'").split())
    words: set[str] = set()
    asked: set[str] = set()
    recommended: list[str] = []
    for sentence in _SENTENCE.findall(text):
        found = _WORD.findall(sentence)
        words.update(found)
        if found and _asks(sentence, found) and not _ENDING.search(sentence):
            asked.update(found)
        if not _RECOMMENDING.isdisjoint(found) and not _contradicts(found):
            recommended.append(sentence)
    numbers = numbers_in(text)
    flood = len(numbers) > MOST_NUMBERS
    return Heard(
        text,
        frozenset(words),
        frozenset(asked),
        " ".join(recommended),
        frozenset() if flood else numbers,
        flood,
        _ENDING.search(text) is not None,
    )
