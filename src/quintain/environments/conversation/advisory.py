"""`quintain/advisory`: ask a client for what matters to them, and recommend the one option that fits.

For each of the client's wishes there is an option that fits all but this one: who leaves a question out has several left.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from quintain.environments.conversation.scenario import (
    Due,
    Expected,
    Fact,
    FactKind,
    Scenario,
    Value,
    document,
)
from quintain.environments.families import Family, TaskKey

SYSTEM_PROMPT = (
    "You are an adviser. Look up the options in the knowledge base, ask the client with respond for what matters to them, tell them which "
    "option you recommend, and end with submit. Exactly one option fits. Call one tool a turn."
)
WISHES = {"easy": 2, "medium": 3, "hard": 4}
"""Difficulty -> how many of the four properties matter to the client."""
OTHERS = {"easy": 1, "medium": 2, "hard": 2}
"""Options that have nothing to do with the client's wishes."""


class Property(NamedTuple):
    """One property of the options of a field."""

    name: str
    rule: str
    """`most`, `least`: the client's value bounds it; `is`: it must be the client's."""
    values: tuple[Value, ...]
    """Of numbers in rising order."""
    wish: FactKind
    indifferent: FactKind

    def fits(self, wanted: Value, value: Value) -> bool:
        """Is this value as the client wants it?"""
        if self.rule == "is":
            return value == wanted
        return int(value) <= int(wanted) if self.rule == "most" else int(value) >= int(wanted)

    def draw(self, rng: Random, wanted: Value, fits: bool) -> Value:
        """A value that fits, or one that does not."""
        return rng.choice([value for value in self.values if self.fits(wanted, value) == fits])


def _property(name: str, rule: str, values: tuple[Value, ...], words: str, train: str, held_out: str) -> Property:
    # Who asks "grey or black?" asks for the colour.
    words = f"{name} {words} {' '.join(str(value) for value in values).casefold() if rule == 'is' else ''}"
    return Property(
        name,
        rule,
        values,
        FactKind(name, f"the {name}", words, train, held_out),
        FactKind(name, f"the {name}", words, f"The {name} does not matter to me.", f"I do not mind about the {name}."),
    )


class Field(NamedTuple):
    """What clients are advised on."""

    opening: tuple[str, str]
    """In each split."""
    names: dict[str, tuple[str, ...]]
    properties: tuple[Property, Property, Property, Property]


def _price(low: int, high: int, step: int) -> Property:
    return _property(
        "price",
        "most",
        tuple(range(low, high, step)),
        "budget cost costs spend pay money",
        "I can spend {value} dollars at most.",
        "My budget ends at {value} dollars.",
    )


FIELDS = {
    "laptop": Field(
        ("I need a new laptop.", "Which laptop should I buy?"),
        {
            "train": ("Nimbus", "Falcon", "Pixelo", "Corvo", "Lumen", "Vertex", "Orchid", "Tundra", "Quark", "Ember"),
            "held_out": ("Zephyr", "Marlin", "Basalt", "Helios", "Willow", "Cobalt", "Raven", "Saffron", "Delta"),
        },
        (
            _price(300, 1500, 50),
            _property(
                "memory",
                "least",
                (4, 8, 12, 16, 24, 32),
                "gigabytes ram",
                "It must have {value} gigabytes of memory or more.",
                "Less than {value} gigabytes of memory is no use.",
            ),
            _property(
                "colour",
                "is",
                ("grey", "black", "white", "red"),
                "color",
                "I want it in {value}.",
                "The one I take is {value}.",
            ),
            _property(
                "system",
                "is",
                ("Linux", "Windows", "Chrome"),
                "os software",
                "It has to run {value}.",
                "I work with {value} only.",
            ),
        ),
    ),
    "holiday": Field(
        ("I want to go on a holiday.", "Where should I travel?"),
        {
            "train": (
                "Velden",
                "Astra Bay",
                "Mora",
                "Karst",
                "Sillhaven",
                "Pellino",
                "Ostra",
                "Brunn",
                "Tarnwood",
                "Ilmen",
            ),
            "held_out": ("Norrin", "Orsa", "Tarvo", "Lunde", "Cape Mirra", "Hollin", "Verano", "Skarn", "Dorne"),
        },
        (
            _price(200, 2000, 100),
            _property(
                "days",
                "least",
                (3, 4, 5, 7, 10, 14),
                "long length duration stay",
                "I want to be away for {value} days or more.",
                "Fewer than {value} days are not worth it.",
            ),
            _property(
                "place",
                "is",
                ("beach", "mountains", "city", "lake"),
                "where landscape surroundings destination",
                "I want to be by the {value}.",
                "My heart is set on the {value}.",
            ),
            _property(
                "board",
                "is",
                ("breakfast", "half", "full"),
                "meals food",
                "For meals I want {value} board.",
                "Please with {value} board.",
            ),
        ),
    ),
    "course": Field(
        ("I want to take a course.", "Which course suits me?"),
        {
            "train": (
                "Alpha Lab",
                "Brightway",
                "Cordis",
                "Deepwell",
                "Evergrow",
                "Fluent",
                "Gridwise",
                "Horizon",
                "Inkwell",
            ),
            "held_out": (
                "Juniper",
                "Keystone",
                "Lodestar",
                "Mindmill",
                "Northlight",
                "Openbook",
                "Primer",
                "Quill",
                "Rowan",
            ),
        },
        (
            _price(50, 900, 50),
            _property(
                "weeks",
                "most",
                (2, 4, 6, 8, 12, 20),
                "long length duration time",
                "I have {value} weeks at most.",
                "After {value} weeks I must be done.",
            ),
            _property(
                "subject",
                "is",
                ("cooking", "drawing", "coding", "chess"),
                "topic topics learn interested",
                "I want to learn {value}.",
                "What I like is {value}.",
            ),
            _property(
                "form",
                "is",
                ("online", "evening", "weekend"),
                "format schedule when",
                "Only {value} lessons work for me.",
                "It has to be {value} classes.",
            ),
        ),
    ),
    "insurance": Field(
        ("I want to insure my bicycle.", "Which insurance should my bicycle have?"),
        {
            "train": (
                "Shield One",
                "Safeway",
                "Trusto",
                "Guardia",
                "Bulwark",
                "Haven",
                "Aegis",
                "Harbor",
                "Secura",
                "Anchor",
            ),
            "held_out": ("Castor", "Pollux", "Rampart", "Vigil", "Citadel", "Mantle", "Umbra", "Keeper", "Warden"),
        },
        (
            _price(20, 200, 10),
            _property(
                "cover",
                "least",
                (500, 1000, 2000, 3000, 5000, 8000),
                "coverage worth value sum",
                "It should cover {value} dollars or more.",
                "My bicycle is worth {value} dollars, all of it insured.",
            ),
            _property(
                "excess",
                "most",
                (0, 50, 100, 150, 250, 400),
                "deductible own",
                "I would pay an excess of {value} dollars at most.",
                "An excess above {value} dollars is too much.",
            ),
            _property(
                "area",
                "is",
                ("town", "country", "world"),
                "where abroad travel",
                "I ride it in the {value}.",
                "It must hold for the {value}.",
            ),
        ),
    ),
}
FAMILY = Family("advisory", "quintain/advisory", "1", tuple(FIELDS))

