"""Traces of the OpenAI Agents SDK as its exporters get them: traces and spans, a line each or in `{"data": []}`.

Generation spans hold the messages. Response spans hold only an id unless the exporter adds `input` and `response` of the
span's data. Traces of a group are one conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import outcome_from
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most
from quintain.importers.traces.call_payloads import model_of
from quintain.importers.traces.conversations import ModelCall, ToolCall
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
)
from quintain.importers.transcripts.message_parts import Result
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import (
    as_dict,
    as_name,
    as_text,
    dicts_in,
    nonblank,
    parse_time,
    parse_usage,
    short_fields,
    to_text,
)

NO_CONTENT = (
    "expected messages, got response spans without content; have the exporter add `input` and `response` of the span's "
    "data, or use OpenAIChatCompletionsModel"
)
_LISTS = ("data", "spans", "items", "traces")


def _detect(probe: Probe) -> float:
    """Match spans, alone or in a batch."""
    for row in [probe.first, *probe.rows[:5]]:
        if any(as_dict(item.get("span_data")).get("type") for item in _items(row) if _is_item(item)):
            return if_most(0.97, probe, lambda row: any(map(_is_item, _items(row))))
    return 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for trace in group_records(log, report, _units):
        _fill(trace, report)
        if trace.calls or not any(_type(span) == "response" for span in trace.records):
            yield from build_trace_runs(trace, report)
        else:
            report.reject(trace.line, NO_CONTENT)


IMPORTER = Importer("openai_agents", "OpenAI Agents SDK traces", _detect, _read)


def _is_item(value: dict[str, Any]) -> bool:
    return value.get("object") in ("trace", "trace.span") and isinstance(value.get("id"), str)


def _items(row: Any) -> list[dict[str, Any]]:
    """Return the traces and spans of a row: the row itself, those of a batch, or that of an event of a processor."""
    known = as_dict(row)
    held = [item for key in ("trace", "span") if (item := as_dict(known.get(key)))]
    return held + [item for key in _LISTS for item in dicts_in(known.get(key))] or [known]


def _units(row: Any, report: Report) -> Iterator[TraceRecord]:
    for item in _items(row):
        trace = as_name(item.get("trace_id")) if item.get("object") == "trace.span" else as_name(item.get("id"))
        if not _is_item(item) or trace is None:
            report.skip("record other than a trace or span")
        else:
            yield TraceRecord(trace, item, as_name(item.get("group_id")))


def _type(span: dict[str, Any]) -> str:
    return as_text(as_dict(span.get("span_data")).get("type"))


def _fill(trace: Trace, report: Report) -> None:
    about: dict[str, Any] = next((item for item in trace.records if item.get("object") == "trace"), {})
    by_id: dict[str, dict[str, Any]] = {}
    for item in trace.records:
        if item.get("object") == "trace.span":  # a processor may write it twice, when it starts and when it has ended
            add_fields(by_id.setdefault(item["id"], {}), item)
    spans = list(by_id.values())
    spans.sort(key=lambda span: as_text(span.get("started_at")))
    nodes = [TraceNode(span["id"], as_name(span.get("parent_id")), _kind(span), span) for span in spans]
    add_calls(trace, nodes, lambda span: _call(span, report), _tool_call, report, _agent)
    trace.agent = nonblank(*map(_agent, spans), about.get("workflow_name"))
    trace.extra = short_fields({"workflow": about.get("workflow_name"), "metadata": about.get("metadata")})
    agents = [node for node in nodes if _type(node.value) in ("agent", "generation", "response")]
    trace.outcome = outcome_from(None, _error(outermost(agents)))


def _agent(span: dict[str, Any]) -> str | None:
    return nonblank(as_dict(span.get("span_data")).get("name")) if _type(span) == "agent" else None


def _kind(span: dict[str, Any]) -> str:
    kind, data = _type(span), as_dict(span.get("span_data"))
    if kind == "response":
        return "model" if data.get("response") or data.get("output") else "response span without content"
    return {"generation": "model", "function": "tool"}.get(kind, f"span: {kind}")


def _error(span: dict[str, Any]) -> str | None:
    error = span.get("error")
    return nonblank(as_dict(error).get("message"), error) or ("error" if error else None)


def _call(span: dict[str, Any], report: Report) -> ModelCall:
    data = as_dict(span.get("span_data"))
    response = as_dict(data.get("response"))
    inputs = (
        {"input": data.get("input"), "instructions": response.get("instructions")} if response else data.get("input")
    )
    usage = parse_usage(response.get("usage"), data.get("usage"))
    model = nonblank(model_of(response), data.get("model"))
    return recorded_call(
        inputs,
        response.get("output") or data.get("output"),
        span.get("started_at"),
        report,
        model=model,
        usage=usage,
        settings=[response, data],
        error=_error(span),
    )


def _tool_call(span: dict[str, Any]) -> ToolCall:
    data, error = as_dict(span.get("span_data")), _error(span)
    answer = to_text(data.get("output")) or error or ""
    given = as_text(data.get("input")) or None
    return ToolCall(
        make_call(as_text(data.get("name")), given),
        Result(answer, None, error is not None),
        parse_time(span.get("started_at")),
    )
