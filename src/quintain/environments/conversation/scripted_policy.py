"""A scripted policy for the four dialogue environments: it reads what any policy reads, and solves every task.

It asks for the facts that only the user knows, looks up the rest, and follows the user's last answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from functools import cache, partial

from quintain.environments.conversation.advisory import Field, fields
from quintain.environments.conversation.discussion import OPENING, topics
from quintain.environments.conversation.engineering import vocabulary
from quintain.environments.conversation.scenario import FactKind, Wording
from quintain.environments.conversation.support_desk import DeskTexts, desk_texts
from quintain.environments.scripted_policy import Move, Script, ScriptedPolicy, pattern_of
from quintain.errors import InvalidInput


def _script(prompt: str) -> Script:
    if any(prompt.startswith(text.format(kind=kind)) for kind in topics() for text in OPENING):
        return _discuss(prompt)
    for field in fields().values():
        if prompt.startswith(field.opening):
            return _advise(field, prompt)
    texts = desk_texts()
    for noun in texts.businesses:
        vague = [text.format(value=noun) for text in texts.wishes.vague]
        if (topic := _topic(texts, noun, prompt)) or prompt in vague:
            return _serve(texts, noun, topic, prompt)
    if any(opening.search(prompt) for opening in _order_openings()):
        return _engineer(prompt)
    raise InvalidInput(
        f"expected the opening of a built-in dialogue, got {prompt[:80]!r}; take tasks from the environment's own splits"
    )


def _say(thought: str, message: str) -> Move:
    return Move(thought, "respond", {"message": message})


class _Notes:
    """Facts that the user has stated, the last value of each."""

    def __init__(self, kinds: Iterable[FactKind]) -> None:
        self.kinds = {kind.name: kind for kind in kinds}
        self.values: dict[str, str] = {}

    def read(self, text: str) -> bool:
        """Record the facts that a text states, and return whether a value is new."""
        before = dict(self.values)
        for name, kind in self.kinds.items():
            if (value := kind.read(text)) is not None:
                self.values[name] = value
        return self.values != before

    def ask(self, name: str, question: str) -> Generator[Move, str, None]:
        """Ask until the fact is known."""
        while name not in self.values:
            self.read((yield _say(f"The {name} is not known yet.", question)))


# The support desk


def _topic(texts: DeskTexts, noun: str, text: str) -> str | None:
    topics = ("question", "change", "cancel", "refund")[: 4 if noun == next(iter(texts.businesses)) else 3]
    wishes = {topic: texts.wish(noun, topic) for topic in topics}
    return next((topic for topic, wish in wishes.items() if wish.train in text or wish.held_out in text), None)


def _serve(texts: DeskTexts, noun: str, topic: str | None, prompt: str) -> Script:
    while topic is None:
        answer = yield _say("I do not know yet what they want.", "How can I help you?")
        topic = _topic(texts, noun, answer)
    kinds = [texts.fact_kind(name) for name in ("number", "name", "item", "reason", "method")]
    notes = _Notes([*kinds, *([texts.change_kind(noun)] if topic == "change" else [])])
    notes.read(prompt)
    number = yield from _number(notes)
    record = _fields((yield Move("Look at the record.", "get_record", {"record_id": number})))
    policy = _policy(topic, (yield Move("Look up the rules.", "get_policy", {"topic": topic})))
    business = texts.businesses[noun]
    if topic == "question":
        yield from _leave(f"It is {record[business.detail]}.")
        return
    if topic == "refund":
        yield from notes.ask("reason", "What is the reason?")
    verdict = _decide(topic, record, policy, notes.values.get("reason", ""))
    if verdict is None:
        yield Move("This is above my limit.", "transfer_to_human_agents", {"reason": "The amount is above my limit."})
    elif isinstance(verdict, str):
        yield from _leave(f"I am sorry, this is not possible: {verdict}.")
    else:
        question = "What is the new value: which address, date or plan?" if topic == "change" else "As card or voucher?"
        yield from notes.ask("choice", question)
        yield from _carry_out(business.field, topic, number, notes, verdict)


def _number(notes: _Notes) -> Generator[Move, str, str]:
    if "number" not in notes.values:
        notes.read((yield _say("I need the number.", "What is the number?")))
    if "number" not in notes.values:
        yield from notes.ask("item", "What is your name, and which item is it?")
        found = yield Move("Search by the name.", "find_records", {"name": notes.values["name"]})
        line = next(line for line in found.splitlines() if line.endswith(f" {notes.values['item']}"))
        notes.values["number"] = line.split()[0]
    return notes.values["number"]


def _decide(topic: str, record: dict[str, str], policy: dict[str, str], reason: str) -> int | str | None:
    """Return the fee or refund in dollars, or why the request is refused; None: it is above the agent's limit."""
    if topic != "refund" and record["status"] != policy["open"]:
        return f"the status is {record['status']}"
    price, days = int(record["price"]), int(policy.get("days", 0))
    if topic == "change":
        return int(policy["fee"])
    if topic == "cancel":
        return price * int(policy["high" if int(record["days_left"]) >= days else "low"]) // 100
    if reason == "unwanted" and int(record["days_since_delivery"]) > days:
        return f"it is only possible up to {days} days after delivery"
    amounts = {"broken": price, "late": price * int(policy["late"]) // 100, "unwanted": price - int(policy["fee"])}
    return None if amounts[reason] > int(policy["limit"]) else amounts[reason]


def _carry_out(changed_field: str, topic: str, number: str, notes: _Notes, amount: int) -> Script:
    chosen = notes.values["choice"]
    field = changed_field if topic == "change" else "refund_to"
    sets: dict[str, str | int] = {} if topic == "change" else {"refund": amount}
    if topic == "cancel":
        sets["status"] = "cancelled"
    for name, value in {**sets, field: chosen}.items():
        yield Move(f"Set {name}.", "update_record", {"record_id": number, "field": name, "value": value})
    # This ends the dialogue unless the customer changes their mind.
    answer = yield _say("Tell the amount.", f"It is done. The amount is {amount} dollars. Is there anything else?")
    while notes.read(answer):
        value = notes.values["choice"]
        yield Move("They want it otherwise.", "update_record", {"record_id": number, "field": field, "value": value})
        answer = yield _say("Tell them.", "I have set it to that. Goodbye.")


def _leave(statement: str) -> Script:
    answer = yield _say("Tell them.", f"{statement} Is there anything else?")
    while answer:
        answer = yield _say("It stays so.", f"{statement} Goodbye.")


def _fields(record: str) -> dict[str, str]:
    return dict(part.split(" ", 1) for part in record.partition(": ")[2].split(", "))


def _policy(topic: str, text: str) -> dict[str, str]:
    match = re.fullmatch(pattern_of(desk_texts().policies[topic]), text)
    assert match is not None
    return match.groupdict()


# Engineering


@cache
def _order_openings() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern_of(text)) for order in vocabulary().orders.values() for text in order.opening)


