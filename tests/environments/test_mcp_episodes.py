"""Episodes on a real server, made with the SDK and spoken to through the official client."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quintain.environments.isolated import isolated
from quintain.environments.mcp_server.scripted_policy import expert
from quintain.environments.mcp_server.source import ServerSource
from quintain.environments.servers import ServerProfile
from quintain.errors import InvalidInput
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.protocols import Environment, TaskSource
from quintain.records.trajectory import Action, AgentInfo, OutcomeStatus, Task

SERVER = str(Path(__file__).parent / "notes_mcp_server.py")


def source(**fields) -> ServerSource:
    profile = ServerProfile(name="notes", command=sys.executable, args=(SERVER,), **fields)
    return ServerSource(profile, {"NOTES_KEY": "k"}.get)


def act(environment: Environment, tool: str, **args):
    return environment.step((Action(tool=tool, args=args),))


@pytest.fixture(scope="module")
def shared() -> Iterator[ServerSource]:
    """One process for all tests that do not mind."""
    made = source(fresh="session")
    yield made
    made.close()


@pytest.fixture
def begin(shared: ServerSource):
    opened: list[Environment] = []

    def begin(task: Task, at: ServerSource = shared) -> Environment:
        environment = at.make()
        opened.append(environment)
        environment.reset(task)
        return environment

    yield begin
    for environment in opened:
        environment.close()


SUM = Task(id="sum", prompt="What is 2 + 3?", metadata={"checker": {"type": "answer", "answer": 5}})
KEEP = Task(
    id="keep",
    prompt="Keep a note `shop` that says milk.",
    metadata={"checker": {"type": "state", "tool": "read_note", "args": {"name": "shop"}, "contains": "milk"}},
)


def test_the_tools_of_the_server_are_the_actions_and_submit_ends_with_a_verdict(begin) -> None:
    environment = begin(SUM)
    tools = {tool["function"]["name"]: tool["function"] for tool in environment.tools}
    assert tools.keys() > {"add", "get_price", "write_note", "submit"}
    assert tools["add"]["description"] == "Add two numbers. Nothing else."
    assert tools["add"]["parameters"]["properties"]["a"]["maximum"] == 50
    assert "end with submit" in environment.system_prompt
    assert act(environment, "add", a=2, b=3).observations[0].content == "5"
    last = act(environment, "submit", answer="5")
    assert (last.reward, last.terminated, last.observations[0].content) == (1.0, True, "Right.")


def test_a_wrong_answer_fails_and_a_turn_without_a_call_gets_the_tools(begin) -> None:
    environment = begin(SUM)
    told = environment.step(())
    assert not told.terminated
    assert "Call one of: add" in str(told.message)
    refused = act(environment, "submit", value=5)
    assert refused.observations[0].is_error
    assert not refused.terminated
    assert act(environment, "submit", answer=6).reward == 0.0


def test_wrong_arguments_and_failing_tools_are_observations(begin) -> None:
    environment = begin(SUM)
    wrong = act(environment, "add", a="two", b=3).observations[0]
    assert wrong.is_error
    assert "integer" in wrong.content
    assert act(environment, "read_note", name="none").observations[0].is_error


def test_a_tool_that_asks_the_user_is_declined(begin) -> None:
    """In the protocol of 2026-07-28, where a question is the result of the call; `rough` does it as servers did before."""
    environment = begin(SUM)
    asked = act(environment, "sign_note", text="x").observations[0]
    assert asked.is_error
    assert not act(environment, "add", a=1, b=1).observations[0].is_error


def test_several_calls_of_a_turn_are_carried_out_in_order_and_none_after_the_answer(begin) -> None:
    environment = begin(SUM)
    step = environment.step(
        (
            Action(tool="add", args={"a": 2, "b": 3}),
            Action(tool="submit", args={"answer": 5}),
            Action(tool="add", args={"a": 1, "b": 1}),
        )
    )
    assert [seen.is_error for seen in step.observations] == [False, False, True]
    assert step.reward == 1.0


def test_structured_content_is_shown_once_and_pictures_by_a_note(begin) -> None:
    environment = begin(SUM)
    shown = act(environment, "get_price", fruit="plum", count=2).observations[0].content
    assert json.loads(shown) == {"each": 7, "total": 14}
    assert "[a picture, image/png, " in act(environment, "picture").observations[0].content


def test_the_state_of_the_server_decides_where_no_answer_is_needed(begin) -> None:
    done, undone = begin(KEEP, source()), begin(KEEP, source())
    assert "submit" not in [tool["function"]["name"] for tool in done.tools]
    act(done, "write_note", name="shop", text="milk and bread")
    assert done.step(()).reward == 1.0
    assert undone.step(()).reward == 0.0


def test_a_task_without_a_checker_ends_without_a_verdict(begin) -> None:
    last = begin(Task(id="free", prompt="Do what you like.")).step(())
    assert (last.reward, last.terminated) == (None, True)


def test_calls_before_an_episode_bring_the_server_into_its_state(begin) -> None:
    note = {"tool": "write_note", "args": {"name": "a", "text": "one"}}
    prepared = source(setup=(note,), reset=({"tool": "write_note", "args": {"name": "b", "text": "two"}},))
    own = {"tool": "write_note", "args": {"name": "c", "text": "three"}}
    environment = begin(Task(id="x", prompt="Read.", metadata={"setup": [own]}), prepared)
    said = [act(environment, "read_note", name=name).observations[0].content for name in "abc"]
    assert said == ["one", "two", "three"]


def test_every_episode_has_its_own_server_and_folder_unless_the_profile_shares_them(begin) -> None:
    fresh, session = source(), source(fresh="session")
    seen = {}
    for at in (fresh, session):
        first = at.make()
        first.reset(KEEP)
        act(first, "write_note", name="left", text="over")
        process = act(first, "get_process_id", label="x").observations[0].content
        first.close()
        second = begin(KEEP, at)
        read = act(second, "read_note", name="left").observations[0]
        seen[at] = read.is_error, act(second, "get_process_id", label="x").observations[0].content == process
    assert seen == {fresh: (True, False), session: (False, True)}
    assert (fresh.at_once, session.at_once) == (8, 1)
    second.close()
    session.close()


def play(tasks: list[Task], at: TaskSource) -> list[Episode]:
    plans = [EpisodePlan(task) for task in tasks]
    return list(run_episodes(at, expert(tasks), plans, EpisodeSettings(0, None, 4, AgentInfo(name="expert"))))


def test_tasks_are_generated_from_the_schemas_and_their_scripts_solve_them(shared: ServerSource) -> None:
    """Only tools that look like reading are asked; the number of the process differs between two servers and is dropped."""
    train, held_out = shared.tasks("train", 12, 0), shared.tasks("held_out", 6, 0)
    assert {task.type for task in train} == {"add", "get_price"}
    assert {task.difficulty for task in train + held_out} == {"easy", "medium"}
    assert not {task.id for task in train} & {task.id for task in held_out}
    assert not {task.prompt for task in train} & {task.prompt for task in held_out}
    assert all(task.metadata["checker"]["type"] == "answer" for task in train)
    played = play(held_out, shared)
    assert [(episode.result.status, episode.result.turns) for episode in played] == [(OutcomeStatus.SUCCESS, 2)] * 6


def test_generated_tasks_are_the_same_for_the_same_seed_and_fewer_are_the_beginning_of_more(
    shared: ServerSource,
) -> None:
    other = source(fresh="session")
    assert other.version == shared.version
    assert other.tasks("train", 5, 0) == shared.tasks("train", 12, 0)[:5]


def test_too_few_generated_tasks_are_an_error_with_the_remedy() -> None:
    with pytest.raises(InvalidInput, match=r"expected 3 tasks in train from .*, got 0.*`values`.*file of `tasks`"):
        source(tools=("read_note", "write_note")).tasks("train", 3, 0)
    values = {"read_note.name": ("a", "b")}
    with pytest.raises(InvalidInput, match="got 0; ask for fewer"):  # there are no such notes: an error is no answer
        source(tools=("read_note",), values=values).tasks("train", 1, 0)


def test_the_rules_of_a_server_are_part_of_its_version() -> None:
    assert source().version != source(deny=("add",)).version
    assert source().version != source(max_turns=3).version


def test_a_server_can_be_played_in_an_isolated_process_too(home: Path) -> None:
    lines = [json.dumps({"id": "sum", "prompt": "2 + 3?", "answer": 5, "split": "held_out"})]
    (home / "tasks.jsonl").write_text("\n".join(lines), encoding="utf-8")
    path = home / "environments.toml"
    path.write_text(
        f'[mcp.notes]\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\ntasks = "tasks.jsonl"\n', encoding="utf-8"
    )
    apart = isolated("mcp:notes", servers=path)
    environment = apart.make()
    environment.reset(apart.tasks("held_out", 1, 0)[0])
    assert act(environment, "add", a=2, b=3).observations[0].content == "5"
    assert act(environment, "submit", answer=5).reward == 1.0
    environment.close()
    apart.close()
