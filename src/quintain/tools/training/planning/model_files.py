"""Sizes of a model from `config.json` and the headers of its weights, or from a GGUF header, without loading it.

A safetensors file opens with the length of its header, 8 bytes little-endian, and the header in JSON: tensor name to
`{dtype, shape, data_offsets}`. All of it may be damaged or hostile, so every read is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.records.agent import ModelRef, Quantization
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.tools.training.model_folders import cached_snapshot, read_object, weight_headers
from quintain.tools.training.planning.gguf_header import read_gguf

_LARGEST = 2**50
"""Parameters of a tensor; what claims more is damaged."""

DEQUANTISED = frozenset({"bitsandbytes", "fp8", "mxfp4"})
"""Methods of stored weights that a job turns into floats when it loads them."""

_LOOKED_UP = ("embed", "wte", "wpe")
"""Parts of the names of tensors whose rows are looked up instead of multiplied."""

_HEADS = ("lm_head", "embed_out")


class Matrix(NamedTuple):
    """A matrix that tokens pass through."""

    module: str
    """The last part of its module's name, such as `q_proj`."""
    rows: int
    columns: int

    @property
    def size(self) -> int:
        """Parameters."""
        return self.rows * self.columns


class ModelFacts(NamedTuple):
    """Sizes of a model."""

    parameters: int
    matrices: tuple[Matrix, ...]
    """Those of its blocks: without embeddings and head."""
    active_share: float
    """Share of the blocks' parameters that a token passes through: below 1 in mixtures of experts."""
    head: int
    """Parameters of the matrix before the logits; embeddings that are used for it count."""
    hidden: int
    intermediate: int
    layers: int
    heads: int
    """Of a layer's attention."""
    attention_width: int
    """Heads times head width, summed over the layers."""
    vocabulary: int
    context_tokens: int | None
    adapter: LoraConfig | None = None
    """The settings of the adapter that the agent has on top."""
    quantization: Quantization | None = None

    @property
    def body(self) -> float:
        """Parameters of the blocks' matrices that a token passes through."""
        return self.active_share * sum(matrix.size for matrix in self.matrices)

    def adapter_parameters(self, lora: LoraConfig) -> int:
        """Trained parameters of LoRA: rank times (rows + columns) of each matrix that it is put on; DoRA adds its rows."""
        modules = None if lora.targets == "all-linear" else {name.rpartition(".")[2] for name in lora.targets}
        chosen = [m for m in self.matrices if modules is None or m.module in modules]
        return sum(lora.stored.rank * (m.rows + m.columns) + (m.rows if lora.dora else 0) for m in chosen)


def read_model(ref: ModelRef) -> ModelFacts | str:
    """Return the sizes of a model on this machine, or the reason why they are unknown."""
    folder = cached_snapshot(ref.path, ref.revision) if ref.source == "hub" else Path(ref.path)
    if folder is None or ref.source not in ("folder", "starter", "gguf", "hub"):
        return "the job downloads the model's files; name its folder to have it measured before"
    try:
        adapter = adapter_settings(Path(ref.adapter)) if ref.adapter else None
        if ref.source == "gguf":
            header = read_gguf(folder)
            tensors = [_checked(name, shape) for name, shape in header.tensors]
            if header.fault is not None:
                return header.fault.message
            return _facts(header.settings, tensors, adapter, ref.quantization)
        config = read_object(folder / "config.json")
        if "quantization_config" in config:
            return "its weights are stored quantised, so their sizes are not read; name the folder of its plain weights"
        stored = (item for header in weight_headers(folder) for item in header.items())
        tensors = [_checked(name, tuple(about["shape"])) for name, about in stored if name != "__metadata__"]
        return _facts(config, tensors, adapter, ref.quantization)
    except InvalidInput as error:
        return str(error.message)
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        return f"the files in {folder.name} cannot be read ({type(error).__name__}); copy them again from the original"


def stored_quantization(ref: ModelRef) -> str | None:
    """Return the method by which the stored weights of a model are quantised; None if they are floats, or unknown."""
    folder = cached_snapshot(ref.path, ref.revision) if ref.source == "hub" else Path(ref.path)
    try:
        about = None if folder is None else read_object(folder / "config.json").get("quantization_config")
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return str(about.get("quant_method", "method unknown"))[:40] if isinstance(about, Mapping) else None


