"""tau2-bench simulations: one file with `info`, `tasks` and `simulations`, or a file a simulation beside `results.json`.

Agent and user both have tools. What the user did with theirs is part of the user's next turn (`extra.user_tools`): the
agent never saw it. A reward of 1 is success and any other failure, as tau2's own `is_successful` has it; a run that was
stopped by a limit is truncated, one that broke is an error. Voice simulations without text messages are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.message_parts import plain_text
from quintain.importers.transcripts.tool_schemas import parse_tool_schemas
from quintain.importers.transcripts.vendor_messages import parse_vendor_message
from quintain.importers.values import (
    as_dict,
    as_list,
    as_name,
    as_score,
    as_text,
    dicts_in,
    nonblank,
    parse_time,
    parse_usage,
    score_fields,
    short_fields,
)
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task

_LIMITS = {"max_steps", "timeout", "context_window_exceeded"}
_BROKEN = {"agent_error", "user_error", "infrastructure_error", "unexpected_error"}
_GREETING = "Hi! How can I help you today?"
"""First turn of every agent, written by the benchmark rather than the model."""
_POLICY = "the log has the agent's policy, but not the rest of its system prompt"


def _detect(probe: Probe) -> float:
    """Match simulations beside tasks, or a simulation with messages and a termination reason."""
    row = probe.first
    simulations, info = row.get("simulations"), as_dict(row.get("info"))
    if isinstance(simulations, list) and (row.keys() & {"tasks", "info"}):
        known = any(_is_simulation(as_dict(each)) for each in simulations[:5]) or "environment_info" in info
        return 0.98 if known else 0.0
    if isinstance(row.get("simulation_index"), list) and isinstance(row.get("tasks"), list):
        return 0.95
    return 0.95 if _is_simulation(row) and "termination_reason" in row else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    document = as_dict(log.document())
    if "simulations" not in document and "termination_reason" in document:
        yield from _run(document, *_shared(log), None, report)
        return
    simulations = document.get("simulations")
    if not isinstance(simulations, list):
        report.note("this file describes the runs; each run is a file in the folder simulations/ beside it")
        return
    tasks = _tasks(document)
    for n, simulation in enumerate(simulations, 1):
        if isinstance(simulation, dict):
            yield from _run(simulation, as_dict(document.get("info")), tasks, n, report)
        else:
            report.reject(n, f"expected a simulation object, got {type(simulation).__name__}")


IMPORTER = Importer("tau2", "tau2-bench simulations", _detect, _read)


def _is_simulation(row: dict[str, Any]) -> bool:
    return "task_id" in row and bool(row.keys() & {"messages", "ticks"})


def _shared(log: LogFile) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read the results file beside the folder of simulations, which describes all of them."""
    beside = log.sibling("../results.json") or log.sibling("results.json")
    if beside is None:
        return {}, {}
    stamp = beside.path.stat()
    return _parsed(beside, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=1)
def _parsed(beside: LogFile, mtime_ns: int, size: int) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    try:
        document = as_dict(beside.document())
    except InvalidInput:
        return {}, {}
    return as_dict(document.get("info")), _tasks(document)


