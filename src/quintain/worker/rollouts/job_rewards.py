"""Rewards inside a job: one evaluator for a named reward, for rollouts, stored rows and the rounds of an evolution.

Models of a reward value a whole batch first; their verdicts are then read like stored ones, by the same mix as everywhere.
A run without a value is left out of its group and counted, never 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from quintain.datasets.step_labels import score_labels
from quintain.evaluation.summary import mean
from quintain.records.agent import Agent
from quintain.records.dataset import DatasetRow, GroupRow, PairRow, Row, StepValues
from quintain.records.labels.calibration import Calibration
from quintain.records.labels.reward import RewardSpec
from quintain.records.protocols import Scorer
from quintain.records.score import Score
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.sandbox.sandbox import open_sandbox
from quintain.scoring.calibration.calibrated import CalibratedScorer
from quintain.scoring.custom import FunctionScorer, import_function
from quintain.scoring.declared import DeclaredScorer
from quintain.scoring.mix import cap_score
from quintain.scoring.outcomes.whole_run_scores import unscored
from quintain.scoring.registry import scorer as find_scorer
from quintain.worker.job_inputs import note_reason
from quintain.worker.judging.reward_judges import RewardJudge

PREFIX = "reward/"
"""Prefix of the names of metrics of parts."""

_FEWEST_ALIKE = 10
"""Runs from which on a part with one value in all of them is reported."""
_BATCH_GROUPS = 16
"""Groups that are valued together."""

T = TypeVar("T")


def batches_of(groups: Iterable[T]) -> Iterator[list[T]]:
    """Yield groups in batches whose runs are valued together."""
    rest = iter(groups)
    while batch := list(islice(rest, _BATCH_GROUPS)):
        yield batch


class Rewards:
    """The evaluator of a reward in one job."""

    def __init__(
        self, spec: RewardSpec, directory: Path, should_stop: Callable[[], bool] = lambda: False, seed: int = 0
    ) -> None:
        """Set up the scorers; models are loaded when they are first needed.

        Args:
            spec: The reward.
            directory: The job's folder; ledgers of judges go below `reward/`.
            should_stop: Whether the job was asked to stop.
            seed: Seed of the order in which judges see runs.
        """
        self._spec, self._should_stop = spec, should_stop
        self._verdicts: dict[str, dict[str, list[Score]]] = {}
        self._judges: dict[str, list[RewardJudge]] = {}
        self._reasons = Counter[str]()
        self._values: dict[str, list[float]] = defaultdict(list)
        self._figures: dict[str, list[dict[str, float]]] = {}
        for place, part in enumerate(spec.parts):
            folder = directory / "reward" / str(place)
            if part.judges:
                self._judges[part.scorer] = [
                    RewardJudge(judge, folder / str(n) if n else folder, should_stop, seed)
                    for n, judge in enumerate(part.judges)
                ]
            if part.judges or part.agent is not None:
                self._verdicts[part.scorer] = {}
        mix = {part.scorer: part.weight for part in spec.parts}
        sandbox = next((part.sandbox for part in spec.parts if part.sandbox is not None), None)
        self._runs_tests = sandbox is not None
        self._scorer = find_scorer(
            mix if len(mix) > 1 else next(iter(mix)),
            recorded=self._verdicts,
            open_sandbox=None if sandbox is None else partial(open_sandbox, sandbox.backend, sandbox.image),
            combine=spec.combine,
            own=_own_scorers(spec),
            identities={part.scorer: part.identity for part in spec.parts},
            around=partial(_calibrated, {part.scorer: part.calibration for part in spec.parts}),
        )
        self.name = self._scorer.name
        """Name under which values are stored."""
        if spec.cap is not None:
            nothing = Score(trajectory_id="", scorer=self.name, status="unscored", reason="none")
            self.name = cap_score(nothing, spec.cap).scorer

    @property
    def uses_models(self) -> bool:
        """Whether models value runs, which is done for whole batches."""
        return bool(self._verdicts)

    def score(self, groups: Sequence[Sequence[Trajectory]]) -> dict[str, Score] | None:
        """Value runs.

        Args:
            groups: Runs of a task each, all with ids.

        Returns:
            Run id -> score; None if the job was asked to stop before all were valued.
        """
        runs = [run for group in groups for run in group]
        usable = [[run for run in group if not _failed(run)] for group in groups]
        if not self._ask_models([group for group in usable if group]):
            return None
        scores: dict[str, Score] = {}
        for run in runs:
            if self._runs_tests and self._should_stop():
                return None
            score = _of_error(run, self._scorer.name) if _failed(run) else self._scorer.score(run)
            score = score if self._spec.cap is None else cap_score(score, self._spec.cap)
            scores[score.trajectory_id] = score
            self._count(score)
        return scores

    def rows(self, rows: Iterable[Row]) -> list[Row] | None:
        """Return rows of a dataset with this reward; None if the job was asked to stop.

        Groups get new rewards, pairs are ordered by them, single runs get it as their reward. Runs without a value leave their
        group; other rows with such a run, and pairs of equal value, are left out.
        """
        rewarded = list[Row]()
        for batch in batches_of((row, _identified(row)) for row in rows):
            scores = self.score([runs for _, runs in batch])
            if scores is None:
                return None
            for row, runs in batch:
                found = _valued(row, runs, [scores[run.id or ""] for run in runs])
                if isinstance(found, str):
                    self._reasons[found] += 1
                else:
                    rewarded.append(found.row)
                    self._figures[found.key] = [self._parts_of(scores[run.id or ""]) for run in runs]
        return rewarded

    def remember(self, groups: Mapping[str, Sequence[Score]]) -> None:
        """Keep the scores of a rollout's groups for `figures`, in place of earlier ones."""
        self._figures = {key: [self._parts_of(score) for score in scores] for key, scores in groups.items()}

    def figures(self, keys: Sequence[str]) -> dict[str, float | None]:
        """Return the mean of each part over the runs of the examples with these keys, as `reward/NAME`."""
        found: dict[str, list[float]] = defaultdict(list)
        for key in keys:
            for parts in self._figures.get(key, ()):
                for name, value in parts.items():
                    found[name].append(value)
        return {f"{PREFIX}{name}": mean(values) for name, values in found.items()}

    def report(self) -> dict[str, Any]:
        """Return means of value and parts, why runs have none, and what judges cost, for the job's result."""
        values = self._values[self.name]
        report: dict[str, Any] = {
            "reward": self.name,
            "scored": len(values),
            "mean": mean(values),
            "parts": {name: mean(of_part) for name, of_part in self._values.items() if name in self._spec.names},
            "unscored": dict(self._reasons.most_common()),
        }
        if self._judges:
            report["judges"] = {
                name: judges[0].report() if len(judges) == 1 else {judge.rater: judge.report() for judge in judges}
                for name, judges in self._judges.items()
            }
        return report

    def constant_parts(self) -> list[str]:
        """Return a warning for each part that had one value in all runs, and so ranked none of them."""
        return [
            f"part {name!r} of the reward was {values[0]:g} in all {len(values):,} runs and ranked none of them; choose "
            "other bounds or tasks, or leave it out"
            for name in self._spec.names
            if len(values := self._values[name]) >= _FEWEST_ALIKE and len(set(values)) == 1
        ]

    def close(self) -> None:
        """Close connections to judges."""
        for judge in chain.from_iterable(self._judges.values()):
            judge.close()

    def _ask_models(self, groups: Sequence[Sequence[Trajectory]]) -> bool:
        """Fill in the verdicts of judges and reward models; return False if the job was asked to stop."""
        for part in self._spec.parts:
            if part.scorer not in self._verdicts:
                continue
            verdicts = self._verdicts[part.scorer]
            verdicts.clear()
            by_model = [judge.scores(groups) for judge in self._judges.get(part.scorer, ())]
            if part.agent is not None:
                by_model.append(_by_agent(part.agent, groups, self._should_stop))
            for scores in by_model:
                if scores is None:
                    return False
                for run, score in scores.items():
                    verdicts.setdefault(run, []).append(score)
        return True

    def _parts_of(self, score: Score) -> dict[str, float]:
        if len(self._spec.parts) == 1:
            return {} if score.value is None else {self._spec.parts[0].scorer: score.value}
        return {part.name: part.value for part in score.components if part.value is not None}

    def _count(self, score: Score) -> None:
        for name, value in ({} if len(self._spec.parts) == 1 else self._parts_of(score)).items():
            self._values[name].append(value)
        if score.value is not None:
            self._values[self.name].append(score.value)
        else:
            note_reason(self._reasons, score.reason)


