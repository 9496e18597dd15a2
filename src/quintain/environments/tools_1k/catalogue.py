"""The thousand tools, generated from the lexicon, their search index, and the tasks that need them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from quintain.datasets.recorded_calls import tool_document
from quintain.environments.configuration import BM25, trained_retriever
from quintain.environments.data_files import read_data
from quintain.environments.tasks.families import Family, TaskKey
from quintain.environments.tool_calls import tool_definition
from quintain.environments.tools_1k.retriever import Retriever
from quintain.records.protocols import TextRetriever
from quintain.records.seeds import stable_seed
from quintain.records.wording import clip, nearest


class Category(NamedTuple):
    """A group of tools."""

    place: str
    """The end of descriptions."""
    objects: dict[str, str]
    """Objects of its tools -> paraphrase."""


@dataclass(frozen=True)
class Verb:
    """The action of a tool."""

    train: str
    """Paraphrase in training tasks."""
    held_out: str
    required: tuple[str, ...]


@dataclass(frozen=True)
class Parameter:
    """A parameter of tools, and its phrases in prompts."""

    name: str
    type: str
    """JSON schema type."""
    about: str
    train: str
    held_out: str
    choices: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema."""
        choices = {"enum": list(self.choices)} if self.choices else {}
        return {"type": self.type, "description": self.about, **choices}


class _Words(NamedTuple):
    first: tuple[str, ...]
    second: tuple[str, ...]


class _Lexicon(NamedTuple):
    """The data file: names to contents; `openers`, `words` and `people` by split."""

    categories: dict[str, Category]
    verbs: dict[str, Verb]
    parameters: tuple[Parameter, ...]
    openers: dict[str, tuple[str, ...]]
    words: dict[str, _Words]
    people: dict[str, tuple[str, ...]]


_LEXICON = read_data("tools_1k/data/lexicon.yaml", _Lexicon)
CATEGORIES = _LEXICON.categories
VERBS = _LEXICON.verbs
PARAMETERS = {parameter.name: parameter for parameter in _LEXICON.parameters}
OPENERS = _LEXICON.openers
VERBS_OF_CATEGORY = 5
OPTIONAL = ("priority", "date", "note", "notify", "budget")


def value_of(parameter: Parameter, rng: Random, split: str) -> str | int | float | bool:
    """Return a random value for a prompt of the split; numbers with n mod 4 = 3 are held out."""
    if parameter.choices:
        return rng.choice(parameter.choices)
    match parameter.name:
        case "title" | "note":
            return f"{rng.choice(_LEXICON.words[split].first)} {rng.choice(_LEXICON.words[split].second)}"
        case "reference":
            return f"{rng.choice('ABCDEFGH')}{rng.choice('KLMNPQRS')}-{_number(rng, split, 100, 999)}"
        case "recipient":
            return f"{rng.choice(_LEXICON.people[split])}@example.com"
        case "date":
            return f"2027-{rng.randint(1, 12):02d}-{_number(rng, split, 1, 28):02d}"
        case "points":
            return _number(rng, split, 1, 10)
        case "budget":
            return _number(rng, split, 10, 400) + rng.choice((0.25, 0.5, 0.75))
        case "notify":
            return True
    return _number(rng, split, 2, 60)


def _number(rng: Random, split: str, low: int, high: int) -> int:
    return rng.choice([n for n in range(low, high + 1) if (n % 4 == 3) == (split == "held_out")])


ENVIRONMENT_ID = "quintain/tools-1k"
VERSION = "1"
"""Part of every task seed and suite hash; increase it when a change alters any tool or task."""

_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}


