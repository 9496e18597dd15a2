"""Rollouts of a training in several processes: each plays whole batches with its own weights, which all have alike.

Batches are those of one process (`settings.concurrency` episodes that are decoded together), so the runs are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.environments.registry import open_source
from quintain.evaluation.episode_state import EpisodePlan, EpisodeSettings
from quintain.evaluation.episodes import Episode, run_episodes
from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import OnlineConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.protocols import Reporter, TaskSource

if TYPE_CHECKING:
    from quintain.trainers.distributed.process_group import ProcessGroup
    from quintain.trainers.models.loading import LoadedModel
    from quintain.trainers.rendering.renderer import Renderer


Play = Callable[[Sequence[EpisodePlan], EpisodeSettings], Iterable[Episode]]


def are_shared(spec: TrainSpec, config: OnlineConfig, source: TaskSource) -> bool:
    """Whether all processes of a training play: each has the whole model, and nothing else plays or bounds the episodes."""
    return (
        spec.config.processes > 1
        and spec.config.sharding == "none"
        and config.actors == 1
        and not config.staleness
        and config.sampler is None
        and config.self_play is None
        and getattr(source, "at_once", None) is None
    )


def play_with_partners(
    spec: TrainSpec, plans: Sequence[EpisodePlan], settings: EpisodeSettings, play: Play
) -> list[Episode]:
    """Return the episodes of all plans, played by the first process, which calls this, and by its partners."""
    from quintain.trainers.distributed.process_group import group_of

    group = group_of(spec.config.processes)
    group.from_first(lambda: (plans, settings))
    return play_shares(group, plans, settings, play)


def play_shares(
    group: ProcessGroup,
    plans: Sequence[EpisodePlan],
    settings: EpisodeSettings,
    play: Play,
) -> list[Episode]:
    """Return the episodes of all plans in their order, played in shares; fewer if the job was asked to stop. Collective.

    Args:
        group: The processes of the training.
        plans: All episodes, the same in every process.
        settings: Their number at once is the size of a batch.
        play: Plays a batch; fewer episodes if the job was asked to stop.
    """
    batches = [plans[start : start + settings.concurrency] for start in range(0, len(plans), settings.concurrency)]
    shares = group.gather([list(play(batch, settings)) for batch in batches[group.rank :: group.size]])
    return [episode for i in range(len(batches)) for episode in shares[i % group.size][i // group.size]]


def playing_partner(
    spec: TrainSpec, directory: Path, reporter: Reporter
) -> Callable[[LoadedModel, Renderer, int], list[GroupRow]]:
    """Return the function by which a process other than the first takes part in rollouts; the first one has their groups."""
    from quintain.trainers.acting.replica import training_policy
    from quintain.trainers.distributed.process_group import group_of

    assert isinstance(spec.config, OnlineConfig)
    assert spec.environment is not None
    source, group, updates = (
        open_source(spec.environment),
        group_of(spec.config.processes),
        spec.config.updates_per_rollout,
    )

    def nothing() -> tuple[Sequence[EpisodePlan], EpisodeSettings]:
        raise AssertionError("only the first process plans rollouts")

    def collect(loaded: LoadedModel, renderer: Renderer, iteration: int) -> list[GroupRow]:
        plans, settings = group.from_first(nothing)
        policy = training_policy(spec, directory, loaded, renderer, iteration * updates)
        play_shares(group, plans, settings, partial(run_episodes, source, policy, should_stop=reporter.should_stop))
        return []

    return collect
