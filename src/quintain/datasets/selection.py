"""Select the runs of a dataset; every run left out is counted with one reason."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic_core import to_json

from quintain.datasets.provenance import allowed_models
from quintain.datasets.splits import task_key
from quintain.importers.outcome_fields import unread_verdicts
from quintain.next_step import Hint, call
from quintain.records.dataset import Curation
from quintain.records.imports import Rejected
from quintain.records.tags import is_open, is_replaced
from quintain.records.trajectory import Actor, OutcomeStatus, Step, Trajectory, text_of

_REMEDIES: dict[str, str | Hint] = {
    "held_out_task": "these are evaluation tasks; collect rollouts of the train split, or set `include_held_out` if leaking "
    "them into training is what you want",
    "other_split": "name another column as columns.split, or leave it out, so that all rows are for training",
    "outcome_failure": "collect successful runs, or list 'failure' among the outcomes to keep",
    "unscored": Hint(
        "score these runs first with ", call("score_trajectories", scorer=..., filter=...), ", or leave `scorer` out"
    ),
    "below_min_score": "lower `min_score`",
    "reward_unknown": Hint(
        "give these runs a reward, or score them with ",
        call("score_trajectories", scorer=..., filter=...),
        " and bound `scorer` with `min_score`",
    ),
    "below_min_reward": "lower `curation.min_reward`",
    "above_max_reward": "raise `curation.max_reward`",
    "too_few_steps": "lower `curation.min_steps`",
    "too_many_steps": "raise `curation.max_steps`",
    "began_earlier": "move `curation.began_since` back",
    "began_later": "move `curation.began_until` on",
    "no_time": "their log states no times; leave out `curation.began_since` and began_until, or filter by when they were stored",
    "below_top_share": "raise `curation.top_share`",
    "not_best_of_task": "raise `curation.best_per_task`",
    "not_best_per_value": "raise the number in `curation.best_per`",
    "near_duplicate": "raise `curation.near_duplicates`, or leave it out",
    "not_sampled": "raise `curation.max_rows`, or change `curation.task_weights`",
    "source_model": "widen `curation.source_models`",
    "no_step_labels": "record rewards for the steps, or take `curation.step_labels='outcome'`, which labels runs of known outcome",
    "no_step_scores": "have the steps of these runs scored first, or name in `scorer` whose step scores there are",
    "step_label_range": "rewards of steps must lie in 0..1 to be labels; scale them, or take `curation.step_labels='outcome'`, "
    "which labels runs of known outcome",
    "other_side_dropped": "the other side of each pair was left out; see its reason",
    "still_open": Hint(
        "these recordings are still open; close each with ",
        call("record_trajectory", live="close", trajectory_id=...),
        ", then export again",
    ),
    "replaced": "these corrections were taken back, or replaced by later ones, which are taken",
    "other_side_not_chosen": "they were compared with runs that are not among the chosen ones, or were left out; loosen the "
    "filter, or name both sides in `trajectory_ids`",
    "forgotten": Hint("these runs were forgotten and are never exported again; see ", call("get_lineage", id=...)),
    "rejected_answer": Hint(
        "their log calls these answers the worse ones, so they are not examples to imitate; ",
        call("record_preferences", source="imported", filter=...),
        " makes pairs of them for kinds dpo and reward. A run that you know to be good: ",
        call("record_trajectory", trajectory_id=..., outcome="success"),
    ),
    "undesirable": "rows call these answers bad; kinds dpo, reward and kto learn from them too",
    "unreadable_row": "each row is listed with its reason; name the fields with `columns`",
    "not_where": "widen `curation.where`",
    "not_a_number": "`curation.where` compares numbers or dates, and these values are neither; write them as 4.5, 4,5 or 2026-11-30",
    "no_label": "the column of the label is empty there",
    "labels_disagree": "one row labels the same answer good and another one bad; correct a row, or leave one of them out",
    "between_marks": "`good` and `bad` leave them out; move a bound, or state one of them alone",
    "duplicate": "the same rows are there once already; record more varied runs",
    "no_trainable_step": "no agent step has text or calls to train on; check `train` of the steps",
    "group_of_one": Hint(
        "collect several attempts of each task: ", call("collect_rollouts", agent=..., environment=..., attempts=8)
    ),
    "no_contrast": "the runs of each task were worth the same; collect more attempts at a higher temperature, or value "
    "them with a finer `scorer`",
    "no_variance": "the runs of each task were worth the same; collect more attempts at a higher temperature, or value "
    "them with a finer `scorer`",
    "below_margin": "lower `margin`",
    "no_margin": "their rows state no scores of both sides (score_chosen, score_rejected): leave `margin` out, or name the columns",
    "equal_sides": "runs that were valued differently hold the same agent text; collect more varied attempts",
    "empty_text": "give files that hold text",
    "unpaired": "another mode compares these runs too",
    "pair_limit": "raise `max_pairs_per_task`",
    "no_fork": "no other run of the task did something else after the same beginning; collect more attempts",
    "no_preference": Hint(
        "nobody compared these runs: ", call("record_preferences", source="person", pairs=...), ", or `pairs='mined'`"
    ),
    "tie": "they are as good as what they were compared with; compare them with others",
    "raters_disagree": "the raters have no majority on these runs; ask one more rater",
    "not_comparable": "these preferences are between runs of several tasks, or of a step before which the runs differ",
}


_MAX_REJECTED = 200
"""Unreadable rows that are kept with their reasons; the rest is counted."""


class ValuedRun(NamedTuple):
    """A run and its value."""

    trajectory: Trajectory
    value: float | None
    """Higher is better; None if unknown."""
    steps: tuple[float | None, ...] = ()
    """Values of its agent steps by the same scorer; empty if it values none."""


@dataclass(frozen=True)
class Criteria:
    """Requirements on the runs of a dataset."""

    outcomes: frozenset[OutcomeStatus] = frozenset(OutcomeStatus)
    """Outcomes to keep."""
    labelled: bool = False
    """Also keep runs of unknown outcome that their log labels good."""
    scorer: str | None = None
    """Scorer whose scores are the values; None for values from outcomes."""
    needs_value: bool = False
    """Drop runs of unknown value."""
    min_value: float | None = None
    """Smallest value to keep; None for no bound."""
    include_held_out: bool = False
    """Keep evaluation tasks. This leaks them into training."""
    imitated: bool = False
    """Drop runs of unknown outcome and value that their log calls the worse answer: the rows are examples to imitate."""
    readable: bool = False
    """Drop runs of unknown outcome whose row states one in words that were not read, which is not a row that states none."""
    keep_repeats: bool = False
    """Keep runs equal to an earlier one: members of a group count as often as they were sampled."""
    curation: Curation = field(default_factory=Curation)
    """Bounds on reward and length, and allowed source models."""

    @property
    def chooses(self) -> bool:
        """Whether values or columns decide which runs are kept."""
        curation = self.curation
        bounds = (self.scorer, curation.min_reward, curation.max_reward, curation.where)
        return curation.ranks or any(bound is not None for bound in bounds)


@dataclass
class ExportCounts:
    """Counts and notes of an export, filled while runs are streamed."""

    seen: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> runs (or texts) in no row."""
    tasks_dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> tasks without a row, for rows that hold several runs."""
    distribution: dict[str, dict[str, int]] = field(default_factory=dict)
    """Task class -> rows before and after sampling."""
    rejected: list[Rejected] = field(default_factory=list)
    """First unreadable rows."""
    redactions: Counter[str] = field(default_factory=Counter)
    """Kind of secret -> number removed from plain text; runs have their own counts."""
    preferences: dict[str, Any] = field(default_factory=dict)
    """Counts of the recorded preferences behind the pairs, for the manifest."""
    notes: list[str] = field(default_factory=list)
    """Further notes on the selection, as sentences."""

    def reject(self, rows: Iterable[Rejected], n: int | None = None) -> None:
        """Count unreadable rows and keep the first ones."""
        rows = list(rows)
        self.rejected += rows[: _MAX_REJECTED - len(self.rejected)]
        self.leave_out("unreadable_row", len(rows) if n is None else n)

    def leave_out(self, reason: str, n: int = 1) -> None:
        """Count what is left out before it comes to the criteria, which count what they see themselves."""
        if n:
            self.seen += n
            self.dropped[reason] += n


def filter_runs(runs: Iterable[ValuedRun], criteria: Criteria, tally: ExportCounts) -> Iterator[ValuedRun]:
    """Stream the runs that meet the criteria, and count the others with their reasons."""
    contents: set[int] = set()
    for run in runs:
        tally.seen += 1
        if reason := _reason_to_drop(run, criteria, contents):
            tally.dropped[reason] += 1
        else:
            yield run


def is_held_out(trajectory: Trajectory) -> bool:
    """Whether a run is on an evaluation task."""
    return trajectory.task.metadata.get("split") == "held_out"


def is_rejected(trajectory: Trajectory) -> bool:
    """Whether a run of unknown outcome is labelled bad by its log, or the worse side of an imported pair."""
    return trajectory.outcome.status is OutcomeStatus.UNKNOWN and trajectory.logged_label is False


def is_unread(trajectory: Trajectory) -> bool:
    """Whether a run of unknown outcome and without a label comes from a row that states an outcome that was not read."""
    row = trajectory.extra.get("row")
    is_unknown = trajectory.outcome.status is OutcomeStatus.UNKNOWN and trajectory.logged_label is None
    return is_unknown and isinstance(row, Mapping) and bool(unread_verdicts(row))


def comparison_key(trajectory: Trajectory) -> str:
    """Return the key that comparable runs share: environment and task id, else prompt and tools."""
    task, key = trajectory.task, task_key(trajectory)
    if task.id or not task.prompt.strip():
        return key
    tools = json.dumps([task.environment, trajectory.tools], sort_keys=True, ensure_ascii=False, default=str)
    return f"{key}:{hashlib.sha256(tools.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def agent_digest(trajectory: Trajectory) -> str:
    """Return a hash of the agent's text: equal if all agent steps have equal messages, thoughts and calls.

    Ids of calls and what the environment answered are not part of it.
    """
    steps = [_written(step) for step in trajectory.agent_steps]
    encoded = json.dumps(steps, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    return hashlib.sha256(encoded).hexdigest()[:32]


def written_chars(trajectory: Trajectory) -> int:
    """Return how many characters the agent wrote: messages, thoughts and calls as JSON."""
    return sum(len(json.dumps(_written(step), ensure_ascii=False)) for step in trajectory.agent_steps)


class Digests(dict[tuple[str, int | None], str]):
    """(Run, step after which it was cut) -> `agent_digest`, computed once."""

    def of(self, run: Trajectory, step: int | None) -> str:
        """Return the digest of a stored run, or of its beginning up to a step."""
        key = (run.id or "", step)
        if key not in self:
            self[key] = agent_digest(run)
        return self[key]


def _written(step: Step) -> list[object]:
    calls = [[one.tool, one.raw_args if one.args is None else one.args] for one in step.actions]
    return [text_of(step.message), step.thought or "", calls]


def drop_remedy(
    reason: str, criteria: Criteria | None = None, kind: str = "sft", *, is_ready_made: bool = False
) -> Hint:
    """Return the remedy for runs left out for this reason.

    Args:
        reason: A key of `ExportCounts.dropped`.
        criteria: How the runs were chosen; None: as for kind `sft`.
        kind: Of the dataset.
        is_ready_made: Whether the rows come from a file, so that no run can be recorded or collected again.
    """
    criteria = criteria or Criteria()
    if reason == "group_of_one" and is_ready_made:
        return Hint(
            "each prompt has a single answer: kinds sft and kto take those; pairs need fields chosen and rejected, or a label and "
            "several answers of each prompt"
        )
    if reason == "outcome_unknown" and is_ready_made and criteria.needs_value:
        return Hint(
            f"kind {kind} goes by what each answer is worth: name its column, as `columns={{'reward': ...}}` for numbers of any scale, "
            "or `columns={'label': ..., 'good': ..., 'bad': ...}`"
        )
    score = call("score_trajectories", scorer="rules", filter=...)
    by_scorer = Hint(
        "score them (",
        score,
        " needs no outcome) and export with `scorer='rules'`; rated runs, with `scorer='people'` or 'judge'",
    )
    if reason == "outcome_unknown":
        stated = Hint("state it: ", call("record_trajectory", trajectory_id=..., outcome="success"))
        if kind == "prm":
            return Hint(
                stated, "; or record rewards for the steps, which `curation.step_labels='recorded'` takes as labels"
            )
        if criteria.needs_value:
            unknown = f"nobody knows how these runs ended, and kind {kind} goes by that. Where you know, "
            return Hint(unknown, stated, "; else ", by_scorer)
        keep = "; or train on them although they may be failures: `outcomes=['unknown']`; or "
        rated = "; runs with rewards on a scale, by `outcomes=['unknown']` and `curation={'min_reward': ...}`"
        bound = f" and a `min_score`{rated}" if kind == "sft" else ""
        return Hint("where you know how a run ended, ", stated, keep, by_scorer, bound)
    if reason == "no_step_labels" and criteria.curation.step_labels == "scores":
        return Hint(_REMEDIES["no_step_scores"])
    if reason in {"outcome_error", "outcome_truncated"} and criteria.needs_value:
        return Hint("a run that broke off has no worth by its outcome; ", by_scorer, ", or record others")
    change = f"change the outcomes to keep (now: {', '.join(sorted(criteria.outcomes))})"
    return Hint(_REMEDIES.get(reason, change))


def _reason_to_drop(run: ValuedRun, criteria: Criteria, contents: set[int]) -> str | None:
    trajectory, value = run.trajectory, run.value
    status = trajectory.outcome.status.value
    if is_open(trajectory):
        return "still_open"
    if is_replaced(trajectory):
        return "replaced"
    if is_held_out(trajectory) and not criteria.include_held_out:
        return "held_out_task"
    is_labelled = criteria.labelled and status == OutcomeStatus.UNKNOWN and trajectory.logged_label is True
    if trajectory.outcome.status not in criteria.outcomes and not is_labelled:
        return f"outcome_{status}"
    if criteria.readable and is_unread(trajectory):
        return "outcome_unknown"
    if value is None and criteria.needs_value:
        return "unscored" if criteria.scorer else "reward_unknown" if status == "success" else f"outcome_{status}"
    if criteria.min_value is not None and (value is None or value < criteria.min_value):
        return "below_min_score"
    if criteria.imitated and criteria.min_value is None and is_rejected(trajectory):
        return "rejected_answer"
    if unmet := _unmet(trajectory, criteria.curation):
        return unmet
    if not any(map(is_trainable, trajectory.steps)):
        return "no_trainable_step"
    if not criteria.keep_repeats:
        # Two equal episodes of one task stay apart in the store, but teach nothing twice.
        content = _content_hash(trajectory)
        if content in contents:
            return "duplicate"
        contents.add(content)
    return None


def _content_hash(run: Trajectory) -> int:
    """Hash the content of `Trajectory.identity` without the episode; valid in this process only, and much faster.

    Of 64 bits: that two of a million different runs are taken for equal has a probability of 3e-8.
    """
    task = run.task
    free: list[Any] = [run.tools]
    parts: list[Any] = [task.id, task.prompt, task.type, task.difficulty, task.environment]
    for step in run.steps:
        parts += (step.actor, step.message, step.thought, step.model, step.copied_context, len(step.actions))
        for action in step.actions:
            parts += (action.tool, action.raw_args, action.call_id)
            free.append(action.args)
        for observation in step.observations:
            parts += (observation.content, observation.call_id, observation.is_error)
    return hash((to_json(free), *parts))


def _unmet(run: Trajectory, curation: Curation) -> str | None:
    """Return the curation bound that a run does not meet."""
    low, high = curation.min_reward, curation.max_reward
    if low is not None or high is not None:
        reward = run.outcome.reward
        if reward is None:
            return "reward_unknown"
        if low is not None and reward < low:
            return "below_min_reward"
        if high is not None and reward > high:
            return "above_max_reward"
    if curation.min_steps is not None or curation.max_steps is not None:
        steps = len(run.agent_steps)
        if curation.min_steps is not None and steps < curation.min_steps:
            return "too_few_steps"
        if curation.max_steps is not None and steps > curation.max_steps:
            return "too_many_steps"
    if curation.began_since is not None or curation.began_until is not None:
        began = next((step.timestamp for step in run.steps if step.timestamp is not None), None)
        if began is None:
            return "no_time"
        if curation.began_since is not None and began < curation.began_since:
            return "began_earlier"
        if curation.began_until is not None and began >= curation.began_until:
            return "began_later"
    return "source_model" if curation.source_models and not allowed_models(run, curation.source_models) else None


def is_trainable(step: Step) -> bool:
    """Whether a step has content to train on."""
    if step.actor is not Actor.AGENT or step.is_masked:
        return False
    return bool(step.actions or (step.thought or "").strip() or text_of(step.message).strip())