@dataclass(frozen=True)
class Tool:
    """One of the thousand tools."""

    name: str
    description: str
    category: str
    verb: str
    object: str
    required: tuple[Parameter, ...]
    optional: tuple[Parameter, ...]
    held_out: bool
    """Whether only held-out tasks use the tool."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters, the required ones first."""
        return self.required + self.optional

    @property
    def schema(self) -> dict[str, Any]:
        """The definition in the OpenAI function style."""
        parameters = {
            "type": "object",
            "properties": {parameter.name: parameter.schema for parameter in self.parameters},
            "required": [parameter.name for parameter in self.required],
            "additionalProperties": False,
        }
        return tool_definition(self.name, self.description, parameters)

    @property
    def line(self) -> str:
        """The line of a search result, such as `delete_meeting(reference: string, date?: string): Delete a meeting in the calendar`."""
        parameters = [_signature(parameter, "") for parameter in self.required]
        parameters += [_signature(parameter, "?") for parameter in self.optional]
        return f"{self.name}({', '.join(parameters)}): {self.description}"

    @property
    def text(self) -> str:
        """The text in the lexical index: name, description, category and parameters."""
        names = " ".join(parameter.name for parameter in self.parameters)
        return f"{self.name.replace('_', ' ')} {self.description} {self.category} {names}"

    def argument_error(self, args: dict[str, Any]) -> str | None:
        """Return the error of malformed arguments; None if they fit the schema."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name, value in args.items():
            if name not in known:
                return f"{self.name} has no parameter {clip(name)!r}{nearest(name, known)}; it has: {', '.join(known)}"
            kind = known[name].type
            if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
                return f"{self.name}.{name} is {clip(repr(value))}; it must be of type {kind}"
            if known[name].choices and value not in known[name].choices:
                return f"{self.name}.{name} is {clip(repr(value))}; valid: {', '.join(known[name].choices)}"
        missing = [parameter.name for parameter in self.required if parameter.name not in args]
        return f"{self.name}.{missing[0]} is required" if missing else None


def _signature(parameter: Parameter, mark: str) -> str:
    return f"{parameter.name}{mark}: {'|'.join(parameter.choices) or parameter.type}"


@dataclass(frozen=True)
class Catalogue:
    """All tools by name, and their search index."""

    tools: dict[str, Tool]
    retriever: TextRetriever

    def search(self, query: str, k: int) -> list[Tool]:
        """Return the `k` tools that fit a query best."""
        tools = list(self.tools.values())
        return [tools[place] for place in self.retriever.search(query, k)]


@cache
def catalogue_with(retriever: str) -> Catalogue:
    """Return the thousand tools, searched by a retriever: `bm25`, or a trained one by its folder."""
    everything = catalogue()
    if retriever == BM25:
        return everything
    texts = [tool_document(tool.schema) for tool in everything.tools.values()]
    return Catalogue(everything.tools, trained_retriever(Path(retriever), texts))


@cache
def catalogue() -> Catalogue:
    """Return the thousand tools, the same on every machine."""
    tools = [tool for category in CATEGORIES for tool in _tools_of(category)]
    return Catalogue({tool.name: tool for tool in tools}, Retriever([tool.text for tool in tools]))


def _tools_of(category: str) -> list[Tool]:
    rng = Random(stable_seed(ENVIRONMENT_ID, VERSION, "tools", category))
    place, objects = CATEGORIES[category]
    verbs = sorted(rng.sample(list(VERBS), VERBS_OF_CATEGORY))
    return [
        # A Latin pattern: every verb and every object occurs in both splits, no tool does.
        _tool(rng, category, place, verb, thing, held_out=(i + j) % 5 == 0)
        for i, thing in enumerate(objects)
        for j, verb in enumerate(verbs)
    ]


def _tool(rng: Random, category: str, place: str, verb: str, thing: str, *, held_out: bool) -> Tool:
    required = tuple(PARAMETERS[name] for name in VERBS[verb].required)
    possible = [name for name in OPTIONAL if PARAMETERS[name] not in required]
    optional = tuple(PARAMETERS[name] for name in sorted(rng.sample(possible, rng.randint(0, 3))))
    noun = thing.replace("_", " ")
    return Tool(
        name=f"{verb}_{thing}",
        description=f"{verb.capitalize()} {article(noun)} {noun} {place}.",
        category=category,
        verb=verb,
        object=thing,
        required=required,
        optional=optional,
        held_out=held_out,
    )


def article(noun: str) -> str:
    """Return `a` or `an`, by the first letter."""
    return "an" if noun[0] in "aeiou" else "a"


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
