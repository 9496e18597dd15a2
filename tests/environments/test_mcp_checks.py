from __future__ import annotations

from itertools import islice
from random import Random
from typing import Any, ClassVar

import pytest

from quintain.environments.mcp_server.generation import _calls, draw_arguments
from quintain.environments.mcp_server.tasks import digest, judge, mine_tasks, read_checks, write_rows
from quintain.environments.servers import Call, ServerProfile, ToolResult
from quintain.environments.tasks.task_files import read_tasks, split_of
from quintain.errors import InvalidInput
from quintain.records.trajectory import Action, Actor, Observation, Outcome, OutcomeStatus, Step, Task, Trajectory

NOTE = ToolResult("buy milk, 2 l", {"text": "buy milk", "litres": 2})


def verdict(
    checker: Any, answer: str | None = None, calls: tuple[Call, ...] = (), state: ToolResult = NOTE
) -> float | None:
    return judge(read_checks({"checker": checker}), answer, calls, lambda call: state).value


def call(tool: str, **args: Any) -> Call:
    return Call(tool=tool, args=args)


@pytest.mark.parametrize(
    ("checker", "answer", "value"),
    [
        ({"type": "answer", "answer": 42}, None, 0.0),
        ({"type": "answer", "answers": ["Rome", "Roma"]}, "roma", 1.0),
        ({"type": "answer", "answer": 3.0, "tolerance": 0.1}, "3.05", 1.0),
        ({"type": "regex", "pattern": "^ab+$"}, "ac", 0.0),
    ],
)
def test_an_answer_is_checked_as_everywhere_else(checker: Any, answer: str | None, value: float) -> None:
    assert verdict(checker, answer) == value


@pytest.mark.parametrize(
    ("expectation", "value"),
    [
        ({"expect": "buy milk, 2 l"}, 1.0),
        ({"expect": "buy milk"}, 0.0),
        ({"contains": "milk"}, 1.0),
        ({"contains": "Milk"}, 0.0),
        ({"regex": r"\d l$"}, 1.0),
        ({"json": {"text": "buy milk", "litres": 2.0}}, 1.0),
        ({"json": {"text": "buy milk"}}, 0.0),
    ],
)
def test_the_state_of_the_server_is_asked_for_and_compared(expectation: dict[str, Any], value: float) -> None:
    assert verdict({"type": "state", "tool": "read", **expectation}) == value
    refused = NOTE._replace(is_error=True)
    assert verdict({"type": "state", "tool": "read", **expectation}, state=refused) == 0.0, "the state is not there"


@pytest.mark.parametrize(
    ("calls", "order", "value"),
    [
        ((call("f", a=1, b=2), call("g", x=9)), True, 1.0),
        ((call("g"), call("f", a=1)), True, 0.0),
        ((call("g"), call("f", a=1)), False, 1.0),
        ((call("f", a=2), call("g")), False, 0.0),
        ((call("f", a=1.0), call("g")), True, 1.0),
        ((), False, 0.0),
    ],
)
def test_calls_must_hold_the_named_arguments_and_may_hold_others(
    calls: tuple[Call, ...], order: bool, value: float
) -> None:
    checker = {"type": "calls", "expect": [{"tool": "f", "args": {"a": 1}}, {"tool": "g"}], "order": order}
    assert verdict(checker, calls=calls) == value


def test_each_call_matches_one_expected_call_and_a_possible_matching_is_found() -> None:
    """f(a=1, b=2) meets both expectations and f(a=1) only the first: a greedy pairing in the order of the calls would fail."""
    expect = [{"tool": "f", "args": {"a": 1}}, {"tool": "f", "args": {"b": 2}}]
    checker = {"type": "calls", "expect": expect}
    assert verdict(checker, calls=(call("f", a=1, b=2), call("f", a=1))) == 1.0
    assert verdict(checker, calls=(call("f", a=1, b=2),)) == 0.0


