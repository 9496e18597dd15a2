"""The job kind `evolve`: explore, select, train, measure, decide; round after round, each stage in a folder of its own.

Rounds are chosen by one suite of held-out tasks, and what came of it is compared with the start on another one: the best of
several rounds on a suite is better there than it is elsewhere.

All that is not a file of a stage follows from those files: a job that died reads its stages back and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from quintain.errors import InvalidInput, TrainingFailed
from quintain.evaluation.comparison import compare
from quintain.jobs.directory import STAGE_RESULT, STAGES
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset
from quintain.records.evaluation import Evaluation, PairedComparison
from quintain.records.evolve import RoundReport
from quintain.records.job import EvaluateSpec, EvolveSpec, JobResult, RolloutSpec, TrainSpec, TrajectorySet
from quintain.records.record import counted
from quintain.records.seams import Reporter
from quintain.worker.evolution.dataset import Frozen, freeze_round, runs_of
from quintain.worker.evolution.levels import Ladder, Patience
from quintain.worker.evolution.reflection import try_again
from quintain.worker.evolution.stages import (
    choosing,
    comparing,
    exploring,
    levels_of,
    planned,
    planned_after,
    tasks_to_choose_by,
    training,
)
from quintain.worker.stages import Span, StageReporter, StageResult, carry_out, stage


def run(spec: EvolveSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Let the agent evolve, and hand over the best one with what it was in every round.

    Raises:
        InvalidInput: there are fewer tasks than the suites need.
        TrainingFailed: no episode of a round came to a verdict, or a training could not go on.
    """
    return _Evolution(spec, directory, reporter).run()


class _Stopped(Exception):
    """The job was asked to stop."""


class _Contender(NamedTuple):
    """An agent with what it is worth on the suite that rounds are chosen by."""

    agent: Agent
    evaluation: Evaluation
    round: int
    """That made it; 0: the start."""
    final_loss: float | None = None


