"""Write an agent's files, read them back and compare them with the agent."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoTokenizer, GenerationConfig

from quintain.errors import Unavailable
from quintain.files import sha256_of
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.jobs.handover import ExportFormat, GgufType, Parity
from quintain.records.protocols import Reporter
from quintain.records.wording import size_text
from quintain.trainers.acting.policy import end_ids
from quintain.trainers.handover.gguf_file import write_gguf
from quintain.trainers.handover.gguf_weights import require_architecture
from quintain.trainers.handover.ollama import go_template
from quintain.trainers.handover.parity import Measurement, Probes, compare, count_equal, measure
from quintain.trainers.models.adapters import adapter_tensors, first_line
from quintain.trainers.models.loading import (
    LoadedModel,
    auto_class,
    load_model,
    open_tokenizer,
    pick_device,
    stored_heads,
)
from quintain.trainers.models.model_files import model_files
from quintain.trainers.models.pooling_files import read_pooling, write_pooling
from quintain.trainers.models.quantization import size_of
from quintain.trainers.models.tokenizer_files import save_tokenizer
from quintain.trainers.models.value_head import FILE_NAME, save_head, value_head_detached
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rendering.styles import FALLBACK_TEMPLATE, fallback_template

_SHARD = "5GB"
"""Maximum size of a weights file; larger weights are split, with an index."""

_ADAPTER_FILES = ("adapter_model.safetensors", "adapter_model.bin", "adapter_config.json")

_RESIZED = (
    "the adapter has its own embeddings: call base.resize_token_embeddings({rows}) before it is loaded on its base"
)

_ROOM_BYTES = 64 * 2**20
"""Space for tokenizer, configuration and card, besides the weights."""


@dataclass(frozen=True)
class ExportedFiles:
    """Facts about the exported folder, for its card."""

    parity: Parity
    base: dict[str, Any]
    template: dict[str, Any]
    architecture: str
    versions: dict[str, str]
    notes: tuple[str, ...]


def write_agent(
    agent: Agent, format: ExportFormat, folder: Path, reporter: Reporter, gguf_type: GgufType = "q8_0"
) -> ExportedFiles | None:
    """Write an agent's weights, tokenizer and chat template into a folder, and compare them with the agent.

    Returns:
        None if it was stopped.

    Raises:
        Conflict: The files differ from the agent (`parity_failed`).
        Unavailable: The disk is full, or refuses the files.
        InvalidInput: The agent's own files are damaged or incomplete.
    """
    reporter.phase("measuring")
    heads, compute = stored_heads(agent.model) if agent.role != "policy" else (), _compute_in(agent.model)
    own = load_model(agent.model, heads=heads, dtype=compute, merge=False)
    if format == "gguf":
        require_architecture(own.model.config)  # before anything that takes long
    for warning in own.warnings:
        reporter.warn("export", warning)
    renderer = Renderer.of(own.tokenizer, agent.template)
    probes = Probes.of(agent, own, renderer)
    measured = measure(own, probes)
    compared_in = _format_of(own.model)
    numbers = sum(map(size_of, own.model.parameters()))
    del own  # its memory goes back before the files are read
    if reporter.should_stop():
        return None
    reporter.phase("writing")
    with _disk_errors(folder):
        if format == "gguf":
            _require_room(folder, 2 * numbers)
            return _with_gguf(agent, gguf_type, folder, renderer, probes, measured)
        if format == "adapter":
            stored_in, architecture = _write_adapter(agent.model, folder), ""
        else:
            stored_in, architecture = _write_merged(agent, heads, renderer, folder)
        _write_tokenizer(agent, folder)
    if reporter.should_stop():
        return None
    reporter.phase("checking")
    read = load_model(_written(agent.model, format, folder), heads=heads, dtype=compute, merge=False)
    parity = compare(measured, measure(read, probes), compared_in=compared_in, stored_in=stored_in)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    parity = parity.model_copy(update=count_equal(tokenizer, renderer, agent, probes))
    rows = len(read.model.get_input_embeddings().weight)
    resized = format == "adapter" and read.model.has_own_embeddings
    return ExportedFiles(
        parity=parity,
        base=_base(agent.model, hashed=format == "adapter") | {"class": auto_class(read.model.config).__name__},
        template=_template(renderer, agent),
        architecture=architecture,
        versions=_versions("safetensors"),
        notes=(*renderer.warnings, *([_RESIZED.format(rows=rows)] if resized else [])),
    )


def _written(ref: ModelRef, format: ExportFormat, folder: Path) -> ModelRef:
    """Return the reference to what was written: an adapter on its base, or a whole model."""
    if format == "adapter":
        return ref.model_copy(update={"adapter": str(folder)})
    return ModelRef(source="folder", path=str(folder))


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the disk into one that names the folder."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise Unavailable(
            f"cannot write to {folder.parent} ({first_line(error)}); free disk space, or name another folder"
        ) from None


def _with_gguf(
    agent: Agent, kind: GgufType, folder: Path, renderer: Renderer, probes: Probes, measured: Measurement
) -> ExportedFiles:
    check = write_gguf(agent, kind, folder, renderer, probes, measured)
    return ExportedFiles(
        parity=check.parity,
        base=_base(agent.model),
        template=_template(renderer, agent) | {"ollama": go_template(renderer)},
        architecture="",
        versions=_versions("gguf", "xllamacpp"),
        notes=(*renderer.warnings, *check.notes),
    )


def _versions(*libraries: str) -> dict[str, str]:
    return {name: version(name) for name in ("torch", "transformers", "peft", *libraries)}


def _compute_in(ref: ModelRef) -> torch.dtype | None:
    """Return float32 if it fits, because it separates faults from rounding; else None, the type in which agents act."""
    if pick_device().type != "cuda":
        return torch.float32
    numbers, files = 0, model_files(ref)
    if files.gguf:
        return None
    for path in files.folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            numbers += sum(torch.Size(file.get_slice(name).get_shape()).numel() for name in file.keys())  # noqa: SIM118
    free, _ = torch.cuda.mem_get_info()
    return torch.float32 if 1.25 * 4 * numbers < free else None


def _format_of(model: Any) -> torch.dtype:
    """Return the number format of most of a model's weights."""
    sizes: Counter[torch.dtype] = Counter()
    for parameter in model.parameters():
        if parameter.is_floating_point():  # quantised weights are computed in the type of the others
            sizes[parameter.dtype] += parameter.numel()
    return sizes.most_common(1)[0][0]


