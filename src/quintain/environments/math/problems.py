"""Word problems: text and answer of a task follow from its id, and the task does not contain its answer.

Each type is a story: it starts with a quantity, continues with sentences that change it, and asks for it. The splits use other
words, people, things and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Literal, NamedTuple

from quintain.environments.data_files import read_data
from quintain.environments.tasks.families import Family, TaskKey

ENVIRONMENT_ID = "quintain/math"
VERSION = "1"
"""Part of every task's seed and every suite's hash; raise it when a change alters a task."""
FAMILY = Family("math", ENVIRONMENT_ID, VERSION, ("collection", "shopping", "travel", "work", "savings", "garden"))
STEPS = {"easy": (1,), "medium": (2,), "hard": (3, 4)}
"""Difficulty -> numbers of calculations that a problem may take."""

_MOST = 5000
"""Largest quantity that a multiplication may give."""
_PERCENTS = (5, 10, 20, 25, 40, 50, 75)

Effect = Literal["n", "n * m", "x", "x + n", "x - n", "x * n", "x / n", "x - x * n / 100"]
"""New quantity, from the old one `x` and the numbers `n` and `m` of the sentence."""


class Sentence(NamedTuple):
    """Effect of a sentence, and its wording in each split."""

    effect: Effect
    train: str
    held_out: str


class Story(NamedTuple):
    """A type of problem."""

    start: Sentence
    changes: tuple[Sentence, ...]
    question: Sentence
    things: dict[str, tuple[str, ...]]
    """Split -> nouns that fill `{things}`."""


class Stories(NamedTuple):
    """Sentences of all problems."""

    names: dict[str, tuple[str, ...]]
    asides: tuple[Sentence, ...]
    """Sentences of hard problems whose numbers do not matter."""
    stories: dict[str, Story]


@cache
def stories() -> Stories:
    """Return the sentences of all problems."""
    return read_data("math/data/stories.yaml", Stories)


class Problem(NamedTuple):
    """Text and answer of a task."""

    prompt: str
    answer: int
    steps: tuple[tuple[Effect, dict[str, int]], ...]
    """Effect and numbers of each sentence."""


def build_problem(key: TaskKey) -> Problem:
    """Return the problem of a task; the same key gives the same problem."""
    rng, story = FAMILY.rng(key), stories().stories[key.type]
    words = {"who": rng.choice(stories().names[key.split]), "things": rng.choice(story.things[key.split])}
    writer = _Writer(rng, key.split, words)
    n, m = writer.number(4, 60), writer.number(2, 12)
    begins_with_step = story.start.effect == "n * m"
    x = n * m if begins_with_step else n
    writer.add(story.start, n=n, m=m)
    if key.difficulty == "hard":
        writer.add(rng.choice(stories().asides), n=writer.number(5, 90))
    for _ in range(rng.choice(STEPS[key.difficulty]) - begins_with_step):
        x = _change(writer, story, x)
    writer.add(story.question)
    return Problem(" ".join(writer.sentences), x, tuple(writer.steps))


class _Writer:
    """Writes sentences in the words of a split."""

    def __init__(self, rng: Random, split: str, words: dict[str, str]) -> None:
        self.rng, self.split, self.words = rng, split, words
        self.sentences: list[str] = []
        self.steps: list[tuple[Effect, dict[str, int]]] = []
        self.last: Sentence | None = None

    def own(self, numbers: Sequence[int]) -> list[int]:
        """Return the numbers that belong to the split: those of remainder 3 modulo 4 are held out."""
        return [n for n in numbers if (n % 4 == 3) == (self.split == "held_out")]

    def number(self, low: int, high: int) -> int:
        return self.rng.choice(self.own(range(low, high + 1)))

    def add(self, sentence: Sentence, **numbers: int) -> None:
        text = sentence.held_out if self.split == "held_out" else sentence.train
        self.sentences.append(text.format(**self.words, **numbers))
        self.steps.append((sentence.effect, numbers))
        self.last = sentence


def _change(writer: _Writer, story: Story, x: int) -> int:
    """Add a sentence that changes the quantity into a whole number above 0, and return that number."""
    possible = [change for change in story.changes if change is not writer.last and _numbers(change.effect, x)]
    change = writer.rng.choice(possible)
    numbers = _numbers(change.effect, x)
    n = writer.rng.choice(writer.own(numbers) or numbers)
    writer.add(change, n=n)
    match change.effect:
        case "x + n":
            return x + n
        case "x - n":
            return x - n
        case "x * n":
            return x * n
        case "x / n":
            return x // n
        case _:
            return x - x * n // 100


def _numbers(effect: Effect, x: int) -> Sequence[int]:
    """Return the numbers that a sentence may use."""
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
