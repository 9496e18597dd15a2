"""Training a model that two real processes hold in parts: as one process would have trained it, with the same checkpoints."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from quintain.errors import InvalidInput, TrainingFailed
from quintain.records.hyperparameters import LoraConfig, SFTConfig
from quintain.trainers.distributed.collectives import RankPlace
from quintain.trainers.distributed.member import RankSetup
from quintain.trainers.loop.report import TrainingReport
from tiny_models import save_tiny_model
from trainers import rank_step
from trainers.runs import Killed, KillsARank, Recorder, others, rows_for, run, same, spec, weights

# peft 0.21 asks transformers 5.23 by the name that it had before.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

LORA = LoraConfig(rank=4, alpha=8.0)
SHARDED: dict[str, Any] = {"processes": 2, "sharding": "full"}
RUNS: dict[str, dict[str, Any]] = {
    "sft": {},
    "sft recomputed": {"gradient_checkpointing": True},
    "dpo": {},
    "dpo adapters": {"lora": LORA},
    "grpo": {},
    "kto": {},
}
"""Method, and what sets the run apart."""

Train = Callable[[str, bool], tuple[Path, TrainingReport, Recorder]]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", hidden=16)


@pytest.fixture(scope="module")
def trained(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """A whole run over 5 rows, sharded or by one process, made once: 6 steps, the last of each epoch of one row."""
    made: dict[tuple[str, bool], tuple[Path, TrainingReport, Recorder]] = {}

    def train(name: str, sharded: bool) -> tuple[Path, TrainingReport, Recorder]:
        if (name, sharded) not in made:
            folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
            method = name.split()[0]
            job = spec(model_folder, folder / "out", method, **RUNS[name], **(SHARDED if sharded else {}))
            held_out = rows_for(method, 3) if name in ("sft", "kto") else []
            made[name, sharded] = folder / "out", *run(job, folder / "job", rows_for(method, 5), None, held_out)
        return made[name, sharded]

    return train


def alike(a: Path, b: Path) -> bool:
    """Do the weights agree to 1e-6 of their norm?"""
    left, right = weights(a), weights(b)
    return left.keys() == right.keys() and all(
        float((left[k] - right[k]).norm()) <= 1e-6 * float(left[k].norm()) for k in left
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "dpo adapters" else pytest.mark.soak) for name in RUNS]
)
def test_a_sharded_model_trains_as_a_whole_one_does(trained: Train, name: str) -> None:
    """Sums over ranks differ from those over passes in their float32 rounding alone."""
    (alone, one, heard_one), (together, two, heard_two) = trained(name, False), trained(name, True)
    figures = {"loss", "grad_norm", "tokens", "entropy", "kto_kl", "observation_share", "validation_loss"}
    for (_, _, a), (_, _, b) in zip(heard_one.steps, heard_two.steps, strict=True):
        assert a.keys() == b.keys()
        for figure in a.keys() & figures:
            assert b[figure] == pytest.approx(a[figure], rel=1e-5, abs=1e-6), figure
    assert alike(alone, together)
    assert (one.best_step, one.supervised_tokens) == (two.best_step, two.supervised_tokens)
    assert {path.name for path in alone.iterdir()} == {path.name for path in together.iterdir()}
    assert heard_one.checkpoints == heard_two.checkpoints
    assert others() == []


@pytest.mark.soak
def test_a_sharded_run_killed_and_then_cancelled_goes_on_sharded_or_whole(
    model_folder: Path, tmp_path: Path, trained: Train
) -> None:
    """A checkpoint stands after steps 2 and 4; the kill comes at step 3, the cancel after step 5."""
    (alone, _, _), (together, _, heard) = trained("dpo", False), trained("dpo", True)
    rows = rows_for("dpo", 5)
    job = spec(model_folder, tmp_path / "out", "dpo", **SHARDED)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, Recorder(kill_at=3))
    assert others() == []
    cancelled, before = run(job, tmp_path / "job", rows, Recorder(stop_at=5))
    assert (cancelled.stopped, cancelled.resumed_from_step, before.checkpoints) == (True, 2, [4, 5])
    assert not (tmp_path / "out").exists()
    shutil.copytree(tmp_path / "job", tmp_path / "job-whole")
    _, after = run(job, tmp_path / "job", rows)
    assert [m["loss"] for _, _, m in before.steps + after.steps] == [m["loss"] for _, _, m in heard.steps[2:]]
    assert same(together, tmp_path / "out")
    report, _ = run(spec(model_folder, tmp_path / "out-whole", "dpo"), tmp_path / "job-whole", rows)
    assert report.resumed_from_step == 5
    assert alike(alone, tmp_path / "out-whole")


@pytest.mark.soak
def test_a_whole_runs_checkpoint_goes_on_sharded_and_has_the_same_files(
    model_folder: Path, tmp_path: Path, trained: Train
) -> None:
    alone, together = trained("sft", False)[0], trained("sft", True)[0]
    rows, held_out = rows_for("sft", 5), rows_for("sft", 3)
    with pytest.raises(Killed):
        run(spec(model_folder, tmp_path / "out"), tmp_path / "job", rows, Recorder(kill_at=3), held_out)
    report, _ = run(spec(model_folder, tmp_path / "out", **SHARDED), tmp_path / "job", rows, None, held_out)
    assert report.resumed_from_step == 2
    assert alike(alone, tmp_path / "out")
    ours, theirs = (folder.parent / "job" / "checkpoints" / "step-00000004" for folder in (together, alone))
    assert {path.name for path in ours.iterdir()} == {path.name for path in theirs.iterdir()}
    sharded, whole = (torch.load(path / "state.pt", weights_only=True)["optimizer"] for path in (ours, theirs))
    assert sharded["param_groups"] == whole["param_groups"]
    for index, moments in whole["state"].items():
        assert moments.keys() == sharded["state"][index].keys()
        for name, moment in moments.items():
            torch.testing.assert_close(sharded["state"][index][name], moment, rtol=1e-4, atol=1e-7)


@pytest.mark.soak
@pytest.mark.parametrize(("every", "kept"), [(3, []), (1, [1])], ids=["in a pass", "while a checkpoint is gathered"])
def test_a_killed_process_ends_a_sharded_run_with_what_happened(
    model_folder: Path, tmp_path: Path, every: int, kept: list[int]
) -> None:
    """It is frozen after step 2, and killed while the other waits for it."""
    heard, job = KillsARank(), spec(model_folder, tmp_path / "out", checkpoint_every_steps=every, **SHARDED)
    with pytest.raises(TrainingFailed, match=r"\[process_lost\] process 2 of 2 was killed by SIGKILL; resume the job"):
        run(job, tmp_path / "job", rows_for("sft", 6), heard)
    assert (len(heard.steps), heard.checkpoints) == (2, kept)
    assert others() == []


@pytest.mark.soak
def test_models_on_the_padded_path_are_sharded_too(tmp_path: Path) -> None:
    """Windows of 16 tokens: all rows of a pass are padded together, so that ranks make as many passes as each other."""
    model = save_tiny_model(tmp_path / "model", hidden=16)
    config = json.loads((model / "config.json").read_text())
    windows = {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["sliding_attention"] * 2}
    (model / "config.json").write_text(json.dumps(config | windows))
    rows = rows_for("sft", 5)
    _, heard = run(spec(model, tmp_path / "whole"), tmp_path / "job-whole", rows)
    assert any("padded" in message for _, message in heard.warnings)
    run(spec(model, tmp_path / "sharded", **SHARDED), tmp_path / "job-sharded", rows)
    assert alike(tmp_path / "whole", tmp_path / "sharded")


@pytest.mark.soak
def test_bf16_passes_agree_as_far_as_bf16_does(model_folder: Path, tmp_path: Path) -> None:
    """It has 8 bits: a loss of about 6 nats is known to 2%."""
    rows = rows_for("sft", 3)
    _, alone = run(spec(model_folder, tmp_path / "whole", precision="bf16"), tmp_path / "job-whole", rows)
    _, both = run(spec(model_folder, tmp_path / "out", precision="bf16", **SHARDED), tmp_path / "job", rows)
    for (_, _, a), (_, _, b) in zip(alone.steps, both.steps, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=2e-3)
        assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=2e-2)
    assert {p.dtype for p in weights(tmp_path / "out").values()} == {torch.float32}


def test_each_rank_holds_half_of_parameters_gradients_and_moments(model_folder: Path, tmp_path: Path) -> None:
    setups = [
        RankSetup(
            spec(model_folder, tmp_path / "out", **SHARDED),
            SFTConfig(),
            RankPlace(rank, 2, 1, tmp_path / "store"),
            1,
            "highest",
        )
        for rank in range(2)
    ]
    (tmp_path / "setup").write_bytes(pickle.dumps(setups[1]))
    command = [sys.executable, str(Path(rank_step.__file__)), str(tmp_path / "setup")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        held = [rank_step.elements_held(setups[0])]
        held.append([int(count) for count in other.communicate(timeout=120)[0].split()])
    assert sum(count for _, count, *_ in held) == held[0][0]
    for total, *counts in held:
        assert all(0.49 * total <= count <= 0.51 * total for count in counts)


def test_sharding_needs_processes_and_a_model_that_need_not_act(model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="set processes to 2 or more, or sharding to 'none'"):
        SFTConfig(sharding="full")
    with pytest.raises(ValidationError, match=r"sample_every_steps is 5: .* set sample_every_steps to null"):
        SFTConfig(sample_every_steps=5, **SHARDED)
    job = spec(model_folder, tmp_path / "out", "grpo", **SHARDED)
    online = job.model_copy(update={"dataset_id": None, "environment": "quintain/inventory"})
    with pytest.raises(
        InvalidInput, match=r"\[no_whole_model\] .* act in 'quintain/inventory', got 'full': .* set sharding to 'none'"
    ):
        run(online, tmp_path / "job", [])
    assert others() == []