def _engineer(prompt: str) -> Script:
    service = next(match["service"] for opening in _order_openings() if (match := opening.search(prompt)))
    notes = _Notes(vocabulary().fact_kind(name) for name in vocabulary().facts)
    notes.read(prompt)
    template = yield Move("See what is handed in.", "knowledge_base", {"query": "template"})
    script = {
        "Deployment": _plan_deployment,
        "Backup": _plan_backup,
        "Incident": _diagnose,
        "Alert": _plan_alert,
    }[template.split()[0]]
    result = yield from script(service, notes)
    yield Move("That is all of it.", "submit", {"fields": result})


def _look_up(query: str) -> Move:
    return Move(f"Look up {query}.", "knowledge_base", {"query": query})


def _file(path: str) -> Move:
    return Move("See the file.", "read_file", {"path": path})


def _settled(notes: _Notes) -> Generator[Move, str, None]:
    """Let the client correct a fact."""
    notes.read((yield _say("Make sure.", "Thank you. Is there anything else?")))


Result = Generator[Move, str, dict[str, str | int]]


def _plan_deployment(service: str, notes: _Notes) -> Result:
    yield from notes.ask("users", "How many users are there at the same time?")
    yield from notes.ask("country", "Where are your customers?")
    sizing = yield _look_up("sizing")
    if "spare" in sizing or "may fail" in sizing:
        yield from notes.ask("spare", "How many may fail?")
    regions = yield _look_up("regions")
    path = f"services/{service}.toml"
    port = re.findall(r"port = (\d+)", (yield _file(path)))[0]
    yield from _settled(notes)
    each = int(re.findall(r"serves (\d+)", sizing)[0])
    region = re.findall(rf"{notes.values['country']} from ([\w-]+)", regions)[0]
    replicas = -(-int(notes.values["users"]) // each) + int(notes.values.get("spare", 0))
    return {"replicas": replicas, "region": region, "port": int(port)}


def _plan_backup(service: str, notes: _Notes) -> Result:
    yield from notes.ask("loss", "How many hours of work may be lost?")
    yield from notes.ask("keep", "How far back do you want to go, in days?")
    yield from notes.ask("data", "What kind of data is it: personal or public?")
    rules = yield _look_up("schedules")
    targets = yield _file(f"backup/{service}.toml")
    yield from _settled(notes)
    loss, keep, data = int(notes.values["loss"]), int(notes.values["keep"]), notes.values["data"]
    few, some = map(int, re.findall(r"(\d+) hours", rules))
    law = re.findall(r"kept for (\d+) days", rules)
    if law and data == "personal":
        keep = min(keep, int(law[0]))
    place = "vault" if data == "personal" else "bucket"
    return {
        "schedule": "hourly" if loss <= few else "nightly" if loss <= some else "weekly",
        "retention_days": keep,
        "target": re.findall(rf'{place} = "([^"]+)"', targets)[0],
    }


def _diagnose(service: str, notes: _Notes) -> Result:
    yield from notes.ask("code", "Which error code is shown?")
    yield from notes.ask("since", "Since when?")
    log = yield _file(f"logs/{service}.log")
    yield from _settled(notes)
    code, since = notes.values["code"], int(notes.values["since"])
    about = yield _look_up(code)
    cause, fix = re.findall(r"cause: ([^;]+); fix: ([^.]+)\.", about)[0]
    return {"component": re.findall(rf"{since:02d}:00 (\w+) {code}", log)[0], "cause": cause, "fix": fix}


def _plan_alert(service: str, notes: _Notes) -> Result:
    yield from notes.ask("harm", "What hurts you?")
    yield from notes.ask("limit", "How much is too much?")
    yield from notes.ask("team", "Who is on duty?")
    metrics = yield _look_up("metrics")
    channels = yield _look_up("channels")
    yield from _settled(notes)
    limit, percent = int(notes.values["limit"]), re.findall(r"(\d+) percent of what", metrics)
    return {
        "metric": re.findall(rf"{notes.values['harm']}: (\w+)", metrics)[0],
        "threshold": limit * int(percent[0]) // 100 if percent else limit,
        "channel": re.findall(rf"{notes.values['team']}: (\w+)", channels)[0],
    }


# Advice


def _advise(field: Field, prompt: str) -> Script:
    notes = _Notes(prop.wish for prop in field.properties)
    notes.read(prompt)
    found = yield Move("See what there is.", "knowledge_base", {"query": "all options"})
    options = {name: _fields(f"{name}: {rest}") for name, rest in (line.split(": ", 1) for line in found.splitlines())}
    unknown = [prop for prop in field.properties if prop.name not in notes.values]
    for prop in unknown:
        answer = ""
        while prop.name not in notes.values and not _is_indifferent(prop.indifference, answer):
            answer = yield _say(f"The {prop.name} may matter.", f"What about the {prop.name}?")
            notes.read(answer)
    while True:
        wanted = [(prop, notes.values[prop.name]) for prop in field.properties if prop.name in notes.values]
        best = next(name for name, has in options.items() if all(prop.fits(v, has[prop.name]) for prop, v in wanted))
        answer = yield _say(f"{best} fits.", f"I recommend {best}.")
        if not notes.read(answer):
            break
    yield Move("They are content.", "submit", {"option": best})


def _is_indifferent(kind: FactKind, answer: str) -> bool:
    return kind.train in answer or kind.held_out in answer


# Discussions


def _discuss(prompt: str) -> Script:
    answer = prompt
    agreed: dict[str, int] = {}
    while (claim := _claim_in(answer)) is not None:
        point, value = claim
        found = yield Move("Look it up.", "knowledge_base", {"query": point})
        truth, source = re.findall(r": (\d+) .*\(source: ([^)]+)\)", found.splitlines()[0])[0]
        agreed[point] = int(truth)
        if int(truth) == value:
            answer = yield _say("They are right.", f"I agree, {truth} is right.")
        else:
            answer = yield _say("They are wrong.", f"No, it is {truth}; so says the {source}.")
    yield Move("That is all.", "submit", {"agreed": agreed})


def _claim_in(message: str) -> tuple[str, int] | None:
    for name, measure, pattern in _claims():
        if match := pattern.search(message):
            return f"{name} {measure}", int(match["value"])
    return None


@cache
def _claims() -> list[tuple[str, str, re.Pattern[str]]]:
    return [
        (name, measure.name, re.compile(_claim_pattern(wording, name)))
        for topic in topics().values()
        for names in topic.names.values()
        for name in names
        for measure in topic.measures
        for wording in Wording(measure.train, measure.held_out)
    ]


def _claim_pattern(wording: str, name: str) -> str:
    pattern = pattern_of(wording, value=r"\d+", name=re.escape(name))
    return f"(?i:{pattern})" if wording.startswith("{name}") else pattern


Expert: Callable[[], ScriptedPolicy] = partial(ScriptedPolicy, _script)
"""A `Policy` for the four dialogue environments that solves every task."""
