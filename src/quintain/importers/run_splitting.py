"""Split runs that are too long for one row into parts linked by `continues`.

A part ends before the turn that would exceed the limit, so a growing session keeps its stored first part. A question
stays with its answer. Each later part begins with the opening of the run as copied context.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Report, Run
from quintain.records.trajectory import (
    MAX_TRAJECTORY_CHARS,
    Actor,
    Content,
    Outcome,
    Step,
    TextPart,
    Trajectory,
)

PART_CHARS = 2_000_000
"""Characters of text at which a part of a long run ends, about 500,000 tokens. Storing one takes six times its size in memory."""


def characters(run: Trajectory) -> int:
    """Return the characters of text in a run; a prompt that the first user message repeats counts once."""
    user = Actor.USER
    asked = next((step.message for step in run.steps if step.actor is user), "")
    said_twice = len(run.task.prompt) if asked == run.task.prompt else 0
    return _frame(run) + sum(map(_step, run.steps)) - said_twice


def _frame(run: Trajectory) -> int:
    """Return the characters outside the steps."""
    task = run.task
    beside = (task.metadata, task.id, run.tools, run.extra, run.tags, run.session_id)
    return len(task.prompt) + sum(map(_value, filter(None, beside)))


def _step(step: Step) -> int:
    # Written out, for it is done to every run of an import.
    message = step.message
    size = len(message) if type(message) is str else _text(message)
    size += len(step.thought or "") + (_value(step.extra) if step.extra else 0)
    for call in step.actions:
        size += len(call.tool) + len(call.raw_args or "") + (_value(call.args) if call.args else 0)
    for observation in step.observations:
        size += len(observation.content) if type(observation.content) is str else _text(observation.content)
    return size


def _text(content: Content) -> int:
    if isinstance(content, str):
        return len(content)
    return sum(len(part.text) if isinstance(part, TextPart) else len(part.uri) for part in content)


def _value(value: Any) -> int:
    size, stack = 0, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, tuple | list):
            stack += item
    return size


def require_one_part(run: Trajectory) -> None:
    """Raise if a run is too long for one row.

    Raises:
        InvalidInput: it has more than `MAX_TRAJECTORY_CHARS` characters.
    """
    size = characters(run)
    if size > MAX_TRAJECTORY_CHARS:
        raise InvalidInput(
            f"expected at most {MAX_TRAJECTORY_CHARS:,} characters of text, got a trajectory of {size:,}; cut long observations, or "
            "split the run into parts linked by `continues`",
            code="too_large",
        )


def split_trajectory(run: Trajectory, bound: int = PART_CHARS, most: int = MAX_TRAJECTORY_CHARS) -> list[Trajectory]:
    """Return the run, or parts of it with at most `bound` characters each; a longer turn is a part of its own.

    The last part has the outcome and the group of attempts; the first part has the link to the run that this one
    continues.

    Raises:
        InvalidInput: one turn, or the text outside the turns, is longer than `most`.
    """
    if characters(run) <= bound:
        return [run]
    frame, opening = _frame(run), _copied(run)
    room, copied = max(bound, min(2 * frame, most)) - frame, sum(map(_step, opening))
    if copied > room // 2:
        opening, copied = (), 0
    first, *others = _pieces(run.steps, room, copied, most - frame)
    parts = [first, *((*opening, *piece) for piece in others)]
    last = len(parts) - 1
    return [
        run.model_copy(
            update={
                "id": None,
                "steps": steps,
                "extra": {**run.extra, "part": place + 1},
                "continues": None if place else run.continues,
                **({} if place == last else {"outcome": Outcome(), "group_id": None, "subagents": ()}),
            }
        )
        for place, steps in enumerate(parts)
    ]


def split_run(run: Run, report: Report) -> Iterator[Run]:
    """Yield the run, or its parts, each linked to the one before.

    Other runs that point to it find its last part, and the run that started it its first. A run that cannot be split is
    reported.
    """
    try:
        parts = split_trajectory(run.trajectory)
    except InvalidInput as error:
        report.reject(run.line, error.message)
        return
    if len(parts) == 1:
        yield run
        return
    report.note(
        f"a run of more than {PART_CHARS:,} characters was split into several, linked by `continues`; each begins with "
        "the first prompt as copied context"
    )
    keys = [*(f"part:{part.identity}" for part in parts[:-1]), run.key]
    for place, part in enumerate(parts):
        before = keys[place - 1] if place else run.continues
        yield Run(part, run.line, keys[place], None if place else run.parent, before)


def _copied(run: Trajectory) -> tuple[Step, ...]:
    """Return the system prompt and the first user message as copied context."""
    before = list(takewhile(lambda step: step.actor is not Actor.AGENT, run.steps))
    asked = next((place for place, step in enumerate(before) if step.actor is Actor.USER), len(before) - 1)
    return tuple(step.model_copy(update={"copied_context": True}) for step in before[: asked + 1])


def _pieces(steps: tuple[Step, ...], room: int, copied: int, most: int) -> Iterator[tuple[Step, ...]]:
    """Group steps into pieces of at most `room` characters; pieces after the first get `copied` characters less.

    An exchange that is longer alone, up to `most` characters, is a piece of its own.
    """
    piece: tuple[Step, ...] = ()
    size, bound = 0, room
    for exchange in _exchanges(steps):
        more = sum(map(_step, exchange))
        if piece and size + more > bound:
            yield piece
            piece, size, bound = (), 0, room - copied
        if more > most - (room - bound):
            longest = max(map(_step, exchange))
            raise InvalidInput(
                f"expected turns of at most {most:,} characters besides task and tools, got one of {longest:,}; "
                "cut that text in a copy of the log and import the copy",
                code="too_large",
            )
        piece, size = piece + exchange, size + more
    yield piece


def _exchanges(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Yield each agent turn with the messages before it; messages after the last turn go with that turn."""
    begin = 0
    ends = [place + 1 for place, step in enumerate(steps) if step.actor is Actor.AGENT]
    for end in [*ends[:-1], len(steps)]:
        yield steps[begin:end]
        begin = end
