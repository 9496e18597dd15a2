"""Faults of a run are reported plainly, and cost nothing of the steps before."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from full_disk import full_disk
from quintain.errors import Conflict, TrainingFailed, Unavailable
from quintain.records.dataset import DatasetRow, GroupRow, LabelledRow, Row
from quintain.records.hyperparameters.methods import KTOConfig, SFTConfig
from quintain.records.trajectory import Trajectory
from quintain.trainers.data.examples import ExampleBatch
from quintain.trainers.engine.forward import Engine, TokenScores
from quintain.trainers.loop import checkpoints, loop
from quintain.trainers.loop.passes import Sums
from quintain.trainers.loop.report import left_out
from tiny_models import save_tiny_model
from trainers.episodes import episode
from trainers.runs import Killed, Recorder, dataset, rows_for, run, run_of, spec


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_full_disk_is_reported_with_the_remedy_and_costs_no_step_before(model_folder: Path, tmp_path: Path) -> None:
    """6 steps with a checkpoint after 2 and 4: first the checkpoint does not fit, then the saved model."""
    rows, job = dataset(3), spec(model_folder, tmp_path / "out", batch_size=1, keep_checkpoints=1)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, Recorder(kill_at=3))
    kept = tmp_path / "job/checkpoints"
    before = files(kept)
    for part in ("tokenizer.json", "model.safetensors", "state.pt"):
        with full_disk((kept / "step-00000002" / part).stat().st_size // 2), pytest.raises(Unavailable) as refused:
            run(job, tmp_path / "job", rows)
        assert refused.value.code == "disk_refused"
        assert re.search(r"cannot write \S*step-00000004 ", refused.value.message)
        assert "free disk space" in refused.value.message
        assert "continues from step-00000002" in refused.value.message
        assert files(kept) == before, "a partial checkpoint does not keep the disk full"
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, Recorder(kill_at=5))
    with (
        full_disk(10_000),
        pytest.raises(Unavailable, match=r"\[disk_refused\] cannot write .*out .*step-00000004"),
    ):
        run(job, tmp_path / "job", rows)
    assert not (tmp_path / "out").exists()


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def save(folder: Path, step: int, *, keep: int = 5) -> Path:
    """Save a checkpoint of a small model."""
    model = torch.nn.Linear(2, 2)
    progress = checkpoints.Progress(step, {})
    optimizer = torch.optim.AdamW(model.parameters())
    return checkpoints.save_checkpoint(folder, model, optimizer, progress, identity="x", keep=keep)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda p: (p / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda p: (p / "manifest.json").write_text("{"), "manifest.json cannot be read"),
        (lambda p: replace_in(p / "manifest.json", '"identity": "x"', '"identity": "y"'), "manifest.json differs"),
        (lambda p: (p / "state.pt").unlink(), "state.pt is missing"),
        (lambda p: (p / "state.pt").write_bytes(b"short"), "state.pt has 5 bytes"),
        (lambda p: (p / "manifest.json").unlink() or (p / "manifest.json").mkdir(), "it cannot be read"),
        (lambda p: p.rename(p.parent / "aside") and p.write_text("no folder"), "it cannot be read"),
    ],
)
def test_a_checkpoint_that_differs_from_its_manifest_is_not_read(
    tmp_path: Path, spoil: Callable[[Path], Any], reason: str
) -> None:
    save(tmp_path, 1)
    spoil(save(tmp_path, 2))
    newest = checkpoints.newest_complete(tmp_path)
    assert newest.path == tmp_path / "step-00000001"
    (skipped,) = newest.skipped
    assert f"step-00000002: {reason}" in skipped


def test_a_damaged_newer_checkpoint_does_not_displace_the_good_one_that_is_written(tmp_path: Path) -> None:
    (save(tmp_path, 9, keep=1) / "model.safetensors").write_bytes(b"damaged")
    assert save(tmp_path, 5, keep=1).is_dir()
    assert checkpoints.newest_complete(tmp_path).path == tmp_path / "step-00000005"
    assert files(save(tmp_path, 9, keep=1).parent) == {"step-00000009"}


@pytest.mark.parametrize("lora", [None, {"rank": 2}], ids=["all weights", "adapters"])
def test_a_run_does_not_continue_when_its_start_model_was_replaced_by_another_of_its_shape(
    tmp_path: Path, lora: dict[str, Any] | None
) -> None:
    model = save_tiny_model(tmp_path / "model", hidden=16)
    job = spec(model, tmp_path / "out", lora=lora, epochs=4, checkpoint_every_steps=1)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", dataset(2), Recorder(kill_at=2))
    save_tiny_model(tmp_path / "model", hidden=16, seed=1)
    with pytest.raises(Conflict, match=r"\[checkpoint_mismatch\] .*another configuration, model or data"):
        run(job, tmp_path / "job", dataset(2))


@pytest.mark.parametrize(
    ("step", "message"), [(1, "step 1 of 6 .*the weights of the start model"), (4, "step 4 of 6 .*step-00000002")]
)
def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_last_good_checkpoint(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, message: str
) -> None:
    calls: list[int] = []

    def later_nan(engine: Engine, rows: Any, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(1)
        loss, logprobs = nll(engine, rows, weight)
        return loss * (math.nan if len(calls) >= step else 1.0), logprobs

    nll = Engine.nll
    monkeypatch.setattr(Engine, "nll", later_nan)
    job = spec(model_folder, tmp_path / "out", batch_size=1, batch_tokens=5000)
    with pytest.raises(TrainingFailed, match=rf"\[diverged\] {message}"):
        run(job, tmp_path / "job", dataset(3))
    assert not (tmp_path / "out").exists()


def test_a_validation_loss_that_is_not_finite_ends_the_run_and_names_the_last_good_checkpoint(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([1.0, math.nan])
    monkeypatch.setattr(loop, "held_out", lambda *_: Sums(next(losses)))
    job = spec(model_folder, tmp_path / "out", early_stopping_patience=1, validate_every_steps=3)
    with pytest.raises(TrainingFailed, match=r"\[diverged\] the validation after step 3 of 4 .*step-00000002"):
        run(job, tmp_path / "job", dataset(4), validation=dataset(1))
    assert not (tmp_path / "out").exists()


def test_kto_that_diverges_is_reported_as_any_other_method(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its estimate of the KL divergence is the first to meet NaN."""

    def spoilt(engine: Engine, rows: Any, **figures: bool) -> TokenScores:
        scored = logprobs(engine, rows, **figures)
        return scored._replace(logprobs=scored.logprobs * (math.nan if len(recorder.steps) == 1 else 1.0))

    logprobs, recorder = Engine.logprobs, Recorder()
    monkeypatch.setattr(Engine, "logprobs", spoilt)
    with pytest.raises(TrainingFailed, match=r"\[diverged\] step 2 of 4 gave loss nan"):
        run(spec(model_folder, tmp_path / "out", "kto"), tmp_path / "job", rows_for("kto", 4), recorder)


