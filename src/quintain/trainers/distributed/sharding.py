"""Distribution of a loaded model over processes, whole or in shards of parameters, gradients and optimizer state.

One process reads the model. The others get its structure, the pickled model with tensors on the meta device, so that tied weights
stay tied; then its values, piece by piece.

Sharding is ZeRO stage 3 (Rajbhandari et al. 2020, arXiv 1910.02054) by torch's `fully_shard`. A block's parameters are gathered
when a pass reaches it and released behind it; its gradients are reduced and scattered as soon as they are computed. All
parameters outside of the blocks (embeddings, last norm, head) form one more group, gathered from the start of a pass to the
end of its backward pass, because the engine multiplies by the head's weight itself.

accelerate's `fsdp2_prepare_model` (1.15) does not work here: it gathers norm and head when the head module is called, and
the engine never calls it. A sharded tensor is a `DTensor`. Functions marked *collective* must run in all processes, in one order.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_map

from quintain.trainers.engine.forward import Engine
from quintain.trainers.models.loading import is_adapter


def full(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole tensor of which this process has a shard; a tensor that is not sharded itself. Collective."""
    whole: torch.Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.detach()


def skeleton(value: Any) -> bytes:
    """Pickle an object with its tensors on the meta device."""
    buffer = io.BytesIO()
    _SkeletonPickler(buffer).dump(value)
    return buffer.getvalue()


class _SkeletonPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            is_parameter = isinstance(value, torch.nn.Parameter)
            return _on_meta, (tuple(value.shape), value.dtype, value.requires_grad, is_parameter)
        return NotImplemented


def _on_meta(shape: tuple[int, ...], dtype: torch.dtype, requires_grad: bool, is_parameter: bool) -> torch.Tensor:
    tensor = torch.empty(shape, dtype=dtype, device="meta")
    return torch.nn.Parameter(tensor, requires_grad) if is_parameter else tensor.requires_grad_(requires_grad)


@torch.no_grad()
def fill(parameters: Iterable[torch.nn.Parameter], device: torch.device) -> None:
    """Broadcast the first process's values, and move them to a device. Collective.

    A parameter that is there already, with values on the device in every process, is only overwritten.
    """
    for parameter in parameters:
        if parameter.is_meta:
            here = torch.empty_like(parameter, device=device)
            torch.utils.swap_tensors(parameter, torch.nn.Parameter(here, parameter.requires_grad))
        else:
            parameter.data = parameter.data.to(device).contiguous()
        distributed.broadcast(parameter.data, src=0)


@torch.no_grad()
def whole_copy(plain: torch.nn.Module, sharded: torch.nn.Module, device: torch.device) -> None:
    """Give a model on the meta device the whole weights of its sharded twin. Collective; others than the first pass no model.

    Args:
        plain: Model of the first process; any module without parameters elsewhere.
        sharded: The model that is trained.
        device: Device of the first process.
    """
    own = dict(plain.named_parameters())
    for name, parameter in sharded.named_parameters():
        values = full(parameter)
        if name in own:
            here = torch.nn.Parameter(values.to(device, copy=True), own[name].requires_grad)
            torch.utils.swap_tensors(own[name], here)
    values_of = dict(sharded.named_buffers())
    for name, _ in list(plain.named_buffers()):
        parent, _, leaf = name.rpartition(".")
        plain.get_submodule(parent)._buffers[leaf] = values_of[name].clone()


@torch.no_grad()
def fill_buffers(model: torch.nn.Module, device: torch.device) -> None:
    """Broadcast the first process's buffers in the order of their names, and move them to a device. Collective."""
    for name, buffer in sorted(model.named_buffers()):
        here = torch.empty_like(buffer, device=device) if buffer.is_meta else buffer.to(device).contiguous()
        distributed.broadcast(here, src=0)
        parent, _, leaf = name.rpartition(".")
        model.get_submodule(parent)._buffers[leaf] = here


