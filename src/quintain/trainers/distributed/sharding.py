"""Sharding: of every parameter, its gradient and its optimizer state each rank holds a part.

That is ZeRO stage 3 (Rajbhandari et al. 2020, arXiv 1910.02054) as torch's `fully_shard` has it. A block's parameters are
put together when a pass reaches it and taken apart behind it; its gradients are summed and divided among the ranks as soon
as they are there. Everything outside of the blocks (embeddings, last norm, head) is one more group, whole from the start
of a pass to the end of its backward pass, because the engine multiplies by the head's weight itself.

accelerate's own preparation (1.15, `fsdp2_prepare_model`) does not carry here: it hangs norm and head into a group that is
put together when the head is called, and the engine never calls it. The connections are accelerate's all the same
(trainers/distributed/collectives.py). A sharded tensor is a `DTensor`; passes, and what is said here to be done together, are for all
ranks at once and in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_map

from quintain.trainers.engine.forward import Engine
from quintain.trainers.models import is_adapter


class _Root(torch.nn.Module):
    """Holds the model, and runs what it is given as its own forward pass: between the hooks that gather and release."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[], Any]) -> Any:
        return work()


def shard(engine: Engine) -> Engine:
    """Divide the engine's model over the ranks, all of which hold the same weights; returns the engine that knows of it.

    Done together. Optimizers are made after it: the parameters are other ones.
    """
    model = engine.model
    policy = MixedPrecisionPolicy()
    if engine.autocast:
        # Autocast alone would keep a copy of every weight in its own type until the backward pass.
        policy = MixedPrecisionPolicy(engine.autocast, reduce_dtype=torch.float32, cast_forward_inputs=False)
    mesh = init_device_mesh(model.device.type, (distributed.get_world_size(),))
    for block in _blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    root: Any = fully_shard(_Root(model), mesh=mesh)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # a step's loss is a sum over the ranks
            module.set_force_sum_reduction_for_comms(True)  # gloo can only add

    def gathered(work: Callable[[], Any]) -> Any:
        made = root(work)
        if not torch.is_grad_enabled():
            root.reshard()  # otherwise the backward pass does it
        return made

    return replace(engine, gathered=gathered)


@torch.no_grad()
def whole(state: Any) -> Any:
    """A state whose sharded tensors are put together on the CPU of rank 0; the other ranks get empty ones. Done together."""

    def gather(leaf: Any) -> Any:
        if not isinstance(leaf, DTensor):
            return leaf
        full = leaf.full_tensor()
        return full.new_empty(0) if distributed.get_rank() else full.cpu()

    return tree_map(gather, state)


def part(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a whole tensor, divided as `like` is; the tensor itself where that is not sharded."""
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def gather_full_params(model: Any) -> None:
    """Make the trained parameters of a sharded model whole in rank 0, to be saved. Done together, as the last thing."""
    made: dict[int, torch.nn.Parameter] = {}  # a tied one stays tied
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if isinstance(parameter, DTensor) and parameter.requires_grad:
                if id(parameter) not in made:
                    made[id(parameter)] = torch.nn.Parameter(whole(parameter.detach()))
                module._parameters[name] = made[id(parameter)]


def _blocks(model: Any) -> list[torch.nn.Module]:
    """The modules that transformers says must stay on one device: the layers of a decoder."""
    base = model.get_base_model() if is_adapter(model) else model
    names = set(base._no_split_modules or ())
    return [module for module in reversed(list(base.modules())) if type(module).__name__ in names]
