"""Cost model of a training: memory from sizes, time from operations and the rate of the machine.

Memory, in bytes (float32 on the CPU; on CUDA weights in bfloat16 where only adapters are trained):

    libraries + weights P + adapters 4 A + gradients 4 T + AdamW's two moments 8 T (2 T in 8 bits) + activations + logits

and with `actors` the weights once more for each of them

(on the CPU with adapters, floats take 2 P after loading with `precision: bf16`, and the blocks' matrices of a quantised base 0.516
bytes each in NF4 and 1.01 in int8; then the larger of both moments counts)

with P parameters, A parameters of adapters, T trained ones (A, or P where all are trained). Activations are 4 L (16 h + 8 f)
bytes a token of the largest pass (L layers, h hidden, f feed-forward width), with gradient checkpointing 4 (L h + 16 h + 8 f).
On the CPU in float32 they have the attention probabilities beside them: 2 L H n bytes a token (H heads, rows of n tokens), at
most 1 GiB; without L under checkpointing.

Time is start-up (longer where other processes wait for a processor) plus operations over the measured rate of matrix
products. A token takes in forward and backward

    6 B (B of the blocks' parameters; 4 B + 6 A with adapters) + 6 n W / 0.5 + 20,000 L h (50,000 with adapters)

with rows of n tokens and attention width W (heads times head width, over the layers): the same count as
`trainers.engine.forward.Engine.cost`, attention at half of the rate, and what is not a product as so many operations a layer and
feature. Tokens that rows of a step share are computed once. The head takes 6 H (4 H with adapters) at tokens that are
learned, an optimizer step 200 operations a trained parameter, a reference or validation pass a third of a training pass.

The constants were fitted to jobs on one machine with two processors; `python -m benchmarks.planning` compares estimates with jobs.
"""

from __future__ import annotations

from typing import NamedTuple

from quintain.records.hyperparameters.methods import ActingConfig, PPOConfig, TrainingConfig
from quintain.tools.training.planning.device import Device
from quintain.tools.training.planning.model_files import ModelFacts

_MB = 2**20

_LIBRARIES_MB = {"cpu": 520.0, "cuda": 0.0, "mps": 520.0}
"""Python with torch, transformers and a tokenizer. On CUDA only the memory that torch allocates on the GPU counts."""

_PEFT_MB = 120.0

_LOGITS = 4 * 2**20
"""Approximate number of logits that the head has at once."""

_ACTIVATIONS = (16, 8)
"""Numbers kept a token and layer: times the hidden size, times the feed-forward width."""

_KEPT_PROBABILITIES = 2**30
"""Maximum bytes of attention probabilities that a pass keeps (trainers/engine/attention.py)."""

_ATTENTION_RATE = 0.5
_OTHER_OPERATIONS = 20_000.0
_OTHER_WITH_ADAPTERS = 50_000.0
_UPDATE_OPERATIONS = 200.0
_FORWARD_SHARE = 1 / 3

_SMALL_MODEL = 10_000_000
"""Parameters below which a job on the CPU takes one thread (trainers/models/loading.py)."""

_START_S = 5.0
"""Before the first step and after the last, on processors that nobody else uses: imports, engine checks, saving."""

_READ_MB_S = 500.0
_RENDERED_CHARACTERS_S = 1_000_000.0


_QUANTIZED_BYTES = {"nf4": 0.5 + 1 / 64 + 4 / (64 * 256), "int8": 1.01}
"""Bytes a weight. NF4: half a byte, an 8-bit scale for 64 weights and a float32 scale for 256 of these; int8: a scale a row."""


_MOMENT_BYTES = {"adamw": 8, "adamw_8bit": 2, "adamw_bf16": 4}
"""Bytes a trained parameter."""


class PassSize(NamedTuple):
    """Size of the largest forward pass."""

    tokens: float
    """That it computes."""
    row_tokens: float
    """Of a row in it."""


class TrainingWork(NamedTuple):
    """Amount of work of a training."""

    steps: int
    tokens: float
    """Of the rows of all steps."""
    row_tokens: float
    """Of a row, the mean."""
    shared_share: float
    """Share of the tokens that are computed once for several rows."""
    trained_share: float
    """Share of the tokens that are in the loss."""
    largest_pass: PassSize
    forward_tokens: float
    """Of reference and validation passes."""
    characters: float = 0.0
    """Text that is rendered before the first step."""


def trained_parameters(model: ModelFacts, config: TrainingConfig) -> int:
    """Count the parameters that receive gradients; frozen blocks are counted as equal parts of all blocks."""
    if config.lora is not None:
        return model.adapter_parameters(config.lora)
    share = min(config.frozen_layers / max(model.layers, 1), 1.0)
    return model.parameters - round(share * sum(matrix.size for matrix in model.matrices))


