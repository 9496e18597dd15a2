"""GitHub Copilot chats of VS Code: what "Chat: Export Chat..." writes, and the sessions in `workspaceStorage/*/chatSessions`.

A request is one prompt and all that followed. Its `toolCallRounds` are the replies of the model with their calls; older
sessions have only what the editor showed, where calls lack their arguments and results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import matching_share, row_importer
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.message_parts import join_thoughts
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank, parse_time, text_fields
from quintain.records.trajectory import AgentInfo

_SHOWN_ONLY = (
    "some requests keep only what the editor showed: their calls lack arguments and results and are not trained on"
)
_PROMPTS = "prompts are as typed: the context that the editor added to them is not in the log"
_FAILED = ("ERROR while calling tool:", "The user cancelled the tool call.")
"""Beginnings of failed results, as the extension writes them for the model."""
_HIDDEN = frozenset({"textEditGroup", "codeblockUri", "undoStop", "prepareToolInvocation", "mcpServersStarting"})
"""Kinds of parts that show what calls did or that only the editor uses."""


def _detect(probe: Probe) -> float:
    """Match sessions that name their responder and list requests with a message and a response."""
    return 0.97 if matching_share(probe, _is_session, "requests") >= 0.5 else 0.0


def _conversation(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    script, session, version = Transcript(), nonblank(row.get("sessionId")), None
    for request in dicts_in(row.get("requests")):
        about = as_dict(as_dict(request.get("result")).get("metadata"))
        session = session or nonblank(about.get("sessionId"))
        version = nonblank(as_dict(request.get("agent")).get("extensionVersion")) or version
        _write(request, about, script, report)
    yield from build_session_run(
        script,
        report,
        line,
        session=session,
        agent=AgentInfo(name="github-copilot", version=version, model=script.model),
        extra=text_fields({"title": row.get("customTitle")}),
    )


IMPORTER = row_importer("copilot_chat", "GitHub Copilot chat", _detect, _conversation)


def _is_session(row: dict[str, Any]) -> bool:
    requests = dicts_in(row.get("requests"))
    spoken = any(
        isinstance(each.get("message"), str | dict) and isinstance(each.get("response"), list) for each in requests
    )
    return spoken and isinstance(row.get("responderUsername"), str)


def _write(request: dict[str, Any], about: dict[str, Any], script: Transcript, report: Report) -> None:
    """Write one request: the prompt, and the turns of the agent."""
    message, when = request.get("message"), parse_time(request.get("timestamp"))
    parts = "".join(as_text(part.get("text")) for part in dicts_in(as_dict(message).get("parts")))
    names = [name for each in _variables(request) if (name := nonblank(each.get("name")))]
    prompt = nonblank(message, as_dict(message).get("text"), parts) or ""
    script.add_message("user", prompt, timestamp=when, extra={"attached": names[:100]} if names else None)
    report.note(_PROMPTS)
    model = _model(request)
    rounds = dicts_in(about.get("toolCallRounds"))
    if any(nonblank(each.get("response")) or each.get("toolCalls") for each in rounds):
        results = as_dict(about.get("toolCallResults"))
        for each in rounds:
            _add_round(each, results, script, {"model": model})
    else:
        _add_shown(as_list(request.get("response")), script, report, {"model": model, "timestamp": when})
    error = as_dict(as_dict(request.get("result")).get("errorDetails"))
    if nonblank(error.get("message")):
        report.note("some requests ended in an error or were cancelled")


def _model(request: dict[str, Any]) -> str | None:
    """Return the model's id; where the editor chose it, the name that it shows before the price."""
    model = as_text(request.get("modelId")).removeprefix("copilot/")
    shown = as_text(as_dict(request.get("result")).get("details")).partition(" • ")[0]
    return (model if model != "auto" else "") or shown or None


def _variables(request: dict[str, Any]) -> list[dict[str, Any]]:
    return dicts_in(as_dict(request.get("variableData")).get("variables"))


def _add_round(each: dict[str, Any], results: dict[str, Any], script: Transcript, fields: dict[str, Any]) -> None:
    """Write one reply of the model, and the results of its calls."""
    calls = [
        make_call(as_text(call.get("name")), call.get("arguments"), nonblank(call.get("id")))
        for call in dicts_in(each.get("toolCalls"))
    ]
    thinking = each.get("thinking")
    pieces = as_dict(thinking).get("text", thinking)
    thought = join_thoughts(map(as_text, pieces if isinstance(pieces, list) else [pieces]))
    spoken = as_text(each.get("response"))
    if spoken or calls or thought:
        when = parse_time(each.get("timestamp"))
        script.add_agent_turn(spoken, thought=thought, actions=calls, timestamp=when, **fields)
    for call in calls:
        if call["call_id"] in results:
            held = as_dict(results[call["call_id"]])
            text = _result_text(held.get("content"))
            script.add_result(text, call_id=call["call_id"], is_error=text.startswith(_FAILED))


def _result_text(value: Any) -> str:
    """Return the text of a result: strings, text parts, or the nodes of a rendered prompt."""
    if isinstance(value, list):
        return "".join(map(_result_text, value))
    if not isinstance(value, dict):
        return as_text(value)
    if "node" in value:
        return _result_text(value["node"])
    if isinstance(value.get("text"), str):
        return ("\n" if value.get("lineBreakBefore") is True else "") + as_text(value["text"])
    return _result_text(value.get("children", value.get("value")))


def _add_shown(parts: list[Any], script: Transcript, report: Report, fields: dict[str, Any]) -> None:
    """Write the parts that the editor showed as turns; a call ends a turn, for its result is not shown."""
    spoken, thoughts, calls = "", list[str](), list[dict[str, Any]]()
    for part in [*(as_dict(part) for part in parts), None]:
        kind = None if part is None else part.get("kind")
        if calls and kind != "toolInvocationSerialized":
            script.add_agent_turn(spoken, thought=join_thoughts(thoughts), actions=calls, train=False, **fields)
            spoken, thoughts, calls = "", [], []
        if part is None:
            break
        if kind == "toolInvocationSerialized":
            report.note(_SHOWN_ONLY)
            calls.append(make_call(as_text(part.get("toolId")), None, nonblank(part.get("toolCallId"))))
        elif kind == "thinking":
            value = part.get("value")
            thoughts += map(as_text, value if isinstance(value, list) else [value])
        elif kind in (None, "markdownContent", "markdownVuln"):
            content = part.get("content", part)
            spoken += as_text(as_dict(content).get("value", content))
        elif kind == "inlineReference":
            spoken += as_text(part.get("name")) or as_text(as_dict(part.get("inlineReference")).get("name"))
        elif as_text(kind) not in _HIDDEN:
            report.skip(f"part:{kind}")
    if spoken.strip() or any(thoughts):
        script.add_agent_turn(spoken, thought=join_thoughts(thoughts), **fields)
