"""`quintain/conversation`: a support desk. A customer wants to know, change, cancel or get back; rules say what may be done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from quintain.environments.conversation.desk_wording import (
    BUSINESSES,
    CANCEL,
    ITEM,
    METHOD,
    METHODS,
    NAME,
    NO_NUMBER,
    NUMBER,
    PEOPLE,
    POLICIES,
    REASON,
    REFUND,
    VAGUE,
    Business,
)
from quintain.environments.conversation.scenario import (
    Document,
    Due,
    Expected,
    Fact,
    FactKind,
    Records,
    Scenario,
    Value,
    document,
    pick,
)
from quintain.environments.families import Family, TaskKey

FAMILY = Family("conversation", "quintain/conversation", "1", ("question", "change", "cancel", "refund"))
SYSTEM_PROMPT = (
    "You serve customers at a support desk. Talk to the customer with respond, find the record, read the policy before you "
    "change anything, and tell the customer the outcome. The customer leaves when you say goodbye. Call one tool a turn."
)

_DENIED = 0.35
"""Share of the medium and hard wishes that the rules refuse."""
_OTHERS = 2
_LOOKALIKES = {"easy": 0, "medium": 1, "hard": 2}
"""Other records of the same customer."""


class _Desk:
    """Draws one case: the customer, the record, the rules, and what follows from them."""

    def __init__(self, rng: Random, key: TaskKey) -> None:
        self.rng, self.key, self.split, self.type = rng, key, key.split, key.type
        self.business = BUSINESSES[0] if key.type == "refund" else rng.choice(BUSINESSES)
        easy, hard = key.difficulty == "easy", key.difficulty == "hard"
        self.is_denied = not easy and key.type != "question" and rng.random() < _DENIED
        self.is_handed_over = hard and key.type == "refund" and not self.is_denied and rng.random() < _DENIED
        self.changes_mind = hard and not self.is_denied and not self.is_handed_over and key.type != "question"
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
        self.customer, *self.strangers = _names(rng, key.split, 1 + _OTHERS)
        self.items = rng.sample(self.business.items[key.split], 1 + _LOOKALIKES[key.difficulty])

    @property
    def amount(self) -> int:
        """What is paid back."""
        return self._amounts[(self.age >= self.days) if self.type == "cancel" else self.reason]

    @property
    def _amounts(self) -> dict[str | bool, int]:
        """What is paid back in each case."""
        if self.type == "cancel":
            return {True: self.price * self.high // 100, False: self.price * self.low // 100}
        return {"broken": self.price, "late": self.price * self.late // 100, "unwanted": self.price - self.fee}

    def records(self) -> Records:
        """The customer's record, others of the same customer, and others."""
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
        """The rules, with the numbers of this case."""
        above = self.rng.randrange(0, 60, 10)
        limit = self.amount - 10 - above if self.is_handed_over else self.amount + above
        numbers = {
            "open": self.business.open,
            "fee": self.fee,
            "days": self.days,
            "high": self.high,
            "low": self.low,
            "late": self.late,
            "limit": max(limit, 1),
        }
        return tuple(document(topic, text.format(**numbers)) for topic, text in POLICIES.items())

    def wish(self) -> FactKind:
        """What the customer says that they want."""
        return {
            "question": self.business.wonders,
            "change": self.business.wants_change,
            "cancel": CANCEL[self.business.noun],
            "refund": REFUND,
        }[self.type]

    def choice(self, records: Records) -> tuple[FactKind, list[str]]:
        """What the customer has to choose, and what they choose at first and in the end."""
        if self.type != "change":
            return METHOD, self.rng.sample(METHODS, 2)
        business: Business = self.business
        others = [value for value in business.values[self.split] if value != records[self.number][business.field]]
        return business.change, self.rng.sample(others, 2)

    def expected(self, records: Records, chosen: str) -> Expected:
        """What must hold at the end, when the customer chooses so."""
        record = records[self.number]
        due = self._due(records)
        if self.is_handed_over:
            return Expected(sources=due.sources, records=records, transferred=True)
        sets: dict[str, Value] = {}
        if self.type == "change" and not self.is_denied:
            sets = {self.business.field: chosen}
        elif self.type != "question" and not self.is_denied:
            sets = {"refund": self.amount, "refund_to": chosen}
            if self.type == "cancel":
                sets["status"] = "cancelled"
        return Expected((due,), due.sources, records={**records, self.number: {**record, **sets}})

    def _due(self, records: Records) -> Due:
        """What the customer has to be told; who says what stands in another record too, or other amounts, says nothing."""
        record, business = records[self.number], self.business
        if self.type == "question":
            others = [other[business.detail] for other in records.values() if other["customer"] == self.customer]
            return self._told(record, record[business.detail], others, frozenset((self.number,)))
        sources = frozenset((self.number, self.type))
        if self.is_denied and self.type != "refund":
            closed = tuple(other.closed for other in BUSINESSES if other is not business)
            return Due(business.closed, sources, closed, refuses=True)
        if self.is_denied:
            return Due(self.days, sources, refuses=True)
        if self.type == "change":
            return Due(self.fee, sources)
        return self._told(record, self.amount, self._amounts.values(), sources)

    def _told(self, record: Mapping[str, Value], value: Value, others: Iterable[Value], sources: frozenset[str]) -> Due:
        """A value and its rivals, less those that stand in the record or the rules in another sense."""
        known = {value, *record.values(), self.days, self.fee, self.high, self.low, self.late}
        return Due(value, sources, tuple(other for other in others if other not in known))


def build(key: TaskKey) -> Scenario:
    """The talk of a task; same key, same talk."""
    rng = FAMILY.rng(key)
    desk = _Desk(rng, key)
    records = desk.records()
    kind, (first, last) = desk.choice(records)
    wish = desk.wish()
    split = key.split
    facts: list[Fact] = [
        wish.fact(split, ""),
        (NUMBER if desk.has_number else NO_NUMBER).fact(split, desk.number if desk.has_number else ""),
        NAME.fact(split, desk.customer),
        ITEM.fact(split, desk.items[0]),
    ]
    if key.type == "refund":
        facts.append(REASON.fact(split, desk.reason))
    if key.type != "question":
        facts.append(kind.fact(split, first, last if desk.changes_mind else None))
    opened = {"easy": ("wish", "number", "reason"), "medium": ("wish",), "hard": ()}[key.difficulty]
    told = [fact.says for fact in facts if fact.name in opened]
    needed = {"reason"} if key.type == "refund" else set()
    if not (desk.is_denied or desk.is_handed_over or key.type == "question"):
        needed.add("choice")
    return Scenario(
        split=split,
        difficulty=key.difficulty,
        opening=" ".join(told) or VAGUE.says(split, desk.business.noun),
        goal=f"{wish.says(split, '')} You talk to a support desk.",
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


def _names(rng: Random, split: str, n: int) -> list[str]:
    people = PEOPLE[split]
    pairs = [f"{first} {last}" for first in people[:8] for last in people[8:]]
    return rng.sample(pairs, n)
