"""Weave calls: `call.to_dict()`, pages of the API and exports of the user interface, a call a line or as an array.

A model call is a call with its own token counts, or one of kind `llm`. Other calls are runs of tools if a model asked
for them by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most
from quintain.importers.traces.call_payloads import model_of, payload_usage
from quintain.importers.traces.conversations import ModelCall, ToolCall
from quintain.importers.traces.trace_records import (
    Trace,
    TraceNode,
    TraceRecord,
    add_calls,
    build_trace_runs,
    group_records,
    outermost,
    recorded_call,
    take_whole,
    tool_result,
    trace_outcome,
)
from quintain.importers.transcripts.transcript import make_call
from quintain.importers.values import (
    as_dict,
    as_name,
    as_text,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_time,
    parse_usage,
    short_fields,
)

_FIELDS = {"op_name", "trace_id", "inputs", "started_at"}
_REQUESTS = ("messages", "contents", "input", "prompt")
_OBJECT = re.compile(r"\A<[\w.]+ object at 0x[0-9a-f]+>\Z|\ANOT_GIVEN\Z")
"""Placeholder of Weave for an argument without a value in JSON."""


def _detect(probe: Probe) -> float:
    """Match calls with the fields of Weave's schema."""
    rows = [call for row in [probe.first, *probe.rows[:5]] for call in _calls(row)]
    if not any(map(_is_call, rows)):
        return 0.0
    return if_most(0.97, probe, lambda row: any(map(_is_call, _calls(row))))


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for trace in group_records(log, report, _units):
        _fill(trace, report)
        yield from build_trace_runs(trace, report)


IMPORTER = Importer("weave", "Weave calls", _detect, _read)


def _calls(row: Any) -> list[dict[str, Any]]:
    known = as_dict(row)
    return dicts_in(known.get("calls")) or [known]


def _is_call(value: dict[str, Any]) -> bool:
    return value.keys() >= _FIELDS and isinstance(value.get("op_name"), str) and isinstance(value.get("inputs"), dict)


def _units(row: Any, report: Report) -> Iterator[TraceRecord]:
    for call in _calls(row):
        trace = as_name(call.get("trace_id"))
        if trace is None or not _is_call(call):
            report.skip("record other than a call")
        else:
            yield TraceRecord(trace, call, as_name(call.get("thread_id")))


def _name(call: dict[str, Any]) -> str:
    """Return the name of an operation: that of `weave:///entity/project/op/NAME:DIGEST`."""
    return as_text(call.get("op_name")).rpartition("/")[2].partition(":")[0]


def _fill(trace: Trace, report: Report) -> None:
    calls: list[dict[str, Any]] = sorted(trace.records, key=lambda call: as_text(call.get("started_at")))
    ids = [as_name(call.get("id")) or f"#{n}" for n, call in enumerate(calls)]
    counted = {as_name(call.get("parent_id")) for call in calls if _usage(call)}
    models = {id: _call(call, report) for id, call in zip(ids, calls, strict=True) if _is_model(call, id in counted)}
    asked = {call["tool"] for model in models.values() for turn in model.outputs for call in turn.calls}
    nodes = [
        TraceNode(id, as_name(call.get("parent_id")), "model" if id in models else _kind(call, asked), (id, call))
        for id, call in zip(ids, calls, strict=True)
    ]
    add_calls(trace, nodes, lambda pair: models[pair[0]], lambda pair: _tool_call(pair[1]), report)
    root = (outermost(nodes) or ("", calls[0]))[1]
    take_whole(trace, _inputs(root), root.get("output"), root.get("started_at"), report)
    trace.agent = nonblank(root.get("display_name"), _name(root))
    trace.extra = short_fields({"project": root.get("project_id"), "thread": root.get("thread_id")})
    trace.outcome = trace_outcome(_error(root), {})


def _usage(call: dict[str, Any]) -> dict[str, Any]:
    return as_dict(as_dict(call.get("summary")).get("usage"))


def _is_model(call: dict[str, Any], has_counted_children: bool) -> bool:
    """Whether a call is one of a model: its counts are its own, or a failed request has none."""
    inputs, kind = as_dict(call.get("inputs")), as_dict(as_dict(call.get("attributes")).get("weave")).get("kind")
    if kind in ("llm", "tool", "agent"):
        return bool(kind == "llm") and not has_counted_children
    is_exchange = "model" in inputs or "choices" in as_dict(call.get("output"))
    asks = is_exchange and any(inputs.get(key) for key in _REQUESTS)
    return not has_counted_children and (bool(_usage(call)) or asks)


def _kind(call: dict[str, Any], asked: set[str]) -> str:
    return "tool" if _name(call) in asked else f"call: {_name(call)}"


def _inputs(call: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that have values."""
    given = as_dict(call.get("inputs")).items()
    return {
        key: value for key, value in given if key != "self" and not (isinstance(value, str) and _OBJECT.match(value))
    }


def _call(call: dict[str, Any], report: Report) -> ModelCall:
    output, counts = call.get("output"), _usage(call)
    return recorded_call(
        _inputs(call),
        output,
        call.get("started_at"),
        report,
        model=model_of(output) or next(iter(counts), None),
        usage=payload_usage(output) or parse_usage(*counts.values()),
        settings=[],
        error=_error(call),
    )


def _tool_call(call: dict[str, Any]) -> ToolCall:
    result = tool_result(call.get("output"), _error(call))
    return ToolCall(make_call(_name(call), _inputs(call), result.call_id), result, parse_time(call.get("started_at")))


def _error(call: dict[str, Any]) -> str | None:
    """Return the exception of a call, without its traceback."""
    known = parse_json_text(call.get("exception"))
    if isinstance(known, dict):
        return ": ".join(filter(None, (as_text(known.get("type")), as_text(known.get("message"))))) or "error"
    return as_text(known).strip().rpartition("\n")[2] or None
