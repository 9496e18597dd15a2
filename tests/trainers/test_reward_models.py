"""Reward models and step models end to end on tiny models: they learn, report how often they are right, and score runs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.errors import InvalidInput, TrainingFailed
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import PairRow, Row, StepLabelRow
from quintain.records.jobs.job import TrainSpec
from quintain.records.trajectory import Trajectory
from quintain.trainers.loop.report import TrainingReport
from quintain.trainers.models.loading import stored_heads
from quintain.trainers.models.value_head import FILE_NAME
from quintain.trainers.reward_models import RewardModel, RunValue, UnreadableRun, score_runs
from trainers.episodes import episode
from trainers.runs import Recorder, rows_for, run, run_of, same, spec

QUICK: dict[str, Any] = {"epochs": 8, "learning_rate": 1e-2, "checkpoint_every_steps": 100}


def steps_of(n: int, *, parts: bool = False) -> list[Row]:
    """Runs whose steps are worth 0.9, but for the last: 1 where it says 'It costs 40.', 0 where 'No idea.'."""
    rows: list[Row] = []
    for i in range(n):
        good = i % 2 == 0
        whole = run_of(i, "It costs 40." if good else "No idea.", success=good, turns=3)
        given = ({"relevance": 1.0}, None, {"relevance": float(good)}) if parts else ()
        rows.append(StepLabelRow(trajectory=whole, labels=(0.9, None, float(good)), parts=given))
    return rows


def judge(job: TrainSpec, role: str) -> Agent:
    """The agent that a job's worker would hand over."""
    folder = job.output_dir
    base = job.agent.model
    model = base.model_copy(update={"adapter": folder}) if job.config.lora else ModelRef(source="folder", path=folder)
    return Agent(id="agent:judge@1", name="judge", version=1, model=model, role=role)  # type: ignore[arg-type]


def rewards(agent: Agent, runs: Sequence[Trajectory]) -> list[float]:
    valued = RewardModel.of(agent).read(runs)
    return [value.reward for value in valued if isinstance(value, RunValue) and value.reward is not None]


@pytest.fixture(scope="module")
def trained(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainSpec, TrainingReport, Recorder]:
    """A reward model that has learnt the order of 6 pairs."""
    folder = tmp_path_factory.mktemp("reward")
    job = spec(model_folder, folder / "out", "reward", **QUICK)
    return job, *run(job, folder / "job", rows_for("reward", 6), validation=rows_for("reward", 8)[6:])


@pytest.fixture(scope="module")
def reward_model(trained: tuple[TrainSpec, TrainingReport, Recorder]) -> Agent:
    return judge(trained[0], "reward_model")


def test_a_reward_model_learns_the_order_of_pairs_and_of_runs_it_has_not_seen(
    trained: tuple[TrainSpec, TrainingReport, Recorder], reward_model: Agent
) -> None:
    """The first loss is log 2: a head of zeros values all runs alike. Rewards stay around 0 as centring asks for."""
    _, report, heard = trained
    assert report.first_loss == pytest.approx(0.6931472, abs=1e-6)
    assert report.held_out == {"reward_accuracy": (2.0, 2.0)}
    assert [m["validation_reward_accuracy"] for _, _, m in heard.steps if "validation_loss" in m][-1] == 1.0
    assert "entropy" not in heard.steps[0][2]
    better, worse = rewards(reward_model, [run_of(9, "It costs 40."), run_of(9, "No idea.")])
    assert better > worse
    assert abs(better + worse) < better - worse


