"""Store the answers to a judging batch: each is checked by itself, and stored whole or rejected with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from quintain.errors import Conflict, InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.labels.judging import BatchItem, JudgingBatch, JudgingMode, Verdict
from quintain.records.labels.preference import Preference
from quintain.records.score import TAKEN_BACK, Score
from quintain.records.text import require_clean
from quintain.records.trajectory import Outcome, OutcomeStatus, Trajectory
from quintain.records.wording import explain, shown
from quintain.redaction.redact import redact
from quintain.scoring.judges.answer_parsing import read_verdict
from quintain.scoring.judges.crediting import score_of
from quintain.tools.data.trajectories import outcome_known, read_outcome, state_outcome
from quintain.tools.labels.judging.batches import ShownItem, show_item
from quintain.tools.labels.judging.results import (
    AnswerContext,
    AnswerSource,
    RejectedItem,
    Submission,
    SubmissionReport,
)
from quintain.tools.labels.judging.stored_answers import (
    REASON,
    corrected_run,
    corrections_of,
    read_correction,
    source_of,
    store_correction,
    store_preferences,
    withdraw,
    withdraw_preferences,
)
from quintain.tools.services import Services

_OF_MODE: dict[str, tuple[str, ...]] = {
    "score": ("scores", "value", "steps", "outcome", "correction"),
    "steps": ("steps", "scores", "outcome", "correction"),
    "pairwise": ("better",),
    "group": ("ranking",),
}
"""Mode -> what answers an item of it; every item also takes `rationale` and `skip`."""

_CLEAR = 0.25
"""Largest value of a run that counts as bad; 1 less this is the smallest of one that counts as good."""


def store_answers(
    services: Services, batch: JudgingBatch, entries: Sequence[Any], *, by: AnswerSource = "tool"
) -> SubmissionReport:
    """Store the valid answers and report why the others are rejected; they affect each other by the scale of their marks alone."""
    done = SubmissionReport()
    context = AnswerContext(services, batch, by, done)
    items = {item.item_id: item for item in batch.items}
    beyond = next((mark for entry in entries for mark in _marks(entry) if not 0 <= mark <= 1), None)
    for place, entry in enumerate(entries):
        name = entry.get("item_id") if isinstance(entry, Mapping) else None
        try:
            submission = _read(entry, place, items, batch)
            if beyond is not None:
                _require_own_scale(entry, beyond)
            _take(context, submission, items)
        except (InvalidInput, Conflict, NotFound) as error:
            done.rejected.append(RejectedItem(item_id=str(name)[:100] if name is not None else None, reason=str(error)))
    if done.accepted:
        services.store.judging.record_answers(
            batch.id, list(dict.fromkeys(done.accepted)), done.votes, done.corrections_by_item
        )
    return done


def _marks(entry: object) -> Iterator[float]:
    """Yield the numbers of an answer that are marks."""
    if isinstance(entry, Mapping):
        for name in ("scores", "value", "steps"):
            yield from _numbers(entry.get(name))


def _numbers(marks: object) -> Iterator[float]:
    if isinstance(marks, int | float) and not isinstance(marks, bool):
        yield marks
    elif isinstance(marks, Mapping | list):
        inner = [v for k, v in marks.items() if k not in {"step", "quotes"}] if isinstance(marks, Mapping) else marks
        for one in inner:
            yield from _numbers(one)


def _require_own_scale(entry: object, beyond: float) -> None:
    """Refuse an answer of whole marks alone beside one that is out of range: of 1 to 5, a 1 is the worst, and from 0 to 1 the best."""
    marks = list(_marks(entry))
    if marks and all(mark in (0, 1) for mark in marks):
        raise InvalidInput(
            f"the mark {marks[0]:g} may be of another scale than 0 to 1, because this call has {beyond:g} too; submit the marks of "
            "all items from 0 to 1"
        )


def _read(entry: Any, place: int, items: Mapping[str, BatchItem], batch: JudgingBatch) -> Submission:
    where = f"scores[{place}]"
    if not isinstance(entry, Mapping):
        raise InvalidInput(f"{where} is {shown(entry)}; an answer is an object with `item_id`")
    require_clean(dict(entry), where)
    try:
        submission = Submission.model_validate(dict(entry))
    except ValidationError as error:
        raise InvalidInput(explain(error, where, Submission.model_fields)) from None
    if submission.item_id not in items:
        raise InvalidInput(f"{batch.id} has no item {submission.item_id[:60]!r}; its items are {', '.join(items)}")
    fitting = _OF_MODE[batch.mode]
    named = [name for name in _ANSWERS if getattr(submission, name) is not None]
    if empty := [name for name in named if getattr(submission, name) in ({}, [], "")]:
        raise InvalidInput(f"`{empty[0]}` is empty, which answers nothing; give {_ways(batch)}")
    if wrong := [name for name in named if name not in fitting]:
        raise InvalidInput(
            f"{batch.id} is of mode {batch.mode}, which does not take `{wrong[0]}`; it takes {_ways(batch)}"
        )
    if submission.quotes and batch.mode in {"score", "steps"}:
        raise InvalidInput(
            f"expected `quotes` beside each value of {batch.id}, which is of mode {batch.mode}, got one list; write "
            'them as {criterion: {"quotes": [...], "value": 0..1}} or {step: {"quotes": [...], "scores": {...}}}'
        )
    if submission.skip and named:
        raise InvalidInput(f"expected `skip` or `{named[0]}`, got both; `skip` leaves the item unjudged")
    if not submission.skip and not named:
        raise InvalidInput(f"nothing is answered; give {_ways(batch)}")
    return submission


_ANSWERS = ("scores", "value", "steps", "outcome", "better", "ranking", "correction")


def _ways(batch: JudgingBatch) -> str:
    return f"{', '.join(f'`{name}`' for name in _OF_MODE[batch.mode])} or `skip` with the reason"


def _take(context: AnswerContext, submission: Submission, items: Mapping[str, BatchItem]) -> None:
    services, batch, done = context.services, context.batch, context.done
    item = items[submission.item_id]
    if context.by != "form" and item.item_id in batch.forms:
        raise Conflict(
            Hint(
                f"{batch.rater} was asked {item.item_id} in a form, and only their own answer in a form counts; ",
                call("get_judging_batch", limit=5, judge="person", mode=batch.mode),
                " asks them",
            ),
            code="asked_in_form",
        )
    shown_item = show_item(services, batch, item)
    if shown_item is None:
        raise NotFound(run_changed(item.item_id), code="run_changed")
    if submission.rationale:
        submission = submission.model_copy(update={"rationale": services.redacted(submission.rationale)})
    warnings: list[str] = []
    if batch.mode in {"score", "steps"}:
        warnings += _judge_run(context, shown_item, submission)
    elif submission.skip:
        withdraw_preferences(context, item)
    else:
        store_preferences(context, shown_item, submission, warnings)
    if item.item_id in batch.answered or item.item_id in done.accepted:
        done.replaced += 1
    done.accepted.append(item.item_id)
    done.warnings += [f"{item.item_id}: {warning}" for warning in warnings]


def run_changed(item_id: str) -> Hint:
    """Return why an item can no longer be judged."""
    return Hint(
        f"a run of {item_id} was forgotten, or has grown since it was shown: it can no longer be judged here; leave the item "
        "out and take a new batch: ",
        call("get_judging_batch", limit=5),
    )


def _judge_run(context: AnswerContext, shown_item: ShownItem, submission: Submission) -> list[str]:
    """Store an answer about one run; everything is read before anything is stored, so that it is stored whole or not at all."""
    services = context.services
    (run,) = shown_item.runs
    score = _score(context, shown_item, submission)
    better = checked_correction(context, run, submission.correction)
    warnings: list[str] = []
    outcome = _outcome(context, run, submission)
    if outcome is not None:
        _, before = state_outcome(services, run.id or "", outcome, rater=f"{context.batch.rater}{context.relayed}")
        if before.status not in {OutcomeStatus.UNKNOWN, outcome.status}:
            warnings.append(
                f"the outcome {outcome.status.value!r} takes the place of {before.status.value!r}, which {before.by} had stated"
            )
    if better is not None:
        _store_correction(context, shown_item.item.item_id, better)
    elif submission.skip:
        _take_back_correction(context, shown_item.item.item_id)
    if score is not None:
        services.store.scores.add_many([score], services.clock())
        if score.value is None and not submission.skip:
            warnings.append(f"kept without a value, because {score.reason}")
        status = _stated(submission)
        if status is not None and score.value is not None:
            warnings += _at_odds(score.value, status)
    return warnings


def _score(context: AnswerContext, shown_item: ShownItem, submission: Submission) -> Score | None:
    """Return the score in an answer; None for an answer with an outcome or a correction alone."""
    batch = context.batch
    (run,), (view,) = shown_item.runs, shown_item.views
    run_id, scorer = run.id or "", "people" if batch.judge == "person" else "judge"
    fixed = {"trajectory_id": run_id, "scorer": scorer, "rater": batch.rater, "rubric": batch.rubric.name}
    if submission.skip:
        why = submission.skip if isinstance(submission.skip, str) else "no reason was stated"
        reason = f"{TAKEN_BACK}: {' '.join(why.split())[:500]}"
        return Score(**fixed, status="unscored", reason=reason)
    names = [criterion.name for criterion in batch.rubric.criteria]
    scores = submission.scores
    if submission.value is not None:
        if scores is not None:
            raise InvalidInput("`scores` and `value` exclude each other; the value is the weighted mean of the scores")
        if len(names) > 1 or submission.steps is not None:
            return Score(
                **fixed, status="scored", value=submission.value, feedback=context.note(submission.rationale or "")
            )
        scores = {names[0]: submission.value}
    document: dict[str, Any] = {"rationale": context.note(submission.rationale or "")}
    if scores is not None:
        # Null is a criterion without a value, as if it were left out.
        document["scores"] = {name: value for name, value in scores.items() if value is not None}
    if submission.steps is not None:
        document["steps"] = _steps(submission.steps, names)
    if len(document) == 1:
        return None
    mode: JudgingMode = "steps" if "scores" not in document else "score"
    verdict = read_verdict(document, batch.rubric, view.n_steps, mode=mode, steps=view.steps, passages=view.passages)
    if verdict.failed is not None:
        raise InvalidInput(f"{verdict.failed}; correct it and submit the item again")
    if batch.judge == "assistant" and (unquoted := _unquoted(verdict)):
        note = f"[no evidence] Without a quote from the run: {unquoted}."
        verdict = verdict.model_copy(update={"rationale": f"{verdict.rationale} {note}".strip()})
    return score_of(verdict, batch.rubric, run_id, scorer=scorer, rater=batch.rater, view=view)


def _unquoted(verdict: Verdict) -> str:
    """The criteria and steps with a value above 0 and without a quote, as text."""
    names = [name for name, value in verdict.scores.items() if value and not verdict.quotes.get(name)]
    steps = [step for step, values in verdict.steps.items() if any(values.values()) and step not in verdict.step_quotes]
    return ", ".join([*names, *(f"step {step}" for step in steps)][:10])


def _steps(marks: dict[str, Any] | list[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return step -> criterion -> value from an object or a list of {step, scores}; one number will do for one criterion."""
    if isinstance(marks, list):
        pairs: dict[str, Any] = {}
        for entry in marks:
            if not isinstance(entry, Mapping) or "step" not in entry:
                raise InvalidInput(f"expected {{step: {{criterion: value}}}} in `steps`, got {shown(entry)}")
            if str(entry["step"]) in pairs:
                raise InvalidInput(f"`steps` has step {entry['step']} twice; give one entry for each step")
            pairs[str(entry["step"])] = entry.get("scores", entry.get("value"))
        marks = pairs
    if len(names) > 1:
        return marks
    return {step: {names[0]: value} if isinstance(value, int | float) else value for step, value in marks.items()}


