"""Agents behind endpoints: a model server on this machine acts in the inventory environment, by both protocols."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acting_endpoint import Call, expert, heard, says
from fake_endpoint import Answer, Asked, FakeEndpoint, fails, serving
from quintain.endpoints import client as client_module
from quintain.environments.inventory import Inventory
from quintain.errors import InvalidInput, Refused, Unavailable
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.jobs.job import EvaluateSpec, JobResult
from quintain.records.trajectory import OutcomeStatus
from quintain.worker.job_kinds import rollouts
from quintain.worker.policies import remote_policy
from quintain.worker.policies.creation import open_policy
from trainers.runs import Killed
from worker.job_folder import Stopping, evaluation, outputs, resuming, trajectories

AGENT = Agent(
    id="agent:far@1", name="far", version=1, model=ModelRef(source="endpoint", path="fake", revision="fake-1")
)
INVENTORY = "quintain/inventory"
PROTOCOLS = pytest.mark.parametrize("protocol", ["openai", "anthropic"])


def play(
    folder: Path,
    fake: FakeEndpoint,
    n: int = 3,
    *,
    agent: Agent = AGENT,
    profile: dict[str, Any] | None = None,
    kill_after: int = 0,
    **spec: Any,
) -> JobResult:
    given = {"environment": INVENTORY, "n_tasks": n, "seed": 2, "sampling": Sampling(max_new_tokens=300), **spec}
    endpoint = fake.profile(**{"max_attempts": 2, "concurrency": 3, **(profile or {})})
    reporter = Stopping(folder, "trajectory", kill_after, kills=True)
    return rollouts.run(EvaluateSpec(agent=agent, endpoint=endpoint, **given), folder, reporter)


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.01)


@PROTOCOLS
def test_a_model_behind_an_endpoint_solves_tasks_by_native_calls_and_its_cost_is_counted(
    tmp_path: Path, protocol: str
) -> None:
    """Each turn costs 100 tokens in and 10 out at 1 and 10 USD a million: 0.0002 USD."""
    with serving(expert) as fake:
        prices = {"protocol": protocol, "input_usd_per_mtok": 1, "output_usd_per_mtok": 10}
        result = play(tmp_path, fake, 6, profile=prices)
    found = evaluation(tmp_path)
    assert (found.rate.successes, found.rate.n, found.n_error) == (6, 6, 0)
    turns = sum(episode.turns for episode in found.results)
    assert len(fake.asked) == turns
    assert found.mean_output_tokens == pytest.approx(10 * turns / 6)
    assert found.cost_usd == pytest.approx(0.0002 * turns)
    spent = {
        "requests": turns, "retries": 0, "input_tokens": 100 * turns, "output_tokens": 10 * turns, "unmetered": 0,
        "usd": pytest.approx(0.0002 * turns),
    }  # fmt: skip
    assert {name: result.report[name] for name in spent} == spent
    assert result.report["by_difficulty"].keys() == found.by_difficulty.keys()
    assert fake.most_at_once() <= 3
    step = trajectories(tmp_path)[0].agent_steps[0]
    assert (step.model, step.thought, step.usage and step.usage.input_tokens) == ("expert-1-0101", step.thought, 100)
    assert step.extra["cost_usd"] == pytest.approx(0.0002)
    assert step.sampled is None
    assert step.observations[0].call_id == step.actions[0].call_id == "c0"
    assert {asked.body["max_tokens"] for asked in fake.asked} == {300}


def test_an_endpoint_that_repeats_the_key_brings_it_into_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-verysecret-0123456789"
    monkeypatch.setenv("AN_AGENTS_KEY", key)

    def echo(asked: Asked, before: int) -> Answer:
        document = {"model": f"m {key}", "choices": [{"message": {"content": f"You sent {key}."}}]}
        return Answer(body=json.dumps(document).encode())

    with serving(echo) as fake:
        play(tmp_path, fake, 1, profile={"api_key_env": "AN_AGENTS_KEY"})
    assert {asked.headers["Authorization"] for asked in fake.asked} == {f"Bearer {key}"}
    assert trajectories(tmp_path)[0].agent_steps[0].model == "m [the key]"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and key[:8].encode() in path.read_bytes()]


def test_a_react_agent_writes_text_and_gets_observations_as_a_user(tmp_path: Path) -> None:
    def react(asked: Asked, before: int) -> Answer:
        assert "tools" not in asked.body
        assert asked.body["stop"] == ["\nObservation:"]
        if before == 0:
            return says(asked, 'Thought: Look.\nAction: search {"query": "chair"}\nObservation: I make this up')
        assert heard(asked)[-2] == ("assistant", 'Thought: Look.\nAction: search {"query": "chair"}')
        assert heard(asked)[-1][1].startswith("Observation: ")
        return says(asked, "Action: submit {")

    agent = AGENT.model_copy(update={"template": "react"})
    with serving(react) as fake:
        play(tmp_path, fake, 1, agent=agent, max_turns=2)
    (run,) = trajectories(tmp_path)
    first, second = run.agent_steps
    assert (first.thought, first.actions[0].args) == ("Look.", {"query": "chair"})
    assert (second.message, second.actions) == ("Action: submit {", ())
    assert str(run.steps[-1].message).startswith("Your turn could not be read:")


@PROTOCOLS
def test_the_model_learns_of_invalid_arguments_and_the_conversation_continues(tmp_path: Path, protocol: str) -> None:
    def answer(asked: Asked, before: int) -> Answer:
        if before == 0:
            bad = Call("search", '{"query": ', "bad") if protocol == "openai" else Call("search", "chair", "bad")
            return says(asked, "Look.", bad)
        return says(asked, "Again.", Call("nothing such", {}, f"c{before}")) if before == 1 else expert(asked)

    with serving(answer) as fake:
        play(tmp_path, fake, 1, profile={"protocol": protocol}, max_turns=2)
    (run,) = trajectories(tmp_path)
    first, second = run.agent_steps
    assert first.actions == ()
    assert str(first.message).startswith('Look.\n<tool_call>{"name": "search", "arguments": ')
    assert [action.tool for action in second.actions] == ["nothing such"]
    assert second.observations[0].is_error
    message = heard(fake.asked[1])
    assert [role for role, _ in message[-2:]] == ["tool", "user"]
    assert message[-1][1].startswith("Your turn could not be read: expected a JSON object as arguments of 'search'")
    assert evaluation(tmp_path).results[0].failure in {"format", "wrong_tool"}


def test_a_busy_endpoint_is_asked_again_and_nothing_of_the_episode_is_lost(tmp_path: Path) -> None:
    with serving(lambda asked, before: fails(429, Retry_After="0") if before % 3 == 0 else expert(asked)) as fake:
        result = play(tmp_path, fake, 2, profile={"max_attempts": 6})
    assert evaluation(tmp_path).rate.value == 1
    assert result.report["retries"] == len(fake.asked) - sum(e.turns for e in evaluation(tmp_path).results) > 0


ONE_EPISODE: dict[str, tuple[Callable[[Asked], Answer], OutcomeStatus, str | None]] = {
    "refused by the model": (lambda a: says(a, "", stop="refusal"), OutcomeStatus.TRUNCATED, "gave_up"),
    "kept back by a filter": (lambda a: fails(400, "content_filter"), OutcomeStatus.TRUNCATED, "gave_up"),
    "too long": (lambda a: fails(400, "prompt is too long: 9 tokens"), OutcomeStatus.TRUNCATED, "timeout"),
    "busy": (lambda a: fails(503), OutcomeStatus.ERROR, "endpoint_error"),
    "not taken": (lambda a: fails(400, "messages.3 is not valid"), OutcomeStatus.ERROR, "endpoint_error"),
    "no answer": (lambda a: Answer(body=b"<html>"), OutcomeStatus.ERROR, "endpoint_error"),
}


@pytest.mark.parametrize(("broken", "status", "failure"), ONE_EPISODE.values(), ids=ONE_EPISODE)
def test_what_concerns_one_conversation_costs_one_episode(
    tmp_path: Path, broken: Callable[[Asked], Answer], status: OutcomeStatus, failure: str
) -> None:
    cursed = Inventory().tasks("held_out", 3, 2)[1].prompt
    answer = lambda a, before: broken(a) if cursed in dict(map(reversed, heard(a))) and len(heard(a)) > 3 else expert(a)  # noqa: E731
    with serving(answer) as fake:
        play(tmp_path / "job", fake, profile={"protocol": "anthropic"})
    found = {
        run.task.prompt: result
        for run, result in zip(trajectories(tmp_path / "job"), results(tmp_path / "job"), strict=True)
    }
    assert (found[cursed].status, found[cursed].failure) == (status, failure)
    assert [result.success for prompt, result in found.items() if prompt != cursed] == [True, True]
    assert (found[cursed].error is None) == (broken is ONE_EPISODE["too long"][0])
    steps = next(run.agent_steps for run in trajectories(tmp_path / "job") if run.task.prompt == cursed)
    assert (steps[-1].train is False) == (failure == "gave_up"), "nobody shall learn a turn that was not written"


def results(folder: Path) -> list[Any]:
    by_run = {result.trajectory_id: result for result in evaluation(folder).results}
    return [by_run[run.id] for run in trajectories(folder)]


@pytest.mark.parametrize(("status", "kind"), [(401, Refused), (404, InvalidInput), (400, InvalidInput)])
def test_what_concerns_all_requests_ends_the_job_with_the_remedy(tmp_path: Path, status: int, kind: Any) -> None:
    with serving(lambda asked, before: fails(status)) as fake, pytest.raises(kind, match=r"check"):
        play(tmp_path, fake, 8, profile={"concurrency": 1})
    assert len(fake.asked) == 1
    assert outputs(tmp_path, "trajectory") == []


def test_an_endpoint_that_is_silent_for_long_ends_the_job(tmp_path: Path) -> None:
    with serving(lambda asked, before: fails(503)) as fake, pytest.raises(Unavailable, match="20 consecutive requests"):
        play(tmp_path, fake, 40, profile={"concurrency": 1, "max_attempts": 1})
    assert len(fake.asked) == remote_policy.BROKEN_AFTER


def test_a_killed_job_plays_what_is_left_and_pays_for_no_answer_twice(tmp_path: Path) -> None:
    with serving(expert) as fake:
        play(tmp_path / "whole", fake, 6, concurrency=4)
        asked = len(fake.asked)
        with pytest.raises(Killed):
            play(tmp_path / "job", fake, 6, concurrency=4, kill_after=2)
        result = play(tmp_path / "job", fake, 6, concurrency=4)
        assert len(fake.asked) == 2 * asked
    said = [
        sorted((run.task.id, str(run.steps)) for run in trajectories(tmp_path / folder)) for folder in ("whole", "job")
    ]
    assert said[0] == said[1]
    assert (result.success_rate, result.report["requests"]) == (1.0, asked)


def test_a_failed_job_that_is_resumed_goes_on_with_the_answers_of_the_one_before(tmp_path: Path) -> None:
    """The account is empty after seven answers; the new job asks for what is left."""
    refused = fails(429, "insufficient_quota")
    with serving(lambda asked, before: refused if before == 7 else expert(asked)) as fake:
        with pytest.raises(Refused, match="no credit left; add credit, then resume the job"):
            play(tmp_path / "job-1", fake, 4, profile={"concurrency": 1})
        spec = EvaluateSpec(agent=AGENT, environment=INVENTORY, n_tasks=4)
        resuming(tmp_path / "job-2", spec, "job-1")
        result = play(tmp_path / "job-2", fake, 4, profile={"concurrency": 1})
        turns = sum(episode.turns for episode in evaluation(tmp_path / "job-2").results)
        assert (result.success_rate, len(fake.asked), result.report["requests"]) == (1.0, turns + 1, turns - 7)


def test_each_attempt_at_a_task_is_asked_for_and_costs_nothing_known_without_prices(tmp_path: Path) -> None:
    with serving(expert) as fake:
        result = play(tmp_path, fake, 1, repeats=3)
        assert len(fake.asked) == 3 * len(trajectories(tmp_path)[0].agent_steps)
    assert (evaluation(tmp_path).cost_usd, result.report["usd"]) == (None, None)
    assert evaluation(tmp_path).results[0].output_tokens > 0


def test_a_job_that_is_asked_to_stop_waits_for_no_endpoint(tmp_path: Path) -> None:
    folder = tmp_path / "job"

    def hang(asked: Asked, before: int) -> Answer:
        if before < 3:
            return expert(asked)
        reporter.request_stop()
        return fails(429, Retry_After="200")

    with serving(hang) as fake:
        reporter = Stopping(folder)
        endpoint = fake.profile(max_attempts=9)
        spec = EvaluateSpec(agent=AGENT, endpoint=endpoint, environment="quintain/inventory", n_tasks=3, seed=2)
        result = rollouts.run(spec, folder, reporter)
    assert result == JobResult(report={"episodes": 0, "planned": 3})


def test_names_that_endpoints_do_not_take_are_translated_both_ways() -> None:
    from quintain.endpoints.conversation import ToolNames

    tools = [{"type": "function", "function": {"name": name}} for name in ("fs.read", "fs/read", "look", "x" * 80)]
    names = ToolNames(tools)
    sent = [schema["function"]["name"] for schema in names.schemas(tools)]
    assert sent == ["fs_read", "fs_read_2", "look", "x" * 64]
    assert [names.real(name) for name in sent] == ["fs.read", "fs/read", "look", "x" * 80]
    assert (names.sent("made up!"), names.real("made_up_")) == ("made_up_", "made_up_")


def test_signed_thinking_goes_back_as_it_came_and_is_kept_as_reasoning(tmp_path: Path) -> None:
    block = {"type": "thinking", "thinking": "A chair, then.", "signature": "c2ln"}

    def thinks(asked: Asked, before: int) -> Answer:
        content = [block, {"type": "tool_use", "id": f"c{before}", "name": "search", "input": {"query": "chair"}}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        return Answer(body=json.dumps({"content": content, "stop_reason": "tool_use", "usage": usage}).encode())

    with serving(thinks) as fake:
        play(tmp_path, fake, 1, profile={"protocol": "anthropic"}, max_turns=2)
    assert fake.asked[1].body["messages"][1]["content"][0] == block
    (step, _) = trajectories(tmp_path)[0].agent_steps
    assert (step.thought, step.extra["reasoning"], step.model) == (None, "A chair, then.", "fake-1")


def test_an_agent_without_weights_opens_nothing_where_the_job_needs_them() -> None:
    with pytest.raises(InvalidInput, match="expected local weights"):
        open_policy(AGENT, Sampling())
