"""Self-play in online training: who plays each game of a rollout, and the earlier versions among the opponents.

Everything follows from the job's seed and the iteration, so that a resumed job plays as a whole one does. A rollout has one earlier
version as opponent, drawn from the pool; over the rollouts each has its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from quintain.evaluation.episode_state import EpisodePlan, Player
from quintain.evaluation.games import PolicyRouter, players_of
from quintain.records.hyperparameters.online import OnlineConfig, SelfPlayConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.protocols import Policy, TaskSource
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import AgentInfo

if TYPE_CHECKING:
    from quintain.trainers.models.loading import LoadedModel

EARLIER = "earlier"
"""The policy of an earlier version in the router."""


@dataclass(frozen=True)
class SelfPlay:
    """The games of a training job."""

    config: SelfPlayConfig
    roles: tuple[str, ...]
    rollouts: int
    seed: int
    folder: Path
    """Folder of the versions, below `checkpoints/`, which a resumed job inherits."""

    def opponent_of(self, iteration: int) -> int | None:
        """Return the iteration before which the rollout's earlier opponent was saved; None while there is none."""
        versions = range(0, iteration, self._spacing)
        return Random(stable_seed(self.seed, "opponent", iteration)).choice(versions) if versions else None

    def games(
        self, plans: Sequence[EpisodePlan], iteration: int, agent: AgentInfo, system_prompt: str | None
    ) -> list[EpisodePlan]:
        """Return the plans of a rollout as games.

        In `latest_share` of them the live model plays all roles. In the others it plays one, in turn or the one that is trained.

        Args:
            plans: Planned episodes with keys, the attempts of a task one after the other.
            iteration: Of the training.
            agent: The live model.
            system_prompt: Of its agent.
        """
        version, games = self.opponent_of(iteration), []
        other = AgentInfo(name=agent.name, model=f"{(agent.model or '').rpartition('/')[0]}/{version}")
        for place, plan in enumerate(plans):
            draw = Random(stable_seed(self.seed, "latest", iteration, plan.task.name, plan.attempt)).random()
            own = self.roles[place % len(self.roles)] if self.config.train_role is None else self.config.train_role
            players = []
            for role in self.roles:
                live = Player(role, agent, system_prompt=system_prompt, key=f"{plan.key}/{role}")
                is_live = version is None or draw < self.config.latest_share or role == own
                players.append(live if is_live else replace(live, agent=other, policy=EARLIER))
            games.append(replace(plan, players=tuple(players)))
        return games

    def keys(self, game: EpisodePlan) -> list[str]:
        """Return the episode keys of the runs of a game that are learned from."""
        asked = self.config.train_role
        return [player.key for player in game.players if not player.policy and asked in (None, player.role)]

    def router(self, loaded: LoadedModel, iteration: int, new_policy: Callable[[], Policy]) -> PolicyRouter:
        """Return the policies of a rollout.

        Args:
            loaded: The live model.
            iteration: Of the training.
            new_policy: Returns a policy of the live model.
        """
        from quintain.trainers.acting.replica import EarlierPolicy

        policies = {"": new_policy()}
        if (version := self.opponent_of(iteration)) is not None and self.config.latest_share < 1:
            policies[EARLIER] = EarlierPolicy(new_policy(), loaded.model, self._file(version))
        return PolicyRouter(policies)

    def save(self, loaded: LoadedModel, iteration: int) -> None:
        """Save the live weights before a rollout where a version is due."""
        from quintain.trainers.acting.replica import save_version

        if iteration % self._spacing == 0:
            save_version(loaded.model, self._file(iteration))

    @property
    def _spacing(self) -> int:
        """Rollouts between two versions."""
        return -(-self.rollouts // self.config.pool_size)

    def _file(self, iteration: int) -> Path:
        return self.folder / f"{iteration:06d}.safetensors"


def self_play_of(spec: TrainSpec, source: TaskSource, folder: Path) -> SelfPlay | None:
    """Return the games of a training job; None if it plays none against itself."""
    config = spec.config
    if not isinstance(config, OnlineConfig) or config.self_play is None:
        return None
    versions = folder / "checkpoints" / "versions"
    return SelfPlay(config.self_play, players_of(source), config.rollouts, spec.seed, versions)
