"""Success of a model on held-out tasks of an environment, between the steps of its training."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.environments.registry import open_source
from quintain.errors import QuintainError
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.evaluation.suites import plan_suite
from quintain.evaluation.summary import success_rate
from quintain.jobs.directory import run_name
from quintain.records.jobs.job import TrainSpec
from quintain.records.protocols import Reporter, TaskSource
from quintain.records.trajectory import AgentInfo

if TYPE_CHECKING:
    from quintain.trainers.models.loading import LoadedModel
    from quintain.trainers.rendering.renderer import Renderer

_AT_ONCE = 64


@dataclass(frozen=True)
class HeldOutTasks:
    """The same tasks each time, with the agent's own sampling settings. The runs are not stored: nothing may learn from them."""

    spec: TrainSpec
    reporter: Reporter
    source: TaskSource
    plans: tuple[EpisodePlan, ...]
    settings: EpisodeSettings

    @classmethod
    def of(cls, spec: TrainSpec, directory: Path, reporter: Reporter) -> HeldOutTasks | None:
        """Return the tasks of a training; None where neither it nor its settings name an environment."""
        config = spec.config
        environment = config.evaluate_environment or spec.environment
        if environment is None:
            return None
        source = open_source(environment)
        max_turns = getattr(config, "max_turns", None)  # of the methods that act
        suite = plan_suite(
            source,
            split="held_out",
            n_tasks=config.evaluate_tasks,
            repeats=1,
            seed=spec.seed,
            max_turns=max_turns,
        )
        _warn_of_training_tasks(source, suite.plans, spec, reporter)
        settings = EpisodeSettings(
            seed=spec.seed,
            max_turns=max_turns,
            concurrency=min(_AT_ONCE, getattr(source, "at_once", None) or _AT_ONCE),
            agent=AgentInfo(name=spec.name),
            system_prompt=spec.agent.system_prompt,
            job_id=run_name(directory),
            greedy=spec.agent.sampling.temperature == 0,
        )
        return cls(spec, reporter, source, suite.plans, settings)

    def __call__(self, loaded: LoadedModel, renderer: Renderer) -> dict[str, float | None]:
        """Return the success rate with its 95 % interval, as an evaluation has it; nothing if the job was asked to stop.

        The model's mode and all random states stay unchanged: a run with evaluations ends bit-equal to one without.
        """
        from quintain.trainers.acting.policy import LocalPolicy
        from quintain.trainers.models.loading import eval_mode

        self.reporter.phase("evaluating")
        with eval_mode(loaded.model):
            policy = LocalPolicy(loaded, renderer, self.spec.agent.sampling, seed=self.spec.seed)
            episodes = list(run_episodes(self.source, policy, self.plans, self.settings, self.reporter.should_stop))
        self.reporter.phase("training")
        if len(episodes) < len(self.plans):
            return {}
        rate = success_rate(episode.result for episode in episodes)
        bounds = {"low": rate.ci_low, "high": rate.ci_high}
        return {"held_out_success": rate.value, **{f"held_out_success_{side}": x for side, x in bounds.items()}}


def _warn_of_training_tasks(
    source: TaskSource, plans: Sequence[EpisodePlan], spec: TrainSpec, reporter: Reporter
) -> None:
    """Warn of an environment whose splits share tasks, as one that ignores `split`."""
    with suppress(QuintainError):  # a file may have no training tasks
        train = {task.name for task in source.tasks("train", len(plans), spec.seed)}
        if n := sum(plan.task.name in train for plan in plans):
            reporter.warn(
                "shared_tasks",
                f"{n} of the {len(plans)} held-out tasks of {source.id} are training tasks, so held_out_success does not measure "
                "success on new tasks; let `tasks(split, n, seed)` of the environment return others for each split",
            )
