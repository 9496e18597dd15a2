from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from quintain.environments.inventory import Inventory
from quintain.environments.inventory.environment import Warehouse, normalise
from quintain.environments.inventory.scripted_policy import Expert
from quintain.environments.inventory.tasks import DIFFICULTIES, FAMILY, TYPES, build_case
from quintain.environments.inventory.world import names, vocabulary
from quintain.errors import InvalidInput
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.trajectory import Action, AgentInfo, Task

EXPERT = EpisodeSettings(seed=0, max_turns=None, concurrency=64, agent=AgentInfo(name="expert"))


def begun(task_id: str) -> Warehouse:
    warehouse = Warehouse()
    warehouse.reset(Task(id=task_id))
    return warehouse


def call(tool: str, **args: Any) -> Action:
    return Action(tool=tool, args=args)


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_the_expert_solves_every_task_within_half_of_the_turn_limit(split: str) -> None:
    source = Inventory()
    plans = [EpisodePlan(task) for task in source.tasks(split, 360, seed=11)]
    episodes = list(run_episodes(source, Expert(), plans, EXPERT))
    assert Counter(episode.result.status for episode in episodes) == {"success": 360}
    assert max(episode.result.turns for episode in episodes) == 4 == Warehouse.max_turns // 2
    assert {(e.result.task_type, e.result.difficulty) for e in episodes} == {
        (t, d) for t in TYPES for d in DIFFICULTIES
    }


def test_the_same_arguments_give_the_same_tasks_and_fewer_are_a_prefix_of_more() -> None:
    tasks = Inventory().tasks("train", 50, seed=3)
    assert tasks == Inventory().tasks("train", 50, seed=3)
    assert tasks[:20] == Inventory().tasks("train", 20, seed=3)
    assert len({task.id for task in tasks}) == 50
    assert {task.id for task in tasks}.isdisjoint(task.id for task in Inventory().tasks("train", 50, seed=4))


def test_train_and_held_out_share_words_but_no_item() -> None:
    """20 adjectives x 40 nouns; one pair in five is held out, and every word stands in both splits."""
    train, held_out = set(names("train")), set(names("held_out"))
    assert (len(train), len(held_out)) == (640, 160)
    assert not train & held_out
    assert {n.noun for n in train} == {n.noun for n in held_out}
    assert {n.adjective for n in train} == {n.adjective for n in held_out} == set(vocabulary().adjectives)
    for split, allowed in (("train", train), ("held_out", held_out)):
        for task in Inventory().tasks(split, 120, seed=1):
            assert {item.name for item in build_case(FAMILY.parse(task.id)).items} <= allowed


def test_a_task_does_not_contain_its_answer() -> None:
    for task in Inventory().tasks("train", 120, seed=5):
        case = build_case(FAMILY.parse(task.id))
        beside_the_prompt = task.model_dump(exclude={"prompt", "id"})
        assert task.metadata == {"split": "train", "seed": 5}
        assert str(case.answer) not in json.dumps(beside_the_prompt).replace('"seed": 5', "")


def test_no_comparison_has_a_tie() -> None:
    for task in Inventory().tasks("train", 120, seed=6):
        items = build_case(FAMILY.parse(task.id)).items
        for field in ("price", "stock", "weight"):
            assert len({item.values[field] for item in items}) == len(items)
        assert len({item.id for item in items}) == len({item.name for item in items}) == len(items)


