"""`quintain/conversation`: a support desk. Customers ask, change, cancel or want a refund, and policies decide what they get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from random import Random
from typing import NamedTuple

from pydantic.dataclasses import dataclass

from quintain.environments.conversation.scenario import (
    Document,
    Fact,
    FactKind,
    Records,
    Scenario,
    SplitNames,
    Statement,
    SuccessConditions,
    Value,
    Wording,
    document,
    pick,
)
from quintain.environments.data_files import read_data
from quintain.environments.tasks.families import Family, TaskKey

FAMILY = Family("conversation", "quintain/conversation", "1", ("question", "change", "cancel", "refund"))
SYSTEM_PROMPT = (
    "You serve customers at a support desk. Talk to the customer with respond, find the record, read the policy before you "
    "change anything, and tell the customer the outcome. The customer leaves when you say goodbye. Call one tool a turn."
)

_DENIED = 0.35
"""Share of the medium and hard requests that the policy refuses."""
_OTHER_CUSTOMERS = 2
_LOOKALIKES = {"easy": 0, "medium": 1, "hard": 2}
"""Difficulty -> other records of the same customer."""


class People(NamedTuple):
    """Names of customers in one split."""

    first_names: tuple[str, ...]
    last_names: tuple[str, ...]


class Requests(NamedTuple):
    """Wishes of customers, in their words."""

    label: str
    words: str
    refund: Wording
    cancel: Wording
    """With the business's noun as `{value}`."""
    vague: Wording
    """Opening that only names the business, as `{value}`."""


@dataclass(frozen=True)
class Business:
    """A kind of record, such as an order."""

    prefix: str
    """Prefix of record ids."""
    open: str
    """Status in which the record can be changed."""
    closed: str
    items: SplitNames
    field: str
    """Field that customers want to change."""
    values: SplitNames
    change: FactKind
    """The new value of that field."""
    detail: str
    """Field that customers ask for."""
    asks_detail: Wording
    wants_change: Wording


@dataclass(frozen=True)
class DeskTexts:
    """Customers, businesses, policies and sentences of the support desk."""

    people: dict[str, People]
    refund_methods: tuple[str, ...]
    policies: dict[str, str]
    facts: dict[str, FactKind]
    wishes: Requests
    businesses: dict[str, Business]

    def fact_kind(self, name: str) -> FactKind:
        """Return the kind of fact under its name in a scenario: `no_number` and `method` are variants."""
        return self.facts[name]._replace(name={"no_number": "number", "method": "choice"}.get(name, name))

    def change_kind(self, noun: str) -> FactKind:
        """Return the new value that the customers of a business choose."""
        return self.businesses[noun].change._replace(name="choice")

    def wish(self, noun: str, topic: str) -> FactKind:
        """Return the sentence by which customers of a business make a request."""
        business = self.businesses[noun]
        wordings = {
            "question": business.asks_detail,
            "change": business.wants_change,
            "cancel": Wording(*(text.format(value=noun) for text in self.wishes.cancel)),
            "refund": self.wishes.refund,
        }
        return FactKind(self.wishes.label, self.wishes.words, *wordings[topic], name="wish")


@cache
def desk_texts() -> DeskTexts:
    """Return the texts of the support desk."""
    return read_data("conversation/data/desk.yaml", DeskTexts)


