"""A run as its row: what is selected and ordered by, what text search reads, and the encoded document."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError

from quintain.records.text import require_clean
from quintain.records.trajectory import (
    Actor,
    AgentInfo,
    Content,
    ImagePart,
    Observation,
    Step,
    Task,
    Trajectory,
    text_of,
)

_PROMPT_CHARS = 200
_JSON = json.JSONEncoder(ensure_ascii=False)
"""Made once: `json.dumps` makes one for each call that asks for anything special."""


class EncodedRun(NamedTuple):
    """A trajectory with an id and what the table holds of it, moments left out."""

    trajectory: Trajectory
    columns: dict[str, Any]


def encode_run(trajectory: Trajectory) -> EncodedRun:
    """The row of a trajectory; one without an id gets that of its identity.

    Raises:
        InvalidInput: NaN, Infinity or a lone surrogate in a free field.
    """
    try:
        identity = trajectory.identity
    except ValueError:
        require_clean(trajectory.model_dump(), "trajectory")
        raise
    if not trajectory.id:
        trajectory = trajectory.model_copy(update={"id": f"traj-{identity[:16]}"})
    name, label = _agent_names(trajectory.agent)
    task = trajectory.task
    columns = {
        "id": trajectory.id,
        "identity": identity,
        "session_id": trajectory.session_id or None,
        "opening": opening(trajectory) if trajectory.session_id else None,
        "job_id": trajectory.job_id,
        "agent": name,
        "agent_label": label,
        "environment": task.environment,
        "task_id": task.id,
        "task_type": task.type,
        "prompt": task.prompt[:_PROMPT_CHARS],
        "outcome": trajectory.outcome.status.value,
        "reward": trajectory.outcome.reward,
        "n_steps": len(trajectory.agent_steps),
        "tags": json.dumps(sorted(set(trajectory.tags)), ensure_ascii=False) if trajectory.tags else "[]",
        "text": _searchable(trajectory),
        "document": _document(trajectory),
    }
    return EncodedRun(trajectory, columns)


def _document(trajectory: Trajectory) -> str:
    """The trajectory as JSON text; pydantic would write NaN as null, which is no choice of the store."""
    try:
        if _is_finite(trajectory):
            return trajectory.model_dump_json()
    except PydanticSerializationError:
        require_clean(trajectory.model_dump(), "trajectory")
        raise
    require_clean(trajectory.model_dump(), "trajectory")
    raise AssertionError("a number that is not finite was there and is gone")


def _is_finite(trajectory: Trajectory) -> bool:
    """Are all numbers of the free fields finite? Every other number was checked when the record was made."""
    stack: list[Any] = [trajectory.extra, trajectory.task.metadata, *trajectory.tools, trajectory.outcome.scores]
    for step in trajectory.steps:
        if step.extra:
            stack.append(step.extra)
        stack += [action.args for action in step.actions if action.args]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        elif isinstance(item, float) and not math.isfinite(item):
            return False
    return True


def _agent_names(agent: AgentInfo) -> tuple[str, str]:
    """The agent's bare name, and NAME@VERSION; a name may be a whole id, `agent:NAME@VERSION`."""
    name, _, version = agent.name.removeprefix("agent:").partition("@")
    version = agent.version or version
    return name, f"{name}@{version}" if version else name


def _searchable(trajectory: Trajectory) -> str:
    """What was asked, said, done and seen, casefolded; field names are not part of it."""
    said = [trajectory.task.prompt]
    for step in trajectory.steps:
        said += [text_of(step.message), step.thought or ""]
        for action in step.actions:
            said += [action.tool, action.raw_args or _JSON.encode(action.args)]
        said += [text_of(observation.content) for observation in step.observations]
    # Behind a NUL, SQLite's LIKE sees nothing.
    return "\n".join(said).replace("\0", " ").casefold()


def opening(trajectory: Trajectory) -> str:
    """Hash of the steps before the agent's first: two runs of one session that share no opening share nothing."""
    first = next(i for i, step in enumerate(trajectory.steps) if step.actor is Actor.AGENT)
    cut = {"steps": trajectory.steps[:first], "task": Task(), "tools": ()}
    return trajectory.model_copy(update=cut).identity


def begins(part: Trajectory, whole: Trajectory) -> bool:
    """Are the steps of `part` the beginning of, or equal to, those of `whole`? Times, rewards and usage do not count.

    The last step of `part` may be unfinished, as it is where a log was read while the agent was at work.
    """
    last = len(part.steps) - 1
    if last >= len(whole.steps) or not _may_become(part.steps[last], whole.steps[last]):
        return False
    before, same = (part.model_copy(update={"steps": run.steps[:last]}) for run in (part, whole))
    return before.identity == same.identity


def _may_become(step: Step, finished: Step) -> bool:
    """Is this turn equal to the other, or what a log held of it earlier: fewer calls or results, or less of a text?"""
    n, later = len(step.actions), dict(enumerate(finished.observations))
    for seen in step.observations:  # of parallel calls, the later result may come first
        place = next((i for i, one in later.items() if _may_have_been(seen, one)), None)
        if place is None:
            return False
        del later[place]
    return (
        (step.actor, step.copied_context) == (finished.actor, finished.copied_context)
        and step.model in (None, finished.model)
        and step.actions == finished.actions[:n]
        and _is_start(step.message, finished.message)
        and (finished.thought or "").startswith(step.thought or "")
    )


def _may_have_been(seen: Observation, finished: Observation) -> bool:
    return (
        seen.call_id == finished.call_id
        and seen.is_error in (False, finished.is_error)
        and _is_start(seen.content, finished.content)
    )


def _is_start(content: Content, whole: Content) -> bool:
    if isinstance(content, str) and isinstance(whole, str):
        return whole.startswith(content)
    pictures, more = _pictures(content), _pictures(whole)
    return text_of(whole).startswith(text_of(content)) and pictures == more[: len(pictures)]


def _pictures(content: Content) -> list[ImagePart]:
    return [part for part in content if isinstance(part, ImagePart)]
