"""Exploration and selection of an evolution round: its runs are played, retried and frozen as a dataset."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from quintain.errors import TrainingFailed
from quintain.jobs.directory import STAGE_RESULT, output_records
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset
from quintain.records.jobs.evolve import RoundReport
from quintain.records.jobs.job import EvolveSpec, JobResult
from quintain.records.trajectory import OutcomeStatus
from quintain.worker.evolution.reflection import retry_with_reflection
from quintain.worker.evolution.round_dataset import RoundDataset, freeze_round, read_episodes
from quintain.worker.evolution.stage_specs import exploration_spec, planned_steps, planned_steps_after
from quintain.worker.stages import EvolutionStages, EvolutionStopped, drop_results_without_runs


def collect_round(
    spec: EvolveSpec, number: int, environment: str, actor: Agent, before: Dataset | None, stages: EvolutionStages
) -> tuple[RoundDataset, RoundReport]:
    """Explore, retry failed tasks, and select the training data.

    Args:
        spec: Spec of the evolution.
        number: Number of the round, from 1.
        environment: Where it explores.
        actor: Who explores.
        before: Dataset of the newest earlier round with one.
        stages: Runs the stages.

    Raises:
        TrainingFailed: No episode has a verdict.
        EvolutionStopped: The job was asked to stop.
    """
    after, reporter = planned_steps_after(spec, number, 1), stages.reporter
    select, explore, reflect = (stages.folder(f"{number:02d}-{name}") for name in ("select", "explore", "reflect"))
    if not (is_chosen := (select / STAGE_RESULT).exists()):
        drop_results_without_runs(explore, reflect)
    rollout_spec = exploration_spec(spec, number, environment, actor)
    explored = stages.run(rollout_spec, explore, planned_steps(spec)[0], after, "explore_").result
    if not explored.n:
        raise TrainingFailed(
            f"expected verdicts from the {_episodes(explored)} episodes of round {number} in {environment}, got none",
            code="no_verdict",
        )
    retried = JobResult(n=0, n_error=0)
    if tries := spec.config.reflect:
        retried = stages.run(
            lambda inner: retry_with_reflection(rollout_spec, tries, read_episodes(explore), reflect, inner),
            reflect,
            0,
            after,
            "reflect_",
        ).result
    played = chain(read_episodes(explore), (one for one in read_episodes(reflect) if one.result.success))
    frozen = freeze_round(spec, number, played, before, select, stages.directory.name, reporter.should_stop)
    if frozen is None:
        raise EvolutionStopped
    if frozen.output is not None:
        reporter.output("dataset", frozen.output)
    elif not is_chosen:
        reasons = ", ".join(f"{reason} {n}" for reason, n in frozen.left_out.items())
        reporter.warn("nothing_selected", f"round {number}: no run was selected, so nothing was trained ({reasons})")
    return frozen, RoundReport(
        round=number,
        environment=environment,
        explored=_episodes(explored),
        explored_success=explored.success_rate,
        retried=_episodes(retried),
        selected=frozen.selected,
        left_out=frozen.left_out,
        reward=frozen.reward,
        decision="nothing_selected",
    )


def online_report(number: int, environment: str, folder: Path) -> RoundReport:
    """Return the report of a round that learned while it played, before it is evaluated.

    Args:
        number: Number of the round, from 1.
        environment: Where it played.
        folder: Folder of its training.
    """
    runs = [fields["outcome"]["status"] for _, fields in output_records(folder, "trajectory")]
    verdicts = [verdict for status in runs if (verdict := OutcomeStatus(status).verdict) is not None]
    return RoundReport(
        round=number,
        environment=environment,
        explored=len(runs),
        explored_success=sum(verdicts) / len(verdicts) if verdicts else None,
        selected=len(verdicts),
        left_out={"no_verdict": len(runs) - len(verdicts)} if len(verdicts) < len(runs) else {},
        decision="not_compared",
    )


def _episodes(played: JobResult) -> int:
    return (played.n or 0) + (played.n_error or 0) + (played.n_unknown or 0)
