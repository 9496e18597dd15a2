"""The optimizer's moments of a sharded run on disk, each process its shards (torch.distributed.checkpoint)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

_METADATA = ".metadata"
"""File in which torch.distributed.checkpoint records where each part is."""


def has_shards(folder: Path) -> bool:
    """Whether a checkpoint has its moments in shards."""
    return (folder / _METADATA).exists()


def save_moments(state: Mapping[int, Mapping[str, torch.Tensor]], folder: Path) -> None:
    """Write this process's shards of the moments. Collective.

    Args:
        state: Entry `state` of the optimizer's state: number of a parameter -> name -> tensor.
        folder: An existing folder that all processes see.

    Raises:
        OSError: The disk refuses them.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    tensors = {f"{number}.{name}": tensor for number, entry in state.items() for name, tensor in entry.items()}
    try:
        save(tensors, storage_writer=FileSystemWriter(folder))
    except CheckpointException as error:
        refused = next((fault for fault, _ in error.failures.values() if isinstance(fault, OSError)), None)
        raise (refused or error) from error


def read_moments(folder: Path, optimizer: torch.optim.Optimizer) -> dict[int, dict[str, torch.Tensor]]:
    """Return the entry `state` of the optimizer's state; of sharded parameters, this process's shards.

    The number of processes may differ from that which wrote them.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = FileSystemReader(folder)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    tensors: dict[str, Any] = {}
    for key, about in reader.read_metadata().state_dict_metadata.items():
        parameter, size = parameters[int(key.partition(".")[0])], about.size  # type: ignore[union-attr]
        dtype = about.properties.dtype  # type: ignore[union-attr]
        alike = parameter.shape == size
        tensors[key] = torch.zeros_like(parameter, dtype=dtype) if alike else torch.zeros(size, dtype=dtype)
    load(tensors, storage_reader=reader, no_dist=True)
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = tensor
    return state
