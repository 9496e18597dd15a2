"""Recipes: stages follow each other from agent to agent, and what dies goes on at the stage and step where it was."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from quintain.datasets.dataset_writer import ExportOptions, write_dataset
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.dataset import Row, TextRow
from quintain.records.hyperparameters.methods import CONFIGS, DATASET_KINDS, PPOConfig
from quintain.records.jobs.job import JobResult, RecipeSpec
from quintain.records.jobs.recipe import EarlierSkill, EvaluateStage, TrainStage
from quintain.worker.job_kinds import recipe
from trainers.runs import Killed, dataset, rows_for, same, weights
from worker.job_folder import Stopping, events, outputs, resuming, trajectories
from worker.online import tasks_file

ENVIRONMENT = "quintain/inventory"
QUICK: dict[str, Any] = {"batch_size": 2, "batch_tokens": 300, "checkpoint_every_steps": 1}
TEXTS: list[Row] = [TextRow(text=f"Item {i} has a price and a stock.") for i in range(4)]


def train_stage(label: str, method: str, rows: list[Row], folder: Path, **settings: Any) -> TrainStage:
    kind = DATASET_KINDS[method]
    assert kind is not None
    options = ExportOptions(dataset_id=f"ds-{label}", name=label, kind=kind)
    lines = (KeyedRow("", row) for row in rows)
    result = write_dataset(lines, folder / f"ds-{label}", options, ExportCounts()).dataset
    return TrainStage(
        label=label,
        method=method,  # type: ignore[arg-type]
        dataset_id=result.id,
        dataset_path=result.path,
        dataset_files=result.files,
        rows=result.splits["train"],
        config=CONFIGS[method](**QUICK | settings),  # type: ignore[arg-type]
    )


class Whole(NamedTuple):
    """A recipe that ran to its end without a stop."""

    spec: RecipeSpec
    folder: Path
    result: JobResult


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_agent: Agent) -> Whole:
    """Two steps on texts, three on runs, then two episodes: seven steps in all."""
    folder = tmp_path_factory.mktemp("whole")
    spec = RecipeSpec(
        name="clerk",
        agent=tiny_agent,
        stages=(
            train_stage("corpus", "pretrain", TEXTS, folder, epochs=1),
            train_stage("sft", "sft", list(dataset(3)), folder, epochs=1.5),
            EvaluateStage(
                label="after", environment=ENVIRONMENT, n_tasks=2, max_turns=1, sampling=Sampling(max_new_tokens=4)
            ),
        ),
        output_dir=str(folder / "out"),
        seed=3,
    )
    return Whole(spec, folder / "job-a", recipe.run(spec, folder / "job-a", Stopping(folder / "job-a")))


@pytest.fixture
def spec(whole: Whole, tmp_path: Path) -> RecipeSpec:
    """The same recipe, with a folder of its own for its agents."""
    return whole.spec.model_copy(update={"output_dir": str(tmp_path / "again")})


def steps(folder: Path) -> list[int | None]:
    return [event.step for event in events(folder) if event.type == "progress"]


def test_stages_count_as_one_run_and_hand_the_agent_on(whole: Whole) -> None:
    """4 texts in batches of 2 are 2 steps; 3 runs for 1.5 epochs in batches of 2 are 3 (ceil 4.5 / 2); 2 episodes."""
    spec, folder, result = whole
    assert [stage.planned_steps for stage in spec.stages] == [2, 3, 2]
    heard = events(folder)
    assert steps(folder) == [1, 2, 3, 4, 5, 6, 7]
    assert {event.total_steps for event in heard if event.type == "progress"} == {7}
    saved = [event.step for event in heard if event.type == "checkpoint"]
    assert saved == [1, 3, 4], "after each step but the last of a stage, which saves the model itself"
    phases = [event.name or "" for event in heard if event.type == "phase"]
    assert [name.split()[0] for name in phases] == sorted(name.split()[0] for name in phases)
    assert {name.split()[0] for name in phases} == {"00-corpus", "01-sft", "02-after"}
    (line,) = (folder / "outputs" / "agent.jsonl").read_text().splitlines()
    assert '"name":"clerk"' in line
    assert '"parent":"agent:tiny@1"' in line
    assert "pretrain on ds-corpus, sft on ds-sft" in line
    assert (result.dataset_id, result.evaluation_id) == ("ds-sft", "eval-a-02-after")
    assert (result.trajectories.count, result.trajectories.filter) == (2, {"job_id": "job-a"})
    assert [(stage["stage"], stage["steps"]) for stage in result.report["stages"]] == [
        ("corpus", 2),
        ("sft", 3),
        ("after", 2),
    ]


def test_a_stage_measures_in_a_game_against_an_opponent(tiny_agent: Agent, tmp_path: Path) -> None:
    """Two games by two players, both of them runs; the expert of the environment wins against a model that writes nothing."""
    expert = Agent(id="agent:expert@1", name="expert", version=1, model=ModelRef(source="expert", path="expert"))
    short = Sampling(max_new_tokens=1)
    stage = EvaluateStage(label="a", environment="quintain/nim", n_tasks=2, opponent=expert, sampling=short)
    folder = tmp_path / "job-a"
    spec = RecipeSpec(name="clerk", agent=tiny_agent, stages=(stage,), output_dir=str(tmp_path / "out"), seed=3)
    result = recipe.run(spec, folder, Stopping(folder))
    assert (result.trajectories.count, result.success_rate) == (4, 0.0)


def test_a_recipe_killed_in_every_stage_continues_there_and_ends_with_the_same_weights(
    whole: Whole, spec: RecipeSpec, tmp_path: Path
) -> None:
    folder = tmp_path / "job-killed"
    resumed: list[set[str]] = []
    for kill_at in (2, 4, 6):
        before = len(events(folder)) if folder.exists() else 0
        with pytest.raises(Killed):
            recipe.run(spec, folder, Stopping(folder, kill_at=kill_at))
        resumed.append({(event.name or "").split()[0] for event in events(folder)[before:] if event.type == "phase"})
    result = recipe.run(spec, folder, Stopping(folder))
    assert resumed == [{"00-corpus"}, {"00-corpus", "01-sft"}, {"01-sft", "02-after"}], (
        "finished stages are not repeated"
    )
    assert sorted(set(steps(folder)), key=lambda step: step or 0) == [1, 2, 3, 4, 5, 6, 7]
    for stage in ("00-corpus", "01-sft"):
        assert same(Path(whole.spec.output_dir) / stage, Path(spec.output_dir) / stage)
    expected = whole.result
    assert (result.final_loss, result.success_rate) == (expected.final_loss, expected.success_rate)
    assert result.n == expected.n


@pytest.mark.soak
def test_a_recipe_without_its_folder_continues_each_training_from_its_copies_unless_they_are_of_another_run(
    whole: Whole, spec: RecipeSpec, tmp_path: Path
) -> None:
    """The copies of the second stage are of a start model with other values."""
    mirrored = spec.model_copy(update={"mirror": f"file://{tmp_path}/copies", "stages": spec.stages[:2]})
    folder = tmp_path / "job-lost"
    with pytest.raises(Killed):
        recipe.run(mirrored, folder, Stopping(folder, kill_at=5))
    for lost in (folder, tmp_path / "again"):
        shutil.rmtree(lost)
    result = recipe.run(mirrored, folder, Stopping(folder))
    assert steps(folder)[-1:] == [5], "the second stage from the copy of its step 2"
    assert [step for step in steps(folder) if (step or 0) > 2] == [5]
    assert result.final_loss == whole.result.final_loss

    first = mirrored.stages[0]
    assert isinstance(first, TrainStage)
    hotter = first.model_copy(update={"config": first.config.model_copy(update={"learning_rate": 0.1})})
    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "copies" / "00-corpus", ignore_errors=True)  # a stage that ends drops a copy that waits
    recipe.run(mirrored.model_copy(update={"stages": (hotter, mirrored.stages[1])}), folder, Stopping(folder))
    assert steps(folder) == [1, 2, 3, 4, 5]
    (skipped,) = [event.message or "" for event in events(folder) if event.code == "checkpoint_skipped"]
    assert "of another run" in skipped


def test_a_stopped_recipe_reports_its_finished_stages_and_a_job_that_resumes_it_continues_there(
    spec: RecipeSpec, tmp_path: Path
) -> None:
    folder = tmp_path / "job-b"
    result = recipe.run(spec, folder, Stopping(folder, stop_at=3))
    assert result.is_partial
    assert [stage["stage"] for stage in result.report["stages"]] == ["corpus"]
    assert not (folder / "outputs" / "agent.jsonl").exists()
    resumed = resuming(tmp_path / "job-c", spec, "job-b")
    again = recipe.run(spec, resumed.path, Stopping(resumed.path))
    assert [stage["stage"] for stage in again.report["stages"]] == ["corpus", "sft", "after"]
    assert again.evaluation_id == "eval-c-02-after"
    assert min(steps(resumed.path)) > 3, "the new job begins at the checkpoint of the old one"


def test_a_stage_keeps_the_weights_of_the_stage_that_it_names(spec: RecipeSpec, tmp_path: Path) -> None:
    """The third training begins where the second ended, and is held near the first: the penalty is above 0 at once.

    The evaluation before it is of another agent than the recipe's result, which has no success rate.
    """
    corpus, middle, measured = spec.stages
    assert isinstance(corpus, TrainStage)
    kept = EarlierSkill(
        stage="corpus",
        dataset_id="ds-corpus",
        dataset_path=corpus.dataset_path or "",
        dataset_files=corpus.dataset_files,
        dataset_kind="text",
    )
    last = train_stage("last", "sft", list(dataset(2)), tmp_path, epochs=1, ewc={"runs": 2})
    stages = (corpus, middle, measured, last.model_copy(update={"earlier": kept}))
    folder = tmp_path / "job-e"
    result = recipe.run(spec.model_copy(update={"stages": stages}), folder, Stopping(folder))
    assert [stage["stage"] for stage in result.report["stages"]] == ["corpus", "sft", "after", "last"]
    assert result.report["stages"][2]["evaluation_id"] == "eval-e-02-after"
    assert (result.evaluation_id, result.success_rate, result.n) == (None, None, None)
    penalties = [event.metrics["ewc_penalty"] for event in events(folder) if "ewc_penalty" in (event.metrics or {})]
    assert penalties
    assert all(value is not None and value > 0 for value in penalties)


def test_a_policy_goes_on_from_the_policy_before_a_reward_model_and_learns_from_that_model(
    spec: RecipeSpec, tiny_agent: Agent, tmp_path: Path
) -> None:
    """The groups of the last stage have equal rewards; the model in the middle alone tells their runs apart.

    With a learning rate of next to nothing the last stage ends with the weights that it began with.
    """
    middle = spec.stages[1]
    judging = train_stage("judging", "reward", rows_for("reward", 2), tmp_path, epochs=1)
    level = [row.model_copy(update={"rewards": (1.0,) * len(row.trajectories)}) for row in rows_for("grpo", 2)]
    taught = train_stage("taught", "grpo", level, tmp_path, epochs=1, reward_model="judge", learning_rate=1e-30)
    stages = (
        middle,
        judging.model_copy(update={"agent": "judge"}),
        taught.model_copy(update={"reward_agent": Agent(name="judge", model=tiny_agent.model, role="reward_model")}),
    )
    folder = tmp_path / "job-r"
    result = recipe.run(spec.model_copy(update={"stages": stages}), folder, Stopping(folder))
    assert not result.is_partial
    judge, clerk = outputs(folder, "agent")
    assert (judge["name"], judge["role"], clerk["name"], clerk["role"]) == ("judge", "reward_model", "clerk", "policy")
    assert "sft on ds-sft, reward on ds-judging" in judge["description"]
    assert "sft on ds-sft, grpo on ds-taught" in clerk["description"]
    figures = [event.metrics for event in events(folder) if event.metrics and "reward_model" in event.metrics]
    assert figures, "the reward model valued the runs"
    began, ended = (weights(Path(spec.output_dir) / stage) for stage in ("00-sft", "02-taught"))
    assert all((ended[name] - tensor).abs().max() < 1e-6 for name, tensor in began.items())


def test_a_second_stage_in_an_environment_plays_other_tasks(tiny_agent: Agent, tmp_path: Path) -> None:
    """Two of 40 tasks each, which the same seed would draw twice."""
    environment = f"quintain/tasks?file={tasks_file(tmp_path, 40)}"
    config = PPOConfig(rollouts=1, tasks_per_step=2, updates_per_rollout=1, max_new_tokens=8, critic_warmup_steps=0)
    first, second = (
        TrainStage(label=label, method="ppo", environment=environment, config=config) for label in ("one", "two")
    )
    folder = tmp_path / "job-s"
    spec = RecipeSpec(name="clerk", agent=tiny_agent, stages=(first, second), output_dir=str(tmp_path / "out"), seed=3)
    recipe.run(spec, folder, Stopping(folder))
    tasks = [run.task.id for run in trajectories(folder)]
    assert len(set(tasks)) == 4
