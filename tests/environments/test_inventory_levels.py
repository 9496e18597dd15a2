"""`quintain/inventory` as a family: its options, and that without them nothing has changed."""

from __future__ import annotations

import hashlib
import json

import pytest

from quintain.environments.inventory import Inventory
from quintain.environments.inventory.environment import TOOLS
from quintain.environments.registry import task_source
from quintain.errors import InvalidInput
from quintain.evaluation.suites import plan_suite


def test_without_options_the_tasks_the_tools_and_the_suites_are_what_they_always_were() -> None:
    """Hashes taken before there were options: evaluations of then and now can be paired."""
    seen = hashlib.sha256()
    for split in ("train", "held_out"):
        for seed in (0, 1, 7):
            for task in Inventory().tasks(split, 100, seed):
                seen.update(task.model_dump_json().encode())
    seen.update(json.dumps(TOOLS).encode())
    assert seen.hexdigest() == "8e1fdb0c0873f74d69fe584ea23a83d2bb5156a8feed1dba2bdbfc069e527fc5"
    suite = plan_suite(Inventory(), split="held_out", n_tasks=100, repeats=1, seed=0)
    assert suite.hash == "9d8e8cad035c72111e67b9d5801f894b2c1bc21fbc585e4e9599e32076fcd577"


def test_all_written_out_is_the_default() -> None:
    written_out = task_source("quintain/inventory?difficulty=all&types=lookup,compare,extreme,total")
    assert written_out.tasks("train", 48, 3) == Inventory().tasks("train", 48, 3)


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
def test_a_level_keeps_to_itself(difficulty: str) -> None:
    tasks = task_source(f"quintain/inventory?difficulty={difficulty}").tasks("train", 40, 0)
    assert {task.difficulty for task in tasks} == {difficulty}
    assert {task.type for task in tasks} == {"lookup", "compare", "extreme", "total"}


def test_types_come_in_turn_in_their_own_order() -> None:
    tasks = task_source("quintain/inventory?types=total, lookup").tasks("held_out", 12, 0)
    assert [task.type for task in tasks] == ["lookup", "total"] * 6
    assert [task.difficulty for task in tasks] == ["easy", "easy", "medium", "medium", "hard", "hard"] * 2


def test_a_level_has_its_share_of_the_tasks_and_no_more() -> None:
    with pytest.raises(InvalidInput, match="from 0 to 100,000"):
        task_source("quintain/inventory?difficulty=hard&types=total").tasks("train", 100_001, 0)


def test_unknown_levels_and_types_are_refused() -> None:
    with pytest.raises(InvalidInput, match="'easy', 'medium', 'hard' or 'all'"):
        task_source("quintain/inventory?difficulty=extreme")
    with pytest.raises(InvalidInput, match=r"'totla' \(did you mean 'total'\?\)"):
        task_source("quintain/inventory?types=lookup,totla")
