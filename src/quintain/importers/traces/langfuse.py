"""Langfuse observations: traces exported by the user interface, API pages, and lines of blob exports.

A trace is a run; its session is kept in `extra`, because traces of one session repeat each other's messages. Scores of a
trace are its scores, and the reward where exactly one is named reward, score or correctness; they are no verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.traces.call_payloads import input_turns, model_of, output_turns, payload_usage
from quintain.importers.traces.conversations import ModelCall, ToolCall, whole_exchange
from quintain.importers.traces.trace_records import (
    Trace,
    TraceGroup,
    TraceRecord,
    build_trace_runs,
    group_records,
    trace_outcome,
)
from quintain.importers.transcripts.field_values import (
    as_dict,
    as_list,
    as_name,
    as_score,
    as_text,
    dicts_in,
    first_text,
    parse_json_text,
    short_fields,
    to_text,
)
from quintain.importers.transcripts.message_parts import Result
from quintain.importers.transcripts.token_usage import parse_usage
from quintain.importers.transcripts.tool_schemas import offered_tools
from quintain.importers.transcripts.transcript import make_call, parse_time

_TYPES = {
    *("GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"),
}
_WHOLE = "some traces have no generation: their runs are the input and output of the outermost observation"


@dataclass(frozen=True)
class Langfuse:
    """Reader of records with a `traceId` and an observation type."""

    name: str = "langfuse"
    title: str = "Langfuse traces"

    def detect(self, probe: Probe) -> float:
        """Match observations, alone, in a page or within a trace; traces without observations have lower confidence."""
        for row in [probe.first, *probe.rows[:5]]:
            known = as_dict(row)
            inner = [*dicts_in(known.get("data"))[:3], *dicts_in(known.get("observations"))[:3]]
            if any(map(_is_observation, [known, *inner])):
                return 0.97
            if isinstance(known.get("observations"), list) and (isinstance(known.get("trace"), dict) or "id" in known):
                return 0.9
            if any(map(_is_trace, [known, *inner])):
                return 0.8
        return 0.0

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """Yield the conversations of each trace."""
        scores = _scores_beside(log)
        for group in group_records(log, report, _units):
            trace = _trace(_Records(group, scores.get(group.id, {})), report)
            if trace is not None:
                yield from build_trace_runs(trace, report)


def _pick(value: dict[str, Any], key: str) -> Any:
    """Return a field by its API name or its blob export name (`trace_id` for `traceId`)."""
    found = value.get(key)
    return value.get("".join(f"_{c.lower()}" if c.isupper() else c for c in key)) if found is None else found


def _is_observation(value: dict[str, Any]) -> bool:
    return as_name(_pick(value, "traceId")) is not None and as_text(value.get("type")) in _TYPES


def _is_trace(value: dict[str, Any]) -> bool:
    marks = ("projectId", "htmlPath", "totalCost", "bookmarked", "sessionId", "userId")
    return value.keys() >= {"id", "name", "timestamp", "input", "output"} and any(
        _pick(value, mark) is not None for mark in marks
    )


def _units(row: Any, report: Report) -> Iterator[TraceRecord]:
    for value in dicts_in(as_dict(row).get("data")) or [as_dict(row)]:
        whole = as_dict(value.get("trace")) or (
            value if isinstance(value.get("observations"), list) or _is_trace(value) else {}
        )
        trace = as_name(whole.get("id"))
        inner = [*dicts_in(value.get("observations")), *dicts_in(value.get("scores"))]
        if trace is not None:
            yield TraceRecord(trace, ("trace", {k: v for k, v in whole.items() if k not in {"observations", "scores"}}))
        elif not inner:
            inner = [value]
        for part in inner:
            owner = as_name(_pick(part, "traceId")) or trace
            kind = (
                "observation"
                if as_text(part.get("type")) in _TYPES
                else "score"
                if "value" in part and "name" in part
                else None
            )
            if owner is None or kind is None:
                report.skip("record other than a trace, observation or score")
            else:
                yield TraceRecord(owner, (kind, part))


@dataclass
class _Records:
    """Records of one trace."""

    group: TraceGroup
    scores: dict[str, float]
    about: dict[str, Any] = field(default_factory=dict)
    observations: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Sort the records by kind; a repeated record adds missing fields."""
        self.scores = dict(self.scores)
        for n, (kind, value) in enumerate(self.group.values):
            if kind == "trace":
                self.about |= value
            elif kind == "score":
                self.scores |= _score(value)
            else:
                known = self.observations.setdefault(as_name(value.get("id")) or f"#{n}", {})
                known |= {key: new for key, new in value.items() if new is not None}

    def parent(self, observation: dict[str, Any]) -> dict[str, Any] | None:
        """Return the parent observation."""
        return self.observations.get(as_name(_pick(observation, "parentObservationId")) or "")

    def lies_in_generation(self, observation: dict[str, Any]) -> bool:
        """Whether an observation is part of a recorded model call."""
        at, left = self.parent(observation), 100
        while at is not None and left:
            if at.get("type") == "GENERATION":
                return True
            at, left = self.parent(at), left - 1
        return False