def _own_scorers(spec: RewardSpec) -> dict[str, Scorer]:
    """Return the declared scorers and functions of a reward by name."""
    own: dict[str, Scorer] = {}
    for part in spec.parts:
        if part.declared is not None:
            own[part.scorer] = scorer = DeclaredScorer(part.declared)
            scorer.name = part.scorer
        elif part.function is not None:
            own[part.scorer] = FunctionScorer(part.scorer, import_function(part.function, part.folder))
    return own


def _calibrated(calibrations: Mapping[str, Calibration | None], scorer: Scorer) -> Scorer:
    calibration = calibrations.get(scorer.name)
    return scorer if calibration is None else CalibratedScorer(scorer, calibration)


def _by_agent(
    agent: Agent, groups: Sequence[Sequence[Trajectory]], should_stop: Callable[[], bool]
) -> dict[str, Score] | None:
    """Return run id -> score by a trained model; None if the job was asked to stop before all were scored."""
    from quintain.trainers.reward_models import score_runs

    runs = [run for group in groups for run in group]
    scores = {score.trajectory_id: score for score in score_runs(agent, runs, should_stop)}
    return scores if len(scores) == len({run.id for run in runs}) else None


class _Valued(NamedTuple):
    row: Row
    key: str
    """Key of the example that training makes of it."""