def test_parts_of_pairs_get_heads_whose_mix_is_the_reward(model_folder: Path, tmp_path: Path) -> None:
    """The good answer is right, and no shorter than the other: its part is learned, the mix orders runs."""
    parts = {"chosen_parts": {"right": 1.0, "short": 0.5}, "rejected_parts": {"right": 0.0, "short": 0.5}}
    rows = [row.model_copy(update=parts) for row in rows_for("reward", 4)]
    job = spec(model_folder, tmp_path / "out", "reward", **QUICK)
    _, heard = run(job, tmp_path / "job", rows)
    assert stored_heads(ModelRef(source="folder", path=job.output_dir)) == ("reward", "right", "short")
    assert {"brier_right", "brier_short"} <= heard.steps[-1][2].keys()
    good, bad = score_runs(judge(job, "reward_model"), [run_of(9, "It costs 40."), run_of(9, "No idea.")])
    right, short = good.components
    assert (right.name, short.name) == ("right", "short")
    assert right.weight + short.weight == pytest.approx(1)
    assert (right.value or 0) > 0.6 > 0.4 > (bad.components[0].value or 1)
    assert (good.value or 0) > (bad.value or 1)
    unknown = spec(model_folder, tmp_path / "no", "reward", heads=["kind"], epochs=1)
    with pytest.raises(InvalidInput, match=r"values of kind, as heads asks, got right, short; name others"):
        run(unknown, tmp_path / "job-no", rows)
    single = spec(model_folder, tmp_path / "one", "reward", heads=[], epochs=1)
    run(single, tmp_path / "job-one", rows)
    assert stored_heads(ModelRef(source="folder", path=single.output_dir)) == ("reward",)


def test_a_step_model_learns_soft_labels_and_gives_each_step_its_value(model_folder: Path, tmp_path: Path) -> None:
    job = spec(
        model_folder,
        tmp_path / "out",
        "prm",
        **QUICK | {"epochs": 16, "learning_rate": 2e-2, "validate_every_steps": 16},
    )
    report, _ = run(job, tmp_path / "job", steps_of(4), validation=steps_of(6)[4:])
    assert stored_heads(ModelRef(source="folder", path=job.output_dir)) == ("value",)
    right, n = report.held_out["step_accuracy"]
    assert (right, n) == (4.0, 4.0)  # of three steps a run, one has no label
    scores = list(
        score_runs(judge(job, "step_model"), [run_of(7, "It costs 40.", turns=3), run_of(7, "No idea.", turns=3)])
    )
    good, bad = ([step.value for step in score.steps] for score in scores)
    assert good[0] == pytest.approx(0.9, abs=0.12)
    assert good[-1] is not None
    assert bad[-1] is not None
    assert good[-1] > 0.8 > 0.2 > bad[-1]
    known = [value for value in good if value is not None]
    assert scores[0].value == pytest.approx(sum(known) / 3)
    assert (scores[0].scorer, scores[0].rater) == ("agent:judge@1", "agent:judge@1")


def test_parts_of_labels_get_heads_of_their_own(model_folder: Path, tmp_path: Path) -> None:
    job = spec(model_folder, tmp_path / "out", "prm", epochs=1)
    run(job, tmp_path / "job", steps_of(2, parts=True))
    assert stored_heads(ModelRef(source="folder", path=job.output_dir)) == ("value", "relevance")
    (score,) = score_runs(judge(job, "step_model"), [run_of(0, "It costs 40.", turns=3)])
    assert [set(step.parts) for step in score.steps] == [{"relevance"}] * 3
    one = spec(model_folder, tmp_path / "one", "prm", heads=["relevance"], epochs=1)
    run(one, tmp_path / "job-one", steps_of(2, parts=True))
    (score,) = score_runs(judge(one, "step_model"), [run_of(0, "It costs 40.", turns=3)])
    assert all(step.value == pytest.approx(step.parts["relevance"]) for step in score.steps)