def _score(value: dict[str, Any]) -> dict[str, float]:
    key, given = as_name(value.get("name")), as_score(value.get("value"))
    return {key: given} if key is not None and given is not None else {}


def _scores_beside(log: LogFile) -> dict[str, dict[str, float]]:
    """Read scores by trace from the separate folder of a blob export."""
    if len(log.parts) < 2 or not log.parts[-2].startswith(("observations", "traces")):
        return {}
    beside = log.sibling(f"../scores/{log.parts[-1]}")
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for _, row in beside.rows(Report()) if beside else ():
        if (owner := as_name(_pick(as_dict(row), "traceId"))) is not None:
            found[owner] |= _score(as_dict(row))
    return found


def _trace(known: _Records, report: Report) -> Trace | None:
    group, about = known.group, known.about
    if not known.observations and not about:
        report.skip("score of a trace that is not in the file", len(group.values))
        return None
    trace = Trace(group.id, "langfuse", line=group.line)
    for observation in known.observations.values():
        kind = observation.get("type")
        if kind == "GENERATION" and not known.lies_in_generation(observation):
            call = _call(observation, report)
            trace.calls += [call] if call.inputs or call.outputs else []
        elif kind == "TOOL":
            trace.tool_calls.append(_tool_call(observation))
        else:
            report.skip(f"observation: {kind}")
    roots = [value for value in known.observations.values() if known.parent(value) is None]
    root = roots[0] if roots else {}
    for whole in (root, about):
        if not trace.calls and whole.get("type") != "TOOL":
            call = whole_exchange(
                input_turns(whole.get("input"), report), output_turns(whole.get("output"), report, whole=True)
            )
            call.start = parse_time(_pick(whole, "startTime")) or parse_time(whole.get("timestamp"))
            trace.calls = [call] if call.inputs or call.outputs else []
            report.note(_WHOLE) if trace.calls else None
    trace.agent = next((as_text(o.get("name")) for o in known.observations.values() if o.get("type") == "AGENT"), None)
    trace.agent = trace.agent or first_text(about.get("name"))
    answer = parse_json_text(root.get("output")) if as_text(root.get("type")) not in {"GENERATION", "TOOL"} else None
    session = first_text(*(_pick(value, "sessionId") for value in (about, *known.observations.values())))
    trace.extra = short_fields(
        {"session": session, "output": answer, "environment": about.get("environment"), "release": about.get("release")}
    )
    trace.tags = tuple(tag for tag in as_list(about.get("tags")) if isinstance(tag, str) and 0 < len(tag) <= 100)[:20]
    error = _error(root)
    trace.outcome = trace_outcome(error, known.scores)
    return trace


def _error(observation: dict[str, Any]) -> str | None:
    return (first_text(_pick(observation, "statusMessage")) or "error") if observation.get("level") == "ERROR" else None


def _call(observation: dict[str, Any], report: Report) -> ModelCall:
    inputs, outputs = observation.get("input"), observation.get("output")
    params = as_dict(parse_json_text(_pick(observation, "modelParameters")))
    named = first_text(*(_pick(observation, key) for key in ("providedModelName", "model", "internalModel")))
    details = [as_dict(parse_json_text(_pick(observation, key))) for key in ("usageDetails", "usage")]
    plain = {key: _pick(observation, f"{key}Tokens") for key in ("prompt", "completion")}
    return ModelCall(
        input_turns(inputs, report),
        output_turns(outputs, report),
        parse_time(_pick(observation, "startTime")),
        {"model": named or model_of(outputs, inputs), "usage": parse_usage(*details, plain) or payload_usage(outputs)},
        offered_tools(inputs, params, as_dict(parse_json_text(observation.get("metadata")))),
        _error(observation),
    )


def _tool_call(observation: dict[str, Any]) -> ToolCall:
    tool = as_text(observation.get("name"))
    metadata, output = as_dict(parse_json_text(observation.get("metadata"))), observation.get("output")
    call_id = first_text(metadata.get("tool_call_id"), as_dict(parse_json_text(output)).get("tool_call_id"))
    error = _error(observation)
    shown = output if isinstance(output, str) else to_text(output)
    made = Result(shown or error or "", call_id, error is not None)
    return ToolCall(
        tool,
        make_call(tool, parse_json_text(observation.get("input")), call_id),
        made,
        parse_time(_pick(observation, "startTime")),
    )
