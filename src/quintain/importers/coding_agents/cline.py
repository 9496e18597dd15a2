"""Tasks of Cline, Roo Code and Kilo Code: `tasks/<id>/api_conversation_history.json`; Cline 4: `sessions/<id>/<id>.messages.json`.

The messages are Anthropic's. The answer to a call is often a text of the user that begins with the name of the tool. The
model is named by the message, by `task_metadata.json` beside the file, or by the environment that the program describes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.files.spooled_list import SpooledList
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, only_objects
from quintain.importers.run_builder import COMPACTED, build_session_run
from quintain.importers.training_data.chat_records import is_message
from quintain.importers.transcripts.chat_messages import append_turn, parse_message
from quintain.importers.transcripts.message_parts import Result, plain_text, visible_content
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_time, parse_usage

_FILE = "api_conversation_history.json"
_ASKED = re.compile(r"\A\s*<(task|user_message)>\s*(.*?)\s*</\1>", re.DOTALL)
_ENVIRONMENT = "<environment_details>"
_MODEL = re.compile(r"<model>([^<\n]{1,200})</model>")
_ERROR = re.compile(r"<error>.*</error>\s*\Z", re.DOTALL)
_CUT = re.compile(r"\[Response interrupted by [^\]\n]*\]\s*\Z")
_PROGRAMS = {
    "saoudrizwan.claude-dev": "cline",
    "rooveterinaryinc.roo-cline": "roo-code",
    "kilocode.kilo-code": "kilo-code",
}
"""Folder of an extension -> program."""
_CUT_OFF = "replies that the program cut off, with its own words in place of the rest, are not trained on"
_AS_TEXT = "calls in XML are text of the agent's turns, and their results are turns of the user: they count as no calls"
_SEVERAL = "several models wrote this task and its messages do not name theirs: the model is unknown"


def _detect(probe: Probe) -> float:
    """Match chat messages in the program's file, or with the program's record of the model."""
    whole = as_dict(probe.document)
    rows = dicts_in(whole.get("messages")) if whole else probe.objects
    if probe.shape not in ("array", "object") or not rows or not all(map(is_message, rows)):
        return 0.0
    if any(map(_stated_model, rows)):
        return 0.96
    return 0.96 if probe.name == _FILE else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    writer = _Writer(_Models(as_dict(log.sibling_document("task_metadata.json", report))), report)
    session: dict[str, Any] = {}
    for line, row in only_objects(log.rows(report, ("messages",)), report):
        messages: Iterable[Any] = [row]
        if isinstance(held := row.get("messages"), list | SpooledList):  # a session of Cline 4
            session, messages = row, held
            writer.begin(nonblank(row.get("system_prompt")))
        for _, message in only_objects(((line, each) for each in messages), report):
            writer.write(message)
    beside = log.sibling("ui_messages.json")  # the same task once more, as the person saw it
    if beside is not None:
        report.consume(beside.path)
    folders = log.path.parts[:-1]
    program = next((name for folder in reversed(folders) if (name := _PROGRAMS.get(folder))), "cline")
    task = nonblank(session.get("sessionId"), log.parts[-2] if len(log.parts) > 1 else None)
    yield from build_session_run(writer.script, report, prompt=writer.prompt, session=task, agent=program)


IMPORTER = Importer("cline", "Cline or Roo Code task", _detect, _read)


def _stated_model(message: dict[str, Any]) -> str | None:
    """Return the model that a message names, in the program's own way."""
    stated = as_dict(message.get("modelInfo"))
    return nonblank(stated.get("modelId"), stated.get("id") if "provider" in stated else None)