def test_steps_without_labels_change_nothing(model_folder: Path, tmp_path: Path) -> None:
    """The same weights whether an unlabelled run is in the data or not, and whatever its labelled neighbours."""
    rows = steps_of(4)
    unlabelled = StepLabelRow(trajectory=run_of(9, "Whatever."), labels=(None, None))
    report, _ = run(spec(model_folder, tmp_path / "with", "prm"), tmp_path / "job-with", [*rows, unlabelled])
    run(spec(model_folder, tmp_path / "without", "prm"), tmp_path / "job-without", rows)
    assert report.dropped == {"no_step_labels": 1}
    assert same(tmp_path / "with", tmp_path / "without")
    with pytest.raises(TrainingFailed, match="no_step_labels 1"):
        run(spec(model_folder, tmp_path / "none", "prm"), tmp_path / "job-none", [unlabelled])


def test_pairs_that_cannot_be_read_whole_are_counted_and_left_out(model_folder: Path, tmp_path: Path) -> None:
    long = PairRow(chosen=episode(20), rejected=run_of(0, "No idea."))
    equal = PairRow(chosen=run_of(1, "Same."), rejected=run_of(1, "Same."))
    report, heard = run(
        spec(model_folder, tmp_path / "out", "reward", max_length=400),
        tmp_path / "job",
        [*rows_for("reward", 2), long, equal],
    )
    assert report.dropped == {"chosen_too_long": 1, "equal_sides": 1}
    assert any("2 of 4 dataset rows give no example" in message for _, message in heard.warnings)


def test_a_reward_model_can_be_trained_further_and_keeps_its_head(reward_model: Agent, tmp_path: Path) -> None:
    first = Path(str(reward_model.model.path))
    job = spec(first, tmp_path / "second", "reward", epochs=1)
    report, _ = run(job, tmp_path / "job-second", rows_for("reward", 2))
    assert report.first_loss is not None
    assert report.first_loss < 0.5
    with pytest.raises(InvalidInput, match="value head with value on states of 16 numbers, got reward on 16"):
        run(spec(first, tmp_path / "other", "prm", heads=["value"]), tmp_path / "job-other", steps_of(2))


def test_unreadable_runs_are_unscored_with_the_reason(reward_model: Agent) -> None:
    silent = episode(1).model_copy(update={"steps": episode(1).steps[:2]})
    scores = list(score_runs(reward_model, [run_of(0, "It costs 40."), episode(60), silent]))
    assert [score.status for score in scores] == ["scored", "unscored", "unscored"]
    assert scores[0].value is not None
    assert "longer than the 1024 tokens" in (scores[1].reason or "")
    assert "wrote nothing" in (scores[2].reason or "")
    assert list(score_runs(reward_model, [episode(1)], lambda: True)) == []


def test_how_runs_are_batched_does_not_change_their_scores(reward_model: Agent) -> None:
    runs = [run_of(i % 3, f"Answer {i}.", turns=1 + i % 4) for i in range(6)]
    together = rewards(reward_model, runs)
    assert together == pytest.approx([r for one in runs for r in rewards(reward_model, [one])], rel=1e-5, abs=1e-6)


def test_a_model_without_a_head_or_with_a_damaged_one_values_nothing(
    model_folder: Path, reward_model: Agent, tmp_path: Path
) -> None:
    plain = Agent(name="tiny", model=ModelRef(source="folder", path=str(model_folder)), role="reward_model")
    with pytest.raises(InvalidInput, match="with a value head"):
        RewardModel.of(plain)
    shutil.copytree(reward_model.model.path, tmp_path / "out")
    (tmp_path / "out" / FILE_NAME).write_bytes(b"{}")
    damaged = ModelRef(source="folder", path=str(tmp_path / "out"))
    with pytest.raises(InvalidInput, match="is damaged"):
        RewardModel.of(reward_model.model_copy(update={"model": damaged}))


def test_numbers_that_are_not_finite_are_no_value(reward_model: Agent) -> None:
    model = RewardModel.of(reward_model)
    with torch.no_grad():
        model.head.bias.fill_(float("nan"))
    (value,) = model.read([run_of(0, "It costs 40.")])
    assert isinstance(value, UnreadableRun)
