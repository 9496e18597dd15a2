"""Open WebUI chats: exports of chats (`chat-export-*.json`) and of ratings (`feedback-history-export-*.json`).

A chat is a tree of messages. The branch that ends at the current message is a run, and so is every branch that ends at a
rated answer elsewhere. An answer is a list of items (`output`), or a text in which `<details>` elements are its thoughts
and its calls with their results.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from quintain.importers.chat_apps.branches import branch_of
from quintain.importers.outcome_fields import as_label
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import matching_share, row_importer
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.responses_api import items_to_messages
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_json_text
from quintain.records.trajectory import DESIRABLE

_OTHERS = "answers of other branches are alternatives: they are left out unless they are rated"
_FILES = "attached files are not in the export: only their names are kept"
_ITEMS = re.compile(r'<details type="(tool_calls|reasoning|code_interpreter)"([^>]*)>(.*?)</details>', re.DOTALL)
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_SUMMARY = re.compile(r"\A\s*<summary>.*?</summary>", re.DOTALL)
_CODE = re.compile(r"\A```(\w*)\n(.*?)\n?```\Z", re.DOTALL)
_INTERPRETER = "code_interpreter"
_Tree = dict[str, dict[str, Any]]


def _detect(probe: Probe) -> float:
    """Match trees of messages that name their parents."""
    return 0.97 if matching_share(probe, lambda row: bool(_tree(row)), "chat", "history", "snapshot") >= 0.5 else 0.0


def _read_row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    tree, about = _tree(row), as_dict(row.get("meta"))
    name = nonblank(about.get("chat_id"), row.get("id"), _chat(row).get("id"))
    answer = as_text(about.get("message_id"))
    if answer in tree:  # a rating, with the chat as rated
        label = as_label(as_dict(row.get("data")).get("rating"))
        yield from _run(
            row, branch_of(tree, answer, "parentId"), label, line, report, about={"chat": name}, episode_key=answer
        )
        return
    shown = branch_of(tree, as_dict(_chat(row).get("history")).get("currentId"), "parentId")
    labels = {_label(message) for message in shown.values()} - {None}
    yield from _run(row, shown, labels.pop() if len(labels) == 1 else None, line, report, session=name)
    read = set(shown)
    for key, message in tree.items():
        if key not in shown and (label := _label(message)) is not None:
            path = branch_of(tree, key, "parentId")
            read |= set(path)
            yield from _run(row, path, label, line, report, about={"chat": name}, episode_key=key)
    if others := len(tree) - len(read):
        report.note(_OTHERS)
        report.skip("message of another branch", others)


IMPORTER = row_importer("open_webui", "Open WebUI chats", _detect, _read_row)


def _chat(row: dict[str, Any]) -> dict[str, Any]:
    """Return the chat of a row: the row itself, a member of it, or the chat that it rates."""
    rated = as_dict(as_dict(row.get("snapshot")).get("chat"))
    held = (row, as_dict(row.get("chat")), as_dict(rated.get("chat")), rated)
    return next((chat for chat in held if as_dict(chat.get("history")).get("messages")), {})


def _tree(row: dict[str, Any]) -> _Tree:
    """Return the messages by their ids; {} where a row has no such tree."""
    messages = as_dict(as_dict(_chat(row).get("history")).get("messages"))
    tree = {key: message for key, message in messages.items() if isinstance(message, dict)}
    return tree if all("role" in message and "parentId" in message for message in tree.values()) else {}


def _label(message: dict[str, Any]) -> bool | None:
    """Return whether a person's rating of an answer is good; None without one."""
    return as_label(as_dict(message.get("annotation")).get("rating"))


def _run(
    row: dict[str, Any], path: _Tree, label: bool | None, line: int, report: Report, **names: Any
) -> Iterator[Run]:
    chat = _chat(row)
    instructions = nonblank(as_dict(chat.get("params")).get("system"), chat.get("system"))
    opening = [{"role": "system", "content": instructions}] if instructions else []
    turns = chain(opening, *(_messages(message, report) for message in path.values()))
    about = {"title": nonblank(row.get("title"), chat.get("title")), **names.pop("about", {})}
    extra = {} if label is None else {DESIRABLE: label}
    yield from build_session_run(turns, report, line, agent=None, about=about, extra=extra, **names)


