"""OpenTelemetry traces with GenAI content: OTLP in JSON, span dumps and log records (GenAI, OpenInference, Traceloop, AI SDK).

Spans belong together by `gen_ai.conversation.id`, else by their trace. Telemetry that holds no messages, such as Claude
Code's own metrics and events, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.traces.conversations import ModelCall, whole_exchange
from quintain.importers.traces.genai_spans import (
    agent_name,
    conversation,
    evaluations,
    kind_of,
    model_call,
    tool_call,
)
from quintain.importers.traces.otel_spans import Span, is_export, is_span, spans_in
from quintain.importers.traces.trace_records import (
    NO_CONTENT,
    Trace,
    TraceGroup,
    TraceRecord,
    build_trace_runs,
    group_records,
    trace_outcome,
)
from quintain.importers.transcripts.field_values import as_dict, as_text
from quintain.records.trajectory import Outcome

_MARKS = ("gen_ai.", "llm.", "openinference.", "traceloop.", "ai.", "claude_code")


@dataclass(frozen=True)
class OTel:
    """Reader of spans with model calls."""

    name: str = "otel"
    title: str = "OpenTelemetry GenAI traces"

    def detect(self, probe: Probe) -> float:
        """Match OTLP; other spans and events match if their names follow the conventions."""
        for row in [probe.first, *probe.rows[:5]]:
            if is_export(row):
                return 0.96
            known = as_dict(row)
            if is_span(known):
                attributes = known.get("attributes")
                names = (
                    list(attributes)
                    if isinstance(attributes, dict)
                    else [as_dict(pair).get("key") for pair in attributes or ()]
                )
                names += [key.removeprefix("attributes.") for key in known if key.startswith("attributes.")]
                return 0.95 if any(isinstance(key, str) and key.startswith(_MARKS) for key in names) else 0.5
            if as_text(known.get("_type")) in {"log", "metric", "span"} and {"scope", "attrs"} & known.keys():
                return 0.9
        return 0.0

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """Yield the conversations of each trace."""
        has_content = False
        for group in group_records(log, report, _units):
            trace = _trace(group, report)
            if trace.calls:
                has_content = True
                yield from build_trace_runs(trace, report)
            else:
                report.reject(group.line, NO_CONTENT)
        if not has_content:
            raise InvalidInput(
                f"expected messages, got {NO_CONTENT}; enable the recording of prompts and completions, and export again"
            )


def _units(row: Any, report: Report) -> Iterator[TraceRecord]:
    known = False
    for span in spans_in(row):
        known = True
        yield TraceRecord(span.trace, span, conversation(span))
    if not known:
        report.skip(f"record without spans: {next(iter(as_dict(row)), 'empty')}")


def _trace(group: TraceGroup, report: Report) -> Trace:
    spans: list[Span] = _merged(group.values)
    trace = Trace(group.id, "otel", is_conversation=group.is_conversation, line=group.line)
    parents = {span.id: span.parent for span in spans}
    made = {span.id: model_call(span, report) for span in spans if kind_of(span) == "model"}
    models = {span_id for span_id, call in made.items() if call}
    scores: dict[str, float] = {}
    whole: list[ModelCall] = []
    for span in spans:
        scores |= evaluations(span)
        trace.agent = trace.agent or agent_name(span)
        kind = kind_of(span)
        if kind == "model" and _outer(span.id, parents, models) is None:
            call = made[span.id]
            trace.calls += [call] if call else []
            report.skip("model call without content") if call is None else None
        elif kind == "model":
            report.skip("model call within a model call (a duplicate record)")
        elif kind == "tool":
            tool = tool_call(span)
            trace.tool_calls += [tool] if tool else []
        else:
            call = model_call(span, Report())
            whole += [whole_exchange(call.inputs, call.outputs)] if call and span.parent not in parents else []
            report.skip(f"span: {span.attributes.get('gen_ai.operation.name') or span.name.split(' ')[0] or 'unnamed'}")
    if not trace.calls and whole:
        report.note(
            "some traces have no model calls with content: their runs are the input and output of the outermost span"
        )
        trace.calls = whole
    trace.agent = trace.agent or next((span.service for span in spans if span.service), None)
    trace.version = next((span.version for span in spans if span.version), None)
    trace.outcome = _outcome(spans, parents, trace, scores)
    return trace


def _merged(spans: list[Span]) -> list[Span]:
    """Return each span once, with its events from log records."""
    by_id: dict[str, Span] = {}
    for span in spans:
        known = by_id.setdefault(span.id, span)
        if known is not span:
            known.events += span.events
            known.attributes = {**span.attributes, **known.attributes}
            known.name = known.name or span.name
            known.parent = known.parent or span.parent
            known.error = known.error or span.error
    return list(by_id.values())


def _outer(span_id: str, parents: dict[str, str | None], models: set[str]) -> str | None:
    """Return the enclosing model call of a span, if any."""
    seen = {span_id}
    at = parents.get(span_id)
    while at is not None and at not in seen:
        if at in models:
            return at
        seen.add(at)
        at = parents.get(at)
    return None


def _outcome(spans: list[Span], parents: dict[str, str | None], trace: Trace, scores: dict[str, float]) -> Outcome:
    """Return an error if the outermost span or the last model call failed; traces do not state success."""
    roots = [span.error for span in spans if span.parent not in parents and kind_of(span) != "tool"]
    last = [call.error for call in sorted((c for c in trace.calls if c.start), key=lambda c: str(c.start))][-1:]
    error = next((error for error in [*roots, *last] if error), None)
    return trace_outcome(error, scores)
