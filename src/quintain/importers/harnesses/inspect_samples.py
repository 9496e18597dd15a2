"""Convert a sample of an inspect log to a run, with its references resolved."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from quintain.importers.protocol import Report, Run
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.field_values import (
    as_dict,
    as_list,
    as_name,
    as_score,
    dicts_in,
    first_text,
    nonblank,
    short_fields,
)
from quintain.importers.transcripts.token_usage import parse_usage
from quintain.importers.transcripts.tool_schemas import parse_tool_schemas
from quintain.importers.transcripts.transcript import parse_time
from quintain.importers.transcripts.vendor_messages import parse_vendor_message
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task

_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_REFERENCES = ("attachment://", "tc://")
MISSING = "some attachments are missing from the log"


@dataclass
class _Events:
    """Model calls of a sample, found by the message that they produced."""

    by_id: dict[str, dict[str, Any]] = field(default_factory=dict)
    by_key: dict[Any, deque[dict[str, Any]]] = field(default_factory=lambda: defaultdict(deque))
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Tool name -> schema offered to the model."""

    def of(self, message: dict[str, Any], turn: Turn) -> dict[str, Any]:
        """Return the event that produced a message, or {}."""
        found = self.by_id.get(as_name(message.get("id")) or "")
        waiting = self.by_key[turn.key]
        if found is None and waiting:
            found = waiting.popleft()
        elif found is not None and found in waiting:
            waiting.remove(found)
        for tool in parse_tool_schemas(as_dict(found).get("tools")):
            self.tools.setdefault(tool["function"]["name"], tool)
        return found or {}


