"""Runs of the scripted expert in the inventory, as a dataset's source."""

from __future__ import annotations

from quintain.environments.inventory import Inventory
from quintain.environments.inventory.scripted_policy import Expert
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.trajectory import AgentInfo
from quintain.settings import Settings
from quintain.tools.services import open_services


def store_expert_runs(settings: Settings, n: int) -> None:
    """Put n runs into the test's home, with the label `expert`."""
    source = Inventory()
    plans = [EpisodePlan(task) for task in source.tasks("train", n, seed=5)]
    acting = EpisodeSettings(seed=5, max_turns=None, concurrency=n, agent=AgentInfo(name="expert"), tags=("expert",))
    runs = [episode.trajectory for episode in run_episodes(source, Expert(), plans, acting)]
    services = open_services(settings)
    services.store.trajectories.add_many(runs, services.clock())
    services.close()