class _Desk:
    """Draws one case: customer, record, policy, and the outcome that follows."""

    def __init__(self, rng: Random, key: TaskKey) -> None:
        self.rng, self.key, self.split, self.type = rng, key, key.split, key.type
        self.texts = desk_texts()
        nouns = list(self.texts.businesses)
        self.noun = nouns[0] if key.type == "refund" else rng.choice(nouns)
        self.business = self.texts.businesses[self.noun]
        easy, hard = key.difficulty == "easy", key.difficulty == "hard"
        self.is_denied = not easy and key.type != "question" and rng.random() < _DENIED
        self.is_transferred = hard and key.type == "refund" and not self.is_denied and rng.random() < _DENIED
        self.changes_mind = hard and not self.is_denied and not self.is_transferred and key.type != "question"
        self.has_number = not hard or rng.random() < 0.5
        self.price = rng.randrange(40, 400, 20)
        self.days = rng.randrange(5, 25)
        self.reason = "unwanted" if self.is_denied else rng.choice(("broken", "late", "unwanted"))
        self.fee = rng.randrange(2, 20)
        self.high, self.low, self.late = rng.choice((75, 90)), rng.choice((10, 25, 50)), rng.choice((10, 25, 50))
        beyond = rng.randint(1, 9)
        self.age = self.days + beyond if self.is_denied or rng.random() < 0.5 else max(1, self.days - beyond)
        if self.reason == "unwanted" and not self.is_denied:
            self.age = max(1, self.days - beyond)
        self.number = f"{self.business.prefix}{rng.randrange(1000, 10_000)}"
        people = self.texts.people[key.split]
        names = [f"{first} {last}" for first in people.first_names for last in people.last_names]
        self.customer, *self.strangers = rng.sample(names, 1 + _OTHER_CUSTOMERS)
        self.items = rng.sample(self.business.items[key.split], 1 + _LOOKALIKES[key.difficulty])

    @property
    def amount(self) -> int:
        """Dollars that are paid back."""
        return self._amounts[(self.age >= self.days) if self.type == "cancel" else self.reason]

    @property
    def _amounts(self) -> dict[str | bool, int]:
        """Dollars that are paid back in each case."""
        if self.type == "cancel":
            return {True: self.price * self.high // 100, False: self.price * self.low // 100}
        return {"broken": self.price, "late": self.price * self.late // 100, "unwanted": self.price - self.fee}

    def records(self) -> Records:
        """Draw the customer's record, others of the same customer, and those of other customers."""
        business, rng = self.business, self.rng
        status = business.closed if self.is_denied and self.type != "refund" else business.open
        drawn = {
            self.number: self._record(self.customer, self.items[0], "delivered" if self.type == "refund" else status)
        }
        drawn[self.number] |= {"price": self.price, self._days_field: self.age}
        for owner, item in [
            *((self.customer, item) for item in self.items[1:]),
            *((stranger, pick(rng, business.items, self.split)) for stranger in self.strangers),
        ]:
            number = f"{business.prefix}{rng.randrange(1000, 10_000)}"
            drawn.setdefault(number, self._record(owner, item, rng.choice((business.open, business.closed))))
        order = rng.sample(list(drawn), len(drawn))
        return {number: drawn[number] for number in order}

    @property
    def _days_field(self) -> str:
        return "days_since_delivery" if self.type == "refund" else "days_left"

    def _record(self, customer: str, item: str, status: str) -> dict[str, Value]:
        rng, business = self.rng, self.business
        return {
            "customer": customer,
            "item": item,
            "price": rng.randrange(40, 400, 20),
            "status": status,
            business.field: pick(rng, business.values, self.split),
            business.detail: rng.randrange(2, 90),
            self._days_field: rng.randrange(1, 40),
            "refund": 0,
            "refund_to": "none",
        }

    def policies(self) -> tuple[Document, ...]:
        """Return the policies with the numbers of this case."""
        above = self.rng.randrange(0, 60, 10)
        limit = self.amount - 10 - above if self.is_transferred else self.amount + above
        numbers = {
            "open": self.business.open,
            "fee": self.fee,
            "days": self.days,
            "high": self.high,
            "low": self.low,
            "late": self.late,
            "limit": max(limit, 1),
        }
        return tuple(document(topic, text.format(**numbers)) for topic, text in self.texts.policies.items())

    def choice(self, records: Records) -> tuple[FactKind, list[str]]:
        """Return what the customer has to choose, with their first and their final choice."""
        if self.type != "change":
            return self.texts.fact_kind("method"), self.rng.sample(self.texts.refund_methods, 2)
        present = records[self.number][self.business.field]
        others = [value for value in self.business.values[self.split] if value != present]
        return self.texts.change_kind(self.noun), self.rng.sample(others, 2)

    def expected(self, records: Records, chosen: str) -> SuccessConditions:
        """Return the conditions of a success for a customer with this choice."""
        record = records[self.number]
        statement = self._statement(records)
        if self.is_transferred:
            return SuccessConditions(sources=statement.sources, records=records, transferred=True)
        updates: dict[str, Value] = {}
        if self.type == "change" and not self.is_denied:
            updates = {self.business.field: chosen}
        elif self.type != "question" and not self.is_denied:
            updates = {"refund": self.amount, "refund_to": chosen}
            if self.type == "cancel":
                updates["status"] = "cancelled"
        return SuccessConditions(
            (statement,), statement.sources, records={**records, self.number: {**record, **updates}}
        )

    def _statement(self, records: Records) -> Statement:
        """Return what the agent has to state; naming the value of another record or other amounts does not count."""
        record, business = records[self.number], self.business
        if self.type == "question":
            others = [other[business.detail] for other in records.values() if other["customer"] == self.customer]
            return self._value_statement(record, record[business.detail], others, frozenset((self.number,)))
        sources = frozenset((self.number, self.type))
        if self.is_denied and self.type != "refund":
            closed = tuple(other.closed for noun, other in self.texts.businesses.items() if noun != self.noun)
            return Statement(business.closed, sources, closed, refuses=True)
        if self.is_denied:
            return Statement(self.days, sources, refuses=True)
        if self.type == "change":
            return Statement(self.fee, sources)
        return self._value_statement(record, self.amount, self._amounts.values(), sources)

    def _value_statement(
        self, record: Mapping[str, Value], value: Value, others: Iterable[Value], sources: frozenset[str]
    ) -> Statement:
        """Return a value with its rivals, without those that record or policy contain in another sense."""
        known = {value, *record.values(), self.days, self.fee, self.high, self.low, self.late}
        return Statement(value, sources, tuple(other for other in others if other not in known))


def build(key: TaskKey) -> Scenario:
    """Return the scenario of a task; the same key gives the same scenario."""
    rng = FAMILY.rng(key)
    desk = _Desk(rng, key)
    texts, split = desk.texts, key.split
    records = desk.records()
    kind, (first, last) = desk.choice(records)
    wish = texts.wish(desk.noun, key.type)
    number = ("number", desk.number) if desk.has_number else ("no_number", "")
    facts: list[Fact] = [
        wish.fact(split, ""),
        texts.fact_kind(number[0]).fact(split, number[1]),
        texts.fact_kind("name").fact(split, desk.customer),
        texts.fact_kind("item").fact(split, desk.items[0]),
    ]
    if key.type == "refund":
        facts.append(texts.fact_kind("reason").fact(split, desk.reason))
    if key.type != "question":
        facts.append(kind.fact(split, first, last if desk.changes_mind else None))
    opened = {"easy": ("wish", "number", "reason"), "medium": ("wish",), "hard": ()}[key.difficulty]
    sentences = [fact.sentence for fact in facts if fact.name in opened]
    needed = {"reason"} if key.type == "refund" else set()
    if not (desk.is_denied or desk.is_transferred or key.type == "question"):
        needed.add("choice")
    return Scenario(
        split=split,
        difficulty=key.difficulty,
        opening=" ".join(sentences) or texts.wishes.vague.render(split, value=desk.noun),
        goal=f"{wish.sentence(split, '')} You talk to a support desk.",
        expected=desk.expected(records, first),
        changed=desk.expected(records, last) if desk.changes_mind else None,
        facts=tuple(facts),
        opened=frozenset(opened) & {fact.name for fact in facts},
        needed=frozenset(needed),
        vague=frozenset(("choice",)) if key.difficulty == "hard" and rng.random() < 0.5 else frozenset(),
        insists=key.difficulty == "hard" and desk.is_denied,
        library=desk.policies(),
        records=records,
    )
