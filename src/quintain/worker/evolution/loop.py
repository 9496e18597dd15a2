"""Job kind `evolve`: explore, select, train, evaluate and decide, round by round, each stage in its own folder.

Rounds are selected on one suite of held-out tasks, and the result is compared with the start on another one, because the
best of several rounds on a suite is biased upward there.

The state follows from the files of the stages: a restarted job reads the finished stages and continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.evaluation.comparison import compare
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset
from quintain.records.evaluation import Evaluation, PairedComparison
from quintain.records.jobs.evolve import LevelsConfig, RoundReport
from quintain.records.jobs.job import EvolveSpec, JobResult, TrajectorySet
from quintain.records.protocols import Reporter
from quintain.records.wording import counted
from quintain.worker.evolution.round_collection import collect_round, online_report
from quintain.worker.evolution.stage_specs import (
    curriculum_levels,
    final_spec,
    planned_steps,
    planned_steps_after,
    selection_spec,
    selection_tasks,
    training_spec,
)
from quintain.worker.rollouts.earlier_episodes import taken_over_report
from quintain.worker.stages import EvolutionStages, EvolutionStopped, StageResult


def run(spec: EvolveSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Run the evolution, and output the best agent with a report of every round."""
    return _Evolution(spec, EvolutionStages(directory, reporter)).run()


class _Candidate(NamedTuple):
    """An agent and its evaluation on the selection suite."""

    agent: Agent
    evaluation: Evaluation
    round: int
    """Round that produced the agent; 0 is the start."""
    final_loss: float | None = None


