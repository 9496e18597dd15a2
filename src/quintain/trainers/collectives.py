"""What the processes of a run do together: meet, share weights, add gradients (torch.distributed, through accelerate).

On CUDA the back end is nccl, one GPU a rank; on the CPU gloo, over sockets of this machine alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import torch
from accelerate.state import PartialState
from accelerate.utils import patch_environment
from torch import distributed

_BUCKET = 2**24
"""Elements of weights or gradients that travel together."""

_TIMEOUT = timedelta(minutes=5)
"""Bound of meeting and of one bucket's way; no rank computes meanwhile."""

_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


def join(rank: int, size: int, store: Path, *, cpu: bool) -> None:
    """Wait for the other ranks, and connect to them.

    Args:
        rank: From 0.
        size: Number of ranks.
        store: File over which they find each other; new, and the same for all.
        cpu: Is the model on the CPU? Otherwise on the CUDA device of the rank's number.

    Raises:
        RuntimeError: a rank is gone, or did not come in time.
    """
    place = {"rank": rank, "local_rank": rank, "world_size": size, "local_world_size": size}
    # accelerate reads the variables of a launcher; without the last two it would choose threads and a port for us.
    others = {"gloo_socket_ifname": _LOOPBACK, "omp_num_threads": torch.get_num_threads(), "master_port": "0"}
    with patch_environment(**place, **others):
        PartialState(
            cpu=cpu,
            backend="gloo" if cpu else "nccl",
            store=distributed.FileStore(str(store), size),  # type: ignore[attr-defined]
            rank=rank,
            world_size=size,
            timeout=_TIMEOUT,
        )


def leave() -> None:
    """Close the connections; then this process can join others again, in the next stage of a recipe."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
    PartialState._reset_state()


@torch.no_grad()
def share_weights(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Give every rank the values of rank 0.

    Raises:
        RuntimeError: a rank is gone, or did not come in time.
    """
    for bucket in _buckets(parameters):
        flat = torch.cat([parameter.reshape(-1) for parameter in bucket])
        distributed.broadcast(flat, src=0)
        if distributed.get_rank():
            for parameter, part in zip(bucket, _parts(flat, bucket), strict=True):
                parameter.copy_(part)


@torch.no_grad()
def sum_gradients(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Add the gradients of all ranks, in rank 0; one that a rank does not have counts as zero.

    Raises:
        RuntimeError: a rank is gone, or did not come in time.
    """
    for bucket in _buckets(parameters):
        flat = torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).reshape(-1) for p in bucket])
        distributed.reduce(flat, dst=0)
        if not distributed.get_rank():
            for parameter, part in zip(bucket, _parts(flat, bucket), strict=True):
                parameter.grad = part


def _parts(flat: torch.Tensor, bucket: Sequence[torch.nn.Parameter]) -> list[torch.Tensor]:
    pieces = flat.split([parameter.numel() for parameter in bucket])
    return [piece.view(parameter.shape) for piece, parameter in zip(pieces, bucket, strict=True)]


def _buckets(parameters: Sequence[torch.nn.Parameter]) -> Iterator[list[torch.nn.Parameter]]:
    """Neighbours of one type, together at most `_BUCKET` elements or a single one."""
    bucket: list[torch.nn.Parameter] = []
    for parameter in parameters:
        full = sum(p.numel() for p in bucket) + parameter.numel() > _BUCKET
        if bucket and (full or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
