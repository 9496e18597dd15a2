"""Rollouts of a training that its processes share, or that a thread plays ahead while the model learns.

Each process plays whole batches with its own weights, which all have alike. Batches are those of one process (`settings.concurrency`
episodes that are decoded together), so the runs are the same.

A server that samples can play ahead: rollout i + staleness begins with the weights before rollout i, and goes on with newer ones as
the server gets them. So no token is older than `staleness` rollouts. Which weights sample a token depends on time, hence a repeated
run is not bit-equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.environments.registry import open_source
from quintain.evaluation.episode_state import EpisodePlan, EpisodeSettings
from quintain.evaluation.episodes import Episode, run_episodes
from quintain.evaluation.turn_counts import TurnCount
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


OnTurn = Callable[[TurnCount], None]

_REPORT_S = 0.5


class RolloutsAhead:
    """The rollouts of one training; its methods are called from one thread."""

    def __init__(self, play: Callable[[int, OnTurn], list[Episode]], staleness: int, rollouts: int) -> None:
        """Start no rollout yet.

        Args:
            play: Plays a rollout, in the thread of this object; it returns early once the job is asked to stop.
            staleness: Rollouts that are played ahead of the one that is learned from.
            rollouts: Number of rollouts of the training.
        """
        self._play, self._staleness, self._rollouts = play, staleness, rollouts
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rollouts")
        self._playing = dict[int, Future[list[Episode]]]()
        self._counts = dict[int, TurnCount]()

    def take(self, iteration: int, on_turn: OnTurn) -> list[Episode]:
        """Return the episodes of a rollout; start it and those ahead of it, unless they have begun.

        Args:
            iteration: Number of the rollout; each is asked for once, in order.
            on_turn: Receives counts of turns while the caller waits.
        """
        for ahead in range(iteration, min(iteration + self._staleness, self._rollouts - 1) + 1):
            if ahead not in self._playing:
                self._playing[ahead] = self._thread.submit(self._play, ahead, partial(self._counts.__setitem__, ahead))
        playing = self._playing.pop(iteration)
        while not wait([playing], timeout=_REPORT_S).done:
            if (count := self._counts.get(iteration)) is not None:
                on_turn(count)
        self._counts.pop(iteration, None)
        return playing.result()

    def close(self) -> None:
        """Drop what has not begun, and wait for the rollout under way, which must have been asked to stop."""
        self._thread.shutdown(wait=True, cancel_futures=True)
