"""Grok CLI sessions: `~/.grok/sessions/<folder>/<session>/chat_history.jsonl`, with `summary.json` beside them.

A line is a message, a thought, or the result of a call. The thoughts of a reply come before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import build_session_run, transcript_of
from quintain.importers.transcripts.message_parts import join_thoughts
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank

_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool_result": "tool"}
_KINDS = {*_ROLES, "reasoning", "backend_tool_call"}


def _detect(probe: Probe) -> float:
    """Match typed lines with the content beside the type; only Grok writes a model id or a prompt index."""
    rows = [row for row in map(as_dict, probe.rows) if "content" in row and as_text(row.get("type")) in _ROLES]
    if probe.shape != "lines" or any({"role", "sessionId", "session_id"} & row.keys() for row in rows):
        return 0.0
    own = (as_text(row.get("model_id")) or {"prompt_index", "synthetic_reason"} & row.keys() for row in rows)
    spoken = any(row["type"] == "assistant" for row in rows)
    if any(own):
        return if_most(0.95, probe, lambda row: as_text(row.get("type")) in _KINDS)
    return 0.6 if spoken and len(rows) > 1 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    script = transcript_of(_messages(object_rows(log, report), report), report)
    about = as_dict(log.sibling_document("summary.json"))
    if "info" in about:
        report.consume(log.path.with_name("summary.json"))
    else:
        about = {}
    info, is_part = as_dict(about.get("info")), about.get("session_kind") == "subagent"
    session = nonblank(info.get("id"))
    yield from build_session_run(
        script,
        report,
        agent="grok-cli",
        model=nonblank(script.model, about.get("current_model_id")),
        key=None if is_part else session,
        parent=session if is_part else None,
        session_id=session,
        about={
            "cwd": info.get("cwd"),
            "git_branch": about.get("head_branch"),
            "git_commit": about.get("head_commit"),
            "agent_type": about.get("agent_name") if is_part else None,
        },
    )


IMPORTER = Importer("grok_cli", "Grok CLI session", _detect, _read)


def _messages(rows: Iterable[tuple[int, dict[str, Any]]], report: Report) -> Iterator[dict[str, Any]]:
    """Yield the messages; thoughts and calls of the vendor's own tools wait for the reply that they belong to."""
    thoughts, calls = list[str](), list[dict[str, Any]]()
    for line, row in chain(rows, [(0, {"type": "user"})]):
        kind = as_text(row.get("type"))
        if kind == "reasoning":
            thoughts += [as_text(piece.get("text")) for piece in dicts_in(row.get("summary"))]
            if row.get("encrypted_content"):
                report.note("thoughts are encrypted; their summaries are used where the log has them")
        elif kind == "backend_tool_call":
            call = as_dict(row.get("kind"))
            calls.append({"id": call.get("id"), "name": call.get("tool_type"), "arguments": call.get("action")})
        elif kind in _ROLES:
            message = {key: row[key] for key in ("content", "tool_call_id", "is_error") if row.get(key) is not None}
            if kind == "assistant":
                thoughts.append(as_text(as_dict(row.get("reasoning")).get("text")))
                calls += as_list(row.get("tool_calls"))
            if kind == "assistant" or (kind == "user" and (any(thoughts) or calls)):  # else it was interrupted
                reply = {"thinking": join_thoughts(thoughts), "tool_calls": calls, "model": row.get("model_id")}
                yield {"role": "assistant", **(message if kind == "assistant" else {}), **reply}
                thoughts, calls = [], []
            if kind != "assistant" and line:
                yield {"role": _ROLES[kind], **message} | ({"context": True} if row.get("synthetic_reason") else {})
        elif not kind:
            report.reject(line, "expected a line with a type")
        else:
            report.skip(kind)
