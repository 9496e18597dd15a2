"""Aider histories: `.aider.chat.history.md`, a session a run; and the file of `--llm-history-file`, a call of the model a run.

The chat history has what a person saw. Edits are text in the answers, and files, results of commands and the program's own
messages are not in it. The other file has each prompt whole, but no model's name: the chat history beside it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from quintain.importers.log_file import LogFile, NumberedValue
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import ROLES
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import parse_time

CHAT_FILE = ".aider.chat.history.md"
_STARTED, _PROMPT = "# aider chat started at ", "#### "
_COUNTED = "> Tokens: "
"""Begins the line of the program that follows each answer."""
_CALL, _REPLY, _BETWEEN = "TO LLM ", "LLM RESPONSE ", "-------"
_END = "  "
"""Ends what the program writes for a user or for itself; headings and quotes of an answer lack it. An editor may have
removed it from the whole file."""
_ANNOUNCED = re.compile(r"> (?:Main model|Models?): (\S+) with ")
_EDITOR = re.compile(r"> Editor model: (\S+) with ")
_VERSION = re.compile(r"> Aider v(\S+)\s*\Z")
_THOUGHT = re.compile(r"<(thinking-content-[0-9a-f]{32})>(.*?)</\1>\s*", re.DOTALL)
_SEEN_ONLY = (
    "the history has what a person saw: file contents and the program's messages to the model are not in it, edits are "
    "SEARCH/REPLACE or other blocks of text, and whether they were applied is not known"
)
_REPEATED = "each run is one call of the model with its whole prompt: earlier answers in it are context"


def _detect(probe: Probe) -> float:
    """Match the first line of either file."""
    text = probe.text.lstrip()
    is_calls = text.startswith(_CALL) and f"\n{_BETWEEN}\n" in text[:200].replace("\r", "")
    return 0.97 if text.startswith(_STARTED) or is_calls else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield the runs of either file."""
    first = next((line for _, line in log.text_lines() if line.strip()), "")
    if first.startswith(_CALL):
        yield from _calls(log, report)
        return
    report.note(_SEEN_ONLY)
    sessions = list(_sessions(log.text_lines()))
    asked = [each for each in sessions if any(line.startswith(_PROMPT) for _, line in each.lines)]
    if not asked:
        report.reject(None, f"expected a session with a prompt, got {len(sessions)} without any")
    for session in asked:
        yield from _session(session, log, report)


def _session(session: _Session, log: LogFile, report: Report) -> Iterator[Run]:
    lines = [line for _, line in session.lines]
    is_marked = any(map(_is_marked, lines, [*lines[1:], ""]))
    is_counted = not is_marked and any(line.startswith(_COUNTED) for line in lines)
    script, version = _Writer(report, _END if is_marked else "", is_counted), None
    for _, line in session.lines:
        script.write(line)
        if version is None and (found := _VERSION.match(line)):
            version = found[1]
    script.end()
    yield from build_session_run(
        script.script,
        report,
        session.line,
        key=f"{'/'.join(log.parts)}:{session.line}",
        episode_key=session.started,
        agent="aider",
        version=version,
        extra={"started_at": session.started},
    )


def _is_marked(line: str, following: str) -> bool:
    """Whether a line is the last of a prompt and ends as the program writes it; earlier lines of a prompt always do."""
    return line.startswith(_PROMPT) and line.endswith(_END) and not following.startswith(_PROMPT)


def _calls(log: LogFile, report: Report) -> Iterator[Run]:
    models = _models_beside(log)
    report.note(_REPEATED)
    for line, began, messages, ended in _prompts(log.text_lines()):
        script, model = Transcript(), _model_at(models, began)
        for role, text in messages:
            actor = ROLES.get(role.lower())
            if actor == "assistant":
                script.add_agent_turn(text, copied_context=True)
            elif actor in ("system", "user"):
                script.add_message(actor, text)
            else:
                report.skip(f"role:{role}")
        if ended is None:
            report.reject(line, "expected a response of the model, got the end of the file or another call")
            continue
        when, reply = ended
        thought, spoken = _without_thought(reply)
        script.add_agent_turn(spoken, thought=thought, model=model)
        asked = next((text for role, text in reversed(messages) if role == "USER"), None)
        yield from build_session_run(
            script,
            report,
            line,
            prompt=asked,
            episode_key=f"{began}/{line}",
            agent="aider",
            extra={"started_at": began, "ended_at": when},
        )


IMPORTER = Importer("aider", "Aider history", _detect, _read)


@dataclass
class _Session:
    """A session of the chat history."""

    line: int
    started: str
    lines: list[NumberedValue]


def _sessions(lines: Iterable[NumberedValue]) -> Iterator[_Session]:
    session: _Session | None = None
    for number, line in lines:
        if line.startswith(_STARTED):
            if session is not None:
                yield session
            session = _Session(number, line.removeprefix(_STARTED).strip(), [])
        elif session is not None:
            session.lines.append(NumberedValue(number, line))
    if session is not None:
        yield session


