"""`quintain/engineering`: clarify what a client needs or what went wrong, look up the rest, and submit a plan or a diagnosis.

Each submitted field follows from facts that the client knows and from rules in the knowledge base or in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import NamedTuple

from pydantic.dataclasses import dataclass

from quintain.environments.conversation.scenario import (
    Document,
    Fact,
    FactKind,
    Scenario,
    SplitNames,
    SuccessConditions,
    Value,
    Wording,
    document,
)
from quintain.environments.data_files import read_data
from quintain.environments.tasks.families import Family, TaskKey

SYSTEM_PROMPT = (
    "You are an engineer. Look up the template of what is to be handed in, ask the client for what only they know with respond, "
    "look up the rest in the knowledge base and in files, and end with submit. Call one tool a turn."
)
FAMILY = Family("engineering", "quintain/engineering", "1", ("deployment", "backup", "incident", "alert"))


class DocumentTexts(NamedTuple):
    """Templates of a document."""

    title: str
    text: str
    words: str


class OrderTexts(NamedTuple):
    """Templates of an order; the values for `{...}` are drawn for each task."""

    opening: Wording
    documents: tuple[DocumentTexts, ...]
    hard_rule: str
    """Rule that hard tasks add, where a document has `{hard_rule}`."""
    path: str
    file: str

    def library(self, values: Mapping[str, Value]) -> tuple[Document, ...]:
        """Return the documents of a task."""
        return tuple(document(d.title.format(**values), d.text.format(**values), d.words) for d in self.documents)


@dataclass(frozen=True)
class Vocabulary:
    """Names and texts of the environment."""

    services: SplitNames
    countries: SplitNames
    regions: tuple[str, ...]
    parts: SplitNames
    causes: tuple[str, ...]
    fixes: tuple[str, ...]
    harms: tuple[str, ...]
    metrics: tuple[str, ...]
    teams: SplitNames
    channels: tuple[str, ...]
    facts: dict[str, FactKind]
    orders: dict[str, OrderTexts]

    def fact_kind(self, name: str) -> FactKind:
        """Return the kind of fact of this name."""
        return self.facts[name]._replace(name=name)


@cache
def vocabulary() -> Vocabulary:
    """Return the names and texts of the environment."""
    return read_data("conversation/data/engineering.yaml", Vocabulary)


class _Order(NamedTuple):
    """Knowledge of the client, documents to look up, and the submission that follows."""

    facts: dict[str, Value]
    corrected: tuple[str, Value]
    """A fact, and the value to which the client of a hard task corrects it."""
    values: dict[str, Value]
    """Values for the templates of documents and file."""
    submission: Callable[[dict[str, Value]], dict[str, Value]]
    """Facts -> expected submission."""


def _deployment(rng: Random, split: str, hard: bool) -> _Order:
    words = vocabulary()
    countries, regions = rng.sample(words.countries[split], 3), rng.sample(words.regions, 3)
    each, port = rng.randrange(50, 450, 50), rng.randrange(3000, 9000)
    users, more = rng.sample(range(100, 3000, 70), 2)
    region_of = dict(zip(countries, regions, strict=True))
    facts: dict[str, Value] = {"users": users, "country": rng.choice(countries)}
    if hard:
        facts["spare"] = rng.randint(1, 3)
    served = ", ".join(f"{country} from {region}" for country, region in region_of.items())

    def submission(known: dict[str, Value]) -> dict[str, Value]:
        replicas = -(-int(known["users"]) // each) + int(known.get("spare", 0))
        return {"replicas": replicas, "region": region_of[str(known["country"])], "port": port}

    values: dict[str, Value] = {"each": each, "served": served, "workers": rng.randint(2, 9), "port": port}
    return _Order(facts, ("users", more), values, submission)


def _backup(rng: Random, split: str, hard: bool) -> _Order:
    few, some = rng.randint(1, 6), rng.randint(12, 30)
    law = rng.randrange(20, 100, 10)
    bucket, vault = f"bucket-{rng.randint(10, 99)}", f"vault-{rng.randint(10, 99)}"
    facts: dict[str, Value] = {
        "loss": rng.randint(1, 48),
        "keep": rng.randrange(7, 130, 3),
        "data": rng.choice(("personal", "public")),
    }

    def submission(known: dict[str, Value]) -> dict[str, Value]:
        loss, keep = int(known["loss"]), int(known["keep"])
        personal = known["data"] == "personal"
        return {
            "schedule": "hourly" if loss <= few else "nightly" if loss <= some else "weekly",
            "retention_days": min(keep, law) if hard and personal else keep,
            "target": vault if personal else bucket,
        }

    values: dict[str, Value] = {"few": few, "some": some, "law": law, "bucket": bucket, "vault": vault}
    return _Order(facts, ("loss", rng.randint(1, 48)), values, submission)


def _incident(rng: Random, split: str, hard: bool) -> _Order:
    words = vocabulary()
    codes = [f"E{number}" for number in rng.sample(range(100, 999), 3)]
    causes, fixes = rng.sample(words.causes, 3), rng.sample(words.fixes, 3)
    hours = sorted(rng.sample(range(1, 24), 5 if hard else 4))
    parts = [rng.choice(words.parts[split]) for _ in hours]
    logged = [codes[place % (2 if hard else 3)] for place in range(len(hours))]
    first, _ = rng.sample(range(len(hours)), 2)
    log = "\n".join(f"{hour:02d}:00 {part} {code}" for hour, part, code in zip(hours, parts, logged, strict=True))
    other = next((at for at in range(len(hours)) if at != first and logged[at] == logged[first]), first)

    def submission(known: dict[str, Value]) -> dict[str, Value]:
        number = codes.index(str(known["code"]))
        at = next(i for i, hour in enumerate(hours) if hour == known["since"] and logged[i] == known["code"])
        return {"component": parts[at], "cause": causes[number], "fix": fixes[number]}

    values: dict[str, Value] = {"log": log}
    for number, (code, cause, fix) in enumerate(zip(codes, causes, fixes, strict=True)):
        values |= {f"code_{number}": code, f"cause_{number}": cause, f"fix_{number}": fix}
    facts: dict[str, Value] = {"code": logged[first], "since": hours[first]}
    return _Order(facts, ("since", hours[other]), values, submission)


def _alert(rng: Random, split: str, hard: bool) -> _Order:
    words = vocabulary()
    metric_of = dict(zip(words.harms, rng.sample(words.metrics, 3), strict=True))
    teams = words.teams[split]
    channel_of = dict(zip(teams, rng.sample(words.channels, 3), strict=True))
    percent = rng.choice((50, 80, 90))
    limit, later = rng.sample(range(100, 1000, 10), 2)

    def submission(known: dict[str, Value]) -> dict[str, Value]:
        most = int(known["limit"])
        return {
            "metric": metric_of[str(known["harm"])],
            "threshold": most * percent // 100 if hard else most,
            "channel": channel_of[str(known["team"])],
        }

    values: dict[str, Value] = {
        "percent": percent,
        "metrics": ", ".join(f"{harm}: {metric}" for harm, metric in metric_of.items()),
        "channels": ", ".join(f"{team}: {channel}" for team, channel in channel_of.items()),
    }
    facts: dict[str, Value] = {"harm": rng.choice(words.harms), "limit": limit, "team": rng.choice(teams)}
    return _Order(facts, ("limit", later), values, submission)


_ORDERS: dict[str, Callable[[Random, str, bool], _Order]] = {
    "deployment": _deployment,
    "backup": _backup,
    "incident": _incident,
    "alert": _alert,
}


def build(key: TaskKey) -> Scenario:
    """Return the scenario of a task; the same key gives the same scenario."""
    rng, split, hard = FAMILY.rng(key), key.split, key.difficulty == "hard"
    words, texts = vocabulary(), vocabulary().orders[key.type]
    service = rng.choice(words.services[split])
    order = _ORDERS[key.type](rng, split, hard)
    name, later = order.corrected
    corrects = hard and later != order.facts[name]
    facts: list[Fact] = [
        words.fact_kind(fact).fact(split, value, later if corrects and fact == name else None)
        for fact, value in order.facts.items()
    ]
    opened = facts[:1] if key.difficulty == "easy" else []
    opening = texts.opening.render(split, service=service)
    values = {**order.values, "service": service}
    values["hard_rule"] = texts.hard_rule.format(**values) if hard else ""
    submission = order.submission(order.facts)
    return Scenario(
        split=split,
        difficulty=key.difficulty,
        opening=" ".join([opening, *(fact.sentence for fact in opened)]),
        goal=f"{opening} You talk to an engineer who will hand in what you need.",
        expected=SuccessConditions(submission=submission),
        changed=SuccessConditions(submission=order.submission({**order.facts, name: later})) if corrects else None,
        facts=tuple(facts),
        opened=frozenset(fact.name for fact in opened),
        needed=frozenset(order.facts),
        vague=frozenset((facts[-1].name,)) if hard and rng.random() < 0.5 else frozenset(),
        library=texts.library(values),
        files={texts.path.format(**values): texts.file.format(**values)},
        fields=tuple(submission),
    )
