"""ChatGPT conversations: `conversations.json` of a data export, and single conversations as the web application has them.

A conversation is a tree of messages (`mapping`). The branch that ends at `current_node` is the run. A message to another
recipient than `all` is a call of that tool. Thumbs in `message_feedback.json` beside the conversations label the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.chat_apps.branches import branch_of, note_others
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, read_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.message_parts import (
    Message,
    join_thoughts,
    plain_text,
    simplify_content,
    visible_content,
)
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank, parse_time, text_fields
from quintain.records.trajectory import DESIRABLE

_NO_LEAF = "a conversation does not name its current message: the branch of its last message is imported"
_EMPTY = "the export leaves out the results of some tools: they are empty"
_THUMBS = {"thumbsUp": True, "thumbs_up": True, "thumbsDown": False, "thumbs_down": False}
_CONTEXT = frozenset({"user_editable_context", "model_editable_context"})
_BODIES = ("text", "result", "content", "model_set_context")


def _detect(probe: Probe) -> float:
    """Match trees of messages with an author and a typed content."""
    share = matching_share(probe, _is_conversation, "mapping")
    return 0.97 if share >= 0.5 else 0.6 * bool(share)


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    ratings = _ratings(log)
    return read_rows(log, report, lambda row, line, report: _conversation(row, line, report, ratings))


def _conversation(
    row: dict[str, Any], line: int, report: Report, ratings: dict[str, list[dict[str, Any]]]
) -> Iterator[Run]:
    writer = _Writer(report)
    branch = _branch(row, report)
    for message in branch:
        writer.write(message)
    writer.end()
    session = nonblank(row.get("conversation_id"), row.get("id"))
    label = _label(ratings.get(session or "", []), row, branch)
    yield from build_session_run(
        writer.script,
        report,
        line,
        session=session,
        agent="chatgpt",
        model=writer.script.model or nonblank(row.get("default_model_slug")),
        extra=text_fields({"title": row.get("title"), "gizmo_id": row.get("gizmo_id")})
        | ({} if label is None else {DESIRABLE: label}),
    )


IMPORTER = Importer("chatgpt", "ChatGPT conversations", _detect, _read)


def _ratings(log: LogFile) -> dict[str, list[dict[str, Any]]]:
    """Return conversation id -> ratings of its messages, from the file of thumbs beside the log."""
    ratings: dict[str, list[dict[str, Any]]] = {}
    for rating in dicts_in(log.sibling_document("message_feedback.json")):
        ratings.setdefault(as_text(rating.get("conversation_id")), []).append(rating)
    return ratings


def _label(ratings: list[dict[str, Any]], row: dict[str, Any], branch: list[dict[str, Any]]) -> bool | None:
    """Return whether the thumbs on the shown branch are up; None if there are none, or both kinds."""
    others = as_dict(row.get("mapping")).keys() - {as_text(message.get("id")) for message in branch}
    shown = [rating for rating in ratings if as_text(rating.get("id")) not in others]
    labels = {_THUMBS.get(as_text(rating.get("rating"))) for rating in shown} - {None}
    return labels.pop() if len(labels) == 1 else None


def _is_conversation(row: dict[str, Any]) -> bool:
    nodes = [as_dict(node) for node in as_dict(row.get("mapping")).values()]
    messages = [as_dict(node.get("message")) for node in nodes]
    return any("role" in as_dict(m.get("author")) and "content_type" in as_dict(m.get("content")) for m in messages)


def _branch(row: dict[str, Any], report: Report) -> list[dict[str, Any]]:
    """Return the messages of the current branch, from the first to the last."""
    nodes = {name: node for name, node in as_dict(row.get("mapping")).items() if isinstance(node, dict)}
    leaf = row.get("current_node")
    if not isinstance(leaf, str) or leaf not in nodes:
        report.note(_NO_LEAF)
    shown = branch_of(nodes, leaf, "parent")
    note_others(sum(isinstance(node.get("message"), dict) for name, node in nodes.items() if name not in shown), report)
    return [node["message"] for node in shown.values() if isinstance(node.get("message"), dict)]


class _Writer:
    """Writes messages as turns; thoughts wait for the text or call that they belong to."""

    def __init__(self, report: Report) -> None:
        self.script, self.report = Transcript(), report
        self._thoughts: list[str] = []

    def write(self, message: dict[str, Any]) -> None:
        author, content = as_dict(message.get("author")), as_dict(message.get("content"))
        about, role = as_dict(message.get("metadata")), author.get("role")
        fields = {"timestamp": parse_time(message.get("create_time"))}
        if role == "assistant":
            self._agent(message, content, {**fields, "model": nonblank(about.get("model_slug"))})
        elif role == "tool":
            self._result(content, about, nonblank(author.get("name")))
        elif role in ("system", "user"):
            body = _body(content)
            is_context = as_text(content.get("content_type")) in _CONTEXT
            if role == "user" and not is_context:
                self.end()
            if plain_text(body).strip() or not isinstance(body, str):
                self.script.add_message(role, body, extra={"context": True} if is_context else None, **fields)
        else:
            self.report.skip(f"role:{role}")

    def _agent(self, message: dict[str, Any], content: dict[str, Any], fields: dict[str, Any]) -> None:
        kind, recipient = content.get("content_type"), as_text(message.get("recipient")) or "all"
        if kind == "thoughts":
            self._thoughts += filter(None, map(_thought, dicts_in(content.get("thoughts"))))
            self._thoughts += [part for part in as_list(content.get("parts")) if isinstance(part, str)]
        elif kind == "reasoning_recap":
            self.report.skip("reasoning_recap")
        elif recipient != "all":
            call, last = make_call(recipient, plain_text(_body(content))), self.script.steps[-1:]
            if last and last[0]["actor"] == "agent" and not last[0]["observations"] and not self._thoughts:
                self.script.add_call(call)
            else:
                self._turn("", actions=[call], **fields)
        elif (body := _body(content)) or self._thoughts:
            self._turn(body, **fields)

    def _turn(self, body: Message, **fields: Any) -> None:
        thoughts, self._thoughts = join_thoughts(self._thoughts), []
        self.script.add_agent_turn(body, thought=thoughts, **fields)

    def _result(self, content: dict[str, Any], about: dict[str, Any], tool: str | None) -> None:
        run, body = as_dict(about.get("aggregate_result")), _body(content)
        failed = content.get("content_type") == "system_error" or as_text(run.get("status")) not in (
            "",
            "success",
            "running",
        )
        if not body:
            self.report.note(_EMPTY)
        self.script.add_result(body, is_error=failed or bool(run.get("in_kernel_exception")), tool=tool)

    def end(self) -> None:
        """Write thoughts that no text and no call followed: the answer was interrupted."""
        if self._thoughts:
            self._turn("")


def _thought(item: dict[str, Any]) -> str:
    return "\n".join(text for key in ("summary", "content") if (text := as_text(item.get(key)).strip()))


def _body(content: dict[str, Any]) -> Message:
    if content.get("content_type") == "user_editable_context":
        return "\n\n".join(
            text_fields({key: content.get(key) for key in ("user_profile", "user_instructions")}).values()
        )
    parts = content.get("parts")
    if isinstance(parts, list):
        return simplify_content([part for part in map(_part, parts) if part is not None])
    return visible_content(next((content[key] for key in _BODIES if content.get(key) is not None), None))


def _part(part: Any) -> dict[str, Any] | None:
    held = as_dict(part)
    pointer = nonblank(held.get("asset_pointer"))
    if pointer is not None:
        return {"type": "image", "uri": pointer, "media_type": nonblank(held.get("mime_type"))}
    text = part if isinstance(part, str) else as_text(held.get("text"))
    return {"type": "text", "text": text} if text else None
