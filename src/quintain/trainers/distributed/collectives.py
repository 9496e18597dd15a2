"""What the processes of a run do together: meet, share weights, add gradients (torch.distributed, through accelerate).

On CUDA the back end is nccl, one GPU a rank; on the CPU gloo, over sockets of this machine alone where it is the only one.
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
"""Elements of weights or gradients that travel together."""

_TIMEOUT = timedelta(minutes=5)
"""Bound of meeting and of one bucket's way; no rank computes meanwhile."""

_LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


class RankPlace(NamedTuple):
    """Which of the ranks one is."""

    rank: int
    size: int
    """Number of ranks."""
    machines: int
    """That hold equal parts of them, one machine's after the other's."""
    store: Path | tuple[str, int]
    """Where they find each other: on one machine a new file, on several a port of rank 0's."""

    @property
    def local_size(self) -> int:
        """Ranks on each machine."""
        return self.size // self.machines


def open_store(place: RankPlace) -> Any:
    """The store at a place; rank 0 opens it first where it is a port, of which 0 is any that is free."""
    if isinstance(place.store, Path):
        return distributed.FileStore(str(place.store), place.size)  # type: ignore[attr-defined]
    host, port = place.store
    return distributed.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=not place.rank, wait_for_workers=False, timeout=_TIMEOUT
    )


def join(place: RankPlace, store: Any, *, cpu: bool) -> None:
    """Wait for the other ranks, and connect to them.

    Args:
        place: Which rank this is.
        store: Over which they find each other.
        cpu: Is the model on the CPU? Otherwise on the CUDA device of the rank's number on its machine.

    Raises:
        RuntimeError: a rank is gone, or did not come in time.
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