def _stated(submission: Submission) -> OutcomeStatus | None:
    if submission.outcome is None:
        return None
    named = submission.outcome.get("status") if isinstance(submission.outcome, dict) else submission.outcome
    valid = [status.value for status in OutcomeStatus if status is not OutcomeStatus.UNKNOWN]
    if named not in valid:
        raise InvalidInput(f"outcome is {shown(named)}; valid: {', '.join(valid)}; leave it out where you do not know")
    return OutcomeStatus(named)


def _outcome(context: AnswerContext, run: Trajectory, submission: Submission) -> Outcome | None:
    """Return the outcome that an answer gives the run; None: no outcome, or the one that the run has already."""
    status = _stated(submission)
    if status is None:
        return None
    if run.takes_outcome_of(f"{context.batch.rater}{context.relayed}"):
        return read_outcome(submission.outcome)
    if run.outcome.status is not status:
        raise Conflict(f"{outcome_known(run)}; submit the item without `outcome`", code="outcome_known")
    return None


def _at_odds(value: float, status: OutcomeStatus) -> list[str]:
    if status is OutcomeStatus.SUCCESS and value <= _CLEAR:
        return [f"value {value:.2f} calls the run bad and the outcome calls it a success; both are kept"]
    if status in {OutcomeStatus.FAILURE, OutcomeStatus.ERROR} and value >= 1 - _CLEAR:
        return [f"value {value:.2f} calls the run good and the outcome calls it a failure; both are kept"]
    return []


