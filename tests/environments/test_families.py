"""Every family of generated tasks: draws by seed, options, ids, and calls that cannot be carried out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playing import call, start, text_of
from quintain.environments.inventory import Inventory
from quintain.environments.registry import task_source
from quintain.errors import InvalidInput
from quintain.records.trajectory import Action, Task

FAMILIES = ("inventory", "math", "tools-1k", "conversation", "engineering", "advisory", "discussion")
LAMP = "inventory/train/lookup/easy/00001"
BEANS = "math/train/garden/medium/00007"
MAIL = "tools-1k/train/mail/hard/00003"
CANCEL = "conversation/train/cancel/medium/00001"
DEPLOYMENT = "engineering/train/deployment/hard/00001"
LAPTOP = "advisory/train/laptop/hard/00001"
RIVERS = "discussion/train/rivers/medium/00001"


@pytest.mark.parametrize("name", FAMILIES)
def test_tasks_are_drawn_by_seed_without_their_answers(name: str) -> None:
    """A task consists of its id and what follows from it without its answer."""
    source = task_source(f"quintain/{name}")
    tasks = source.tasks("held_out", 72, seed=3)
    assert tasks == task_source(f"quintain/{name}?difficulty=all&types=all").tasks("held_out", 72, seed=3)
    assert tasks[:7] == source.tasks("held_out", 7, seed=3)
    assert tasks != source.tasks("held_out", 72, seed=4)
    assert len({task.id for task in tasks}) == 72
    for task in tasks:
        assert task == Task(
            id=f"{name}/held_out/{task.type}/{task.difficulty}/{str(task.id)[-5:]}",
            prompt=task.prompt,
            type=task.type,
            difficulty=task.difficulty,
            environment=f"quintain/{name}",
            metadata={"split": "held_out", "seed": 3},
        )
        assert start(str(task.id)).reset(task).message == task.prompt
    assert {task.difficulty for task in tasks} == {"easy", "medium", "hard"}


@pytest.mark.parametrize("name", ["inventory", "conversation"])
def test_options_choose_types_and_levels_in_turn(name: str) -> None:
    reference = f"quintain/{name}"
    types = list(dict.fromkeys(task.type for task in task_source(reference).tasks("train", 20, 0)))
    chosen = task_source(f"{reference}?types={types[1]}, {types[0]}").tasks("train", 12, 0)
    assert [task.type for task in chosen] == [types[0], types[1]] * 6
    assert [task.difficulty for task in chosen] == ["easy", "easy", "medium", "medium", "hard", "hard"] * 2
    for level in ("easy", "medium", "hard"):
        tasks = task_source(f"{reference}?difficulty={level}").tasks("train", 9, 0)
        assert {task.difficulty for task in tasks} == {level}
    for options, message in (
        (f"types={types[0]},{types[1]}x", f"did you mean '{types[1]}'"),
        ("difficulty=extreme", "expected one of easy, medium, hard, all, got 'extreme'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            task_source(f"{reference}?{options}")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_foreign_task_id_is_refused_with_an_example(name: str) -> None:
    own = str(task_source(f"quintain/{name}").tasks("train", 1, 0)[0].id)
    foreign = BEANS if name != "math" else LAMP
    for task_id in (None, "", foreign, own.replace("train", "test"), own[:-1]):
        with pytest.raises(InvalidInput, match=rf"{name}/train/\w+/easy/00123"):
            task_source(f"quintain/{name}").make().reset(Task(id=task_id))


def test_a_family_has_so_many_tasks_and_two_splits() -> None:
    with pytest.raises(InvalidInput, match=r"train or held_out, got 'test'"):
        Inventory().tasks("test", 1, seed=0)
    with pytest.raises(InvalidInput, match=r"1,200,000 for quintain/inventory, got 1200001"):
        Inventory().tasks("train", 1_200_001, seed=0)
    with pytest.raises(InvalidInput, match="from 0 to 100,000"):
        task_source("quintain/inventory?difficulty=hard&types=total").tasks("train", 100_001, 0)


@pytest.mark.parametrize("task_id", [LAMP, BEANS, MAIL, CANCEL, DEPLOYMENT])
def test_a_turn_without_one_readable_call_of_a_tool_changes_nothing(task_id: str) -> None:
    environment = start(task_id)
    tools = [tool["function"]["name"] for tool in environment.tools]
    first = environment.tools[0]["function"]
    assert environment.step([]).message == f"You called no tool. Call one of: {', '.join(tools)}."
    for action, message in (
        (call("fly", to="moon"), f"no tool is called 'fly'; call one of: {', '.join(tools)}"),
        (call(tools[0]), f"{tools[0]}.{first['parameters']['required'][0]} is required"),
        (Action(tool=tools[0], raw_args='{"x": '), "not valid JSON: '{\"x\": '"),
    ):
        step = environment.step([action])
        assert (step.observations[0].is_error, step.terminated, step.reward) == (True, False, None)
        assert message in text_of(step)
    both = environment.step([call(tools[0]), call(tools[-1])])
    assert ([observation.is_error for observation in both.observations], both.terminated) == ([True, True], False)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


NESTED = nested(5000)


@pytest.mark.parametrize(
    ("task_id", "action", "message"),
    [
        (LAMP, call("search", query=7), "search.query"),
        (LAMP, call("search", query="lamp", limit=3), "search.limit is not a known field"),
        (LAMP, call("open", item_id="Z00"), "no item has the id 'Z00'; search for it first"),
        (LAMP, call("compare", item_ids=["A10"], field="price"), "at least 2"),
        (LAMP, call("compare", item_ids=["Z00", "Z01"], field="price"), "no item has the id 'Z00', 'Z01'"),
        (LAMP, call("compare", item_ids=["Z00", "Z01"], field="colour"), "'price', 'stock' or 'weight'"),
        (LAMP, call("submit", answer=True), "submit.answer"),
        (BEANS, call("calculate", expression=3), "calculate.expression"),
        (BEANS, call("submit", answer=True), "submit.answer"),
        (MAIL, call("create_email", title="x"), "no tool is called 'create_email'"),
        (MAIL, call("search_tools", query="x", k=0), "greater than or equal to 1"),
        (MAIL, call("search_tools", query="x", k=21), "less than or equal to 20"),
        (MAIL, call("search_tools", query="x", k="5"), "search_tools.k"),
        (MAIL, call("search_tools", query=""), "at least 1 character"),
        (MAIL, call("search_tools", query="x" * 1001), "at most 1000"),
        (MAIL, call("call_tool", name="fly_rocket", args={}), "no tool of the catalogue is called 'fly_rocket'"),
        (MAIL, call("call_tool", name="delete_meeting"), "call_tool.args is required"),
        (MAIL, call("call_tool", name="delete_meeting", args='{"reference": "A"}'), "call_tool.args"),
        (MAIL, call("call_tool", name="delete_meeting", args={}), "delete_meeting.reference is required"),
        (MAIL, call("call_tool", name="delete_meeting", args={"reference": 5}), "must be of type string"),
        (MAIL, call("call_tool", name="delete_meeting", args={"referenc": "A"}), "did you mean 'reference'?"),
        (CANCEL, call("respond", message=""), "at least 1 character"),
        (CANCEL, call("respond", message="x" * 1_000_000), "at most 2000 characters"),
        (CANCEL, Action.model_construct(tool="respond", args={"message": NESTED}), "nested too deep"),
        (RIVERS, Action.model_construct(tool="submit", args={"agreed": NESTED}), "nested too deep"),
        (CANCEL, call("get_policy", topic="magic"), "get_policy.topic"),
        (CANCEL, call("get_record", record_id="Z9"), "no record has the id 'Z9'"),
        (CANCEL, call("update_record", record_id="Z9", field="status", value="x"), "no record has the id 'Z9'"),
        (CANCEL, call("update_record", record_id="C1179", field="staus", value="x"), "did you mean 'status'?"),
        (CANCEL, call("update_record", record_id="C1179", field="refund", value="a lot"), "refund is a number"),
        (CANCEL, call("update_record", record_id="C1179", field="refund", value=True), "update_record.value"),
        (DEPLOYMENT, call("read_file", path="/etc/passwd"), "there are: services/billing.toml"),
        (DEPLOYMENT, call("submit", fields={}), "at least 1 item"),
        (DEPLOYMENT, call("submit", fields={"replicas": None}), "submit.fields"),
        (DEPLOYMENT, call("submit", fields={"replicas": 25}), "exactly the fields replicas, region, port"),
        (LAPTOP, call("submit", option=3), "submit.option"),
        (RIVERS, call("submit", agreed={str(i): i for i in range(21)}), "at most 20 items"),
    ],
)
def test_a_bad_call_is_an_observation_with_the_remedy(task_id: str, action: Action, message: str) -> None:
    step = start(task_id).step([action])
    assert (step.observations[0].is_error, step.terminated, step.reward, step.message) == (True, False, None, None)
    assert message in text_of(step)


_VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.lists(st.integers(), max_size=2)
)
_ARGUMENTS = st.dictionaries(
    st.sampled_from(
        ["message", "fields", "option", "agreed", "record_id", "field", "value", "query", "path", "name", "k", "args"]
    ),
    _VALUES | st.dictionaries(st.text(max_size=5), _VALUES, max_size=3),
    max_size=4,
)


@given(st.sampled_from([LAMP, MAIL, CANCEL, DEPLOYMENT, LAPTOP, RIVERS]), st.data(), _ARGUMENTS)
def test_whatever_an_agent_calls_is_answered(task_id: str, data: st.DataObject, args: dict[str, Any]) -> None:
    environment = start(task_id)
    tools = [tool["function"]["name"] for tool in environment.tools]
    step = environment.step([Action(tool=data.draw(st.sampled_from([*tools, "fly"])), args=args)])
    assert len(step.observations) == 1
    assert step.reward in {None, 0.0}
