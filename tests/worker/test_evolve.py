"""The job kind `evolve` in this process, with a model that knows nothing: it ends, it is honest, and it can die anywhere.

That it makes an agent better is shown with the embedded model, in tests/system/test_evolve_by_tool.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import InvalidInput
from quintain.jobs.directory import JobDirectory
from quintain.records.agent import Agent
from quintain.records.evaluation import Evaluation
from quintain.records.jobs.evolve import LevelsConfig
from quintain.records.jobs.job import EvolveSpec, JobResult
from quintain.worker.evolution import loop as evolve
from quintain.worker.evolution.loop import Curriculum, Patience
from trainers.runs import Killed, same
from worker.job_folder import Stopping, events, outputs, resuming, trajectories, warnings
from worker.online import BREVITY, evolution

INVENTORY = "quintain/inventory"
SMALL: dict[str, Any] = {
    "iterations": 2,
    "tasks_per_iteration": 2,
    "attempts": 2,
    "temperature": 1.0,
    "max_turns": 1,
    "ratio": 1,
    "evaluation_tasks": 2,
    "final_tasks": 2,
    "patience": None,
}
"""Four episodes of exploring, two steps of training, two episodes of measuring: 2 + 2 x 8 + 2 steps, for an agent that never
gets better is not compared with itself."""


def spec(agent: Agent, folder: Path, environment: str = INVENTORY, **settings: Any) -> EvolveSpec:
    training = {"checkpoint_every_steps": 1}
    return evolution(agent, folder, environment, training, max_new_tokens=6, **SMALL | settings)


def play(folder: Path, given: EvolveSpec, **stops: int) -> JobResult:
    job = folder / "job-1"
    return evolve.run(given, job, Stopping(job, **stops))


def test_an_evolution_killed_again_and_again_ends_with_the_agent_and_the_report_of_one_that_was_not(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    """Deaths while it explores, tries again, trains, is measured, and in the last comparison.

    Every run is learnt from (no threshold), each round from the newest agent. Nothing is ever solved, so each of the two tasks is
    tried once more: 2 + 2 x (4 + 2 + 2 + 2) + 2 = 24 steps.
    """
    whole, again = tmp_path / "whole", tmp_path / "again"
    rule = {"threshold": None, "start_from": "last", "reflect": 1}
    expected = play(whole, spec(tiny_agent, whole, **rule))
    for step in (5, 7, 9, 11, 23):
        with pytest.raises(Killed):
            play(again, spec(tiny_agent, again, **rule), kill_at=step)
    result = play(again, spec(tiny_agent, again, **rule))
    assert result == expected
    for name in ("01-train", "02-train"):
        assert same(whole / "models" / name, again / "models" / name)
    runs = trajectories(again / "job-1")
    assert len({run.episode_key for run in runs}) == len(runs) == 2 + 2 * 8 + 2, "no episode is played twice"

    first, second = result.report["rounds"]
    assert (first["explored"], first["retried"]) == (4, 2)
    assert "rate of the starter for sft" in first["learning_rate_rule"]
    assert first["selected"] + sum(first["left_out"].values()) == 4, "a second try that failed is no run to learn from"
    assert (first["dataset_id"], first["agent"]) == ("ds-1-1", "pupil-round-1")
    built = {record["dataset"]["id"]: record["trajectory_ids"] for record in outputs(again / "job-1", "dataset")}
    assert {name: len(ids) for name, ids in built.items()} == {"ds-1-1": first["rows"], "ds-1-2": second["rows"]}
    explored = {run.id for run in runs if "round:1" in run.tags}
    assert set(built["ds-1-1"]) <= explored
    agents = {agent["job_id"]: agent for agent in outputs(again / "job-1", "agent")}
    assert {job_id: agent["parent"] for job_id, agent in agents.items()} == {
        "job-1/01-train": "agent:tiny@1",
        "job-1/02-train": "pupil-round-1",
        "job-1": "agent:tiny@1",
    }
    assert (agents["job-1"]["name"], agents["job-1"]["dataset_id"]) == ("pupil", None), "no round was better"
    chosen_by, fresh = (suite(outputs(again / "job-1", "evaluation"), name) for name in ("00-start", "final-start"))
    assert chosen_by == suite(outputs(again / "job-1", "evaluation"), "02-evaluate")
    assert len(fresh) == 2
    purposes = [evaluation["purpose"] for evaluation in outputs(again / "job-1", "evaluation")]
    assert (purposes.count("measurement"), set(purposes)) == (1, {"measurement", "selection"})
    assert not chosen_by & fresh, "the last comparison is on tasks that no round was chosen by"
    curve = [e.metrics["success_rate"] for e in events(whole / "job-1") if e.metrics and "success_rate" in e.metrics]
    assert curve == [result.report["start_success"], first["success"], second["success"]]
    assert events(whole / "job-1")[-1].step == events(whole / "job-1")[-1].total_steps


def test_a_round_of_ppo_learns_from_what_it_plays_and_ends_the_same_when_it_is_killed(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    """A round has two rollouts of a task played twice, an update each: 2 + 2 x (2 + 2) + 2 steps. Short runs are rewarded."""
    playing = {"rollouts": 2, "tasks_per_step": 1, "group_size": 2, "updates_per_rollout": 1, "max_turns": 1}
    training = {**playing, "advantage": "reinforce_pp", "max_new_tokens": 6, "checkpoint_every_steps": 1}
    settings = {"iterations": 2, "start_from": "last", "max_turns": 1, "evaluation_tasks": 2, "final_tasks": 2}

    def given(folder: Path) -> EvolveSpec:
        made = evolution(tiny_agent, folder, INVENTORY, training, max_new_tokens=6, train="ppo", **settings)
        return made.model_copy(update={"reward": BREVITY})

    whole, again = tmp_path / "whole", tmp_path / "again"
    expected = play(whole, given(whole))
    for step in (3, 9):
        with pytest.raises(Killed):
            play(again, given(again), kill_at=step)
    assert play(again, given(again)) == expected
    for name in ("01-train", "02-train"):
        assert same(whole / "models" / name, again / "models" / name)
    assert not same(whole / "models" / "01-train", whole / "models" / "02-train")
    for number, report in enumerate(expected.report["rounds"], 1):
        assert (report["explored"], report["selected"], report["explored_success"]) == (4, 4, 0.0)
        assert (report["agent"], report["decision"]) == (f"pupil-round-{number}", "kept")
        assert "dataset_id" not in report
    runs = [run for run in trajectories(again / "job-1") if "rollout" in run.tags]
    assert len({run.episode_key for run in runs}) == len(runs) == 8, "no episode is played twice"
    assert outputs(again / "job-1", "dataset") == []


def suite(evaluations: list[dict[str, Any]], stage: str) -> set[str]:
    (found,) = {e["id"]: Evaluation.model_validate(e) for e in evaluations if e["id"] == f"eval-1-{stage}"}.values()
    return {result.task_id for result in found.results}


def test_rounds_that_select_nothing_train_nothing_climb_all_levels_and_use_patience_up(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    """In one turn nobody solves a task. Each level has a round at most, and patience counts on the last one: rounds 2 and 3."""
    levels = {"levels": [f"{INVENTORY}?difficulty={name}" for name in ("easy", "hard")], "max_iterations": 1}
    given = spec(tiny_agent, tmp_path, iterations=9, tasks_per_iteration=1, patience=2, curriculum=levels)
    result = play(tmp_path, given)
    rounds = result.report["rounds"]
    assert [report["environment"].rpartition("=")[2] for report in rounds] == ["easy", "hard", "hard"]
    assert {(report["decision"], report["selected"], report["explored"]) for report in rounds} == {
        ("nothing_selected", 0, 2)
    }
    assert "patience: 2 rounds" in result.report["stopped"]
    assert (result.report["result_round"], result.report["final"]["before"], result.success_rate) == (0, 0.0, 0.0)
    assert "its weights" in result.report["final"]["note"]
    (agent,) = outputs(tmp_path / "job-1", "agent")
    assert (agent["name"], agent["parent"], agent["model"]["source"]) == ("pupil", "agent:tiny@1", "folder")
    found = warnings(tmp_path / "job-1")
    assert [code for code, _ in found] == ["nothing_selected", "level_not_reached", *["nothing_selected"] * 2]
    assert "below_threshold" in found[0][1] or "no_verdict" in found[0][1]
    assert not (tmp_path / "datasets").exists()


def test_a_stopped_evolution_is_continued_by_a_job_that_keeps_finished_stages(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    """It stops when it has explored for the second time, and before it has chosen: nothing of that is played again."""
    given = spec(tiny_agent, tmp_path, threshold=None, start_from="last")
    stopped = play(tmp_path, given, stop_at=12)
    assert stopped.is_partial
    assert [report["round"] for report in stopped.report["rounds"]] == [1]
    shutil.rmtree(JobDirectory(tmp_path / "job-1").stages / "02-select")
    second = resuming(tmp_path / "job-2", given, "job-1")
    assert (second.stages / "02-explore" / "result.json").exists()
    result = evolve.run(given, second.path, Stopping(second.path))
    assert result.report["rounds"][0] == stopped.report["rounds"][0]
    assert [report["dataset_id"] for report in result.report["rounds"]] == ["ds-1-1", "ds-2-2"]
    assert [agent["job_id"] for agent in outputs(tmp_path / "job-2", "agent")] == [
        "job-1/01-train",
        "job-2/02-train",
        "job-2",
    ]
    runs = trajectories(tmp_path / "job-2")
    assert sum("round:2" in run.tags for run in runs) == 4
    assert not [run for run in runs if "round:1" in run.tags]
    explored = {run.id for run in trajectories(tmp_path / "job-1")}
    assert {run.id for run in runs if "round:2" in run.tags} < explored
    taken = {record["trajectory_id"] for record in outputs(tmp_path / "job-2", "taken_over")}
    assert taken == explored
    assert result.report["taken_over"]["episodes"] == 2 + 4 + 2 + 4, (
        "the start, the first round, and the second exploration"
    )
    played = taken | {run.id for run in runs}
    assert (result.trajectories.count, result.trajectories.filter) == (len(played), {"job_id": "job-2"})


@pytest.mark.parametrize(("split", "words"), [("held_out", "held-out tasks"), ("train", "training tasks")])
def test_too_few_tasks_are_rejected_before_the_first_episode(
    tmp_path: Path, tiny_agent: Agent, split: str, words: str
) -> None:
    """Held out 2 + 2 are needed, and 4 to explore; there are 3 of one and 9 of the other."""
    tasks = tmp_path / "tasks.jsonl"
    splits = [split] * 3 + [{"held_out": "train", "train": "held_out"}[split]] * 9
    rows = [
        {"id": f"q{i}", "prompt": f"What is {i} + 1?", "answer": str(i + 1), "split": s} for i, s in enumerate(splits)
    ]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(InvalidInput) as raised:
        play(tmp_path, spec(tiny_agent, tmp_path, f"quintain/tasks?file={tasks}", tasks_per_iteration=4))
    assert raised.value.code == "too_few_tasks"
    assert words in raised.value.message
    assert not (tmp_path / "job-1" / "stages").exists()


def climb(ladder: Curriculum, *successes: float | None) -> list[str]:
    """The environments of these rounds."""
    seen = []
    for success in successes:
        seen.append(ladder.environment)
        ladder.advance(success)
    return seen


def test_a_level_ends_when_it_is_solved_or_has_had_its_rounds() -> None:
    """The seed's curriculum loops for ever where the threshold is not met."""
    config = LevelsConfig(levels=("a", "b", "c"), advance_at=0.8, max_iterations=2)
    assert climb(Curriculum(config.levels, config), 0.8, 0.79, 0.5, 0.9, 0.9) == ["a", "b", "b", "c", "c"]
    assert climb(Curriculum(config.levels, config), None, None, 0.0, 0.0, 0.0) == ["a", "a", "b", "b", "c"]


def test_a_level_that_ends_unsolved_gives_a_warning() -> None:
    config = LevelsConfig(levels=("a", "b"), max_iterations=1)
    message = Curriculum(config.levels, config).advance(0.25)
    assert [word for word in ("success in a is 25%", "below 80%", "continuing with b") if word not in message] == []
    assert Curriculum(config.levels, config).advance(0.8) is None


def test_a_single_environment_has_no_levels() -> None:
    ladder = Curriculum(("a",), None)
    assert ladder.is_last
    assert climb(ladder, 0.0, 1.0, 1.0) == ["a", "a", "a"]


def test_patience_counts_rounds_in_a_row_and_a_sure_gain_begins_it_anew() -> None:
    patience = Patience(2)
    decisions = ("kept", "better", "ahead", "nothing_selected")
    assert [patience.spend(decision) for decision in decisions] == [False, False, False, True]
    assert not any(map(Patience(None).spend, ["kept"] * 10))
