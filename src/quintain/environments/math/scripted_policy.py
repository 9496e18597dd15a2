"""A scripted policy for `quintain/math`: it recognises the sentences of a problem and calculates step by step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from typing import NamedTuple

from quintain.environments.math.problems import stories
from quintain.environments.scripted_policy import Move, Script, ScriptedPolicy
from quintain.errors import InvalidInput

_BLANKS = {"who": r"\w+", "things": r"\w+", "n": r"(?P<n>\d+)", "m": r"(?P<m>\d+)"}


class _ParsedSentence(NamedTuple):
    effect: str
    numbers: dict[str, str]


def _script(prompt: str) -> Script:
    value = ""
    for sentence in _sentences(prompt):
        known = {"x": value, **sentence.numbers}
        expression = " ".join(known.get(word, word) for word in sentence.effect.split())
        if expression.isdigit():
            value = expression
        else:
            value = yield Move(f"{expression}.", "calculate", {"expression": expression})
    yield Move(f"It is {value}.", "submit", {"answer": int(value)})


def _sentences(prompt: str) -> Iterator[_ParsedSentence]:
    place = 0
    while place < len(prompt):
        found = next(
            ((effect, match) for effect, pattern in _patterns() if (match := pattern.match(prompt, place))), None
        )
        if found is None:
            raise InvalidInput(
                f"expected a sentence of quintain/math, got {prompt[place : place + 80]!r}; take tasks from the environment's own splits"
            )
        effect, match = found
        place = match.end()
        yield _ParsedSentence(effect, match.groupdict())


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    story_sentences = [
        sentence for story in stories().stories.values() for sentence in (story.start, *story.changes, story.question)
    ]
    return tuple(
        (sentence.effect, re.compile(_pattern(text) + r"(?: |$)"))
        for sentence in [*stories().asides, *story_sentences]
        for text in (sentence.train, sentence.held_out)
    )


def _pattern(text: str) -> str:
    pieces = re.split(r"\{(\w+)\}", text)
    return "".join(_BLANKS[piece] if place % 2 else re.escape(piece) for place, piece in enumerate(pieces))


Expert = partial(ScriptedPolicy, _script)
"""A `Policy` for `quintain/math` that solves every task."""
