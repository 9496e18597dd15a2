"""MLflow traces: `trace.to_json()`, rows of `search_traces()`, stored `traces.json`, and traces in Databricks responses.

Spans of type `CHAT_MODEL` and `LLM` are model calls, those of type `TOOL` runs of tools. Feedback becomes scores; it is no
verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import if_most, row_importer
from quintain.importers.traces.call_payloads import model_of, payload_usage
from quintain.importers.traces.conversations import ModelCall, ToolCall
from quintain.importers.traces.otel_spans import Span, spans_in
from quintain.importers.traces.trace_records import (
    Trace,
    TraceNode,
    add_calls,
    build_trace_runs,
    outermost,
    recorded_call,
    take_whole,
    tool_result,
    trace_outcome,
)
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import (
    as_dict,
    as_list,
    as_name,
    as_score,
    as_text,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_usage,
    short_fields,
)

_TYPE = "mlflow.spanType"
_KINDS = {"CHAT_MODEL": "model", "LLM": "model", "TOOL": "tool"}


def _detect(probe: Probe) -> float:
    """Match traces by the attributes of their spans."""
    if not any(_spans(_found(row)) for row in [probe.first, *probe.rows[:5]]):
        return 0.0
    return if_most(0.97, probe, lambda row: bool(_spans(_found(row))))


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    found = _found(row)
    if not _spans(found):
        raise InvalidInput("expected a trace with spans of MLflow")
    return build_trace_runs(_trace(found, line, report), report)


IMPORTER = row_importer("mlflow", "MLflow traces", _detect, _row)


def _found(row: Any) -> dict[str, Any]:
    """Return the trace of a row: the row itself, or the trace in it as an object or JSON text."""
    known = as_dict(row)
    response = as_dict(parse_json_text(known.get("response")))
    places = (known, *(as_dict(held.get("databricks_output")).get("trace") for held in (known, response)))
    found = (as_dict(place) for place in (*places, parse_json_text(known.get("trace"), '"spans"')))
    return next((trace for trace in found if _spans(trace)), {})


def _spans(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the spans of a trace that have MLflow's attributes."""
    spans = dicts_in(as_dict(trace.get("data")).get("spans")) or dicts_in(trace.get("spans"))
    return [span for span in spans if any(key.startswith("mlflow.") for key in as_dict(span.get("attributes")))]


def _value(span: Span, key: str) -> Any:
    """Return an attribute, which MLflow stores as JSON text."""
    text = span.attributes.get(key)
    known = parse_json_text(f"[{text}]") if isinstance(text, str) else text
    return known[0] if isinstance(text, str) and isinstance(known, list) and len(known) == 1 else text


def _trace(found: dict[str, Any], line: int, report: Report) -> Trace:
    info = as_dict(found.get("info")) or found
    about = as_dict(info.get("trace_metadata")) or as_dict(info.get("request_metadata"))
    spans = [span for raw in _spans(found) for span in spans_in(raw)]
    id = nonblank(
        info.get("trace_id"), info.get("request_id"), *(_value(span, "mlflow.traceRequestId") for span in spans)
    )
    trace = Trace(id or f"line {line}", line=line)
    nodes = [TraceNode(span.id, span.parent, _kind(span), span) for span in spans]
    add_calls(trace, nodes, lambda span: _call(span, report), _tool_call, report, _agent)
    root = outermost(nodes)
    if root and _kind(root) != "tool":
        take_whole(trace, _value(root, "mlflow.spanInputs"), _value(root, "mlflow.spanOutputs"), root.start, report)
    trace.agent = nonblank(as_dict(info.get("tags")).get("mlflow.traceName"), *map(_agent, spans))
    trace.extra = short_fields({"session": about.get("mlflow.trace.session"), "user": about.get("mlflow.trace.user")})
    trace.outcome = trace_outcome(root.error if root else None, _scores(as_list(info.get("assessments"))))
    return trace


def _agent(span: Span) -> str | None:
    return span.name if _value(span, _TYPE) == "AGENT" else None


def _kind(span: Span) -> str:
    kind = as_text(_value(span, _TYPE))
    return _KINDS.get(kind, f"span: {kind or 'unnamed'}")


def _scores(assessments: list[Any]) -> dict[str, float]:
    """Return the valid feedback that is a number or a boolean."""
    scores = {}
    for assessment in dicts_in(assessments):
        name = as_name(assessment.get("assessment_name") or assessment.get("name"))
        value = as_score(as_dict(assessment.get("feedback")).get("value"))
        if name is not None and value is not None and assessment.get("valid") is not False:
            scores[name] = value
    return scores


def _call(span: Span, report: Report) -> ModelCall:
    inputs, outputs = _value(span, "mlflow.spanInputs"), _value(span, "mlflow.spanOutputs")
    named = (_value(span, key) for key in ("mlflow.llm.model", "model", "model_name"))
    about = as_dict(_value(span, "metadata")).get("ls_model_name")
    return recorded_call(
        inputs,
        outputs,
        span.start,
        report,
        model=nonblank(model_of(outputs), *named, about),
        usage=payload_usage(outputs) or parse_usage(_value(span, "mlflow.chat.tokenUsage")),
        settings=[{"tools": _value(span, "mlflow.chat.tools")}],
        error=span.error,
    )


def _tool_call(span: Span) -> ToolCall:
    result = tool_result(_value(span, "mlflow.spanOutputs"), span.error)
    given = _value(span, "mlflow.spanInputs")
    return ToolCall(make_call(span.name, given, result.call_id), result, span.start)
