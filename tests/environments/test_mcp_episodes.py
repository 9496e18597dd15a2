"""Episodes on a real server, made with the SDK and spoken to through the official client."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from playing import act, play, text_of
from quintain.environments.mcp_server.generation import expert
from quintain.environments.mcp_server.source import ServerSource
from quintain.environments.servers import ServerProfile
from quintain.records.protocols import Environment
from quintain.records.trajectory import Action, OutcomeStatus, Task

SERVER = str(Path(__file__).parent / "notes_mcp_server.py")


def source(**fields) -> ServerSource:
    profile = ServerProfile(name="notes", command=sys.executable, args=(SERVER,), **fields)
    return ServerSource(profile, {"NOTES_KEY": "k"}.get)


@pytest.fixture(scope="module")
def shared() -> Iterator[ServerSource]:
    """One process for all tests that can share it: each costs more than a second."""
    opened = source(fresh="session")
    yield opened
    opened.close()


@pytest.fixture
def begin(shared: ServerSource):
    opened: list[Environment] = []

    def begin(task: Task) -> Environment:
        """End the episode before, so that its server is free, and begin another."""
        for environment in opened:
            environment.close()
        environment = shared.make()
        opened.append(environment)
        environment.reset(task)
        return environment

    yield begin
    for environment in opened:
        environment.close()


SUM = Task(id="sum", prompt="What is 2 + 3?", metadata={"checker": {"type": "answer", "answer": 5}})


def test_the_tools_of_the_server_are_the_actions_and_submit_ends_with_a_verdict(begin) -> None:
    environment = begin(SUM)
    tools = {tool["function"]["name"]: tool["function"] for tool in environment.tools}
    assert tools.keys() > {"add", "get_price", "write_note", "submit"}
    assert tools["add"]["description"] == "Add two numbers. Nothing else."
    assert tools["add"]["parameters"]["properties"]["a"]["maximum"] == 50
    assert "end with submit" in environment.system_prompt
    assert text_of(act(environment, "add", a=2, b=3)) == "5"
    last = act(environment, "submit", answer="5")
    assert (last.reward, last.terminated, text_of(last)) == (1.0, True, "Right.")


def test_what_goes_wrong_is_an_observation_and_a_wrong_answer_fails(begin) -> None:
    """A question of a tool to the user is declined; here as in the protocol of 2026-07-28, where it is the call's result."""
    environment = begin(SUM)
    silent = environment.step(())
    assert not silent.terminated
    assert "Call one of: add" in str(silent.message)
    for tool, args, message in (
        ("submit", {"value": 5}, "submit"),
        ("add", {"a": "two", "b": 3}, "integer"),
        ("read_note", {"name": "none"}, "read_note"),
        ("sign_note", {"text": "x"}, ""),
    ):
        refused = act(environment, tool, **args)
        assert (refused.observations[0].is_error, refused.terminated) == (True, False)
        assert message in text_of(refused)
    assert not act(environment, "add", a=1, b=1).observations[0].is_error
    assert act(environment, "submit", answer=6).reward == 0.0


def test_several_calls_of_a_turn_are_carried_out_in_order_and_none_after_the_answer(begin) -> None:
    sums = [Action(tool="add", args={"a": 2, "b": b}) for b in (3, 1)]
    step = begin(SUM).step((sums[0], Action(tool="submit", args={"answer": 5}), sums[1]))
    assert [observation.is_error for observation in step.observations] == [False, False, True]
    assert step.reward == 1.0


def test_structured_content_is_shown_once_and_pictures_by_a_note(begin) -> None:
    environment = begin(SUM)
    assert json.loads(text_of(act(environment, "get_price", fruit="plum", count=2))) == {"each": 7, "total": 14}
    assert "[a picture, image/png, " in text_of(act(environment, "picture"))


def test_the_state_of_the_server_decides_where_no_answer_is_needed(begin) -> None:
    checker = {"type": "state", "tool": "read_note", "args": {"name": "shop"}, "contains": "milk"}
    keep = Task(id="keep", prompt="Keep a note `shop` that says milk.", metadata={"checker": checker})
    undone = begin(keep)
    assert "submit" not in [tool["function"]["name"] for tool in undone.tools]
    assert undone.step(()).reward == 0.0
    act(undone, "write_note", name="shop", text="milk and bread")
    assert begin(keep).step(()).reward == 1.0
    last = begin(Task(id="free", prompt="Do what you like.")).step(())
    assert (last.reward, last.terminated) == (None, True)


def test_tasks_are_generated_from_the_schemas_and_their_scripts_solve_them() -> None:
    """`add` has the hint, the operator names the others; the number of the process differs between two servers and is dropped."""
    named = source(fresh="session", generate_from=("get_*",))
    tasks = named.tasks("held_out", 6, 0)
    assert {task.type for task in tasks} == {"add", "get_price"}
    assert {task.difficulty for task in tasks} == {"easy", "medium"}
    assert {task.metadata["split"] for task in tasks} == {"held_out"}
    assert all(task.metadata["checker"]["type"] == "answer" for task in tasks)
    played = play(named, expert(tasks), tasks, concurrency=1)
    assert [(episode.result.status, episode.result.turns) for episode in played] == [(OutcomeStatus.SUCCESS, 2)] * 6


def test_the_rules_of_a_server_are_part_of_its_version(shared: ServerSource) -> None:
    assert source(fresh="session").version == shared.version
    assert source(fresh="session", generate_from=("get_*",)).version != shared.version
    assert len({source().version, source(deny=("add",)).version, source(max_turns=3).version}) == 3
