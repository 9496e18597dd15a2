"""Write an agent as one GGUF file, run the file with llama.cpp, and compare it with the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple
from unicodedata import normalize

import gguf
import torch

from quintain.errors import Conflict, InvalidInput
from quintain.records.agent import Agent
from quintain.records.jobs.handover import GgufType, Parity
from quintain.records.protocols import Message
from quintain.trainers.handover.gguf_vocabulary import (
    add_special_tokens,
    add_vocabulary,
    copy_vocabulary,
    find_form,
    finish,
)
from quintain.trainers.handover.gguf_weights import (
    add_hyperparameters,
    add_weights,
    require_architecture,
    to_stored_model,
)
from quintain.trainers.handover.llama_cpp import LlamaCpp, model_served
from quintain.trainers.handover.parity import TEXTS, Measurement, Probes, parity_error
from quintain.trainers.models.loading import LoadedModel, load_model
from quintain.trainers.models.model_files import model_files
from quintain.trainers.rendering.chat_template import shared_prefix
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rendering.template_probe import PROBE_TOOLS

_FILE_TYPES: Mapping[GgufType, gguf.LlamaFileType] = {
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "q4_k_m": gguf.LlamaFileType.MOSTLY_Q4_K_M,
}

_OTHER_TEMPLATE = (
    "llama.cpp renders a probe conversation with tools in another way than the agent was trained on; send it rendered prompts, or "
    "describe the tools in the system message"
)

_TEXT_ALONE = (
    "the file has the part of the model that reads and writes text; the format 'merged' keeps the one for images"
)

MEAN_BOUNDS: Mapping[GgufType, float] = {"f16": 0.01, "q8_0": 0.05, "q4_k_m": 0.25}
"""Maximum mean difference of a token's log-prob l, in nats for each max(1, -l). llama.cpp rounds activations too.