@dataclass
class _Evolution:
    spec: EvolveSpec
    stages: EvolutionStages
    rounds: list[RoundReport] = field(default_factory=list)
    dataset: Dataset | None = None
    """Dataset of the newest round that selected runs."""

    def run(self) -> JobResult:
        self.stages.reporter.phase("preparing")
        selection_ids = selection_tasks(self.spec)
        Path(self.spec.output_dir).mkdir(parents=True, exist_ok=True)
        try:
            start = self._evaluate_candidate("00-start", self.spec.agent, 0)
            best, stopped = self._evolve(start)
            return self._conclude(start, best, stopped, selection_ids)
        except EvolutionStopped:
            return JobResult(report=self._report("the job was asked to stop"))

    def _evolve(self, start: _Candidate) -> tuple[_Candidate, str]:
        """Run the rounds. Return the best agent and the reason for stopping."""
        config = self.spec.config
        curriculum, patience = Curriculum(curriculum_levels(self.spec), config.curriculum), Patience(config.patience)
        best = last = start
        for number in range(1, config.iterations + 1):
            candidate, report = self._round(number, curriculum.environment, best, last)
            self.rounds.append(report)
            last = candidate or last
            best = candidate if candidate is not None and report.decision in {"better", "ahead"} else best
            spent = patience.spend(report.decision) if curriculum.is_last else False
            if warning := curriculum.advance(report.explored_success):
                self.stages.reporter.warn("level_not_reached", f"round {number}: {warning}")
            if spent:
                rounds = counted(config.patience or 0, "round")
                return best, f"patience: {rounds} in a row without a significant gain"
        return best, f"iterations: all {config.iterations} are finished"

    def _round(
        self, number: int, environment: str, best: _Candidate, last: _Candidate
    ) -> tuple[_Candidate | None, RoundReport]:
        """Run one round. The candidate is None if nothing was selected."""
        start_from = self.spec.config.start_from
        start = {"best": best.agent, "last": last.agent, "base": self.spec.agent}[start_from]
        if not self.spec.config.explores:
            trained, result = self._train(number, start, environment)
            report = online_report(number, environment, self.stages.folder(f"{number:02d}-train"))
            return self._measured(number, trained, result, best, report)
        frozen, report = collect_round(
            self.spec,
            number,
            environment,
            last.agent if start_from == "last" else best.agent,
            self.dataset,
            self.stages,
        )
        if frozen.output is None:
            return None, report
        self.dataset = frozen.output.dataset
        trained, result = self._train(number, start, self.dataset)
        made = {"dataset_id": self.dataset.id, "rows": self.dataset.rows}
        return self._measured(number, trained, result, best, report.model_copy(update=made))

    def _measured(
        self, number: int, trained: Agent, result: JobResult, best: _Candidate, report: RoundReport
    ) -> tuple[_Candidate, RoundReport]:
        """Evaluate the agent of a round, and complete the report with its gain over the best one before."""
        candidate = self._evaluate_candidate(f"{number:02d}-evaluate", trained, number, result.final_loss)
        gain = _gain(best.evaluation, candidate.evaluation)
        facts: dict[str, Any] = {"decision": "not_compared"}
        if gain is not None:
            facts = {"gain": gain.difference, "ci_low": gain.ci_low, "ci_high": gain.ci_high, "decision": "kept"}
            if gain.difference > 0:
                facts["decision"] = "better" if gain.ci_low > 0 else "ahead"
        facts |= {
            "agent": trained.name,
            "evaluation_id": candidate.evaluation.id,
            "success": candidate.evaluation.rate.value,
            "final_loss": result.final_loss,
            **{name: result.report.get(name) for name in ("learning_rate", "learning_rate_rule")},
        }
        return candidate, report.model_copy(update=facts)

    def _train(self, number: int, start: Agent, learns_from: Dataset | str) -> tuple[Agent, JobResult]:
        """Train, and output the agent under the round's name, so that it can be evaluated and compared."""
        folder, origin = self.stages.folder(f"{number:02d}-train"), start.id_or_name
        spec = training_spec(self.spec, number, start, learns_from, folder)
        where = f"in {spec.environment}" if spec.dataset_id is None else f"on {spec.dataset_id}"

        def named(agent: Agent) -> Agent:
            about = f"round {number} of the evolution of {self.spec.agent.id}: {spec.method} of {origin} {where}"
            stage_id = f"{self.stages.directory.name}/{folder.name}"
            return agent.model_copy(update={"parent": origin, "job_id": stage_id, "description": about})

        after = planned_steps_after(self.spec, number, 2)
        finished = self.stages.run(spec, folder, planned_steps(self.spec)[1], after, named=named)
        assert finished.agent is not None
        self.stages.reporter.output("agent", finished.agent)  # repeated on resume: the store identifies it by its stage
        return finished.agent, finished.result

    def _evaluate_candidate(self, name: str, agent: Agent, number: int, final_loss: float | None = None) -> _Candidate:
        """Evaluate an agent on the selection suite, and report a point of the success curve."""
        after, folder = planned_steps_after(self.spec, number, 3), self.stages.folder(name)
        found = self.stages.run(
            selection_spec(self.spec, agent), folder, planned_steps(self.spec)[2], after, "evaluate_"
        )
        evaluation = _evaluation_of(found)
        rate = evaluation.rate
        curve = {"success_rate": rate.value, "success_rate_low": rate.ci_low, "success_rate_high": rate.ci_high}
        reported = folder / "reported.jsonl"  # not copied, by its suffix, to a job that resumes this one
        if not reported.exists():  # a repeated step would discard the figures of all steps after it
            self.stages.reporter.progress(self.stages.steps, self.stages.steps + after, curve)
            reported.touch()
        return _Candidate(agent, evaluation, number, final_loss)

    def _conclude(self, start: _Candidate, best: _Candidate, stopped: str, selection_ids: tuple[str, ...]) -> JobResult:
        """Name the best agent, and compare it with the start on tasks that were not used for selection."""
        spec, episodes = self.spec, self.spec.config.final_tasks * self.spec.config.repeats
        result = self._result(best)
        self.stages.reporter.output("agent", result)
        measuring = (final_spec(spec, agent, selection_ids) for agent in (spec.agent, result))
        left = episodes if best.round else 0
        before = after = self.stages.run(next(measuring), self.stages.folder("final-start"), episodes, left, "final_")
        if best.round:
            after = self.stages.run(next(measuring), self.stages.folder("final-result"), episodes, 0, "final_")
        ids = [_evaluation_of(found).id for found in (before, after)]
        final: dict[str, Any] = {
            "evaluations": ids,
            "before": before.result.success_rate,
            "after": after.result.success_rate,
        }
        if best.round and (gain := _gain(_evaluation_of(before), _evaluation_of(after))) is not None:
            final["gain"] = gain.difference
            final |= gain.model_dump(include={"ci_low", "ci_high", "p", "n_tasks", "significant"})
        if not best.round:
            final["note"] = "no round was better than the start, so the result has its weights"
        chosen = {"start_success": start.evaluation.rate.value, "result_round": best.round, "final": final}
        return JobResult(
            evaluation_id=ids[1],
            dataset_id=result.dataset_id,
            trajectories=TrajectorySet(
                count=self.stages.episodes + self.stages.taken_over, filter={"job_id": self.stages.directory.name}
            ),
            **after.result.model_dump(include={"success_rate", "n", "n_error", "n_unknown"}),
            final_loss=best.final_loss,
            report=self._report(stopped) | chosen,
        )

    def _result(self, best: _Candidate) -> Agent:
        """Return the best agent under the requested name."""
        outcome = (
            f"round {best.round} was the best" if best.round else "no round was better, so the weights are unchanged"
        )
        return best.agent.model_copy(
            update={
                "id": None,
                "version": None,
                "created_at": None,
                "name": self.spec.name,
                "parent": best.agent.parent if best.round else self.spec.agent.id,
                "dataset_id": best.agent.dataset_id if best.round else None,
                "job_id": self.stages.directory.name,
                "description": f"evolution of {self.spec.agent.id} in {self.spec.environment}: {outcome}"[:2000],
            }
        )

    def _report(self, stopped: str) -> dict[str, Any]:
        rounds = [report.model_dump(mode="json", exclude_none=True) for report in self.rounds]
        report: dict[str, Any] = {"rounds": rounds, "stopped": stopped}
        return report | taken_over_report(self.stages.taken_over)


