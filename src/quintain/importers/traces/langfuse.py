"""Langfuse observations: traces exported by the user interface, API pages, and lines of blob exports.

A trace is a run; its session is kept in `extra`, because traces of one session repeat each other's messages. Scores of a
trace are its scores, and the reward where exactly one is named reward, score or correctness; they are not a verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.traces.call_payloads import input_turns, output_turns
from quintain.importers.traces.conversations import ModelCall, ToolCall
from quintain.importers.traces.genai_spans import (
    agent_name,
    span_call_id,
    span_inputs,
    span_tool,
    span_tools,
    with_instructions,
)
from quintain.importers.traces.otel_spans import Span
from quintain.importers.traces.trace_records import (
    Trace,
    TraceNode,
    TraceRecord,
    add_calls,
    add_fields,
    build_trace_runs,
    group_records,
    outermost,
    recorded_call,
    tags_of,
    take_whole,
    tool_result,
    trace_outcome,
)
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import (
    as_dict,
    as_list,
    as_name,
    as_text,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_time,
    parse_usage,
    score_fields,
    short_fields,
)

_TYPES = {"GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL"}
_ANSWERED = "the last answer is in no generation: it is the agent's own record of it, and is not trained on"


def _detect(probe: Probe) -> float:
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


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    scores = _scores_beside(log)
    for trace in group_records(log, report, _units):
        if all(kind == "score" for kind, _ in trace.records):
            report.skip("score of a trace that is not in the file", len(trace.records))
        else:
            _fill(trace, scores.get(trace.id, {}), report)
            yield from build_trace_runs(trace, report)


IMPORTER = Importer("langfuse", "Langfuse traces", _detect, _read)


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
        scores = whole.get("scores") if whole is not value else None
        inner = [*dicts_in(value.get("observations")), *dicts_in(value.get("scores")), *dicts_in(scores)]
        if trace is not None:
            yield TraceRecord(trace, ("trace", {k: v for k, v in whole.items() if k not in {"observations", "scores"}}))
        elif not inner:
            inner = [value]
        for part in inner:
            owner = as_name(_pick(part, "traceId")) or trace
            is_observation = as_text(part.get("type")) in _TYPES
            if owner is None or not (is_observation or {"name", "value"} <= part.keys()):
                report.skip("record other than a trace, observation or score")
            else:
                yield TraceRecord(owner, ("observation" if is_observation else "score", part))


def _score(value: dict[str, Any]) -> dict[str, float]:
    key = as_name(value.get("name"))
    return score_fields({key: value.get("value")}) if key is not None else {}


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


def _fill(trace: Trace, scores: dict[str, float], report: Report) -> None:
    about: dict[str, Any] = {}
    observations: dict[str, dict[str, Any]] = {}
    for n, (kind, value) in enumerate(trace.records):
        if kind == "trace":
            about |= value
        elif kind == "score":
            scores = scores | _score(value)
        else:
            add_fields(observations.setdefault(as_name(value.get("id")) or f"#{n}", {}), value)
    nodes = [
        TraceNode(key, as_name(_pick(value, "parentObservationId")), _kind(value), value)
        for key, value in observations.items()
    ]
    add_calls(trace, nodes, lambda value: _call(value, report), _tool_call, report, _agent)
    for made in trace.calls:
        _take_system(made, observations.get(made.parent or "", {}))
    if trace.calls:
        last = max(trace.calls, key=lambda call: str(call.start or ""))
        if not last.outputs and not last.error:
            _take_answer(last, list(observations.values()), report)
    root = outermost(nodes)
    for whole in (root, about):
        if whole.get("type") != "TOOL":
            start = _pick(whole, "startTime") or whole.get("timestamp")
            take_whole(trace, whole.get("input"), whole.get("output"), start, report)
    trace.agent = next(filter(None, map(_agent, [root, *observations.values()])), None) or nonblank(about.get("name"))
    answer = parse_json_text(root.get("output")) if as_text(root.get("type")) not in {"GENERATION", "TOOL"} else None
    session = nonblank(*(_pick(value, "sessionId") for value in (about, *observations.values())))
    trace.extra = short_fields(
        {"session": session, "output": answer, "environment": about.get("environment"), "release": about.get("release")}
    )
    trace.tags = tags_of(about.get("tags"))
    trace.outcome = trace_outcome(_error(root), scores)


def _agent(observation: dict[str, Any]) -> str | None:
    if observation.get("type") != "AGENT":
        return None
    return agent_name(_span(observation)) or nonblank(observation.get("name"))


def _kind(observation: dict[str, Any]) -> str:
    kind = as_text(observation.get("type"))
    return {"GENERATION": "model", "TOOL": "tool"}.get(kind, f"observation: {kind}")


def _error(observation: dict[str, Any]) -> str | None:
    return (nonblank(_pick(observation, "statusMessage")) or "error") if observation.get("level") == "ERROR" else None


def _span(observation: dict[str, Any]) -> Span:
    """Return the OpenTelemetry span that an observation came from, with the attributes that Langfuse keeps."""
    metadata = as_dict(parse_json_text(observation.get("metadata")))
    return Span("", "", None, "", None, as_dict(metadata.get("attributes")))


def _call(observation: dict[str, Any], report: Report) -> ModelCall:
    metadata = as_dict(parse_json_text(observation.get("metadata")))
    params = as_dict(parse_json_text(_pick(observation, "modelParameters")))
    named = nonblank(*(_pick(observation, key) for key in ("providedModelName", "model", "internalModel")))
    details = [as_dict(parse_json_text(_pick(observation, key))) for key in ("usageDetails", "usage")]
    plain = {key: _pick(observation, f"{key}Tokens") for key in ("prompt", "completion")}
    call = recorded_call(
        observation.get("input"),
        observation.get("output"),
        _pick(observation, "startTime"),
        report,
        model=named,
        usage=parse_usage(*details, plain),
        settings=(params, metadata),
        error=_error(observation),
    )
    span = _span(observation)
    if not _has_messages(observation.get("input")):  # some instrumentations print them there as text (Agno)
        call.inputs = span_inputs(span, report) or call.inputs
    call.inputs, call.tools = with_instructions(span, call.inputs, report), call.tools or span_tools(span)
    return call


def _take_system(call: ModelCall, around: dict[str, Any]) -> None:
    """Take the system prompt of the observation around a call where its input goes on like that of the call."""
    if not call.inputs or any(turn.actor == "system" for turn in call.inputs):
        return
    turns = input_turns(around.get("input"), Report())
    asked = [turn.key for turn in turns if turn.actor != "system"]
    if len(turns) > len(asked) and asked == [turn.key for turn in call.inputs]:
        call.inputs = [*(turn for turn in turns if turn.actor == "system"), *call.inputs]


def _take_answer(call: ModelCall, observations: list[dict[str, Any]], report: Report) -> None:
    """Take the answer of a call that recorded none from an observation whose messages are the call's and an answer.

    An agent's own record may leave out what its protocol put around the answer (BeeAI), so the turn is not trained on.
    """
    asked = [turn.key for turn in call.inputs]
    for value in observations:
        if value.get("type") in ("GENERATION", "TOOL") or not _has_messages(value.get("input")):
            continue
        turns = [*input_turns(value.get("input"), Report()), *output_turns(value.get("output"), Report())]
        further = turns[len(asked) :]
        if further and further[0].actor == "agent" and [turn.key for turn in turns[: len(asked)]] == asked:
            further[0].fields["train"] = False
            call.outputs = further[:1]
            report.note(_ANSWERED)
            return


def _has_messages(value: Any) -> bool:
    """Whether the input of a generation is messages as objects, by themselves or in a request."""
    known = parse_json_text(value)
    lists = [as_list(known), *(as_list(as_dict(known).get(key)) for key in ("messages", "contents", "input"))]
    return any(messages and all(isinstance(message, dict) for message in messages) for messages in lists)


def _tool_call(observation: dict[str, Any]) -> ToolCall:
    metadata, output = as_dict(parse_json_text(observation.get("metadata"))), observation.get("output")
    named, span = as_dict(parse_json_text(output)).get("tool_call_id"), _span(observation)
    call_id = nonblank(metadata.get("tool_call_id"), named, span_call_id(span))
    arguments = parse_json_text(observation.get("input"))
    wrapped = as_dict(arguments).get("input")  # LangSmith's record of a tool has its arguments as the only field
    arguments = wrapped if isinstance(wrapped, dict) and len(arguments) == 1 else arguments
    return ToolCall(
        make_call(span_tool(span) or as_text(observation.get("name")), arguments, call_id),
        tool_result(output, _error(observation))._replace(call_id=call_id),
        parse_time(_pick(observation, "startTime")),
    )
