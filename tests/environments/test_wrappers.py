"""Wrappers and mixtures around a small environment that says what was done to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from quintain.environments import registry
from quintain.environments.inventory import Inventory
from quintain.environments.wrappers import (
    episode_statistics,
    max_steps,
    recorder,
    shaped_reward,
    shorter_observations,
    time_limit,
    wrap,
)
from quintain.errors import Conflict, InvalidInput
from quintain.records.protocols import TimeStep
from quintain.records.trajectory import (
    Action,
    AgentInfo,
    ImagePart,
    Observation,
    OutcomeStatus,
    Task,
    TextPart,
    Trajectory,
)

LOOK = [Action(tool="look")]


class Counter:
    """Counts to its goal, one a step; reward 1 and the end at the goal."""

    id, version, system_prompt, tools, max_turns = "test/counter", "1", "Count.", ({"name": "look"},), 9
    colour = "red"

    def __init__(self, goal: int = 3, pace: Literal["slow", "fast"] = "slow") -> None:
        self.goal, self.pace, self.count, self.closed = goal, pace, 0, False

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        return [Task(id=f"{split}/{i}", prompt="Count.") for i in range(n)]

    def make(self) -> Counter:
        return Counter(self.goal, self.pace)

    def reset(self, task: Task) -> TimeStep:
        self.count = 0
        return TimeStep(message=task.prompt)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        self.count += 1
        done = self.count >= self.goal
        seen = Observation(content="x" * self.count)
        return TimeStep(observations=(seen,), reward=1.0 if done else None, terminated=done)

    def close(self) -> None:
        self.closed = True


def test_attributes_pass_through_every_wrapper_and_the_innermost_can_be_reached() -> None:
    source = wrap(Counter(), max_steps(5), time_limit(9), recorder(AgentInfo(name="a"), print))
    environment: Any = source.make()
    assert (environment.colour, environment.id, environment.max_turns) == ("red", "test/counter", 9)
    assert (source.id, source.version) == ("test/counter", "1")
    assert type(environment.unwrapped) is Counter
    with pytest.raises(AttributeError):
        _ = environment.taste
    environment.close()
    assert environment.closed


def test_an_episode_is_truncated_after_max_steps_unless_the_last_step_ends_it() -> None:
    environment = max_steps(3)(Counter(goal=3))
    for _ in range(2):  # an environment that can begin again is counted anew
        environment.reset(Task(prompt="p"))
        steps = [environment.step(LOOK) for _ in range(3)]
        assert [(step.terminated, step.truncated) for step in steps] == [(False, False), (False, False), (True, False)]
    short = max_steps(2)(Counter(goal=3))
    short.reset(Task(prompt="p"))
    assert [short.step(LOOK).truncated for _ in range(2)] == [False, True]


def test_time_runs_from_reset_and_the_last_step_has_statistics() -> None:
    moments = iter([0.0, 4.0, 11.0])
    environment = time_limit(10.0, lambda: next(moments))(Counter(goal=9))
    environment.reset(Task(prompt="p"))
    assert [environment.step(LOOK).truncated for _ in range(2)] == [False, True]
    ticks = iter([100.0, 107.5])
    timed = episode_statistics(lambda: next(ticks))(Counter(goal=2))
    timed.reset(Task(prompt="p"))
    assert [timed.step(LOOK).info for _ in range(2)] == [{}, {"episode": {"r": 1.0, "l": 2, "t": 7.5}}]


def test_rewards_are_replaced_and_long_observations_cut_with_a_word() -> None:
    environment = shorter_observations(2)(shaped_reward(lambda actions, step: 0.25 * len(actions))(Counter(goal=9)))
    environment.reset(Task(prompt="p"))
    seen = [environment.step(LOOK) for _ in range(3)]
    assert [step.reward for step in seen] == [0.25, 0.25, 0.25]
    assert [step.observations[0].content for step in seen] == ["x", "xx", "xx\n[1 more characters were cut]"]

    class Pictured(Counter):
        def step(self, actions: Sequence[Action]) -> TimeStep:
            parts = (TextPart(text="four"), ImagePart(uri="file:///p.png"))
            return TimeStep(observations=(Observation(content=parts),))

    pictured = shorter_observations(2)(Pictured())
    pictured.reset(Task(prompt="p"))
    text, picture = pictured.step(LOOK).observations[0].content
    assert (text.text[:2], picture.uri) == ("fo", "file:///p.png")  # type: ignore[union-attr]


def test_a_replaced_reward_is_no_verdict() -> None:
    class Silent(Counter):
        def step(self, actions: Sequence[Action]) -> TimeStep:
            return super().step(actions).model_copy(update={"reward": None})

    kept: list[Trajectory] = []
    for inside in (Counter(goal=1), Silent(goal=1)):
        praised = shaped_reward(lambda actions, step: 1.0)(inside)
        environment = recorder(AgentInfo(name="mine"), kept.append)(max_steps(2)(praised))
        environment.reset(Task(id="t", prompt="Go."))
        assert environment.step(LOOK).reward == 1.0
    assert [run.outcome.status for run in kept] == [OutcomeStatus.SUCCESS, OutcomeStatus.UNKNOWN]
    assert [run.agent_steps[0].reward for run in kept] == [1.0, 1.0]


def test_a_recorder_passes_on_each_episode_once_with_its_outcome() -> None:
    kept: list[Trajectory] = []
    environment = recorder(AgentInfo(name="mine", model="m"), kept.append)(Counter(goal=2))
    environment.reset(Task(id="t", prompt="Go."))
    environment.step(LOOK)
    environment.step(LOOK)
    environment.reset(Task(id="u", prompt="Go."))
    environment.step(LOOK)
    environment.close()
    environment.close()
    first, second = kept
    assert (first.task.id, first.outcome.status, first.outcome.reward) == ("t", OutcomeStatus.SUCCESS, 1.0)
    assert [step.actor.value for step in first.steps] == ["system", "user", "agent", "agent"]
    assert (second.task.id, second.outcome.status) == ("u", OutcomeStatus.UNKNOWN)
    cut: list[Trajectory] = []
    limited = recorder(AgentInfo(name="mine"), cut.append)(max_steps(1)(Counter()))
    limited.reset(Task(prompt="p"))
    limited.step(LOOK)
    assert cut[0].outcome.status is OutcomeStatus.TRUNCATED


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("test/counter", Counter)
    return "test/counter"


def test_options_of_a_reference_are_typed_and_checked(counter: str) -> None:
    assert registry.task_source(counter).make().goal == 3  # type: ignore[attr-defined]
    chosen: Any = registry.task_source("test/counter?goal=5&pace=fast")
    assert (chosen.goal, chosen.pace) == (5, "fast")
    for wrong, message in (
        ("?goal=many", "goal"),
        ("?pace=never", "pace"),
        ("?gaol=5", "goal, pace"),
        ("?goal=1&goal=2", "each option once"),
        ("?goal", "option=value"),
        ("?", "option=value"),
    ):
        with pytest.raises(InvalidInput, match=message):
            registry.task_source(counter + wrong)
    with pytest.raises(InvalidInput, match="valid: difficulty, types, forbidden, tasks"):
        registry.task_source("quintain/inventory?colour=red")


def test_a_registered_environment_takes_no_name_that_is_taken(counter: str) -> None:
    assert {"quintain/inventory", "test/counter"} <= set(registry.environment_ids())
    for name in (counter, "quintain/inventory"):
        with pytest.raises(Conflict, match="taken"):
            registry.register(name, Counter)
    with pytest.raises(InvalidInput, match="acme/shop"):
        registry.register("not a name", Counter)


def test_a_mixture_draws_by_weight_and_plays_each_task_where_it_belongs(counter: str) -> None:
    """Of 5 tasks with weights 2 to 1: 3.33 and 1.67, so 3 and 2 by largest remainder."""
    source = registry.task_source({"quintain/inventory": 2, "test/counter?goal=2": 1})
    assert source.id == "mix(quintain/inventory=2,test/counter?goal=2=1)"
    tasks = source.tasks("train", 5, 0)
    assert [task.environment for task in tasks].count("quintain/inventory") == 3
    assert len({task.environment for task in tasks[:2]}) == 2
    assert source.tasks("train", 5, 0) == tasks
    environment = source.make()
    environment.reset(next(task for task in tasks if task.environment == "test/counter?goal=2"))
    assert (environment.id, environment.max_turns) == ("test/counter", 9)
    assert [environment.step(LOOK).terminated for _ in range(2)] == [False, True]
    other = source.make()
    first = next(task for task in tasks if task.environment == "quintain/inventory")
    assert other.reset(first) == Inventory().make().reset(first)
    assert len(other.tools) == 4
    with pytest.raises(InvalidInput, match=r"got .x. of None; draw tasks from the mixture"):
        source.make().reset(Task(id="x", prompt="p"))
