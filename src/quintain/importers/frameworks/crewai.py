"""CrewAI: the output of a crew or task with its messages (`result.model_dump_json()`), and files of `output_log_file`.

In the text protocol the program appends the result of a tool to the agent's message, behind `Observation:`. The log file
contains only tasks and their answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, object_rows
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.chat_messages import Turn, parse_message
from quintain.importers.transcripts.message_parts import plain_text
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_time
from quintain.records.trajectory import AgentInfo, Task

_TASK = {"description", "raw", "agent", "output_format"}
_ENTRY = {"timestamp", "task_name", "task", "agent", "status"}
_MARK = "\nObservation:"
_NO_MESSAGES = "the log contains only tasks and answers: what happened between them is unknown"


def _detect(probe: Probe) -> float:
    """Match outputs of crews and tasks, and entries of the log file."""
    share = matching_share(probe, lambda row: bool(_tasks(row)) or _is_entry(row), *probe.fields)
    return 0.95 if share > 0.5 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for line, row in object_rows(log, report):
        if _is_entry(row):
            yield from _entry(row, report, line)
        elif tasks := _tasks(row):
            for task in tasks:
                yield from _task(task, report, line)
        else:
            report.reject(line, "expected the output of a task or an entry of the log file")


IMPORTER = Importer("crewai", "CrewAI output", _detect, _read)


def _tasks(row: Any) -> list[dict[str, Any]]:
    """Return the outputs of tasks in a row."""
    known = as_dict(row)
    held = dicts_in(known.get("tasks_output")) or [known]
    return [task for task in held if task.keys() >= _TASK and isinstance(task.get("raw"), str)]


def _is_entry(row: Any) -> bool:
    return as_dict(row).keys() >= _ENTRY and as_dict(row).get("status") in ("started", "completed", "failed")


def _entry(row: dict[str, Any], report: Report, line: int) -> Iterator[Run]:
    if not nonblank(row.get("output")):
        report.skip(f"entry: {row['status']}")
        return
    report.note(_NO_MESSAGES)
    when = parse_time(row.get("timestamp"))
    turns = [Turn("user", as_text(row.get("task"))), Turn("agent", as_text(row["output"]), fields={"timestamp": when})]
    yield from _run(turns, row.get("task"), row.get("agent"), report, line)


def _task(task: dict[str, Any], report: Report, line: int) -> Iterator[Run]:
    messages = dicts_in(task.get("messages"))
    turns = [turn for message in messages for turn in _turns(message, report)]
    _mark_failures(turns, dicts_in(task.get("tool_failures")))
    if not turns:
        report.note(_NO_MESSAGES)
        turns = [Turn("user", as_text(task.get("description")))]
    answer = as_text(task.get("raw"))
    spoken = plain_text(turns[-1].content) if turns[-1].actor == "agent" else ""
    if answer and answer not in spoken:
        # The program took the answer out of a message that the log does not hold.
        turns.append(Turn("agent", answer, fields={"train": False} if messages else {}))
    yield from _run(turns, task.get("description"), task.get("agent"), report, line)


def _turns(message: dict[str, Any], report: Report) -> list[Turn]:
    """Return the turn of a message, and the observation that the program appended to it."""
    turn = parse_message(message, "message", report.refuse)
    if turn is None:
        return []
    if turn.actor == "agent" and isinstance(turn.content, str) and _MARK in turn.content:
        turn.content, _, observed = turn.content.partition(_MARK)
        return [turn, Turn("user", f"Observation:{observed}")]
    return [turn]


def _mark_failures(turns: list[Turn], failures: list[dict[str, Any]]) -> None:
    """Mark the results of the calls that the program lists as failed."""
    listed = [(failure.get("tool_name"), failure.get("tool_args")) for failure in failures]
    failed = {call["call_id"] for turn in turns for call in turn.calls if (call["tool"], call["args"]) in listed}
    for turn in turns:
        turn.results = [result._replace(is_error=result.call_id in failed) for result in turn.results]


def _run(turns: list[Turn], prompt: Any, agent: Any, report: Report, line: int) -> Iterator[Run]:
    yield from build_run(
        turns,
        report,
        line,
        task=Task(prompt=as_text(prompt)),
        agent=AgentInfo(name=(nonblank(agent) or "unknown").strip()[:200]),
    )
