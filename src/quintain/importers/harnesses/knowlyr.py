"""knowlyr's files: records of its recorder, environments and hub, and its exported training rows.

Its `success` is not always a verdict: the adapters for SWE-agent and crew set it when a run was submitted or completed, and
the environments when it was not truncated. Those runs stay unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.harnesses.knowlyr_text import parse_call, parse_steps
from quintain.importers.outcome_fields import status_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import first_name, matching_share, read_one, row_importer
from quintain.importers.run_builder import NO_RUN, build_run
from quintain.importers.training_data.prompt_answers import fingerprint
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import (
    as_count,
    as_dict,
    as_list,
    as_number,
    as_text,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_time,
)
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task, Trajectory

_ENDED_ONLY = ("swe-agent", "sweagent", "crew")
"""Frameworks whose success flag means that the run ended, not that it reached its goal."""
_TASK_FIELDS = ("repo", "base_commit", "test_command", "language", "domain", "success_criteria")


def _detect(probe: Probe) -> float:
    """Match rows with knowlyr's steps or the columns of its exports."""
    exported = ("instruction", "chosen", "chosen_trajectory_id", "trajectories")
    return max(
        0.96 * matching_share(probe, _is_run, "steps"),
        0.95 * matching_share(probe, _is_export, *exported),
        0.6 * matching_share(probe, _is_task, "description"),
    )


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    if isinstance(row.get("steps"), list):
        return _run(row, line, report)
    if isinstance(row.get("chosen"), str | dict) and isinstance(row.get("rejected"), str | dict):
        return _pair(row, line, report)
    if isinstance(row.get("trajectories"), list):
        return _group(row, line, report)
    if nonblank(row.get("response")):
        meta = as_dict(row.get("metadata"))
        prompt = nonblank(row.get("instruction"), row.get("prompt")) or ""
        task = _task_of(row, {**as_dict(parse_json_text(row.get("input"))), "task_description": prompt})
        agent = AgentInfo(
            name=nonblank(meta.get("agent_framework")) or "unknown", model=nonblank(meta.get("agent_model"))
        )
        fields = {"task": task, "agent": agent, "outcome": Outcome(reward=as_number(row.get("reward")))}
        return _written(row["response"], meta.get("total_steps"), line, report, fields)
    if "chosen_trajectory_id" in row:
        raise InvalidInput("expected two trajectories, got only their ids; import the file that contains them")
    raise InvalidInput(NO_RUN)


