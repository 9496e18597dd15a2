"""A version fixes the generated tasks and how their expert solves them: other contents make old results incomparable."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from playing import play
from quintain.environments.inventory import Inventory
from quintain.environments.registry import task_source
from quintain.environments.sandbox.projects import FAMILY, build_project
from quintain.environments.scripted_policy import expert_of
from quintain.evaluation.suites import plan_suite
from quintain.scoring.profiles import profile_for
from quintain.scoring.rules.scorer import RulesScorer

_STEP_FIELDS = {"actor", "message", "actions", "observations", "reward"}
TALKS = ("conversation", "engineering", "advisory", "discussion")


def digest(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "version", "most_turns", "digests"),
    [
        ("inventory", "1", 4, ("bc8c7978cfdd01d2", "5558d4e90bba52dd")),
        ("math", "1", 5, ("530d96a6a929e6ae", "7ab1dc3b3bb81d3d")),
        ("tools-1k", "1", 2, ("4c4faa81baea2fb9", "9c4cad3b6b03a697")),
        ("tools-1k?mode=direct", "1-direct10", 1, ("e82815cfc731b810", "127bbcdc952882de")),
        ("conversation", "1.2", 16, ("2b2c7d30e3b00939", "10928d09c642e7b8")),
        ("engineering", "1.2", 16, ("178114d74b5f0242", "e14ec7683aadea47")),
        ("advisory", "1.2", 16, ("94647a64f8bc2e4a", "6e01b3c2fa427692")),
        ("discussion", "1.2", 16, ("96475fc5b6ae8b13", "31d4a5df4ac2b732")),
    ],
)
def test_the_expert_solves_all_tasks_of_a_version(
    name: str, version: str, most_turns: int, digests: tuple[str, str]
) -> None:
    source = task_source(f"quintain/{name}")
    found: list[str] = []
    for split in ("train", "held_out"):
        tasks = source.tasks(split, 60 if name.startswith("tools") else 48, seed=0)
        episodes = play(source, expert_of(source, tasks), tasks, concurrency=48)
        assert {episode.result.status for episode in episodes} == {"success"}
        assert max(episode.result.turns for episode in episodes) <= most_turns
        contents: dict[str | None, list[Any]] = {task.id: [task.model_dump(mode="json")] for task in tasks}
        for place, episode in enumerate(episodes):
            run = episode.trajectory
            steps = [step.model_dump(mode="json", include=_STEP_FIELDS) for step in run.steps]
            contents[run.task.id] += [run.outcome.status, list(run.tools), steps]
            if name in TALKS and place < 24:  # no rule of its domain finds a fault
                assert (profile_for(run).name, RulesScorer().score(run).value) == (name, 1.0)
                metrics = episode.result.metrics
                assert (metrics["asked"], metrics["told"], metrics["state"]) == (1, 1, 1)
        found.append(digest([contents[task.id] for task in tasks]))
    assert (source.version, tuple(found)) == (version, digests)


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


def test_suites_of_the_inventory_are_what_they_always_were() -> None:
    """A hash from before the environment had options: evaluations of then and now can be paired."""
    suite = plan_suite(Inventory(), split="held_out", n_tasks=100, repeats=1, seed=0)
    assert suite.hash == "9d8e8cad035c72111e67b9d5801f894b2c1bc21fbc585e4e9599e32076fcd577"
