from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.errors import Conflict, TrainingFailed
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.dataset import DatasetRow
from quintain.records.hyperparameters import LoraConfig
from quintain.records.protocols import Message, Turn
from quintain.trainers.acting.policy import open_policy
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop import checkpoints
from quintain.trainers.models import load_model
from quintain.trainers.train import Data, train
from tiny_models import save_tiny_model
from trainers.episodes import TOOLS, episode
from trainers.runs import Killed, Recorder, dataset, run, same, spec, weights

# peft 0.21 asks transformers 5.23 by the name that it had before.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

LORA = LoraConfig(rank=4, alpha=8.0, dropout=0.1)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", hidden=16)


def test_training_lowers_the_loss_and_the_agent_learns_what_it_saw(model_folder: Path, tmp_path: Path) -> None:
    rows = [DatasetRow(trajectory=episode(2))]
    options = {
        "epochs": 60,
        "batch_size": 1,
        "learning_rate": 3e-2,
        "schedule": "linear",
        "checkpoint_every_steps": 100,
    }
    job = spec(model_folder, tmp_path / "out", **options)
    report, heard = run(job, tmp_path / "job", rows)
    assert heard.phases == ["loading_model", "rendering", "training", "saving"]
    assert report.steps == 60
    assert report.first_loss
    assert report.final_loss is not None
    assert report.first_loss > 5 > 0.1 > report.final_loss
    assert {"loss", "learning_rate", "grad_norm", "supervised_tokens_per_s", "observation_share"} <= set(
        heard.steps[0][2]
    )

    trained = Agent(name="trained", model=ModelRef(source="folder", path=str(tmp_path / "out")))
    policy = open_policy(trained, Sampling(max_new_tokens=64))
    opening = (Message(role="system", content="You are an agent."), Message(role="user", content="price of the mango?"))
    reply = policy.act([Turn(episode_id="a", messages=opening, tools=TOOLS)])[0]
    assert reply.thought == "look it up 0"
    assert reply.actions[0].args == {"query": "mango 0"}
    answer = Message(role="tool", content="result 0: id 12")
    assert policy.act([Turn(episode_id="a", messages=(answer,))])[0].text == "It costs 40."


