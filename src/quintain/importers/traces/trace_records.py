"""Group the records of a file by trace, and build the runs of a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import exit_status, single_reward
from quintain.importers.protocol import Report, Run
from quintain.importers.run_builder import build_run, transcript_of
from quintain.importers.traces.call_payloads import input_turns, model_of, output_turns, payload_usage
from quintain.importers.traces.conversations import (
    ModelCall,
    ToolCall,
    build_conversations,
    match_results,
    whole_exchange,
)
from quintain.importers.transcripts.message_parts import Result, parse_result
from quintain.importers.transcripts.result_envelopes import mcp_result
from quintain.importers.transcripts.tool_schemas import offered_tools
from quintain.importers.transcripts.vendor_messages import parse_vendor_message
from quintain.importers.values import as_dict, as_list, parse_json_text, parse_time, to_text
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus

WHOLE = "some traces have no model calls with content: their runs are the input and output of the outermost record"
_RESTORED = "some model calls have no recorded input: they go on with the call before them under the same record"
NO_MESSAGES = "expected messages, got a trace whose records have none"


@dataclass
class Trace:
    """Records of one agent request or one conversation."""

    id: str
    calls: list[ModelCall] = field(default_factory=list)
    tool_calls: list[ToolCall] = field(default_factory=list)
    is_conversation: bool = False
    """Whether the log declares its calls one conversation; then a call without history continues it."""
    agent: str | None = None
    version: str | None = None
    outcome: Outcome | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    line: int | None = None
    records: list[Any] = field(default_factory=list)
    """As the log has them."""


class TraceRecord(NamedTuple):
    """One span, run or observation."""

    trace: str
    value: Any
    conversation: str | None = None


def group_records(
    log: LogFile, report: Report, units: Callable[[Any, Report], Iterator[TraceRecord]]
) -> Iterator[Trace]:
    """Yield each trace or conversation with its records as soon as the last of them is read.

    The file is read twice, so that only what is not complete yet is held.
    """
    left: Counter[str] = Counter()
    alias: dict[str, str] = {}
    for _, row in LogFile(log.path, log.root).rows(Report()):
        for unit in units(row, Report()):
            left[unit.trace] += 1
            if unit.conversation:
                alias.setdefault(unit.trace, unit.conversation)
    members: Counter[str] = Counter()
    for trace, n in left.items():
        members[alias.get(trace, trace)] += n
    open_traces: dict[str, Trace] = {}
    for line, row in log.rows(report):
        for unit in units(row, report):
            name = alias.get(unit.trace, unit.trace)
            if not members[name]:  # the file has grown since; the next import reads it anew
                continue
            found = open_traces.setdefault(name, Trace(name, is_conversation=unit.trace in alias, line=line))
            found.records.append(unit.value)
            members[name] -= 1
            if not members[name]:
                yield open_traces.pop(name)
    yield from open_traces.values()


class TraceNode(NamedTuple):
    """A record in the tree of its trace."""

    id: str
    parent: str | None
    kind: str
    """`model`, `tool`, or for any other record its name in the report."""
    value: Any


def add_calls(
    trace: Trace,
    nodes: Sequence[TraceNode],
    model_call: Callable[[Any], ModelCall | None],
    tool_call: Callable[[Any], ToolCall | None],
    report: Report,
    agent_name: Callable[[Any], str | None] = lambda value: None,
) -> None:
    """Convert the nodes to calls of the trace, and count the other nodes. A model call within another is a duplicate."""
    parents = {node.id: node.parent for node in nodes}
    agents = {node.id: name for node in nodes if (name := agent_name(node.value))}
    models = {node.id for node in nodes if node.kind == "model"}
    for node in nodes:
        if node.kind == "tool":
            tool = tool_call(node.value)
            trace.tool_calls += [tool] if tool else []
        elif node.kind != "model":
            report.skip(node.kind)
        elif any(at in models for at in _above(node.id, parents)):
            report.skip("model call within a model call (a duplicate record)")
        else:
            call = model_call(node.value)
            if call and (call.inputs or call.outputs):
                call.agent = next((agents[at] for at in (node.id, *_above(node.id, parents)) if at in agents), None)
                call.parent = node.parent
                trace.calls.append(call)


def _above(node: str, parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the ids of the nodes above this one, innermost first."""
    seen = {node}
    at = parents.get(node)
    while at is not None and at not in seen:
        yield at
        seen.add(at)
        at = parents.get(at)


def outermost(nodes: Sequence[TraceNode]) -> Any:
    """Return the value of the first record without a recorded parent; {} if none exists."""
    ids = {node.id for node in nodes}
    return next((node.value for node in nodes if node.parent not in ids), {})


