"""Rollouts for online training: the model under training acts in an environment, several times per task.

Rollouts are a function of (job seed, iteration, task, attempt). Episodes that an earlier attempt of the job wrote are read
from its outputs instead of played again: they carry the log-probs of the policy that played them, so they are equivalent,
and no episode is stored twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.environments.registry import open_source
from quintain.errors import InvalidInput, TrainingFailed, Unavailable
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, run_episodes
from quintain.evaluation.turn_counts import TurnCount
from quintain.jobs.directory import output_records, output_records_at, run_name
from quintain.records.dataset import GroupRow, StepValues
from quintain.records.hyperparameters.methods import GRPOConfig, OnlineConfig, SamplerConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.protocols import Policy, Reporter, TaskSource
from quintain.records.score import Score
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import ROLE, AgentInfo, OutcomeStatus, Task, Trajectory
from quintain.scoring.outcomes.answer_scorers import OutcomeScorer
from quintain.worker.actors.pool import TrainingActors, actors_for
from quintain.worker.job_inputs import scored_runs
from quintain.worker.rollouts.acting_reports import TurnReports
from quintain.worker.rollouts.concurrent_rollouts import RolloutsAhead, are_shared, play_with_partners
from quintain.worker.rollouts.job_rewards import Rewards, step_values
from quintain.worker.rollouts.self_play import SelfPlay, self_play_of

if TYPE_CHECKING:
    from quintain.trainers.acting.policy import LocalPolicy
    from quintain.trainers.models.loading import LoadedModel
    from quintain.trainers.rendering.renderer import Renderer
    from quintain.worker.policies.remote_sampler import RemoteSampler

_EPISODES_AT_ONCE = 64
"""Episodes per batch, in whole groups, so that the shared prompt of a group is encoded once."""

_POOL = 10_000
"""Maximum number of tasks drawn. A longer run repeats them."""


def rollout_collector(
    spec: TrainSpec, directory: Path, reporter: Reporter, rewards: Rewards | None = None
) -> Collector:
    """Return the function by which an online training job collects its rollouts; close it at the end.

    Args:
        spec: Spec of an online method. Tasks come from the environment's split `train`, never from `held_out`.
        directory: The job's folder. Episodes in its `outputs/` are not played again.
        reporter: Receives every new episode as a trajectory, and requests a stop.
        rewards: Values the episodes; None: the environment does.

    Returns:
        A function of live model, renderer and iteration that returns the iteration's groups. Tasks repeat only after all had
        their turn. A group has `group_size` runs minus those without a verdict. The list is empty if the job was asked to
        stop; played episodes are kept for the next attempt.

    Raises:
        InvalidInput: The environment has no training tasks.
    """
    config = spec.config
    assert spec.environment is not None
    assert isinstance(config, OnlineConfig)
    source = open_source(spec.environment)
    tasks = draw_tasks(source, min(config.tasks_per_step * config.rollouts, _POOL), spec.seed)
    return Collector(spec, config, directory, reporter, source, tasks, rewards, self_play_of(spec, source, directory))


def draw_tasks(source: TaskSource, n: int, seed: int) -> list[Task]:
    """Return `n` tasks of the split `train`, or all if there are fewer."""

    def lacks(wanted: int) -> bool:
        try:
            source.tasks("train", wanted, seed)
        except InvalidInput:
            return True
        except Unavailable as error:  # a refusal in a child process is reported as a failure
            if error.code != "environment_failed":
                raise
            return True
        return False

    if lacks(n) and n > 1:
        n = bisect_left(range(2, n), True, key=lacks) + 1  # environments do not report their number of tasks
    tasks = source.tasks("train", n, seed)
    if not tasks:
        raise InvalidInput(
            f"expected tasks in split 'train' of environment {source.id!r}, got none; use another", code="no_tasks"
        )
    return tasks


@dataclass
class Collector:
    """Collects the rollouts of a job, in its own process or on actors; see `rollout_collector`."""

    spec: TrainSpec
    config: OnlineConfig
    directory: Path
    reporter: Reporter
    source: TaskSource
    tasks: Sequence[Task]
    rewards: Rewards | None = None
    self_play: SelfPlay | None = None
    left_out: int = 0
    """Number of episodes without a verdict, over all iterations."""
    sampler: RemoteSampler | None = field(init=False, default=None)
    """The server that samples; None: the live model itself, or nothing was played yet."""
    is_shared: bool = field(init=False)
    """Whether the other processes of the training play too."""
    _written: dict[str, int] = field(init=False)
    """Episode key -> offset in the trajectory file, for episodes of earlier attempts."""
    _scored: set[str] = field(init=False)
    """Ids of runs whose scores were output."""
    _actors: TrainingActors | None = field(init=False, default=None)
    _ahead: RolloutsAhead | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        records = output_records(self.directory, "trajectory")
        self._written = {fields["episode_key"]: offset for offset, fields in records}
        self.is_shared = are_shared(self.spec, self.config, self.source)
        self._scored = {run for run, _ in scored_runs(self.directory)} if self.rewards is not None else set()
        if self.config.sampler is None and (self.config.actors > 1 or self.config.staleness):
            config = self.config
            ahead = config.tasks_per_step * config.group_size * (1 + config.staleness)
            n = actors_for(self.source, config.actors, self._at_once, ahead, self.reporter)
            self._actors = TrainingActors(
                self.spec, self.config, self.directory, self.reporter, n, lambda *which: self._left(*which)
            )

    def __call__(self, loaded: LoadedModel, renderer: Renderer, iteration: int) -> list[GroupRow]:
        """Return the groups of a rollout, played where no earlier attempt has; see `rollout_collector`."""
        wanted = [key for plan in self._plans(iteration) for key in self._keys(plan)]
        runs = self._read_back(wanted)
        if self._actors is not None or self.is_shared or len(runs) < len(wanted):
            self.reporter.phase("acting")
            runs |= self._output(self._episodes(loaded, renderer, iteration), iteration)
            self.reporter.phase("training")
        if any(key not in runs for key in wanted):
            return []
        return self._groups([runs[key] for key in wanted], iteration)

    def figures(self) -> dict[str, float | None]:
        """Return figures of the newest rollout: how far the log-probs of the server are from the trainer's, in nats a token."""
        return {} if self.sampler is None else {"sampler_distance": self.sampler.distance}

    def _plans(self, iteration: int) -> list[EpisodePlan]:
        """Return the iteration's plans. Attempts at a task are adjacent, so that they share a batch."""
        n = min(self.config.tasks_per_step, len(self.tasks))
        tasks = [self.tasks[place % len(self.tasks)] for place in range(iteration * n, (iteration + 1) * n)]
        plans = [
            EpisodePlan(task, attempt, key=f"{self._group_id(task, iteration)}/{attempt}")
            for task in tasks
            for attempt in range(self.config.group_size)
        ]
        if self.self_play is None:
            return plans
        return self.self_play.games(plans, iteration, self._agent(iteration), self.spec.agent.system_prompt)

    def _keys(self, plan: EpisodePlan) -> list[str]:
        """Return the episode keys of the runs of a plan that are learned from."""
        return self.self_play.keys(plan) if self.self_play else [plan.key]

    def _left(self, iteration: int, version: int) -> tuple[list[EpisodePlan], EpisodeSettings]:
        """Return the episodes of a rollout that no earlier attempt has written, and their settings.

        Args:
            iteration: Number of the rollout.
            version: Number of the rollout before which the weights that play are taken.
        """
        plans = self._plans(iteration)
        left = [plan for plan in plans if any(key not in self._written for key in self._keys(plan))]
        return left, EpisodeSettings(
            seed=stable_seed(self.spec.seed, "rollout", iteration),
            max_turns=self.config.max_turns,
            concurrency=self._at_once,
            agent=self._agent(version),
            system_prompt=self.spec.agent.system_prompt,
            job_id=run_name(self.directory),
            tags=("rollout", f"iteration:{iteration}"),
        )

    def _agent(self, version: int) -> AgentInfo:
        return AgentInfo(name=self.spec.name, model=f"{run_name(self.directory)}/{version}")

    def _episodes(self, loaded: LoadedModel, renderer: Renderer, iteration: int) -> Iterable[Episode]:
        """Play the episodes of a rollout that are left; fewer if the job was asked to stop."""
        turns = TurnReports(self.reporter)
        if self.self_play:
            self.self_play.save(loaded, iteration)
        if self._actors is not None:
            return self._actors.play(iteration, loaded, turns)
        if self.config.sampler is not None and self.config.staleness:
            return self._played_ahead(self._open_sampler(self.config.sampler), loaded, renderer, iteration, turns)
        policy = self._policy(loaded, renderer, iteration)
        plans, settings = self._left(iteration, iteration)
        play = partial(run_episodes, self.source, policy, should_stop=self.reporter.should_stop, on_turn=turns)
        return play_with_partners(self.spec, plans, settings, play) if self.is_shared else play(plans, settings)

    def _played_ahead(
        self, sampler: RemoteSampler, loaded: LoadedModel, renderer: Renderer, iteration: int, turns: TurnReports
    ) -> list[Episode]:
        """Hand the weights over to rollouts under way, and return the episodes of one that was played while the model learned."""
        from quintain.trainers.acting.replica import sampling_of
        from quintain.trainers.rendering.renderer import Renderer

        config, sampling = self.config, sampling_of(self.config)
        sampler.update(loaded, renderer, iteration * config.updates_per_rollout)
        if self._ahead is None:
            own = Renderer.of(deepcopy(loaded.tokenizer), self.spec.agent.template)  # a tokenizer belongs to one thread

            def play(rollout: int, on_turn: Callable[[TurnCount], None]) -> list[Episode]:
                plans, settings = self._left(rollout, max(rollout - config.staleness, 0))
                policy = sampler.policy(loaded, own, sampling)
                return list(run_episodes(self.source, policy, plans, settings, sampler.should_stop, on_turn=on_turn))

            self._ahead = RolloutsAhead(play, config.staleness, config.rollouts)
        return self._ahead.take(iteration, turns)

    def _policy(self, loaded: LoadedModel, renderer: Renderer, iteration: int) -> Policy:
        """Return the policy of the live weights, in this process or behind the endpoint that samples."""
        from quintain.trainers.acting.replica import sampling_of, training_policy

        step = iteration * self.config.updates_per_rollout
        if self.config.sampler is not None:
            sampler, sampling = self._open_sampler(self.config.sampler), sampling_of(self.config)
            sampler.update(loaded, renderer, step)
            return sampler.policy(loaded, renderer, sampling)

        def new_policy() -> LocalPolicy:
            return training_policy(self.spec, self.directory, loaded, renderer, step)

        for warning in new_policy().warnings[len(loaded.warnings) :] if iteration == 0 else ():  # others are reported
            self.reporter.warn("acting", warning)
        return self.self_play.router(loaded, iteration, new_policy) if self.self_play else new_policy()

    def _output(self, episodes: Iterable[Episode], iteration: int) -> dict[str, Trajectory]:
        """Output the episodes of a rollout; return their runs by episode key."""
        played = {}
        for episode in episodes:
            role = episode.trajectory.extra.get(ROLE)
            group = self._group_id(episode.trajectory.task, iteration) + (f"/{role}" if role else "")
            group_id = None if episode.policy else group  # an opponent's run is compared with none
            trajectory = episode.trajectory.model_copy(update={"group_id": group_id})
            self.reporter.output("trajectory", trajectory)
            played[trajectory.episode_key] = trajectory
        return played

    def close(self) -> None:
        """End the actors, and release the server that samples."""
        if self._actors is not None:
            self._actors.close()
        if self.sampler is not None:
            self.sampler.stop()
        if self._ahead is not None:
            self._ahead.close()
        if self.sampler is not None:
            self.sampler.close()

    def _open_sampler(self, config: SamplerConfig) -> RemoteSampler:
        from quintain.worker.policies.remote_sampler import RemoteSampler

        if self.sampler is None:
            assert self.spec.sampler_endpoint is not None, "the spec has the profile of its sampler"
            self.sampler = RemoteSampler(
                config,
                self.spec.sampler_endpoint,
                self.directory,
                seed=self.spec.seed,
                should_stop=self.reporter.should_stop,
            )
        return self.sampler

    def _groups(self, runs: Sequence[Trajectory], iteration: int) -> list[GroupRow]:
        """Group runs and rewards by task. Episodes without a verdict are left out and counted, unless its weight is 0."""
        members: dict[str, list[tuple[Trajectory, float]]] = {}
        without = []
        scores = self._scores(runs)
        if scores is None:
            return []
        for run in runs:
            score = scores.get(run.identified().id or "")
            value = reward_of(run) if self.rewards is None else score.value if score else None
            if value is None and self._is_by_model_alone and run.outcome.status is not OutcomeStatus.ERROR:
                value = 0.0
            if value is None:
                without.append((run, score))
            else:
                members.setdefault(run.group_id or "", []).append((run, value))
        self._count_left_out(without, len(runs), iteration)
        return [
            GroupRow(
                key=key,
                trajectories=tuple(t for t, _ in group),
                rewards=tuple(r for _, r in group),
                step_values=self._step_values([t for t, _ in group], scores),
            )
            for key, group in members.items()
        ]

    @property
    def _is_by_model_alone(self) -> bool:
        """Whether only a reward model values runs, so that none needs a verdict."""
        return isinstance(self.config, GRPOConfig) and self.config.reward_model is not None and not self.config.alpha

    def _step_values(self, runs: Sequence[Trajectory], scores: Mapping[str, Score]) -> tuple[StepValues, ...]:
        return step_values(runs, [scores[run.identified().id or ""] for run in runs]) if self.rewards else ()

    def _scores(self, runs: Sequence[Trajectory]) -> dict[str, Score] | None:
        """Value runs by the named reward and output new scores; None if the job was asked to stop."""
        if self.rewards is None:
            return {}
        groups: dict[str, list[Trajectory]] = {}
        for run in runs:
            groups.setdefault(run.group_id or "", []).append(run.identified())
        self.reporter.phase("scoring")
        scores = self.rewards.score(list(groups.values()))
        self.reporter.phase("training")
        if scores is None:
            return None
        for score in scores.values():
            if score.trajectory_id not in self._scored:
                self.reporter.output("score", score)
                self._scored.add(score.trajectory_id)
        self.rewards.remember({key: [scores[run.id or ""] for run in group] for key, group in groups.items()})
        return scores

    def _count_left_out(self, without: Sequence[tuple[Trajectory, Score | None]], n_runs: int, iteration: int) -> None:
        if not without:
            return
        first, score = without[0]
        reason = first.outcome.status.value if score is None else score.reason
        cause = f"first: {first.extra.get('error', reason)}, {first.id}"
        if len(without) == n_runs:
            raise TrainingFailed(
                f"expected verdicts from the {n_runs} episodes of rollout {iteration} in {self.source.id}, got none ({cause})",
                code="no_verdict",
            )
        before, self.left_out = self.left_out, self.left_out + len(without)
        if before == 0 or before.bit_length() < self.left_out.bit_length():  # repeated when the count has doubled
            self.reporter.warn(
                "episodes_left_out",
                f"{self.left_out} episodes without a verdict up to rollout {iteration} were left out of their groups "
                f"({cause})",
            )

    def _read_back(self, keys: Sequence[str]) -> dict[str, Trajectory]:
        """Return the episodes with these keys that an earlier attempt has written."""
        offsets = {key: self._written[key] for key in keys if key in self._written}
        if not offsets:
            return {}
        found = output_records_at(self.directory, "trajectory", offsets.values())
        return {key: Trajectory.model_validate(fields) for key, fields in zip(offsets, found, strict=True)}

    def _group_id(self, task: Task, iteration: int) -> str:
        return f"{run_name(self.directory)}/{iteration}/{task.name}"

    @property
    def _at_once(self) -> int:
        """Episodes per batch: whole groups, within the environment's limit."""
        size, bound = self.config.group_size, getattr(self.source, "at_once", None)
        asked = self.config.episodes_at_once or bound or _EPISODES_AT_ONCE
        whole = max(asked // size, 1) * size
        return min(whole, bound or whole)


def reward_of(run: Trajectory) -> float | None:
    """Return the reward of an episode: the environment's last reward, or else 1 for success and 0 for failure or truncation.

    None without a verdict: the environment failed, or ended the episode without a reward.
    """
    verdict = OutcomeScorer().score(run).value
    return verdict if verdict is None or run.outcome.reward is None else run.outcome.reward
