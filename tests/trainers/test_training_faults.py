"""What goes wrong in a run is told plainly, and costs nothing that was won before."""

from __future__ import annotations

import math
import re
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from quintain.errors import Conflict, TrainingFailed, Unavailable
from quintain.records.dataset import DatasetRow
from quintain.trainers.engine.forward import Engine, TokenScores
from quintain.trainers.loop import checkpoints, loop
from quintain.trainers.loop.passes import ValidationSums
from tiny_models import save_tiny_model
from trainers.runs import Killed, Recorder, dataset, rows_for, run, run_of, same, spec

# peft 0.21 asks transformers 5.23 by the name that it had before.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", hidden=16)


@contextmanager
def full_disk(largest_file: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, which the system tells as it tells of a full disk."""
    limits, told = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, told)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_disk_that_is_full_at_a_checkpoint_is_told_with_the_remedy_and_costs_no_step_before(
    model_folder: Path, tmp_path: Path
) -> None:
    rows, job = dataset(4), spec(model_folder, tmp_path / "out", epochs=3)
    run(spec(model_folder, tmp_path / "whole", epochs=3), tmp_path / "job-whole", rows)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, Recorder(kill_at=3))
    kept = tmp_path / "job/checkpoints"
    before = files(kept)
    for part in ("weights.safetensors", "state.pt"):
        with full_disk((kept / "step-00000002" / part).stat().st_size // 2), pytest.raises(Unavailable) as refused:
            run(job, tmp_path / "job", rows)
        assert refused.value.code == "disk_refused"
        assert re.search(r"cannot write \S*step-00000004 ", refused.value.message)
        assert "free disk space" in refused.value.message
        assert "continues from step-00000002" in refused.value.message
        assert files(kept) == before, "what was half written does not keep the disk full"
    report, _ = run(job, tmp_path / "job", rows)
    assert report.resumed_from_step == 2
    assert same(tmp_path / "whole", tmp_path / "out")


def test_a_disk_that_is_full_when_the_model_is_saved_is_told_with_where_the_run_can_go_on(
    model_folder: Path, tmp_path: Path
) -> None:
    rows, job = dataset(4), spec(model_folder, tmp_path / "out", keep_checkpoints=1)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, Recorder(kill_at=3))
    with (
        full_disk(10_000),
        pytest.raises(Unavailable, match=r"\[disk_refused\] cannot write .*out .*step-00000002"),
    ):
        run(job, tmp_path / "job", rows)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: (path / "manifest.json").rename(path.parent / "aside") and (path / "manifest.json").mkdir(),
        lambda path: path.rename(path.parent / "aside") and path.write_text("no folder"),
    ],
    ids=["its manifest is a folder", "it is a file"],
)
def test_a_checkpoint_that_cannot_be_opened_is_passed_over(tmp_path: Path, spoil: Callable[[Path], Any]) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in (1, 2):
        path = checkpoints.save_checkpoint(
            tmp_path, model, optimizer, checkpoints.Progress(step, {}), identity="x", keep=5
        )
    spoil(path)
    newest = checkpoints.newest_complete(tmp_path)
    assert newest.path == tmp_path / "step-00000001"
    assert "step-00000002: it cannot be read" in newest.skipped[0]


def test_a_damaged_newer_checkpoint_does_not_push_out_the_good_one_that_is_written(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())

    def save(step: int) -> Path:
        progress = checkpoints.Progress(step, {})
        return checkpoints.save_checkpoint(tmp_path, model, optimizer, progress, identity="x", keep=1)

    (save(9) / "weights.safetensors").write_bytes(b"damaged")
    assert save(5).is_dir()
    assert checkpoints.newest_complete(tmp_path).path == tmp_path / "step-00000005"
    assert files(save(9).parent) == {"step-00000009"}


@pytest.mark.parametrize("lora", [None, {"rank": 2}], ids=["all weights", "adapters"])
def test_a_run_does_not_go_on_when_its_start_model_was_replaced_by_another_of_its_shape(
    tmp_path: Path, lora: dict[str, Any] | None
) -> None:
    rows = dataset(2)
    job = spec(save_tiny_model(tmp_path / "model", hidden=16), tmp_path / "out", lora=lora, epochs=4)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, Recorder(kill_at=3))
    save_tiny_model(tmp_path / "model", hidden=16, seed=1)
    with pytest.raises(Conflict, match=r"\[checkpoint_mismatch\] .*another configuration, model or data"):
        run(job, tmp_path / "job", rows)


def test_a_validation_loss_that_is_not_finite_ends_the_run_and_names_the_last_good_checkpoint(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "held_out", lambda *_: ValidationSums(math.nan, 0.0, 0, {}))
    job = spec(model_folder, tmp_path / "out", early_stopping_patience=1, validate_every_steps=3)
    with pytest.raises(TrainingFailed, match=r"\[diverged\] the validation after step 3 of 4 .*step-00000002"):
        run(job, tmp_path / "job", dataset(4), validation=dataset(1))
    assert not (tmp_path / "out").exists()


def test_kto_that_diverges_says_so_as_any_other_method(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its estimate of the KL divergence is the first to meet numbers that are none."""

    def spoilt(engine: Engine, rows: Any, *, entropy: bool = False) -> TokenScores:
        scored = logprobs(engine, rows, entropy=entropy)
        return scored._replace(logprobs=scored.logprobs * (math.nan if len(heard.steps) == 1 else 1.0))

    logprobs, heard = Engine.logprobs, Recorder()
    monkeypatch.setattr(Engine, "logprobs", spoilt)
    with pytest.raises(TrainingFailed, match=r"\[diverged\] step 2 of 4 gave loss nan"):
        run(spec(model_folder, tmp_path / "out", "kto"), tmp_path / "job", rows_for("kto", 4), heard)


def test_a_run_that_ends_worse_than_guessing_is_told(model_folder: Path, tmp_path: Path) -> None:
    """An untrained model of 512 tokens begins near ln 512 = 6.24 nats a token; steps of size 1 take it beyond 10."""
    options: dict[str, Any] = {"learning_rate": 1.0, "grad_clip": 0, "schedule": "constant", "warmup_ratio": 0}
    report, heard = run(spec(model_folder, tmp_path / "out", **options), tmp_path / "job", dataset(4))
    assert report.first_loss is not None
    assert report.final_loss is not None
    assert report.first_loss + 1 < report.final_loss < 2 * report.first_loss + 1
    assert any(code == "diverged" and "the loss rose from" in message for code, message in heard.warnings)


def test_a_run_whose_cloning_weight_is_too_small_for_its_rows_is_left_out_and_counted(
    model_folder: Path, tmp_path: Path
) -> None:
    """With T = 0.005 a run that earned 1 less weighs 2 exp(-200) = 3e-87: more than 0, and nothing in float32."""
    rows = [DatasetRow(trajectory=run_of(i, "It costs 40."), reward=float(i)) for i in range(2)]
    job = spec(model_folder, tmp_path / "out", "bc", temperature=0.005, min_reward=None, batch_size=1, epochs=1)
    report, heard = run(job, tmp_path / "job", rows)
    assert (report.examples, report.dropped) == (1, {"zero_weight": 1})
    assert report.first_loss
    assert not any(code == "diverged" for code, _ in heard.warnings)
    assert load_file(tmp_path / "out" / "model.safetensors")
