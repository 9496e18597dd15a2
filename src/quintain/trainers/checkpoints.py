"""Checkpoints that are whole or do not count.

`checkpoints/step-00000020/` holds the trained weights as safetensors, optimizer and RNG states, and `manifest.json`
with the size and SHA-256 of each file. It is written aside, every file is made durable, the manifest comes last, and
only then the folder gets its name. What a manifest does not vouch for is never read.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from quintain.errors import Conflict
from quintain.trainers.models import publish

_MANIFEST = "manifest.json"
_WEIGHTS = "weights.safetensors"
_STATE = "state.pt"


@dataclass(frozen=True)
class Progress:
    """Where a run stands after `step` optimizer steps."""

    step: int
    epoch: int
    """Epochs begun before the next step, counted from 0."""
    row: int
    """Rows of that epoch that are done."""
    tally: Mapping[str, float]
    """Running figures of the report, such as the first loss."""


class Newest(NamedTuple):
    """The newest complete checkpoint, and why newer ones were passed over."""

    path: Path | None
    skipped: list[str]


def save_checkpoint(
    folder: Path, model: Any, optimizer: torch.optim.Optimizer, progress: Progress, *, identity: str, keep: int
) -> Path:
    """Write a checkpoint and delete the oldest beyond `keep`.

    Args:
        folder: The job's `checkpoints` folder.
        model: Its trainable parameters are saved.
        optimizer: Its whole state is saved.
        progress: Where the run stands.
        identity: Hash of configuration, model and data; another run's checkpoint is refused by it.
        keep: Checkpoints that stay.

    Returns:
        The checkpoint's folder.
    """
    path = folder / f"step-{progress.step:08d}"
    aside = folder / f".{path.name}.partial"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    save_file({name: p.detach().cpu().contiguous() for name, p in trainable(model).items()}, aside / _WEIGHTS)
    torch.save({"optimizer": optimizer.state_dict(), "rng": _rng_state(), "progress": vars(progress)}, aside / _STATE)
    files = {
        name: {"size": (aside / name).stat().st_size, "sha256": _sha256(aside / name)} for name in (_WEIGHTS, _STATE)
    }
    manifest = {"format": 1, "step": progress.step, "identity": identity, "files": files}
    (aside / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    publish(aside, path)
    for old in _checkpoints(folder)[keep:]:
        doomed = folder / f".{old.name}.old"
        os.replace(old, doomed)  # first out of sight, so that nobody meets it half deleted
        shutil.rmtree(doomed, ignore_errors=True)
    return path


def newest_complete(folder: Path) -> Newest:
    """The newest checkpoint that its manifest vouches for."""
    skipped: list[str] = []
    for path in _checkpoints(folder):
        fault = _fault(path)
        if fault is None:
            return Newest(path, skipped)
        skipped.append(f"{path.name}: {fault}")
    return Newest(None, skipped)


def load_checkpoint(path: Path, model: Any, optimizer: torch.optim.Optimizer, *, identity: str) -> Progress:
    """Put a run back to where it stood: weights, optimizer and random states.

    Args:
        path: A complete checkpoint, as `newest_complete` gives it.
        model: Receives the trainable parameters.
        optimizer: Receives its state.
        identity: Must be the one that the checkpoint was saved with.

    Raises:
        Conflict: it belongs to a run with another configuration, model or data.
    """
    found = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))["identity"]
    if found != identity:
        raise Conflict(
            f"{path} was saved by a run with another configuration, model or data ({found[:12]}, this run is "
            f"{identity[:12]}); start a new job, or delete the checkpoints folder to begin again",
            code="checkpoint_mismatch",
        )
    parameters = trainable(model)
    with torch.no_grad():
        for name, tensor in load_file(path / _WEIGHTS).items():
            parameters[name].copy_(tensor)
    state = torch.load(path / _STATE, map_location="cpu", weights_only=True)
    optimizer.load_state_dict(state["optimizer"])
    _set_rng_state(state["rng"])
    return Progress(**state["progress"])


def trainable(model: Any) -> dict[str, torch.nn.Parameter]:
    """The parameters that training changes; a tied one counts once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _checkpoints(folder: Path) -> list[Path]:
    """Folders that carry a checkpoint's name, newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def _fault(path: Path) -> str | None:
    """Why the checkpoint cannot be used; None when it is whole."""
    try:
        files = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))["files"]
        for name in (_WEIGHTS, _STATE):
            size = (path / name).stat().st_size
            if size != files[name]["size"]:
                return f"{name} has {size} bytes, its manifest says {files[name]['size']}"
            if _sha256(path / name) != files[name]["sha256"]:
                return f"{name} is not what its manifest says (SHA-256 differs)"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError):
        return f"{_MANIFEST} cannot be read"
    return None


def _rng_state() -> dict[str, Any]:
    state: Any = np.random.get_state(legacy=True)
    name, keys, position, has_gauss, cached = state
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, cached),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _set_rng_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
