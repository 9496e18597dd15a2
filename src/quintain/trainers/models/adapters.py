"""LoRA adapters: check, load, create and merge."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from quintain.errors import InvalidInput, NotFound
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.records.wording import shown


def require_adapter(folder: Path, base: Path) -> tuple[str, ...]:
    """Check the files of an adapter.

    Returns:
        A warning if its configuration names the model of another folder as base.

    Raises:
        NotFound: The folder has no adapter.
        InvalidInput: The files are damaged.
    """
    if not (folder / "adapter_config.json").is_file():
        raise NotFound(f"no adapter at {folder}; name the folder with adapter_config.json")
    try:
        config = json.loads((folder / "adapter_config.json").read_bytes())
        kind = str(config["peft_type"])
        origin = str(config.get("base_model_name_or_path") or "")
        adapter_tensors(folder)
    except (
        *(OSError, ValueError, LookupError, TypeError, RecursionError),
        *(RuntimeError, EOFError, SafetensorError, UnpicklingError),
    ) as error:
        raise InvalidInput(
            f"the adapter in {folder} is damaged ({type(error).__name__}: {first_line(error)}); copy its files again from "
            "the original, or name another agent",
            code="model_damaged",
        ) from None
    if kind != "LORA":
        raise InvalidInput(
            f"expected a LoRA adapter in {folder}, got {kind}; merge it into its base model with peft, and name that folder",
            code="adapter_unsupported",
        )
    known, own = Path(origin) / "config.json", base / "config.json"
    if not Path(origin).is_absolute() or not known.is_file() or (own.is_file() and known.samefile(own)):
        return ()
    return (
        f"the adapter in {folder} was trained on the model in {origin}, and the agent's model is {base}; unless they are the "
        "same model, the agent is unusable",
    )


def adapter_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of an adapter; a pickle may contain tensors only."""
    if (folder / "adapter_model.safetensors").is_file() or not (folder / "adapter_model.bin").is_file():
        return load_file(folder / "adapter_model.safetensors")
    weights: dict[str, torch.Tensor] = torch.load(folder / "adapter_model.bin", map_location="cpu", weights_only=True)
    return weights


def with_adapter(model: Any, folder: Path, *, trainable: bool = False) -> Any:
    """Return the model with the adapter of a folder, and with the embeddings that are stored beside it.

    Raises:
        InvalidInput: The adapter belongs to another model.
    """
    from peft import PeftModel  # takes seconds to import, and most runs have no adapter

    try:
        resized = _resize_embeddings(model, folder)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Found missing adapter keys")
            adapted: Any = PeftModel.from_pretrained(model, str(folder), is_trainable=trainable)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, UserWarning, SafetensorError) as error:
        raise InvalidInput(
            f"the adapter in {folder} does not fit its model ({first_line(error)}); name the base model that it was "
            "trained on",
            code="model_mismatch",
        ) from None
    config: Any = adapted.peft_config["default"]
    config.base_model_name_or_path = model.name_or_path  # where the base is now, when it is saved again
    adapted.has_own_embeddings = resized
    return adapted


def _resize_embeddings(model: Any, folder: Path) -> bool:
    """Give a model as many embeddings as an adapter stores for tokens that were added or removed; return whether it has others."""
    own = model.get_input_embeddings()
    (place,) = (name for name, module in model.named_modules() if module is own)
    stored = adapter_tensors(folder)
    for name in (f"{place}.weight", f"{place}.base_layer.weight"):
        weight = stored.get(f"base_model.model.{name}")
        if weight is not None and len(weight) != len(own.weight):
            model.resize_token_embeddings(len(weight), mean_resizing=False)
            return True
    return False


def own_embeddings(model: Any) -> dict[str, torch.Tensor]:
    """Return the weights of a model with an adapter by their names in its file, if its embeddings are not those of the base."""
    from peft.utils import get_peft_model_state_dict

    if not getattr(model, "has_own_embeddings", False):
        return {}
    stored = get_peft_model_state_dict(model, save_embedding_layers=True)
    return {name: weight.detach().cpu().clone() for name, weight in stored.items()}  # tied ones share memory


