"""Atomic checkpoints.

`checkpoints/step-00000020/` is a folder of a model or an adapter, as `save_pretrained` writes it, so that it can be used as one.
Beside it are the states of optimizer, random generators, loss scale and example source, and `manifest.json` with size and SHA-256
of each file and a SHA-256 of itself. It is written under another name: all files are fsynced, the manifest last, then the folder is
renamed. A folder that does not match its manifest is never read. `checkpoints/best/` contains the weights of the lowest validation
loss in the same form.

Of a sharded run, each process writes its shards of the optimizer's moments (torch.distributed.checkpoint) into the same folder, which
all of them must see. Any number of processes reads them, sharded or not.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError

from quintain.errors import Conflict, Unavailable
from quintain.files import sha256_of
from quintain.records.wording import size_text
from quintain.trainers.distributed.process_group import ONE_PROCESS, ProcessGroup, collective_errors_explained
from quintain.trainers.distributed.sharding import (
    gather_full,
    has_shards,
    is_sharded,
    local_shard,
    read_moments,
    save_moments,
)
from quintain.trainers.loop.checkpoint_weights import read_weights, write_weights
from quintain.trainers.models.loading import publish, trainable

_MANIFEST = "manifest.json"
_OWN = "sha256"
"""Key of the manifest's own SHA-256."""
_STATE = "state.pt"
_BEST = "best"
_FORMAT = 6
"""Format version, the only one that is read; raise it when the layout or the identity of a run changes."""


@dataclass(frozen=True)
class Progress:
    """State of a run after `step` optimizer steps, besides weights and optimizer."""

    step: int
    tally: Mapping[str, float]
    """Running figures of the report, such as the first loss."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """State of the example source: tensors, numbers and strings."""
    scale: Mapping[str, float] = field(default_factory=dict)
    """State of the loss scale."""
    ended_early: str | None = None
    """Why the run takes no further step; None if it does."""
    reference: Mapping[str, Any] = field(default_factory=dict)
    """State of a reference that follows the policy; empty where it stays."""


class NewestCheckpoint(NamedTuple):
    """The newest complete checkpoint, and why newer ones were skipped."""

    path: Path | None
    skipped: list[str]


def save_checkpoint(
    folder: Path,
    model: Any,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    *,
    identity: str,
    keep: int,
    tokenizer: Any = None,
    group: ProcessGroup = ONE_PROCESS,
) -> Path:
    """Write a checkpoint, each process its shards, and delete the oldest beyond `keep`. Collective.

    Returns:
        The checkpoint's folder.

    Raises:
        Unavailable: The disk refuses the checkpoint; earlier ones stay.
    """
    path = folder / f"step-{progress.step:08d}"
    sharded, weights = is_sharded(model), _weights_to_save(model, group)
    if not (group.is_first or sharded):
        return path
    with _aside(path, group) as aside:
        state = optimizer.state_dict()
        if sharded:
            group.barrier()  # the folder is there
            with collective_errors_explained(group):
                save_moments(state["state"], aside)
            state["state"] = {}
        if not group.is_first:
            return path
        write_weights(aside, model, weights, tokenizer)
        _save({"optimizer": state, "rng": _rng_state(), "progress": vars(progress)}, aside / _STATE)
        _publish(aside, path, progress.step, identity)
    # A checkpoint of a later step was skipped as damaged: it must not displace a good one.
    for old in [found for found in _checkpoints(folder) if found.name <= path.name][keep:]:
        doomed = folder / f".{old.name}.old"
        os.replace(old, doomed)  # renamed first, so that no reader sees it half deleted
        shutil.rmtree(doomed, ignore_errors=True)
    return path


def save_best(
    folder: Path, model: Any, step: int, *, identity: str, tokenizer: Any = None, group: ProcessGroup = ONE_PROCESS
) -> None:
    """Replace `best` by the current trainable weights. Collective.

    Raises:
        Unavailable: The disk refuses them.
    """
    weights = _weights_to_save(model, group)
    if not group.is_first:
        return
    with _aside(folder / _BEST) as aside:
        write_weights(aside, model, weights, tokenizer)
        _publish(aside, folder / _BEST, step, identity)


def load_best(folder: Path, model: Any, *, identity: str) -> None:
    """Load the weights of `best` into the model.

    Raises:
        Conflict: They are damaged or belong to another run.
    """
    path = folder / _BEST
    if fault := _fault(path):
        raise Conflict(f"{path} cannot be used: {fault}; train again, or set keep_best to false", code="best_damaged")
    _require_identity(path, identity)
    read_weights(path, model)


def newest_complete(folder: Path) -> NewestCheckpoint:
    """Return the newest checkpoint that matches its manifest."""
    skipped: list[str] = []
    for path in _checkpoints(folder):
        fault = _fault(path)
        if fault is None:
            return NewestCheckpoint(path, skipped)
        skipped.append(f"{path.name}: {fault}")
    return NewestCheckpoint(None, skipped)


def load_checkpoint(path: Path, model: Any, optimizer: torch.optim.Optimizer, *, identity: str) -> Progress:
    """Restore weights, optimizer and random states.

    Raises:
        Conflict: The checkpoint belongs to a run with another configuration, model or data.
    """
    _require_identity(path, identity)
    read_weights(path, model)
    state = torch.load(path / _STATE, map_location="cpu", weights_only=True, mmap=True)
    if has_shards(path):
        optimizer.load_state_dict(state["optimizer"] | {"state": read_moments(path, optimizer)})
    else:
        optimizer.load_state_dict(_divided(state["optimizer"], optimizer))
    _set_rng_state(state["rng"])
    return Progress(**state["progress"])


def _weights_to_save(model: Any, group: ProcessGroup) -> dict[str, torch.Tensor]:
    """Return the trained weights on the CPU of the first process, gathered from shards. Collective."""
    if not (group.is_first or is_sharded(model)):
        return {}
    with collective_errors_explained(group):
        return {name: gather_full(p.detach()).cpu().contiguous() for name, p in trainable(model).items()}


def _divided(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Shard a full optimizer state: moments as their parameters."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def shard(value: Any, parameter: torch.Tensor) -> Any:
        is_moment = isinstance(value, torch.Tensor) and value.shape == parameter.shape
        return local_shard(value, parameter) if is_moment else value

    entries = {
        i: {name: shard(value, parameters[i]) for name, value in entry.items()} for i, entry in state["state"].items()
    }
    return {**state, "state": entries}


@contextmanager
def disk_errors_explained(path: Path, checkpoints: Path) -> Iterator[None]:
    """Translate errors of writing into one that names the remedy.

    Raises:
        Unavailable: The disk is full, or refuses files for another reason (`disk_refused`).
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        newest = newest_complete(checkpoints).path
        free = shutil.disk_usage(next(folder for folder in path.absolute().parents if folder.exists())).free
        raise Unavailable(
            f"cannot write {path} ({error}; {size_text(free)} free); free disk space or correct the permissions, then "
            f"resume the job: it continues from {newest.name if newest else 'the start'}",
            code="disk_refused",
        ) from error