@pytest.fixture(scope="module")
def whole_of_six(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of a run over 6 rows, 6 steps, that nothing has interrupted."""
    folder = tmp_path_factory.mktemp("six")
    run(spec(model_folder, folder / "out"), folder / "job", dataset(6))
    return folder / "out"


@pytest.mark.parametrize(("lora", "kills"), [(None, (1, 6)), (LORA, (4,))], ids=["full", "lora"])
def test_a_run_killed_at_any_step_resumes_to_bit_equal_weights(
    model_folder: Path, tmp_path: Path, lora: LoraConfig | None, kills: tuple[int, ...]
) -> None:
    """7 rows in steps of 2 are 4 steps an epoch, the last of one row: 6 steps with 1.5 epochs."""
    rows = dataset(7)
    whole = spec(model_folder, tmp_path / "whole", epochs=1.5, lora=lora)
    reference, heard = run(whole, tmp_path / "job-whole", rows)
    assert [(step, total) for step, total, _ in heard.steps] == [(i, 6) for i in range(1, 7)]
    for kill_at in kills:
        job, output = tmp_path / f"job-{kill_at}", tmp_path / f"out-{kill_at}"
        with pytest.raises(Killed):
            run(spec(model_folder, output, epochs=1.5, lora=lora), job, rows, Recorder(kill_at=kill_at))
        assert not output.exists()
        report, resumed = run(spec(model_folder, output, epochs=1.5, lora=lora), job, rows)
        began = min((kill_at - 1) // 2 * 2, 4)
        assert resumed.steps[0][0] == began + 1
        assert same(tmp_path / "whole", output)
        measured = {"resumed_from_step", "matmul_gflops"}
        assert report.resumed_from_step == (began or None)
        assert report.model_dump(exclude=measured) == reference.model_dump(exclude=measured)
        assert [m["loss"] for _, _, m in resumed.steps] == [
            m["loss"] for s, _, m in heard.steps if s >= resumed.steps[0][0]
        ]


def test_a_stop_saves_a_checkpoint_and_no_model_and_the_next_attempt_goes_on(
    model_folder: Path, tmp_path: Path, whole_of_six: Path
) -> None:
    rows = dataset(6)
    job = spec(model_folder, tmp_path / "out")
    report, heard = run(job, tmp_path / "job", rows, Recorder(stop_at=3))
    assert report.stopped
    assert report.steps == 3
    assert heard.checkpoints == [2, 3]
    assert not (tmp_path / "out").exists()
    again, _ = run(job, tmp_path / "job", rows)
    assert not again.stopped
    assert same(whole_of_six, tmp_path / "out")


def test_a_kill_inside_a_checkpoint_leaves_the_one_before(
    model_folder: Path, tmp_path: Path, whole_of_six: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = dataset(6)

    def killed_at_four(aside: Path, destination: Path) -> None:
        if destination.name.endswith("4"):
            raise Killed
        publish(aside, destination)

    publish = checkpoints.publish
    monkeypatch.setattr(checkpoints, "publish", killed_at_four)
    with pytest.raises(Killed):
        run(spec(model_folder, tmp_path / "out"), tmp_path / "job", rows)
    monkeypatch.undo()
    _, resumed = run(spec(model_folder, tmp_path / "out"), tmp_path / "job", rows)
    assert resumed.steps[0][0] == 3
    assert resumed.warnings == []
    assert same(whole_of_six, tmp_path / "out")


def test_a_checkpoint_of_another_run_is_refused_and_a_damaged_one_is_skipped(
    model_folder: Path, tmp_path: Path
) -> None:
    job = spec(model_folder, tmp_path / "out")
    with pytest.raises(Killed):
        run(job, tmp_path / "job", dataset(6), Recorder(kill_at=5))
    other_rows = [*dataset(5), DatasetRow(trajectory=episode(1, question="something else"))]
    for other, rows in ((spec(model_folder, tmp_path / "out", learning_rate=0.1), dataset(6)), (job, other_rows)):
        with pytest.raises(Conflict, match="checkpoint_mismatch"):
            run(other, tmp_path / "job", rows)
    newest = tmp_path / "job/checkpoints/step-00000004/weights.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    _, resumed = run(job, tmp_path / "job", dataset(6))
    assert resumed.steps[0][0] == 3
    code, message = resumed.warnings[0]
    assert code == "checkpoint_skipped"
    assert "step-00000004: weights.safetensors differs from its manifest" in message


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda p: (p / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda p: (p / "manifest.json").write_text("{"), "manifest.json cannot be read"),
        (lambda p: (p / "state.pt").unlink(), "state.pt is missing"),
        (lambda p: (p / "state.pt").write_bytes(b"short"), "state.pt has 5 bytes"),
    ],
)
def test_files_that_differ_from_the_manifest_are_not_read(tmp_path: Path, spoil: Any, reason: str) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in (1, 2):
        progress = checkpoints.Progress(step, 0, step, {})
        path = checkpoints.save_checkpoint(tmp_path, model, optimizer, progress, identity="x", keep=5)
    spoil(path)
    newest = checkpoints.newest_complete(tmp_path)
    assert newest.path == tmp_path / "step-00000001"
    assert len(newest.skipped) == 1
    assert reason in newest.skipped[0]


def test_only_the_newest_checkpoints_stay(model_folder: Path, tmp_path: Path) -> None:
    run(
        spec(model_folder, tmp_path / "out", checkpoint_every_steps=1, keep_checkpoints=2), tmp_path / "job", dataset(6)
    )
    names = sorted(p.name for p in (tmp_path / "job/checkpoints").iterdir())
    assert names == ["machine.json", "step-00000004", "step-00000005"]


def test_one_row_and_one_partial_step_still_move_the_weights(model_folder: Path, tmp_path: Path) -> None:
    report, _ = run(spec(model_folder, tmp_path / "out", epochs=1, batch_size=16), tmp_path / "job", dataset(1))
    assert report.steps == 1
    assert not same(model_folder, tmp_path / "out")


def test_the_result_does_not_depend_on_how_a_step_is_split(model_folder: Path, tmp_path: Path) -> None:
    losses = []
    for tokens in (64, 100_000):
        job = spec(
            model_folder, tmp_path / str(tokens), batch_size=6, batch_tokens=tokens, epochs=1, learning_rate=1e-3
        )
        _, heard = run(job, tmp_path / f"job-{tokens}", dataset(6))
        losses.append([m["loss"] for _, _, m in heard.steps])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    left, right = weights(tmp_path / "64"), weights(tmp_path / "100000")
    assert all(torch.allclose(left[name], right[name], atol=1e-4) for name in left)


def test_validation_is_measured_at_the_end_of_each_epoch(model_folder: Path, tmp_path: Path) -> None:
    heard = Recorder()
    report = train(spec(model_folder, tmp_path / "out"), Data(dataset(4), dataset(2)), tmp_path / "job", heard)
    measured = {step: m["validation_loss"] for step, _, m in heard.steps if "validation_loss" in m}
    assert list(measured) == [2, 4]
    assert report.validation_loss == measured[4]


def test_a_dataset_with_nothing_to_learn_is_refused_with_the_reasons(model_folder: Path, tmp_path: Path) -> None:
    masked = episode(1).model_copy(
        update={"steps": tuple(step.model_copy(update={"train": False}) for step in episode(1).steps)}
    )
    with pytest.raises(TrainingFailed, match=r"\[nothing_supervised\].*\(nothing_supervised 2\)"):
        run(spec(model_folder, tmp_path / "out"), tmp_path / "job", [DatasetRow(trajectory=masked)] * 2)


def test_runs_longer_than_the_context_are_reported(model_folder: Path, tmp_path: Path) -> None:
    long = [DatasetRow(trajectory=episode(1, question="long " * 3000))]
    with pytest.raises(TrainingFailed, match=r"too_long 1.*that fit into the model's context of \d+ tokens"):
        run(spec(model_folder, tmp_path / "out"), tmp_path / "job", long)
    with pytest.raises(TrainingFailed, match=r"too_long 1.*raise max_length above 200"):
        run(spec(model_folder, tmp_path / "other", max_length=200), tmp_path / "job2", long)


def test_drops_and_truncations_are_counted_and_reported(model_folder: Path, tmp_path: Path) -> None:
    rows = [*dataset(3), DatasetRow(trajectory=episode(1, question="long " * 400)), DatasetRow(trajectory=episode(9))]
    report, heard = run(spec(model_folder, tmp_path / "out", max_length=400), tmp_path / "job", rows)
    assert report.dropped == {"too_long": 1}
    assert report.rows == 4
    assert report.truncated_turns > 1
    messages = [message for _, message in heard.warnings]
    assert "1 of 5 dataset rows give no example: too_long 1" in messages
    assert any(message.startswith(f"{report.truncated_turns} agent turns fell off") for message in messages)


def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_last_good_checkpoint(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def later_nan(engine: Engine, rows: Any, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(1)
        loss, logprobs = nll(engine, rows, weight)
        return loss * (math.nan if len(calls) > 3 else 1.0), logprobs

    nll = Engine.nll
    monkeypatch.setattr(Engine, "nll", later_nan)
    job = spec(model_folder, tmp_path / "out", batch_size=1, batch_tokens=5000)
    with pytest.raises(TrainingFailed, match=r"\[diverged\] step 4 of 12 .*step-00000002"):
        run(job, tmp_path / "job", dataset(6))
    assert not (tmp_path / "out").exists()


def test_an_adapter_is_saved_alone_acts_with_its_base_and_is_trained_further(
    model_folder: Path, tmp_path: Path
) -> None:
    job = spec(model_folder, tmp_path / "out", lora=LORA, learning_rate=1e-2)
    run(job, tmp_path / "job", dataset(4))
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "chat_template.jinja"} <= names
    assert "model.safetensors" not in names
    config = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(model_folder)
    base = ModelRef(source="folder", path=str(model_folder))
    adapted = base.model_copy(update={"adapter": str(tmp_path / "out")})
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert not torch.allclose(load_model(adapted).model(ids).logits, load_model(base).model(ids).logits, atol=1e-3)
    further = spec(model_folder, tmp_path / "further", lora=LORA)
    agent = Agent(name="tiny", model=adapted)
    _, heard = run(further.model_copy(update={"agent": agent}), tmp_path / "job-further", dataset(2))
    assert heard.steps
    assert not same(tmp_path / "out", tmp_path / "further")


@pytest.mark.parametrize("kind", ["rslora", "dora"])
def test_other_kinds_of_adapters_learn_resume_and_act(model_folder: Path, tmp_path: Path, kind: str) -> None:
    lora = LORA.model_copy(update={kind: True})
    rows = dataset(4)
    job = spec(model_folder, tmp_path / "out", lora=lora)
    run(job, tmp_path / "job", rows)
    if kind == "dora":  # it has parameters of its own
        again = spec(model_folder, tmp_path / "again", lora=lora)
        with pytest.raises(Killed):
            run(again, tmp_path / "job-again", rows, Recorder(kill_at=3))
        run(again, tmp_path / "job-again", rows)
        assert same(tmp_path / "out", tmp_path / "again")
    assert json.loads((tmp_path / "out/adapter_config.json").read_text())[f"use_{kind}"]
    ref = ModelRef(source="folder", path=str(model_folder), adapter=str(tmp_path / "out"))
    policy = open_policy(Agent(name="a", model=ref), Sampling(max_new_tokens=4))
    assert policy.act([Turn(episode_id="a", messages=(Message(role="user", content="price?"),))])