def checked_correction(context: AnswerContext, run: Trajectory, correction: dict[str, Any] | None) -> Trajectory | None:
    """Return the corrected run of an answer without storing it; None: no correction."""
    if correction is None:
        return None
    better = corrected_run(run, read_correction(correction), f"{context.batch.rater}{context.relayed}")
    return redact(better, context.services.settings.redact)


def _store_correction(context: AnswerContext, item_id: str, better: Trajectory) -> None:
    """Store the corrected run in place of the item's earlier correction."""
    batch = context.batch
    preference = Preference(
        a=better.identified().id or "",
        b=better.continues or "",
        better="a",
        source=source_of(batch),
        rater=batch.rater,
        step=len(better.agent_steps) - 1,
        reason=f"{REASON}{context.relayed}",
    )
    run_id = store_correction(context.services, better, preference)
    if context.done.corrections_by_item.get(item_id, batch.corrections.get(item_id)) != run_id:
        _take_back_correction(context, item_id)
    context.done.corrections_by_item[item_id] = run_id
    context.done.corrections.append(run_id)


def _take_back_correction(context: AnswerContext, item_id: str) -> None:
    """Withdraw the results of an earlier answer to the item."""
    earlier = context.done.corrections_by_item.get(item_id, context.batch.corrections.get(item_id))
    if earlier is None:
        return
    (original,) = next(item.trajectory_ids for item in context.batch.items if item.item_id == item_id)
    earlier_preferences = corrections_of(context.services, original, context.batch.rater)
    withdraw(context.services, [one for one in earlier_preferences if one.chosen == earlier])
    context.done.corrections_by_item[item_id] = None
    context.done.corrections[:] = [run for run in context.done.corrections if run != earlier]