def recorded_call(
    inputs: Any,
    outputs: Any,
    start: Any,
    report: Report,
    *,
    model: str | None,
    usage: dict[str, int | None] | None,
    settings: Sequence[dict[str, Any]],
    error: str | None,
) -> ModelCall:
    """Return a model call whose request and response are recorded whole.

    Args:
        inputs: The request.
        outputs: The response.
        start: Time of the request.
        report: Counts skipped content.
        model: The model by the record; None: by the response, else by the request.
        usage: Token counts by the record; None: by the response.
        settings: Objects other than the request that may list the tools.
        error: Error of the call.
    """
    return ModelCall(
        input_turns(inputs, report),
        output_turns(outputs, report),
        parse_time(start),
        {"model": model or model_of(outputs) or model_of(inputs), "usage": usage or payload_usage(outputs)},
        offered_tools(inputs, as_dict(parse_json_text(inputs)).get("config"), *settings),
        error,
    )


def add_fields(known: dict[str, Any], record: Mapping[str, Any]) -> None:
    """Add the fields of a repeated record to those known; an empty value replaces none."""
    known |= {key: new for key, new in record.items() if new not in (None, "", [], {}) or key not in known}


def whole_call(inputs: Any, outputs: Any, start: Any, report: Report) -> ModelCall | None:
    """Return input and output of an outermost record as a single call; None if both are empty."""
    call = whole_exchange(input_turns(inputs, report), output_turns(outputs, report, whole=True))
    call.start = parse_time(start)
    return call if call.inputs or call.outputs else None


def take_whole(trace: Trace, inputs: Any, outputs: Any, start: Any, report: Report) -> None:
    """Give a trace without model calls the input and output of its outermost record as its only call."""
    if not trace.calls and (call := whole_call(inputs, outputs, start, report)):
        trace.calls = [call]
        report.note(WHOLE)


def tool_result(answer: Any, error: str | None) -> Result:
    """Return the result of a tool's record: of an MCP server, a message of LangChain with its call id, or any value."""
    known = mcp_result(answer)
    result = parse_result(known, known["content"], "result", Report().refuse) if known else Result(to_text(answer))
    if as_dict(answer).keys() & {"kwargs", "tool_call_id"}:
        message = parse_vendor_message(answer, Report(), "tool")
        result = message.results[0] if message and message.results else result
    return result._replace(content=result.content or error or "", is_error=result.is_error or error is not None)


def tags_of(value: Any) -> tuple[str, ...]:
    """Return at most 20 of the tags that a record has."""
    return tuple(tag for tag in as_list(value) if isinstance(tag, str) and 0 < len(tag) <= 100)[:20]


def trace_outcome(error: str | None, scores: dict[str, float]) -> Outcome:
    """Return the outcome of a trace: an error if it failed, else unknown, because traces do not state success."""
    return Outcome(
        status=OutcomeStatus.ERROR if error else OutcomeStatus.UNKNOWN,
        reward=single_reward(scores),
        scores=scores,
        exit_status=exit_status(error),
    )


def _restore_histories(calls: list[ModelCall], report: Report) -> None:
    """Give calls without a recorded input what came before them under the same record."""
    before: dict[str | None, ModelCall] = {}
    for call in sorted(calls, key=lambda call: str(call.start or "")):
        known = before.get(call.parent)
        if not call.inputs and known is not None and known.inputs and call.parent is not None:
            call.inputs = [*known.inputs, *known.outputs]
            report.note(_RESTORED)
        before[call.parent] = call


def build_trace_runs(trace: Trace, report: Report) -> Iterator[Run]:
    """Yield the runs of a trace: its first conversation, and the others as its subagents."""
    _restore_histories(trace.calls, report)
    found = build_conversations(trace.calls, is_one=trace.is_conversation)
    match_results(found, trace.tool_calls, report)
    if not found:
        report.reject(trace.line, NO_MESSAGES)
    acted = [conversation for conversation in found if conversation.last is not None]
    for n, conversation in enumerate(acted or found[:1]):
        transcript = transcript_of(conversation.turns_with_results, report)
        name = conversation.agent or trace.agent or "unknown"
        yield from build_run(
            transcript,
            report,
            trace.line,
            key=f"{trace.id}/{n}" if n else trace.id,
            parent=trace.id if n else None,
            session_id=f"{trace.id}/{n}" if n else trace.id,
            agent=AgentInfo(name=name, version=trace.version, model=transcript.model),
            tools=conversation.tools,
            outcome=None if n else trace.outcome,
            extra={name: value for name, value in trace.extra.items() if not n or name != "spans"},
            tags=trace.tags,
        )