@dataclass
class _Evolution:
    spec: EvolveSpec
    directory: Path
    reporter: Reporter
    steps: int = 0
    """Of the stages that are done."""
    episodes: int = 0
    """That this job played."""
    taken_over: int = 0
    """Episodes of the job that this one goes on for, which are stored as that one's."""
    rounds: list[RoundReport] = field(default_factory=list)
    dataset: Dataset | None = None
    """Of the newest round that selected anything."""

    def run(self) -> JobResult:
        self.reporter.phase("preparing")
        seen = tasks_to_choose_by(self.spec)
        Path(self.spec.output_dir).mkdir(parents=True, exist_ok=True)
        try:
            start = self._contender("00-start", self.spec.agent, 0)
            best, stopped = self._evolve(start)
            return self._conclude(start, best, stopped, seen)
        except _Stopped:
            return JobResult(report=self._report("it was asked to stop"))

    def _evolve(self, start: _Contender) -> tuple[_Contender, str]:
        """The rounds; the best agent, and why there was no further round."""
        config = self.spec.config
        ladder, patience = Ladder(levels_of(self.spec), config.curriculum), Patience(config.patience)
        best = last = start
        for number in range(1, config.iterations + 1):
            contender, report = self._round(number, ladder.environment, best, last)
            self.rounds.append(report)
            last = contender or last
            best = contender if contender is not None and report.decision in {"better", "ahead"} else best
            spent = patience.spend(report.decision) if ladder.is_last else False
            if told := ladder.climb(report.explored_success):
                self.reporter.warn("level_not_reached", f"round {number}: {told}")
            if spent:
                rounds = counted(config.patience or 0, "round")
                return best, f"patience: {rounds} in a row without a gain that is surely above 0"
        return best, f"iterations: all {config.iterations} were made"

    def _round(
        self, number: int, environment: str, best: _Contender, last: _Contender
    ) -> tuple[_Contender | None, RoundReport]:
        """One round; no contender where nothing was selected."""
        start_from = self.spec.config.start_from
        frozen, report = self._gather(number, environment, last.agent if start_from == "last" else best.agent)
        if frozen.made is None:
            return None, report
        self.dataset = frozen.made.dataset
        start = {"best": best.agent, "last": last.agent, "base": self.spec.agent}[start_from]
        trained, final_loss = self._train(number, start, self.dataset)
        contender = self._contender(f"{number:02d}-evaluate", trained, number, final_loss)
        gain = _gain(best.evaluation, contender.evaluation)
        facts: dict[str, Any] = {"decision": "not_compared"}
        if gain is not None:
            facts = {"gain": gain.difference, "ci_low": gain.ci_low, "ci_high": gain.ci_high, "decision": "kept"}
            if gain.difference > 0:
                facts["decision"] = "better" if gain.ci_low > 0 else "ahead"
        facts |= {
            "dataset_id": self.dataset.id,
            "rows": self.dataset.rows,
            "agent": trained.name,
            "evaluation_id": contender.evaluation.id,
            "success": contender.evaluation.rate.value,
            "final_loss": final_loss,
        }
        return contender, report.model_copy(update=facts)

    def _gather(self, number: int, environment: str, actor: Agent) -> tuple[Frozen, RoundReport]:
        """Explore, try failed tasks again, and choose what to learn from.

        Raises:
            TrainingFailed: no episode came to a verdict.
        """
        tries, after = self.spec.config.reflect, planned_after(self.spec, number, 1)
        select, explore, reflect = (self._folder(f"{number:02d}-{name}") for name in ("select", "explore", "reflect"))
        if not (is_chosen := (select / STAGE_RESULT).exists()):
            _play_what_is_missing(explore, reflect)
        acting = exploring(self.spec, number, environment, actor)
        explored = self._carry(acting, explore, planned(self.spec)[0], after, "explore_").result
        if not explored.n:
            raise TrainingFailed(
                f"none of the {explored.n_error} episodes of round {number} in {environment} came to a verdict; try the "
                "environment with collect_rollouts first",
                code="no_verdict",
            )
        retried = JobResult(n=0, n_error=0)
        if tries:
            again = partial(self._try_again, acting, explore, reflect)
            span = Span(self.steps, 0, after)
            retried = self._done(stage(again, reflect, self.reporter, span, prefix="reflect_"), reflect).result
        played = chain(runs_of(explore), (one for one in runs_of(reflect) if one.result.success))
        frozen = freeze_round(self.spec, number, played, self.dataset, select, self.directory.name)
        if frozen.made is not None:
            self.reporter.output("dataset", frozen.made)
        elif not is_chosen:
            reasons = ", ".join(f"{reason} {n}" for reason, n in frozen.left_out.items())
            self.reporter.warn(
                "nothing_selected", f"round {number}: no run was selected, so nothing is trained ({reasons})"
            )
        return frozen, RoundReport(
            round=number,
            environment=environment,
            explored=explored.n + (explored.n_error or 0),
            explored_success=explored.success_rate,
            retried=(retried.n or 0) + (retried.n_error or 0),
            selected=frozen.selected,
            left_out=frozen.left_out,
            decision="nothing_selected",
        )

    def _try_again(self, acting: RolloutSpec, explore: Path, reflect: Path, reporter: StageReporter) -> JobResult:
        return try_again(acting, self.spec.config.reflect, runs_of(explore), reflect, reporter)

    def _train(self, number: int, start: Agent, dataset: Dataset) -> tuple[Agent, float | None]:
        """Train, and hand over the agent under the round's name: it is measured, and can be compared."""
        folder, origin = self._folder(f"{number:02d}-train"), start.id or start.name
        spec = training(self.spec, number, start, dataset, folder)

        def named(agent: Agent) -> Agent:
            about = (
                f"round {number} of the evolution of {self.spec.agent.id}: {spec.method} of {origin} on {dataset.id}"
            )
            stage_id = f"{self.directory.name}/{folder.name}"
            return agent.model_copy(update={"parent": origin, "job_id": stage_id, "description": about})

        after = planned_after(self.spec, number, 2)
        finished = self._carry(spec, folder, planned(self.spec)[1], after, named=named)
        assert finished.agent is not None
        self.reporter.output("agent", finished.agent)  # also when it was before: the store knows it by its stage
        return finished.agent, finished.result.final_loss

    def _contender(self, name: str, agent: Agent, number: int, final_loss: float | None = None) -> _Contender:
        """Measure an agent on the suite that rounds are chosen by; a point of the curve of success."""
        after = planned_after(self.spec, number, 3)
        found = self._carry(choosing(self.spec, agent), self._folder(name), planned(self.spec)[2], after, "evaluate_")
        evaluation = _evaluation_of(found)
        rate = evaluation.rate
        curve = {"success_rate": rate.value, "success_rate_low": rate.ci_low, "success_rate_high": rate.ci_high}
        self.reporter.progress(self.steps, self.steps + after, curve)
        return _Contender(agent, evaluation, number, final_loss)

    def _conclude(self, start: _Contender, best: _Contender, stopped: str, seen: tuple[str, ...]) -> JobResult:
        """Name the best agent, and compare it with the start on tasks that no round was chosen by."""
        spec, episodes = self.spec, self.spec.config.final_tasks * self.spec.config.repeats
        result = self._result(best)
        self.reporter.output("agent", result)
        measuring = (comparing(spec, agent, seen) for agent in (spec.agent, result))
        left = episodes if best.round else 0
        before = after = self._carry(next(measuring), self._folder("final-start"), episodes, left, "final_")
        if best.round:
            after = self._carry(next(measuring), self._folder("final-result"), episodes, 0, "final_")
        ids = [_evaluation_of(found).id for found in (before, after)]
        told: dict[str, Any] = {
            "evaluations": ids,
            "before": before.result.success_rate,
            "after": after.result.success_rate,
        }
        if best.round and (gain := _gain(_evaluation_of(before), _evaluation_of(after))) is not None:
            told["gain"] = gain.difference
            told |= gain.model_dump(include={"ci_low", "ci_high", "p", "n_tasks", "significant"})
        if not best.round:
            told["note"] = "no round was above the start: the result has its weights"
        chosen = {"start_success": start.evaluation.rate.value, "result_round": best.round, "final": told}
        return JobResult(
            evaluation_id=ids[1],
            dataset_id=result.dataset_id,
            trajectories=TrajectorySet(count=self.episodes, filter={"job_id": self.directory.name}),
            **after.result.model_dump(include={"success_rate", "n", "n_error"}),
            final_loss=best.final_loss,
            report=self._report(stopped) | chosen,
        )

    def _result(self, best: _Contender) -> Agent:
        """The best agent under the name that was asked for."""
        found = (
            f"round {best.round} was the best" if best.round else "no round was better, so these are its own weights"
        )
        return best.agent.model_copy(
            update={
                "id": None,
                "version": None,
                "created_at": None,
                "name": self.spec.name,
                "parent": best.agent.parent if best.round else self.spec.agent.id,
                "dataset_id": best.agent.dataset_id if best.round else None,
                "job_id": self.directory.name,
                "description": f"evolution of {self.spec.agent.id} in {self.spec.environment}: {found}"[:2000],
            }
        )

    def _report(self, stopped: str) -> dict[str, Any]:
        rounds = [report.model_dump(mode="json", exclude_none=True) for report in self.rounds]
        report: dict[str, Any] = {"rounds": rounds, "stopped": stopped}
        if self.taken_over:
            report["taken_over"] = {
                "episodes": self.taken_over,
                "note": "of stages that the job before this one did: its runs",
            }
        return report

    def _carry(
        self,
        spec: RolloutSpec | TrainSpec | EvaluateSpec,
        folder: Path,
        steps: int,
        after: int,
        prefix: str = "",
        named: Callable[[Agent], Agent] = lambda agent: agent,
    ) -> StageResult:
        span = Span(self.steps, steps, after)
        return self._done(carry_out(spec, folder, self.reporter, span, prefix=prefix, named=named), folder)

    def _done(self, finished: StageResult | None, folder: Path) -> StageResult:
        if finished is None:
            raise _Stopped
        self.steps += finished.steps
        played = finished.result.trajectories.count if finished.result.trajectories else 0
        if _is_own(folder):
            self.episodes += played
        else:
            self.taken_over += played
        return finished

    def _folder(self, name: str) -> Path:
        return self.directory / STAGES / name


def _is_own(folder: Path) -> bool:
    """Was the stage carried out by this job? Of what another one did the runs stay behind."""
    return (folder / "outputs").exists()


def _play_what_is_missing(*folders: Path) -> None:
    """A job that goes on for another one begins with the results of its stages, and without their runs."""
    for folder in folders:
        if not _is_own(folder):
            (folder / STAGE_RESULT).unlink(missing_ok=True)


def _evaluation_of(finished: StageResult) -> Evaluation:
    assert finished.evaluation is not None
    return finished.evaluation


def _gain(before: Evaluation, after: Evaluation) -> PairedComparison | None:
    """The difference paired by task; None where no task has a verdict from both."""
    try:
        (pair,) = compare([before, after], ["before", "after"], "", None).comparisons
    except InvalidInput as error:
        if error.code != "nothing_to_pair":
            raise
        return None
    return pair
