"""Word problems: how a task's id alone gives back its text and its answer, which is stored in no task."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from quintain.environments.families import Family, TaskKey
from quintain.environments.math.wording import (
    ADD,
    ASIDES,
    LESS,
    NAMES,
    PRODUCT,
    SPLIT,
    STORIES,
    TAKE,
    TIMES,
    Sentence,
    Story,
)

ENVIRONMENT_ID = "quintain/math"
VERSION = "1"
"""Goes into every task's seed and every suite's hash; raise it when a change alters any task."""
FAMILY = Family("math", ENVIRONMENT_ID, VERSION, tuple(STORIES))
STEPS = {"easy": (1,), "medium": (2,), "hard": (3, 4)}
"""Difficulty -> how many calculations a problem takes."""

_MOST = 5000
_PERCENTS = (5, 10, 20, 25, 40, 50, 75)


class Problem(NamedTuple):
    """What a task's id stands for."""

    prompt: str
    answer: int


def build_problem(key: TaskKey) -> Problem:
    """The text and answer of a task; same key, same problem."""
    rng, story = FAMILY.rng(key), STORIES[key.type]
    words = {"who": rng.choice(NAMES[key.split]), "things": rng.choice(story.things[key.split])}
    told = _Teller(rng, key.split, words)
    n, m = told.number(4, 60), told.number(2, 12)
    begins_with_step = story.start.effect == PRODUCT
    x = n * m if begins_with_step else n
    told.say(story.start, n=n, m=m)
    if key.difficulty == "hard":
        told.say(rng.choice(ASIDES), n=told.number(5, 90))
    for _ in range(rng.choice(STEPS[key.difficulty]) - begins_with_step):
        x = _change(told, story, x)
    told.say(story.question)
    return Problem(" ".join(told.sentences), x)


class _Teller:
    """Writes sentences in the words of a split."""

    def __init__(self, rng: Random, split: str, words: dict[str, str]) -> None:
        self.rng, self.split, self.words = rng, split, words
        self.sentences: list[str] = []
        self.last: Sentence | None = None

    def number(self, low: int, high: int) -> int:
        """A number of the split's own: those that leave 3 when divided by 4 are held out."""
        held_out = self.split == "held_out"
        return self.rng.choice([n for n in range(low, high + 1) if (n % 4 == 3) == held_out])

    def say(self, sentence: Sentence, **numbers: int) -> None:
        text = sentence.held_out if self.split == "held_out" else sentence.train
        self.sentences.append(text.format(**self.words, **numbers))
        self.last = sentence


def _change(told: _Teller, story: Story, x: int) -> int:
    """Tell a sentence that changes the quantity into a whole number above 0; returns that."""
    possible = [change for change in story.changes if change is not told.last and _numbers(change.effect, x)]
    change = told.rng.choice(possible)
    numbers = _numbers(change.effect, x)
    own = [n for n in numbers if (n % 4 == 3) == (told.split == "held_out")]
    n = told.rng.choice(own or numbers)
    told.say(change, n=n)
    return {ADD: x + n, TAKE: x - n, TIMES: x * n, SPLIT: x // n, LESS: x - x * n // 100}[change.effect]


def _numbers(effect: str, x: int) -> Sequence[int]:
    """The numbers that a sentence may have."""
    match effect:
        case "x + n":
            return range(2, 90)
        case "x - n":
            return range(1, min(x, 90))
        case "x * n":
            return [n for n in range(2, 8) if x * n <= _MOST]
        case "x / n":
            return [n for n in range(2, 10) if x % n == 0 and x > n]
        case _:
            return [n for n in _PERCENTS if x * n % 100 == 0]