def _valued(row: Row, runs: Sequence[Trajectory], scores: Sequence[Score]) -> _Valued | str:
    """Return the row with its reward, or why it is left out."""
    if isinstance(row, GroupRow):
        kept = [place for place, score in enumerate(scores) if score.value is not None]
        if not kept:
            return "no run of the group has a value"
        before = row.step_values or [()] * len(runs)
        steps = step_values([runs[i] for i in kept], [scores[i] for i in kept], [before[i] for i in kept])
        update = {
            "trajectories": tuple(runs[i] for i in kept),
            "rewards": tuple(scores[i].value for i in kept),
            "step_values": steps,
        }
        return _Valued(row.model_copy(update=update), row.key)
    values = [score.value for score in scores]
    if isinstance(row, DatasetRow):
        if values[0] is None:
            return "the run has no value"
        (of_run,) = step_values(runs, scores, [row.step_values]) or ((),)
        single = row.model_copy(update={"trajectory": runs[0], "reward": values[0], "step_values": of_run})
        return _Valued(single, runs[0].id or "")
    assert isinstance(row, PairRow)
    left, right = values
    if left is None or right is None:
        return "a run of the pair has no value"
    if left == right:
        return "both runs of the pair have the same value"
    better, worse = runs if left > right else runs[::-1]
    paired = row.model_copy(update={"chosen": better, "rejected": worse, "margin": abs(left - right)})
    return _Valued(paired, f"{better.id}/{worse.id}")


def step_values(
    runs: Sequence[Trajectory], scores: Sequence[Score], before: Sequence[StepValues] | None = None
) -> tuple[StepValues, ...]:
    """Return the values of each run's steps by its score, else those before; empty where no step of any run has one."""
    known = before or [()] * len(runs)
    found = tuple(
        score_labels(run, [score]).labels if score.steps else earlier
        for run, score, earlier in zip(runs, scores, known, strict=True)
    )
    return found if any(value is not None for values in found for value in values) else ()


def _identified(row: Row) -> list[Trajectory]:
    if isinstance(row, GroupRow):
        return [run.identified() for run in row.trajectories]
    if isinstance(row, PairRow):
        return [row.chosen.identified(), row.rejected.identified()]
    assert isinstance(row, DatasetRow)
    return [row.trajectory.identified()]


def _failed(run: Trajectory) -> bool:
    """Whether the environment failed, which is not a verdict on the agent."""
    return run.outcome.status is OutcomeStatus.ERROR


def _of_error(run: Trajectory, name: str) -> Score:
    return unscored(run, name, f"the environment failed: {str(run.extra.get('error', 'no reason recorded'))[:200]}")
