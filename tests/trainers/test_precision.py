"""Number formats: what the machine decides, what stays float32, and what a resumed run repeats."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from quintain.records.hyperparameters.methods import PPOConfig, RewardConfig, SFTConfig
from quintain.trainers.data.streams import token_row
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop import precision
from quintain.trainers.loop.checkpoints import newest_complete
from quintain.trainers.loop.optimizer import BF16AdamW, stochastically_rounded
from quintain.trainers.models.loading import load_model
from tiny_models import save_tiny_model
from trainers.runs import LORA, Killed, Recorder, dataset, metric, resumed, rows_for, run, same, spec, weights

FEW: dict[str, Any] = {"epochs": 2, "schedule": "constant", "warmup_ratio": 0.0, "learning_rate": 2e-3}
"""Four steps on four rows."""


def newest(job: Path) -> Path:
    path = newest_complete(job / "checkpoints").path
    assert path is not None
    return path


def moments(folder: Path) -> set[torch.dtype]:
    state = torch.load(folder / "state.pt", weights_only=True)["optimizer"]["state"]
    return {entry[name].dtype for entry in state.values() for name in ("exp_avg", "exp_avg_sq")}


def test_full_training_in_bf16_ends_near_fp32_and_keeps_float32_weights_and_moments(
    model_folder: Path, tmp_path: Path
) -> None:
    """Two blocks of seven products and a head round to 8 bits: independent errors of 2^-8 add to sqrt(15) 2^-8 = 1.5 %."""
    losses = []
    for name in ("fp32", "bf16"):
        job = spec(model_folder, tmp_path / name, precision=name, **FEW)
        report, recorder = run(job, tmp_path / f"job-{name}", rows_for("sft", 4))
        assert (report.precision, report.precision_rule) == (name, "as requested")
        losses.append(metric(recorder, "loss"))
    assert losses[1] != losses[0]
    error = math.sqrt(15) * 2**-8
    assert losses[1] == pytest.approx(losses[0], rel=error)
    assert losses[1][-1] < (1 - error) * losses[1][0]
    checkpoint = newest(tmp_path / "job-bf16")
    assert {w.dtype for folder in (checkpoint, tmp_path / "bf16") for w in weights(folder).values()} == {torch.float32}
    assert moments(checkpoint) == {torch.float32}


def test_auto_repeats_its_measured_choice_when_it_resumes_and_trains_float32_adapters_on_a_bf16_base(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "_LARGE_MODEL", 0)
    monkeypatch.setattr(precision, "bf16_speedup", lambda inner, outer: 2.0)
    jobs = {name: spec(model_folder, tmp_path / name, lora=LORA, **FEW) for name in ("whole", "resumed")}
    whole, _ = run(jobs["whole"], tmp_path / "job-whole", rows_for("sft", 4))
    with pytest.raises(Killed):
        run(jobs["resumed"], tmp_path / "job-resumed", rows_for("sft", 4), Recorder(kill_at=3))
    monkeypatch.setattr(precision, "bf16_speedup", lambda inner, outer: 0.5)  # other load, another answer
    resumed, _ = run(jobs["resumed"], tmp_path / "job-resumed", rows_for("sft", 4))

    assert resumed.resumed_from_step == 2
    assert (whole.precision, whole.precision_rule) == (resumed.precision, resumed.precision_rule)
    assert whole.precision == "bf16"
    assert "measured 2 times as fast" in whole.precision_rule
    assert same(tmp_path / "whole", tmp_path / "resumed")
    assert {w.dtype for w in weights(tmp_path / "whole").values()} == {torch.float32}
    assert moments(newest(tmp_path / "job-whole")) == {torch.float32}


def test_small_models_and_those_that_act_train_in_fp32_without_a_measurement(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(spec(model_folder, tmp_path / "out").agent.model).model
    monkeypatch.setattr(precision, "bf16_speedup", lambda inner, outer: 9.0)
    assert precision.choose("auto", model).name == "fp32"
    monkeypatch.setattr(precision, "_LARGE_MODEL", 0)
    assert precision.choose("auto", model).name == "bf16"
    assert precision.choose("auto", model, casts_to_act=True).name == "fp32"
    monkeypatch.setattr(precision, "bf16_speedup", lambda inner, outer: 1.2)
    assert precision.choose("auto", model).name == "fp32"


def test_log_probs_and_their_differences_are_float32_on_a_bf16_base(model_folder: Path, tmp_path: Path) -> None:
    """New adapters change nothing: the first preference loss is log 2, though single log-probs have 8 bits."""
    job = spec(model_folder, tmp_path / "out", "dpo", lora=LORA, precision="bf16", max_steps=1)
    _, recorder = run(job, tmp_path / "job", rows_for("dpo", 4))
    assert metric(recorder, "loss")[0] == pytest.approx(math.log(2), abs=1e-3)

    config = SFTConfig(lora=LORA, precision="bf16")
    model = load_model(job.agent.model, lora=LORA, train=True).model
    chosen = precision.choose("bf16", model)
    precision.hold_base(model, config, chosen)
    types = {(p.requires_grad, p.dtype) for p in model.parameters()}
    assert types == {(False, torch.bfloat16), (True, torch.float32)}
    rows = [token_row(list(range(5, 25)), [False] * 10 + [True] * 10)]
    scores = Engine.of(model, autocast=chosen.autocast).logprobs(rows).logprobs
    assert scores.dtype == torch.float32
    assert not torch.equal(scores, scores.bfloat16().float())


def test_stochastic_rounding_is_right_on_average_and_keeps_what_bfloat16_has() -> None:
    """From 1 the next number of bfloat16 is 1.0078125, so a quarter of the way up comes out as that in a quarter of the cases."""
    draws = torch.Generator().manual_seed(0)
    x = torch.tensor([1.0 + 0.25 / 128, -1.0 - 0.25 / 128, 1.0, 0.0, -3.5e20, 2.0**-130]).repeat(20_000, 1)
    rounded = stochastically_rounded(x, draws).float()
    assert rounded[:, 0].unique().tolist() == [1.0, 1.0 + 1 / 128]
    assert float((rounded[:, 0] > 1).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert float((rounded[:, 1] < -1).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert torch.equal(rounded[:, 2:4], x[:, 2:4])
    assert ((rounded - x).mean(0).abs() <= 1e-3 * x[0].abs()).all()


def fitted(make: Any, dtype: torch.dtype) -> float:
    """Distance from the target after 400 updates of 1e-4: less than half of the spacing of bfloat16 at 0.25 to 1 each."""
    target = torch.linspace(0.25, 1.0, 4096)
    weight = torch.nn.Parameter((target + 0.02).to(dtype))
    optimizer = make([{"params": [weight], "weight_decay": 0.0, "lr": 1e-4}])
    for _ in range(400):
        weight.grad = weight.detach() - target.to(dtype)
        optimizer.step()
    return float((weight.detach().float() - target).abs().mean())


def test_updates_below_the_spacing_of_bfloat16_add_up() -> None:
    """In float32 the weights arrive; rounded to the nearest they never leave; rounded stochastically they arrive within it."""
    exact = fitted(torch.optim.AdamW, torch.float32)
    assert fitted(BF16AdamW, torch.float32) == pytest.approx(exact, rel=1e-3)
    spacing = float(torch.linspace(0.25, 1.0, 4096).log2().floor().exp2().mean()) / 128
    assert fitted(torch.optim.AdamW, torch.bfloat16) > 0.018
    assert abs(fitted(BF16AdamW, torch.bfloat16) - exact) < spacing


def test_a_run_in_bf16_learns_as_one_in_float32_and_resumes_bit_equal(tmp_path: Path) -> None:
    """At a rate so small that most updates are below half of the spacing of the weights."""
    base, rows = save_tiny_model(tmp_path / "base"), dataset(6)
    settings: dict[str, Any] = {"learning_rate": 6e-4, "epochs": 3, "checkpoint_every_steps": 4}
    curves = {}
    for name in ("adamw", "adamw_bf16"):
        job = spec(base, tmp_path / name, optimizer=name, **settings)
        report, recorder = run(job, tmp_path / f"{name} job", rows)
        curves[name] = metric(recorder, "loss")
        assert recorder.warnings == []
    first, last = curves["adamw"][0], curves["adamw"][-1]
    assert report.precision == "bf16"
    assert curves["adamw_bf16"][0] == pytest.approx(first, rel=0.01)
    assert last < 0.97 * first
    assert curves["adamw_bf16"][-1] - last == pytest.approx(0, abs=0.05 * (first - last))
    trained = load_file(tmp_path / "adamw_bf16" / "model.safetensors")
    assert {tensor.dtype for tensor in trained.values()} == {torch.bfloat16}
    state = torch.load(
        next((tmp_path / "adamw_bf16 job" / "checkpoints").glob("step-*")) / "state.pt", weights_only=True
    )
    moments = [t for entry in state["optimizer"]["state"].values() for name, t in entry.items() if name != "step"]
    assert {moment.dtype for moment in moments} == {torch.bfloat16}

    again = spec(base, tmp_path / "resumed", optimizer="adamw_bf16", **settings)
    assert resumed(again, tmp_path / "again", rows, kill_at=5)[0].resumed_from_step == 4
    assert same(tmp_path / "adamw_bf16", tmp_path / "resumed")


def test_settings_that_it_does_not_go_with_are_refused() -> None:
    for kind, settings, words in [
        (SFTConfig, {"lora": {}}, "set lora to null"),
        (SFTConfig, {"precision": "fp32"}, "set precision to 'auto'"),
        (PPOConfig, {"processes": 2}, "processes to 1"),
        (RewardConfig, {"sharding": "full", "processes": 2}, "set sharding to 'none'"),
    ]:
        with pytest.raises(ValidationError) as refused:
            kind(optimizer="adamw_bf16", **settings)
        assert words in str(refused.value)