class _Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]


def _checked(name: str, shape: tuple[Any, ...]) -> _Tensor:
    if not all(type(n) is int and n >= 0 for n in shape) or math.prod(shape) > _LARGEST:
        raise ValueError("a tensor of impossible shape")
    return _Tensor(name, shape)


def _facts(
    whole: Mapping[str, Any], tensors: list[_Tensor], adapter: LoraConfig | None, quantization: Quantization | None
) -> ModelFacts:
    text = whole.get("text_config")
    config = text if isinstance(text, Mapping) else whole
    vocabulary = _number(config, "vocab_size")
    hidden = _number(config, "hidden_size", "n_embd", "d_model")
    layers = _number(config, "num_hidden_layers", "n_layer", "num_layers")
    heads = _number(config, "num_attention_heads", "n_head", least=0)
    width = _number(config, "head_dim", least=0) or (hidden // heads if heads else 0)
    looked_up = [t for t in tensors if len(t.shape) == 2 and any(part in t.name for part in _LOOKED_UP)]
    heads_of = [t for t in tensors if len(t.shape) == 2 and any(part in t.name for part in _HEADS)]
    apart = {t.name for t in (*looked_up, *heads_of)}
    blocks = [t for t in tensors if t.name not in apart and len(t.shape) in (2, 3)]
    matrices = tuple(
        Matrix(t.name.removesuffix(".weight").rpartition(".")[2], math.prod(t.shape[:-1]), t.shape[-1]) for t in blocks
    )
    tied = max((math.prod(t.shape) for t in looked_up), default=0)
    return ModelFacts(
        parameters=sum(math.prod(t.shape) for t in tensors),
        matrices=matrices,
        active_share=_active_share(config, blocks),
        head=sum(math.prod(t.shape) for t in heads_of) or tied,
        hidden=hidden,
        intermediate=_number(config, "intermediate_size", "n_inner", "ffn_dim", least=0) or 4 * hidden,
        layers=layers,
        heads=heads,
        attention_width=layers * heads * width,
        vocabulary=vocabulary,
        context_tokens=_number(config, "max_position_embeddings", "n_positions", least=0) or None,
        adapter=adapter,
        quantization=quantization,
    )


def _active_share(config: Mapping[str, Any], blocks: list[_Tensor]) -> float:
    """Of a mixture of experts: a token passes through `num_experts_per_tok` of the experts, and through all the rest."""
    count = _number(config, "num_experts", "num_local_experts", "n_routed_experts", least=0)
    used = _number(config, "num_experts_per_tok", least=0)
    total = sum(math.prod(t.shape) for t in blocks)
    if not count or not used or not total:
        return 1.0
    experts = sum(math.prod(t.shape) for t in blocks if ".experts." in t.name)
    return 1.0 - experts / total * (1.0 - min(1.0, used / count))


def _number(config: Mapping[str, Any], *names: str, least: int = 1) -> int:
    """The first of these settings that the configuration has; 0 where it has none and `least` allows that."""
    for name in names:
        value = config.get(name)
        if type(value) is int and least <= value < 2**31:
            return value
    if least:
        raise LookupError(names[0])
    return 0


def adapter_settings(folder: Path) -> LoraConfig:
    """Return the settings that a training of an adapter must have: it goes on with the adapter as it is.

    Raises:
        OSError, ValueError, LookupError, TypeError: The configuration is damaged, or not of a LoRA.
    """
    config = read_object(folder / "adapter_config.json")
    targets = config.get("target_modules")
    named = isinstance(targets, list) and targets and all(isinstance(name, str) for name in targets)
    return LoraConfig(
        rank=config["r"],
        alpha=config["lora_alpha"],
        dropout=config.get("lora_dropout", 0.0),
        targets=tuple(sorted(targets)) if named and isinstance(targets, list) else "all-linear",
        rslora=bool(config.get("use_rslora", False)),
        dora=bool(config.get("use_dora", False)),
    )