def test_all_checkers_must_pass_and_no_checker_means_no_verdict() -> None:
    answer, state = {"type": "answer", "answer": 1}, {"type": "state", "tool": "read", "contains": "milk"}
    both = {"type": "all", "checkers": [answer, state]}
    assert verdict(both, "1") == 1.0
    assert verdict(both, "2") == 0.0
    assert verdict({"type": "all", "checkers": [answer, {**state, "contains": "tea"}]}, "1") == 0.0
    assert judge(read_checks({}), "1", (), lambda call: NOTE).value is None
    prose = {"type": "answer", "answer": "It is because the sea is so very wide and deep."}
    assert verdict({"type": "all", "checkers": [prose, state]}, "Who knows?") is None


@pytest.mark.parametrize(
    ("metadata", "answer"),
    [
        ({"answer": 5}, "5"),
        ({"answer": {"a": 1}}, '{"a": 1}'),
        ({"checker": "exact_match", "answer": "yes"}, "Yes"),
        ({"checker": "regexp", "pattern": "^y"}, "yes"),
        ({"checker": {"type": "numeric", "answer": 5}}, "5.0"),
        ({"checker": {"answer": 5}}, "5"),
    ],
)
def test_checkers_of_answers_are_understood_as_task_files_write_them(metadata: dict[str, Any], answer: str) -> None:
    (check,) = read_checks(metadata)
    assert judge([check], answer, (), lambda call: NOTE).value == 1.0
    assert judge([check], "no", (), lambda call: NOTE).value == 0.0