def test_harder_lookups_find_lookalikes() -> None:
    """Easy: the search gives the item alone; medium: one lookalike beside it; hard: three."""
    for difficulty, expected in (("easy", 1), ("medium", 2), ("hard", 4)):
        warehouse = Warehouse()
        prompt = warehouse.reset(Task(id=f"inventory/train/lookup/{difficulty}/00007")).message
        assert prompt is not None
        name = prompt.removesuffix("?").split(" of the ")[1]
        seen = warehouse.step([call("search", query=name)]).observations[0]
        assert len(str(seen.content).splitlines()) == expected


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (call("fly", to="moon"), "no tool is called 'fly'; call one of: search, open, compare, submit"),
        (call("search"), "search.query is required"),
        (call("search", query=7), "search.query"),
        (call("search", query="lamp", limit=3), "search.limit is not a known field"),
        (call("open", item_id="Z00"), "no item has the id 'Z00'; search for it first"),
        (call("compare", item_ids=["A10"], field="price"), "at least 2"),
        (call("compare", item_ids=["Z00", "Z01"], field="price"), "no item has the id 'Z00', 'Z01'"),
        (call("compare", item_ids=["Z00", "Z01"], field="colour"), "'price', 'stock' or 'weight'"),
        (call("submit", answer=[1]), "submit.answer"),
        (call("submit", answer=True), "submit.answer"),
        (Action(tool="open", raw_args='{"item_id": '), "not valid JSON: '{\"item_id\": '"),
    ],
)
def test_a_bad_call_is_an_observation_with_the_remedy(action: Action, expected: str) -> None:
    step = begun("inventory/train/lookup/easy/00001").step([action])
    assert [seen.is_error for seen in step.observations] == [True]
    assert expected in str(step.observations[0].content)
    assert not step.terminated
    assert step.reward is None


def test_no_call_and_several_calls_are_answered_and_change_nothing() -> None:
    warehouse = begun("inventory/train/lookup/easy/00001")
    assert warehouse.step([]).message == "You called no tool. Call one of: search, open, compare, submit."
    answer = build_case(FAMILY.parse("inventory/train/lookup/easy/00001")).answer
    step = warehouse.step([call("search", query="x"), call("submit", answer=answer)])
    assert [seen.is_error for seen in step.observations] == [True, True]
    assert not step.terminated


@pytest.mark.parametrize(
    ("change", "reward"), [(str, 1.0), (float, 1.0), (lambda a: f" {a}. ", 1.0), (lambda a: a + 1, 0.0)]
)
def test_a_submit_ends_the_episode_with_the_verdict(change: Any, reward: float) -> None:
    task_id = "inventory/held_out/total/hard/00042"
    answer = build_case(FAMILY.parse(task_id)).answer
    step = begun(task_id).step([call("submit", answer=change(answer))])
    assert (step.terminated, step.reward) == (True, reward)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (42, "42", True),
        (42, "42.0", True),
        ("1,042", 1042, True),
        ("The Brass  Lamp.", "brass lamp", True),
        ("'oak chair'", "oak chair", True),
        ("brass lamp", "lamp", False),
        (42, "$42", False),
        (0.1 + 0.2, 0.3, False),
    ],
)
def test_answers_agree_by_value_and_by_words(a: object, b: object, equal: bool) -> None:
    assert (normalise(a) == normalise(b)) is equal


def test_a_foreign_task_id_is_refused_with_an_example() -> None:
    for task_id in (None, "", "inventory/test/lookup/easy/00001", "inventory/train/lookup/easy/1"):
        with pytest.raises(InvalidInput, match="inventory/train/lookup/easy/00123"):
            Warehouse().reset(Task(id=task_id))
    with pytest.raises(InvalidInput, match=r"train or held_out, got 'test'"):
        Inventory().tasks("test", 1, seed=0)
    with pytest.raises(InvalidInput, match=r"1,200,000 for quintain/inventory, got 1200001"):
        Inventory().tasks("train", 1_200_001, seed=0)


def test_tool_schemas_are_bare_openai_functions() -> None:
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in Warehouse.tools}
    assert list(tools) == ["search", "open", "compare", "submit"]
    assert tools["open"] == {"type": "object", "properties": {"item_id": {"type": "string"}}, "required": ["item_id"]}
    assert tools["submit"]["properties"] == {"answer": {"type": ["string", "number"]}}
    assert "title" not in json.dumps(Warehouse.tools)
