"""Environments of other libraries and servers, each through its real adapter process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from environments.foreign_servers import Solver, foreign_servers
from playing import Scripted, act, play, text_of
from quintain.environments import configuration, registry
from quintain.errors import InvalidInput, NotFound, QuintainError, Unavailable
from quintain.records.protocols import Environment, Reply, TaskSource, TimeStep
from quintain.records.trajectory import OutcomeStatus

Begin = Callable[..., tuple[Environment, TimeStep]]
PYTHON = "QUINTAIN_FOREIGN_PYTHON"
"""Environment variable with an interpreter that has textarena and verifiers."""


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Path]:
    """The operator's file, in use."""
    path = tmp_path / "environments.toml"
    configuration.configure(path)
    yield path
    configuration.configure(None)


@pytest.fixture
def interpreter(operator: Path) -> str:
    """Name the interpreter of the other libraries in the operator's file."""
    python = os.environ.get(PYTHON)
    if not python:
        pytest.skip(f"{PYTHON} names no interpreter with textarena and verifiers")
    operator.write_text(f"[python]\ntextarena = {python!r}\nverifiers = {python!r}\n", encoding="utf-8")
    return python


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begin an episode with a training task; episodes and their sources are closed at the end of the test."""
    with ExitStack() as stack:
        sources: set[int] = set()

        def begin(source: TaskSource, place: int = 0) -> tuple[Environment, TimeStep]:
            if id(source) not in sources:
                sources.add(id(source))
                stack.callback(source.close)  # type: ignore[attr-defined]
            environment = source.make()
            stack.callback(environment.close)
            return environment, environment.reset(source.tasks("train", place + 1, 0)[place])

        yield begin


def test_servers_play_by_their_wire_formats_and_their_faults_end_the_episode_alone(
    operator: Path, begin: Begin
) -> None:
    pytest.importorskip("websockets")
    with foreign_servers(operator):
        openenv, agentgym = registry.open_source("openenv:guess"), registry.open_source("agentgym:count")
        assert (openenv.at_once, agentgym.at_once) == (1, 8)  # type: ignore[attr-defined]
        train, held_out = (openenv.tasks(split, 5, 1) for split in ("train", "held_out"))
        assert train == openenv.tasks("train", 5, 1)
        assert not {task.id for task in train} & {task.id for task in held_out}
        for source in (openenv, agentgym):
            episodes = play(source, Scripted(Solver()), source.tasks("train", 3, 0), concurrency=3)
            assert {(one.result.status, one.result.reward) for one in episodes} == {(OutcomeStatus.SUCCESS, 1.0)}
            assert episodes[0].result.metrics["length"] == episodes[0].result.turns

        def hang(source: TaskSource, **args: Any) -> tuple[str, str]:
            environment, _ = begin(source)
            environment._child._timeout_s = 1.0  # type: ignore[attr-defined]  # both processes have started
            with pytest.raises(Unavailable, match="within 1 s and was killed") as failed:
                act(environment, "act", **args)
            return failed.value.code, text_of(act(begin(source, 1)[0], "act", guess=5, action="x"))

        with ThreadPoolExecutor() as pool:
            found = pool.submit(hang, openenv, guess=99), pool.submit(hang, agentgym, action="wait")
        (code, after), (other_code, other_after) = (one.result() for one in found)
        assert code == other_code == "environment_timeout"
        assert (after[:5], other_after) == ("Error", "Could not execute x")
        environment, _ = begin(openenv)
        assert environment.tools[0]["function"]["parameters"]["properties"].keys() == {"guess"}
        refused = act(environment, "act", guess="x")
        assert (refused.observations[0].is_error, "Field required" in text_of(refused)) == (True, True)
        assert "call act" in text_of(act(environment, "shoot"))
        assert environment.step([]).message == "You called no tool. Call act."
        calling, first = begin(registry.open_source("openenv:tools"))
        assert (first.message, calling.tools[0]["function"]["name"]) == ('{"question": "Which number?"}', "guess")
        refused = act(calling, "guess")
        assert (refused.observations[0].is_error, text_of(refused)) == (True, "Missing guess")
        assert "call guess" in text_of(act(calling, "act", guess=1))
        answers = [act(calling, "guess", guess=guess) for guess in range(4)]
        assert ["yes", 1.0] in [[text_of(answer), answer.reward] for answer in answers]
        with pytest.raises(Unavailable, match="ConnectionClosed"):
            act(environment, "act", guess=98)
        counting, _ = begin(agentgym)
        said = counting.take_answer("dance")  # type: ignore[attr-defined]
        assert (said.message, said.observations) == ("Could not execute dance", ())
        assert text_of(act(counting, "act", action="long")).endswith("x\n[10,000 more characters were cut]")
        for action, message in (("redirect", "status 302"), ("flood", "at most 16,000,000 bytes")):
            with pytest.raises(Unavailable, match=message):
                act(counting, "act", action=action)
        with pytest.raises(Unavailable, match="RemoteDisconnected"):
            act(counting, "act", action="quit")
        with pytest.raises(Unavailable, match="Connection refused"):
            registry.open_source("openenv:guess")


def test_gymnasium_draws_as_text_and_the_return_decides(begin: Begin) -> None:
    pytest.importorskip("gymnasium")
    source = registry.open_source("gymnasium/FrozenLake-v1?is_slippery=false&max_turns=9&system_prompt=Go.")
    environment, first = begin(source)
    assert str(first.message).startswith("[red S]FFF\nFHFH")
    assert (environment.max_turns, environment.system_prompt) == (9, "Go.")
    assert environment.tools[0]["function"]["parameters"]["properties"]["action"]["maximum"] == 3
    for wrong in (7, True, "2"):
        assert act(environment, "act", action=wrong).observations[0].is_error
    steps = [act(environment, "act", action=action) for action in (1, 1, 2, 1, 2, 2)]
    assert text_of(steps[0]).endswith("[red F]HFH\nFFFH\nHFFG\nObservation: 4")
    assert [(step.reward, step.terminated) for step in steps[-2:]] == [(None, False), (1.0, True)]
    assert steps[-1].info["metrics"] == {"length": 6, "return": 1.0}
    harder = registry.open_source("gymnasium/FrozenLake-v1?is_slippery=false&success_at=2")
    assert harder.version != source.version
    lost, _ = begin(harder)
    act(lost, "act", action=1)
    assert act(lost, "act", action=2).reward == -1.0  # a hole: the return 0 is 2 below success


NAMED_PARTS = """
import gymnasium as gym

