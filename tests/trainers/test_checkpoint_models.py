"""A checkpoint is a folder of a model or an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.records.agent import ModelRef
from quintain.trainers.models.loading import load_model, stored_heads
from trainers.runs import rows_for, run, spec


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
