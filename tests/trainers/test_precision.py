"""Number formats: what the machine decides, what stays float32, and what a resumed run repeats."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.records.hyperparameters import SFTConfig
from quintain.trainers.data.streams import token_row
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop import precision
from quintain.trainers.loop.checkpoints import newest_complete
from quintain.trainers.models import load_model
from trainers.runs import LORA, Killed, Recorder, metric, rows_for, run, same, spec, weights

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


def test_small_models_and_jobs_from_before_the_measurement_train_in_fp32_without_one(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(spec(model_folder, tmp_path / "out").agent.model).model
    monkeypatch.setattr(precision, "bf16_speedup", lambda inner, outer: 9.0)
    assert precision.choose("auto", model).name == "fp32"
    monkeypatch.setattr(precision, "_LARGE_MODEL", 0)
    assert precision.choose("auto", model).name == "bf16"
    assert precision.choose("auto", model, casts_to_act=True).name == "fp32"
    old = tmp_path / "machine.json"
    old.write_text('{"fast_matmul": false}')
    assert precision.choose("auto", model, old).name == "fp32"
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
