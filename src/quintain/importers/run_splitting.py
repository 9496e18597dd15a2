"""Split runs that are too long for one row into parts linked by `continues`.

A part ends before the turn that would exceed the limit, so a growing session keeps its stored first part. A question
stays with its answer. Each later part begins with the opening of the run as copied context.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, count, takewhile, zip_longest
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.importers.protocol import Report, Run
from quintain.importers.values import text_chars
from quintain.records.trajectory import MAX_TRAJECTORY_CHARS, Actor, Content, Outcome, Step, TextPart, Trajectory

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
    return len(task.prompt) + sum(map(text_chars, filter(None, beside)))


def _step(step: Step) -> int:
    # Written out, for it is done to every run of an import.
    message = step.message
    size = len(message) if type(message) is str else _text(message)
    size += len(step.thought or "") + (text_chars(step.extra) if step.extra else 0)
    for call in step.actions:
        size += len(call.tool) + len(call.raw_args or "") + (text_chars(call.args) if call.args else 0)
    for observation in step.observations:
        size += len(observation.content) if type(observation.content) is str else _text(observation.content)
    return size


def _text(content: Content) -> int:
    if isinstance(content, str):
        return len(content)
    return sum(len(part.text) if isinstance(part, TextPart) else len(part.uri) for part in content)


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


Clean = Callable[[Trajectory], tuple[Trajectory, Sequence[Counter[str]]]]
"""Returns a run as it is to be stored, and the number of redactions in each step; () if there are none."""


def split_trajectory(
    run: Trajectory, bound: int = PART_CHARS, most: int = MAX_TRAJECTORY_CHARS, redactions: Sequence[Counter[str]] = ()
) -> list[Trajectory]:
    """Return the run, or parts of it with at most `bound` characters each; a longer turn is a part by itself.

    The last part has the outcome and the group of attempts; the first part has the link to the run that this one
    continues. A part counts the redactions outside the steps and those in its own steps.

    Args:
        run: Redacted already.
        bound: Characters.
        most: Characters of the longest turn.
        redactions: In each step, as `redact_by_step` returns them; () if there are none.

    Raises:
        InvalidInput: one turn, or the text outside the turns, is longer than `most`.
    """
    return [part for part, _ in _parts(Run(run), lambda run: (run, redactions), bound, most)]


def split_run(run: Run, report: Report, clean: Clean = lambda run: (run, ())) -> Iterator[Run]:
    """Yield the run, or its parts, each linked to the one before and built when the one before is stored.

    Other runs that point to it find its last part, and the run that started it its first. A turn that is too long ends
    the run and is reported.
    """
    before, n = run.continues, 0
    try:
        for part, is_last in _parts(run, clean, PART_CHARS, MAX_TRAJECTORY_CHARS):
            if not n and not is_last:
                report.note(_SPLIT)
            key = run.key if is_last else f"part:{part.identity}"
            yield Run(part, run.line, key, None if n else run.parent, before, is_part=n > 0 or not is_last)
            del part  # not in memory while the next one is built
            before, n = key, n + 1
    except InvalidInput as error:
        report.reject(run.line, error.message)


_SPLIT = (
    f"a run of more than {PART_CHARS:,} characters was split into several, linked by `continues`; each begins with "
    "the first prompt as copied context"
)


class _SizedStep(NamedTuple):
    step: Step
    size: int
    """Characters of text."""
    redactions: Counter[str] | None


def _parts(run: Run, clean: Clean, bound: int, most: int) -> Iterator[tuple[Trajectory, bool]]:
    """Yield the parts, each with whether it is the last."""
    first, counts = clean(run.trajectory)
    size = characters(first)
    if not run.rest and size <= bound:
        yield first, True
        return
    outside = Counter(first.redactions)
    for each in counts:
        outside.subtract(each)
    begin = _sized(first.steps, counts)
    size -= sum(item.size for item in begin)
    steps, head = chain(begin, _further_steps(first, run.rest, clean)), deque[_SizedStep]()
    while size <= bound:
        if (item := next(steps, None)) is None:
            yield _part(first, head, outside), True
            return
        head.append(item)
        size += item.size
    frame, opening = _frame(first), _copied(begin)
    del begin
    room, copied = max(bound, min(2 * frame, most)) - frame, sum(item.size for item in opening)
    if copied > room // 2:
        opening, copied = [], 0
    pieces = _pieces(chain(_drain(head), steps), room, copied, most - frame)
    numbers = count(1)
    for piece, is_last in pieces:
        number = next(numbers)
        update: dict[str, Any] = {
            "id": None,
            "extra": {**first.extra, "part": number},
            "continues": first.continues if number == 1 else None,
        }
        if not is_last:
            update |= {"outcome": Outcome(), "group_id": None, "subagents": ()}
        yield _part(first, piece if number == 1 else [*opening, *piece], outside, **update), is_last
        del piece


def _part(run: Trajectory, steps: Collection[_SizedStep], outside: Counter[str], **update: Any) -> Trajectory:
    """Return a run with these steps, and with the redactions in them and outside the steps."""
    redactions = Counter(outside)
    for item in steps:
        redactions.update(item.redactions or ())
    return run.model_copy(
        update={"steps": tuple(item.step for item in steps), "redactions": dict(+redactions), **update}
    )


def _sized(steps: Iterable[Step], counts: Iterable[Counter[str]]) -> list[_SizedStep]:
    return [_SizedStep(step, _step(step), each or None) for step, each in zip_longest(steps, counts)]


def _further_steps(first: Trajectory, rest: Iterable[Trajectory], clean: Clean) -> Iterator[_SizedStep]:
    for piece in rest:
        # With the fields that are clean already, so that only the redactions of the steps count.
        known, counts = clean(first.model_copy(update={"steps": piece.steps, "redactions": {}}))
        yield from _sized(known.steps, counts)


def _drain(steps: deque[_SizedStep]) -> Iterator[_SizedStep]:
    while steps:
        yield steps.popleft()


def _copied(steps: Sequence[_SizedStep]) -> list[_SizedStep]:
    """Return the system prompt and the first user message as copied context."""
    before = list(takewhile(lambda item: item.step.actor is not Actor.AGENT, steps))
    asked = next((place for place, item in enumerate(before) if item.step.actor is Actor.USER), len(before) - 1)
    return [item._replace(step=item.step.model_copy(update={"copied_context": True})) for item in before[: asked + 1]]


def _pieces(steps: Iterable[_SizedStep], room: int, copied: int, most: int) -> Iterator[tuple[list[_SizedStep], bool]]:
    """Group steps into pieces of at most `room` characters; pieces after the first get `copied` characters less.

    Each comes with whether it is the last.

    An exchange that is longer alone, up to `most` characters, is a piece by itself.
    """
    piece: list[_SizedStep] = []
    size, bound = 0, room
    for exchange in _exchanges(steps):
        more = sum(item.size for item in exchange)
        if piece and size + more > bound:
            yield piece, False
            piece, size, bound = [], 0, room - copied
        if more > most - (room - bound):
            longest = max(item.size for item in exchange)
            raise InvalidInput(
                f"expected turns of at most {most:,} characters besides task and tools, got one of {longest:,}; "
                "cut that text in a copy of the log and import the copy",
                code="too_large",
            )
        piece += exchange
        size += more
    yield piece, True


def _exchanges(steps: Iterable[_SizedStep]) -> Iterator[list[_SizedStep]]:
    """Yield each agent turn with the messages before it; messages after the last turn go with that turn."""
    exchange: list[_SizedStep] = []
    following: list[_SizedStep] = []
    for item in steps:
        following.append(item)
        if item.step.actor is Actor.AGENT:
            if exchange:
                yield exchange
            exchange, following = following, []
    yield exchange + following
