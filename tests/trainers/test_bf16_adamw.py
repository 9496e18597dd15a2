"""Training all weights in bfloat16 with stochastic rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from quintain.records.hyperparameters import PPOConfig, RewardConfig, SFTConfig
from quintain.trainers.loop.bf16_adamw import BF16AdamW, stochastically_rounded
from tiny_models import save_tiny_model
from trainers.runs import dataset, metric, resumed, run, same, spec


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
    settings: dict[str, Any] = {"learning_rate": 6e-4, "epochs": 4, "checkpoint_every_steps": 4}
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