Gemma 3 270M differed by 0.002 in f16. Faults of the conversion are far larger: queries in another order gave 1 to 3 nats.
"""

_COMPARED = 96
"""Tokens compared, spread evenly over the probe rows: each costs llama.cpp a request."""


class GgufCheck(NamedTuple):
    """Results of running the file."""

    parity: Parity
    notes: tuple[str, ...]


def write_gguf(
    agent: Agent, kind: GgufType, folder: Path, renderer: Renderer, probes: Probes, own: Measurement
) -> GgufCheck:
    """Write `NAME-TYPE.gguf`, run it, and compare it with the agent.

    A quantised file is written after one in f16 has passed, which differs from it in the type of the weights alone.

    Raises:
        InvalidInput: GGUF has no place for the model or its tokenizer (`unsupported_model`).
        Conflict: llama.cpp refuses the file, or what it computes differs (`parity_failed`).
        Unavailable: A library is missing.
    """
    loaded = load_model(agent.model, dtype=torch.float32, dequantize=True)
    exact = folder / f"{agent.name}-f16.gguf"
    _write(exact, agent, loaded, renderer, "f16")
    texts = _texts(renderer.tokenizer, _rows(loaded))
    check = _check(exact, "f16", renderer, texts, probes, own)
    if kind != "f16":
        exact.unlink()
        file = folder / f"{agent.name}-{kind}.gguf"
        _write(file, agent, loaded, renderer, kind)
        check = _check(file, kind, renderer, texts, probes, own)
    config = loaded.model.config
    return check if config.get_text_config() is config else check._replace(notes=(*check.notes, _TEXT_ALONE))


def _write(file: Path, agent: Agent, loaded: LoadedModel, renderer: Renderer, kind: GgufType) -> None:
    tokenizer, architecture = renderer.tokenizer, require_architecture(loaded.model.config)
    weights, config = to_stored_model(loaded.model, architecture)
    writer = gguf.GGUFWriter(file, architecture.name)
    writer.add_name(agent.name)
    writer.add_file_type(_FILE_TYPES[kind])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_hyperparameters(writer, config, architecture.name)
    if agent.model.source == "gguf":
        copy_vocabulary(writer, model_files(agent.model).path)
    elif not hasattr(tokenizer, "backend_tokenizer"):
        raise InvalidInput(
            f"expected a tokenizer.json for GGUF, got {type(tokenizer).__name__}; export the agent in the format 'merged'",
            code="unsupported_model",
        )
    else:
        rows = _rows(loaded)
        add_vocabulary(writer, tokenizer, find_form(tokenizer, _texts(tokenizer, rows), file.parent), rows)
    add_special_tokens(writer, renderer)
    add_weights(writer, weights, config, architecture, kind)
    finish(writer)


def _rows(loaded: LoadedModel) -> int:
    return int(loaded.model.get_input_embeddings().weight.shape[0])


def _texts(tokenizer: Any, rows: int) -> list[str]:
    """Return the probe texts, composed (NFC), for llama.cpp composes none, and the spelling of every special token."""
    special = (token for i, token in tokenizer.added_tokens_decoder.items() if i < rows and token.special)
    spelled = "".join(token.content for token in special)
    return [*(normalize("NFC", text) for text in TEXTS), spelled]


def _check(
    file: Path, kind: GgufType, renderer: Renderer, texts: Sequence[str], probes: Probes, own: Measurement
) -> GgufCheck:
    try:
        with model_served(file, context_tokens=max(map(len, probes.rows)) + 1) as model:
            for text in texts:
                if model.token_ids(text) != renderer.tokenizer.encode(text, add_special_tokens=False, verbose=False):
                    raise parity_error(f"llama.cpp gives other ids for {text[:40]!r}")
            logprobs = _logprobs(model, probes, own)
            same = _equal_greedy_tokens(model, probes)
            rendered = sum(_renders_alike(model, renderer, messages) for messages in probes.conversations)
    except RuntimeError:
        raise Conflict(
            f"expected llama.cpp to load {file.name}, got a refusal; its reason is in the job's log. Export the agent in the format "
            "'merged'",
            code="parity_failed",
        ) from None
    parity = _parity(logprobs, kind).model_copy(
        update={
            "greedy_tokens": same,
            "greedy_tie": same < probes.n_greedy,
            "equal_ids": len(texts),
            "equal_renderings": rendered,
        }
    )
    notes = () if rendered == len(probes.conversations) else (_OTHER_TEMPLATE,)
    return GgufCheck(parity, notes)


def _logprobs(model: LlamaCpp, probes: Probes, own: Measurement) -> list[tuple[float, float]]:
    """Return log-probs by the agent and by the file, in nats, of tokens spread over the probe rows."""
    places = [(row, place) for row, ids in enumerate(probes.rows) for place in range(1, len(ids))]
    found = []
    for row, place in places[:: max(1, len(places) // _COMPARED)]:
        ids = probes.rows[row]
        logprob = model.logprob(ids[:place], ids[place])
        if logprob is not None:
            found.append((float(own.logprobs[row][place - 1]), logprob))
    return found


def _parity(logprobs: Sequence[tuple[float, float]], kind: GgufType) -> Parity:
    """Return the differences of log-probs (agent, file) as a parity record, without the counts."""
    differences = [abs(own - read) for own, read in logprobs]
    relative = fmean(difference / max(1.0, -own) for difference, (own, _) in zip(differences, logprobs, strict=True))
    bound = MEAN_BOUNDS[kind]
    if not relative <= bound:
        raise parity_error(
            f"log-probs l differ by {fmean(differences):.3g} nats on average, {relative:.3g} for each max(1, -l), more than {bound:g}, "
            f"which {kind} allows"
        )
    return Parity(
        compared_in="float32",
        stored_in=kind,
        bound=bound,
        bounded=relative,
        max_difference=max(differences),
        mean_difference=fmean(differences),
        tokens=len(differences),
        greedy_tokens=0,
        equal_ids=0,
        equal_renderings=0,
    )


def _equal_greedy_tokens(model: LlamaCpp, probes: Probes) -> int:
    """Return how many tokens of the agent's greedy continuation the file writes too."""
    prompt = probes.rows[-1][: len(probes.rows[-1]) - probes.n_greedy]
    wanted = probes.rows[-1][len(prompt) :]
    written = model.greedy(prompt, len(wanted)) if wanted else []
    return shared_prefix(wanted, written)


def _renders_alike(model: LlamaCpp, renderer: Renderer, messages: Sequence[Message]) -> bool:
    chat, schemas = renderer.writer.chat(messages, PROBE_TOOLS), renderer.writer.schemas(PROBE_TOOLS)
    try:
        prompt = model.prompt(chat, schemas or ())
    except RuntimeError:  # llama.cpp's template engine refuses it
        return False
    return model.token_ids(prompt, is_prompt=True) == model.token_ids(
        renderer.writer.text(messages, PROBE_TOOLS, prompt=True)
    )
