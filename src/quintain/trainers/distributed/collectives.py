"""Collective operations of the ranks: connect, broadcast weights, sum gradients (torch.distributed through accelerate).

The back end is nccl on CUDA, with one GPU a rank, and gloo on the CPU, over the loopback interface on a single machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate.state import PartialState
from accelerate.utils import patch_environment
from torch import distributed

_BUCKET = 2**24
"""Elements of weights or gradients in one transfer."""

_TIMEOUT = timedelta(minutes=5)
"""Time limit of connecting and of one transfer, during which no rank computes."""

_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


class RankPlace(NamedTuple):
    """A rank among the others, and where they meet."""

    rank: int
    size: int
    """Number of ranks."""
    machines: int
    """Number of machines; each has an equal, consecutive range of ranks."""
    store: Path | tuple[str, int]
    """Store of torch.distributed: a new file on one machine, host and port of rank 0 on several."""

    @property
    def local_size(self) -> int:
        """Ranks on each machine."""
        return self.size // self.machines


def open_store(place: RankPlace) -> Any:
    """Open the store. Rank 0 opens a port before the others; port 0 is any free one."""
    if isinstance(place.store, Path):
        return distributed.FileStore(str(place.store), place.size)  # type: ignore[attr-defined]
    host, port = place.store
    return distributed.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=not place.rank, wait_for_workers=False, timeout=_TIMEOUT
    )


def join(place: RankPlace, store: Any, *, cpu: bool) -> None:
    """Connect to the other ranks.

    Args:
        place: This rank.
        store: From `open_store`.
        cpu: Whether the model is on the CPU; otherwise it is on the CUDA device of the local rank.

    Raises:
        RuntimeError: A rank is gone, or has not connected in time.
    """
    of_launcher = {
        "rank": place.rank,
        "local_rank": place.rank % place.local_size,
        "world_size": place.size,
        "local_world_size": place.local_size,
    }
    # accelerate reads the variables of a launcher; without these it would choose threads and a port for us, or refuse.
    others: dict[str, Any] = {"omp_num_threads": torch.get_num_threads(), "master_addr": "-", "master_port": "0"}
    if place.machines == 1:
        others["gloo_socket_ifname"] = _LOOPBACK
    with patch_environment(**of_launcher, **others):
        PartialState(
            cpu=cpu,
            backend="gloo" if cpu else "nccl",
            store=store,
            rank=place.rank,
            world_size=place.size,
            timeout=_TIMEOUT,
        )


def leave() -> None:
    """Close the connections, so that this process can join others again in the next stage of a recipe."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
    PartialState._reset_state()


@torch.no_grad()
def share_weights(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Broadcast rank 0's values to every rank.

    Raises:
        RuntimeError: A rank is gone, or has not answered in time.
    """
    for bucket in _buckets(parameters):
        flat = torch.cat([parameter.reshape(-1) for parameter in bucket])
        distributed.broadcast(flat, src=0)
        if distributed.get_rank():
            for parameter, part in zip(bucket, _parts(flat, bucket), strict=True):
                parameter.copy_(part)


@torch.no_grad()
def sum_gradients(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Sum the gradients of all ranks into rank 0; a missing gradient counts as zero.

    Raises:
        RuntimeError: A rank is gone, or has not answered in time.
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
    """Group neighbours of one dtype, up to `_BUCKET` elements together; a larger one is alone."""
    bucket: list[torch.nn.Parameter] = []
    for parameter in parameters:
        full = sum(p.numel() for p in bucket) + parameter.numel() > _BUCKET
        if bucket and (full or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
