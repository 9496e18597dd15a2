"""Tasks of Cline as the person saw them: `ui_messages.json` without the `api_conversation_history.json` beside it.

Each request to the model has the whole text that the user and the tools sent with it, and its tokens. The calls between two
requests are known by what the person saw: their order and names of tools are the model's, their arguments the interface's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from quintain.importers.coding_agents.cline import described_model
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.message_parts import join_thoughts, visible_content
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_list, as_text, nonblank, parse_json_text, parse_time, parse_usage

_NOTE = "the log is what a person saw: the arguments of calls have the names of the interface, not those of the model"
_CALLS = {
    "command": ("execute_command", "command"),
    "completion_result": ("attempt_completion", "result"),
    "followup": ("ask_followup_question", "question"),
    "plan_mode_respond": ("plan_mode_respond", "response"),
}
"""Kind of an entry that is a call by itself -> tool, and the argument that the person saw, alone or with others."""
_CHOSEN = "selected"
"""Of the options of a question, what the person chose: a part of the answer to the call."""
_BARE = "load_mcp_documentation"
"""Kind of an entry that is a call without arguments."""
_SPOKEN = ("task", "user_feedback")
_LINE = r"\[\w+[^\n]*\] Result:"
_LINES = rf" (?:for|in) [^\n]*'[^\n]*\n(?:(?!\n{_LINE})[\s\S]){{,20000}}?'"
_HEAD = re.compile(rf"^\[(\w+)(?:[^\n]*|{_LINES})\] Result:\n?", re.MULTILINE)
"""How an answer to a call begins: with its tool and what it was asked, which may have several lines in quotes."""
_REST = re.compile(r"\n*^<(?:environment_details|feedback|file_content)\b", re.MULTILINE)
"""How the text after the answers begins."""


def _detect(probe: Probe) -> float:
    """Match entries that are said or asked, among them a request to the model or the task."""
    begun = any(row.get("say") in ("task", "text", "api_req_started") for row in probe.objects)
    if probe.shape != "array" or not begun:
        return 0.0
    return if_most(0.96, probe, lambda row: {"ts", "type"} <= row.keys() and row.get("type") in ("say", "ask"))


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    writer = _Writer(report)
    for _, row in object_rows(log, report):
        writer.write(row)
    writer.close()
    report.note(_NOTE)
    yield from build_session_run(
        writer.script,
        report,
        prompt=writer.prompt,
        session=log.parts[-2] if len(log.parts) > 1 else None,
        agent="cline",
    )


IMPORTER = Importer("cline_ui", "Cline task as a person saw it", _detect, _read)


class _Writer:
    """Writes the entries as turns: what follows a request up to the next one is a turn of the agent."""

    def __init__(self, report: Report) -> None:
        self.script, self.report = Transcript(), report
        self.prompt: str | None = None
        self._typed: list[str] = []
        """Texts of the user that no request has sent yet."""
        self._images: list[dict[str, Any]] = []
        """Images of the user that no request has sent yet."""
        self._sent: str | None = None
        """Text of the last request; None before the first."""
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._unfinished: list[str] = []
        """Thoughts with that mark, which Roo Code leaves on all: they count where an answer follows."""
        self._calls: list[dict[str, Any]] = []
        self._about: dict[str, Any] = {}

    def write(self, row: dict[str, Any]) -> None:
        kind, text = as_text(row.get(as_text(row.get("type")))), as_text(row.get("text"))
        if row.get("partial") is True:
            self._unfinished += [text] if kind == "reasoning" else []
        elif kind == "api_req_started":
            self._request(as_dict(parse_json_text(text)), row)
        elif kind in _SPOKEN or (kind == "text" and self._sent is None):
            self.prompt = self.prompt or nonblank(text)
            self._typed.append(text)
            self._images += [{"type": "image_url", "image_url": url} for url in as_list(row.get("images"))]
        elif kind == "text":
            self._texts += [text] if text not in self._texts else []
        elif kind == "reasoning":
            self._thoughts.append(text)
        elif kind in _CALLS and text:
            tool, argument = _CALLS[kind]
            stated = as_dict(parse_json_text(text)) or {argument: text}
            self._calls.append(make_call(tool, {key: value for key, value in stated.items() if key != _CHOSEN}))
        elif kind == _BARE:
            self._calls.append(make_call(kind, {}))
        elif kind in ("tool", "use_mcp_server") and (call := as_dict(parse_json_text(text))):
            named = "tool" if kind == "tool" else "type"
            known = {key: value for key, value in call.items() if key != named}
            self._calls.append(make_call(nonblank(call.get(named)) or kind, known))
        else:
            self.report.skip(kind or "without a kind")

    @property
    def _has_answered(self) -> bool:
        return bool(any(self._texts) or self._thoughts or self._calls)

    def close(self) -> list[dict[str, Any]]:
        """End the agent's turn and return its calls."""
        calls, content = self._calls, "\n\n".join(filter(None, self._texts))
        if self._has_answered:
            thought = join_thoughts([*self._thoughts, *self._unfinished])
            self.script.add_agent_turn(content, thought=thought, actions=calls, **self._about)
        self._texts, self._thoughts, self._unfinished, self._calls = [], [], [], []
        return calls

    def _request(self, request: dict[str, Any], row: dict[str, Any]) -> None:
        sent, before = nonblank(request.get("request")), self._sent
        self._sent = sent or ""
        if before and sent and not self._has_answered:  # failed: what it sent is sent again, with what follows
            sent = sent.removeprefix(before).lstrip()
        answers, rest = _answers(sent, self._calls) if sent else ([], "\n\n".join(self._typed))
        for call, (tool, _) in zip(self._calls, answers, strict=False):
            call["tool"] = tool
        calls = self.close()
        for _, content in answers[: len(calls)]:
            self.script.add_result(content)
        time = parse_time(row.get("ts"))
        if rest.strip() or self._images:
            self.script.add_message("user", visible_content([rest, *self._images]), timestamp=time)
        self._typed, self._images = [], []
        model = nonblank(as_dict(row.get("modelInfo")).get("modelId"), described_model(sent or ""))
        self._about = {"model": model, "usage": parse_usage(request), "timestamp": time}


def _answers(sent: str, calls: list[dict[str, Any]]) -> tuple[list[tuple[str, str]], str]:
    """Return tool and text of the answers to these calls, in order, and the rest of what was sent.

    An answer begins at the next line that reads so and has the path of its call, where that has one: files have such
    lines too.
    """
    heads: list[re.Match[str]] = []
    at = 0
    for call in calls:
        path = json.dumps(as_dict(call["args"]).get("path"), ensure_ascii=False).strip('"')
        found = list(_HEAD.finditer(sent, at))
        head = next((each for each in found if path in each[0]), next(iter(found), None))
        if head is None:
            break
        heads, at = [*heads, head], head.end()
    if not heads:
        return [], sent
    ends = [head.start() for head in heads[1:]]
    rest = next((found.start() for found in _REST.finditer(sent, heads[-1].end())), len(sent))
    bodies = [sent[head.end() : end].strip("\n") for head, end in zip(heads, [*ends, rest], strict=True)]
    return list(zip((head[1] for head in heads), bodies, strict=True)), (sent[: heads[0].start()] + sent[rest:]).strip()
