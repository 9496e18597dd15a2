"""State of a dialogue and the tools that act on it: look something up, change records, submit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr, WithJsonSchema

from quintain.environments.conversation.scenario import Document, Scenario, SuccessConditions, Value
from quintain.environments.tool_calls import refusal
from quintain.records.record import Record
from quintain.records.trajectory import Observation
from quintain.records.wording import clip, nearest

MAX_MESSAGE = 2000
_FOUND = 10
_MOST_FIELDS = 20

Text = Annotated[StrictStr, Field(max_length=200)]
FieldValue = Annotated[Text | StrictInt | StrictFloat, WithJsonSchema({"type": ["string", "number"]})]
Fields = Annotated[
    dict[Text, FieldValue],
    Field(min_length=1, max_length=_MOST_FIELDS),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number"]}}),
]


class Respond(Record):
    """Say something to the user."""

    message: Annotated[StrictStr, Field(min_length=1, max_length=MAX_MESSAGE)]


class KnowledgeBase(Record):
    """Look something up."""

    query: Text


class GetPolicy(Record):
    """Read the rules for one kind of request."""

    topic: Literal["question", "change", "cancel", "refund"]


class FindRecords(Record):
    """List the records of a customer."""

    name: Text


class GetRecord(Record):
    """Show a record."""

    record_id: Text


class UpdateRecord(Record):
    """Set one field of a record."""

    record_id: Text
    field: Text
    value: FieldValue


class Transfer(Record):
    """Hand the customer over to a human agent."""

    reason: Text


class ReadFile(Record):
    """Read a file."""

    path: Text


class SubmitPlan(Record):
    """Hand in the result: each of its fields with its value."""

    fields: Fields

    @property
    def values(self) -> dict[str, Any]:
        """The submission by field."""
        return dict(self.fields)


class SubmitOption(Record):
    """Hand in the option that you recommend."""

    option: Text

    @property
    def values(self) -> dict[str, Any]:
        """The submission by field."""
        return {"option": self.option}


class SubmitAgreed(Record):
    """Hand in what was agreed on: for each point, such as "Elbar length", the right number."""

    agreed: Fields

    @property
    def values(self) -> dict[str, Any]:
        """The submission by field."""
        return dict(self.agreed)


Submission = SubmitPlan | SubmitOption | SubmitAgreed


class World:
    """State of one dialogue apart from its messages."""

    def __init__(self, scenario: Scenario) -> None:
        self.records: dict[str, dict[str, Value]] = {key: dict(record) for key, record in scenario.records.items()}
        self.transferred = False
        self.submission: dict[str, Any] = {}
        self.sources_read: set[str] = set()
        """Records, topics and titles that the agent has looked up."""
        self._scenario = scenario

    def meets(self, expected: SuccessConditions) -> bool:
        """Whether transfer, submission and records are as expected."""
        return (
            self.transferred is expected.transferred
            and _same(self.submission, expected.submission)
            and all(_same(record, expected.records[key]) for key, record in self.records.items())
        )

    def carry_out(self, arguments: Record) -> Observation:
        """Carry out a call other than `respond` and `submit`; an impossible one gives an error with its reason."""
        match arguments:
            case KnowledgeBase(query=query):
                found = _listed(self._scenario.library, query)
                self.sources_read.update(entry.title for entry in found)
                return Observation(content="\n".join(entry.text for entry in found) or "Nothing is known about that.")
            case GetPolicy(topic=topic):
                self.sources_read.add(topic)
                return Observation(content=next(d.text for d in self._scenario.library if d.title == topic))
            case FindRecords(name=name):
                wanted = _plain(name)
                lines = [
                    f"{key} {record['item']}"
                    for key, record in self.records.items()
                    if _plain(record["customer"]) == wanted
                ]
                return Observation(content="\n".join(lines) or "No customer has this name.")
            case GetRecord(record_id=key):
                return self._shown(key)
            case UpdateRecord():
                return self._updated(arguments)
            case Transfer():
                self.transferred = True
                return Observation(content="A human agent takes over.")
            case ReadFile(path=path):
                return self._read(path)
        raise AssertionError(f"unexpected tool arguments: {type(arguments).__name__}")

    def submission_fault(self, submission: dict[str, Any]) -> str | None:
        """Return an error text if fields are missing or unknown, else None."""
        if not self._scenario.fields:
            return None
        names = {_plain(name) for name in submission}
        if names == set(self._scenario.fields):
            return None
        return f"submit needs exactly the fields {', '.join(self._scenario.fields)}"

    def _shown(self, key: str) -> Observation:
        record = self.records.get(key.strip().upper())
        if record is None:
            return refusal(f"no record has the id {clip(key)!r}")
        self.sources_read.add(key.strip().upper())
        values = ", ".join(f"{name} {value}" for name, value in record.items())
        return Observation(content=f"{key.strip().upper()}: {values}")

    def _updated(self, wanted: UpdateRecord) -> Observation:
        key, name = wanted.record_id.strip().upper(), wanted.field.strip().casefold()
        record = self.records.get(key)
        if record is None:
            return refusal(f"no record has the id {clip(wanted.record_id)!r}")
        if name not in record:
            near = nearest(name, record)
            return refusal(f"a record has no field {clip(wanted.field)!r}{near}; it has: {', '.join(record)}")
        value = _plain(wanted.value)
        if isinstance(record[name], int) and not isinstance(value, float):
            return refusal(f"{name} is a number, and {clip(str(wanted.value))!r} is none")
        whole = isinstance(value, float) and value.is_integer()
        record[name] = int(value) if whole else " ".join(str(wanted.value).replace("\0", "\ufffd").split())
        return Observation(content=f"{key}: {name} is now {record[name]}")

    def _read(self, path: str) -> Observation:
        text = self._scenario.files.get(path.strip().removeprefix("./").lstrip("/"))
        if text is None:
            return refusal(f"there is no file {clip(path)!r}; there are: {', '.join(self._scenario.files)}")
        return Observation(content=text)


def _same(submitted: Mapping[str, object], expected: Mapping[str, object]) -> bool:
    if submitted == expected:  # the common case, without normalising
        return True
    return {_plain(name): _plain(value) for name, value in submitted.items()} == {
        _plain(name): _plain(value) for name, value in expected.items()
    }


def _plain(value: object) -> float | str:
    """Return the form by which values are compared: a number, or a text without case, extra spaces and outer punctuation."""
    text = " ".join(str(value).casefold().split()).strip("\"'.! ")
    try:
        number = float(text.removeprefix("$"))
    except ValueError:
        return text
    return number if abs(number) < 1e15 else text  # excludes infinity and NaN


def _listed(library: tuple[Document, ...], query: str) -> list[Document]:
    """Return the documents that share most words with a query, ties in the order of the library."""
    words = frozenset(re.findall(r"\w+", query.casefold()))
    shared = [(len(words & entry.words), entry) for entry in library]
    best = sorted((pair for pair in shared if pair[0]), key=lambda pair: -pair[0])[:_FOUND]
    return [entry for _, entry in best]
