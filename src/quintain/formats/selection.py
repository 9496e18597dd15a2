"""Which runs go into a dataset, and why the others do not: every run that is left out has one reason."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from quintain.records.trajectory import Actor, OutcomeStatus, Step, Trajectory, text_of

_REMEDIES = {
    "held_out_task": "these are evaluation tasks; collect rollouts of the train split, or set include_held_out if leaking "
    "them into training is what you want",
    "outcome_unknown": "give these runs an outcome, or score them (score_trajectories) and export with that `scorer`; kind "
    "sft also needs its min_score, or 'unknown' among the outcomes to keep",
    "outcome_failure": "collect successful runs, or list 'failure' among the outcomes to keep",
    "unscored": "score these runs first (score_trajectories), or leave `scorer` out",
    "below_min_score": "lower min_score",
    "no_trainable_step": "no agent step holds text or calls that may be trained on; check `train` of the steps",
    "group_of_one": "collect several attempts of each task: collect_rollouts(attempts=8)",
    "no_contrast": "the runs of each task were worth the same; collect more attempts at a higher temperature, or value "
    "them with a finer `scorer`",
    "no_variance": "the runs of each task were worth the same; collect more attempts at a higher temperature, or value "
    "them with a finer `scorer`",
    "below_margin": "lower `margin`",
    "equal_sides": "runs that were valued differently hold the same agent text; collect more varied attempts",
    "empty_text": "give files that hold text",
}


class Valued(NamedTuple):
    """A run and what it is worth."""

    trajectory: Trajectory
    value: float | None
    """Higher is better; None: not known."""


@dataclass(frozen=True)
class Criteria:
    """What a run must be to stay."""

    outcomes: frozenset[OutcomeStatus] = frozenset(OutcomeStatus)
    """The outcomes that stay."""
    scorer: str | None = None
    """Whose scores the values are; None: they come from the outcomes."""
    needs_value: bool = False
    """Leave out runs of unknown value."""
    min_value: float | None = None
    """Keep values of at least this; None: off."""
    include_held_out: bool = False
    """Keep evaluation tasks too. They leak into training; off for good reason."""
    keep_repeats: bool = False
    """Keep runs that equal an earlier one: members of a group count as often as they were sampled."""


@dataclass
class Tally:
    """What became of the runs so far; filled while they stream by."""

    seen: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> runs (or texts) that are in no row."""
    tasks_dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> tasks whose runs make no row, where rows are made of several runs."""


def selected(runs: Iterable[Valued], criteria: Criteria, tally: Tally) -> Iterator[Valued]:
    """Stream the runs that stay, and count the others with their reasons.

    Args:
        runs: Read once, one at a time.
        criteria: What a run must be to stay.
        tally: Counts every run seen and every run left out.
    """
    contents: set[str] = set()
    for run in runs:
        tally.seen += 1
        if reason := _reason_to_drop(run, criteria, contents):
            tally.dropped[reason] += 1
        else:
            yield run


def is_held_out(trajectory: Trajectory) -> bool:
    """Is this a run on an evaluation task?"""
    return trajectory.task.metadata.get("split") == "held_out"


def agent_digest(trajectory: Trajectory) -> str:
    """A digest of what the agent wrote: equal for two runs in which every agent step says, thinks and calls the same.

    Ids of calls and what the environment answered are not part of it.
    """
    steps = [_written(step) for step in trajectory.agent_steps]
    encoded = json.dumps(steps, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    return hashlib.sha256(encoded).hexdigest()[:32]


def _written(step: Step) -> list[object]:
    calls = [[call.tool, call.raw_args if call.args is None else call.args] for call in step.actions]
    return [text_of(step.message), step.thought or "", calls]


def remedy(reason: str, outcomes: Iterable[OutcomeStatus] = ()) -> str:
    """What to do about runs that were left out for this reason; `outcomes` are those that were kept."""
    return _REMEDIES.get(reason, f"change the outcomes to keep (now: {', '.join(sorted(outcomes))})")


def _reason_to_drop(run: Valued, criteria: Criteria, contents: set[str]) -> str | None:
    trajectory, value = run
    status = trajectory.outcome.status.value
    if is_held_out(trajectory) and not criteria.include_held_out:
        return "held_out_task"
    if trajectory.outcome.status not in criteria.outcomes:
        return f"outcome_{status}"
    if value is None and criteria.needs_value:
        return "unscored" if criteria.scorer else f"outcome_{status}"
    if criteria.min_value is not None and (value is None or value < criteria.min_value):
        return "below_min_score"
    if not any(map(_is_trainable, trajectory.steps)):
        return "no_trainable_step"
    if not criteria.keep_repeats:
        # Two equal episodes of one task stay apart in the store, but teach nothing twice.
        content = trajectory.model_copy(update={"episode_key": "", "session_id": None}).identity
        if content in contents:
            return "duplicate"
        contents.add(content)
    return None


def _is_trainable(step: Step) -> bool:
    if step.actor is not Actor.AGENT or step.train is False or step.copied_context:
        return False
    return bool(step.actions or (step.thought or "").strip() or text_of(step.message).strip())
