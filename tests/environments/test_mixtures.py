"""Weighted environments as text: one text for equal mixtures, and clear words for what is none."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quintain.environments.mixture import Mixture
from quintain.environments.references import MAX_PARTS, parse_reference, parts_of, write_mixture
from quintain.environments.registry import open_source, task_source
from quintain.errors import InvalidInput, NotFound, Refused
from quintain.records.jobs.job import EvaluateSpec, RolloutSpec, TrainSpec
from quintain.records.jobs.recipe import EvaluateStage
from quintain.records.protocols import Environment
from quintain.records.trajectory import Task
from quintain.tools.evaluation.environment_references import plain_reference, usable_reference
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.services import Services
from quintain.tools.training.config_files import start_config
from quintain.tools.training.start import start_training

BOTH = {"quintain/math?difficulty=easy": 0.5, "quintain/inventory": 1}
TEXT = "mix(quintain/inventory=2,quintain/math?difficulty=easy=1)"


TRUSTED = False  # the services are a client's


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        (BOTH, TEXT),
        ({"a": 1 / 3, "b": 2 / 3}, "mix(a=1,b=2)"),
        ({"b": 30, "a": 20}, "mix(a=2,b=3)"),
        ({"a?y=2&x=1": 1, "a?types=one,two": 1}, "mix(a?types=one%2Ctwo=1,a?x=1&y=2=1)"),
        ({"a?file=/tmp/(1)=2.jsonl": 1, "b": 1}, "mix(a?file=/tmp/%281%29%3D2.jsonl=1,b=1)"),
        ({"a": 7}, "a"),
    ],
)
def test_equal_mixtures_have_one_text_which_reads_back(weights: dict[str, float], text: str) -> None:
    assert write_mixture(weights) == text
    parts = parts_of(text)
    assert parts is None or write_mixture(parts) == text


def test_whatever_the_weights_are_the_text_of_a_mixture_stays_itself() -> None:
    rng = Random(0)
    for _ in range(200):
        text = write_mixture({name: 10 ** rng.uniform(-6, 9) for name in "abcd"})
        assert write_mixture(parts_of(text) or {}) == text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("mix()", "got 0"),
        ({}, "got 0"),
        ({str(n): 1.0 for n in range(MAX_PARTS + 1)}, "got 51"),
        ("mix(a)", "as the weight of '', got 'a'"),
        ("mix(a=0)", "from 1e-06 to 1e"),
        ("mix(a=nan)", "from 1e-06 to 1e"),
        ({"a": True}, "got True"),
        ({"a": float("inf")}, "got inf"),
        ({"a": 10**400}, "from 1e-06 to 1e"),
        ("mix(a=1,a=2)", "twice; add up its weights"),
        ({"a?x=1&y=2": 1, "a?y=2&x=1": 1}, "twice"),
        ("mix(a?x=1,b=2)", "cannot read the options of 'a?x'"),
        ({"mix(a=1,b=1)": 1, "c": 1}, "got the mixture 'mix(a=1,b=1)'; name its parts"),
        ({1: 2}, "as a part of a mixture, got 1"),
    ],
)
def test_an_invalid_mixture_is_refused(wrong: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(words)):
        parts_of(wrong)


def test_parts_that_overlap_give_each_task_once() -> None:
    """Half of the tasks are hard ones, and of all tasks every third: some are drawn by both."""
    source = task_source({"quintain/inventory": 1, "quintain/inventory?difficulty=hard": 1})
    tasks = source.tasks("train", 100, 0)
    assert len({task.id for task in tasks}) == len(tasks) == 100
    assert [task.environment for task in tasks].count("quintain/inventory") == 50
    assert open_source({"quintain/inventory": "3 "}).id == "quintain/inventory", "a mixture of one is that environment"


class Asked:
    """Gives tasks by number, the same ids in every source."""

    id, version = "test/asked", "1"

    def __init__(self, prompt: str, at_once: int) -> None:
        self.prompt, self.at_once = prompt, at_once

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        return [Task(id=str(i), prompt=self.prompt) for i in range(min(n, 3))]

    def make(self) -> Environment:
        raise NotImplementedError


def test_different_tasks_with_one_id_are_refused_and_equal_ones_drawn_once() -> None:
    sources = {"a": Asked("one", 8), "b": Asked("two", 4)}
    with pytest.raises(InvalidInput, match="got '0' for different tasks of a and b"):
        Mixture("mix", sources, {"a": 1, "b": 1}).tasks("train", 2, 0)
    same = Mixture("mix", {**sources, "b": Asked("one", 4)}, {"a": 1, "b": 1})
    assert [(task.environment, task.id) for task in same.tasks("train", 4, 0)] == [("a", "0"), ("b", "2"), ("a", "1")]
    assert getattr(same, "at_once", None) == 4


def test_mixtures_are_taken_as_mappings_as_text_and_as_on_a_command_line(waiting: Services) -> None:
    """One environment stays as it is written."""
    for written in (
        BOTH,
        "mix(quintain/math?difficulty=easy=1,quintain/inventory=2)",
        "quintain/inventory=2,quintain/math?difficulty=easy=1",
        " quintain/math?difficulty=easy = 0.5 , quintain/inventory = 1",
        " mix( quintain/inventory = 2 , quintain/math?difficulty=easy = 1 ) ",
    ):
        assert usable_reference(waiting, written) == TEXT, written
    for one in ("quintain/inventory?types=lookup,compare", "quintain/tools-1k?mode=direct&k=8"):
        assert usable_reference(waiting, one) == plain_reference(waiting, one) == one
        assert usable_reference(waiting, f"{one.replace(',', '%2C')}=3,quintain/math=1").startswith("mix(")


def test_a_comma_within_options_of_a_mixture_is_refused_with_the_escape(waiting: Services) -> None:
    written = "quintain/inventory?types=lookup,compare=2,quintain/math=1"
    with pytest.raises(InvalidInput, match=r"'compare=2'.*write a comma within options as %2C"):
        usable_reference(waiting, written)
    both = usable_reference(waiting, written.replace("lookup,compare", "lookup%2Ccompare"))
    assert parts_of(both) == {"quintain/inventory?types=lookup,compare": 2, "quintain/math": 1}
    with pytest.raises(InvalidInput) as raised:
        usable_reference(waiting, "quintain/inventory?types=lookup,nothing")
    assert "%2C" not in raised.value.message


def test_files_of_the_parts_are_checked_and_absolute(waiting: Services, tmp_path: Path) -> None:
    inside, outside = waiting.settings.inbox_dir / "my tasks.jsonl", tmp_path / "mine.jsonl"
    inside.parent.mkdir(parents=True, exist_ok=True)
    for path in (inside, outside):
        path.write_text('{"id": "t1", "prompt": "2 + 2?", "answer": "4"}\n')
    reference = usable_reference(waiting, {"quintain/tasks?file=my tasks.jsonl": 1, "quintain/inventory": 1})
    parts = [parse_reference(part) for part in parts_of(reference) or ()]
    assert parts == [("quintain/inventory", {}), ("quintain/tasks", {"file": str(inside)})]
    assert task_source(reference).tasks("train", 2, 0)[1].prompt == "2 + 2?"
    with pytest.raises(Refused, match="outside the allowed roots"):
        usable_reference(waiting, f"quintain/inventory=1,quintain/tasks?file={outside}=1")


def test_every_tool_that_plays_takes_a_mixture(waiting: Services) -> None:
    def spec(started: Any) -> Any:
        return waiting.store.jobs.get(started.job_id).spec

    stages = [{"method": "evaluate", "environment": BOTH, "n_tasks": 3}]
    specs = [
        spec(collect_rollouts(waiting, "starter", BOTH)),
        spec(evaluate_agent(waiting, "starter", BOTH)),
        spec(start_training(waiting, "grpo", "starter", environment=BOTH)),
        *spec(start_config(waiting, {"stages": stages})).stages,
    ]
    assert [type(one) for one in specs] == [RolloutSpec, EvaluateSpec, TrainSpec, EvaluateStage]
    assert {one.environment for one in specs} == {TEXT}
    with pytest.raises(NotFound, match="quintain/nope"):
        collect_rollouts(waiting, "starter", {"quintain/nope": 1, "quintain/inventory": 1})