@contextmanager
def _aside(path: Path, writers: ProcessGroup = ONE_PROCESS) -> Iterator[Path]:
    """Yield an empty folder for the contents of `path`; remove it if the disk refuses them. Collective of its writers."""
    aside = path.with_name(f".{path.name}.partial")
    with disk_errors_explained(path, path.parent):
        try:
            if writers.is_first:
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)
            yield aside
        except (OSError, SafetensorError):
            shutil.rmtree(aside, ignore_errors=True)
            raise


def _save(state: dict[str, Any], path: Path) -> None:
    try:
        torch.save(state, path)
    except RuntimeError as error:  # torch raises it for a failed write
        raise OSError(f"torch: {error}") from error


def _publish(aside: Path, path: Path, step: int, identity: str) -> None:
    """Write the manifest of the files in `aside`, and rename the folder to `path`."""
    files = {file.name: {"size": file.stat().st_size, "sha256": sha256_of(file)} for file in sorted(aside.iterdir())}
    manifest = {"format": _FORMAT, "step": step, "identity": identity, "files": files}
    (aside / _MANIFEST).write_text(json.dumps(manifest | {_OWN: _digest(manifest)}, indent=1), encoding="utf-8")
    publish(aside, path)


def _digest(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its own."""
    rest = {name: value for name, value in manifest.items() if name != _OWN}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _require_identity(path: Path, identity: str) -> None:
    found = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))["identity"]
    if found != identity:
        raise Conflict(
            f"expected a checkpoint of this run ({identity[:12]}), got one of a run with another configuration, model or data "
            f"({found[:12]}) at {path}; start a new job, or delete the checkpoints folder to begin again",
            code="checkpoint_mismatch",
        )


def _checkpoints(folder: Path) -> list[Path]:
    """Return folders named as checkpoints, newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def _fault(path: Path) -> str | None:
    """Return why the checkpoint cannot be used; None if it is complete."""
    try:
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT:
            return f"it has format {manifest['format']}, this version reads {_FORMAT}"
        if manifest[_OWN] != _digest(manifest):
            return f"{_MANIFEST} differs from its SHA-256"
        files = {name: (int(about["size"]), about["sha256"]) for name, about in manifest["files"].items()}
        if not files or (path.name != _BEST and _STATE not in files):
            return f"{_MANIFEST} lists too few files"
        for name, (written, digest) in files.items():
            size = (path / name).stat().st_size
            if size != written:
                return f"{name} has {size} bytes instead of {written}"
            if sha256_of(path / name) != digest:
                return f"{name} differs from its manifest (SHA-256)"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, AttributeError):
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
