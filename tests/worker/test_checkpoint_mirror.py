"""Copies of checkpoints at a URL: an empty machine continues from the newest complete one, and no failure ends the training."""

from __future__ import annotations

import shutil
from pathlib import Path

import fsspec
import pytest

from quintain.artifacts.transfers import names_below
from quintain.datasets.dataset_writer import ExportOptions, write_dataset
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.records.agent import Agent
from quintain.records.dataset import TextRow
from quintain.records.hyperparameters.methods import CONFIGS
from quintain.records.jobs.job import TrainSpec
from quintain.worker.job_kinds import train
from trainers.runs import Killed, same
from worker.job_folder import Stopping, events, warnings


@pytest.fixture
def spec(tmp_path: Path, tiny_agent: Agent) -> TrainSpec:
    """Three steps on texts with a checkpoint after each, validated, with copies in another folder."""
    options = ExportOptions(dataset_id="ds-t", name="t", kind="text", shares={"validation": 0.2})
    rows = (KeyedRow(str(i), TextRow(text=f"Item {i} has a price and a stock.")) for i in range(15))
    data = write_dataset(rows, tmp_path / "ds-t", options, ExportCounts()).dataset
    return TrainSpec(
        method="pretrain",
        agent=tiny_agent,
        name="clerk",
        output_dir=str(tmp_path / "out"),
        dataset_id=data.id,
        dataset_path=data.path,
        dataset_files=data.files,
        config=CONFIGS["pretrain"](
            batch_size=2, checkpoint_every_steps=1, keep_checkpoints=2, max_steps=3, validate_every_steps=1, epochs=2
        ),
        mirror=f"file://{tmp_path}/copies/clerk",
    )


def test_an_empty_machine_continues_from_the_newest_complete_copy(spec: TrainSpec, tmp_path: Path) -> None:
    whole = tmp_path / "job-whole"
    train.run(spec.model_copy(update={"mirror": None}), whole, Stopping(whole))
    lost = tmp_path / "job-lost"
    with pytest.raises(Killed):
        train.run(spec, lost, Stopping(lost, kill_at=3))
    assert names_below(spec.mirror or "") == ["step-00000001", "step-00000002"]
    assert not [path for path in lost.iterdir() if path.name.startswith(".")]
    shutil.rmtree(lost)
    fs, root = fsspec.url_to_fs(spec.mirror or "")
    fs.pipe_file(f"{root}/step-00000002/step-00000002/state.pt", b"damaged")
    moved = spec.model_copy(update={"output_dir": str(tmp_path / "moved")})
    folder = tmp_path / "job-moved"
    train.run(moved, folder, Stopping(folder))
    assert [event.step for event in events(folder) if event.type == "progress"] == [2, 3]
    (skipped,) = [message for code, message in warnings(folder) if code == "checkpoint_skipped"]
    assert "step-00000002" in skipped
    assert same(Path(spec.output_dir), tmp_path / "moved")


def test_a_mirror_that_fails_is_reported_once_and_the_training_ends(spec: TrainSpec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    folder = tmp_path / "job-a"
    result = train.run(
        spec.model_copy(update={"mirror": f"file://{tmp_path}/file/copies"}), folder, Stopping(folder, stop_at=1)
    )
    assert result.is_partial
    (failed,) = [message for code, message in warnings(folder) if code == "checkpoint_not_mirrored"]
    assert "cannot" in failed
    assert (folder / "checkpoints" / "step-00000001").is_dir()
