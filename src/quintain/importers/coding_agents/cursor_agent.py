"""Cursor agent transcripts: `~/.cursor/projects/<folder>/agent-transcripts/<session>/<session>.jsonl`, and `<session>.json`.

Both have the texts and the calls. The results of the calls, the model and the times are not in them. Cursor also wrote
`<session>.txt`, whose arguments have no marks of where they end: it is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import build_session_run, transcript_of
from quintain.importers.transcripts.message_parts import plain_text
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank

_FOLDER, _SUBAGENTS = "agent-transcripts", "subagents"
_QUERY = re.compile(r"<user_query>\s*(.*?)\s*</user_query>", re.DOTALL)
_HIDDEN = "[REDACTED]"
"""Stands at the end of a text in place of the thoughts."""
_ASKED, _REPLIED = "user:", "assistant:"
_THOUGHTS_HIDDEN = "some thoughts are hidden by Cursor and cannot be read"
_NO_RESULTS = "the transcript has the calls without their results; the model and the times are not in it either"
_TEXT_FORM = (
    "expected a transcript in JSON, got Cursor's text form, in which arguments have no marks of where they end; use the "
    ".json or .jsonl of the same session"
)


def _detect(probe: Probe) -> float:
    """Match lines with a role and a message without one, rows with named calls, or the headings of the text form."""
    rows = probe.objects
    if _is_text_form(probe.text):
        return 0.9 if _FOLDER in probe.path else 0.6
    if probe.shape == "lines" and any(map(_is_line, rows)):
        return if_most(0.95, probe, lambda row: _is_line(row) or _is_end(row))
    if probe.shape == "array" and rows and all(map(_is_row, rows)):
        return 0.95 if any(map(_has_tools, rows)) or _FOLDER in probe.path else 0.0
    return 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    if log.path.suffix == ".txt" and _is_text_form(next((line for _, line in log.text_lines() if line.strip()), "")):
        report.reject(None, _TEXT_FORM)
        return
    script = transcript_of(_messages(object_rows(log, report), report), report)
    beside = log.sibling(f"{log.path.stem}.txt")  # the same session in its text form
    if beside is not None and beside.path != log.path:
        report.consume(beside.path)
    if script.has_acted:
        report.note(_NO_RESULTS)
    asked = next((plain_text(step["message"]) for step in script.steps if step["actor"] == "user"), "")
    found, folders = _QUERY.search(asked), log.parts[:-1]
    yield from build_session_run(
        script,
        report,
        agent="cursor",
        session=log.path.stem,
        parent=folders[-2] if len(folders) > 1 and folders[-1] == _SUBAGENTS else None,
        prompt=found[1] if found else nonblank(asked),
    )


IMPORTER = Importer("cursor_agent", "Cursor agent transcript", _detect, _read)


def _is_text_form(text: str) -> bool:
    return text.lstrip().partition("\n")[0].rstrip() == _ASKED


def _is_line(row: dict[str, Any]) -> bool:
    """Whether a row is a message of the newer form, whose content has Anthropic's blocks."""
    message = row.get("message")
    is_bare = isinstance(message, dict) and "role" not in message and isinstance(message.get("content"), str | list)
    return is_bare and row.get("role") in ("user", "assistant") and "type" not in row


def _is_end(row: dict[str, Any]) -> bool:
    return row.get("type") == "turn_ended" and isinstance(row.get("status"), str)


def _is_row(row: dict[str, Any]) -> bool:
    """Whether a row is a message of the older form: a text, calls, or a result."""
    return (row.get("role") in ("user", "assistant") and isinstance(row.get("text"), str)) or _has_tools(row)


def _has_tools(row: dict[str, Any]) -> bool:
    named = [as_dict(row.get("toolResult"))] if row.get("role") == "tool" else dicts_in(row.get("toolCalls"))
    return bool(named) and all(isinstance(each.get("toolName"), str) for each in named)


def _messages(rows: Iterable[tuple[int, dict[str, Any]]], report: Report) -> Iterator[dict[str, Any]]:
    for line, row in rows:
        if _is_line(row):
            yield from _messages_of_line(row, report)
        elif _is_row(row):
            yield from _messages_of_row(row, report)
        elif _is_end(row):
            report.skip(f"turn_ended/{as_text(row.get('status'))}")
        else:
            report.reject(line, "expected a message with a role")


def _messages_of_line(row: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield the message of the newer form, unless hidden thoughts are all that it has."""
    content = row["message"]["content"]
    blocks = as_list(content) or [{"type": "text", "text": content}]
    if row["role"] == "assistant":
        blocks = [block for each in blocks if (block := _shown(each, report)) != {"type": "text", "text": ""}]
    if blocks:
        yield {"role": row["role"], "content": blocks}
    else:
        report.skip("hidden thought")


def _shown(block: Any, report: Report) -> Any:
    """Return a block of an answer without the mark of a hidden thought."""
    text = as_dict(block).get("text")
    if not isinstance(text, str) or not text.endswith(_HIDDEN):
        return block
    report.note(_THOUGHTS_HIDDEN)
    return {**block, "text": text.removesuffix(_HIDDEN).rstrip()}


def _messages_of_row(row: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield the message of the older form, unless it is a result without its text."""
    if row["role"] != "tool":
        calls = [{**call, "id": None} for call in dicts_in(row.get("toolCalls"))]
        more = {"tool_calls": calls} if row["role"] == "assistant" else {}
        yield {"role": row["role"], "content": as_text(row.get("text")), **more}
        return
    result = as_dict(row.get("toolResult"))
    content = nonblank(result.get("result"), result.get("output"), result.get("content"))
    if content is None:
        report.skip("result without its text")
    else:
        yield {"role": "tool", "content": content, "name": result.get("toolName")}
