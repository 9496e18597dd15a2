"""The loop: it learns, resumes bit-equal from checkpoints, ends early, and trains adapters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.errors import Conflict
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.dataset import DatasetRow
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.protocols import Message, Turn
from quintain.trainers.acting.policy import open_policy
from quintain.trainers.loop import checkpoints
from quintain.trainers.loop.report import TrainingReport
from quintain.trainers.models.loading import load_model
from quintain.trainers.train import train
from trainers.episodes import TOOLS, episode
from trainers.runs import LORA, Data, Killed, Recorder, dataset, metric, rows_for, run, run_of, same, spec

STEADY: dict[str, Any] = {"schedule": "constant", "warmup_ratio": 0, "checkpoint_every_steps": 100}


def of_six(model: Path, output: Path, **options: Any) -> TrainSpec:
    """A job that takes 6 steps over `dataset(3)`."""
    return spec(model, output, batch_size=1, **options)


@pytest.fixture(scope="module")
def whole_of_six(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run of `of_six`; how often it saves does not change its weights."""
    folder = tmp_path_factory.mktemp("six")
    run(of_six(model_folder, folder / "out", checkpoint_every_steps=1, keep_checkpoints=2), folder / "job", dataset(3))
    return folder


@pytest.fixture(scope="module")
def adapter(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recorder]:
    """An adapter from an uninterrupted run of 4 steps over `dataset(4)`."""
    folder = tmp_path_factory.mktemp("adapter")
    job = spec(model_folder, folder / "out", lora=LORA, learning_rate=3e-2)
    return folder / "out", run(job, folder / "job", dataset(4))[1]


