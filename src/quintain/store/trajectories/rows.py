"""Encoding of a run as a row: columns for filters and order, text for search, and the JSON document."""

from __future__ import annotations

import json
import math
from itertools import chain
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError

from quintain.errors import InvalidInput
from quintain.records.text import require_clean
from quintain.records.trajectory import (
    AgentInfo,
    Content,
    ImagePart,
    Observation,
    Step,
    Task,
    Trajectory,
    text_of,
)
from quintain.store.database.postgresql import NUL_SYMBOL

UNNAMED = AgentInfo().name
_NAME_CHARS = 200
PROMPT_CHARS = 200
"""Characters of a prompt that its column has."""
_SHARED_CHARS = 500
_JSON = json.JSONEncoder(ensure_ascii=False)
"""Shared encoder: `json.dumps` with non-default options creates one per call."""


class EncodedRun(NamedTuple):
    """A trajectory with an id, and its columns except the timestamps."""

    trajectory: Trajectory
    columns: dict[str, Any]


def encode_run(trajectory: Trajectory) -> EncodedRun:
    """Encode a trajectory as a row. A missing id is derived from the identity.

    Raises:
        InvalidInput: A free field contains NaN, Infinity or a lone surrogate, or the id a NUL character.
    """
    try:
        identity = trajectory.identity
    except ValueError:
        require_clean(trajectory.model_dump(), "trajectory")
        raise
    if "\0" in (trajectory.id or ""):
        raise InvalidInput(f"expected a trajectory id without NUL characters, got {trajectory.id!r}; omit `id`")
    if not trajectory.id:
        trajectory = trajectory.model_copy(update={"id": f"traj-{identity[:16]}"})
    name, label = agent_names(trajectory.agent)
    task = trajectory.task
    columns = {
        "id": trajectory.id,
        "identity": identity,
        "session_id": (trajectory.session_id or "").replace("\0", NUL_SYMBOL) or None,  # a key, also in memory
        "opening": opening_hash(trajectory) if trajectory.session_id else None,
        "job_id": trajectory.job_id,
        "agent": name,
        "agent_label": label,
        "environment": task.environment,
        "task_id": task.id,
        "task_type": task.type,
        "prompt": task.prompt[:PROMPT_CHARS],
        "outcome": trajectory.outcome.status.value,
        "reward": trajectory.outcome.reward,
        "personal_data": trajectory.personal_data,
        "n_steps": len(trajectory.agent_steps),
        "tags": json.dumps(sorted(set(trajectory.tags)), ensure_ascii=False) if trajectory.tags else "[]",
        "text": _search_text(trajectory),
        "document": encode_document(trajectory),
    }
    return EncodedRun(trajectory, columns)


def encode_document(trajectory: Trajectory) -> str:
    """Return the trajectory as JSON. pydantic would silently write NaN as null.

    Raises:
        InvalidInput: A free field contains NaN, Infinity or a lone surrogate.
    """
    try:
        if _is_finite(trajectory):
            return trajectory.model_dump_json()
    except PydanticSerializationError:
        require_clean(trajectory.model_dump(), "trajectory")
        raise
    require_clean(trajectory.model_dump(), "trajectory")
    raise AssertionError("expected a non-finite number in the trajectory, found none")


def _is_finite(trajectory: Trajectory) -> bool:
    """Whether all numbers of the free fields are finite. Validation has checked all other numbers."""
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


def agent_names(agent: AgentInfo) -> tuple[str, str]:
    """Return the agent's name and NAME@VERSION. The name may be a full id, `agent:NAME@VERSION`.

    An agent without a name is called by its model.
    """
    stated = agent.model[:_NAME_CHARS] if agent.model and agent.name == UNNAMED else agent.name
    name, _, version = stated.removeprefix("agent:").partition("@")
    version = agent.version or version
    return name, f"{name}@{version}" if version else name


def _search_text(trajectory: Trajectory) -> str:
    """Return casefolded prompts, messages, calls, observations and texts of other columns of the row, without field names."""
    columns = trajectory.extra.get("row")
    others = [value for value in columns.values() if isinstance(value, str)] if isinstance(columns, dict) else []
    texts = [trajectory.task.prompt, *chain.from_iterable(map(_texts, trajectory.steps)), *others]
    # Text by text, so that a long run is not held once more.
    return "\n".join(map(_searchable, texts))


def _texts(step: Step) -> list[str]:
    texts = [text_of(step.message), step.thought or ""]
    for action in step.actions:
        texts += [action.tool, action.raw_args or _JSON.encode(action.args)]
    return texts + [text_of(observation.content) for observation in step.observations]


def _searchable(text: str) -> str:
    return text.replace("\0", " ").casefold()  # SQLite's LIKE stops at a NUL character


def text_of_first_turn(trajectory: Trajectory) -> str | None:
    """Return a piece of searched text that is in every run with the agent's first turn of this one; None if unknown.

    A run with a second turn of the agent has the first one whole. If this run has only one, it may be incomplete.
    """
    turns = trajectory.agent_steps
    if len(turns) < 2:
        return None
    return _searchable(max(_texts(turns[0]), key=len)[:_SHARED_CHARS]) or None


def opening_hash(trajectory: Trajectory) -> str:
    """Hash the steps before the agent's first. Runs of one session with different openings are unrelated."""
    cut = {"steps": trajectory.steps[: trajectory.agent_places[0]], "task": Task(), "tools": ()}
    return trajectory.model_copy(update=cut).identity


def is_prefix(part: Trajectory, whole: Trajectory) -> bool:
    """Whether the steps of `part` are a prefix of, or equal to, those of `whole`, ignoring times, rewards and usage.

    The last step of `part` may be incomplete, as in a log that was read while the agent was working.
    """
    last = len(part.steps) - 1
    if last >= len(whole.steps) or not _is_partial_step(part.steps[last], whole.steps[last]):
        return False
    before, same = (part.model_copy(update={"steps": run.steps[:last]}) for run in (part, whole))
    return before.identity == same.identity


def _is_partial_step(step: Step, finished: Step) -> bool:
    """Whether a step equals `finished` or an earlier state of it, with fewer calls or results or a shorter text."""
    n, later = len(step.actions), dict(enumerate(finished.observations))
    for observation in step.observations:  # results of parallel calls can arrive in any order
        place = next((i for i, one in later.items() if _is_partial_observation(observation, one)), None)
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


def _is_partial_observation(stored: Observation, finished: Observation) -> bool:
    return (
        stored.call_id == finished.call_id
        and stored.is_error in (False, finished.is_error)
        and _is_start(stored.content, finished.content)
    )


def _is_start(content: Content, whole: Content) -> bool:
    if isinstance(content, str) and isinstance(whole, str):
        return whole.startswith(content)
    pictures, more = _pictures(content), _pictures(whole)
    return text_of(whole).startswith(text_of(content)) and pictures == more[: len(pictures)]


def _pictures(content: Content) -> list[ImagePart]:
    return [part for part in content if isinstance(part, ImagePart)]