@pytest.mark.parametrize(
    ("checker", "message"),
    [
        ({"type": "magic"}, "magic"),
        ({"type": "answer"}, "expected an `answer`"),
        ({"type": "regex"}, "expected a `pattern`"),
        ({"type": "state", "tool": "read"}, "one of `expect`, `contains`, `regex`, `json`"),
        ({"type": "state", "tool": "read", "expect": 1, "contains": "a"}, "one of `expect`"),
        ({"type": "calls", "expect": []}, "at least 1"),
        ({"type": "calls", "expect": [{"tool": "f"}], "ordered": True}, "ordered is not a known field"),
        (["answer"], "checker"),
        ("unit_tests", "checker"),
    ],
)
def test_an_invalid_checker_is_refused_with_the_reason(checker: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_checks({"checker": checker})


def test_arguments_come_from_enums_examples_defaults_and_bounds() -> None:
    schema = {
        "properties": {
            "unit": {"$ref": "#/$defs/Unit"},
            "n": {"type": "integer", "minimum": 3, "exclusiveMaximum": 6},
            "share": {"anyOf": [{"type": "null"}, {"type": "number", "minimum": 0, "maximum": 1}]},
            "place": {"type": "string", "examples": ["Rome", "Oslo"]},
            "sorted": {"type": "boolean"},
            "list": {"type": "array", "items": {"type": "integer", "maximum": 9}, "maxItems": 2},
            "free": {"type": "string"},
        },
        "required": ["unit", "n", "share", "place", "sorted", "list"],
        "$defs": {"Unit": {"enum": ["m", "km"], "type": "string"}},
    }
    rng = Random(0)
    for _ in range(200):
        drawn = draw_arguments("t", schema, {}, rng)
        assert drawn.keys() == {"unit", "n", "share", "place", "sorted", "list"}
        assert drawn["unit"] in {"m", "km"}
        assert drawn["n"] in {3, 4, 5}
        assert 0 <= drawn["share"] <= 1
        assert drawn["place"] in {"Rome", "Oslo"}
        assert len(drawn["list"]) == 2
        assert all(0 <= item <= 9 for item in drawn["list"])


def test_a_free_text_is_drawn_only_where_the_operator_gives_values() -> None:
    schema = {"properties": {"expression": {"type": "string"}}, "required": ["expression"]}
    assert draw_arguments("calculate", schema, {}, Random(0)) is None
    values = {"expression": ["{1..9} + {10..20}"], "other.expression": ["no"]}
    drawn = draw_arguments("calculate", schema, values, Random(0))
    left, right = map(int, drawn["expression"].split(" + "))
    assert 1 <= left <= 9
    assert 10 <= right <= 20


def run(
    prompt: str, *moves: tuple[str, dict[str, Any], bool], status: OutcomeStatus = OutcomeStatus.SUCCESS
) -> Trajectory:
    steps = [Step(actor=Actor.USER, message=prompt)]
    for tool, args, failed in moves:
        seen = Observation(content="seen", is_error=failed)
        steps.append(Step(actor=Actor.AGENT, actions=(Action(tool=tool, args=args),), observations=(seen,)))
    return Trajectory(steps=tuple(steps), outcome=Outcome(status=status))


def test_tasks_are_mined_from_the_calls_of_the_shortest_successful_run_and_can_be_written_as_a_file(tmp_path) -> None:
    write, wrong = ("write", {"text": "hi"}, False), ("write", {"txt": "hi"}, True)
    runs = [
        run("Note hi.", ("read", {}, False), write, ("submit", {"answer": "done"}, False)),
        run("Note hi.", wrong, write, ("bash", {"command": "ls"}, False), ("submit", {"answer": "done"}, False)),
        run("Note ho.", write, status=OutcomeStatus.FAILURE),
        run("Just look.", ("bash", {"command": "ls"}, False)),
    ]
    mined = mine_tasks(runs, {"read", "write"})
    assert [task.prompt for task in mined] == ["Note hi."]
    checks = read_checks(mined[0].metadata)
    assert [check.type for check in checks] == ["calls", "answer"]
    assert [(one.tool, one.args) for one in checks[0].expect] == [("write", {"text": "hi"})]
    assert judge(checks, "done", (call("write", text="hi"),), lambda call: NOTE).value == 1.0
    path = tmp_path / "mined.jsonl"
    path.write_text(write_rows(mined), encoding="utf-8")
    again = read_tasks(path).tasks[0]
    assert read_checks(again.metadata) == checks


def test_a_task_of_the_generated_kind_survives_being_written_and_read(tmp_path) -> None:
    task = Task(
        id="a", prompt="Sum?", type="add", difficulty="easy", metadata={"answer": 3, "split": "train", "field": ""}
    )
    path = tmp_path / "tasks.jsonl"
    path.write_text(write_rows([task]), encoding="utf-8")
    again = read_tasks(path).tasks[0]
    assert again.metadata == task.metadata
    assert (again.id, again.prompt, again.type, again.difficulty) == ("a", "Sum?", "add", "easy")


class Listed:
    """What a connection knows before any call."""

    parameters: ClassVar = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
    tools = ({"type": "function", "function": {"name": "add", "description": "", "parameters": parameters}},)

    def __init__(self, read_only: bool | None) -> None:
        self.read_only = {"add": read_only}


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_calls_of_a_split_do_not_run_out_before_the_arguments_do(split: str) -> None:
    """There are 10,000 pairs of 0 to 99, a fifth of them held out: 1,000 distinct calls must come of either split."""
    profile = ServerProfile(name="sums", command="sums")
    for seed in range(2):
        drawn = list(islice(_calls(profile, Listed(True), split, Random(seed)), 1000))
        assert len({str(call.args) for call in drawn}) == 1000
        assert {split_of(digest(call.tool, call.args)) for call in drawn} == {split}


@pytest.mark.parametrize("hint", [None, False])
def test_a_tool_is_called_by_its_hint_or_its_operator_and_never_for_its_name(hint: bool | None) -> None:
    """`add` may as well add a user."""
    profile = ServerProfile(name="users", command="users")
    with pytest.raises(
        InvalidInput, match=r"\[too_few_tasks\] .*got none with the hint.* among add; .*`generate_from`"
    ):
        next(_calls(profile, Listed(hint), "train", Random(0)))
    allowed = profile.model_copy(update={"generate_from": ("a*",)})
    assert next(_calls(allowed, Listed(hint), "train", Random(0))).tool == "add"
    wrong = profile.model_copy(update={"generate_from": ("ad",)})
    with pytest.raises(InvalidInput, match=r"\[bad_environments\] .*got 'ad'.*correct `generate_from`"):
        next(_calls(wrong, Listed(hint), "train", Random(0)))
