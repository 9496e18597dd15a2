"""Rollouts: temperatures, live scores, mixtures, and that a job which was stopped explores as a whole one does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_endpoint import Answer, Asked, says, serving
from quintain.errors import InvalidInput, NotFound
from quintain.records.agent import Agent, Sampling
from quintain.records.jobs.job import EvaluateSpec, JobResult, RolloutSpec, TrajectorySet
from quintain.records.labels.reward import JudgePart, RewardPart, RewardSpec
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.scoring.registry import scorer as find_scorer
from quintain.worker.job_kinds import rollouts
from quintain.worker.processes.reporter import FileReporter
from quintain.worker.rollouts.exploration import action_sequence
from scripted_judges import by_run
from worker.job_folder import Stopping, evaluation, outputs, resuming, scores, trajectories, warnings

SHORT = Sampling(temperature=0.05, max_new_tokens=10)
Play = Callable[..., JobResult]
MIX = "mix(quintain/inventory=1,quintain/tools-1k?k=8&mode=direct=1)"


@pytest.fixture
def play(tiny_agent: Agent) -> Play:
    """Runs a rollout job of two tasks."""

    def run(folder: Path, reporter: FileReporter | None = None, **settings: Any) -> JobResult:
        small = {"environment": "quintain/inventory", "n_tasks": 2, "sampling": SHORT, "max_turns": 2, "seed": 3}
        return rollouts.run(RolloutSpec(agent=tiny_agent, **small | settings), folder, reporter or Stopping(folder))

    return run


def runs(folder: Path) -> dict[tuple[str, int], Trajectory]:
    """(Task, attempt) -> run."""
    return {(run.task.id or "", run.extra["episode_result"].get("repeat", 0)): run for run in trajectories(folder)}


def written(folder: Path) -> dict[tuple[str, int], list[tuple[int, ...]]]:
    """(Task, attempt) -> the tokens of its turns."""
    return {
        key: [step.sampled.token_ids for step in run.agent_steps if step.sampled] for key, run in runs(folder).items()
    }


def test_a_stopped_job_explores_and_scores_as_a_whole_one(tmp_path: Path, play: Play) -> None:
    """At 0.05 attempts repeat each other; the third is hotter then, and hotter whichever attempt of the job plays it."""
    asked: dict[str, Any] = {"attempts": 3, "diversity": 4.0, "scorer": {"outcome": 1.0, "rules": 3.0}}
    whole = play(tmp_path / "whole", **asked)
    folder = tmp_path / "parts"
    for kind, after in (("score", 1), ("trajectory", 1)):
        assert play(folder, Stopping(folder, kind, after), **asked).trajectories is None
    assert play(folder, **asked).report == whole.report
    assert written(folder) == written(tmp_path / "whole")
    assert len(outputs(folder, "score")) == 6
    played = runs(tmp_path / "whole")
    assert {run.extra["precision"] for run in played.values()} == {"fp32"}, "small models are not probed"
    for task in {task for task, _ in played}:
        done = [action_sequence(played[task, attempt]) for attempt in range(3)]
        heat = [played[task, attempt].extra["temperature"] for attempt in range(3)]
        assert heat[:2] == [0.05, 0.05]
        assert heat[2] == pytest.approx(0.05 * (5 if done[0] == done[1] else 1))
    live = scores(tmp_path / "whole")
    scorer = find_scorer(asked["scorer"])
    by_id = {run.id: run for run in played.values()}
    assert [score.value for score in live] == [scorer.score(by_id[score.trajectory_id]).value for score in live]
    message = whole.report["scores"]
    assert (message["scorer"], message["scored"]) == ("mix(outcome=1, rules=3)", 6)
    assert message["mean"] == pytest.approx(sum(score.value or 0.0 for score in live) / 6)
    rate = whole.report["rate"]
    assert (rate["n"], rate["value"]) == (whole.n, whole.success_rate)
    assert rate["ci_low"] <= rate["value"] <= rate["ci_high"]
    assert 1 / 3 <= whole.report["distinct_action_sequences"] <= 1


def test_a_job_that_resumes_another_takes_over_its_episodes_with_a_verdict_and_ends_as_a_whole_one(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    """The first is stopped, the second before its first episode, and the third ends; one episode had ended in an error."""
    spec = EvaluateSpec(
        agent=tiny_agent, environment="quintain/inventory", n_tasks=5, sampling=SHORT, max_turns=2, concurrency=1
    )

    def measured(job: str, spec: EvaluateSpec, **stop: Any) -> JobResult:
        return rollouts.run(spec, tmp_path / job, Stopping(tmp_path / job, **stop))

    whole = measured("whole", spec)
    measured("first", spec, kind="trajectory", after=3)
    lines = tmp_path / "first" / "outputs" / "trajectory.jsonl"
    records = [json.loads(line) for line in lines.read_bytes().splitlines()]
    records[1]["record"]["extra"]["episode_result"]["status"] = "error"
    lines.write_text("".join(json.dumps(record) + "\n" for record in records))
    resuming(tmp_path / "second", spec, "first")
    assert measured("second", spec, kind="taken_over", after=1).report == {
        "episodes": 2,
        "planned": 5,
        "taken_over": {"episodes": 2, "note": "played by the job that this one resumes"},
    }
    resuming(tmp_path / "third", spec, "second")
    result = measured("third", spec)
    assert result.report["taken_over"]["episodes"] == 2
    assert written(tmp_path / "third") == written(tmp_path / "whole")
    taken = [record["record"]["id"] for record in (records[0], records[2])]
    assert [record["trajectory_id"] for record in outputs(tmp_path / "third", "taken_over")] == taken
    assert result.trajectories == TrajectorySet(count=5, filter={"job_id": "third"})
    apart = {"id", "job_id", "results", "failures", "mean_duration_s", "means_by_type", "means_by_difficulty"}
    found, expected = (evaluation(tmp_path / job).model_dump(exclude=apart) for job in ("third", "whole"))
    assert (found, len(evaluation(tmp_path / "third").results)) == (expected, 5)
    assert result.success_rate == whole.success_rate
    changed = spec.model_copy(update={"max_turns": 1})
    resuming(tmp_path / "other", changed, "third")
    assert "taken_over" not in measured("other", changed).report
    ((code, message),) = warnings(tmp_path / "other")
    assert (code, message.split(" are not taken over")[0]) == (
        "played_again",
        "5 episodes of the job that this one resumes",
    )
    resuming(tmp_path / "orphan", changed, "deleted")
    assert "taken_over" not in measured("orphan", changed).report
    assert [code for code, _ in warnings(tmp_path / "orphan")] == ["played_again"]


def test_each_run_contains_its_scheduled_temperature_and_unscored_runs_are_reported(tmp_path: Path, play: Play) -> None:
    result = play(tmp_path / "job", attempts=3, temperatures=(0.0, 0.8), scorer="answer", max_turns=1)
    assert [run.extra["temperature"] for (_, n), run in sorted(runs(tmp_path / "job").items()) if n == 1] == [0.4, 0.4]
    assert result.report["temperatures"] == [0.0, 0.8]
    message = result.report["scores"]
    assert (message["scored"], message["mean"], sum(message["unscored"].values())) == (0, None, 6)
    greedy = play(tmp_path / "greedy", sampling=SHORT.model_copy(update={"temperature": 0.0}), max_turns=1)
    assert "temperatures" not in greedy.report
    assert written(tmp_path / "greedy").items() <= written(tmp_path / "job").items()


def test_a_job_whose_scorer_is_not_there_ends_before_anything_is_played(tmp_path: Path, play: Play) -> None:
    with pytest.raises(NotFound, match="expected a scorer, got 'nope'"):
        play(tmp_path / "job", scorer="nope")
    with pytest.raises(InvalidInput, match="weight"):
        play(tmp_path / "other", scorer={"rules": 0.0, "outcome": 0.0})


def test_an_evaluation_of_a_mixture_is_stored_under_its_reference_with_separate_parts(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    folder = tmp_path / "job"
    spec = EvaluateSpec(agent=tiny_agent, environment=MIX, n_tasks=4, sampling=SHORT, max_turns=1, forbidden=("open",))
    result = rollouts.run(spec, folder, Stopping(folder))
    assert (evaluation(folder).environment, len(evaluation(folder).results), result.n) == (MIX, 4, 4)
    where = [run.task.environment for run in runs(folder).values()]
    assert sorted(where) == [*["quintain/inventory"] * 2, *["quintain/tools-1k?k=8&mode=direct"] * 2]
    by_environment = {name: rate["n"] for name, rate in result.report["by_environment"].items()}
    assert by_environment == {"quintain/inventory": 2, "quintain/tools-1k?k=8&mode=direct": 2}
    assert result.report["forbidden"]["episodes"]["n"] == 4


def test_runs_are_scored_by_a_judge_when_all_are_played_and_once(tmp_path: Path, play: Play) -> None:
    """A judge that never sees two different runs of a task alike ranks them; a resumed job asks nothing again."""

    def reply(asked: Asked, before: int) -> Answer:
        return says(json.dumps({"quotes": [], "ranking": [[i + 1] for i in range(len(by_run(asked.user)))]}))

    with serving(reply) as endpoint:
        part = JudgePart(
            endpoint=endpoint.profile(), rubric=RUBRICS["default"], mode="group", cache_dir=str(tmp_path / "cache")
        )
        reward = RewardSpec(parts=(RewardPart(scorer="judge:default", judge=part),))
        result = play(tmp_path / "job", attempts=2, sampling=Sampling(temperature=1.0, max_new_tokens=8), reward=reward)
        asked = len(endpoint.asked)
        play(tmp_path / "job", attempts=2, sampling=Sampling(temperature=1.0, max_new_tokens=8), reward=reward)
        assert len(endpoint.asked) == asked
    report = result.report["scores"]
    assert report["scored"] + sum(report["unscored"].values()) == 4 == len(outputs(tmp_path / "job", "score"))
    assert report["judges"]["judge:default"]["requests"] == asked
