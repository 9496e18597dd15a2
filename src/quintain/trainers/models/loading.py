"""Load and save models: safetensors or GGUF, no remote code, no missing weights."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils import logging as transformers_logging

from quintain.artifacts.checksums import require_unchanged, write_checksums
from quintain.errors import InvalidInput
from quintain.files import sync
from quintain.records.agent import ModelRef
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.trainers.models.adapters import (
    first_line,
    merge_adapter,
    require_adapter,
    with_adapter,
    with_new_adapter,
)
from quintain.trainers.models.gguf_copies import (
    UnfaithfulCopy,
    fill_output_biases,
    fingerprint,
    open_copy,
    with_stored_attention,
    write_manifest,
)
from quintain.trainers.models.model_files import ModelFiles, model_files
from quintain.trainers.models.pooling_files import write_pooling
from quintain.trainers.models.quantization import dequantize_stored, quantize, round_weights, size_of
from quintain.trainers.models.tokenizer_files import (
    load_tokenizer,
    require_embeddings,
    save_exactly,
    save_tokenizer,
    tokenizer_files,
)
from quintain.trainers.models.value_head import attach, head_tensors, read_head, save_head, value_head_detached

_UNKNOWN_CONTEXT = 4096
"""Context in tokens of a model whose configuration has none."""

_TOKENIZER = "tokenizer"
"""Folder of the tokenizer in the copy of a GGUF model."""


class LoadedModel(NamedTuple):
    """A model on its device, its tokenizer with its chat template, and its context in tokens."""

    model: Any
    tokenizer: Any
    context_tokens: int
    warnings: tuple[str, ...] = ()
    """Warnings for the user."""


_SMALL_MODEL = 10_000_000
"""Parameters below which one CPU thread is enough."""


def load_model(
    ref: ModelRef,
    *,
    lora: LoraConfig | None = None,
    train: bool = False,
    heads: Sequence[str] = (),
    own_critic: bool = False,
    dtype: torch.dtype | Literal["auto"] | None = None,
    merge: bool = True,
    dequantize: bool = False,
    on_host: bool = False,
) -> LoadedModel:
    """Load a model and tokenizer, with weights in float32 on the CPU, and in bfloat16 on CUDA unless all are trained.

    Args:
        ref: Model to load.
        lora: Add adapters to the linear layers and freeze the rest; an adapter that `ref` names is trained further as it is.
        train: Prepare for training. Otherwise an adapter is merged into the weights, which makes decoding faster.
        heads: Names of the value head, stored or new; empty for a model that acts.
        own_critic: Give the value head a copy of the model.
        dtype: Type of the weights, instead of the above; `auto`: as in the files.
        merge: Whether to merge an adapter that is not trained; one on a quantised base is merged only with `dequantize`.
        dequantize: Load a quantised base as the plain weights that it computes with.
        on_host: Leave the weights in the CPU's memory.

    Raises:
        NotFound: The folder or Hub model does not exist.
        InvalidInput: The files are damaged, incomplete or do not belong together, or quantised weights are to be trained.
        Unavailable: The base is quantised, and bitsandbytes is not installed.
    """
    if ref.quantization is not None and train and lora is None:
        raise InvalidInput(
            f"expected settings of adapters for a base in {ref.quantization}, whose weights cannot be trained, got lora null; set "
            "lora, or export the agent merged and train the result",
            code="quantized_base",
        )
    files = model_files(ref)
    warnings = _check_files(ref, files)
    device = pick_device()
    dtype = dtype or (torch.bfloat16 if device.type == "cuda" and not (train and lora is None) else torch.float32)
    with _readable(files, convert=dtype != "auto") as found:
        config, tokenizer = _load_config(found), load_tokenizer(tokenizer_files(ref, found))
        model, unused = _load_weights(found, config, dtype)
    if ref.quantization is not None:
        (round_weights if dequantize else quantize)(model, ref.quantization, device)
    model.name_or_path = ref.path if ref.source == "hub" else str(files.path)  # adapters name their base so
    if ref.adapter:
        model = with_adapter(model, Path(ref.adapter), trainable=train and lora is not None)
        if not (train and lora is not None) and merge and (ref.quantization is None or dequantize):
            model = merge_adapter(model).requires_grad_(train)
    elif lora is not None and train:
        model = with_new_adapter(model, lora)
    require_embeddings(model, tokenizer, tokenizer_files(ref, files).path)
    if heads:
        attach(model, heads, read_head(_head_folder(ref, files)), own_trunk=own_critic)
    model.to("cpu" if on_host else device).train(train)
    _limit_threads(model, device)
    return LoadedModel(model, tokenizer, _context_tokens(model.config, tokenizer), warnings + unused)


def _check_files(ref: ModelRef, files: ModelFiles) -> tuple[str, ...]:
    """Check the adapter, and the checksums of both folders. Return warnings."""
    warnings = require_adapter(Path(ref.adapter), files.folder) if ref.adapter else ()
    for folder in (files.folder, *([Path(ref.adapter)] if ref.adapter else [])):
        require_unchanged(folder)
    return warnings


def _limit_threads(model: Any, device: torch.device) -> None:
    """Use one CPU thread for a small model: its products take less time than waking a second thread."""
    if device.type == "cpu" and sum(map(size_of, model.parameters())) < _SMALL_MODEL:
        torch.set_num_threads(1)


def stored_heads(ref: ModelRef) -> tuple[str, ...]:
    """Return the names of a value head by which runs are scored; empty without one, or with a critic's."""
    stored = read_head(_head_folder(ref, model_files(ref)))
    return stored.names if stored and not stored.is_critic else ()


