"""Scores that were given before, by judges, people and reward models, read as a scorer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quintain.next_step import Hint, ToolCall, call
from quintain.records.score import Component, Score, StepScore
from quintain.records.trajectory import Trajectory
from quintain.records.wording import clip

AGENT = "agent:"
"""Prefix of the name of a scorer that is a trained model."""

MONTECARLO = "montecarlo"
"""The scorer that values steps by playing on from them."""

REPLAY = "replay"
"""The scorer that carries runs out again."""

INFLUENCE = "influence"
"""The scorer that ranks runs by what training on them would do for others."""

TOURNAMENT = "tournament"
"""The scorer that ranks the runs of a task by stored preferences."""

RAW = "raw:"
"""Prefix of the name of a scorer whose values are taken as they are, without a calibration."""

OF_RATERS = frozenset({"judge", "people"})
"""Scorers with several raters and rubrics: `judge:RUBRIC` is one rubric, `people@NAME` one rater."""

_OF_RATER = {"judge": "assistant:", "people": "person:"}
"""Scorer -> what its raters' names begin with where a caller leaves that out."""


def _scoring(scorer: str, **more: Any) -> ToolCall:
    return call("score_trajectories", scorer=scorer, **more, filter=...)


_REMEDY = {
    "judge": Hint("judge it (", call("get_judging_batch", limit=5), ", or ", _scoring("judge", judge=...), ")"),
    "people": Hint("let someone judge it (", call("get_judging_batch", limit=5, judge="person"), ")"),
    MONTECARLO: Hint("value its steps (", _scoring(MONTECARLO, judge=...), ")"),
    INFLUENCE: Hint("compare its gradient with others' (", _scoring(INFLUENCE, judge=..., target=...), ")"),
    TOURNAMENT: Hint("compare it with other runs of its task (", _scoring("judge", judge=..., mode="pairwise"), ")"),
    REPLAY: Hint("repeat it (", _scoring(REPLAY), ")"),
}


class Source(NamedTuple):
    """Which stored scores a name means."""

    scorer: str
    """Under which they are stored."""
    rubric: str | None
    """Judged by this one alone; None: by whichever."""
    raw: bool
    """Without a calibration."""
    rater: str | None = None
    """Judged by this one alone, such as `person:NAME`; None: by whoever."""


def _remedy_by_rubric(source: Source) -> Hint:
    """Return the call that lets a judge or a person score runs by the rubric of a source."""
    by_person = {"judge": "person"} if source.scorer == "people" else {}
    batch = call("get_judging_batch", rubric=source.rubric, filter=..., **by_person)
    return Hint(f"judge it by rubric {source.rubric} (", batch, ")")


def source_of(name: str) -> Source:
    """Read a name: `judge:RUBRIC@RATER` with both, one or none, `agent:NAME@V`, any other scorer's; `raw:` may come before."""
    bare = name.removeprefix(RAW)
    head, _, rater = bare.partition("@")
    scorer, _, rubric = head.partition(":")
    if scorer in OF_RATERS:
        full = rater if ":" in rater or not rater else f"{_OF_RATER[scorer]}{rater}"
        return Source(scorer, rubric or None, bare != name, full or None)
    return Source(bare, None, bare != name)


def is_recorded(name: str) -> bool:
    """Whether the scores of this name are read from the store, not computed."""
    scorer = source_of(name).scorer
    return scorer in _REMEDY or scorer.startswith(AGENT)


