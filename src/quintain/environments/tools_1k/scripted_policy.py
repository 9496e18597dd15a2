"""Scripted experts: they know what people mean by other words, search in the catalogue's own, and read off the arguments.

They give demonstrations, and an upper bound to test the environment against.
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


class _Wish(NamedTuple):
    verb: str
    thing: str
    args: dict[str, Any]


def _searching(prompt: str) -> Script:
    wish = _understood(prompt)
    said = f"{wish.verb} {wish.thing.replace('_', ' ')}"
    found = yield Move(f"I need to {said}.", "search_tools", {"query": said, "k": 5})
    names = [line.partition("(")[0] for line in found.splitlines()]
    name = f"{wish.verb}_{wish.thing}"
    chosen = name if name in names else names[0]
    yield Move(f"{chosen} does that.", "call_tool", {"name": chosen, "args": wish.args})


def _calling(prompt: str) -> Script:
    wish = _understood(prompt)
    name = f"{wish.verb}_{wish.thing}"
    yield Move(f"{name} does that.", name, wish.args)


def _understood(prompt: str) -> _Wish:
    found = _wish().match(prompt)
    if found is None:
        raise InvalidInput(f"the expert knows the needs of quintain/tools-1k only, not {prompt[:80]!r}")
    verb, thing = _verbs()[found["verb"]], _things()[found["thing"]]
    return _Wish(verb, thing, dict(_arguments(prompt[found.end() :])))


def _arguments(said: str) -> Iterator[tuple[str, Any]]:
    for parameter in PARAMETERS.values():
        for phrase in (parameter.train, parameter.held_out):
            values = "|".join(parameter.choices) or r"[\w@.-]+?"
            inside = r"[\w ]+" if '"' in phrase else values
            pattern = re.escape(phrase).replace(r"\{\}", f"({inside})")
            if match := re.search(rf"(?<!\S){pattern}(?=[ .])(?!\.\S)", said):
                text = match[1] if match.groups() else "true"
                yield parameter.name, _READ[parameter.type](text)
                break


@cache
def _verbs() -> dict[str, str]:
    return {said: verb.name for verb in VERBS.values() for said in (verb.name, verb.train, verb.held_out)}


@cache
def _things() -> dict[str, str]:
    objects = [pair for category in CATEGORIES.values() for pair in category.objects.items()]
    return {said: name for name, other in objects for said in (name.replace("_", " "), other)}


@cache
def _wish() -> re.Pattern[str]:
    openers = _any(opener for split in OPENERS.values() for opener in split)
    return re.compile(rf"{openers} (?P<verb>{_any(_verbs())}) an? (?P<thing>{_any(_things())})(?=[ .])")


def _any(texts: Any) -> str:
    return f"(?:{'|'.join(sorted(map(re.escape, texts), key=len, reverse=True))})"


Expert = partial(ScriptedPolicy, _searching)
"""A `Policy` for mode `search` that needs no model."""

DirectExpert = partial(ScriptedPolicy, _calling)
"""A `Policy` for mode `direct` that needs no model."""