@pytest.fixture(scope="module")
def able(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learnt one run by heart."""
    folder = tmp_path_factory.mktemp("able")
    options = {"epochs": 60, "batch_size": 1, "learning_rate": 3e-2, "schedule": "linear"}
    job = spec(model_folder, folder / "out", checkpoint_every_steps=100, **options)
    report, recorder = run(job, folder / "job", [DatasetRow(trajectory=episode(2))])
    assert recorder.phases == ["loading_model", "rendering", "training", "saving"]
    assert (report.steps, report.examples, report.examples_read) == (60, 1, 1)
    assert report.first_loss
    assert report.final_loss is not None
    assert report.first_loss > 5 > 0.1 > report.final_loss
    names = {"loss", "learning_rate", "grad_norm", "supervised_tokens_per_s", "observation_share"}
    assert names <= set(recorder.steps[0][2])
    return folder / "out"


def agent_of(folder: Path, adapter: Path | None = None) -> Agent:
    ref = ModelRef(source="folder", path=str(folder), adapter=str(adapter) if adapter else None)
    return Agent(name="tiny", model=ref)


def test_training_lowers_the_loss_and_the_agent_learns_the_run(able: Path) -> None:
    policy = open_policy(agent_of(able), Sampling(max_new_tokens=64))
    opening = (Message(role="system", content="You are an agent."), Message(role="user", content="price of the mango?"))
    reply = policy.act([Turn(episode_id="a", messages=opening, tools=TOOLS)])[0]
    assert reply.thought == "look it up 0"
    assert reply.actions[0].args == {"query": "mango 0"}
    answer = Message(role="tool", content="result 0: id 12")
    assert policy.act([Turn(episode_id="a", messages=(answer,))])[0].text == "It costs 40."


def test_a_finite_loss_that_rises_far_above_its_start_is_reported(able: Path, tmp_path: Path) -> None:
    """Steps of size 1 throw a model off the data that it has learnt by heart."""
    options = {"learning_rate": 1.0, "grad_clip": 0, "epochs": 6, "batch_size": 1, **STEADY}
    rows = [DatasetRow(trajectory=episode(2))]
    report, recorder = run(spec(able, tmp_path / "out", **options), tmp_path / "job", rows)
    assert report.first_loss is not None
    assert report.first_loss < 2
    assert any(code == "diverged" and "the loss rose from" in message for code, message in recorder.warnings)


def test_a_run_whose_loss_stays_far_above_that_of_its_start_is_reported(able: Path, tmp_path: Path) -> None:
    """From 0.05 to 0.6 nats a token is no divergence, and the agent is worse all the same; a steady run is not reported."""
    rows, options = [DatasetRow(trajectory=episode(2))], {"epochs": 24, "batch_size": 1, **STEADY}
    report, recorder = run(spec(able, tmp_path / "out", learning_rate=0.15, **options), tmp_path / "job", rows)
    assert report.first_loss is not None
    assert report.final_loss is not None
    assert 4 * report.first_loss < report.final_loss < 1
    ((code, message),) = recorder.warnings
    assert code == "loss_rose"
    assert "compare it with its start, train again with a learning_rate below 0.15" in message
    _, steady = run(spec(able, tmp_path / "calm", learning_rate=1e-5, **options), tmp_path / "calm-job", rows)
    assert steady.warnings == []


def test_a_run_killed_at_any_step_resumes_to_bit_equal_weights(model_folder: Path, tmp_path: Path) -> None:
    """7 rows in steps of 2 are 4 steps an epoch, the last of one row: 6 steps with 1.5 epochs."""
    rows, options = dataset(7), {"epochs": 1.5, "schedule": "cosine", "cycles": 2}
    reference, recorder = run(spec(model_folder, tmp_path / "whole", **options), tmp_path / "job-whole", rows)
    assert [(step, total) for step, total, _ in recorder.steps] == [(i, 6) for i in range(1, 7)]
    for kill_at in (2, 6):
        job, output = tmp_path / f"job-{kill_at}", tmp_path / f"out-{kill_at}"
        with pytest.raises(Killed):
            run(spec(model_folder, output, **options), job, rows, Recorder(kill_at=kill_at))
        assert not output.exists()
        report, resumed = run(spec(model_folder, output, **options), job, rows)
        began = min((kill_at - 1) // 2 * 2, 4)
        assert resumed.steps[0][0] == began + 1
        assert same(tmp_path / "whole", output)
        measured = {"resumed_from_step", "matmul_gflops"}
        assert report.resumed_from_step == (began or None)
        assert report.model_dump(exclude=measured) == reference.model_dump(exclude=measured)
        assert metric(resumed, "loss") == metric(recorder, "loss")[began:]


def test_a_stop_saves_a_checkpoint_and_no_model_and_the_next_attempt_continues(
    model_folder: Path, tmp_path: Path, whole_of_six: Path
) -> None:
    job = of_six(model_folder, tmp_path / "out")
    report, recorder = run(job, tmp_path / "job", dataset(3), Recorder(stop_at=3))
    assert report.stopped
    assert report.steps == 3
    assert recorder.checkpoints == [2, 3]
    assert not (tmp_path / "out").exists()
    again, _ = run(job, tmp_path / "job", dataset(3))
    assert not again.stopped
    assert same(whole_of_six / "out", tmp_path / "out")


def test_a_kill_inside_a_checkpoint_or_a_damaged_one_leaves_the_one_before(
    model_folder: Path, tmp_path: Path, whole_of_six: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_at_four(aside: Path, destination: Path) -> None:
        if destination.name.endswith("4"):
            raise Killed
        publish(aside, destination)

    job, publish = of_six(model_folder, tmp_path / "out"), checkpoints.publish
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "publish", killed_at_four)
        with pytest.raises(Killed):
            run(job, tmp_path / "job", dataset(3))
    second = Recorder(kill_at=5)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", dataset(3), second)
    assert second.steps[0][0] == 3
    assert second.warnings == []

    newest = tmp_path / "job/checkpoints/step-00000004/model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    _, third = run(job, tmp_path / "job", dataset(3))
    assert third.steps[0][0] == 3
    code, message = third.warnings[0]
    assert code == "checkpoint_skipped"
    assert "step-00000004: model.safetensors differs from its manifest" in message
    assert same(whole_of_six / "out", tmp_path / "out")


def test_only_the_newest_checkpoints_are_kept(whole_of_six: Path) -> None:
    names = sorted(p.name for p in (whole_of_six / "job/checkpoints").iterdir())
    assert names == ["machine.json", "step-00000004", "step-00000005"]


def test_a_checkpoint_of_another_run_is_refused(model_folder: Path, tmp_path: Path) -> None:
    job = of_six(model_folder, tmp_path / "out")
    with pytest.raises(Killed):
        run(job, tmp_path / "job", dataset(3), Recorder(kill_at=3))
    other_config = of_six(model_folder, tmp_path / "out", learning_rate=0.1)
    other_rows = [*dataset(2), DatasetRow(trajectory=episode(1, question="something else"))]
    for spec_, rows in ((other_config, dataset(3)), (job, other_rows)):
        with pytest.raises(Conflict, match="checkpoint_mismatch"):
            run(spec_, tmp_path / "job", rows)


def test_early_stopping_ends_the_run_and_keeps_the_best_weights(model_folder: Path, tmp_path: Path) -> None:
    """The validation run contradicts the training run, so the first validation stays the best."""
    rows = [DatasetRow(trajectory=run_of(i, "It costs 40.")) for i in range(2)]
    held_out = [DatasetRow(trajectory=run_of(i, "No idea at all, sorry.")) for i in range(2)]
    options = {"epochs": 30, "learning_rate": 4e-2, "early_stopping_patience": 2, **STEADY}
    job = spec(model_folder, tmp_path / "out", **options)
    report, recorder = run(job, tmp_path / "job", rows, validation=held_out)
    assert report.steps < 30
    assert report.ended_early
    assert "2 validations" in report.ended_early
    assert report.best_step is not None
    measured = metric(recorder, "validation_loss")
    assert len(measured) == 1 + report.steps, "one step an epoch, and a validation after each and of the start"
    assert report.best_validation_loss == min(measured)
    assert report.validation_loss == measured[-1]
    assert any(code == "ended_early" for code, _ in recorder.warnings)
    probe = spec(tmp_path / "out", tmp_path / "probe", max_steps=1, learning_rate=1e-12)
    first_loss = run(probe, tmp_path / "job-probe", held_out)[0].first_loss
    assert first_loss == pytest.approx(min(measured), rel=1e-4)


def test_a_kl_bound_ends_the_run_and_a_resumed_one_does_not_continue(model_folder: Path, tmp_path: Path) -> None:
    class KilledWhileSaving(Recorder):
        def phase(self, name: str) -> None:
            super().phase(name)
            if name == "saving":
                raise Killed

    def acting(name: str, recorder: Recorder) -> TrainingReport:
        asked = {"rollouts": 50, "learning_rate": 2e-2, "kl_stop": 0.05}
        job = spec(model_folder, tmp_path / name, "grpo", **asked)
        job = job.model_copy(update={"dataset_id": None, "dataset_path": None, "environment": "x"})
        return train(job, Data(), tmp_path / f"job-{name}", recorder, lambda *_: rows_for("grpo", 1))  # type: ignore[arg-type]

    whole = acting("whole", recorder := Recorder())
    assert whole.ended_early
    assert "kl_stop is 0.05" in whole.ended_early
    divergences = metric(recorder, "kl")
    assert divergences[0] == pytest.approx(0, abs=1e-6)
    assert divergences[-1] > 0.05
    assert "drift" not in recorder.steps[-1][2]
    with pytest.raises(Killed):
        acting("out", KilledWhileSaving())
    report = acting("out", Recorder())
    assert (report.steps, report.ended_early) == (whole.steps, whole.ended_early)
    assert same(tmp_path / "whole", tmp_path / "out")


def test_a_later_job_computes_as_an_earlier_one_on_this_machine_has_chosen(model_folder: Path, tmp_path: Path) -> None:
    """Measured beside other load, the choice may differ, and with it the rounding of equal jobs."""
    first, later = (
        spec(model_folder, tmp_path / name, max_steps=1).model_copy(update={"cache_dir": str(tmp_path / "cache")})
        for name in ("first", "later")
    )
    run(first, tmp_path / "job-first", dataset(2))
    (kept,) = (tmp_path / "cache" / "machine").iterdir()
    chosen = json.loads(kept.read_bytes())
    assert json.loads((tmp_path / "job-first/checkpoints/machine.json").read_bytes()) == chosen
    kept.write_text(json.dumps(chosen | {"fast_matmul": not chosen["fast_matmul"]}))
    run(later, tmp_path / "job-later", dataset(2))
    assert (tmp_path / "job-later/checkpoints/machine.json").read_bytes() == kept.read_bytes()


def test_a_bound_of_minutes_ends_the_run_with_what_it_has_learned(model_folder: Path, tmp_path: Path) -> None:
    """The first step takes longer than 60 ns."""
    bounded = spec(model_folder, tmp_path / "out", epochs=5, schedule="constant", warmup_steps=0, max_minutes=1e-9)
    report, recorder = run(bounded, tmp_path / "job", dataset(3))
    assert (report.steps, report.examples, report.examples_read) == (1, 3, bounded.config.batch_size)
    assert "max_minutes is 1e-09" in (report.ended_early or "")
    assert ("ended_early", 1) in [(code, len(recorder.steps)) for code, _ in recorder.warnings]
    assert not same(model_folder, tmp_path / "out")


def test_the_start_is_kept_where_no_step_has_a_lower_validation_loss(model_folder: Path, tmp_path: Path) -> None:
    """A rate of 0.9 ruins the model with its first step, and a resumed run remembers the start."""
    rows = [DatasetRow(trajectory=run_of(i, "It costs 40.")) for i in range(4)]
    held_out = [DatasetRow(trajectory=run_of(0, "No idea at all, sorry."))]
    job = spec(
        model_folder, tmp_path / "out", learning_rate=0.9, grad_clip=0, **{**STEADY, "checkpoint_every_steps": 2}
    )
    recorder = Recorder(kill_at=3)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, recorder, validation=held_out)
    report, resumed = run(job, tmp_path / "job", rows, validation=held_out)
    assert [steps[0][0] for steps in (recorder.steps, resumed.steps)] == [0, 3]
    assert (report.best_step, report.best_validation_loss) == (0, metric(recorder, "validation_loss")[0])
    assert (report.validation_loss or 0) > (report.best_validation_loss or 0) + 1
    assert same(model_folder, tmp_path / "out")
    assert "start_kept" in [code for code, _ in resumed.warnings]


def test_an_adapter_is_saved_alone_and_acts_with_its_base(model_folder: Path, adapter: tuple[Path, Recorder]) -> None:
    folder, _ = adapter
    names = {path.name for path in folder.iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "chat_template.jinja"} <= names
    assert "model.safetensors" not in names
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(model_folder)
    merged, plain = (load_model(agent_of(model_folder, path).model).model for path in (folder, None))
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert not torch.allclose(merged(ids).logits, plain(ids).logits, atol=1e-3)


@pytest.mark.parametrize("kind", ["rslora", "dora"])
def test_other_kinds_of_adapters_are_saved_as_such_and_act(model_folder: Path, tmp_path: Path, kind: str) -> None:
    lora: LoraConfig = LORA.model_copy(update={kind: True})
    run(spec(model_folder, tmp_path / "out", lora=lora, max_steps=1), tmp_path / "job", dataset(2))
    assert json.loads((tmp_path / "out/adapter_config.json").read_text())[f"use_{kind}"]
    policy = open_policy(agent_of(model_folder, tmp_path / "out"), Sampling(max_new_tokens=4))
    assert policy.act([Turn(episode_id="a", messages=(Message(role="user", content="price?"),))])


@pytest.mark.parametrize("lora", [LORA, None], ids=["its adapter", "all weights"])
def test_training_continues_from_an_adapter(
    model_folder: Path, tmp_path: Path, adapter: tuple[Path, Recorder], lora: LoraConfig | None
) -> None:
    """The start is the model with its adapter, so the first loss is lower than that of the base."""
    job = spec(model_folder, tmp_path / "out", lora=lora, max_steps=1)
    job = job.model_copy(update={"agent": agent_of(model_folder, adapter[0])})
    report, _ = run(job, tmp_path / "job", dataset(4))
    assert report.first_loss is not None
    assert report.first_loss < metric(adapter[1], "loss")[0] - 0.05
    assert not same(adapter[0] if lora else model_folder, tmp_path / "out")