def memory_parts(model: ModelFacts, config: TrainingConfig, device: Device, size: PassSize) -> dict[str, float]:
    """Return the peak memory of a training in MiB, by component."""
    adapters = 0 if config.lora is None else model.adapter_parameters(config.lora)
    trained = trained_parameters(model, config)
    share = config.processes if config.sharding == "full" else 1
    width = _float_bytes(config, device)
    passes = {
        "gradients": (2 if config.optimizer == "adamw_bf16" else 4) * trained / share / _MB,
        "optimizer": _MOMENT_BYTES[config.optimizer] * trained / share / _MB,
        "activations": _activation_bytes(model, config, device, size) / _MB,
        "logits": 4 * max(_LOGITS, 256 * model.vocabulary) / _MB,
    }
    weights = (_base_bytes(model, config, width) + 4 * adapters) / share / _MB
    if device.kind != "cuda" and (width == 2 or config.quantization or model.quantization):
        loaded = 4 * (model.parameters + adapters) / share / _MB  # before the other parts are there
        weights = max(weights, loaded - sum(passes.values()))
    libraries = _LIBRARIES_MB[device.kind] + (_PEFT_MB if adapters and device.kind != "cuda" else 0.0)
    parts = {"libraries": libraries, "weights": weights, **passes}
    if config.ewc is not None:  # weights of the earlier skill, and their importance
        parts["ewc"] = 8 * trained / _MB
    if isinstance(config, PPOConfig) and config.critic == "separate":
        parts["critic"] = weights + passes["gradients"] + passes["optimizer"]
    if isinstance(config, ActingConfig) and (config.actors > 1 or config.staleness):
        parts["actors"] = config.actors * weights
    return parts


def _float_bytes(config: TrainingConfig, device: Device) -> int:
    """Return the bytes of a float of the base model's weights."""
    if config.optimizer == "adamw_bf16":
        return 2
    if config.lora is None:
        return 4
    return 2 if device.kind == "cuda" or (config.precision == "bf16" and config.sharding == "none") else 4


def _activation_bytes(model: ModelFacts, config: TrainingConfig, device: Device, size: PassSize) -> float:
    """Return the bytes of activations and attention probabilities that a pass keeps for its backward pass."""
    hidden, feed = _ACTIVATIONS
    block = hidden * model.hidden + feed * model.intermediate
    kept = model.layers * model.hidden + block if config.gradient_checkpointing else model.layers * block
    if config.offload_activations and device.kind == "cuda":
        kept = block
    numbers = 4 if device.kind != "cuda" or config.precision == "fp32" else 2.5  # autocast keeps both kinds
    activations = numbers * kept * size.tokens
    if device.kind != "cpu" or config.precision == "bf16":
        return activations
    layers = 1 if config.gradient_checkpointing else model.layers
    probabilities = 2.0 * layers * model.heads * size.row_tokens * size.tokens
    return activations + min(probabilities, _KEPT_PROBABILITIES)


def _base_bytes(model: ModelFacts, config: TrainingConfig, width: int) -> float:
    """Return the bytes of a base model's weights at `width` bytes a float.

    Experts of a mixture are not linear layers and stay floats; which matrices they are is not known here, so all count as floats.
    """
    kind = config.quantization or model.quantization
    if kind is None or model.active_share < 1.0:
        return model.parameters * width
    quantized = sum(matrix.size for matrix in model.matrices)
    return (model.parameters - quantized) * width + quantized * _QUANTIZED_BYTES[kind]


def disk_mb(model: ModelFacts, config: TrainingConfig) -> float:
    """Return the disk space that a training writes, in MiB: `keep_checkpoints` and one under way, the best weights, the final model."""
    trained = trained_parameters(model, config)
    final = model.parameters if config.lora is None else trained
    width = 2 if config.optimizer == "adamw_bf16" else 4
    return width * (3 * trained * (config.keep_checkpoints + 1) + trained + final) / _MB


def operations(model: ModelFacts, config: TrainingConfig, work: TrainingWork) -> float:
    """Count the operations of a training; others than matrix products count by their duration."""
    adapters = 0 if config.lora is None else model.adapter_parameters(config.lora)
    weight = 6.0 if config.lora is None else 4.0
    again = 2.0 if config.gradient_checkpointing else 0.0
    other = (_OTHER_OPERATIONS if config.lora is None else _OTHER_WITH_ADAPTERS) * model.layers * model.hidden
    attention = 6.0 * model.attention_width * work.row_tokens / _ATTENTION_RATE
    token = (weight + again) * model.body + 6.0 * adapters + attention + other
    computed = work.tokens * (1.0 - work.shared_share)
    head = weight * model.head * work.tokens * work.trained_share
    update = _UPDATE_OPERATIONS * trained_parameters(model, config) * work.steps
    return token * (computed + _FORWARD_SHARE * work.forward_tokens) + head + update


def seconds(model: ModelFacts, config: TrainingConfig, work: TrainingWork, rate: float, slowdown: float) -> float:
    """Return the seconds from the start of a job to its end.

    `rate` is that of matrix products in FLOP/s, and `slowdown` how many times as long its start takes, beside what else
    runs.
    """
    before = _START_S + 4 * model.parameters / _MB / _READ_MB_S + work.characters / _RENDERED_CHARACTERS_S
    return slowdown * before + operations(model, config, work) / rate


def threads_of(model: ModelFacts, device: Device) -> int:
    """Return the number of threads of a job on the CPU."""
    return 1 if model.parameters < _SMALL_MODEL else device.threads