def test_a_run_that_ends_worse_than_guessing_is_reported(model_folder: Path, tmp_path: Path) -> None:
    """An untrained model of 512 tokens begins near ln 512 = 6.24 nats a token; steps of size 1 take it beyond 10."""
    options: dict[str, Any] = {"learning_rate": 1.0, "grad_clip": 0, "schedule": "constant", "warmup_ratio": 0}
    report, recorder = run(spec(model_folder, tmp_path / "out", **options), tmp_path / "job", dataset(4))
    assert report.first_loss is not None
    assert report.final_loss is not None
    assert report.first_loss + 1 < report.final_loss < 2 * report.first_loss + 1
    assert any(code == "diverged" and "the loss rose from" in message for code, message in recorder.warnings)


def test_a_run_whose_cloning_weight_is_too_small_for_its_rows_is_left_out_and_counted(
    model_folder: Path, tmp_path: Path
) -> None:
    """With T = 0.005 a run that earned 1 less weighs 2 exp(-200) = 3e-87: more than 0, and nothing in float32."""
    rows = [DatasetRow(trajectory=run_of(i, "It costs 40."), reward=float(i)) for i in range(2)]
    job = spec(model_folder, tmp_path / "out", "bc", temperature=0.005, min_reward=None, batch_size=1, epochs=1)
    report, recorder = run(job, tmp_path / "job", rows)
    assert (report.examples, report.dropped) == (1, {"zero_weight": 1})
    assert report.first_loss
    assert not any(code == "diverged" for code, _ in recorder.warnings)
    assert load_file(tmp_path / "out" / "model.safetensors")


