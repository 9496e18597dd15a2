"""What a round of an evolution learns from, out of runs as the stages leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quintain.datasets.rows import read_rows
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import Dataset, DatasetRow, GroupRow, PairRow
from quintain.records.evaluation import EpisodeResult
from quintain.records.hyperparameters.methods import CONFIGS
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.jobs.job import EvolveSpec
from quintain.records.labels.reward import LengthReward, RewardPart, RewardSpec
from quintain.records.trajectory import Actor, Outcome, OutcomeStatus, SampledTokens, Step, Task, Trajectory
from quintain.worker.evolution.round_dataset import RoundDataset, freeze_round, read_episodes

SAMPLED = SampledTokens(token_ids=(5, 2), logprobs=(-0.1, -0.2), tokenizer="tok")

Played = tuple[str, int, float | None, str]
"""Task, attempt, reward (None: the environment failed), what the agent wrote."""

ROUND: list[Played] = [
    ("a", 0, 1.0, "right"),
    ("a", 1, 0.0, "wrong"),
    ("a", 2, 0.6, "half"),
    ("b", 0, 0.0, "no"),
    ("b", 1, None, "broken"),
    ("c", 0, 1.0, "yes"),
    ("c", 1, 1.0, "yes"),
]


def spec(folder: Path, reward: RewardSpec | None = None, **settings: Any) -> EvolveSpec:
    config = EvolveConfig(**settings)
    return EvolveSpec(
        name="learner",
        agent=Agent(id="agent:base@1", name="base", version=1, model=ModelRef(source="folder", path="x")),
        environment="test/env",
        config=config,
        training=CONFIGS[config.train](),  # type: ignore[arg-type]
        reward=reward,
        output_dir="unused",
        datasets_dir=str(folder / "datasets"),
        seed=1,
    )


def stage(folder: Path, played: list[Played], job: str = "job-1") -> Path:
    """A stage's folder with these episodes in its outputs."""
    lines = []
    for task, attempt, reward, text in played:
        status = OutcomeStatus.ERROR if reward is None else OutcomeStatus("success" if reward >= 1 else "failure")
        result = EpisodeResult(task_id=task, repeat=attempt, status=status, reward=reward)
        run = Trajectory(
            episode_key=f"{job}/{task}/{attempt}",
            task=Task(id=task, prompt=f"do {task}", environment="test/env", metadata={"split": "train"}),
            steps=(Step(actor=Actor.USER, message="do"), Step(actor=Actor.AGENT, message=text, sampled=SAMPLED)),
            outcome=Outcome(status=status, reward=reward),
            extra={"episode_result": result.model_dump(mode="json", exclude_defaults=True)},
        )
        lines.append(json.dumps({"kind": "trajectory", "record": run.model_dump(mode="json")}))
    (folder / "outputs").mkdir(parents=True)
    (folder / "outputs" / "trajectory.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def freeze(
    folder: Path, played: list[Played], number: int = 1, before: Dataset | None = None, **settings: Any
) -> RoundDataset:
    explored = read_episodes(stage(folder / f"{number:02d}-explore", played))
    select = folder / f"{number:02d}-select"
    frozen = freeze_round(spec(folder, **settings), number, explored, before, select, "job-1")
    assert frozen is not None, "nobody asked it to stop"
    return frozen


def rows(frozen: RoundDataset) -> list[Any]:
    dataset = frozen.output.dataset
    return list(read_rows(Path(dataset.path), "train", dataset.files["train.jsonl"], kind=dataset.kind))


def said(run: Trajectory) -> str:
    return f"{run.task.id}: {run.agent_steps[0].message}"


def test_good_runs_become_rows_of_a_frozen_dataset_that_knows_its_members(tmp_path: Path) -> None:
    """Five distinct runs have a verdict; 0.5 x 5 = 2.5, three, all of which earned 0.5: both that are right, then the half."""
    folder = Path(spec(tmp_path).datasets_dir)
    (folder / ".ds-1-1-0a1b2c3d").mkdir(parents=True)  # of an attempt that was killed while it wrote
    frozen = freeze(tmp_path, ROUND, ratio=0.5)
    assert [path.name for path in folder.iterdir()] == ["ds-1-1"]
    found = rows(frozen)
    assert all(isinstance(row, DatasetRow) for row in found)
    assert [(said(row.trajectory), row.reward) for row in found] == [
        ("a: right", 1.0),
        ("a: half", 0.6),
        ("c: yes", 1.0),
    ]
    assert frozen.selected == 3
    assert frozen.left_out == {"outcome_error": 1, "duplicate": 1, "below_threshold": 2}
    assert (frozen.output.dataset.id, frozen.output.dataset.name) == ("ds-1-1", "learner-round-1")
    assert list(frozen.output.trajectory_ids) == [row.trajectory.id for row in found]
    manifest = json.loads((Path(frozen.output.dataset.path) / "manifest.json").read_text())
    assert manifest["dataset"]["dropped"] == frozen.left_out
    assert {"job_id": "job-1", "round": 1, "select": "top_k", "ratio": 0.5}.items() <= manifest["selection"].items()


