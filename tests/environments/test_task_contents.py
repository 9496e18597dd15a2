"""Generated tasks are part of an environment's version: contents that change without it make old results incomparable."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from quintain.environments.conversation.scripted_policy import Expert as TalkExpert
from quintain.environments.inventory.scripted_policy import Expert as InventoryExpert
from quintain.environments.math.scripted_policy import Expert as MathExpert
from quintain.environments.registry import task_source
from quintain.environments.sandbox.projects import FAMILY, build_project
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.protocols import Policy
from quintain.records.trajectory import AgentInfo

SETTINGS = EpisodeSettings(seed=0, max_turns=None, concurrency=48, agent=AgentInfo(name="expert"))
N_TASKS = 48


def digest(values: list[Any]) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "expert", "version", "digests"),
    [
        ("inventory", InventoryExpert, "1", ("bc8c7978cfdd01d2", "5558d4e90bba52dd")),
        ("math", MathExpert, "1", ("530d96a6a929e6ae", "7ab1dc3b3bb81d3d")),
        ("conversation", TalkExpert, "1.2", ("2b2c7d30e3b00939", "10928d09c642e7b8")),
        ("engineering", TalkExpert, "1.2", ("178114d74b5f0242", "e14ec7683aadea47")),
        ("advisory", TalkExpert, "1.2", ("94647a64f8bc2e4a", "6e01b3c2fa427692")),
        ("discussion", TalkExpert, "1.2", ("96475fc5b6ae8b13", "31d4a5df4ac2b732")),
    ],
)
def test_a_version_fixes_its_tasks_and_the_runs_of_its_expert(
    name: str, expert: Callable[[], Policy], version: str, digests: tuple[str, str]
) -> None:
    source = task_source(f"quintain/{name}")
    found: list[str] = []
    for split in ("train", "held_out"):
        tasks = source.tasks(split, N_TASKS, seed=0)
        episodes = run_episodes(source, expert(), [EpisodePlan(task) for task in tasks], SETTINGS)
        contents: dict[str | None, list[Any]] = {task.id: [task.model_dump(mode="json")] for task in tasks}
        for episode in episodes:
            run = episode.trajectory
            steps = [step.model_dump(mode="json", include=_STEP_FIELDS) for step in run.steps]
            contents[run.task.id] += [run.outcome.status, list(run.tools), steps]
        found.append(digest([contents[task.id] for task in tasks]))
    assert (source.version, tuple(found)) == (version, digests)


_STEP_FIELDS = {"actor", "message", "actions", "observations", "reward"}


def test_a_version_fixes_the_generated_projects() -> None:
    source = task_source("quintain/sandbox")
    found = [
        digest([build_project(FAMILY.parse(task_id)) for task_id in _project_ids(split)])
        for split in ("train", "held_out")
    ]
    assert (source.version, found) == ("1", ["e60d12982de88a25", "c5063826b57067f3"])


def _project_ids(split: str) -> list[str]:
    return [
        f"sandbox/{split}/{kind}/{difficulty}/{number:05d}"
        for kind in FAMILY.types
        for difficulty in FAMILY.difficulties
        for number in range(3)
    ]
