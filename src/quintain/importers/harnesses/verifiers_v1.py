"""Traces of `verifiers` since version 1: one episode or trace a line, each a graph of messages.

A path from a root to a leaf is what one model saw, so it is one run; turns that stand in an earlier path too are copied
context. `ok` only means that nothing failed; a verdict is a reward or metric named in `outcome_fields.NAMES`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import named_status
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.message_parts import plain_text, visible_content
from quintain.importers.transcripts.tool_schemas import parse_tool_schemas
from quintain.importers.transcripts.vendor_messages import parse_vendor_message
from quintain.importers.values import (
    as_dict,
    as_list,
    as_name,
    as_score,
    dicts_in,
    nonblank,
    parse_time,
    parse_usage,
    score_fields,
    short_fields,
)
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task

_LIMITS = {"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed"}
_ASKED = ("prompt", "question", "instruction", "messages", "system_prompt")


def _detect(probe: Probe) -> float:
    """Match a graph of messages with rewards, calls or an agent."""
    for row in [probe.first, *probe.rows[:5]]:
        for trace in [as_dict(row), *dicts_in(as_dict(row).get("traces"))]:
            nodes = dicts_in(trace.get("nodes"))
            if nodes and isinstance(nodes[0].get("message"), dict):
                known = 0.98 if trace.keys() & {"rewards", "calls", "agent"} else 0.7
                return if_most(known, probe, lambda row: bool({"traces", "nodes"} & row.keys()))
    row = probe.first
    return 0.8 if isinstance(row.get("traces"), list) and row.keys() >= {"env", "task"} else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield the runs of each line, agents and branches in file order."""
    for line, row in log.rows(report):
        if not isinstance(row, dict) or not isinstance(row.get("traces", row.get("nodes")), list):
            report.reject(line, "expected an episode with `traces` or a trace with `nodes`")
            continue
        traces = dicts_in(row.get("traces")) if "traces" in row else [row]
        if not traces:
            report.reject(line, "expected a trace, got an episode without one")
        for trace in traces:
            yield from _runs(trace, row, line, report)


IMPORTER = Importer("verifiers_v1", "verifiers traces (v1)", _detect, _read)


