"""LangSmith runs: exports (lists, lines, `{"runs": []}`, nested `child_runs`) and batches of the ingestion API.

Model runs hold the messages, tool runs the results; a trace without model runs is what its outermost run was given and
gave. So is one whose model runs were only given text, where the outermost run has the messages. Feedback becomes scores, and
the reward where exactly one is named reward, score or correctness; it is not a verdict.
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
    add_fields,
    build_trace_runs,
    group_records,
    outermost,
    recorded_call,
    tags_of,
    take_whole,
    tool_result,
    trace_outcome,
    whole_call,
)
from quintain.importers.transcripts.chat_messages import Turn
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
    to_text,
)
from quintain.records.trajectory import Outcome

_RENDERED = re.compile(r"(?:System: (?P<system>.*?)\n)?Human: ", re.DOTALL)
_BATCHES = ("post", "patch", "runs")


def _detect(probe: Probe) -> float:
    """Match runs with a type and a trace, alone or in a batch."""
    for row in [probe.first, *probe.rows[:5]]:
        for run in [as_dict(row), *(run for key in _BATCHES for run in dicts_in(as_dict(row).get(key)))]:
            marks = run.keys() & {"trace_id", "dotted_order", "inputs"}
            if isinstance(run.get("run_type"), str) and marks:
                return if_most(0.97, probe, lambda row: bool({"run_type", "id", *_BATCHES} & row.keys()))
    return 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for trace in group_records(log, report, _units):
        _fill(trace, report)
        yield from build_trace_runs(trace, report)


IMPORTER = Importer("langsmith", "LangSmith runs", _detect, _read)


def _units(row: Any, report: Report) -> Iterator[TraceRecord]:
    stack = [run for key in _BATCHES for run in dicts_in(as_dict(row).get(key))] or [as_dict(row)]
    while stack:
        run = stack.pop(0)
        run_id = _run_id(run)
        if run_id is None:
            report.skip("record other than a run")
            continue
        root = as_text(run.get("dotted_order")).split(".")[0].partition("Z")[2]
        trace = as_name(run.get("trace_id")) or root or run_id
        children = dicts_in(run.get("child_runs"))
        yield TraceRecord(trace, {key: value for key, value in run.items() if key != "child_runs"})
        stack += [{"trace_id": trace, "parent_run_id": run_id, **child} for child in children]


def _run_id(run: dict[str, Any]) -> str | None:
    """Return the id of a run; a patch may name it only by the end of its dotted order, or by its trace if it is the root."""
    last = as_text(run.get("dotted_order")).rpartition(".")[2].partition("Z")[2]
    root = run.get("trace_id") if run.get("parent_run_id") is None else None
    return as_name(run.get("id")) or as_name(run.get("run_id")) or as_name(last or None) or as_name(root)


def _fill(trace: Trace, report: Report) -> None:
    runs = _merged(trace.records)
    nodes = [TraceNode(run_id, as_name(run.get("parent_run_id")), _kind(run), run) for run_id, run in runs.items()]
    add_calls(trace, nodes, lambda run: _call(run, report), _tool_call, report)
    models = [run for run in runs.values() if run.get("run_type") == "llm"]
    root = outermost(nodes)
    if not trace.calls and root.get("run_type") != "tool":
        take_whole(trace, root.get("inputs"), root.get("outputs"), root.get("start_time"), report)
    elif all(map(_is_text, models)) and trace.calls and (root_call := _of_root(root, models[0], trace.calls, report)):
        trace.calls = [root_call]
    about = as_dict(as_dict(root.get("extra")).get("metadata"))
    trace.agent = nonblank(root.get("name")) if root.get("run_type") != "llm" else None
    thread = nonblank(*(about.get(key) for key in ("session_id", "thread_id", "conversation_id")))
    trace.extra = short_fields({"project": root.get("session_name"), "thread": thread})
    trace.tags = tags_of(root.get("tags"))
    trace.outcome = _outcome(root, list(runs.values()))


def _kind(run: dict[str, Any]) -> str:
    kind = run.get("run_type")
    if not isinstance(kind, str):
        return "run without a type"
    return {"llm": "model", "tool": "tool"}.get(kind, f"run: {kind}")


def _is_text(run: dict[str, Any]) -> bool:
    """Whether a model run got its messages as one text (`System: ...`, `Human: ...`), as LangChain renders them for tracers."""
    prompts = as_list(as_dict(run.get("inputs")).get("prompts"))
    return bool(prompts) and isinstance(prompts[0], str) and _RENDERED.match(prompts[0]) is not None


def _of_root(
    root: dict[str, Any], first_run: dict[str, Any], calls: list[ModelCall], report: Report
) -> ModelCall | None:
    """Return the conversation of the outermost run with the model runs' data on each turn; None if it has no messages."""
    if not isinstance(as_dict(parse_json_text(root.get("outputs"))).get("messages"), list):
        return None
    whole = whole_call(root.get("inputs"), root.get("outputs"), root.get("start_time"), report)
    if whole is None:
        return None
    calls_by_turn = {turn.key: call for call in calls for turn in call.outputs}
    acted = [turn for turn in whole.outputs if turn.actor == "agent"]
    if not acted or {turn.key for turn in acted} != set(calls_by_turn):
        return None
    for turn in acted:
        call = calls_by_turn[turn.key]
        known = {key: value for key, value in call.fields.items() if value is not None}
        turn.fields = {"timestamp": call.start, **turn.fields, **known}
    found = _RENDERED.match(as_dict(first_run.get("inputs"))["prompts"][0])
    if found and found["system"] and not any(turn.actor == "system" for turn in whole.inputs):
        whole.inputs = [Turn("system", found["system"]), *whole.inputs]
    whole.tools = calls[0].tools
    return whole


