"""Scripted experts: they map paraphrases to the words of the catalogue, and parse the arguments from the prompt.

They provide demonstrations and an upper bound for tests of the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from quintain.environments.scripted_policy import Move, Script, ScriptedPolicy
from quintain.environments.tools_1k.lexicon import CATEGORIES, OPENERS, PARAMETERS, VERBS
from quintain.errors import InvalidInput

_READ = {"integer": int, "number": float, "string": str, "boolean": bool}


class _Request(NamedTuple):
    verb: str
    thing: str
    args: dict[str, Any]


def _searching(prompt: str) -> Script:
    request = _parse_prompt(prompt)
    query = f"{request.verb} {request.thing.replace('_', ' ')}"
    found = yield Move(f"I need to {query}.", "search_tools", {"query": query, "k": 5})
    names = [line.partition("(")[0] for line in found.splitlines()]
    name = f"{request.verb}_{request.thing}"
    chosen = name if name in names else names[0]
    yield Move(f"{chosen} does that.", "call_tool", {"name": chosen, "args": request.args})


def _calling(prompt: str) -> Script:
    request = _parse_prompt(prompt)
    name = f"{request.verb}_{request.thing}"
    yield Move(f"{name} does that.", name, request.args)


def _parse_prompt(prompt: str) -> _Request:
    found = _prompt_pattern().match(prompt)
    if found is None:
        raise InvalidInput(
            f"expected a prompt of quintain/tools-1k, got {prompt[:80]!r}; use the expert in this environment only"
        )
    verb, thing = _verbs()[found["verb"]], _things()[found["thing"]]
    return _Request(verb, thing, dict(_arguments(prompt[found.end() :])))


def _arguments(text: str) -> Iterator[tuple[str, Any]]:
    for parameter in PARAMETERS.values():
        for phrase in (parameter.train, parameter.held_out):
            values = "|".join(parameter.choices) or r"[\w@.-]+?"
            inside = r"[\w ]+" if '"' in phrase else values
            pattern = re.escape(phrase).replace(r"\{\}", f"({inside})")
            if match := re.search(rf"(?<!\S){pattern}(?=[ .])(?!\.\S)", text):
                value = match[1] if match.groups() else "true"
                yield parameter.name, _READ[parameter.type](value)
                break


@cache
def _verbs() -> dict[str, str]:
    return {phrase: name for name, verb in VERBS.items() for phrase in (name, verb.train, verb.held_out)}


@cache
def _things() -> dict[str, str]:
    objects = [pair for category in CATEGORIES.values() for pair in category.objects.items()]
    return {phrase: name for name, other in objects for phrase in (name.replace("_", " "), other)}


@cache
def _prompt_pattern() -> re.Pattern[str]:
    openers = _any(opener for split in OPENERS.values() for opener in split)
    return re.compile(rf"{openers} (?P<verb>{_any(_verbs())}) an? (?P<thing>{_any(_things())})(?=[ .])")


def _any(texts: Any) -> str:
    return f"(?:{'|'.join(sorted(map(re.escape, texts), key=len, reverse=True))})"


Expert = partial(ScriptedPolicy, _searching)
"""A `Policy` for mode `search`, without a model."""

DirectExpert = partial(ScriptedPolicy, _calling)
"""A `Policy` for mode `direct`, without a model."""
