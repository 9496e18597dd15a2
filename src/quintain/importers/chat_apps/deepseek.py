"""DeepSeek conversations: `conversations.json` of chat.deepseek.com's data export.

A conversation is a tree of messages (`mapping`), whose fragments are requests, thoughts and responses. The branch of the
last message is the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.chat_apps.branches import branch_of, note_others
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import matching_share, row_importer
from quintain.importers.run_builder import build_session_run
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank

_FILES = "attached files are not in the export: only their names are kept"


def _detect(probe: Probe) -> float:
    """Match trees of messages with fragments."""
    fits = matching_share(probe, lambda row: any(map(_fragments, _nodes(row).values())), "mapping") >= 0.5
    return 0.97 if fits else 0.0


def _read_row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    nodes = {name: node for name, node in _nodes(row).items() if _fragments(node) or node.get("message") is None}
    shown = branch_of(nodes, None, "parent")
    note_others(sum(bool(_fragments(node)) for name, node in nodes.items() if name not in shown), report)
    yield from build_session_run(
        (turn for node in shown.values() for turn in _turns(node, report)),
        report,
        line,
        agent="deepseek",
        session=row.get("id"),
        about={"title": row.get("title")},
    )


IMPORTER = row_importer("deepseek", "DeepSeek conversations", _detect, _read_row)


def _nodes(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: node for name, node in as_dict(row.get("mapping")).items() if isinstance(node, dict)}


def _fragments(node: dict[str, Any]) -> list[dict[str, Any]]:
    return dicts_in(as_dict(node.get("message")).get("fragments"))


def _turns(node: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield the turn of the user, then that of the agent."""
    message, texts = as_dict(node.get("message")), dict[str, str]()
    for fragment in _fragments(node):
        kind = as_text(fragment.get("type"))
        if kind in ("REQUEST", "THINK", "RESPONSE"):
            texts[kind] = "\n\n".join(filter(None, (texts.get(kind), as_text(fragment.get("content")))))
        else:
            report.skip(f"fragment:{kind}")
    time = {"timestamp": message.get("inserted_at")}
    names = [name for file in dicts_in(message.get("files")) if (name := nonblank(file.get("file_name")))]
    if "REQUEST" in texts:
        if names:
            report.note(_FILES)
        yield {"role": "user", "content": texts["REQUEST"], **time, **({"files": names[:100]} if names else {})}
    if {"THINK", "RESPONSE"} & texts.keys():
        model = {"model": nonblank(message.get("model"))}
        yield {
            "role": "assistant",
            "content": texts.get("RESPONSE", ""),
            "reasoning": texts.get("THINK"),
            **model,
            **time,
        }