def masked(run: Trajectory) -> Trajectory:
    return run.model_copy(update={"steps": tuple(step.model_copy(update={"train": False}) for step in run.steps)})


LONG = DatasetRow(trajectory=episode(1, question="long " * 3000))


@pytest.mark.parametrize(
    ("method", "row", "options", "reason"),
    [
        ("sft", DatasetRow(trajectory=masked(episode(1))), {}, r"\(nothing_supervised 1\)"),
        ("sft", LONG, {}, r"too_long 1.*that fit into the model's context of \d+ tokens"),
        ("sft", LONG, {"max_length": 200}, "too_long 1.*raise max_length above 200"),
        ("bc", DatasetRow(trajectory=episode(1)), {}, "reward_unknown 1"),
        ("kto", LabelledRow(trajectory=episode(1), desirable=True, weight=0.0), {}, "zero_weight 1"),
        ("grpo", GroupRow(key="a", trajectories=(episode(1), episode(2)), rewards=(1.0, 1.0)), {}, "no_variance 1"),
    ],
)
def test_data_without_anything_to_learn_is_refused_with_the_reason(
    model_folder: Path, tmp_path: Path, method: str, row: Row, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(TrainingFailed, match=rf"\[nothing_supervised\].*{reason}"):
        run(spec(model_folder, tmp_path / "out", method, **options), tmp_path / "job", [row])


def test_turns_that_are_cut_off_are_reported_with_the_remedy_of_their_settings() -> None:
    batch = ExampleBatch(truncated_turns=3)
    for config, words, advises_chunk in (
        (SFTConfig(), "3 agent turns fell off the end of rows longer than 64 tokens; raise", True),
        (SFTConfig(chunk=True), "3 agent turns do not fit into 64 tokens even in a chunk of their own", False),
        (KTOConfig(), "3 agent turns fell off the end of rows longer than 64 tokens; raise", False),
    ):
        (warning,) = left_out(batch, 5, config, 64)
        assert warning.startswith(words)
        assert ("set chunk" in warning) == advises_chunk


def test_drops_truncations_and_a_missing_validation_are_counted_and_reported(
    model_folder: Path, tmp_path: Path
) -> None:
    rows = [*dataset(3), DatasetRow(trajectory=episode(1, question="long " * 400)), DatasetRow(trajectory=episode(9))]
    held_out = [DatasetRow(trajectory=episode(1), weight=0.0)]
    job = spec(model_folder, tmp_path / "out", max_length=400, max_steps=1, early_stopping_patience=1)
    report, recorder = run(job, tmp_path / "job", rows, validation=held_out)
    assert report.dropped == {"too_long": 1}
    assert report.rows == 4
    assert report.truncated_turns > 1
    messages = [message for _, message in recorder.warnings]
    assert "1 of 5 dataset rows give no example: too_long 1" in messages
    assert any(message.startswith(f"{report.truncated_turns} agent turns fell off") for message in messages)
    assert "1 of 1 dataset rows of the validation split give no example: zero_weight 1" in messages
    assert any("early_stopping_patience has no effect" in message for message in messages)