def _messages(message: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield a message of the user or system, or the turns of an answer with their results."""
    if message.get("role") != "assistant":
        yield {"role": message.get("role"), "timestamp": message.get("timestamp"), **_asked(message, report)}
        return
    items = dicts_in(message.get("output")) or list(_items(as_text(message.get("content"))))
    if message.get("error") and not items:
        report.skip("answer that failed")
    model = nonblank(message.get("selectedModelId"), message.get("model"))  # the first: of an arena
    standard = chain.from_iterable(map(_standard, items))
    yield from answer_turns(standard, model, message.get("timestamp"), message.get("usage"))


def answer_turns(items: Iterable[Any], model: str | None, began: Any, usage: Any = None) -> list[dict[str, Any]]:
    """Return the turns of an answer, with their results, from its items as those of OpenAI's Responses API."""
    turns = list(items_to_messages(items))
    acted = [turn for turn in turns if turn.get("role") == "assistant"]
    for turn in acted:
        turn["model"] = model
    if acted:
        acted[0]["timestamp"] = began
    if len(acted) == 1:  # of several, nobody knows which one took the tokens
        acted[0]["usage"] = usage
    return turns


def _asked(message: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the content of a message with its images, and the names of its other files."""
    files = dicts_in(message.get("files"))
    images = [file for file in files if file.get("type") == "image" and nonblank(file.get("url"))]
    names = [name for file in files if file not in images and (name := nonblank(file.get("name")))]
    text = {"type": "text", "text": as_text(message.get("content"))}
    parts = [{"type": "image_url", "image_url": {"url": image["url"]}} for image in images]
    if names:
        report.note(_FILES)
    return {"content": [*parts, text], **({"files": names[:100]} if names else {})}


def _items(content: str) -> Iterator[dict[str, Any]]:
    """Yield the items of an answer that is a text. Calls without text between them are taken one after another."""
    end = 0
    for found in _ITEMS.finditer(content):
        yield from _said(content[end : found.start()])
        kind, body, end = found[1], _SUMMARY.sub("", found[3]).strip(), found.end()
        held = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(found[2])}
        if kind == "reasoning":
            lines = (html.unescape(body) if body.startswith("&gt;") else body).splitlines()
            yield {
                "type": kind,
                "content": [{"text": "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines)}],
            }
        elif kind == _INTERPRETER:
            code = _CODE.match(body)
            output = _unwrapped(held.get("output"))
            yield {"type": kind, "lang": code[1] if code else "", "code": code[2] if code else body, "output": output}
        else:
            call = {"call_id": held.get("id"), "name": held.get("name"), "arguments": _unwrapped(held.get("arguments"))}
            yield {"type": "function_call", **call}
            result = _unwrapped(held.get("result") or html.unescape(body))
            if held.get("done") == "true":
                yield {"type": "function_call_output", "call_id": held.get("id"), "output": result}
    yield from _said(content[end:])


def _said(text: str) -> Iterator[dict[str, Any]]:
    if text.strip():
        yield {"type": "message", "role": "assistant", "content": text.strip()}


def _unwrapped(value: str | None) -> Any:
    """Return the JSON value of an attribute: mostly a string, as the model or the tool wrote it."""
    wrapped = parse_json_text(f'{{"value": {value}}}') if value else None
    return as_dict(wrapped).get("value", value)


def _standard(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an item as those of OpenAI's Responses API; the program runs code itself, and its calls have no separate result."""
    if as_text(item.get("type")).rpartition(":")[2] != _INTERPRETER:
        yield item
        return
    arguments = {name: value for name in ("lang", "code") if (value := nonblank(item.get(name)))}
    names = {"call_id": nonblank(item.get("id"))}
    yield {"type": "function_call", "name": _INTERPRETER, "arguments": arguments, **names}
    if item.get("output") is not None:
        yield {"type": "function_call_output", "output": item["output"], **names}