_Option = dict[str, Value]


def build(key: TaskKey) -> Scenario:
    """The talk of a task; same key, same talk."""
    rng, field, split = FAMILY.rng(key), FIELDS[key.type], key.split
    hard = key.difficulty == "hard"
    cared = rng.sample(field.properties, WISHES[key.difficulty])
    wanted = {p.name: rng.choice(p.values if p.rule == "is" else p.values[1:-1]) for p in cared}
    names = rng.sample(field.names[split], 2 + WISHES[key.difficulty] + OTHERS[key.difficulty])
    corrected = next((p for p in cared if p.rule == "is"), None) if hard else None
    options = _options(rng, field, cared, wanted, OTHERS[key.difficulty])
    later = None if corrected is None else options[1][corrected.name]
    named = dict(zip(names, options, strict=False))
    best, second = names[0], names[1]
    facts: list[Fact] = []
    for prop in field.properties:
        if prop not in cared:
            facts.append(prop.indifferent.fact(split, ""))
        else:
            facts.append(prop.wish.fact(split, wanted[prop.name], later if prop is corrected else None))
    opened = [fact for fact in facts if key.difficulty == "easy" and fact.name == cared[0].name]
    listed = rng.sample(list(named), len(named))
    opening = field.opening[split == "held_out"]
    return Scenario(
        split=split,
        difficulty=key.difficulty,
        opening=" ".join([opening, *(fact.says for fact in opened)]),
        goal=f"{opening} You talk to an adviser.",
        expected=_expected(best, names),
        changed=None if corrected is None else _expected(second, names),
        facts=tuple(facts),
        opened=frozenset(fact.name for fact in opened),
        needed=frozenset(wanted),
        vague=frozenset((cared[-1].name,)) if hard and rng.random() < 0.5 else frozenset(),
        library=tuple(document(name, _line(name, named[name]), f"{key.type} options all") for name in listed),
    )


def _expected(best: str, names: list[str]) -> Expected:
    """This option recommended, and no other beside it."""
    sources = frozenset((best,))
    due = Due(best, sources, tuple(name for name in names if name != best))
    return Expected((due,), sources, {"option": best})


def _options(rng: Random, field: Field, cared: list[Property], wanted: dict[str, Value], others: int) -> list[_Option]:
    """The one that fits, for each wish one that fits but for it, those of words first, and others that fit less."""

    def option(misses: tuple[Property, ...]) -> _Option:
        return {
            p.name: p.draw(rng, wanted[p.name], p not in misses) if p in cared else rng.choice(p.values)
            for p in field.properties
        }

    # The client may change a wish that is a word: the option that misses that wish alone is then the one that fits.
    by_word = sorted(cared, key=lambda p: p.rule != "is")
    return [
        option(()),
        *(option((p,)) for p in by_word),
        *(option(tuple(rng.sample(cared, 2))) for _ in range(others)),
    ]


def _line(name: str, option: _Option) -> str:
    return f"{name}: " + ", ".join(f"{prop} {value}" for prop, value in option.items())
