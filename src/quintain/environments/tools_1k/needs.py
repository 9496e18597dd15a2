"""Build the prompt, the right tool and its arguments from a task id."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any, NamedTuple

from quintain.environments.families import Family, TaskKey
from quintain.environments.tools_1k.catalogue import ENVIRONMENT_ID, VERSION, Tool, article, catalogue
from quintain.environments.tools_1k.lexicon import CATEGORIES, OPENERS, PARAMETERS, VERBS, value_of

FAMILY = Family("tools-1k", ENVIRONMENT_ID, VERSION, tuple(CATEGORIES))
"""easy: the words of the tool; medium: another verb and one optional argument; hard: another noun too, and all arguments."""


class Need(NamedTuple):
    """The content of a task."""

    prompt: str
    tool: Tool
    args: dict[str, Any]


@cache
def _tools_of_split(category: str, split: str) -> tuple[Tool, ...]:
    tools = catalogue().tools.values()
    return tuple(t for t in tools if t.category == category and t.held_out == (split == "held_out"))


def build_need(key: TaskKey) -> Need:
    """Return the prompt, tool and arguments of a task; deterministic by key."""
    rng = FAMILY.rng(key)
    tool = rng.choice(_tools_of_split(key.type, key.split))
    n_optional = {"easy": 0, "medium": min(1, len(tool.optional)), "hard": len(tool.optional)}[key.difficulty]
    parameters = (*tool.required, *rng.sample(tool.optional, n_optional))
    args = {parameter.name: value_of(parameter, rng, key.split) for parameter in parameters}
    return Need(_prompt(rng, key, tool, args), tool, args)


def _prompt(rng: Random, key: TaskKey, tool: Tool, args: dict[str, Any]) -> str:
    verb, noun = tool.verb, tool.object.replace("_", " ")
    if key.difficulty != "easy":
        verb = in_split(VERBS[tool.verb], key.split)
    if key.difficulty == "hard":
        noun = CATEGORIES[tool.category].objects[tool.object]
    phrases = [in_split(PARAMETERS[name], key.split).format(value) for name, value in args.items()]
    return f"{' '.join([rng.choice(OPENERS[key.split]), verb, article(noun), noun, *phrases])}."


def in_split(word: Any, split: str) -> str:
    """Return the wording of a verb or parameter in a split."""
    return str(word.held_out if split == "held_out" else word.train)
