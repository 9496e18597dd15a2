"""Store the answers of a file as answers given by hand are: scores, preferences, outcomes, and answered batches of each rater."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from quintain.errors import Conflict
from quintain.records.labels.judging import BatchItem, Criterion, JudgingBatch, JudgingMode, Rubric
from quintain.records.labels.preference import Preference
from quintain.records.score import Component, Score, StepScore
from quintain.records.trajectory import Outcome, OutcomeStatus
from quintain.scoring.judges.answer_parsing import mean
from quintain.tools.data.trajectories import outcome_known, state_outcome
from quintain.tools.labels.label_files.answers import Answer, Answers, Rater
from quintain.tools.labels.preferences import Source, stated_pairs, store_pairs
from quintain.tools.services import Services

_BATCH = 1_000
"""Items of a batch."""


@dataclass
class Stored:
    """What was stored, or would be."""

    new: int = 0
    changed: int = 0
    known: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)
    batches: list[JudgingBatch] = field(default_factory=list)

    def count(self, is_known: bool, is_changed: bool, **example: Any) -> None:
        """Count a label; new and changed ones are examples."""
        self.known += is_known
        self.changed += is_changed and not is_known
        self.new += not is_known and not is_changed
        if not is_known and len(self.examples) < _EXAMPLES:
            self.examples.append({name: value for name, value in example.items() if value not in (None, "")})


_EXAMPLES = 20


def store_answers(services: Services, answers: Answers, about: str, *, dry_run: bool) -> Stored:
    """Store what is new or changed; what is stored already stays. With `dry_run` only count it."""
    stored = Stored()
    _store_scores(services, answers, stored, about, dry_run=dry_run)
    _store_pairs(services, answers, stored, about, dry_run=dry_run)
    for run, (line, rater, status) in answers.outcomes.items():
        try:
            _store_outcome(services, stored, run, (line, rater, status), dry_run=dry_run)
        except Conflict as error:
            answers.reject(line, error.message)
    answers.rejected.sort()
    return stored


def _store_scores(services: Services, answers: Answers, stored: Stored, about: str, *, dry_run: bool) -> None:
    ids = list(dict.fromkeys(run for run, _ in answers.of_runs))
    current = services.store.scores.by_scorers(("people", "judge"), ids)
    fresh = defaultdict[Rater, list[Score]](list)
    for (run, rater), answer in answers.of_runs.items():
        score = _score(run, rater, answer)
        by = (score.scorer, score.rater, score.rubric)
        before = next((one for one in current.get(run, ()) if (one.scorer, one.rater, one.rubric) == by), None)
        is_known = before is not None and before.model_copy(update={"created_at": None}) == score
        shown = {"value": score.value, "steps": {one.step: one.value for one in score.steps} or None}
        stored.count(
            is_known,
            before is not None,
            line=answer.line,
            trajectory_id=run,
            rater=rater.name,
            rubric=rater.rubric,
            **shown,
            comment=answer.comment[:200],
        )
        if not is_known:
            fresh[rater].append(score)
    if not dry_run:
        services.store.scores.add_many((score for scores in fresh.values() for score in scores), services.clock())
        for rater, scores in fresh.items():
            criteria = list(dict.fromkeys(name for score in scores for name in _criteria(score)))
            mode: JudgingMode = "steps" if all(score.steps and not score.components for score in scores) else "score"
            _add_batches(services, stored, rater, mode, criteria, [(score.trajectory_id,) for score in scores], about)


def _score(run: str, rater: Rater, answer: Answer) -> Score:
    """Return the score of an answer: the mean of its criteria or, of single steps alone, of the steps."""
    steps = tuple(
        StepScore(step=step, value=mean(list(parts.values())), parts=parts, feedback=comment)
        for step, (parts, comment) in sorted(answer.steps.items())
    )
    values = list(answer.values.values()) or [step.value for step in steps if step.value is not None]
    return Score(
        trajectory_id=run,
        scorer=rater.scorer,
        status="scored",
        value=mean(values),
        components=tuple(Component(name=name, weight=1.0, value=value) for name, value in answer.values.items()),
        steps=steps,
        feedback=answer.comment,
        rater=rater.name,
        rubric=rater.rubric,
    )


def _criteria(score: Score) -> list[str]:
    return [part.name for part in score.components] or [name for step in score.steps for name in step.parts]


def _add_batches(
    services: Services,
    stored: Stored,
    rater: Rater,
    mode: JudgingMode,
    criteria: Sequence[str],
    items: Sequence[tuple[str, ...]],
    about: str,
    votes: Sequence[Any] = (),
) -> None:
    """Store answered batches, by which raters, rubrics and their agreement are known."""
    rubric = Rubric(
        name=rater.rubric,
        description=about,
        criteria=tuple(Criterion(name=name, description=f"As labelled in {about}.") for name in criteria[:20]),
    )
    remaining = iter(enumerate(items, 1))
    while part := list(islice(remaining, _BATCH)):
        batch = JudgingBatch(
            id=f"batch-{uuid.uuid4().hex[:10]}",
            judge="person" if rater.is_person else "assistant",
            rater=rater.name,
            mode=mode,
            rubric=rubric,
            items=tuple(BatchItem(item_id=f"i{n}", trajectory_ids=runs) for n, runs in part),
            answered=tuple(f"i{n}" for n, _ in part),
            votes={f"i{n}": (votes[n - 1],) for n, _ in part if votes},
        )
        stored.batches.append(services.store.judging.add(batch, services.clock()))


def _store_pairs(services: Services, answers: Answers, stored: Stored, about: str, *, dry_run: bool) -> None:
    sources: dict[bool, Source] = {True: "person", False: "assistant"}
    for is_person, source in sources.items():
        pairs = [pair for pair in answers.pairs if pair.rater.is_person is is_person]
        if pairs:
            _store_pairs_of(services, answers, pairs, source, stored, about, dry_run=dry_run)


def _store_pairs_of(
    services: Services,
    answers: Answers,
    pairs: Sequence[Any],
    source: Source,
    stored: Stored,
    about: str,
    *,
    dry_run: bool,
) -> None:
    found = stated_pairs(services, source, [pair.stated for pair in pairs])
    for place, why in found.faults.items():
        answers.reject(pairs[place].line, why)
    kept = [pair for place, pair in enumerate(pairs) if place not in found.faults]
    preferences = [
        one.model_copy(update={"rater": pair.rater.name, "rubric": pair.rater.rubric})
        for one, pair in zip(found.preferences, kept, strict=True)
    ]
    fresh = defaultdict[Rater, list[Preference]](list)
    for pair, one, before in zip(kept, preferences, services.store.preferences.previous(preferences), strict=True):
        is_known = before is not None and (before.chosen, before.reason) == (one.chosen, one.reason)
        stored.count(
            is_known,
            before is not None,
            line=pair.line,
            rater=pair.rater.name,
            a=one.a,
            b=one.b,
            better=one.better,
            step=one.step,
            comment=one.reason[:200],
        )
        if not is_known:
            fresh[pair.rater].append(one)
    if dry_run:
        return
    found.preferences = [one for ones in fresh.values() for one in ones]
    if found.preferences:
        store_pairs(services, source, found)
    for rater, ones in fresh.items():
        items, votes = [(one.a, one.b) for one in ones], [one.better for one in ones]
        _add_batches(services, stored, rater, "pairwise", [rater.rubric], items, about, votes)


def _store_outcome(
    services: Services, stored: Stored, run_id: str, stated: tuple[int, str, OutcomeStatus], *, dry_run: bool
) -> None:
    line, rater, status = stated
    run = services.store.trajectories.get(run_id)
    is_known = run.outcome.status is status
    if not is_known and not run.takes_outcome_of(rater):
        raise Conflict(outcome_known(run), code="outcome_known")
    is_changed = run.outcome.status is not OutcomeStatus.UNKNOWN
    stored.count(is_known, is_changed, line=line, trajectory_id=run_id, rater=rater, outcome=status.value)
    if not is_known and not dry_run:
        state_outcome(services, run_id, Outcome(status=status), rater=rater)
