"""Traces of `verifiers` from its version 1: one episode, or one trace, a line, each a graph of messages.

A path from a root to a leaf is what one model saw, so it is one run; turns that stand in an earlier path too are copied
context. `ok` only says that nothing failed; a verdict is a reward or metric named as one (`verdicts.NAMES`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quintain.importers.harnesses.verdicts import named_status
from quintain.importers.logfile import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.runs import run_of
from quintain.importers.training_data.dialects import turn_of
from quintain.importers.training_data.tool_schemas import tool_schemas
from quintain.importers.transcripts.chat import Turn
from quintain.importers.transcripts.parts import plain, shown
from quintain.importers.transcripts.transcript import moment
from quintain.importers.transcripts.usage import usage_of
from quintain.importers.transcripts.values import first, items, label, name, numbers, record, records, small, worth
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task

_LIMITS = {"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed"}
_ASKED = ("prompt", "question", "instruction", "messages", "system_prompt")


@dataclass(frozen=True)
class VerifiersV1:
    """Lines with `nodes`, or with `traces` that have them."""

    name: str = "verifiers_v1"
    title: str = "verifiers traces (v1)"

    def detect(self, probe: Probe) -> float:
        """Sure of a graph of messages with rewards, calls or an agent."""
        for row in [probe.first, *probe.rows[:5]]:
            for trace in [record(row), *records(record(row).get("traces"))]:
                nodes = records(trace.get("nodes"))
                if nodes and isinstance(nodes[0].get("message"), dict):
                    return 0.98 if trace.keys() & {"rewards", "calls", "agent"} else 0.7
        row = probe.first
        return 0.8 if isinstance(row.get("traces"), list) and row.keys() >= {"env", "task"} else 0.0

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """The runs of each line, agents and branches in the order of the file."""
        for line, row in log.rows(report):
            if not isinstance(row, dict) or not isinstance(row.get("traces", row.get("nodes")), list):
                report.reject(line, "is no episode with `traces` and no trace with `nodes`")
                continue
            traces = records(row.get("traces")) if "traces" in row else [row]
            if not traces:
                report.reject(line, "is an episode without a trace: nothing was recorded")
            for trace in traces:
                yield from _runs(trace, row, line, report)


def _runs(trace: dict[str, Any], episode: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    nodes = items(trace.get("nodes"))
    paths = _paths(nodes)
    if not paths:
        report.reject(line, "is a trace without messages")
    resumed = {link.get("node") for node in nodes for link in _links(node) if link.get("type") == "compaction"}
    calls = {call["node"]: call for call in records(trace.get("calls")) if isinstance(call.get("node"), int)}
    agent, task = record(trace.get("agent")), record(trace.get("task")) or record(episode.get("task"))
    config = record(agent.get("config"))
    model = first(config.get("model"), *(call.get("model") for call in calls.values()))
    env = first(record(episode.get("env")).get("id"), record(episode.get("env")).get("name"))
    task_id = _task_id(task)
    group = name(record(episode.get("group")).get("id")) or (f"{env}/{task_id}" if env and task_id else task_id)
    trace_id = name(trace.get("id")) or f"line-{line}"
    names_sampled = any(record(node).get("sampled") is True for node in nodes)
    written: set[int] = set()
    for n, path in enumerate(paths):
        attempt = any(link.get("type") == "compaction_attempt" for link in _links(nodes[path[-1]]))
        trains = agent.get("trainable") is not False and not (attempt and path[-1] not in resumed)
        turns = []
        for i in path:
            turn = turn_of(record(nodes[i]).get("message"), report)
            if turn is None:
                continue
            if turn.actor == "agent":
                given = names_sampled and record(nodes[i]).get("sampled") is not True
                _add_call(turn, record(nodes[i]), calls.get(i, {}))
                turn.fields |= {"copied_context": True} if given or i in written else {}
                turn.fields |= {} if trains else {"train": False}
            turns.append(turn)
        written.update(path)
        told = {
            "agent": agent.get("name"),
            "episode": episode.get("id") if "traces" in episode else None,
            "branch": n or None,
        }
        yield from run_of(
            turns,
            report,
            line,
            key=f"verifiers_v1:{trace_id}/{n}",
            format="verifiers_v1",
            episode_key=f"{trace_id}/{n}" if n else trace_id,
            group_id=group,
            agent=AgentInfo(name=label(agent.get("name")) or "unknown", model=model),
            task=_task(task, task_id, env),
            tools=tool_schemas(trace.get("tools")) or tool_schemas(record(nodes[path[0]]).get("tools")),
            outcome=_outcome(trace),
            extra=small(told),
        )


def _links(node: Any) -> list[dict[str, Any]]:
    return records(record(node).get("semantic_parents"))


def _paths(nodes: list[Any]) -> list[list[int]]:
    """Each way from a root to a leaf, as indices; the leaves in the order of the log."""
    parents = {i: record(node).get("parent") for i, node in enumerate(nodes) if isinstance(node, dict)}
    known = {
        i: p if isinstance(p, int) and not isinstance(p, bool) and p in parents and p < i else None
        for i, p in parents.items()
    }
    inner = set(known.values())
    paths = []
    for leaf in known:
        if leaf in inner:
            continue
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            path.append(at)
            at = known[at]
        paths.append(path[::-1])
    return paths


def _add_call(turn: Turn, node: dict[str, Any], call: dict[str, Any]) -> None:
    ids, mask = items(node.get("token_ids")), items(node.get("mask"))
    counts = {"ids": len(ids), "sampled": sum(flag is True for flag in mask)} if ids else None
    ended = first(call.get("finish_reason"), node.get("finish_reason"))
    turn.fields |= {
        "model": label(call.get("model")),
        "usage": usage_of(record(call.get("usage"))),
        "timestamp": moment(record(call.get("time")).get("start") or None),
        "extra": {**turn.fields.get("extra", {}), **small({"tokens": counts, "finish_reason": ended})},
    }


def _task_id(task: dict[str, Any]) -> str | None:
    data = record(task.get("data")) or task
    given = (
        task.get("key"),
        data.get("id"),
        data.get("idx"),
        data.get("name"),
        data.get("example_id"),
        task.get("hash"),
    )
    return next((known for value in given if (known := name(value)) is not None), None)


def _task(task: dict[str, Any], task_id: str | None, env: str | None) -> Task:
    data = record(task.get("data"))
    asked = data.get("prompt")
    said = [message.get("content") for message in records(asked) if message.get("role") == "user"]
    prompt = label(asked) or next((told for each in said if (told := plain(shown(each))).strip()), "")
    return Task(
        id=task_id,
        prompt=prompt,
        type=label(task.get("type")),
        environment=env,
        metadata=small(data, without=_ASKED),
    )


def _outcome(trace: dict[str, Any]) -> Outcome:
    rewards = {key: _reward(value) for key, value in record(trace.get("rewards")).items()}
    given = {key: pair for key, pair in rewards.items() if pair is not None}
    scores = numbers(record(trace.get("metrics"))) | {key: score for key, (score, _) in given.items()}
    errors = records(trace.get("errors"))
    stop = label(trace.get("stop_condition"))
    done = [call for call in records(trace.get("calls")) if not call.get("error")]
    status = named_status(scores)
    if stop == "error" or (errors and trace.get("ok") is not True):
        status = OutcomeStatus.ERROR
    elif stop in _LIMITS or (done and done[-1].get("finish_reason") == "length") or trace.get("is_truncated") is True:
        status = OutcomeStatus.TRUNCATED
    told = label(errors[-1].get("type")) if errors and status is OutcomeStatus.ERROR else stop
    total = sum(score * weight for score, weight in given.values()) if given else worth(trace.get("reward"))
    return Outcome(status=status, reward=worth(total), scores=scores, exit_status=(told or stop or "")[:200] or None)


def _reward(value: Any) -> tuple[float, float] | None:
    """Score and weight; None where the scoring did not run."""
    if (plain := worth(value)) is not None:
        return plain, 1.0
    score, weight = worth(record(value).get("score")), worth(record(value).get("weight", 1.0))
    return None if score is None else (score, 1.0 if weight is None else weight)
