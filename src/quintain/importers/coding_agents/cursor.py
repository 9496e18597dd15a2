"""Cursor chats: the Markdown that Cursor's "Export Chat" writes.

It has the texts only: calls, their results, thoughts, the model and the times are not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.transcript import Transcript

_EXPORTED = re.compile(r"_Exported on (.{1,60}) from Cursor \(([^)\s]{1,30})\)_\s*\Z")
_ACTORS = {"**User**": "user", "**Cursor**": "agent"}
_RULE = "---"
_TEXTS_ONLY = "the export has the texts only: calls, their results, the model and the times are not in it"


def _detect(probe: Probe) -> float:
    """Match the note of the export below the title."""
    return 0.97 if any(map(_EXPORTED.match, probe.text.split("\n", 3)[:3])) else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    report.note(_TEXTS_ONLY)
    for chat in _chats(log):
        yield from build_session_run(
            chat.script(),
            report,
            chat.line,
            agent="cursor",
            version=chat.version,
            about={"title": chat.title, "exported_on": chat.exported},
        )


IMPORTER = Importer("cursor", "Cursor chat", _detect, _read)


@dataclass
class _Chat:
    """One export."""

    line: int
    title: str
    exported: str
    version: str
    blocks: list[tuple[str, list[str]]] = field(default_factory=list)
    """Actor, and the lines of the message."""

    def script(self) -> Transcript:
        script = Transcript()
        for actor, lines in self.blocks:
            text = "\n".join(lines).strip().removesuffix(f"\n{_RULE}").strip()
            if actor == "user" and text:
                script.add_message("user", text)
            elif text:
                script.add_agent_turn(text)
        return script


def _chats(log: LogFile) -> Iterator[_Chat]:
    chat: _Chat | None = None
    before = ["", "", ""]
    for number, line in log.text_lines():
        if found := _EXPORTED.match(line):
            if chat is not None:
                yield _without_last(chat)
            title = before[-1].removeprefix("# ").strip()
            chat = _Chat(number, title, found[1].removeprefix("at ").strip(), found[2])
        elif chat is not None and line in _ACTORS and before[-2:] == [_RULE, ""]:
            chat.blocks.append((_ACTORS[line], []))
        elif chat is not None and chat.blocks:
            chat.blocks[-1][1].append(line)
        before = [*before[1:], line]
    if chat is not None:
        yield chat


def _without_last(chat: _Chat) -> _Chat:
    """Return a chat without the title of the next one, which is its last line."""
    if chat.blocks and chat.blocks[-1][1]:
        chat.blocks[-1][1].pop()
    return chat