class Rooms(gym.Env):
    action_space = gym.spaces.MultiDiscrete([2, 3])
    observation_space = gym.spaces.Dict({"mission": gym.spaces.Text(9), "at": gym.spaces.Box(0, 9, (1, 2), int)})

    def reset(self, seed=None, options=None):
        return {"mission": "go", "at": self.observation_space["at"].low}, {}

    def step(self, action):
        return {"mission": "go", "at": action[None]}, 1.0, True, False, {}

gym.register("Rooms-v0", Rooms)

class Tools(Rooms):
    metadata = {"render_modes": ["ansi"]}
    parts = gym.spaces.Tuple((gym.spaces.Text(5), gym.spaces.MultiBinary(2)))
    action_space = gym.spaces.Dict({"tool": gym.spaces.Discrete(2), "with": parts})
    observation_space = gym.spaces.Text(99)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        print("drawn elsewhere")

    def reset(self, seed=None, options=None):
        return "go", {}

    def step(self, action):
        return f"{action['tool']} {action['with'][0]} {action['with'][1].sum()}", 1.0, True, False, {}

gym.register("Tools-v0", Tools)
"""


def test_an_observation_shows_its_named_parts_and_an_action_may_be_several_numbers(
    operator: Path, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gymnasium")
    (tmp_path / "rooms.py").write_text(NAMED_PARTS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    operator.write_text("[gymnasium]\nmodules = ['rooms']\n", encoding="utf-8")
    environment, first = begin(registry.open_source("gymnasium/Rooms-v0"))
    assert first.message == "Observation: {'mission': 'go', 'at': [[0, 0]]}"
    assert (
        "of MultiDiscrete([2 3])"
        in environment.tools[0]["function"]["parameters"]["properties"]["action"]["description"]
    )
    for wrong in (1, [1], [2, 0], ["a", "b"], [1, 2, 0]):
        assert act(environment, "act", action=wrong).observations[0].is_error
    assert text_of(act(environment, "act", action=[1, 2])) == "Observation: {'mission': 'go', 'at': [[1, 2]]}"

    environment, first = begin(registry.open_source("gymnasium/Tools-v0"))
    assert first.message == "Observation: go"
    form = environment.tools[0]["function"]["parameters"]["properties"]["action"]
    assert (form["required"], form["properties"]["with"]["prefixItems"][0]) == (["tool", "with"], {"type": "string"})
    for wrong in (1, {"tool": 1}, {"tool": 2, "with": ["a", [0, 1]]}, {"tool": 1, "with": ["a", [0, 2]]}):
        assert act(environment, "act", action=wrong).observations[0].is_error
    done = act(environment, "act", action={"tool": 1, "with": ["a", [1, 1]]})
    assert text_of(done) == "Observation: 1 a 2"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("gymnasium/FrozenLake-v0", "near: .*FrozenLake-v1"),
        ("gymnasium/os:Env-v0", "registered environment"),
        ("gymnasium/FrozenLake-v1?wings=2", "unexpected keyword argument 'wings'"),
        ("gymnasium/Pendulum-v1", "expected discrete or text actions"),
    ],
)
def test_what_gymnasium_cannot_play_is_refused_when_it_is_named(reference: str, message: str) -> None:
    pytest.importorskip("gymnasium")
    with pytest.raises(QuintainError, match=message):
        registry.task_source(reference)


def test_a_missing_library_or_interpreter_is_named_with_its_remedy(operator: Path) -> None:
    with pytest.raises(InvalidInput, match="success_at"):
        registry.task_source("gymnasium/X-v0?success_at=high")
    operator.write_text("[gymnasium]\nmodules = ['no_such_module']\n[python]\ntextarena = '/no/python'\n")
    with pytest.raises(Unavailable, match=r"expected a program that starts .*/no/python"):
        registry.task_source("textarena/Nim-v0")
    operator.write_text(f"[python]\ntextarena = '{sys.executable}'\n[verifiers.x]\ntaskset = 'x'\n")
    for reference, package in (("textarena/Nim-v0", "textarena"), ("verifiers:x", "verifiers")):
        with pytest.raises(Unavailable, match=rf"cannot import {package} in .*\[python\] {package} = 'PATH'"):
            registry.task_source(reference)
    with pytest.raises(NotFound, match=r"got 'openenv:x'.*known: verifiers:x.*\[openenv\.x\]"):
        registry.task_source("openenv:x")


@pytest.mark.parametrize(
    ("text", "reference", "message"),
    [
        ('[openenv.a]\nurl = "file:///etc/passwd"', "openenv:a", "begins with http"),
        ('[openenv.a]\nurl = "http://me:key@host/"', "openenv:a", "without user, password"),
        ('[agentgym.a]\nurl = "http://h"', "agentgym:a", r"\[agentgym\.a\].*tasks"),
        ('[openenv.a]\nurl = "http://h"\nsecret = 1', "openenv:a", "secret"),
        ("[python]\ntextarena = 3", "textarena/X", "python.textarena"),
        ("[gymnasium]\nmodules = 'x'", "gymnasium/X", "gymnasium.modules"),
        ("openenv = 3", "openenv:a", "expected a table"),
        ("[docker.x]", "openenv:a", "expected only tables"),
    ],
)
def test_a_wrong_line_of_the_operator_file_is_refused_with_its_place(
    operator: Path, text: str, reference: str, message: str
) -> None:
    operator.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=message):
        registry.task_source(reference)


def test_textarena_games_play_alone_and_for_several_seats(interpreter: str, begin: Begin) -> None:
    source = registry.open_source("textarena/TowerOfHanoi-v0")
    for _ in range(2):  # the second game begins as the first did, in the same process
        environment, first = begin(source)
        shown = [
            act(environment, "act", action=move) for move in ("[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]")
        ]
        environment.close()
        assert (str(first.message).count("You are playing"), str(first.message).count("Current Board")) == (1, 1)
        assert [(step.reward, text_of(step).count("Current Board")) for step in shown] == [(None, 1)] * 6
        assert not any("You are playing" in text_of(step) for step in shown), "an observation repeats the rules"
    environment, _ = begin(source)
    for move in ("[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]"):
        act(environment, "act", action=move)
    last = environment.take_answer("Then [A C]")  # type: ignore[attr-defined]
    assert (last.reward, last.terminated) == (1.0, True)
    two = registry.open_source("textarena/TicTacToe-v0?players=2")
    assert two.players == ("player 0", "player 1")  # type: ignore[attr-defined]
    game, first = begin(two)
    turns = [act(game, "act", action=f"[{cell}]") for cell in (0, 3, 1)]
    assert (act(game, "shoot").player, game.step([]).player) == (1, 1)
    turns += [act(game, "act", action=f"[{cell}]") for cell in (4, 2)]
    assert [turn.player for turn in (first, *turns[:-1])] == [0, 1, 0, 1, 0]
    assert ("Player 1" in str(turns[0].message), text_of(turns[0])) == (True, "It is the other player's turn.")
    assert (turns[-1].terminated, turns[-1].rewards, turns[-1].reward) == (True, (1.0, 0.0), None)
    with pytest.raises(Unavailable, match="set the option players=2"):
        registry.open_source("textarena/TicTacToe-v0")


SHELF = """
import verifiers.v1 as vf

