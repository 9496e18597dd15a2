"""`quintain/discussion`: someone claims things, some of them wrong. Look them up, agree or correct, and write down what holds."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from quintain.environments.conversation.scenario import Claim, Document, Due, Expected, Scenario, Value, document
from quintain.environments.families import Family, TaskKey

SYSTEM_PROMPT = (
    "You discuss facts with someone who may be wrong. Look up each claim in the knowledge base; with respond agree where it is right, "
    "else name the right number and its source. When all is said, end with submit. Call one tool a turn."
)
CLAIMS = {"easy": 2, "medium": 3, "hard": 4}


class Measure(NamedTuple):
    """A number that things of a kind have."""

    name: str
    unit: str
    values: range
    says: tuple[str, str]
    """How it is claimed in each split."""


class Kind(NamedTuple):
    """What a discussion is about."""

    names: dict[str, tuple[str, ...]]
    measures: tuple[Measure, ...]
    sources: dict[str, tuple[str, ...]]


KINDS = {
    "rivers": Kind(
        {
            "train": ("Elbar", "Tisso", "Marn", "Oder Minor", "Vistra", "Lohne", "Sava Nova", "Drim"),
            "held_out": ("Korana", "Ister", "Neva Alta", "Rhodan", "Tamar", "Ulm"),
        },
        (
            Measure(
                "length",
                "kilometres",
                range(60, 900),
                ("{name} is {value} kilometres long.", "From end to end {name} has {value} kilometres."),
            ),
            Measure(
                "depth",
                "metres",
                range(3, 50),
                ("{name} is {value} metres deep.", "In {name} the ground lies {value} metres down."),
            ),
            Measure(
                "bridges",
                "bridges",
                range(5, 60),
                ("{value} bridges cross {name}.", "Over {name} there are {value} bridges."),
            ),
            Measure(
                "width",
                "metres",
                range(52, 300),
                ("{name} is {value} metres wide.", "From bank to bank {name} has {value} metres."),
            ),
        ),
        {"train": ("River Atlas", "Water Almanac"), "held_out": ("Stream Register", "Hydro Yearbook")},
    ),
    "towns": Kind(
        {
            "train": ("Velden", "Astra", "Mora", "Karst", "Sillhaven", "Pellino", "Brunn"),
            "held_out": ("Norrin", "Orsa", "Tarvo", "Lunde", "Skarn"),
        },
        (
            Measure(
                "schools",
                "schools",
                range(2, 40),
                ("There are {value} schools in {name}.", "{name} runs {value} schools."),
            ),
            Measure(
                "parks",
                "parks",
                range(3, 50),
                ("There are {value} parks in {name}.", "One can walk in {value} parks of {name}."),
            ),
            Measure(
                "founding",
                "(year)",
                range(1100, 1900),
                ("{name} was founded in {value}.", "{name} goes back to {value}."),
            ),
            Measure(
                "height",
                "metres above the sea",
                range(51, 900),
                ("{name} lies {value} metres high.", "{name} stands {value} metres above the sea."),
            ),
        ),
        {"train": ("Town Survey", "City Handbook"), "held_out": ("Parish Roll", "Borough Report")},
    ),
    "companies": Kind(
        {
            "train": ("Nimbus Works", "Falcon Foods", "Corvo", "Lumen Light", "Vertex", "Orchid Group", "Tundra Ltd"),
            "held_out": ("Zephyr Air", "Marlin Boats", "Basalt", "Helios Sun", "Willow Wood"),
        },
        (
            Measure(
                "staff",
                "people",
                range(61, 900),
                ("{name} has {value} people on its staff.", "At {name} {value} people earn their pay."),
            ),
            Measure(
                "offices",
                "offices",
                range(2, 60),
                ("{name} has {value} offices.", "One finds {name} in {value} offices."),
            ),
            Measure(
                "sales",
                "million dollars",
                range(3, 99),
                ("{name} has sales of {value} million dollars.", "{name} sells for {value} million dollars a year."),
            ),
            Measure(
                "founding",
                "(year)",
                range(1901, 2015),
                ("{name} was founded in {value}.", "{name} goes back to {value}."),
            ),
        ),
        {"train": ("Trade Index", "Market Ledger"), "held_out": ("Firm Gazette", "Business Record")},
    ),
    "foods": Kind(
        {
            "train": ("oat bar", "plum jam", "rye bread", "goat cheese", "bean soup", "lemon tart", "nut butter"),
            "held_out": ("fig cake", "barley stew", "carrot pie", "cherry syrup", "millet roll"),
        },
        (
            Measure(
                "energy",
                "kilocalories",
                range(101, 600),
                ("{name} has {value} kilocalories.", "Who eats {name} takes in {value} kilocalories."),
            ),
            Measure(
                "sugar",
                "grams",
                range(1, 60),
                ("There are {value} grams of sugar in {name}.", "{name} is sweet from {value} grams of sugar."),
            ),
            Measure(
                "protein",
                "grams",
                range(1, 50),
                ("There are {value} grams of protein in {name}.", "{name} brings {value} grams of protein."),
            ),
            Measure(
                "salt",
                "milligrams",
                range(601, 990),
                ("There are {value} milligrams of salt in {name}.", "{name} is salted with {value} milligrams."),
            ),
        ),
        {"train": ("Food Table", "Diet Guide"), "held_out": ("Kitchen Codex", "Nutrition List")},
    ),
}
FAMILY = Family("discussion", "quintain/discussion", "1", tuple(KINDS))

_OPENING = {"train": "Let us talk about {kind}.", "held_out": "I would like to argue about {kind}."}


def build(key: TaskKey) -> Scenario:
    """The talk of a task; same key, same talk."""
    rng, kind, split = FAMILY.rng(key), KINDS[key.type], key.split
    hard, n = key.difficulty == "hard", CLAIMS[key.difficulty]
    names = rng.sample(kind.names[split], 3)
    facts = {(name, measure): rng.choice(measure.values) for name in names for measure in kind.measures}
    source_of = {name: rng.choice(kind.sources[split]) for name in names}
    chosen = rng.sample(list(facts), n)
    wrong = set(rng.sample(range(n), rng.randint(1, n - 1)))
    claims = tuple(
        _claim(rng, split, name, measure, facts[name, measure], place in wrong, source_of[name] if hard else None)
        for place, (name, measure) in enumerate(chosen)
    )
    others: tuple[Value, ...] = (*facts.values(), *(kind.sources[split] if hard else ()))
    claims = tuple(
        claim._replace(rivals=tuple(v for v in others if v not in {claim.truth, claim.value, claim.source}))
        for claim in claims
    )
    opening = f"{_OPENING[split].format(kind=key.type)} {claims[0].says}"
    return Scenario(
        split=split,
        difficulty=key.difficulty,
        opening=opening,
        goal=f"To convince the other of what you know about {key.type}. You began with: {opening}",
        expected=Expected(
            told=tuple(
                Due(claim.truth, frozenset((claim.point,)), claim.rivals) for claim in claims if not claim.is_right
            ),
            sources=frozenset(claim.point for claim in claims),
            handed_in={claim.point: claim.truth for claim in claims},
        ),
        claims=claims,
        library=tuple(
            _entry(name, measure, value, source_of[name], key.type) for (name, measure), value in facts.items()
        ),
    )


def _claim(rng: Random, split: str, name: str, measure: Measure, truth: int, wrong: bool, source: str | None) -> Claim:
    value = rng.choice([v for v in measure.values if v != truth]) if wrong else truth
    says = measure.says[split == "held_out"].format(name=name, value=value)
    says = says[0].upper() + says[1:]
    return Claim(f"{name} {measure.name}", says, value, truth, source)


def _entry(name: str, measure: Measure, value: int, source: str, kind: str) -> Document:
    text = f"{name} {measure.name}: {value} {measure.unit} (source: {source})"
    return document(f"{name} {measure.name}", text, kind)
