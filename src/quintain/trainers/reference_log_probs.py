"""Log-probs of the reference model, one for each supervised token, computed once and kept on disk.

The reference is the model before the first step, or its base with the adapters off. Values are kept per token: a loss subtracts them
per token and sums in float64, because float32 sums over two runs exceed their difference by orders of magnitude.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from quintain.errors import TrainingFailed
from quintain.jobs.directory import write_atomically
from quintain.records.hyperparameters.methods import DPOConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.protocols import Reporter
from quintain.trainers.data.streams import Example, TokenRow, rows_of, split_by_row
from quintain.trainers.distributed.passes import OWN_PASSES, SharedPasses
from quintain.trainers.distributed.sharding import full, is_sharded
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop.objectives import objective_of
from quintain.trainers.models.loading import LoadedModel, is_adapter, trainable
from quintain.trainers.models.quantization import scales_of

Warn = Callable[[str, str], None]
"""Takes a code and a sentence, as `Reporter.warn` does."""

_FORMAT = "1"
_TENSOR = "logprobs"
_TOGETHER = 512
"""Examples that are split into micro-batches at a time; more would only slow down the packing."""
_VOLATILE = {
    "_name_or_path",
    "_attn_implementation",
    "base_model_name_or_path",
    "inference_mode",
    "transformers_version",
    "use_cache",
}
"""Configuration entries of models and adapters that do not affect their computation."""


def with_reference(
    examples: Sequence[Example],
    engine: Engine,
    *,
    cache: Path | None,
    identity: str,
    batch_tokens: int,
    warn: Warn = lambda code, message: None,
    passes: SharedPasses = OWN_PASSES,
) -> list[Example]:
    """Return the examples with `ref_logprob` in every row, under the engine's current model.

    The model, its mode and the random states stay unchanged. Stored values are returned bit-equal.
    `identity` names the model and how it computes. Processes may share the cache; without one nothing is kept. A file that is
    damaged or cannot be written is only warned of.

    Raises:
        TrainingFailed: A log-prob is not finite (`reference_not_finite`).
    """
    rows = rows_of(examples)
    if not rows:
        return list(examples)
    key = _key(identity, rows)
    path = cache / f"reference-{key}.safetensors" if cache else None
    logprobs = None
    if path:
        logprobs = passes.group.from_first(lambda: _read(path, key, warn))
    if logprobs is None:
        logprobs = _computed(examples, rows, engine, batch_tokens, passes)
        if path and passes.group.is_first:
            _write(path, key, logprobs, warn)
    pieces = iter(split_by_row(logprobs, rows))
    return [
        replace(e, rows=tuple(row.with_supervised("ref_logprob", next(pieces)) for row in e.rows)) for e in examples
    ]


class References:
    """Adds log-probs of the reference to examples; create it before the first step.

    `with_logprobs` is called before the first step offline, and at any time online. A reference that follows the policy (TR-DPO,
    Gorbatovski et al. 2024, arXiv 2404.09656) scores each step by itself (`scored`).
    """

    def __init__(
        self, engine: Engine, spec: TrainSpec, folder: Path, reporter: Reporter, passes: SharedPasses = OWN_PASSES
    ) -> None:
        self._engine = engine
        self._passes = passes
        self._spec = spec
        self._folder = folder
        self._reporter = reporter
        self._identity: str | None = None
        self._start: dict[str, torch.Tensor] = {}
        """Trainable parameters of the reference, where they are needed after the first step."""
        self._moved_at = 0
        """Step before which it has moved last."""

    @staticmethod
    def of(
        spec: TrainSpec,
        loaded: LoadedModel,
        engine: Engine,
        directory: Path,
        reporter: Reporter,
        passes: SharedPasses = OWN_PASSES,
    ) -> References:
        """Remember the start model.

        This copies the trainable parameters only if the reference moves, or log-probs are needed during the run, as online, and
        cannot be computed by switching new adapters off.
        """
        cache = Path(spec.cache_dir) if spec.cache_dir else directory
        references = References(engine, spec, cache / "reference", reporter, passes)
        if references.follows or (_wanted_later(spec) and not references._new_adapters):
            references._start = {name: p.detach().clone() for name, p in trainable(loaded.model).items()}
        return references

    def with_logprobs(self, examples: Sequence[Example], *, keep: bool = True) -> list[Example]:
        """Return the examples with `ref_logprob` in every row.

        Raises:
            TrainingFailed: A log-prob is not finite (`reference_not_finite`).
        """
        if keep and examples:
            self._reporter.phase("reference")
        with self._as_at_start():
            if keep and self._identity is None:
                model = self._engine.model
                self._identity = f"{model_identity(model)} {self._engine.autocast} {model.device.type}"
            return with_reference(
                examples,
                self._engine,
                cache=self._folder if keep else None,
                identity=self._identity or "",
                batch_tokens=self._spec.config.batch_tokens,
                warn=self._reporter.warn,
                passes=self._passes,
            )

    @property
    def _new_adapters(self) -> bool:
        """Whether the run starts with new adapters, which change nothing yet."""
        return self._spec.config.lora is not None and self._spec.agent.model.adapter is None

    @property
    def follows(self) -> bool:
        """Whether the reference follows the policy."""
        return isinstance(self._spec.config, DPOConfig) and self._spec.config.reference_sync_steps is not None

    @torch.no_grad()
    def scored(self, examples: Sequence[Example], step: int) -> list[Example]:
        """Return the examples of a step, counted from 0, with log-probs of the reference of that step, which follows.

        theta_ref becomes (1 - mixup) theta_ref + mixup theta before the steps k, 2 k, ... (arXiv 2404.09656, eq. 3; mixup 1 is
        the hard update of eq. 4).
        """
        config = self._spec.config
        assert isinstance(config, DPOConfig)
        assert config.reference_sync_steps is not None
        if step % config.reference_sync_steps == 0 and step > self._moved_at:
            for name, parameter in trainable(self._engine.model).items():
                self._start[name].lerp_(parameter.detach(), config.reference_mixup)
            self._moved_at = step
        return self.with_logprobs(examples, keep=False)

    def state(self) -> dict[str, Any]:
        """Return the state of a reference that follows, for a checkpoint."""
        return {"moved_at": self._moved_at, "weights": {name: value.cpu() for name, value in self._start.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self._moved_at = state["moved_at"]
        for name, value in self._start.items():
            value.copy_(state["weights"][name])

    def _as_at_start(self) -> AbstractContextManager[None]:
        if self._start:
            return _values(self._engine.model, self._start)
        return adapters_off(self._engine.model) if self._new_adapters else nullcontext()


def _wanted_later(spec: TrainSpec) -> bool:
    if spec.environment is None:
        return False
    return spec.config.kl_stop is not None or objective_of(spec.config).needs_reference


@contextmanager
def _values(model: Any, values: dict[str, torch.Tensor]) -> Iterator[None]:
    """Replace the values of the trainable parameters inside of the context."""
    parameters = trainable(model)
    if is_sharded(model):  # FSDP keeps the storage of its shards
        with torch.no_grad():
            kept = {name: p.detach().clone() for name, p in parameters.items()}
            try:
                for name, parameter in parameters.items():
                    parameter.copy_(values[name])
                yield
            finally:
                for name, parameter in parameters.items():
                    parameter.copy_(kept[name])
        return
    own = {name: p.data for name, p in parameters.items()}
    try:
        for name, parameter in parameters.items():
            parameter.data = values[name]
        yield
    finally:
        for name, parameter in parameters.items():
            parameter.data = own[name]


def model_identity(model: Any) -> str:
    """Return SHA-256 over a model's configuration, and name, shape, type and value of every parameter.

    An adapter with its settings is part of it, unless it is off: then the identity is that of the base. Collective for a sharded
    model, whose parameters are gathered one after another.
    """
    base = model.get_base_model() if is_adapter(model) else model
    configs = {"model": base.config}
    left_out = ""
    if is_adapter(model):
        if _adapters_are_off(model):
            left_out = model.base_model.prefix
        else:
            configs |= model.peft_config
    settings = {name: _settings(config) for name, config in configs.items()}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, parameter in model.named_parameters():
        if left_out and left_out in name:
            continue
        digest.update(f"\0{name}\0{tuple(parameter.shape)}\0{parameter.dtype}\0".encode())
        values: Any = full(parameter)
        digest.update(values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    for name, scales in scales_of(model):
        digest.update(f"\0{name}\0".encode())
        digest.update(scales.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def adapters_off(model: Any) -> Iterator[None]:
    """Switch the adapters off inside of the context; the trainable parameters stay the same."""
    # peft marks the active adapter as trained when it goes back on, whatever it was before
    trained = {name: p.requires_grad for name, p in model.named_parameters()}
    try:
        with model.disable_adapter():
            yield
    finally:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(trained[name])


def _settings(config: Any) -> dict[str, Any]:
    entries = ((key, value) for key, value in config.to_dict().items() if key not in _VOLATILE)
    return {key: sorted(value) if isinstance(value, set) else value for key, value in entries}


def _adapters_are_off(model: Any) -> bool:
    return any(getattr(module, "disable_adapters", False) is True for module in model.modules())


def _computed(
    examples: Sequence[Example], rows: Sequence[TokenRow], engine: Engine, batch_tokens: int, passes: SharedPasses
) -> NDArray[np.float32]:
    """Return log-probs of all supervised tokens, rows in the order given; float32 [N]."""
    # A split example comes back as several with the same row objects, so scores are kept by row.
    scored: dict[TokenRow, NDArray[np.float32]] = {}
    for start in range(0, len(examples), _TOGETHER):
        part = examples[start : start + _TOGETHER]
        scored |= passes.score(engine, part, batch_tokens, lambda rows: engine.logprobs(rows).logprobs.float())
    whole = np.concatenate([np.empty(0, np.float32), *(scored[row] for row in rows)])
    if bad := int((~np.isfinite(whole)).sum()):
        raise TrainingFailed(
            f"expected finite log-probs of the reference model, got {bad} of {len(whole)} that are not: the model is damaged or "
            "its precision too narrow; use precision 'bf16' or 'fp32', or another start model",
            code="reference_not_finite",
        )
    return whole


def _key(identity: str, rows: Sequence[TokenRow]) -> str:
    """Return SHA-256 over the model's identity, and the tokens and masks of the rows."""
    digest = hashlib.sha256(f"{_FORMAT}\0{identity}\0{len(rows)}\0".encode())
    for row in rows:
        digest.update(len(row).to_bytes(8, "little"))
        digest.update(row.token_ids.astype("<i4").tobytes())
        digest.update(row.supervised.tobytes())
    return digest.hexdigest()


def _read(path: Path, key: str, warn: Warn) -> Any:
    """Return the stored values, float32 [N]; None if there are none, or the file is damaged."""
    try:
        with safe_open(path, framework="np") as file:
            vouched, logprobs = file.metadata(), file.get_tensor(_TENSOR)
        if vouched == _metadata(key, logprobs):
            return logprobs
        fault = "it differs from its SHA-256, or belongs to other data or another model"
    except FileNotFoundError:
        return None
    except (SafetensorError, OSError, ValueError) as error:
        fault = str(error)
    warn("reference_damaged", f"{path.name} cannot be used and is computed again: {fault}")
    return None


def _metadata(key: str, logprobs: NDArray[np.float32]) -> dict[str, str]:
    return {"key": key, "sha256": hashlib.sha256(logprobs.tobytes()).hexdigest()}


def _write(path: Path, key: str, logprobs: NDArray[np.float32], warn: Warn) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, save({_TENSOR: logprobs}, _metadata(key, logprobs)))
    except OSError as error:
        warn("reference_not_kept", f"cannot store the reference log-probs, which will be computed again: {error}")
