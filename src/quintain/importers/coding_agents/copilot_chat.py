"""GitHub Copilot chats of VS Code: what "Chat: Export Chat..." writes, and the sessions in `workspaceStorage/*/chatSessions`.

A request is one prompt and all that followed. Its `toolCallRounds` are the replies of the model with their calls; older
sessions have only what the editor showed, where calls lack their arguments and results. Newer versions write a session as
a log of changes (`<session>.jsonl`): a snapshot, then values that are set, appended or deleted at a path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, object_rows, read_row
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.message_parts import join_thoughts
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank

_SHOWN_ONLY = (
    "some requests keep only what the editor showed: their calls lack arguments and results and are not trained on"
)
_PROMPTS = "prompts are as typed: the context that the editor added to them is not in the log"
_FAILED = ("ERROR while calling tool:", "The user cancelled the tool call.")
"""Beginnings of failed results, as the extension writes them for the model."""
_HIDDEN = frozenset({"textEditGroup", "codeblockUri", "undoStop", "prepareToolInvocation", "mcpServersStarting"})
"""Kinds of parts that show what calls did or that only the editor uses."""
_SNAPSHOT, _SET, _APPEND, _DELETE = range(4)
"""Kinds of changes: `EntryKind` in VS Code's `objectMutationLog.ts`; to append may first cut the list at `i`."""


def _detect(probe: Probe) -> float:
    """Match sessions that name their responder and list requests with a message and a response."""
    if _is_change(probe.first) and probe.first["kind"] == _SNAPSHOT:
        return 0.97 if "requests" in as_dict(probe.first.get("v")) else 0.0
    return 0.97 if matching_share(probe, _is_session, "requests") >= 0.5 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    session: dict[str, Any] = {}
    begins = 0
    for line, row in object_rows(log, report):
        if not _is_change(row):
            yield from read_row(row, line, report, _conversation)
        elif row["kind"] == _SNAPSHOT:
            session, begins = as_dict(row.get("v")), line
        elif not _apply(row, session):
            report.reject(line, "expected a change of a value that the session has")
    if session.get("requests"):
        yield from read_row(session, begins, report, _conversation)


def _is_change(row: dict[str, Any]) -> bool:
    return type(row.get("kind")) is int and row.keys() <= {"kind", "k", "v", "i"}


def _apply(change: dict[str, Any], session: dict[str, Any]) -> bool:
    """Apply a change to a session; return whether its path leads to a place."""
    kind, path = change["kind"], as_list(change.get("k"))
    held: Any = session
    for step in path[:-1]:
        if (held := _at(held, step)) is None:
            return False
    last = path[-1] if path else None
    is_place = isinstance(held, dict) and isinstance(last, str)
    is_place = is_place or (isinstance(held, list) and type(last) is int and 0 <= last <= len(held))
    if not is_place or kind not in (_SET, _APPEND, _DELETE):
        return False
    value = change.get("v")
    if kind == _APPEND:
        known, start = as_list(_at(held, last)), change.get("i")
        if type(start) is int and start >= 0:
            del known[start:]
        known += as_list(value)
        value = known
    if isinstance(held, list) and last == len(held):
        held.append(value)
    elif kind == _DELETE and isinstance(held, dict):
        held.pop(last, None)
    else:
        held[last] = value
    return True


def _at(held: Any, step: Any) -> Any:
    """Return the value at a step of a path; None if there is none."""
    if isinstance(held, dict):
        return held.get(step) if isinstance(step, str) else None
    return held[step] if isinstance(held, list) and type(step) is int and 0 <= step < len(held) else None


