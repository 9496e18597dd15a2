"""Chats of AutoGen 0.2 and AG2: a `chat_history`, a `ChatResult`, an agent's `chat_messages`, or messages with `tool_responses`.

The role of a message is relative to one of the two agents, so only the name identifies the writer. The one
who began the chat is the user. Each other speaker has their own conversation, but for those that run code: what they
write is the output of a program. Who&When's records (`history`) name the agents by their system prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import outcome_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, runs_or_parts
from quintain.importers.run_builder import build_session_run
from quintain.importers.training_data.chat_records import FIELDS, is_chat, is_message
from quintain.importers.transcripts.chat_messages import Turn, parse_message
from quintain.importers.transcripts.message_parts import plain_text
from quintain.importers.values import as_dict, as_list, as_name, as_text, dicts_in, nonblank
from quintain.records.trajectory import Task

_FAILED = "Error: "
"""Text of the program before the exception of a tool that failed."""
_RAN = re.compile(r"exitcode: -?\d+ \(execution (?:succeeded|failed)\)\nCode output: ")
"""How the program begins a message about code that it ran (`ConversableAgent.generate_code_execution_reply`)."""
_RESULT = {"chat_history", "summary", "cost", "human_input"}


def _detect(probe: Probe) -> float:
    """Match results of a chat, and messages with several results or with roles that contradict the names."""
    rows = probe.objects
    if probe.shape in {"array", "lines"} and rows and all(map(is_message, rows)):
        return 0.95 if any(map(_has_responses, rows)) else 0.88 if _is_named(rows) else 0.0
    if probe.document is not None and _are_chats(probe.document):
        return 0.7
    if matching_share(probe, lambda row: row.keys() >= _RESULT, "chat_history") > 0.5:
        return 0.96
    return 0.9 * matching_share(probe, lambda row: bool(_prompted(row)), "history")


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield the runs of each chat, one for each speaker."""
    for line, row in runs_or_parts(log, report, is_message):
        if history := dicts_in(row if isinstance(row, list) else as_dict(row).get("chat_history")):
            yield from _runs(history, report, line)
        elif history := _prompted(row):
            yield from _runs(history, report, line, row["system_prompt"], task=_task(row), outcome=outcome_of(row))
        elif isinstance(row, dict) and _are_chats(row):
            for messages in row.values():
                yield from _runs(_named_by_role(messages), report, line)
        else:
            report.reject(line, "expected a message or a record with `chat_history`")


IMPORTER = Importer("autogen_v0", "AutoGen 0.2 chat", _detect, _read)


def _prompted(row: Any) -> list[dict[str, Any]]:
    """Return the messages of a group chat whose record has the system prompts of its speakers; [] for other records."""
    history, prompts = dicts_in(as_dict(row).get("history")), as_dict(as_dict(row).get("system_prompt"))
    names = {as_text(message.get("name")) for message in history}
    return history if names & prompts.keys() and "" not in names else []


def _task(row: dict[str, Any]) -> Task:
    answer = as_name(row.get("ground_truth"))
    return Task(id=as_name(row.get("question_ID")), metadata={} if answer is None else {"answer": answer})


def _has_responses(message: dict[str, Any]) -> bool:
    return bool(dicts_in(message.get("tool_responses"))) and message.get("role") == "tool"


def _is_named(rows: list[dict[str, Any]]) -> bool:
    """Whether a chat of two names begins with an assistant, which no chat of a model does."""
    names = {as_text(row.get("name")) for row in rows if not row.get("tool_calls")}
    return rows[0].get("role") == "assistant" and len(names) > 1 and "" not in names


def _are_chats(value: dict[str, Any]) -> bool:
    """Whether an object has the chats of an agent by the names of the others (`ConversableAgent.chat_messages`).

    Chats in which nobody is named, and no program ran, are any program's.
    """
    if not value or not value.keys().isdisjoint(FIELDS) or not all(map(is_chat, value.values())):
        return False
    messages = [message for chat in value.values() for message in dicts_in(chat)]
    return any(nonblank(each.get("name")) or _RAN.match(as_text(each.get("content"))) for each in messages)


def _named_by_role(messages: list[Any]) -> list[dict[str, Any]]:
    """Return messages whose speakers are named; where the log names none, the role of the first message is the user."""
    known = dicts_in(messages)
    if any(as_text(message.get("name")) for message in known):
        return known
    roles = (message.get("role") for message in known)
    asking = next((role for role in roles if role in ("user", "assistant")), None)
    return [
        {**message, "name": "user" if message.get("role") == asking else "assistant"}
        if message.get("role") in ("user", "assistant")
        else message
        for message in known
    ]


def _runs(
    messages: list[dict[str, Any]],
    report: Report,
    line: int | None,
    prompts: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> Iterator[Run]:
    """Yield the run of each agent: with prompts, of those that have one, also of the one who began the chat."""
    speakers = _speakers(messages)
    opener = next((name for name in speakers if name), "user")
    programs = {
        speaker
        for message, speaker in zip(messages, speakers, strict=True)
        if _RAN.match(as_text(message.get("content")))
    }
    agents = [name for name in dict.fromkeys(speakers) if name != opener and name not in programs]
    if prompts:
        agents = [name for name in dict.fromkeys(speakers[1:]) if name in prompts]
    for agent in agents:
        prompt = nonblank(prompts.get(agent))
        turns = [Turn("system", prompt)] if prompt else []
        for n, (message, speaker) in enumerate(zip(messages, speakers, strict=True)):
            turns += _turns(message, is_own=speaker == agent and n > 0, speaker=speaker, report=report)
        yield from build_session_run(turns, report, line, agent=agent[:200], **fields)
    if not agents:
        report.reject(line, "expected an agent beside the one who began the chat, got none")


def _speakers(messages: list[dict[str, Any]]) -> list[str]:
    """Return the speaker of each message; messages with calls have no name, and are of the next agent that speaks."""
    names = [as_text(message.get("name")) for message in messages]
    opener = next(filter(None, names), "")
    for n, message in enumerate(messages):
        if not names[n] and (message.get("tool_calls") or message.get("function_call")):
            later = (as_text(other.get("name")) for other in messages[n + 1 :] if other.get("role") != "tool")
            names[n] = next((name for name in later if name and name != opener), "assistant")
        elif not names[n]:
            names[n] = opener or as_text(message.get("role"))
    return names


def _turns(message: dict[str, Any], *, is_own: bool, speaker: str, report: Report) -> list[Turn]:
    """Return the turns of a message as an agent gets or writes it."""
    known = {key: value for key, value in message.items() if key not in ("name", "tool_responses")}
    responses = as_list(message.get("tool_responses"))
    if responses:
        parts = [{**part, "role": "tool"} for part in dicts_in(responses)]
    elif message.get("role") in ("tool", "function", "system"):
        parts = [message]
    else:
        parts = [{**known, "role": "assistant" if is_own else "user"}]
    turns = [turn for part in parts if (turn := parse_message(part, "message", report.refuse))]
    for turn in turns:
        turn.results = [r._replace(is_error=plain_text(r.content).startswith(_FAILED)) for r in turn.results]
        if turn.actor == "user" and nonblank(speaker):
            turn.fields["extra"] = {"source": speaker[:80]}
    return turns
