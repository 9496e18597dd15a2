"""Why episodes fail, on runs that are built for each rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.evaluation.failures import UNREADABLE, failure_of
from quintain.records.evaluation import EpisodeResult
from quintain.records.protocols import Environment, Reply, TimeStep, Turn
from quintain.records.trajectory import (
    Action,
    Actor,
    AgentInfo,
    Observation,
    Outcome,
    Step,
    Task,
    Trajectory,
)

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def call(tool: str = "look", answer: str = "box", *, error: bool = False, args: dict[str, Any] | None = None) -> Step:
    action = Action(tool=tool, args={"n": answer} if args is None else args)
    return Step(actor=Actor.AGENT, actions=(action,), observations=(Observation(content=answer, is_error=error),))


def say(text: str) -> Step:
    return Step(actor=Actor.AGENT, message=text)


def hear(text: str) -> Step:
    return Step(actor=Actor.USER, message=text)


BROKEN = (say("<tool_call>{"), hear(f"{UNREADABLE} the call is not closed."))
NO_JSON = Step(actor=Actor.AGENT, actions=(Action(tool="look", raw_args="{n:"),))


def run(*steps: Step, status: str = "failure", tools: bool = True, **metadata: Any) -> Trajectory:
    return Trajectory(
        tools=(TOOL,) if tools else (),
        task=Task(id="t", prompt="?", metadata=metadata),
        steps=(hear("?"), *steps),
        outcome=Outcome(status=status),
    )


@pytest.mark.parametrize(
    ("why", "failed"),
    [
        (None, run(call(), status="success")),
        (None, run(call(), status="unknown")),
        ("environment_error", run(call(), status="error")),
        ("loop", run(call(), call(), call(), say("done"))),
        ("loop", run(call(), call(answer="a"), call(answer="a"), call(answer="a"), status="truncated")),
        ("wrong_answer", run(call(), call(), call(answer="b"), call())),
        ("wrong_answer", run(call(args={}), call(args={"n": 1}), call(args={"n": 2}))),
        ("format", run(call(), *BROKEN, status="truncated")),
        ("format", run(*BROKEN, *BROKEN, call(), status="truncated")),
        ("timeout", run(*BROKEN, call(), status="truncated")),
        ("format", run(call(), NO_JSON)),
        ("wrong_tool", run(call(), call("fly"))),
        ("wrong_tool", run(call("fly"), call("swim"), call())),
        ("bad_arguments", run(call(), call(error=True), status="truncated")),
        ("bad_arguments", run(call(answer="a", error=True), call(answer="b", error=True), call())),
        ("wrong_tool", run(call(), target_tools=["search"])),
        ("wrong_answer", run(call(), target_tools=["look", "search"])),
        ("wrong_answer", run(call(), say("I cannot find the box."))),
        ("gave_up", run(call(), say(" "))),
        ("gave_up", run(call(), say("It is in the box."), status="truncated")),
        ("wrong_answer", run(say("I cannot say more than 4."), tools=False)),
        ("timeout", run(say("Hm."), tools=False, status="truncated")),
        ("timeout", run(call(), call(answer="b"), status="truncated")),
        ("timeout", run(Step(actor=Actor.AGENT, extra={"acted": False}), status="truncated")),
    ],
)
def test_the_first_rule_that_holds_names_the_failure(why: str | None, failed: Trajectory) -> None:
    assert failure_of(failed) == why


class Room:
    """An environment that ends after two looks, with what it measured."""

    id, system_prompt, tools, max_turns = "test/room", "", (TOOL,), 4

    def __init__(self, info: dict[str, Any]) -> None:
        self.info, self.seen = info, 0

    def reset(self, task: Task) -> TimeStep:
        return TimeStep(message=task.prompt)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        self.seen += 1
        over = self.seen == 2
        seen = (Observation(content=f"box {self.seen}"),)
        return TimeStep(observations=seen, reward=0.0 if over else None, terminated=over, info=self.info)

    def close(self) -> None:
        pass


class Rooms:
    id, version = "test/room", "1"

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        return []

    def make(self) -> Environment:
        return Room(self.info)


class Looker:
    """Looks each turn."""

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        return [Reply(text="look", actions=(Action(tool="look", args={}),)) for _ in turns]

    def close(self, episode_id: str) -> None:
        pass


def played(
    info: dict[str, Any], forbidden: tuple[str, ...] = (), metadata: dict[str, Any] | None = None
) -> EpisodeResult:
    settings = EpisodeSettings(
        seed=0, max_turns=None, concurrency=1, agent=AgentInfo(name="looker"), forbidden=forbidden
    )
    plans = [EpisodePlan(Task(id="t", prompt="?", metadata=metadata or {}))]
    return next(iter(run_episodes(Rooms(info), Looker(), plans, settings))).result


def test_an_episode_carries_what_its_environment_measured_at_the_end() -> None:
    info = {"metrics": {"recall@5": 0.4, "mrr": 0.25, "hits": 2, "bad": float("nan"), "huge": 10**400, "text": "no"}}
    result = played(info)
    assert result.metrics == {"recall@5": 0.4, "mrr": 0.25, "hits": 2.0}
    assert (result.failure, result.calls, result.forbidden) == ("wrong_answer", 2, None)
    assert played({"metrics": "garbage"}).metrics == {}


def test_tools_that_are_garbage_cost_no_run() -> None:
    strange = run(call()).model_copy(update={"tools": ({"function": "look"}, {"function": {}}, {})})
    assert failure_of(strange) == "wrong_tool"


def test_forbidden_tools_are_counted_by_task_and_by_request() -> None:
    assert played({}, forbidden=("look",)).forbidden == 2
    assert played({}, metadata={"forbidden": ["look"]}).forbidden == 2
    assert played({}, ("fly",), {"forbidden": ["swim"]}).forbidden == 0
