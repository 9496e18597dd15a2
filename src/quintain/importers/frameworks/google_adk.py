"""Google's Agent Development Kit: sessions (`adk run --save_session`, the session API) and evaluation sets.

An event of a session is a message of the user or of one of the agents, in Gemini's parts. A session names its application,
and its events name the agent that wrote each one, so that the events of all agents are one conversation. An evaluation set
states what an agent should do in conversations: the calls of each answer in order, mostly without their results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import outcome_from
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.message_parts import RESULTS, part_kind
from quintain.importers.transcripts.vendor_messages import parse_vendor_message
from quintain.importers.values import as_dict, as_list, as_name, dicts_in, nonblank, parse_time, parse_usage
from quintain.records.trajectory import Task

_EXPECTED = "the conversations of an evaluation set are what the agent should do; most calls are without their results"
_UNPLACED = "text between the calls of an evaluation set, whose place is not in the file"


def _detect(probe: Probe) -> float:
    """Match sessions and evaluation sets: an object, an array or lines."""
    if matching_share(probe, _is_session, "events") > 0.5:
        return 0.96
    return 0.95 if matching_share(probe, _is_evaluation, *_EVALUATIONS) > 0.5 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    queries: list[dict[str, Any]] = []
    for line, row in log.rows(report):
        if isinstance(row, dict) and _is_session(row):
            yield from _run(row, report, line)
        elif isinstance(row, dict) and _is_query(row):
            queries.append(row)
        elif isinstance(row, dict) and _is_evaluation(row):
            cases = dicts_in(_field(row, "eval_cases")) or [row]
            for case in cases:
                yield from _expected_run(case, report, line)
        else:
            report.reject(line, "expected a session with `events`, or a case of an evaluation set with `conversation`")
    if queries:
        yield from _expected_run({"data": queries}, report, None)


IMPORTER = Importer("google_adk", "Google ADK session or evaluation set", _detect, _read)

_EVALUATIONS = ("eval_cases", "evalCases", "conversation", "data", "expected_tool_use")


def _field(row: dict[str, Any], name: str) -> Any:
    """Return a field by its name in Python or, as the web API writes it, in JavaScript."""
    head, *rest = name.split("_")
    return row.get(name, row.get(head + "".join(map(str.capitalize, rest))))


def _is_query(row: dict[str, Any]) -> bool:
    """Whether a row is a turn of the first evaluation files."""
    return isinstance(row.get("query"), str) and isinstance(row.get("expected_tool_use"), list)


def _is_evaluation(row: dict[str, Any]) -> bool:
    case = next(iter(dicts_in(_field(row, "eval_cases"))), row)
    turns = dicts_in(case.get("conversation"))
    if turns:
        return all(isinstance(_field(turn, "user_content"), dict) for turn in turns)
    queries = dicts_in(row.get("data"))
    return _is_query(row) or (bool(queries) and all(map(_is_query, queries)))


def _is_session(row: dict[str, Any]) -> bool:
    events = dicts_in(row.get("events"))[:5]
    if not events or any("author" not in event for event in events):
        return False
    if not row.keys().isdisjoint({"app_name", "appName", "user_id", "userId"}):
        return all("actions" in event for event in events)
    # The first versions did not name the application.
    return all("invocation_id" in event and "parts" in as_dict(event.get("content")) for event in events)


def _run(session: dict[str, Any], report: Report, line: int) -> Iterator[Run]:
    logs = {
        as_name(log.get("event_id")): as_dict(log.get("model_response")) for log in dicts_in(session.get("event_logs"))
    }
    # The first versions kept the model's responses beside the events.
    events = [{**logs.get(as_name(event.get("id")) or "", {}), **event} for event in dicts_in(session["events"])]
    failed = nonblank(*(events[-1].get(key) for key in ("error_code", "errorCode")))
    turns = [turn for event in events if (turn := _turn(event, report)) is not None]
    models = (nonblank(event.get("model_version"), event.get("modelVersion")) for event in events)
    yield from build_session_run(
        turns,
        report,
        line,
        session_id=nonblank(session.get("id")),
        agent=nonblank(session.get("app_name"), session.get("appName")),
        model=next(filter(None, models), None),
        outcome=outcome_from(None, failed),
    )


def _turn(event: dict[str, Any], report: Report) -> Turn | None:
    """Return the turn of an event; None for a piece of a streamed message and for a change of state."""
    content, author = as_dict(event.get("content")), nonblank(event.get("author"))
    parts = dicts_in(content.get("parts"))
    if not parts or event.get("partial") is True:
        report.skip("piece of a streamed message" if parts else "event without content")
        return None
    role = "user" if (author or content.get("role")) == "user" else "assistant"
    role = "tool" if all(part_kind(part) in RESULTS for part in parts) else role
    turn = parse_vendor_message({"role": role, "content": parts}, report)
    if turn is None:
        return None
    turn.fields["timestamp"] = parse_time(event.get("timestamp"))
    if turn.actor == "agent":
        turn.fields["usage"] = parse_usage(event.get("usage_metadata"), event.get("usageMetadata"))
        turn.fields["extra"] = {"author": author[:80]} if author else {}
    return turn


def _expected_run(case: dict[str, Any], report: Report, line: int | None) -> Iterator[Run]:
    """Yield the conversation of an evaluation case."""
    invocations = dicts_in(case.get("conversation")) or [_invocation(query) for query in dicts_in(case.get("data"))]
    messages = [message for invocation in invocations for message in _messages(invocation, report)]
    turns = [turn for message in messages if (turn := parse_vendor_message(message, report)) is not None]
    report.note(_EXPECTED)
    app = nonblank(_field(as_dict(_field(case, "session_input")), "app_name"))
    yield from build_session_run(
        turns, report, line, agent=app, task=Task(id=nonblank(_field(case, "eval_id"), case.get("name")))
    )


def _invocation(query: dict[str, Any]) -> dict[str, Any]:
    """Return a turn of the first evaluation files as later ones have it."""
    uses = dicts_in(query["expected_tool_use"])
    return {
        "user_content": {"parts": [{"text": query["query"]}]},
        "intermediate_data": {
            "tool_uses": [{"name": use.get("tool_name"), "args": use.get("tool_input")} for use in uses],
            "intermediate_responses": query.get("expected_intermediate_agent_responses"),
        },
        "final_response": {"parts": [{"text": query["reference"]}]} if query.get("reference") else None,
    }


def _messages(invocation: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield the messages of an invocation: the user's, the calls with known results, and the final answer."""
    yield {"role": "user", "content": _parts(_field(invocation, "user_content"))}
    between = as_dict(_field(invocation, "intermediate_data"))
    for event in dicts_in(_field(between, "invocation_events")):
        if parts := _parts(event.get("content")):
            is_result = all(part_kind(part) in RESULTS for part in parts)
            yield {"role": "tool" if is_result else "assistant", "content": parts}
    answers = {as_name(answer.get("id")): answer for answer in dicts_in(_field(between, "tool_responses"))}
    for use in dicts_in(_field(between, "tool_uses")):
        yield {"role": "assistant", "content": [{"function_call": use}]}
        if (name := as_name(use.get("id"))) and (answer := answers.get(name)):
            yield {"role": "tool", "content": [{"function_response": answer}]}
    report.skip(_UNPLACED, len(as_list(_field(between, "intermediate_responses"))))
    if parts := _parts(_field(invocation, "final_response")):
        yield {"role": "assistant", "content": parts}


def _parts(content: Any) -> list[dict[str, Any]]:
    """Return the parts of a message without their empty fields."""
    parts = [
        {key: value for key, value in part.items() if value is not None}
        for part in dicts_in(as_dict(content).get("parts"))
    ]
    return [part for part in parts if part]