class _Root(torch.nn.Module):
    """Wrapper whose forward pass runs a function, between the hooks that gather and release the model's root group."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[], Any]) -> Any:
        return work()


def shard(engine: Engine, device: torch.device) -> Engine:
    """Shard the model of the first process over all; return the engine for it. Collective.

    A block is broadcast and sharded before the next one, so no device has more than one whole block and the root's group.
    Create optimizers afterwards, because the parameters are replaced.

    Args:
        engine: Its model has values in the first process, on the CPU, and is on the meta device in the others.
        device: The device of this process.
    """
    model = engine.model
    policy = MixedPrecisionPolicy()
    if engine.autocast:
        # Autocast alone would keep a copy of every weight in its own type until the backward pass.
        policy = MixedPrecisionPolicy(engine.autocast, reduce_dtype=torch.float32, cast_forward_inputs=False)
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    for block in _blocks(model):
        fill(block.parameters(), device)
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fill((p for p in model.parameters() if not isinstance(p, DTensor)), device)
    fill_buffers(model, device)
    root: Any = fully_shard(_Root(model), mesh=mesh)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # a step's loss is a sum over the ranks
            module.set_force_sum_reduction_for_comms(True)  # gloo can only add

    def gathered(work: Callable[[], Any]) -> Any:
        result = root(work)
        if not torch.is_grad_enabled():
            root.reshard()  # otherwise the backward pass does it
        return result

    return replace(engine, gathered=gathered)


def is_sharded(model: Any) -> bool:
    """Whether each process has only a shard of the model."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


@torch.no_grad()
def gather_full(state: Any) -> Any:
    """Gather the sharded tensors of a state on the CPU of the first process; the others get empty ones. Collective."""

    def gather(leaf: Any) -> Any:
        if not isinstance(leaf, DTensor):
            return leaf
        full = leaf.full_tensor()
        return full.new_empty(0) if distributed.get_rank() else full.cpu()

    return tree_map(gather, state)


def local_shard(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return this process's shard of a full tensor, sharded as `like`; the tensor itself where `like` is not sharded."""
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def gather_full_params(model: Any) -> None:
    """Gather the trained parameters of a sharded model in the first process, to save them. Collective; the run ends with it."""
    full: dict[int, torch.nn.Parameter] = {}  # a tied parameter stays tied
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if isinstance(parameter, DTensor) and parameter.requires_grad:
                if id(parameter) not in full:
                    full[id(parameter)] = torch.nn.Parameter(gather_full(parameter.detach()))
                module._parameters[name] = full[id(parameter)]


def _blocks(model: Any) -> list[torch.nn.Module]:
    """Return the modules that transformers marks as not to be split: the layers of a decoder."""
    base = model.get_base_model() if is_adapter(model) else model
    names = set(base._no_split_modules or ())
    return [module for module in reversed(list(base.modules())) if type(module).__name__ in names]


_INDEX, _HIDDEN_INDEX = "moments.metadata", ".metadata"
"""File that records where each part is, and its name in torch.distributed.checkpoint, under which it would be removed as half-written."""


def has_shards(folder: Path) -> bool:
    """Whether a checkpoint has its moments in shards."""
    return (folder / _INDEX).exists()


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
        if distributed.get_rank() == 0:
            (folder / _HIDDEN_INDEX).rename(folder / _INDEX)
    except CheckpointException as error:
        refused = next((fault for fault, _ in error.failures.values() if isinstance(fault, OSError)), None)
        raise (refused or error) from error


def read_moments(folder: Path, optimizer: torch.optim.Optimizer) -> dict[int, dict[str, torch.Tensor]]:
    """Return the entry `state` of the optimizer's state; of sharded parameters, this process's shards.

    The number of processes may differ from that which wrote them.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    tensors: dict[str, Any] = {}
    with TemporaryDirectory() as named_as_written:
        for path in (*folder.glob("*.distcp"), folder / _INDEX):
            name = _HIDDEN_INDEX if path.name == _INDEX else path.name
            (Path(named_as_written) / name).symlink_to(path.absolute())
        reader = FileSystemReader(named_as_written)
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
