"""Session traces of the Hugging Face Hub (STS: a header line, then one message a line) and sessions of Pi, OpenClaw and Factory Droid.

Described at hf.co/docs/hub/session-traces-format. Pi's sessions are trees by `parentId`: the last branch is read. The model
of a session of Factory Droid is in `<session>.settings.json` beside it. In the events of `pi --mode json` a message stands where
it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.files.spooled_list import SpooledList
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import COMPACTED, build_session_run, transcript_of
from quintain.importers.transcripts.message_parts import visible_content
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_time

_Lines = SpooledList[tuple[int, dict[str, Any]]]
_MESSAGES = ("message", "message_end")
_MIRRORED = "replies that OpenClaw wrote itself, such as copies of what it delivered, are not trained on"
_DROID = "session_start"
_HEADERS = {"session": "pi", _DROID: "droid"}
"""Type of the first line -> program, where the line does not name it."""


def _detect(probe: Probe) -> float:
    """Match a header line with the id of a harness or of Pi, or lines of Pi that name their parents."""
    head = probe.first
    bodies = [row for row in probe.rows if isinstance(row, dict) and row.get("type") in _MESSAGES]
    has_messages = any(isinstance(row.get("message"), dict) for row in bodies)
    if as_text(head.get("type")) not in _HEADERS or probe.shape == "zip":
        is_session = has_messages and _is_line(head) and not probe.text  # a page about them shows such lines too
        return if_most(0.8, probe, _is_line) if is_session else 0.0
    if isinstance(head.get("harness"), str):
        return 0.97
    return 0.85 if "id" in head and has_messages else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    head: dict[str, Any] = {}
    lines = _Lines()
    begin: int | None = None
    settings: dict[str, Any] = {}
    for line, row in object_rows(log, report):
        if as_text(row.get("type")) in _HEADERS:
            if begin is not None:
                yield from _run(begin, settings | head, lines, report)
            head, lines, begin = row, _Lines(), line
            if row["type"] == _DROID:
                settings = {
                    "model": as_dict(log.sibling_document(f"{log.path.stem}.settings.json", report)).get("model")
                }
        else:
            begin = begin if begin is not None else line
            log.hold((line, row), lines)
    if begin is None:
        report.reject(None, "expected a session, got no line of one")
    else:
        yield from _run(begin, settings | head, lines, report)


IMPORTER = Importer("hf_sts", "Hugging Face session trace", _detect, _read)


def _is_line(row: dict[str, Any]) -> bool:
    """Whether a row is a line of Pi's tree, such as the first one of a session that lost its header."""
    return {"type", "id", "parentId", "timestamp"} <= row.keys()


def _run(begin: int, head: dict[str, Any], lines: _Lines, report: Report) -> Iterator[Run]:
    script = transcript_of(_messages(_branch(lines, report), report), report)
    is_openclaw = any(
        as_text(row.get("customType")).startswith("openclaw.") or _is_by_program(as_dict(row.get("message")))
        for _, row in lines
    )
    session, harness = nonblank(head.get("id")), nonblank(head.get("harness"), "openclaw" if is_openclaw else None)
    title = nonblank(head.get("name"), head.get("sessionTitle"), head.get("title"))
    yield from build_session_run(
        script,
        report,
        begin,
        session=session,
        agent=harness or _HEADERS.get(as_text(head.get("type")), "pi"),
        version=head.get("version"),
        model=nonblank(script.model, head.get("model")),
        about={"title": title},
    )


def _branch(lines: _Lines, report: Report) -> Iterable[tuple[int, dict[str, Any]]]:
    """Return the lines from the root to the last line if lines name their parents; else all lines.

    A parent is a line, or the call of a line that the next one answers. Where it is neither, the line before it counts.
    """
    known = {row["id"]: n for n, (_, row) in enumerate(lines) if nonblank(row.get("id"))}
    parents = [nonblank(row.get("parentId")) for _, row in lines]
    if known.keys().isdisjoint(parents):
        return lines
    callers = {call: n for n, (_, row) in enumerate(lines) for call in _call_ids(row)}
    roots = {None, *parents[:1]}
    chain: list[int] = []
    at: int | None = len(lines) - 1
    while at is not None:
        chain.append(at)
        parent = parents[at]
        above = known.get(parent or "", callers.get(parent or ""))
        if above is None and parent not in roots and at:
            above = at - 1
        at = above if above is not None and above < at else None
    kept = set(chain)
    if left := sum(row.get("type") == "message" and n not in kept for n, (_, row) in enumerate(lines)):
        report.note(f"only the branch with the last line is imported: {left} messages of others are left out")
    return (line for n, line in enumerate(lines) if n in kept)


def _call_ids(row: dict[str, Any]) -> list[str]:
    """Return the ids of the calls in a line."""
    message = as_dict(row.get("message"))
    parts = [
        *dicts_in(message.get("content")),
        *dicts_in(message.get("tool_calls")),
        *dicts_in(message.get("toolCalls")),
    ]
    called = (part for part in parts if "content" not in part)
    return [call_id for part in called if (call_id := nonblank(part.get("id")))]


def _messages(lines: Iterable[tuple[int, dict[str, Any]]], report: Report) -> Iterator[dict[str, Any]]:
    model: str | None = None
    for line, row in lines:
        kind, message = as_text(row.get("type")), row.get("message")
        if kind == "model_change":
            model = nonblank(row.get("modelId"))
        if kind == "compaction":
            report.note(COMPACTED)
        if context := _context(kind, row):
            yield {"role": "user", "content": context, "timestamp": row.get("timestamp"), "context": True}
        elif kind not in _MESSAGES:
            report.skip(kind or "without type")
        elif not isinstance(message, dict):
            report.reject(line, "expected a message object in a line of type message")
        else:
            known = {key: value for key, value in message.items() if key != "toolCalls"}
            stated = message.get("timestamp")
            known["timestamp"] = stated if parse_time(stated) is not None else row.get("timestamp")
            known |= {"model": model} if model and message.get("role") == "assistant" and "model" not in known else {}
            if _is_by_program(message):
                report.note(_MIRRORED)
                known["train"] = False
            yield {**known, "tool_calls": message.get("tool_calls", message.get("toolCalls"))}


def _is_by_program(message: dict[str, Any]) -> bool:
    """Whether OpenClaw wrote a message of the assistant itself: a copy of what it delivered, or a text put in."""
    return message.get("role") == "assistant" and message.get("provider") == "openclaw"


def _context(kind: str, row: dict[str, Any]) -> Any:
    """Return what the program itself tells the model by a line: its own message, a summary, or a command of the user."""
    if kind == "custom_message":
        return visible_content(row.get("content"))
    if kind in ("compaction", "branch_summary"):
        return nonblank(row.get("summary"))
    ran = as_dict(row.get("message"))
    if ran.get("role") != "bashExecution" or ran.get("excludeFromContext") is True:
        return None
    output = nonblank(ran.get("output"))
    return f"Ran `{as_text(ran.get('command'))}`\n" + (f"```\n{output}\n```" if output else "(no output)")
