"""The processes of a run and their collective operations (torch.distributed).

Every process runs the same program; a launcher such as torchrun starts them. The back end is gloo on the CPU, and nccl beside it
on CUDA, with one GPU a process. A method marked *collective* must be called by all processes, in one order.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import distributed
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from quintain.errors import InvalidInput, QuintainError, TrainingFailed
from quintain.trainers.distributed.peer_watch import PeerWatch

_T = TypeVar("_T")

_BUCKET = 2**24
"""Elements of gradients in one transfer."""

_TIMEOUT = timedelta(hours=1)
"""Time limit of a transfer: how far the processes may be apart. A dead process ends it at once."""

_POLL_S = 0.01
"""Seconds between two looks at whether the first process has finished what the others wait for."""

LOST = "process_lost"
"""Code of the error when another process is gone."""

_FAILED = b"failed"
_FAILURE = "quintain/failure"


@dataclass(eq=False)
class ProcessGroup:
    """This process among those of a run; without a launcher it is the only one."""

    rank: int = 0
    size: int = 1
    _waits: int = field(default=0, init=False)
    """Number of results of the first process that this one has waited for."""
    watch: PeerWatch | None = None
    """Watches the processes of other machines. None: there are none."""

    @property
    def is_first(self) -> bool:
        """Whether this process reports, and writes files."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process. Collective."""
        if self.size == 1:
            return flag
        flags = torch.tensor([flag], dtype=torch.uint8)
        with collective_errors_explained(self):
            distributed.all_reduce(flags, distributed.ReduceOp.MAX)
        return bool(flags)

    def from_first(self, make: Callable[[], _T]) -> _T:
        """Return what `make` returns in the first process, which alone calls it. Collective; waits without a time limit.

        Args:
            make: Returns a value that can be pickled; it must not call collective operations.

        Raises:
            TrainingFailed: It raised an error in the first process (`process_lost`), or a process is gone.
        """
        if self.size == 1:
            return make()
        store, key = _store(), f"quintain/result/{self._waits}"
        self._waits += 1
        if self.is_first:
            try:
                value = make()
            except BaseException:
                store.set(key, _FAILED)
                raise
            store.set(key, b"ready")
        else:
            with collective_errors_explained(self):
                while not store.check([key]):
                    time.sleep(_POLL_S)
                if store.get(key) == _FAILED:
                    raise _lost("the first process has failed")
        box = [value if self.is_first else None]
        with collective_errors_explained(self):
            distributed.broadcast_object_list(box, src=0)
        return cast(_T, box[0])

    def gather(self, value: _T) -> list[_T]:
        """Return the value of every process, by rank. Collective."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with collective_errors_explained(self):
            distributed.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait until every process is here. Collective."""
        self.any(False)

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace each gradient by the sum over the processes; one that no process has stays missing. Collective."""
        has = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.uint8)
        with collective_errors_explained(self):
            distributed.all_reduce(has, distributed.ReduceOp.MAX)  # AdamW would move a parameter with a gradient of 0
            trained = [parameter for parameter, one in zip(parameters, has.tolist(), strict=True) if one]
            for bucket in _buckets(trained):
                gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in bucket]
                if len(bucket) == 1:
                    bucket[0].grad = gradients[0].contiguous()
                    distributed.all_reduce(bucket[0].grad)
                    continue
                flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
                distributed.all_reduce(flat)
                for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                    parameter.grad = part.view(parameter.shape)

    def dismiss(self, *, failed: bool) -> None:
        """End the wait of the other processes for a next result; after a failure, some may wait for a transfer instead."""
        if failed:
            _store().set(f"quintain/result/{self._waits}", _FAILED)
        else:
            self.from_first(lambda: None)

    def report_failure(self, failure: str) -> None:
        """Leave the reason of a failure for the first process, which loses its connection to this one next."""
        _store().set(_FAILURE, failure)

    def reported_failure(self) -> str | None:
        """Return what another process has left with `report_failure`; None also where the connection to the store is lost."""
        if self.size == 1:
            return None
        try:
            return _store().get(_FAILURE).decode() if _store().check([_FAILURE]) else None
        except RuntimeError:
            return None


ONE_PROCESS = ProcessGroup()
"""The group of a process that no launcher has started with others."""

_groups: list[ProcessGroup] = []
"""The group of this process, once it has connected to the others."""


def group_of(processes: int) -> ProcessGroup:
    """Return the processes of a training: all that the launcher started, or this one alone for `processes` 1.

    Raises:
        InvalidInput: No launcher has started the others (`no_process_group`).
    """
    if processes == 1:
        return ONE_PROCESS
    if not _groups:
        raise InvalidInput(
            f"expected {processes} processes of a launcher, got one alone; start them with "
            "`torchrun --nproc-per-node N -m quintain.worker.rank JOB_FOLDER ATTEMPT`, or set processes to 1",
            code="no_process_group",
        )
    return _groups[0]


def initialize(silence_s: float = 120.0) -> ProcessGroup:
    """Connect to the other processes by the variables of the launcher: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_RANK.

    Args:
        silence_s: Seconds after which a process of another machine that is not heard of counts as lost.

    Raises:
        InvalidInput: There is no GPU for this process (`too_many_processes`).
    """
    local = distributed.get_node_local_rank(fallback_rank=0)
    require_devices(local + 1)
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend, timeout=_TIMEOUT)
    group = ProcessGroup(distributed.get_rank(), distributed.get_world_size())
    _groups.append(group)
    on_this_machine = group.gather(socket.gethostname()).count(socket.gethostname())
    torch.set_num_threads(max(torch.get_num_threads() // on_this_machine, 1))
    if on_this_machine < group.size:
        group.watch = PeerWatch(group.rank, group.size, silence_s)
        store = _store()
        while isinstance(store, PrefixStore):
            store = store.underlying_store
        group.watch.start(store.host, store.port)
    return group


def require_devices(processes: int) -> None:
    """Check that this machine has a device for each of its processes.

    Raises:
        InvalidInput: More processes than GPUs, or more than one on MPS (`too_many_processes`).
    """
    if torch.cuda.is_available():
        kind, bound = "cuda", torch.cuda.device_count()
    elif torch.backends.mps.is_available():
        kind, bound = "mps", 1
    else:
        return
    if processes > bound:
        raise InvalidInput(
            f"expected a device for each of {processes} processes, got {bound} of {kind} on this machine; set processes to "
            f"{bound} a machine or less",
            code="too_many_processes",
        )


@contextmanager
def collective_errors_explained(group: ProcessGroup) -> Iterator[None]:
    """Translate the failure of a collective operation, which fails in all processes when one is gone.

    Raises:
        TrainingFailed: A process is gone, or has not answered in time (`process_lost`).
    """
    try:
        yield
    except (QuintainError, torch.OutOfMemoryError):
        raise
    except RuntimeError as error:
        if group.size == 1:
            raise
        if group.watch is not None and group.watch.fault is not None:
            raise TrainingFailed(f"{group.watch.fault}; check both", code=LOST) from error
        raise _lost(f"the {group.size} processes lost their connection: {error}") from error


def _lost(what: str) -> TrainingFailed:
    return TrainingFailed(
        f"{what}; if memory ran out, train with fewer processes or a smaller batch_tokens",
        code=LOST,
    )


def _store() -> Any:
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


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
