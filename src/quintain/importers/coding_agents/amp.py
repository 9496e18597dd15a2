"""Amp threads: `~/.local/share/amp/threads/T-*.json`, and what `amp threads export` writes.

The messages are Anthropic's, except that a result keeps the program's own record of its run. The program's text for the
model is not in the file: the output of a run replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.message_parts import visible_content
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank

_RECORDED = "results are the output of each run as the program recorded it: the model may have seen other words"


def _detect(probe: Probe) -> float:
    """Match a thread by its id, with numbered messages or results that record their run."""
    whole = as_dict(probe.document)
    messages = dicts_in(whole.get("messages"))
    is_thread = (nonblank(whole.get("id")) or "").startswith("T-")
    numbered = any("messageId" in message and "role" in message for message in messages)
    runs = any(_is_run(block) for message in messages for block in as_list(message.get("content")))
    return 0.96 if runs or (is_thread and (numbered or "created" in whole) and messages) else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for line, thread in object_rows(log, report):
        initial = as_dict(as_dict(thread.get("env")).get("initial"))
        tree = next(iter(dicts_in(initial.get("trees"))), {})
        yield from build_session_run(
            (_message(message, report) for message in dicts_in(thread.get("messages"))),
            report,
            line,
            agent="amp",
            version=as_dict(initial.get("platform")).get("clientVersion"),
            session=thread.get("id"),
            about={"cwd": as_text(tree.get("uri")).removeprefix("file://"), "title": thread.get("title")},
        )


IMPORTER = Importer("amp", "Amp thread", _detect, _read)


def _is_run(block: Any) -> bool:
    """Whether a content block is a result that records its run."""
    return isinstance(as_dict(block).get("run"), dict) and "toolUseID" in block


def _message(message: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return a message as Anthropic's API has it."""
    content, usage = message.get("content"), as_dict(message.get("usage"))
    blocks = [_result(block, report) if _is_run(block) else block for block in as_list(content)]
    known = {"role": message.get("role"), "content": blocks if isinstance(content, list) else content}
    known["timestamp"] = usage.get("timestamp") or as_dict(message.get("meta")).get("sentAt")
    return known | ({"model": usage.get("model"), "usage": usage} if message.get("role") == "assistant" else {})


def _result(block: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return a result as Anthropic's API has it."""
    run = block["run"]
    result, error = run.get("result"), run.get("error")
    fields = as_dict(result)
    report.note(_RECORDED)
    answer = next((fields[key] for key in ("output", "content") if isinstance(fields.get(key), str)), None)
    if answer is None and isinstance(result, list) and all(isinstance(item, str) for item in result):
        answer = "\n".join(result)
    if answer is None:
        stated = nonblank(as_dict(error).get("message"), error, run.get("status"))  # such as `rejected-by-user`
        answer = visible_content(result if result is not None else stated)
    code = fields.get("exitCode")
    failed = error is not None or run.get("status") not in ("done", None) or fields.get("success") is False
    failed = failed or (type(code) is int and code != 0)
    return {"type": "tool_result", "tool_use_id": block.get("toolUseID"), "content": answer, "is_error": failed}
