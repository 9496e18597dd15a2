"""OpenTelemetry traces with GenAI content: OTLP in JSON, span dumps and log records (GenAI, OpenInference, Traceloop, AI SDK).

Spans belong together by `gen_ai.conversation.id`, else by their trace. Telemetry without messages, such as Claude
Code's own metrics and events, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.traces.conversations import ModelCall, whole_exchange
from quintain.importers.traces.genai_spans import agent_name, conversation, evaluations, kind_of, model_call, tool_call
from quintain.importers.traces.otel_spans import Span, attributes_of, data_frame_rows, is_export, is_span, spans_in
from quintain.importers.traces.trace_records import (
    WHOLE,
    Trace,
    TraceNode,
    TraceRecord,
    add_calls,
    build_trace_runs,
    group_records,
    trace_outcome,
)
from quintain.importers.values import as_dict, as_text
from quintain.records.trajectory import Outcome
from quintain.records.wording import clip

NO_CONTENT = "metrics only, without messages: content capture is off"
_ENABLE = "enable the recording of prompts and completions, and export again"
_MARKS = ("gen_ai.", "llm.", "openinference.", "traceloop.", "ai.", "claude_code")

_NAMES = "OpenTelemetry, OpenInference or OpenLLMetry"


def _detect(probe: Probe) -> float:
    """Match OTLP; other spans and events match if their names follow the conventions."""
    best = 0.0
    for row in [probe.first, *probe.rows[:5]]:
        if is_export(row):
            return 0.96
        known = as_dict(row)
        for span in [known] if is_span(known) else data_frame_rows(known)[:5]:
            flat = (key.removeprefix("attributes.") for key in span if key.startswith("attributes."))
            names = [*attributes_of(span.get("attributes")), *flat]
            best = max(best, 0.95 if any(name.startswith(_MARKS) for name in names) else 0.5)
        if as_text(known.get("_type")) in {"log", "metric", "span"} and {"scope", "attrs"} & known.keys():
            best = max(best, 0.9)
    return best


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    has_content, reason = False, NO_CONTENT
    for trace in group_records(log, report, _units):
        _fill(trace, report)
        if trace.calls:
            has_content = True
            yield from build_trace_runs(trace, report)
        else:
            reason = _reason(trace.records)
            report.reject(trace.line, reason)
    if not has_content:
        raise InvalidInput(f"expected messages, got {reason}")


_MOST_SPANS = 100
"""Ids of traces, outermost spans and model calls that a run keeps."""

IMPORTER = Importer("otel", "OpenTelemetry GenAI traces", _detect, _read)


def _reason(spans: list[Span]) -> str:
    """Return why the spans of a trace have no conversation."""
    if any(kind_of(span) == "model" for span in spans):
        return f"{NO_CONTENT}; {_ENABLE}"
    names = list(dict.fromkeys(clip(span.name, 40) or "unnamed" for span in spans))
    shown = f"{', '.join(names[:3])}{', ...' if names[3:] else ''}"
    return f"no span of a model call by the names of {_NAMES} among {len(spans):,} spans ({shown})"


def _units(row: Any, report: Report) -> Iterator[TraceRecord]:
    known = False
    for span in (span for inner in data_frame_rows(as_dict(row)) or [row] for span in spans_in(inner)):
        known = True
        yield TraceRecord(span.trace, span, conversation(span))
    if not known:
        report.skip(f"record without spans: {next(iter(as_dict(row)), 'empty')}")


def _fill(trace: Trace, report: Report) -> None:
    spans: list[Span] = _merged(trace.records)
    calls = {span.id: model_call(span, report) for span in spans if kind_of(span) == "model"}
    nodes = [TraceNode(span.id, span.parent, _node_kind(span, calls), span) for span in spans]
    add_calls(trace, nodes, lambda span: calls[span.id], tool_call, report, agent_name)
    ids = {span.id for span in spans}
    roots = [span for span in spans if span.parent not in ids]
    if not trace.calls:
        found = [model_call(span, Report()) for span in roots if kind_of(span) == "other"]
        trace.calls = [whole_exchange(call.inputs, call.outputs) for call in found if call]
        if trace.calls:
            report.note(WHOLE)
    named = [*(span.trace for span in spans), *(one.id for one in roots), *(one.id for one in spans if one.id in calls)]
    # Annotations beside a trace name its spans.
    trace.extra = {"spans": list(dict.fromkeys(name for name in named if name and name[0] != "#"))[:_MOST_SPANS]}
    trace.agent = next(filter(None, map(agent_name, [*roots, *spans])), None)
    trace.agent = trace.agent or next((span.service for span in spans if span.service), None)
    trace.version = next((span.version for span in spans if span.version), None)
    trace.outcome = _outcome(roots, trace, {key: value for span in spans for key, value in evaluations(span).items()})


def _node_kind(span: Span, calls: dict[str, ModelCall | None]) -> str:
    kind = kind_of(span)
    if kind == "model":
        return "model" if calls[span.id] else "model call without content"
    if kind == "tool":
        return "tool"
    return f"span: {span.attributes.get('gen_ai.operation.name') or span.name.split(' ')[0] or 'unnamed'}"


def _merged(spans: list[Span]) -> list[Span]:
    """Return each span once, with its events from log records."""
    by_id: dict[str, Span] = {}
    for n, span in enumerate(spans):
        span.id = span.id or f"#{n}"  # a data frame without its index
        known = by_id.setdefault(span.id, span)
        if known is not span:
            known.events += span.events
            known.attributes = {**span.attributes, **known.attributes}
            known.name = known.name or span.name
            known.parent = known.parent or span.parent
            known.error = known.error or span.error
    return list(by_id.values())


def _outcome(roots: list[Span], trace: Trace, scores: dict[str, float]) -> Outcome:
    """Return an error if the outermost span or the last model call failed; traces do not state success."""
    errors = [span.error for span in roots if kind_of(span) != "tool"]
    last = [call.error for call in sorted((c for c in trace.calls if c.start), key=lambda c: str(c.start))][-1:]
    return trace_outcome(next((error for error in [*errors, *last] if error), None), scores)