class RecordedScorer:
    """The stored scores of a scorer as one value: the mean, over raters, of each rater's newest verdict by one rubric, uncalibrated.

    A failed judgement is not a verdict: the rater's last one that did not fail counts, but none that is older than one by which text in
    the run moved the judge (the store leaves those out). A run that nobody judged is unscored.
    Without a rubric in the name, the one that the run was judged by last counts: rubrics are never averaged. Of a scorer that
    computes its scores, the newest one is the value.
    """

    def __init__(self, name: str, found: Mapping[str, Sequence[Score]]) -> None:
        """Take the stored scores of `source_of` the name by trajectory id, newest first."""
        self.name = name
        self._source = source_of(name)
        self._found = found

    def score(self, trajectory: Trajectory) -> Score:
        """The mean of the newest verdicts."""
        return self.read(trajectory.identified().id or "")

    def newest(self, run_id: str) -> tuple[Score, ...]:
        """Each rater's newest verdict that counts, the newest of them first."""
        found: dict[str, Score] = {}
        for verdict in self._verdicts(self._found.get(run_id, ())):
            if verdict.value is not None:
                found.setdefault(verdict.rater or self.name, verdict)
        return tuple(found.values())

    def value(self, run_id: str) -> float | None:
        """The value alone; None: unscored."""
        return mean_value(self.newest(run_id))

    def read(self, run_id: str) -> Score:
        """The same as `score`, of a run by its id."""
        raters = self.newest(run_id)
        if not raters:
            failed = next((one.reason for one in self._verdicts(self._found.get(run_id, ())) if one.reason), None)
            scorer = self._source.scorer
            remedy = _REMEDY.get(scorer, Hint("score it first: ", _scoring(scorer)))
            if self._source.rubric is not None:
                remedy = _remedy_by_rubric(self._source)
            reason = clip(failed, 400) if failed else Hint("no verdict is stored; ", remedy)
            return Score(trajectory_id=run_id, scorer=self.name, status="unscored", reason=reason)
        values = [raw_value(verdict) for verdict in raters]
        value = mean_value(raters) or 0.0
        feedback = raters[0].feedback
        if len(raters) > 1:
            spread = max(values) - min(values)
            feedback = f"{len(raters)} raters, from {min(values):.2f} to {max(values):.2f} (spread {spread:.2f}). {feedback}".strip()
        return Score(
            trajectory_id=run_id,
            scorer=self.name,
            status="scored",
            value=min(1.0, max(0.0, value)),
            components=_components(self.name, raters, value),
            steps=_steps(raters),
            feedback=feedback,
            rater=raters[0].rater if len(raters) == 1 else None,
            rubric=raters[0].rubric,
        )

    def _verdicts(self, scores: Sequence[Score]) -> Sequence[Score]:
        """Those that count, newest first."""
        if not is_recorded(self.name):
            return scores[:1]
        # A calibrated score without a rater is a summary of an older version; it would count what it sums up once more.
        verdicts = [score for score in scores if score.rater is not None or score.calibration is None]
        if self._source.rater is not None:
            verdicts = [score for score in verdicts if score.rater == self._source.rater]
        last = next((score for score in verdicts if score.value is not None), None)
        if self._source.rubric is None and last is None:
            return verdicts
        by = self._source.rubric or (last and last.rubric)
        return [score for score in verdicts if score.rubric == by]


def mean_value(verdicts: Sequence[Score]) -> float | None:
    """The mean of verdicts before any calibration; None of none."""
    return math.fsum(map(raw_value, verdicts)) / len(verdicts) if verdicts else None


def raw_value(verdict: Score) -> float:
    """The value of a verdict before any calibration."""
    value = verdict.raw if verdict.raw is not None else verdict.value
    assert value is not None
    return value


def _components(name: str, raters: Sequence[Score], value: float) -> tuple[Component, ...]:
    """Each criterion's mean over the raters that answered it."""
    parts: dict[str, list[Component]] = {}
    for verdict in raters:
        for part in verdict.components:
            if part.value is not None:
                parts.setdefault(part.name, []).append(part)
    if not parts:
        return (Component(name=name, weight=1.0, value=value),)
    return tuple(
        Component(
            name=part,
            weight=same_part[0].weight,
            value=math.fsum(one.value or 0.0 for one in same_part) / len(same_part),
            feedback=same_part[0].feedback,
        )
        for part, same_part in parts.items()
    )


def _steps(raters: Sequence[Score]) -> tuple[StepScore, ...]:
    """Each step's mean over the raters that judged it."""
    if len(raters) == 1:
        return raters[0].steps
    values: dict[int, list[float]] = {}
    for verdict in raters:
        for step in verdict.steps:
            if step.value is not None:
                values.setdefault(step.step, []).append(step.value)
    return tuple(
        StepScore(step=step, value=math.fsum(step_values) / len(step_values))
        for step, step_values in sorted(values.items())
    )
