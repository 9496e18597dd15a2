"""A checkpoint is a folder of a model or an adapter, and checkpoints of earlier versions are still continued."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quintain.records.agent import ModelRef
from quintain.trainers.models.loading import load_model, stored_heads
from trainers.runs import Killed, Recorder, rows_for, run, same, spec


@pytest.mark.parametrize(
    ("method", "lora"),
    [("reward", None), ("prm", {"rank": 2, "dora": True})],
    ids=["a reward model", "a step model's DoRA adapter"],
)
def test_a_checkpoint_loads_as_the_model_of_its_step(
    model_folder: Path, tmp_path: Path, method: str, lora: dict[str, Any] | None
) -> None:
    """2 rows in steps of 1: a run of 2 epochs has, after step 2, the weights with which one of 1 epoch ends."""
    rows, steady = rows_for(method, 2), {"schedule": "constant", "warmup_ratio": 0, "batch_size": 1, "lora": lora}
    run(spec(model_folder, tmp_path / "short", method, epochs=1, **steady), tmp_path / "short-job", rows)
    run(spec(model_folder, tmp_path / "out", method, epochs=2, **steady), tmp_path / "job", rows)
    kept = tmp_path / "job/checkpoints/step-00000002"

    def ref(folder: Path) -> ModelRef:
        if lora is None:
            return ModelRef(source="folder", path=str(folder))
        return ModelRef(source="folder", path=str(model_folder), adapter=str(folder))

    heads = stored_heads(ref(kept))
    assert heads == {"reward": ("reward",), "prm": ("value",)}[method]
    at_two, short, longer = (
        load_model(ref(folder), heads=heads, merge=False) for folder in (kept, tmp_path / "short", tmp_path / "out")
    )
    expected = dict(short.model.named_parameters())
    found = dict(at_two.model.named_parameters())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert any(not torch.equal(found[name], p) for name, p in longer.model.named_parameters())
    assert at_two.tokenizer.chat_template == short.tokenizer.chat_template


def as_format_2(checkpoint: Path) -> None:
    """Turn the checkpoint of a whole model into one as earlier versions wrote it."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    weights = load_file(checkpoint / "model.safetensors")
    for path in checkpoint.iterdir():
        if path.name != "state.pt":
            path.unlink()
    save_file(weights, checkpoint / "weights.safetensors")
    files = {
        path.name: {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in checkpoint.iterdir()
    }
    del manifest["sha256"]
    (checkpoint / "manifest.json").write_text(json.dumps(manifest | {"format": 2, "files": files}))


def test_a_checkpoint_of_an_earlier_version_is_continued(model_folder: Path, tmp_path: Path) -> None:
    job, rows = spec(model_folder, tmp_path / "out", batch_size=1, checkpoint_every_steps=2), rows_for("sft", 3)
    whole = spec(model_folder, tmp_path / "whole", batch_size=1, checkpoint_every_steps=2)
    run(whole, tmp_path / "whole-job", rows)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, Recorder(kill_at=3))
    as_format_2(tmp_path / "job/checkpoints/step-00000002")
    _, recorder = run(job, tmp_path / "job", rows)
    assert recorder.steps[0][0] == 3
    assert recorder.warnings == []
    assert same(tmp_path / "whole", tmp_path / "out")