def _head_folder(ref: ModelRef, files: ModelFiles) -> Path:
    return Path(ref.adapter) if ref.adapter else files.path  # nothing is below a GGUF file


def open_tokenizer(ref: ModelRef) -> LoadedModel:
    """Return the result of `load_model` without reading the weights: its model is None.

    Raises:
        NotFound: The folder or Hub model does not exist.
        InvalidInput: The files are damaged or incomplete.
    """
    with _readable(model_files(ref), convert=False) as files:
        config, tokenizer = _load_config(files), load_tokenizer(tokenizer_files(ref, files))
    return LoadedModel(None, tokenizer, _context_tokens(config, tokenizer))


@contextmanager
def _readable(files: ModelFiles, *, convert: bool) -> Iterator[ModelFiles]:
    """Yield the files to load: those of a GGUF file's copy, written first if `convert` is set, else the files themselves.

    A copy has float32 weights. To load a GGUF file in the type of its tensors (`auto`), read the file.
    """
    if files.gguf is None:
        yield files
        return
    with open_copy(files.path, partial(_convert, files) if convert else None) as copy:
        yield files if copy is None else ModelFiles(copy, tokenizer=copy / _TOKENIZER)


def _convert(files: ModelFiles, destination: Path) -> None:
    """Write a GGUF model with float32 weights as a folder, atomically."""
    with torch.random.fork_rng([]), _written_aside(destination) as aside:
        config, tokenizer = _load_config(files), load_tokenizer(files)
        model, _ = _load_weights(files, config, torch.float32)
        try:
            model.save_pretrained(aside)
        except SafetensorError as error:
            raise OSError(first_line(error)) from None
        original, read = fingerprint(model), ModelFiles(aside)
        del model  # there may be memory for one
        save_exactly(tokenizer, aside / _TOKENIZER)
        found = fingerprint(_load_weights(read, _load_config(read), torch.float32)[0])
        if differing := [name for name in original.keys() | found.keys() if original.get(name) != found.get(name)]:
            raise UnfaithfulCopy(f"it would load with another {min(differing)}")
        write_manifest(aside)