class _Models:
    """Models of a task by the time of their first use."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        uses = [(use.get("ts"), nonblank(use.get("model_id"))) for use in dicts_in(metadata.get("model_usage"))]
        self._uses = [(ts, model) for ts, model in uses if isinstance(ts, int | float) and model]
        self.described: str | None = None
        """Model of the last description of the environment."""

    @property
    def is_ambiguous(self) -> bool:
        """Whether the task had several models."""
        return len({model for _, model in self._uses}) > 1

    def at(self, time: Any) -> str | None:
        """Return the model at a time in milliseconds; None if several are possible."""
        if self.described is not None:
            return self.described
        if not self.is_ambiguous:
            return self._uses[0][1] if self._uses else None
        if not isinstance(time, int | float) or isinstance(time, bool):
            return None
        return next((model for ts, model in sorted(self._uses, reverse=True) if ts <= time), None)


class _Writer:
    """Writes messages as turns."""

    def __init__(self, models: _Models, report: Report) -> None:
        self.script, self.models, self.report = Transcript(), models, report
        self.prompt: str | None = None

    def begin(self, system: str | None) -> None:
        if system is not None:
            self.script.add_message("system", system)

    def write(self, message: dict[str, Any]) -> None:
        known = {"role": message.get("role"), "content": message.get("content")}
        results: list[Result] = []
        if message.get("role") == "user" and isinstance(message.get("content"), list):
            results, known["content"] = self._results(message["content"])
            self._observe(message["content"])
        turn = parse_message(known, "message", self.report.refuse)
        if turn is None:
            return
        turn.results += results
        turn.fields["timestamp"] = parse_time(message.get("ts"))
        kind = as_text(as_dict(message.get("metadata")).get("kind"))
        if message.get("isSummary") is True or kind.startswith("compaction"):
            self.report.note(COMPACTED)
            turn.fields["extra"] = {"compacted": True}
        if turn.actor == "agent":
            turn.fields |= {"model": self._model(message), "usage": _usage(message)}
            if _CUT.search(plain_text(turn.content)):
                turn.fields["train"] = False
                self.report.note(_CUT_OFF)
        elif turn.actor == "user" and self.prompt is None:
            typed = [as_text(block.get("text")) for block in dicts_in(message.get("content"))]
            spoken = "".join(typed) or plain_text(turn.content)
            asked = _ASKED.match(spoken)
            self.prompt = nonblank(asked[2] if asked else spoken)
        append_turn(turn, self.script)

    def _model(self, message: dict[str, Any]) -> str | None:
        time = message.get("ts")
        model = _stated_model(message) or self.models.at(time)
        if model is None and self.models.is_ambiguous:
            self.report.note(_SEVERAL)
        return model

    def _observe(self, blocks: list[Any]) -> None:
        """Note the model that the program names in its description of the environment."""
        for block in blocks:
            self.models.described = described_model(as_text(as_dict(block).get("text"))) or self.models.described

    def _results(self, blocks: list[Any]) -> tuple[list[Result], list[Any]]:
        """Return the answers to the waiting calls among the blocks, and the other blocks."""
        calls = self.script.steps[-1].get("actions", []) if self.script.steps else []
        answered = {nonblank(as_dict(block).get("tool_use_id")) for block in blocks}
        waiting = [call for call in calls if call["call_id"] not in answered]
        results, rest, empty = list[Result](), list[Any](), False
        for block in blocks:
            text = as_dict(block).get("text")
            head, mark, body = text.partition("] Result:") if isinstance(text, str) else ("", "", "")
            call = next((c for c in waiting if _names(head, c["tool"])), None) if mark else None
            if call is None and mark and head.startswith("[") and "\n" not in head:
                call = next(iter(waiting), None)  # some tools answer under another name
                if not calls:
                    self.report.note(_AS_TEXT)
            if call is not None:
                waiting.remove(call)
                body = body.removeprefix("\n")
                results.append(Result(body, call["call_id"], _ERROR.search(body) is not None, call["tool"]))
                empty = not body
            elif empty and not (isinstance(text, str) and text.lstrip().startswith("<")):
                results[-1] = results[-1]._replace(content=visible_content([block]))
                empty = False
            else:
                rest.append(_attached(block))
        return results, rest


def described_model(text: str) -> str | None:
    """Return the model that the program's description of the environment names."""
    found = _MODEL.search(text, text.index(_ENVIRONMENT)) if _ENVIRONMENT in text else None
    return nonblank(found[1].strip()) if found else None


def _attached(block: Any) -> Any:
    """Return an attached file as the text that the model gets; other blocks are returned as they are."""
    path, content = as_text(as_dict(block).get("path")), as_dict(block).get("content")
    if as_dict(block).get("type") != "file" or not isinstance(content, str):
        return block
    return {"type": "text", "text": f'<file_content path="{path}">\n{content}\n</file_content>'}


def _names(head: str, tool: str) -> bool:
    """Whether the beginning of an answer names a tool: `[read_file for 'a.py'`."""
    rest = head.removeprefix(f"[{tool}")
    return rest != head and rest[:1] in ("", " ")


def _usage(message: dict[str, Any]) -> dict[str, int | None] | None:
    metrics = as_dict(message.get("metrics"))
    tokens = as_dict(metrics.get("tokens"))
    counts = {"input": tokens.get("prompt"), "cacheRead": tokens.get("cached"), "output": tokens.get("completion")}
    whole = {"input_tokens": metrics.get("inputTokens"), "output_tokens": metrics.get("outputTokens")}
    return parse_usage({key: count for key, count in (counts | whole).items() if count is not None})
