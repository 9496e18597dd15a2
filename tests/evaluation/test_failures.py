"""Why episodes fail, on runs that are built for each rule."""

from __future__ import annotations

from typing import Any

import pytest

from evaluation.test_episodes import Counting, Ticking
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.evaluation.failures import UNREADABLE, failure_of
from quintain.records.evaluation import EpisodeResult
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


def played(
    info: dict[str, Any], forbidden: tuple[str, ...] = (), metadata: dict[str, Any] | None = None
) -> EpisodeResult:
    """An episode of two calls of `tick`, the last of which fails."""
    settings = EpisodeSettings(
        seed=0, max_turns=None, concurrency=1, agent=AgentInfo(name="ticking"), forbidden=forbidden
    )
    plans = [EpisodePlan(Task(id="t", prompt="?", metadata=metadata or {}))]
    return next(iter(run_episodes(Counting(0.0, info=info), Ticking(), plans, settings))).result


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
    assert played({}, forbidden=("tick",)).forbidden == 2
    assert played({}, metadata={"forbidden": ["tick"]}).forbidden == 2
    assert played({}, ("fly",), {"forbidden": ["swim"]}).forbidden == 0
