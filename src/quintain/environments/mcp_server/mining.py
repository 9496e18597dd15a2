"""Tasks from recordings: the prompts of successful runs on a server, checked by the calls of these runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from quintain.environments.mcp_server.tasks import digest
from quintain.environments.servers import Call
from quintain.records.trajectory import OutcomeStatus, Task, Trajectory

_SUBMITS = ("submit", "submit_answer")


def mine_tasks(runs: Iterable[Trajectory], tools: Collection[str]) -> list[Task]:
    """Return tasks from the prompts of successful runs, checked by the runs' calls.

    Args:
        runs: Recordings; only successful ones with a call of at least one of the tools count.
        tools: Names of the server's tools; calls of other tools (a shell, an editor) are not part of the check.

    Returns:
        One task per prompt, from the run with the fewest calls. It expects all calls that did not fail, in their order, and the
        submitted answer, if any. That includes superfluous calls of the run: read the tasks (`tasks.write_rows`) before use.
    """
    best: dict[str, tuple[int, Task]] = {}
    for run in runs:
        prompt = run.task.prompt or run.first_user_text
        calls = [Call(tool=name, args=args) for name, args in _carried_out(run) if name in tools]
        if run.outcome.status is not OutcomeStatus.SUCCESS or not prompt or not calls:
            continue
        if prompt not in best or len(calls) < best[prompt][0]:
            best[prompt] = len(calls), _task(run, prompt, calls)
    return [task for _, task in best.values()]


def _task(run: Trajectory, prompt: str, calls: list[Call]) -> Task:
    checks: list[dict[str, Any]] = [{"type": "calls", "expect": [call.model_dump() for call in calls], "order": True}]
    answers = [args["answer"] for name, args in _carried_out(run) if name in _SUBMITS and "answer" in args]
    if answers:
        checks.append({"type": "answer", "answer": answers[-1]})
    return Task(
        id=f"mined/{digest(prompt)}",
        prompt=prompt,
        type=run.task.type or "mined",
        difficulty=run.task.difficulty,
        metadata={"checker": {"type": "all", "checkers": checks}, "mined_from": run.identified().id},
    )


def _carried_out(run: Trajectory) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the calls that did not end in an error, with their arguments."""
    for step in run.agent_steps:
        results = list(step.observations)
        failed = {one.call_id for one in results if one.is_error and one.call_id}
        for place, action in enumerate(step.actions):
            by_place = len(results) == len(step.actions) and results[place].is_error
            if action.args is not None and not by_place and action.call_id not in failed:
                yield action.tool, action.args