def _write_adapter(ref: ModelRef, folder: Path) -> torch.dtype:
    """The adapter as it is, byte for byte, but for the name of its base; gives the format of its weights."""
    source = Path(ref.adapter or "")
    files = [source / name for name in (*_ADAPTER_FILES, FILE_NAME) if (source / name).is_file()]
    _require_room(folder, sum(path.stat().st_size for path in files))
    for path in files:
        shutil.copyfile(path, folder / path.name)
    config = json.loads((source / "adapter_config.json").read_bytes())
    config |= {"base_model_name_or_path": _base(ref)["name"], "revision": ref.revision, "inference_mode": True}
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return next(iter(adapter_tensors(folder).values())).dtype


def _write_merged(agent: Agent, heads: tuple[str, ...], renderer: Renderer, folder: Path) -> tuple[torch.dtype, str]:
    """All weights in the number format of the base's files; gives the format, and the name of the model's class."""
    loaded = load_model(agent.model, heads=heads, dtype="auto", dequantize=True)
    model = loaded.model
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}.values()
    _require_room(folder, sum(t.numel() * t.element_size() for t in tensors))
    if model.can_generate():
        model.generation_config = _generation(model.generation_config, loaded, renderer, agent.sampling)
    with value_head_detached(model) as head:
        model.save_pretrained(folder, max_shard_size=_SHARD)
    if head is not None:
        save_head(head.names, dict(head.named_parameters()), folder)
    return _format_of(model), type(model).__name__


def _generation(before: Any, loaded: LoadedModel, renderer: Renderer, sampling: Sampling) -> GenerationConfig:
    """Return the agent's sampling settings and end tokens, in the names of transformers; nothing of the base's settings stays."""
    ends = end_ids(loaded.model, renderer)
    warm = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    warm |= {"min_p": sampling.min_p} if sampling.min_p else {}
    pad, rows = getattr(before, "pad_token_id", None), loaded.model.get_input_embeddings().weight.shape[0]
    own = loaded.tokenizer.pad_token_id
    return GenerationConfig(
        bos_token_id=loaded.tokenizer.bos_token_id,
        eos_token_id=sorted(ends) or None,
        pad_token_id=(own if own is not None and own < rows else min(ends, default=None)) if pad is None else pad,
        max_new_tokens=sampling.max_new_tokens,
        do_sample=sampling.temperature > 0,
        **(warm if sampling.temperature > 0 else {}),
    )


def _write_tokenizer(agent: Agent, folder: Path) -> None:
    """Write a freshly loaded tokenizer: truncation and padding of earlier calls would be saved too.

    A retriever gets the files by which sentence-transformers pools, too.
    """
    tokenizer = open_tokenizer(agent.model).tokenizer
    if not getattr(tokenizer, "chat_template", None):
        tokenizer.chat_template = fallback_template(tokenizer)
    save_tokenizer(tokenizer, folder)
    if agent.role == "retriever":
        write_pooling(folder, *read_pooling(Path(agent.model.own_path)))


def _require_room(folder: Path, weights: int) -> None:
    needed, free = weights + _ROOM_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        raise Unavailable(
            f"expected {size_text(needed)} for the export in {folder.parent}, got {size_text(free)} free; free disk "
            "space, or name a folder on another disk",
            code="disk_full",
        )


def _base(ref: ModelRef, *, hashed: bool = False) -> dict[str, Any]:
    """Return the base model by the name under which it is loaded, with the hashes of its files if requested."""
    found = model_files(ref)
    folder = found.folder
    base: dict[str, Any] = {"source": ref.source, "name": ref.path if ref.source == "hub" else str(found.path)}
    if ref.source == "hub":
        base["revision"] = ref.revision
    if hashed:
        files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.json"), *folder.glob("*.jinja")])
        files = [found.path] if found.gguf else files
        base["files"] = {path.name: sha256_of(path) for path in files}
    return base


def _template(renderer: Renderer, agent: Agent) -> dict[str, Any]:
    """Return the format of the agent's turns, for programs that build prompts themselves."""
    ends = sorted(renderer.end_ids)
    return {
        "asked": agent.template,
        "style": renderer.style,
        "system_role": renderer.writer.has_system_role,
        "end_token_ids": ends,
        "end_tokens": [renderer.decode([i]) for i in ends],
        "fingerprint": renderer.fingerprint,
        "is_fallback": renderer.writer.source.endswith(FALLBACK_TEMPLATE),
    }