@contextmanager
def _written_aside(destination: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces `destination` at the end of the block; after an error nothing is left of it."""
    aside = destination.with_name(f".{destination.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        publish(aside, destination)
    except BaseException:  # a partial model must not fill the disk
        shutil.rmtree(aside, ignore_errors=True)
        raise


def save_model(model: Any, tokenizer: Any, destination: Path, pooled_length: int | None = None) -> None:
    """Write a model, or its adapter alone, with tokenizer and chat template, atomically.

    Without a tokenizer, for a program of the same job, checksums are left out too. `pooled_length` are the tokens at which a
    retriever cuts texts; null: no retriever.
    """
    with _written_aside(destination) as aside:
        with value_head_detached(model) as head:
            if is_adapter(model):
                model.save_pretrained(aside, save_embedding_layers=getattr(model, "has_own_embeddings", False))
            else:
                model.save_pretrained(aside)
        if head is not None:
            save_head(head.names, head_tensors(head), aside)
        if pooled_length is not None:
            write_pooling(aside, model.get_input_embeddings().weight.shape[1], pooled_length)
        if tokenizer is not None:
            save_tokenizer(tokenizer, aside)
            write_checksums(aside)


def publish(aside: Path, destination: Path) -> None:
    """Fsync a finished folder and rename it; it replaces a folder of that name from an earlier attempt."""
    make_durable(aside)
    old = destination.with_name(f".{destination.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if destination.exists():
        os.replace(destination, old)
    os.replace(aside, destination)
    sync(destination.parent)
    shutil.rmtree(old, ignore_errors=True)


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a file of tensors, which appears whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    save_file(dict(tensors), aside)
    sync(aside)
    aside.replace(path)


def make_durable(folder: Path) -> None:
    """Fsync all files and folders of a folder."""
    for path in (folder, *folder.rglob("*")):
        sync(path)


def is_adapter(model: Any) -> bool:
    """Whether it is a base model with adapters."""
    return hasattr(model, "peft_config")


def trainable(model: Any) -> dict[str, torch.nn.Parameter]:
    """Return the trainable parameters by name; a tied one once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


@contextmanager
def eval_mode(model: Any) -> Iterator[None]:
    """Put a model into eval mode; restore the mode of each module and all random states afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    python, arrays = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            model.eval()
            yield
    finally:
        for module, training in modes:
            module.training = training
        random.setstate(python)
        np.random.set_state(arrays)


def decoder_and_head(model: Any) -> tuple[Any, Any]:
    """Return the module from ids to hidden states, and the one from hidden states to logits."""
    whole = model.get_base_model() if is_adapter(model) else model
    return whole.get_decoder(), whole.get_output_embeddings()


def pick_device() -> torch.device:
    """Return CUDA if available, else Apple's MPS, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _load_config(files: ModelFiles) -> Any:
    """Return the configuration without the attention that it asks for, which may be code of a Hub repository."""
    try:
        config = AutoConfig.from_pretrained(
            files.folder, trust_remote_code=False, local_files_only=True, **files.options
        )
        config._attn_implementation = None  # also of the parts of a model with vision
        return with_stored_attention(config, files.path) if files.gguf else config
    except InvalidInput:
        raise
    except Exception as error:  # each kind of model checks its configuration in its own way
        raise InvalidInput(
            f"cannot read {files.config_name} in {files.folder} ({first_line(error)}); copy it again from the original, and use a "
            "causal language model that transformers knows without remote code",
            code="model_damaged",
        ) from None


def auto_class(config: Any) -> Any:
    """Return the class that loads a causal language model, which may read images beside text.

    Raises:
        InvalidInput: transformers has neither for this configuration (`unsupported_model`).
    """
    for model_class in () if config.is_encoder_decoder else (AutoModelForCausalLM, AutoModelForImageTextToText):
        if type(config) in model_class._model_mapping:
            return model_class
    raise InvalidInput(
        f"expected a causal language model that transformers knows, got {config.model_type!r} in {config.name_or_path}; name another "
        "model",
        code="unsupported_model",
    )


def _load_weights(files: ModelFiles, config: Any, dtype: torch.dtype | Literal["auto"]) -> tuple[Any, tuple[str, ...]]:
    """Load the weights; quantised ones are dequantised. Return the model, and a warning if it has no place for some of them."""
    transformers_logging.disable_progress_bar()
    model_class = auto_class(config)
    try:
        loaded: Any = model_class.from_pretrained(
            files.folder,
            dtype=dtype,
            trust_remote_code=False,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below
            config=config,
            **files.options,
        )
    except ImportError as error:  # of weights that are stored quantised
        raise InvalidInput(
            f"cannot read the model in {files.path} ({first_line(error)}); name the folder of its plain weights, and set quantization "
            "where they do not fit",
            code="unsupported_model",
        ) from None
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        raise InvalidInput(
            f"cannot read the model in {files.path} ({first_line(error)}); copy its files again from the original",
            code="model_damaged",
        ) from None
    model, loading = loaded
    # transformers fills missing weights with random numbers.
    mismatched = [
        f"{name} {[*stored]} for {[*expected]}" for name, stored, expected in sorted(loading["mismatched_keys"])
    ]
    missing = loading["missing_keys"]
    if files.gguf:
        missing = fill_output_biases(model, missing)
    if gaps := sorted(missing) + mismatched:
        raise InvalidInput(
            f"expected the weights of {files.config_name} in {files.folder}, got {len(gaps)} missing or of another shape, "
            f"first {gaps[0]}; copy {files.config_name} and the weights from the same model",
            code="model_mismatch",
        )
    unused = () if files.gguf else _unused(files, sorted(loading["unexpected_keys"]))
    if (quantizer := getattr(model, "hf_quantizer", None)) is None:
        return model, unused
    if files.gguf:
        quantizer.remove_quantization_config(model)  # the weights are floats by now, and can be saved
        return model, unused
    return dequantize_stored(model), unused


def _unused(files: ModelFiles, names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    return (
        f"the model of {files.config_name} in {files.folder} has no place for {len(names)} of its weights, first {names[0]}, and "
        "computes without them; copy config.json and the weights from the same model if they belong to it",
    )


def _context_tokens(config: Any, tokenizer: Any) -> int:
    own_context = getattr(config.get_text_config(), "max_position_embeddings", None)
    return int(own_context or min(tokenizer.model_max_length, _UNKNOWN_CONTEXT))
