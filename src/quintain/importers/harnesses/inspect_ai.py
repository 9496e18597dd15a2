"""Inspect logs: `.eval` archives (whole and chunked samples, zstd or deflate) and their JSON form.

The first score of a sample is its verdict where it can be one: `C` and `I`, or exactly 1 and 0, are success and failure;
partial scores, no answer (`N`) and grades are not. An edited score counts as edited; of an invalidated sample no verdict
is taken.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.files.archives import Archive, archive, is_zip
from quintain.importers.files.json_parser import Parser
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.tool_schemas import parse_tool_schemas
from quintain.importers.transcripts.vendor_messages import parse_vendor_message
from quintain.importers.values import (
    as_dict,
    as_list,
    as_name,
    as_score,
    dicts_in,
    nonblank,
    parse_time,
    parse_usage,
    short_fields,
)
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task

_HEADERS = ("header.json", "_journal/start.json")
_WHOLE = re.compile(r"samples/(?:[^/]+|.+_epoch_\d+)\.json", re.DOTALL)
_CHUNK = re.compile(r"(messages|events|attachments)/([0-9]{1,15})\.json")
_CHUNKED = re.compile(r"samples/.+/sample\.json", re.DOTALL)
"""Matches members that are samples; the sample id is part of the name and may contain slashes."""


def _detect(probe: Probe) -> float:
    """Match an archive with its header, or a document with `eval` and a status."""
    if probe.shape == "zip":
        names = {name for name in probe.rows if isinstance(name, str)}
        started = names & set(_HEADERS)
        return 0.98 if started else 0.9 if probe.name.endswith(".eval") else 0.0
    row = probe.first
    if not isinstance(row.get("eval"), dict) or not (row.keys() & {"samples", "plan", "results", "stats"}):
        return 0.0
    return 0.98 if "status" in row and "version" in row else 0.8


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    if is_zip(log.path, log.root):
        yield from _archived(log, report)
        return
    document = as_dict(log.document())
    if not isinstance(document.get("eval"), dict):
        raise InvalidInput("expected an inspect log with `eval`")
    samples = as_list(document.get("samples"))
    if not samples:
        report.note("the log has no samples, only its header")
    for n, sample in enumerate(samples, 1):
        yield from _checked(sample, as_dict(document["eval"]), n, report)


IMPORTER = Importer("inspect_ai", "inspect evaluation log", _detect, _read)


def _checked(sample: Any, about: dict[str, Any], n: int, report: Report) -> Iterator[Run]:
    if isinstance(sample, dict):
        yield from _run_of_sample(sample, about, n, report)
    else:
        report.reject(n, f"expected a sample object, got {type(sample).__name__}")


def _archived(log: LogFile, report: Report) -> Iterator[Run]:
    parser = Parser(log.reading.repairs)
    with archive(log.path, log.root) as opened:
        names = dict.fromkeys(opened.names)
        about: dict[str, Any] = {}
        for header in (name for name in _HEADERS if name in names):
            try:
                about = as_dict(as_dict(parser.parse(opened.read(header))).get("eval"))
                break
            except InvalidInput as error:
                report.note(f"{header} cannot be read: {error.message}"[:200])
        members = [name for name in names if _CHUNKED.fullmatch(name) or _WHOLE.fullmatch(name)]
        if not members and any(name.startswith("samples/") for name in names):
            report.reject(None, "expected samples in `samples/`, got no member with the name of one")
        elif not members:
            report.note("the log has no samples, only its header")
        for n, member in enumerate(members, 1):
            try:
                sample = as_dict(parser.parse(opened.read(member)))
                if _CHUNKED.fullmatch(member):
                    sample = _joined(sample, member.removesuffix("sample.json"), opened, names, parser)
            except InvalidInput as error:
                report.reject(n, error.message)
                continue
            yield from _checked(sample, about, n, report)


def _joined(
    sample: dict[str, Any], folder: str, opened: Archive, names: dict[str, None], parser: Parser
) -> dict[str, Any]:
    """Join a sample whose messages, events and attachments are split into files named by their first index."""
    chunks: dict[str, list[tuple[int, str]]] = {"messages": [], "events": [], "attachments": []}
    for name in names:
        if name.startswith(folder) and (found := _CHUNK.fullmatch(name.removeprefix(folder))):
            chunks[found[1]].append((int(found[2]), name))
    parts = {
        sequence: [item for _, name in sorted(pieces) for item in as_list(parser.parse(opened.read(name)))]
        for sequence, pieces in chunks.items()
    }
    return {
        **sample,
        "message_pool": parts["messages"],
        "events": parts["events"],
        "attachments": {str(i): content for i, content in enumerate(parts["attachments"])},
    }


_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_REFERENCES = ("attachment://", "tc://")
_MISSING = "some attachments are missing from the log"


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


def _run_of_sample(sample: dict[str, Any], about: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    old = as_dict(sample.get("transcript"))  # until 2024: events and attachments stood in here
    attachments = as_dict(sample.get("attachments")) | as_dict(old.get("content"))
    events = dicts_in(sample.get("events")) or dicts_in(old.get("events"))
    pool = _pool(sample)
    models = [event for event in events if event.get("event") == "model"]
    messages = dicts_in(_resolve(_messages(sample, models, pool), attachments, report))
    known = _events(_resolve([_thin(event) for event in models], attachments, report))
    turns = _turns(messages, known, sample, report)
    task_name, sample_id, epoch = nonblank(about.get("task")), as_name(sample.get("id")), as_name(sample.get("epoch"))
    origin = nonblank(about.get("eval_id"), about.get("run_id"), about.get("task_id"), task_name)
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
            prompt=str(_resolve(asked, attachments, report)) if isinstance(asked, str) else "",
            environment=task_name,
            metadata=short_fields(_resolve(hidden, attachments, report)),
        ),
        tools=list(known.tools.values()),
        outcome=_outcome(sample, invalid=invalid),
        extra=short_fields({"epoch": sample.get("epoch"), **timings, "invalidated": invalid or None}),
    )


def _resolve(value: Any, attachments: dict[str, Any], report: Report) -> Any:
    """Replace references to attachments by their contents."""
    if isinstance(value, str) and value.startswith(_REFERENCES):
        key = value.partition("://")[2]
        if not isinstance(attachments.get(key), str):
            report.note(_MISSING)
        return attachments.get(key) if isinstance(attachments.get(key), str) else value
    if isinstance(value, dict):
        return {key: _resolve(inner, attachments, report) for key, inner in value.items()}
    if isinstance(value, list):
        return [_resolve(inner, attachments, report) for inner in value]
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
                "model": nonblank(event.get("model"), message.get("model"), event.get("output_model")),
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
        exit_status = f"limit: {nonblank(as_dict(limit).get('type'), limit) or 'unknown'}"
    if error:
        status = OutcomeStatus.ERROR
        exit_status = nonblank(as_dict(error).get("message"), error) or "error"
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
