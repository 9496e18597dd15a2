"""LoRA adapters: on disk, on a model that is trained, and merged into the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from quintain.errors import InvalidInput, NotFound
from quintain.records.hyperparameters import LoraConfig


def require_adapter(folder: Path, base: Path) -> tuple[str, ...]:
    """Refuse an adapter whose files are damaged; a warning where it says that it was trained on another folder's model."""
    if not (folder / "adapter_config.json").is_file():
        raise NotFound(f"no adapter at {folder}; give the folder that holds adapter_config.json")
    try:
        config = json.loads((folder / "adapter_config.json").read_bytes())
        str(config["peft_type"])  # without it peft cannot tell what kind of adapter this is
        origin = str(config.get("base_model_name_or_path") or "")
        with safe_open(folder / "adapter_model.safetensors", "pt"):
            pass  # opening it checks its table of contents against its length
    except (OSError, ValueError, LookupError, TypeError, RecursionError, SafetensorError) as error:
        raise InvalidInput(
            f"the adapter in {folder} is damaged ({type(error).__name__}: {first_line(error)}); copy its files again from "
            "the original, or name another agent",
            code="model_damaged",
        ) from None
    known = Path(origin) / "config.json"
    if not Path(origin).is_absolute() or not known.is_file() or known.samefile(base / "config.json"):
        return ()
    return (
        f"the adapter in {folder} was trained on the model in {origin}, and the agent's model is {base}; unless they are the "
        "same model, the agent makes no sense",
    )


def with_adapter(model: Any, folder: Path, *, trainable: bool = False) -> Any:
    """The model with the adapter of a folder on top.

    Raises:
        InvalidInput: the adapter is of another model.
    """
    from peft import PeftModel  # takes seconds to import, and most runs have no adapter

    try:
        return PeftModel.from_pretrained(model, str(folder), is_trainable=trainable)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        raise InvalidInput(
            f"the adapter in {folder} does not fit its model ({first_line(error)}); name the base model that it was "
            "trained on",
            code="model_mismatch",
        ) from None


def require_same_lora(model: Any, lora: LoraConfig) -> None:
    """Refuse settings that an adapter which is trained on does not have.

    Raises:
        InvalidInput: names the adapter's own values.
    """
    config: Any = model.peft_config["default"]
    own = {
        "rank": config.r,
        "alpha": config.lora_alpha,
        "dropout": config.lora_dropout,
        "rslora": config.use_rslora,
        "dora": config.use_dora,
    }
    differing = [f"{name} {value}" for name, value in own.items() if getattr(lora, name) != value]
    targets = sorted(config.target_modules)
    if lora.targets != "all-linear" and sorted(lora.targets) != targets:  # peft has spelt "all-linear" out
        differing.append(f"targets {targets}")
    if differing:
        raise InvalidInput(
            f"the agent's adapter has {', '.join(differing)} and the config asks for something else; give the adapter's "
            "own values, or lora=null to train all weights"
        )


def with_new_adapter(model: Any, lora: LoraConfig) -> Any:
    """The model with a fresh adapter on top, its own weights frozen.

    Raises:
        InvalidInput: the model has none of the layers that `lora.targets` names.
    """
    from peft import LoraConfig as PeftLora
    from peft import get_peft_model

    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    alpha: Any = lora.alpha  # peft says int and takes any number
    settings = PeftLora(
        r=lora.rank,
        lora_alpha=alpha,
        lora_dropout=lora.dropout,
        use_rslora=lora.rslora,
        use_dora=lora.dora,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    linear = {name.split(".")[-1] for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    try:
        return get_peft_model(model, settings)
    except ValueError as error:
        raise InvalidInput(
            f"lora.targets {lora.targets!r} does not fit this model ({model.config.model_type}): "
            f"{first_line(error).split('. ')[0]}; name others of its linear layers in lora.targets ({', '.join(sorted(linear))}), "
            "or give lora=null to train all weights"
        ) from None


def merged(model: Any) -> Any:
    """The base model with the adapter in its weights, which are changed in place.

    An adapter on one of two tied matrices changes both when it is merged into what they share: these are untied first, and
    the configuration says so.
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
    """What a library says at first, with the line after it where that only announces what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])[:300]