def _run(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    """Yield the run of a record of the recorder, an environment or the hub."""
    transcript = Transcript()
    meta, nested = as_dict(row.get("metadata")), as_dict(row.get("task"))
    task = _task_of(row, {**meta, **nested})
    if task.prompt:
        transcript.add_message("user", task.prompt)
    rewards = as_list(row.get("step_rewards"))
    for place, step in enumerate(as_list(row["steps"])):
        if not isinstance(step, dict):
            report.skip("step that is not an object")
            continue
        _add_step(transcript, step, as_number(rewards[place]) if place < len(rewards) else None)
    agent = AgentInfo(
        name=nonblank(row.get("agent"), row.get("agent_framework")) or "unknown",
        model=nonblank(row.get("model"), row.get("agent_model")),
    )
    yield from build_run(transcript, report, line, task=task, agent=agent, outcome=_outcome_of(row, agent.name, report))


def _pair(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    """Yield both sides of a preference, given as hub records or as text."""
    pair = fingerprint(row["chosen"], row["rejected"])
    meta = as_dict(row.get("metadata"))
    margin = as_number(row.get("reward_margin"))
    for side in ("chosen", "rejected"):
        trajectory = row[side]
        fields: dict[str, Any] = {
            "group_id": first_name(row, ("task_id",)) or f"pair-{pair}",
            "tags": (f"preference:{side}",),
            "extra": {"preference": {"pair": f"pair-{pair}", "side": side}},
        }
        reward = as_number(meta.get(f"{side}_reward"))
        scores = {} if margin is None else {"margin": margin}
        if isinstance(trajectory, dict):
            inner = {"task_id": row.get("task_id"), "metadata": meta, **trajectory}
            if not isinstance(trajectory.get("steps"), list):
                raise InvalidInput(f"{side}: expected a list `steps`")
            for run in _run(inner, line, report):
                outcome = run.trajectory.outcome.model_copy(update={"scores": scores})
                extra = {**run.trajectory.extra, **fields["extra"]}
                update = {**fields, "extra": extra, "outcome": outcome}
                yield run._replace(trajectory=run.trajectory.model_copy(update=update))
        else:
            fields |= {
                "task": _task_of(row, {"task_description": row.get("prompt")}),
                "agent": AgentInfo(model=nonblank(meta.get(f"{side}_model"))),
                "outcome": Outcome(reward=reward, scores=scores),
            }
            yield from _written(trajectory, None, line, report, fields)


def _group(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    """Yield the answers of a GRPO group as separate attempts."""
    task = _task_of(row, {"task_description": row.get("prompt")})
    members = dicts_in(row["trajectories"])
    if not members:
        raise InvalidInput(NO_RUN)
    for place, member in enumerate(members):
        fields = {
            "task": task,
            "group_id": task.id or f"group-{fingerprint(row.get('prompt'))}",
            "episode_key": str(place),
            "outcome": Outcome(reward=as_number(member.get("reward"))),
        }
        rewards = as_list(member.get("step_rewards"))
        yield from _written(as_text(member.get("response")), None, line, report, fields, rewards)


def _written(
    response: str, total: Any, line: int, report: Report, fields: dict[str, Any], rewards: list[Any] | None = None
) -> Iterator[Run]:
    """Yield the run of flat text; text in another form becomes one turn."""
    transcript = Transcript()
    if fields["task"].prompt:
        transcript.add_message("user", fields["task"].prompt)
    steps = parse_steps(response, total if isinstance(total, int) and not isinstance(total, bool) else None)
    rewards = rewards or []
    for place, step in enumerate(steps):
        calls = [] if step.tool is None else [make_call(step.tool, step.arguments)]
        reward = as_number(rewards[place]) if place < len(rewards) else None
        transcript.add_agent_turn(step.message, thought=step.thought, actions=calls, reward=reward)
        if step.observation is not None:
            transcript.orphans -= not transcript.add_result(step.observation)
    if not steps and response.strip():
        transcript.add_agent_turn(response)
    yield from build_run(transcript, report, line, **fields)


IMPORTER = row_importer("knowlyr", "knowlyr trajectories and rows", _detect, _row)


def is_record(row: dict[str, Any]) -> bool:
    """Whether a run is one of knowlyr's recorder, which names its agent by text and its task by a description."""
    return _is_run(row) and isinstance(row.get("agent"), str) and "description" in as_dict(row.get("task"))


def read_record(row: dict[str, Any]) -> Trajectory:
    """Return the run of a record of knowlyr's recorder; errors as of `read_one`."""
    return read_one("knowlyr", _run, row)


_SEEN_OR_RATED = frozenset({"observation", "quality"})
"""Fields of a step besides `thought` and `action`, of which it has at least one; `quality` is its value to a process reward model."""


def _is_run(row: dict[str, Any]) -> bool:
    steps = dicts_in(row.get("steps"))[:2]
    named = any({"tool_call", "tool_result"} <= step.keys() or {"tool", "params"} <= step.keys() for step in steps)
    named = named or any({"thought", "action"} <= step.keys() and step.keys() & _SEEN_OR_RATED for step in steps)
    hub = bool({"content_hash", "agent_framework"} & row.keys())
    return (
        isinstance(row.get("steps"), list)
        and (named or hub)
        and (hub or bool({"outcome", "task", "instruction"} & row.keys()))
    )


def _is_export(row: dict[str, Any]) -> bool:
    sft = {"instruction", "response", "task_id", "reward"} <= row.keys()
    dpo = {"chosen", "rejected", "task_id", "reward_margin"} <= row.keys() or "chosen_trajectory_id" in row
    answers = dicts_in(row.get("trajectories"))
    return sft or dpo or (bool(answers) and "response" in answers[0] and "prompt" in row)


def _is_task(row: dict[str, Any]) -> bool:
    return {"task_id", "description"} <= row.keys() and bool({"test_command", "reference_trajectories"} & row.keys())


def _add_step(transcript: Transcript, step: dict[str, Any], reward: float | None) -> None:
    """Add a step under any of its names: tool_call and tool_result, tool and params, action and observation."""
    called, result = as_dict(step.get("tool_call")), as_dict(step.get("tool_result"))
    tool = nonblank(called.get("name"), step.get("tool"), step.get("tool_name"))
    arguments = called.get("parameters") if called else step.get("params", step.get("parameters"))
    written = as_text(step.get("action")) if not tool else ""
    if written and "action_input" in step:
        tool, arguments = written.strip(), _input_of(step["action_input"])
    elif written:
        tool, arguments = parse_call(written.strip())
    tokens = as_count(step.get("token_count"))
    reward = as_number(step.get("reward", step.get("quality"))) if reward is None else reward
    transcript.add_agent_turn(
        "" if tool else written,
        thought=as_text(step.get("thought")),
        actions=[make_call(tool, arguments)] if tool else [],
        reward=reward,
        timestamp=parse_time(step.get("timestamp")),
        extra=None if tokens is None else {"token_count": tokens},
    )
    output = nonblank(result.get("output"), step.get("output"), step.get("observation"))
    error = as_text(result.get("error"))
    failed = bool(error) or (result.get("exit_code", step.get("exit_code")) or 0) != 0
    if output is not None or error or result:
        # A step without a call was answered all the same: no result is lost, and none is an orphan.
        known = transcript.add_result("\n".join(filter(None, [output or "", error])), is_error=failed)
        transcript.orphans -= not known


def _input_of(given: Any) -> Any:
    """Return the arguments of a ReAct step: an object as it is, other text as `input`."""
    if isinstance(given, str) and not isinstance(parse_json_text(given), dict):
        return {"input": given}
    return given


def _task_of(row: dict[str, Any], meta: dict[str, Any]) -> Task:
    """Return the task of a row, with its metadata or nested task."""
    return Task(
        id=first_name(meta, ("task_id",)) or first_name(row, ("task_id",)),
        prompt=nonblank(meta.get("description"), meta.get("task_description"), row.get("instruction")) or "",
        type=nonblank(meta.get("type")),
        difficulty=nonblank(meta.get("difficulty")),
        environment=nonblank(meta.get("domain")),
        metadata={key: meta[key] for key in _TASK_FIELDS if isinstance(meta.get(key), str | list) and meta[key]},
    )


def _outcome_of(row: dict[str, Any], framework: str, report: Report) -> Outcome:
    """Return the outcome if the row has a verdict: tests that ran, or the flag of a framework that checks results."""
    ended = as_dict(row.get("outcome"))
    success = ended.get("success", row.get("success"))
    passed, failed = ended.get("tests_passed"), ended.get("tests_failed")
    status = OutcomeStatus.UNKNOWN
    if "terminated" in ended or "truncated" in ended:
        status = OutcomeStatus.TRUNCATED if ended.get("truncated") is True else OutcomeStatus.UNKNOWN
    elif isinstance(passed, int) and isinstance(failed, int) and passed + failed > 0:
        status = status_of(not failed)
    elif isinstance(success, bool) and not framework.lower().startswith(_ENDED_ONLY):
        status = status_of(success)
    if status is OutcomeStatus.UNKNOWN and success is not None:
        report.note(
            "`success` of these runs means that they ended, not that they reached their goal: the outcome is unknown"
        )
    score = as_number(ended.get("score"))
    # A score of 0 is the recorder's default and carries no information.
    reward = as_number(row.get("reward", row.get("final_reward")))
    return Outcome(status=status, reward=reward, scores={"score": score} if score else {})