def _conversation(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    requests = dicts_in(row.get("requests"))
    metadata = [as_dict(as_dict(request.get("result")).get("metadata")) for request in requests]
    pairs = zip(requests, metadata, strict=True)
    yield from build_session_run(
        (message for request, about in pairs for message in _messages(request, about, report)),
        report,
        line,
        agent="github-copilot",
        version=nonblank(*(as_dict(request.get("agent")).get("extensionVersion") for request in reversed(requests))),
        session=nonblank(row.get("sessionId"), *(about.get("sessionId") for about in metadata)),
        about={"title": row.get("customTitle")},
    )


IMPORTER = Importer("copilot_chat", "GitHub Copilot chat", _detect, _read)


def _is_session(row: dict[str, Any]) -> bool:
    requests = dicts_in(row.get("requests"))
    spoken = any(
        isinstance(each.get("message"), str | dict) and isinstance(each.get("response"), list) for each in requests
    )
    return spoken and isinstance(row.get("responderUsername"), str)


def _messages(request: dict[str, Any], about: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield the messages of one request: the prompt, and the turns of the agent with the results of their calls."""
    message, when = request.get("message"), request.get("timestamp")
    parts = "".join(as_text(part.get("text")) for part in dicts_in(as_dict(message).get("parts")))
    variables = dicts_in(as_dict(request.get("variableData")).get("variables"))
    names = [name for each in variables if (name := nonblank(each.get("name")))]
    prompt = nonblank(message, as_dict(message).get("text"), parts) or ""
    yield {"role": "user", "content": prompt, "timestamp": when} | ({"attached": names[:100]} if names else {})
    report.note(_PROMPTS)
    rounds, model = dicts_in(about.get("toolCallRounds")), _model(request)
    if any(nonblank(each.get("response")) or each.get("toolCalls") for each in rounds):
        results = as_dict(about.get("toolCallResults"))
        for each in rounds:
            yield from _round(each, results, model)
    else:
        for shown in _shown(as_list(request.get("response")), report):
            yield {"role": "assistant", "model": model, "timestamp": when, **shown}
    if nonblank(as_dict(as_dict(request.get("result")).get("errorDetails")).get("message")):
        report.note("some requests ended in an error or were cancelled")


def _model(request: dict[str, Any]) -> str | None:
    """Return the model's id; where the editor chose it, the name that it shows before the price."""
    model = as_text(request.get("modelId")).removeprefix("copilot/")
    shown = as_text(as_dict(request.get("result")).get("details")).partition(" • ")[0]
    return (model if model != "auto" else "") or shown or None


def _round(each: dict[str, Any], results: dict[str, Any], model: str | None) -> Iterator[dict[str, Any]]:
    """Yield one reply of the model, and the results of its calls."""
    calls, thinking = dicts_in(each.get("toolCalls")), each.get("thinking")
    pieces = as_dict(thinking).get("text", thinking)
    thought = join_thoughts(map(as_text, pieces if isinstance(pieces, list) else [pieces]))
    reply = {"content": as_text(each.get("response")), "thinking": thought, "tool_calls": calls}
    if any(reply.values()):
        yield {"role": "assistant", "model": model, "timestamp": each.get("timestamp"), **reply}
    for call_id in [nonblank(call.get("id")) for call in calls]:
        if call_id not in results:
            continue
        text = _result_text(as_dict(results[call_id]).get("content"))
        yield {"role": "tool", "tool_call_id": call_id, "content": text, "is_error": text.startswith(_FAILED)}


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


def _shown(parts: list[Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield turns of the parts that the editor showed; a call ends a turn, for its result is not shown."""
    spoken, thoughts, calls = "", list[str](), list[dict[str, Any]]()
    for part in (as_dict(part) for part in parts):
        kind = part.get("kind")
        if calls and kind != "toolInvocationSerialized":
            yield {"content": spoken, "thinking": join_thoughts(thoughts), "tool_calls": calls, "train": False}
            spoken, thoughts, calls = "", [], []
        if kind == "toolInvocationSerialized":
            report.note(_SHOWN_ONLY)
            calls.append({"name": as_text(part.get("toolId")), "id": nonblank(part.get("toolCallId"))})
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
    if spoken.strip() or any(thoughts) or calls:
        last = {"content": spoken, "thinking": join_thoughts(thoughts), "tool_calls": calls}
        yield last | ({"train": False} if calls else {})