__all__ = ["Shelf"]

class Data(vf.TaskData):
    answer: str

class Looked(vf.State):
    lookups: int = 0

class ShelfToolset(vf.Toolset[vf.ToolsetConfig, Looked]):
    TOOL_PREFIX = "shelf"

    async def setup_task(self, task):
        self.answer = task.data.answer

    @vf.tool
    async def count(self, item: str) -> str:
        '''How many there are of an item.'''
        if item == "ghost":
            raise ValueError("there is no ghost")
        self.state.lookups += 1
        return self.answer

class Config(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig()

class ShelfTask(vf.Task[Data, Looked, Config]):
    @vf.stop
    async def looked_enough(self, trace: vf.Trace) -> bool:
        return trace.state.lookups == 3

    @classmethod
    def toolsets(cls, config):
        return [ShelfToolset(config.tools)]

    @vf.reward(weight=1.0)
    async def exact(self, trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.metric
    async def lookups(self, trace) -> float:
        return float(trace.state.lookups)

    @vf.metric
    async def results(self, trace) -> float:
        return float(sum(node.message.role == "tool" for node in trace.nodes))

class Tasks(vf.TasksetConfig):
    task: Config = Config()

class Shelf(vf.Taskset[ShelfTask, Tasks]):
    def load(self):
        for i in range(10):
            yield ShelfTask(Data(prompt=f"How many cups are on shelf {i}?", answer=str(7 * i)), self.config.task)
"""


def test_a_taskset_of_verifiers_brings_its_tools_and_their_state(
    interpreter: str, operator: Path, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shelf.py").write_text(SHELF, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    operator.write_text(operator.read_text() + "[verifiers.shelf]\ntaskset = 'shelf'\n", encoding="utf-8")
    source = registry.open_source("verifiers:shelf")
    for place in (0, 1):  # each task has servers and a state of its own
        episode, _ = begin(source, place)
        (tool,) = episode.tools
        assert (tool["function"]["name"], tool["function"]["parameters"]["required"]) == ("shelf_count", ["item"])
        refused = act(episode, "shelf_count", item="ghost").observations[0]
        assert refused.is_error
        assert "there is no ghost" in text_of(act(episode, "shelf_count", item="ghost"))
        answer = text_of(act(episode, "shelf_count", item="cup"))
        end = episode.take_answer(answer)  # type: ignore[attr-defined]
        assert (end.terminated, end.reward) == (True, 1.0)
        assert (end.info["metrics"]["lookups"], end.info["metrics"]["results"]) == (1.0, 3.0)
    episode, _ = begin(source, 2)  # which its condition ends
    looks = [act(episode, "shelf_count", item="cup") for _ in range(3)]
    assert [(look.terminated, look.reward) for look in looks] == [(False, None), (False, None), (True, 0.0)]
    assert (text_of(looks[-1]), looks[-1].info["metrics"]["lookups"]) == (text_of(looks[0]), 3.0)


TASKSET = """
import verifiers.v1 as vf

__all__ = ["Reverse"]

class Data(vf.TaskData):
    answer: str

class ReverseTask(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def exact(self, trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.metric
    async def characters(self, trace) -> float:
        return float(len(trace.last_reply))

class Reverse(vf.Taskset[ReverseTask, vf.TasksetConfig]):
    def load(self):
        for word in ("abc", "stone", "river", "cloud", "grass", "light", "horse", "table", "plant", "music"):
            yield ReverseTask(Data(prompt=f"Reverse {word}.", answer=word[::-1], system_prompt="Only the word."), self.config.task)
"""


def test_a_taskset_of_verifiers_scores_answers_by_its_own_rewards(
    interpreter: str, operator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reverse_words.py").write_text(TASKSET, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    operator.write_text(operator.read_text() + "[verifiers.reverse]\ntaskset = 'reverse-words'\n", encoding="utf-8")
    source = registry.open_source("verifiers:reverse")
    tasks = source.tasks("train", 3, 0)
    answer = Scripted(lambda turn: Reply(text=(word := str(turn.messages[-1].content)[8:-1])[::-1], thought=word[::-1]))
    right = play(source, answer, tasks)
    assert {(one.result.status, one.result.reward) for one in right} == {(OutcomeStatus.SUCCESS, 1.0)}
    assert right[0].result.metrics["characters"] == len(str(tasks[0].prompt)) - 9
    wrong = play(source, Scripted(lambda turn: Reply(text="no", thought="no")), tasks[:1])
    assert (wrong[0].result.status, wrong[0].result.reward) == (OutcomeStatus.FAILURE, 0.0)
