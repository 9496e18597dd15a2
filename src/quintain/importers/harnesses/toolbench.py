"""Answers of ToolBench and StableToolBench: a search for a chain of calls, with the chain that it ended with.

The messages before each of its calls are a list of their own; the longest is the whole chain. `win` only means that the
chain ended with an answer, so the outcome is unknown. Files converted for evaluation have the steps as a tree by task.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, build_chat_run, matching_share, object_rows, read_row
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank
from quintain.records.trajectory import Outcome, Task

_BRANCHES = "only the last branch of each search is imported: the steps that it gave up are left out"


def _detect(probe: Probe) -> float:
    """Match an answer with its search, or converted answers by their task."""
    if probe.document is not None and _are_converted(probe.document):
        return 0.96
    return 0.96 * matching_share(probe, _is_answer, "answer_generation")


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for line, row in object_rows(log, report):
        if _are_converted(row):
            for task, answered in row.items():
                yield from read_row(answered, line, report, partial(_converted, task))
        else:
            yield from read_row(row, line, report, _row)


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    answer = as_dict(row.get("answer_generation"))
    chains = [dicts_in(messages) for messages in as_list(answer.get("train_messages"))]
    if not chains:
        raise InvalidInput("expected `train_messages`, got a search that found no chain")
    longest = max(chains, key=len)
    yield from build_chat_run(
        longest,
        {"functions": answer.get("function"), "win": row.get("win")},
        line,
        report,
        task=Task(prompt=as_text(answer.get("query")).strip()),
        outcome=Outcome(exit_status=nonblank(answer.get("finish_type"))),
    )


def _converted(task: str, row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    answer = as_dict(row.get("answer"))
    messages: list[dict[str, Any]] = []
    nodes = dicts_in(answer.get("answer_details"))
    while nodes:
        node = nodes[-1]
        if len(nodes) > 1:
            report.note(_BRANCHES)
        messages += _node_messages(node, messages)
        nodes = dicts_in(node.get("next"))
    if not any(message["role"] == "user" for message in messages):
        opening = sum(message["role"] == "system" for message in messages)
        messages.insert(opening, {"role": "user", "content": as_text(row.get("query")).strip()})
    columns = {"functions": row.get("available_tools")}
    yield from build_chat_run(messages, columns, line, report, task=Task(id=task), episode_key=answer.get("method"))


def _node_messages(node: dict[str, Any], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of a step; a call after a text of the agent is part of that turn."""
    message, role = node.get("message"), node.get("role")
    if role != "tool":
        return [{"role": role, "content": message}] if nonblank(message) else []
    call = as_dict(message)
    called = {"tool_calls": [{"function": {"name": call.get("name"), "arguments": call.get("arguments")}}]}
    answer = {"role": "tool", "content": as_text(call.get("response"))}
    if before and before[-1]["role"] == "assistant":
        before[-1].update(called)
        return [answer]
    return [{"role": "assistant", "content": "", **called}, answer]


IMPORTER = Importer("toolbench", "ToolBench answers", _detect, _read)


def _are_converted(document: dict[str, Any]) -> bool:
    """Whether an object has converted answers by the ids of their tasks."""
    return bool(document) and all(
        {"query", "available_tools", "answer"} <= as_dict(answered).keys() for answered in document.values()
    )


def _is_answer(row: dict[str, Any]) -> bool:
    return {"query", "function", "valid_data"} <= as_dict(row.get("answer_generation")).keys() and "win" in row
