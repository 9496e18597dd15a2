"""`quintain/engineering`: clarify what a client needs or what went wrong, look up the rest, and hand in a plan or a diagnosis.

Each field of what is handed in follows from facts that the client knows and from rules that stand in the knowledge base or in a file.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from quintain.environments.conversation.scenario import (
    Document,
    Expected,
    Fact,
    FactKind,
    Scenario,
    Value,
    document,
)
from quintain.environments.families import Family, TaskKey

SYSTEM_PROMPT = (
    "You are an engineer. Look up the template of what is to be handed in, ask the client for what only they know with respond, "
    "look up the rest in the knowledge base and in files, and end with submit. Call one tool a turn."
)

USERS = FactKind(
    "users",
    "how many users there are",
    "users load traffic concurrent",
    "We expect {value} users at the same time.",
    "At most {value} people use it at once.",
)
COUNTRY = FactKind(
    "country",
    "where our customers are",
    "where country countries region customers location located",
    "Our customers are in {value}.",
    "The people who use it live in {value}.",
)
SPARE = FactKind(
    "spare",
    "what may fail",
    "spare fail failure failures redundancy availability tolerance",
    "It has to run on when {value} of them fail.",
    "Even with {value} down it has to stay up.",
)
LOSS = FactKind(
    "loss",
    "how much work may be lost",
    "loss lose lost recovery often frequency frequently schedule",
    "At most {value} hours of work may be lost.",
    "We can bear to lose {value} hours of work.",
)
KEEP = FactKind(
    "keep",
    "how far back we want to go",
    "keep kept retention retain retained long days far history",
    "We want to go back {value} days.",
    "Backups of the last {value} days should be there.",
)
DATA = FactKind(
    "data",
    "what data it is",
    "personal public sensitive confidential kind type",
    "The data is {value}.",
    "What we store is {value}.",
)
CODE = FactKind(
    "code",
    "the error code",
    "error code message shown",
    "It shows the error {value}.",
    "The code on the screen is {value}.",
)
SINCE = FactKind(
    "since",
    "since when",
    "when since time start started begin began",
    "It began at {value} o'clock.",
    "We have seen it from {value} o'clock on.",
)
HARM = FactKind(
    "harm",
    "what hurts us",
    "hurt hurts matters worry watch watched monitor metric symptom symptoms alerted",
    "What hurts us is {value}.",
    "We suffer from {value}.",
)
LIMIT = FactKind(
    "limit",
    "how much is too much",
    "much threshold limit level above value",
    "More than {value} is too much.",
    "Above {value} we cannot work.",
)
TEAM = FactKind(
    "team",
    "who is on duty",
    "who team duty wake woken notify notified",
    "On duty is {value}.",
    "The one to wake is {value}.",
)

SERVICES = {
    "train": ("checkout", "search", "mailer", "billing", "catalog", "profile", "wishlist", "invoice"),
    "held_out": ("ledger", "gallery", "planner", "courier", "archive", "roster"),
}
COUNTRIES = {
    "train": ("Norway", "Spain", "Japan", "Brazil", "Kenya", "Canada"),
    "held_out": ("Finland", "Italy", "Korea", "Chile", "Ghana", "Mexico"),
}
REGIONS = ("north-1", "south-2", "east-3", "west-4", "mid-5", "far-6")
PARTS = {
    "train": ("cache", "database", "queue", "proxy", "scheduler", "login"),
    "held_out": ("gateway", "indexer", "mirror", "broker", "resolver"),
}
CAUSES = ("full disk", "expired certificate", "memory leak", "lost connection", "wrong password", "slow query")
FIXES = ("rotate logs", "renew certificate", "restart process", "open firewall", "update secret", "add index")
HARMS = ("slow answers", "failed requests", "full disks")
METRICS = ("latency_ms", "error_rate", "disk_percent", "wait_ms", "fail_count", "used_percent")
TEAMS = {"train": ("team Falcon", "team Otter", "team Badger"), "held_out": ("team Heron", "team Lynx", "team Marten")}
CHANNELS = ("pager", "chat", "phone", "mail", "radio", "board")


ASKS = {
    "deployment": ("We want to deploy the service {service}.", "The service {service} has to go live."),
    "backup": ("We need backups of the service {service}.", "The data of {service} has to be backed up."),
    "incident": ("The service {service} fails.", "Something is wrong with {service}."),
    "alert": ("We want an alert for the service {service}.", "Somebody should be woken when {service} is in trouble."),
}
"""What clients say first, in each split, with `{service}`."""


class Brief(NamedTuple):
    """One order: what it is, what the client knows, what can be looked up, and the fields that follow."""

    facts: list[tuple[FactKind, Value]]
    corrects: tuple[str, Value]
    """A fact, and what the client says later that it is."""
    library: list[Document]
    files: dict[str, str]
    result: Callable[[dict[str, Value]], dict[str, Value]]
    """Facts -> what is to be handed in."""


def _deployment(rng: Random, split: str, service: str, hard: bool) -> Brief:
    countries, regions = rng.sample(COUNTRIES[split], 3), rng.sample(REGIONS, 3)
    each, port = rng.randrange(50, 450, 50), rng.randrange(3000, 9000)
    users, more = rng.sample(range(100, 3000, 70), 2)
    region_of = dict(zip(countries, regions, strict=True))
    facts: list[tuple[FactKind, Value]] = [(USERS, users), (COUNTRY, rng.choice(countries))]
    if hard:
        facts.append((SPARE, rng.randint(1, 3)))
    spare = " Add one replica for each that may fail: ask the client how many." if hard else ""
    served = ", ".join(f"{country} from {region}" for country, region in region_of.items())

    def result(known: dict[str, Value]) -> dict[str, Value]:
        replicas = -(-int(known["users"]) // each) + int(known.get("spare", 0))
        return {"replicas": replicas, "region": region_of[str(known["country"])], "port": port}

    return Brief(
        facts,
        ("users", more),
        [
            document(
                "deployment template",
                "Deployment template: hand in replicas, region, port. See sizing and regions; the port stands in "
                f"services/{service}.toml.",
                "deploy service live",
            ),
            document(
                "sizing",
                f"Sizing: one replica serves {each} users at the same time; round up.{spare}",
                "replicas users",
            ),
            document("regions", f"Regions: customers are served, by country, {served}.", "region country"),
        ],
        {f"services/{service}.toml": f'name = "{service}"\nworkers = {rng.randint(2, 9)}\nport = {port}\n'},
        result,
    )


def _backup(rng: Random, split: str, service: str, hard: bool) -> Brief:
    few, some = rng.randint(1, 6), rng.randint(12, 30)
    law = rng.randrange(20, 100, 10)
    bucket, vault = f"bucket-{rng.randint(10, 99)}", f"vault-{rng.randint(10, 99)}"
    kinds = ("personal", "public")
    facts: list[tuple[FactKind, Value]] = [
        (LOSS, rng.randint(1, 48)),
        (KEEP, rng.randrange(7, 130, 3)),
        (DATA, rng.choice(kinds)),
    ]
    lawful = f" Personal data is kept for {law} days at most, whatever the client wants." if hard else ""

    def result(known: dict[str, Value]) -> dict[str, Value]:
        loss, keep = int(known["loss"]), int(known["keep"])
        personal = known["data"] == "personal"
        return {
            "schedule": "hourly" if loss <= few else "nightly" if loss <= some else "weekly",
            "retention_days": min(keep, law) if hard and personal else keep,
            "target": vault if personal else bucket,
        }

    return Brief(
        facts,
        ("loss", rng.randint(1, 48)),
        [
            document(
                "backup template",
                "Backup template: hand in schedule, retention_days, target. See schedules and storage; targets stand in "
                f"backup/{service}.toml.",
                "backups backed data",
            ),
            document(
                "schedules",
                f"Schedules: if at most {few} hours of work may be lost, hourly; up to {some} hours, nightly; else weekly. Retention is "
                f"as many days as the client wants to go back.{lawful}",
                "schedule retention retention_days loss",
            ),
            document(
                "storage", "Storage: personal data goes to the vault, public data to the bucket.", "target vault bucket"
            ),
        ],
        {f"backup/{service}.toml": f'bucket = "{bucket}"\nvault = "{vault}"\n'},
        result,
    )


def _incident(rng: Random, split: str, service: str, hard: bool) -> Brief:
    codes = [f"E{number}" for number in rng.sample(range(100, 999), 3)]
    causes, fixes = rng.sample(CAUSES, 3), rng.sample(FIXES, 3)
    hours = sorted(rng.sample(range(1, 24), 5 if hard else 4))
    parts = [rng.choice(PARTS[split]) for _ in hours]
    shown = [codes[place % (2 if hard else 3)] for place in range(len(hours))]
    places = rng.sample(range(len(hours)), 2)
    log = "\n".join(f"{hour:02d}:00 {part} {code}" for hour, part, code in zip(hours, parts, shown, strict=True))
    known_of = {code: (cause, fix) for code, cause, fix in zip(codes, causes, fixes, strict=True)}
    other = next((at for at in range(len(hours)) if at != places[0] and shown[at] == shown[places[0]]), places[0])

    def result(known: dict[str, Value]) -> dict[str, Value]:
        cause, fix = known_of[str(known["code"])]
        at = next(i for i, hour in enumerate(hours) if hour == known["since"] and shown[i] == known["code"])
        return {"component": parts[at], "cause": cause, "fix": fix}

    return Brief(
        [(CODE, shown[places[0]]), (SINCE, hours[places[0]])],
        ("since", hours[other]),
        [
            document(
                "incident template",
                "Incident template: hand in component, cause, fix. See the error code here; the component is the one that logged "
                f"this code when it began, in logs/{service}.log.",
                "fails wrong error failure diagnosis",
            ),
            *(document(code, f"{code}: cause: {cause}; fix: {fix}.") for code, (cause, fix) in known_of.items()),
        ],
        {f"logs/{service}.log": log},
        result,
    )


def _alert(rng: Random, split: str, service: str, hard: bool) -> Brief:
    metric_of = dict(zip(HARMS, rng.sample(METRICS, 3), strict=True))
    teams = TEAMS[split]
    channel_of = dict(zip(teams, rng.sample(CHANNELS, 3), strict=True))
    percent = rng.choice((50, 80, 90))
    limit, later = rng.sample(range(100, 1000, 10), 2)
    rule = f" The threshold is {percent} percent of what is too much for the client." if hard else ""

    def result(known: dict[str, Value]) -> dict[str, Value]:
        most = int(known["limit"])
        return {
            "metric": metric_of[str(known["harm"])],
            "threshold": most * percent // 100 if hard else most,
            "channel": channel_of[str(known["team"])],
        }

    metrics = ", ".join(f"{harm}: {metric}" for harm, metric in metric_of.items())
    channels = ", ".join(f"{team}: {channel}" for team, channel in channel_of.items())
    return Brief(
        [(HARM, rng.choice(HARMS)), (LIMIT, limit), (TEAM, rng.choice(teams))],
        ("limit", later),
        [
            document(
                "alert template",
                "Alert template: hand in metric, threshold, channel. See metrics and channels.",
                "alerts woken trouble threshold",
            ),
            document("metrics", f"Metrics: {metrics}.{rule}", "metric"),
            document("channels", f"Channels: {channels}.", "channel team"),
        ],
        {f"services/{service}.toml": f'name = "{service}"\n'},
        result,
    )


_BRIEFS: dict[str, Callable[[Random, str, str, bool], Brief]] = {
    "deployment": _deployment,
    "backup": _backup,
    "incident": _incident,
    "alert": _alert,
}
FAMILY = Family("engineering", "quintain/engineering", "1", tuple(_BRIEFS))


def build(key: TaskKey) -> Scenario:
    """The talk of a task; same key, same talk."""
    rng, split, hard = FAMILY.rng(key), key.split, key.difficulty == "hard"
    service = rng.choice(SERVICES[split])
    brief = _BRIEFS[key.type](rng, split, service, hard)
    known: dict[str, Value] = {kind.name: value for kind, value in brief.facts}
    name, later = brief.corrects
    corrects = hard and later != known[name]
    facts: list[Fact] = [
        kind.fact(split, value, later if corrects and kind.name == name else None) for kind, value in brief.facts
    ]
    opened = facts[:1] if key.difficulty == "easy" else []
    asks = ASKS[key.type][split == "held_out"].format(service=service)
    result = brief.result(known)
    return Scenario(
        split=split,
        difficulty=key.difficulty,
        opening=" ".join([asks, *(fact.says for fact in opened)]),
        goal=f"{asks} You talk to an engineer who will hand in what you need.",
        expected=Expected(handed_in=result),
        changed=Expected(handed_in=brief.result({**known, name: later})) if corrects else None,
        facts=tuple(facts),
        opened=frozenset(fact.name for fact in opened),
        needed=frozenset(known),
        vague=frozenset((facts[-1].name,)) if hard and rng.random() < 0.5 else frozenset(),
        library=tuple(brief.library),
        files=brief.files,
        fields=tuple(result),
    )
