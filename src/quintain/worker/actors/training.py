"""Rollouts of a training on actors, with weights that may lag behind by a fixed number of rollouts.

Rollout i is played with the weights of the training before its rollout max(i - staleness, 0): exactly, whatever the number and speed
of the actors. With staleness 0 the training waits for each rollout, as without actors. With staleness s, s further rollouts are
played while the model learns (Noukhovitch et al. 2024, arXiv 2410.18252, with s = 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.evaluation.episode_plans import EpisodePlan, EpisodeSettings
from quintain.evaluation.episodes import Episode
from quintain.records.hyperparameters.methods import OnlineConfig
from quintain.records.jobs.job import TrainSpec
from quintain.worker.actors.messages import Weights
from quintain.worker.actors.playing import OnTurn
from quintain.worker.actors.pool import ActorPool, SubmittedBatch
from quintain.worker.policies.creation import JobSignals

if TYPE_CHECKING:
    from quintain.trainers.models.loading import LoadedModel


class TrainingActors:
    """Actors of a job that trains online."""

    def __init__(
        self,
        spec: TrainSpec,
        config: OnlineConfig,
        folder: Path,
        signals: JobSignals,
        n: int,
        plan: Callable[[int, int], tuple[Sequence[EpisodePlan], EpisodeSettings]],
    ) -> None:
        """Set up; actors start with the first rollout.

        Args:
            spec: Spec of the job.
            config: Its settings.
            folder: The job's folder. Weights are in `checkpoints/weights`, which a resumed job inherits.
            signals: Receives warnings, and requests a stop.
            n: Number of actors.
            plan: Returns the episodes of a rollout that are not played yet, and their settings, by the number of the rollout and of
                the rollout before which its weights are taken.
        """
        self._pool = ActorPool(spec, folder, signals, n, spec.actor_backend)
        self._plan, self._staleness, self._rollouts = plan, config.staleness, config.rollouts
        self._updates = config.updates_per_rollout
        self._folder = folder / "checkpoints" / "weights"
        self._submitted = dict[int, list[SubmittedBatch]]()
        self._saved = set[int]()
        # A resumed run goes back to the newest checkpoint, and needs the weights that its rollouts were played with.
        since_checkpoint = -(-spec.config.checkpoint_every_steps // self._updates) + 1
        self._kept = self._staleness + since_checkpoint if self._staleness else 0

    def play(self, iteration: int, loaded: LoadedModel, on_turn: OnTurn) -> Iterator[Episode]:
        """Yield the episodes of a rollout that are not played yet, and queue the rollouts that the current weights play.

        Args:
            iteration: Number of the rollout; each is asked for once, in order.
            loaded: The live model.
            on_turn: Receives counts of turns.
        """
        for ahead in range(iteration, min(iteration + self._staleness, self._rollouts - 1) + 1):
            if ahead not in self._submitted:
                self._submitted[ahead] = self._submit(ahead, iteration, loaded)
        for old in self._folder.glob("*.safetensors"):
            if int(old.stem) < iteration - self._kept:
                old.unlink()
        yield from self._pool.results(self._submitted.pop(iteration), on_turn)

    def close(self) -> None:
        """End all actors."""
        self._pool.close()

    def _submit(self, rollout: int, current: int, loaded: LoadedModel) -> list[SubmittedBatch]:
        from quintain.trainers.acting.replica import save_version

        version = max(rollout - self._staleness, 0)
        if version < current and not self._file(version).exists():  # a resumed job may lack it
            version = current
        plans, settings = self._plan(rollout, version)
        if not plans:
            return []
        file = self._file(version)
        if version == current and version not in self._saved:
            file.unlink(missing_ok=True)  # of an earlier attempt
            save_version(loaded.model, file)
            self._saved.add(version)
        return self._pool.submit(plans, settings, Weights(path=str(file), version=version * self._updates), rollout)

    def _file(self, version: int) -> Path:
        return self._folder / f"{version:06d}.safetensors"