def run_of_sample(sample: dict[str, Any], about: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    """Yield the run of one sample and epoch.

    Args:
        sample: As in the log.
        about: The log's `eval`.
        line: Which sample of the log it is, from 1.
        report: Gets notes on unreadable content.
    """
    old = as_dict(sample.get("transcript"))  # until 2024: events and attachments stood in here
    attachments = as_dict(sample.get("attachments")) | as_dict(old.get("content"))
    events = dicts_in(sample.get("events")) or dicts_in(old.get("events"))
    pool = _pool(sample)
    models = [event for event in events if event.get("event") == "model"]
    messages = dicts_in(resolve_attachments(_messages(sample, models, pool), attachments, report))
    known = _events(resolve_attachments([_thin(event) for event in models], attachments, report))
    turns = _turns(messages, known, sample, report)
    task_name, sample_id, epoch = nonblank(about.get("task")), as_name(sample.get("id")), as_name(sample.get("epoch"))
    origin = first_text(about.get("eval_id"), about.get("run_id"), about.get("task_id"), task_name)
    timings = {key: sample.get(key) for key in ("total_time", "working_time", "uuid")}
    invalid = bool(sample.get("invalidation"))
    if invalid:
        report.note("some samples were invalidated after the run; their verdicts are ignored")
    asked = sample.get("input")
    hidden = {"target": sample.get("target"), "choices": sample.get("choices"), **as_dict(sample.get("metadata"))}
    yield from build_run(
        turns,
        report,
        line,
        episode_key="/".join(part for part in (origin, sample_id, epoch) if part),
        group_id="/".join(part for part in (origin, sample_id) if part) or None,
        agent=AgentInfo(name=nonblank(about.get("solver")) or "unknown", model=nonblank(about.get("model"))),
        task=Task(
            id=sample_id,
            prompt=str(resolve_attachments(asked, attachments, report)) if isinstance(asked, str) else "",
            environment=task_name,
            metadata=short_fields(resolve_attachments(hidden, attachments, report)),
        ),
        tools=list(known.tools.values()),
        outcome=_outcome(sample, invalid=invalid),
        extra=short_fields({"epoch": sample.get("epoch"), **timings, "invalidated": invalid or None}),
    )


def resolve_attachments(value: Any, attachments: dict[str, Any], report: Report) -> Any:
    """Replace references to attachments by their contents."""
    if isinstance(value, str) and value.startswith(_REFERENCES):
        key = value.partition("://")[2]
        if not isinstance(attachments.get(key), str):
            report.note(MISSING)
        return attachments.get(key) if isinstance(attachments.get(key), str) else value
    if isinstance(value, dict):
        return {key: resolve_attachments(inner, attachments, report) for key, inner in value.items()}
    if isinstance(value, list):
        return [resolve_attachments(inner, attachments, report) for inner in value]
    return value


def _pool(sample: dict[str, Any]) -> list[Any]:
    return as_list(as_dict(sample.get("events_data")).get("messages")) or as_list(sample.get("message_pool"))


def _expanded(refs: Any, pool: list[Any]) -> list[Any]:
    """Return messages of a pool by half-open index ranges."""
    found: list[Any] = []
    for pair in as_list(refs):
        if isinstance(pair, list) and len(pair) == 2 and all(type(n) is int and n >= 0 for n in pair):
            found += pool[pair[0] : pair[1]][: 10**6 - len(found)]
    return found


def _messages(sample: dict[str, Any], models: list[dict[str, Any]], pool: list[Any]) -> list[Any]:
    """Return the conversation; if it was not saved, the input and output of the last model call."""
    kept = as_list(sample.get("messages")) or _expanded(sample.get("message_refs"), pool)
    if kept or not models:
        return kept
    last = models[-1]
    answer = _output_message(last)
    return [*(as_list(last.get("input")) or _expanded(last.get("input_refs"), pool)), *([answer] if answer else [])]


def _output_message(event: dict[str, Any]) -> dict[str, Any]:
    choices = dicts_in(as_dict(event.get("output")).get("choices"))
    return as_dict(choices[0].get("message")) if choices else {}


def _thin(event: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a model event about its output; its input repeats the conversation."""
    output = as_dict(event.get("output"))
    return {
        **{key: event.get(key) for key in ("model", "timestamp", "tools")},
        "message": _output_message(event),
        "usage": as_dict(output.get("usage")),
        "output_model": output.get("model"),
    }


def _events(thin: list[dict[str, Any]]) -> _Events:
    known = _Events()
    for event in thin:
        turn = parse_vendor_message({"role": "assistant", **event["message"]}, Report()) if event["message"] else None
        if turn is None:
            continue
        if (message_id := as_name(event["message"].get("id"))) is not None:
            known.by_id[message_id] = event
        known.by_key[turn.key].append(event)
    return known


def _turns(messages: list[dict[str, Any]], known: _Events, sample: dict[str, Any], report: Report) -> list[Turn]:
    turns = []
    for message in messages:
        turn = parse_vendor_message(message, report)
        if turn is None:
            continue
        if turn.actor == "agent":
            event = known.of(message, turn)
            extra = {**turn.fields.get("extra", {}), **short_fields({"parse_errors": _parse_errors(message)})}
            turn.fields |= {
                "model": first_text(event.get("model"), message.get("model"), event.get("output_model")),
                "usage": parse_usage(as_dict(event.get("usage"))),
                "timestamp": parse_time(event.get("timestamp")),
                "extra": extra,
            }
            if message.get("source") == "input":
                turn.fields["copied_context"] = True  # the dataset wrote it
        turns.append(turn)
    acted = [turn for turn in turns if turn.actor == "agent"]
    if len(acted) == 1 and acted[0].fields.get("usage") is None:
        acted[0].fields["usage"] = parse_usage(as_dict(as_dict(sample.get("output")).get("usage")))
    return turns


def _parse_errors(message: dict[str, Any]) -> list[str]:
    return [error for call in dicts_in(message.get("tool_calls")) if (error := nonblank(call.get("parse_error")))]


def _outcome(sample: dict[str, Any], *, invalid: bool) -> Outcome:
    graded = as_dict(sample.get("scores")) or ({"score": sample["score"]} if sample.get("score") else {})
    scores: dict[str, float] = {}
    values = {key: as_dict(score).get("value") if isinstance(score, dict) else score for key, score in graded.items()}
    for key, value in values.items():
        members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
        for part, inner in members if members is not None else [(None, value)]:
            if (worth := _worth(inner)) is not None:
                scores[key if part is None else f"{key}.{part}"] = worth
    leading = next(iter(values.values()), None)
    status = OutcomeStatus.UNKNOWN
    if (leading in {"C", "I"} if isinstance(leading, str) else _worth(leading) in {0.0, 1.0}) and not invalid:
        status = OutcomeStatus.SUCCESS if _worth(leading) else OutcomeStatus.FAILURE
    error, limit = sample.get("error"), sample.get("limit")
    exit_status = None
    if limit:
        status = OutcomeStatus.TRUNCATED
        exit_status = f"limit: {first_text(as_dict(limit).get('type'), limit) or 'unknown'}"
    if error:
        status = OutcomeStatus.ERROR
        exit_status = first_text(as_dict(error).get("message"), error) or "error"
    return Outcome(status=status, reward=_worth(leading), scores=scores, exit_status=exit_status and exit_status[:200])


def _worth(value: Any) -> float | None:
    """Convert a grade, number or number word to a float, as inspect does."""
    if not isinstance(value, str):
        return as_score(value)
    if value in _GRADES:
        return _GRADES[value]
    try:
        return as_score(float(value))
    except ValueError:
        return _WORDS.get(value.lower())