def _runs(trace: dict[str, Any], episode: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    nodes = as_list(trace.get("nodes"))
    paths = _paths(nodes)
    if not paths:
        report.reject(line, "expected messages, got a trace without any")
    agent, task = as_dict(trace.get("agent")), as_dict(trace.get("task")) or as_dict(episode.get("task"))
    calls = {call["node"]: call for call in dicts_in(trace.get("calls")) if isinstance(call.get("node"), int)}
    model = nonblank(as_dict(agent.get("config")).get("model"), *(call.get("model") for call in calls.values()))
    env = nonblank(as_dict(episode.get("env")).get("id"), as_dict(episode.get("env")).get("name"))
    task_id = _task_id(task)
    group = as_name(as_dict(episode.get("group")).get("id")) or (f"{env}/{task_id}" if env and task_id else task_id)
    trace_id = as_name(trace.get("id")) or f"line-{line}"
    sampled = {i for i, node in enumerate(nodes) if as_dict(node).get("sampled") is True}
    failed = _failed_compactions(nodes)
    seen: set[int] = set()
    for n, path in enumerate(paths):
        copied = {i for i in path if i in seen or (sampled and i not in sampled)}
        turns = list(_turns(nodes, path, calls, copied, report))
        if agent.get("trainable") is False or path[-1] in failed:
            for turn in turns:
                turn.fields |= {"train": False} if turn.actor == "agent" else {}
        seen.update(path)
        labels = {
            "agent": agent.get("name"),
            "episode": episode.get("id") if "traces" in episode else None,
            "branch": n or None,
        }
        yield from build_run(
            turns,
            report,
            line,
            key=f"{trace_id}/{n}",
            episode_key=f"{trace_id}/{n}" if n else trace_id,
            group_id=group,
            agent=AgentInfo(name=nonblank(agent.get("name")) or "unknown", model=model),
            task=_task(task, task_id, env),
            tools=parse_tool_schemas(trace.get("tools")) or parse_tool_schemas(as_dict(nodes[path[0]]).get("tools")),
            outcome=_outcome(trace),
            extra=short_fields(labels),
        )


def _turns(
    nodes: list[Any], path: list[int], calls: Mapping[int, dict[str, Any]], copied: Collection[int], report: Report
) -> Iterator[Turn]:
    """Yield the turns of a path; those of the agent at `copied` nodes are context."""
    for i in path:
        node = as_dict(nodes[i])
        turn = parse_vendor_message(node.get("message"), report)
        if turn is not None and turn.actor == "agent":
            _add_call(turn, node, calls.get(i, {}))
            turn.fields |= {"copied_context": True} if i in copied else {}
        if turn is not None:
            yield turn


def _failed_compactions(nodes: list[Any]) -> set[int]:
    """Return the nodes that tried to compact the context, and with which no other node goes on."""
    links = [(i, link) for i, node in enumerate(nodes) for link in _links(node)]
    compacted = [link.get("node") for _, link in links if link.get("type") == "compaction"]
    tried = {i for i, link in links if link.get("type") == "compaction_attempt"}
    return tried - {node for node in compacted if isinstance(node, int)}


def _links(node: Any) -> list[dict[str, Any]]:
    return dicts_in(as_dict(node).get("semantic_parents"))


def _paths(nodes: list[Any]) -> list[list[int]]:
    """Return every path from a root to a leaf as node indices, leaves in file order."""
    parents = {i: as_dict(node).get("parent") for i, node in enumerate(nodes) if isinstance(node, dict)}
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
    ids, mask = as_list(node.get("token_ids")), as_list(node.get("mask"))
    counts = {"ids": len(ids), "sampled": sum(flag is True for flag in mask)} if ids else None
    ended = nonblank(call.get("finish_reason"), node.get("finish_reason"))
    turn.fields |= {
        "model": nonblank(call.get("model")),
        "usage": parse_usage(as_dict(call.get("usage"))),
        "timestamp": parse_time(as_dict(call.get("time")).get("start") or None),
        "extra": {**turn.fields.get("extra", {}), **short_fields({"tokens": counts, "finish_reason": ended})},
    }


def _task_id(task: dict[str, Any]) -> str | None:
    data = as_dict(task.get("data")) or task
    ids = (task.get("key"), *(data.get(key) for key in ("id", "idx", "name", "example_id")), task.get("hash"))
    return next((known for value in ids if (known := as_name(value)) is not None), None)


def _task(task: dict[str, Any], task_id: str | None, env: str | None) -> Task:
    data = as_dict(task.get("data"))
    asked = data.get("prompt")
    contents = [message.get("content") for message in dicts_in(asked) if message.get("role") == "user"]
    prompt = nonblank(asked, *(plain_text(visible_content(content)) for content in contents))
    return Task(
        id=task_id,
        prompt=prompt or "",
        type=nonblank(task.get("type")),
        environment=env,
        metadata=short_fields(data, without=_ASKED),
    )


def _outcome(trace: dict[str, Any]) -> Outcome:
    rewards = {key: _reward(value) for key, value in as_dict(trace.get("rewards")).items()}
    known = {key: pair for key, pair in rewards.items() if pair is not None}
    scores = score_fields(as_dict(trace.get("metrics"))) | {key: score for key, (score, _) in known.items()}
    errors = dicts_in(trace.get("errors"))
    stop = nonblank(trace.get("stop_condition"))
    done = [call for call in dicts_in(trace.get("calls")) if not call.get("error")]
    status = named_status(scores)
    if stop == "error" or (errors and trace.get("ok") is not True):
        status = OutcomeStatus.ERROR
    elif stop in _LIMITS or (done and done[-1].get("finish_reason") == "length") or trace.get("is_truncated") is True:
        status = OutcomeStatus.TRUNCATED
    exit_status = nonblank(errors[-1].get("type")) if errors and status is OutcomeStatus.ERROR else stop
    total = sum(score * weight for score, weight in known.values()) if known else as_score(trace.get("reward"))
    return Outcome(
        status=status, reward=as_score(total), scores=scores, exit_status=(exit_status or stop or "")[:200] or None
    )


def _reward(value: Any) -> tuple[float, float] | None:
    """Return score and weight; None if scoring did not run."""
    if (plain := as_score(value)) is not None:
        return plain, 1.0
    score, weight = as_score(as_dict(value).get("score")), as_score(as_dict(value).get("weight", 1.0))
    return None if score is None else (score, 1.0 if weight is None else weight)