class _Writer:
    """Writes the lines of a session as turns."""

    def __init__(self, report: Report, end: str, is_counted: bool) -> None:
        self.script, self.report, self._end, self._is_counted = Transcript(), report, end, is_counted
        self.model: str | None = None
        self._editor: str | None = None
        """Model that carries out what the first one planned (architect mode)."""
        self._is_edit = False
        self._asked: list[str] = []
        self._said: list[str] = []
        self._command: str | None = None
        self._is_program = self._goes_on = self._is_asked = False
        """Whether the last line was the program's, whether its message goes on, and whether a user has written."""

    def write(self, line: str) -> None:
        is_whole = line.endswith(self._end)
        is_program = self._goes_on or (line.startswith("> ") and (is_whole or self._is_program or not self._is_asked))
        self._is_program, self._goes_on = is_program, is_program and not is_whole
        if is_program:
            self.end()
            self.report.skip("line of the program")
            if found := _ANNOUNCED.match(line):
                self.model = found[1]
            elif found := _EDITOR.match(line):
                self._editor = found[1]
        elif line.startswith(_PROMPT) and is_whole and not self._is_in_answer():
            self._is_asked = True
            self._answer()
            self._asked.append(line.removeprefix(_PROMPT).removesuffix(_END))
        elif self._is_asked:
            self._question()
            self._said.append(line)

    def _is_in_answer(self) -> bool:
        """Whether an answer goes on: without marks, a heading looks like a prompt, but only the program ends an answer."""
        return self._is_counted and any(line.strip() for line in self._said)

    def end(self) -> None:
        """Write what waits."""
        self._question()
        self._answer()

    def _question(self) -> None:
        text, self._asked = "\n".join(self._asked).strip(), []
        if text.startswith(("/", "!")):  # a command, which repeats its text as a prompt if it goes to the model
            self.report.skip("command")
            self._command = text
        elif text and text != "<blank>":
            before = self.script.steps[-1:]
            self._is_edit = bool(before) and before[0]["actor"] == "agent" and before[0]["message"].strip() == text
            self.script.add_message("user", text)
            self._command = None

    def _answer(self) -> None:
        thought, spoken = _without_thought("\n".join(self._said))
        self._said = []
        if not spoken and not thought:
            return
        if self._command is not None:
            self.script.add_message("user", self._command)
            self._command = None
        model = self._editor if self._is_edit and self._editor else self.model
        self.script.add_agent_turn(spoken, thought=thought, model=model)


def _without_thought(text: str) -> tuple[str | None, str]:
    """Return the thoughts and the rest of an answer."""
    thoughts = [found[2].strip() for found in _THOUGHT.finditer(text)]
    return "\n\n".join(thoughts) or None, _THOUGHT.sub("", text).strip()


_Prompt = tuple[int, str, list[tuple[str, str]], tuple[str, str] | None]
"""Line, time, messages (role, text) and the reply with its time."""


def _prompts(lines: Iterable[NumberedValue]) -> Iterator[_Prompt]:
    """Yield the calls of the model."""
    begin, began, block, calls = 0, "", list[str](), list[list[str]]()
    replied: str | None = None
    for number, line in [*lines, NumberedValue(0, _CALL)]:
        if not line.startswith((_CALL, _REPLY)) and line != _BETWEEN:
            block.append(line)
        elif line.startswith(_REPLY):
            replied, block = line.removeprefix(_REPLY).strip(), []
        elif line == _BETWEEN:
            block = []
            calls.append(block)
        else:
            if begin:
                messages = [_message(lines) for lines in calls]
                kept = [(role, text) for role, text in messages if role]
                yield begin, began, kept, None if replied is None else (replied, _message(block)[1])
            begin, began, calls, block, replied = number, line.removeprefix(_CALL).strip(), [], [], None


def _message(lines: list[str]) -> tuple[str, str]:
    """Return role and text of lines that each begin with the role."""
    role = next((line.partition(" ")[0] for line in lines if line), "")
    return role, "\n".join(line.removeprefix(role).removeprefix(" ") for line in lines).rstrip("\n")


def _models_beside(log: LogFile) -> list[tuple[datetime, str]]:
    """Return the models that the chat history beside names, by the start of its sessions."""
    beside = log.sibling(CHAT_FILE)
    known: list[tuple[datetime, str]] = []
    for session in _sessions(beside.text_lines()) if beside is not None else ():
        models = {found[1] for _, line in session.lines if (found := _ANNOUNCED.match(line))}
        if len(models) == 1 and (started := parse_time(session.started)):
            known.append((started, models.pop()))
    return known


def _model_at(models: list[tuple[datetime, str]], began: str) -> str | None:
    """Return the model of the last session that had begun; both files have the local time."""
    when: Any = parse_time(began)
    return next((model for started, model in reversed(models) if when is not None and started <= when), None)