def test_a_round_that_selects_nothing_makes_no_dataset_and_counts_why(tmp_path: Path) -> None:
    frozen = freeze(tmp_path, [("a", 0, 0.0, "wrong"), ("a", 1, 0.1, "worse"), ("b", 0, None, "broken")])
    assert frozen == RoundDataset(selected=0, left_out={"outcome_error": 1, "below_threshold": 2}, output=None)
    assert not (tmp_path / "datasets").exists()


def test_pairs_are_the_best_against_the_worst_run_of_a_task_where_the_best_was_selected(tmp_path: Path) -> None:
    """Of task c the runs are alike, of b one is known; d has a best run that is not good enough to learn from."""
    played = [*ROUND, ("d", 0, 0.2, "poor"), ("d", 1, 0.1, "poorer")]
    frozen = freeze(tmp_path, played, train="dpo", ratio=1)
    (pair,) = rows(frozen)
    assert isinstance(pair, PairRow)
    assert (said(pair.chosen), said(pair.rejected), pair.margin) == ("a: right", "a: wrong", 1.0)
    assert frozen.selected == 2
    assert frozen.left_out == {
        "outcome_error": 1,
        "group_of_one": 1,
        "no_contrast": 2,
        "unpaired": 1,
        "chosen_not_selected": 2,
    }


def test_groups_hold_good_and_bad_runs_with_the_log_probs_they_were_sampled_with(tmp_path: Path) -> None:
    frozen = freeze(tmp_path, ROUND, train="grpo")
    (group,) = rows(frozen)
    assert isinstance(group, GroupRow)
    assert [said(run) for run in group.trajectories] == ["a: right", "a: wrong", "a: half"]
    assert group.rewards == (1.0, 0.0, 0.6)
    assert {run.agent_steps[0].sampled for run in group.trajectories} == {SAMPLED}
    assert frozen.left_out == {"outcome_error": 1, "group_of_one": 1, "no_variance": 2}


@pytest.mark.parametrize(("settings", "n"), [({}, 1), ({"accumulate": True}, 4), ({"start_from": "base"}, 4)])
def test_a_round_learns_from_what_earlier_rounds_selected_where_it_accumulates(
    tmp_path: Path, settings: dict[str, Any], n: int
) -> None:
    first = freeze(tmp_path, ROUND, ratio=0.5, **settings)
    second = freeze(tmp_path, [("z", 0, 1.0, "new")], 2, first.output.dataset, ratio=0.5, **settings)
    assert second.selected == 1
    assert (len(rows(second)), len(second.output.trajectory_ids)) == (n, n)


def test_a_choice_is_made_once_and_the_same_for_equal_runs_of_another_job(tmp_path: Path) -> None:
    """Runs of another job have other ids: chance goes by task and attempt."""
    many: list[Played] = [(f"t{i}", 0, 1.0, "yes") for i in range(20)]
    first = freeze(tmp_path / "one", many)
    again = freeze_round(spec(tmp_path / "one"), 1, iter(()), None, tmp_path / "one" / "01-select", "job-1")
    assert again == first
    stage(tmp_path / "two" / "01-explore", many, job="job-2")
    runs = read_episodes(tmp_path / "two" / "01-explore")
    other = freeze_round(spec(tmp_path / "two"), 1, runs, None, tmp_path / "two" / "01-select", "job-2")
    chosen = [[said(row.trajectory) for row in rows(frozen)] for frozen in (first, other)]
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 6


def test_a_named_reward_decides_what_a_round_learns_from(tmp_path: Path) -> None:
    """By brevity alone `yes` beats `yes and more` of task a, although only the second one succeeded; b broke."""
    short = RewardPart(scorer="short", declared=LengthReward(name="short", full_at=1, zero_at=5))
    played = [("a", 0, 0.0, "yes"), ("a", 1, 1.0, "yes and more"), ("b", 0, None, "broken"), ("c", 0, 1.0, "")]
    frozen = freeze(tmp_path, played, reward=RewardSpec(parts=(short,)), train="grpo")
    (group,) = rows(frozen)
    assert [said(run) for run in group.trajectories] == ["a: yes", "a: yes and more"]
    assert group.rewards == (1.0, 0.5)
    assert (frozen.reward["scored"], sum(frozen.reward["unscored"].values())) == (2, 2)