def _evaluation_of(finished: StageResult) -> Evaluation:
    assert finished.evaluation is not None
    return finished.evaluation


def _gain(before: Evaluation, after: Evaluation) -> PairedComparison | None:
    """Return the difference paired by task, or None if no task has verdicts from both."""
    try:
        (pair,) = compare([before, after], ["before", "after"], "", None).comparisons
    except InvalidInput as error:
        if error.code != "nothing_to_pair":
            raise
        return None
    return pair


@dataclass
class Curriculum:
    """Environments ordered by difficulty. The number of rounds per level is bounded."""

    levels: Sequence[str]
    config: LevelsConfig | None
    """None for a single level."""
    level: int = 0
    rounds: int = 0
    """Number of rounds on this level."""

    @property
    def environment(self) -> str:
        """Environment of the next round."""
        return self.levels[self.level]

    @property
    def is_last(self) -> bool:
        """Whether this is the hardest level."""
        return self.level == len(self.levels) - 1

    def advance(self, success: float | None) -> str | None:
        """Record a round, and advance to the next level if it was solved or its bound was reached.

        Args:
            success: Success rate of the round's exploration, or None if unknown.

        Returns:
            A warning if an unsolved level ends.
        """
        self.rounds += 1
        if self.config is None or self.is_last:
            return None
        solved = success is not None and success >= self.config.advance_at
        if not solved and self.rounds < self.config.max_iterations:
            return None
        left = self.environment
        self.level, self.rounds = self.level + 1, 0
        if solved:
            return None
        found = "unknown" if success is None else f"{success:.0%}"
        return (
            f"success in {left} is {found} after {self.config.max_iterations} rounds, below {self.config.advance_at:.0%}; "
            f"continuing with {self.environment}"
        )


@dataclass
class Patience:
    """Counts consecutive rounds without a significant gain."""

    limit: int | None
    """Number of such rounds that ends the evolution, or None."""
    idle: int = 0

    def spend(self, decision: str) -> bool:
        """Record a round's decision. Return whether patience is exhausted."""
        self.idle = 0 if decision == "better" else self.idle + 1
        return self.limit is not None and self.idle >= self.limit