def with_new_adapter(model: Any, lora: LoraConfig) -> Any:
    """Return the model with a new adapter and frozen weights.

    Layers that text does not pass through, such as those for images, get none.

    Raises:
        InvalidInput: The model has no layer that `lora.targets` names.
    """
    from peft import LoraConfig as PeftLora
    from peft import get_peft_model

    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    alpha: Any = lora.stored.alpha  # annotated as int, but any number works
    settings = PeftLora(
        r=lora.stored.rank,
        lora_alpha=alpha,
        lora_dropout=lora.dropout,
        use_rslora=lora.rslora,
        use_dora=lora.dora,
        target_modules=targets,
        exclude_modules=_beside_text(model) or None,
        task_type="CAUSAL_LM",
    )
    linear = {name.split(".")[-1] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    try:
        adapted = get_peft_model(model, settings)
    except ValueError as error:
        raise InvalidInput(
            f"lora.targets {shown(lora.targets)} does not fit this model ({model.config.model_type}): "
            f"{first_line(error).split('. ')[0]}; name others of its linear layers in lora.targets ({', '.join(sorted(linear))}), "
            "or give lora=null to train all weights"
        ) from None
    if lora.init == "pissa":
        initialize(adapted, lora.rank)
    return adapted


def _beside_text(model: Any) -> list[str]:
    """Return the names of the linear layers that belong neither to the text decoder nor to the head."""
    used = {*model.get_decoder().modules(), model.get_output_embeddings()}
    return [name for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and m not in used]


def merge_adapter(model: Any) -> Any:
    """Merge the adapter into the base model's weights, in place; return the base model.

    Merging an adapter on one of two tied matrices would change both, so they are untied first, in the configuration too.
    """
    base = model.get_base_model()
    inner, outer = base.get_input_embeddings(), base.get_output_embeddings()
    weights = [getattr(layer, "base_layer", layer) for layer in (inner, outer) if layer is not None]
    adapted = any(hasattr(layer, "base_layer") for layer in (inner, outer))
    if adapted and len(weights) == 2 and weights[0].weight is weights[1].weight:
        weights[1].weight = torch.nn.Parameter(weights[1].weight.detach().clone(), requires_grad=False)
        for config in {id(c): c for c in (base.config, base.config.get_text_config())}.values():
            config.tie_word_embeddings = False
    return model.merge_and_unload()


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, with the second one if the first ends with a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])[:300]


_ITERATIONS = 4
"""Power iterations of the randomised decomposition, as in the paper's fast variant. The start is exact whatever their number."""

_NAME = "default"


@torch.no_grad()
def initialize(model: Any, rank: int) -> None:
    """Set the adapters of a model, which have rank 2 r, to the principal part of their weights less the same.

    The paper trains B and A in W_res + s B A with W_res = W - s B_0 A_0, where s B_0 A_0 is the part of W with the r largest
    singular values. Here W stays, and the constants -B_0 and A_0 are the other r columns and rows of the adapter:
    W + s [B, -B_0] [A; A_0] is the same function with the same gradients. So what is saved is a plain LoRA adapter of W, as
    it is after PEFT's conversion, and without adapters the model is the one that it began as.

    Raises:
        InvalidInput: An adapter is on a module that is not a linear layer.
    """
    from peft.tuners.lora import LoraLayer

    for name, layer in model.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        if not isinstance(layer.get_base_layer(), torch.nn.Linear):
            raise InvalidInput(
                f"expected linear layers under lora.init 'pissa', got {name}; leave it out of lora.targets, or set lora.init to "
                "'default'"
            )
        _decompose(layer, rank)


def _decompose(layer: Any, rank: int) -> None:
    weight = layer.get_base_layer().weight.float()
    a, b = layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight
    k = min(rank, *weight.shape)
    u, values, v = torch.svd_lowrank(weight, q=min(2 * k, *weight.shape), niter=_ITERATIONS)
    root = (values[:k] / layer.scaling[_NAME]).sqrt()
    a[:k], b[:, :k] = root[:, None] * v[:, :k].T, u[:, :k] * root
    a[rank:], b[:, rank:] = 0.0, 0.0
    a[rank : rank + k], b[:, rank : rank + k] = a[:k], -b[:, :k]
    constant = torch.arange(2 * rank) >= rank
    a.register_hook(lambda gradient: gradient.masked_fill(constant.to(gradient.device)[:, None], 0.0))
    b.register_hook(lambda gradient: gradient.masked_fill(constant.to(gradient.device), 0.0))