def _tasks(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {key: task for task in dicts_in(document.get("tasks")) if (key := as_name(task.get("id"))) is not None}


def _run(
    simulation: dict[str, Any], info: dict[str, Any], tasks: dict[str, dict[str, Any]], line: int | None, report: Report
) -> Iterator[Run]:
    if not isinstance(simulation.get("messages"), list):
        report.reject(line, "expected text messages (voice simulations are not supported)")
        return
    agent, environment = as_dict(info.get("agent_info")), as_dict(info.get("environment_info"))
    task_id, domain = as_name(simulation.get("task_id")), nonblank(environment.get("domain_name"))
    trial = as_name(simulation.get("trial"))
    yield from build_run(
        _turns(simulation, environment, report),
        report,
        line,
        episode_key=as_name(simulation.get("id")) or f"{task_id}.{trial}",
        group_id=f"{domain}/{task_id}" if domain and task_id else task_id,
        agent=AgentInfo(name=nonblank(agent.get("implementation")) or "unknown", model=nonblank(agent.get("llm"))),
        task=Task(id=task_id, environment=domain, metadata=_hidden(tasks.get(task_id or "", {}))),
        tools=_tools(environment.get("tool_defs")),
        outcome=_outcome(simulation),
        extra=short_fields({key: simulation.get(key) for key in ("trial", "seed", "agent_cost", "user_cost", "mode")}),
    )


def _turns(simulation: dict[str, Any], environment: dict[str, Any], report: Report) -> list[Turn]:
    turns: list[Turn] = []
    used: list[dict[str, Any]] = []
    messages = [
        m for message in dicts_in(simulation["messages"]) for m in dicts_in(message.get("tool_messages")) or [message]
    ]
    policy = nonblank(simulation.get("policy"), environment.get("policy"))
    if policy and not any(message.get("role") == "system" for message in messages):
        report.note(_POLICY)
        turns.append(Turn("system", policy, fields={"extra": {"from": "policy"}}))
    for message in messages:
        role = message.get("role")
        if role == "tool" and message.get("requestor") == "user":
            call = next((call for call in used if call["id"] == message.get("id") and "result" not in call), None)
            if call is None:
                used.append(call := {"id": message.get("id")})
            call["result"] = as_text(message.get("content"))
            continue
        turn = parse_vendor_message(message, report)
        if turn is None:
            continue
        turn.fields["timestamp"] = parse_time(message.get("timestamp"))
        if role == "user":
            used += _calls(message)
            if not turn.content:
                continue
            turn.fields["extra"] = {"simulated": True, **({"user_tools": used} if used else {})}
            used = []
        elif role == "assistant":
            _add_cost(turn, message, is_first=not any(t.actor == "agent" for t in turns))
        turns.append(turn)
    if used and (last := next((turn for turn in reversed(turns) if turn.actor == "user"), None)):
        extra = last.fields.setdefault("extra", {})
        extra["user_tools"] = [*extra.get("user_tools", []), *used]
    return turns


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    turn = parse_vendor_message({"role": "assistant", "tool_calls": message.get("tool_calls")}, Report())
    calls = turn.calls if turn else []
    return [{"id": call["call_id"], "name": call["tool"], "arguments": call["args"]} for call in calls]


def _add_cost(turn: Turn, message: dict[str, Any], *, is_first: bool) -> None:
    raw = as_dict(message.get("raw_data"))
    turn.fields |= {"usage": parse_usage(as_dict(message.get("usage"))), "model": nonblank(raw.get("model"))}
    if (cost := as_score(message.get("cost"))) is not None:
        turn.fields["extra"] = {"cost": cost}
    if is_first and not message.get("usage") and plain_text(turn.content) == _GREETING and not turn.calls:
        turn.fields["train"] = False


def _tools(definitions: Any) -> list[dict[str, Any]]:
    if isinstance(definitions, dict):
        return parse_tool_schemas([{"name": key, **as_dict(value)} for key, value in definitions.items()])
    return parse_tool_schemas(definitions)


def _hidden(task: dict[str, Any]) -> dict[str, Any]:
    """Return what the agent must not see: the simulated user's scenario."""
    purpose = as_dict(task.get("description")).get("purpose")
    wanted = as_list(as_dict(task.get("evaluation_criteria")).get("actions"))
    names = [known for action in dicts_in(wanted) if (known := nonblank(action.get("name")))]
    return short_fields({"user_scenario": task.get("user_scenario"), "purpose": purpose, "wanted_actions": names})


def _outcome(simulation: dict[str, Any]) -> Outcome:
    checked = as_dict(simulation.get("reward_info"))
    reward, ended = as_score(checked.get("reward")), nonblank(simulation.get("termination_reason"))
    status = OutcomeStatus.UNKNOWN
    if ended in _BROKEN:
        status = OutcomeStatus.ERROR
    elif ended in _LIMITS:
        status = OutcomeStatus.TRUNCATED
    elif reward is not None:
        status = OutcomeStatus.SUCCESS if abs(reward - 1) <= 1e-6 else OutcomeStatus.FAILURE
    scores = score_fields(as_dict(checked.get("reward_breakdown")))
    return Outcome(status=status, reward=reward, scores=scores, exit_status=ended and ended[:200])