def _merged(values: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return each run once: a patch adds fields missing from its post."""
    runs: dict[str, dict[str, Any]] = {}
    for value in values:
        add_fields(runs.setdefault(_run_id(value) or "", {}), value)
    started = {key: (as_text(run.get("dotted_order")), to_text(run.get("start_time"))) for key, run in runs.items()}
    return {key: runs[key] for key in sorted(runs, key=started.__getitem__)}


def _call(run: dict[str, Any], report: Report) -> ModelCall:
    inputs, outputs = run.get("inputs"), run.get("outputs")
    extra = as_dict(run.get("extra"))
    about, params = as_dict(extra.get("metadata")), as_dict(extra.get("invocation_params"))
    counts = {key: run.get(key) for key in ("prompt_tokens", "completion_tokens")}
    return recorded_call(
        inputs,
        outputs,
        run.get("start_time"),
        report,
        model=nonblank(model_of(outputs), about.get("ls_model_name"), model_of(params)),
        usage=payload_usage(outputs) or parse_usage(counts),
        settings=(params, extra),
        error=nonblank(run.get("error")),
    )


def _tool_call(run: dict[str, Any]) -> ToolCall:
    inputs, outputs = parse_json_text(run.get("inputs")), parse_json_text(run.get("outputs"))
    error = nonblank(run.get("error"))
    arguments = parse_json_text(as_dict(inputs).get("input")) if set(as_dict(inputs)) == {"input"} else inputs
    answer = as_dict(outputs).get("output", outputs) if isinstance(outputs, dict) else outputs
    result = tool_result(answer, error)
    call_id = result.call_id or as_name(as_dict(as_dict(run.get("extra")).get("metadata")).get("tool_call_id"))
    if isinstance(arguments, dict) and arguments.keys() >= {"name", "args", "id"}:
        arguments = arguments["args"]  # some LangChain versions pass the whole call
    return ToolCall(
        make_call(as_text(run.get("name")), arguments, call_id),
        result._replace(call_id=call_id),
        parse_time(run.get("start_time")),
    )


def _outcome(root: dict[str, Any], runs: list[dict[str, Any]]) -> Outcome:
    scores: dict[str, float] = {}
    for run in [*runs, root]:
        feedback = as_dict(run.get("feedback_stats"))
        scores |= score_fields({key: as_dict(stats).get("avg", stats) for key, stats in feedback.items()})
    return trace_outcome(nonblank(root.get("error")), scores)
