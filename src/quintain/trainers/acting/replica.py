"""Acting with the weights of a version file of a training: earlier ones in its own process, the newest in another process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from quintain.records.agent import Sampling
from quintain.records.hyperparameters.methods import OnlineConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.protocols import Policy, Reply, Turn
from quintain.trainers.acting.policy import LocalPolicy
from quintain.trainers.acting.products import PRODUCTS, ProductForms
from quintain.trainers.models.loading import LoadedModel, trainable, write_tensors
from quintain.trainers.preparation import copy_start_model, seed_everything
from quintain.trainers.rendering.renderer import Renderer


def save_version(model: nn.Module, path: Path) -> None:
    """Write the trainable weights of a model, unless the file exists. The file appears whole."""
    if not path.exists():
        write_tensors(path, {name: p.detach().contiguous().cpu() for name, p in trainable(model).items()})


class EarlierPolicy:
    """A policy of the model with the weights of an earlier version.

    Only pointers are exchanged, so the live weights stay as they are, and memory holds one more copy of the trainable weights.
    """

    def __init__(self, inside: Policy, model: nn.Module, version: Path) -> None:
        """Read the weights.

        Args:
            inside: A policy of the model, which acts for this version alone: its caches belong to these weights.
            model: The model under training.
            version: File of `save_version`.
        """
        self._inside, self._parameters, stored = inside, trainable(model), load_file(version)
        # Copied into aligned memory, on which the rounding of products depends.
        self._weights = {name: stored[name].to(p.device, p.dtype, copy=True) for name, p in self._parameters.items()}

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """Answer the turns with the earlier weights."""
        self._exchange()
        try:
            return self._inside.act(turns)
        finally:
            self._exchange()

    def close(self, episode_id: str) -> None:
        """Free an episode."""
        self._inside.close(episode_id)

    def _exchange(self) -> None:
        for name, p in self._parameters.items():
            p.data, self._weights[name] = self._weights[name], p.data
        torch.clear_autocast_cache()  # it keeps casts by parameter, whatever its data


_SAMPLED = ("temperature", "top_p", "top_k", "min_p", "max_new_tokens")
"""Settings that sampling takes."""


def share_machine(place: int, n: int) -> None:
    """Limit this process to its share of the threads, and to one GPU, where `n` processes act on a machine."""
    torch.set_num_threads(max(torch.get_num_threads() // n, 1))
    if torch.cuda.is_available():
        torch.cuda.set_device(place % torch.cuda.device_count())


def sampling_of(config: OnlineConfig) -> Sampling:
    """Return the sampling settings of a training."""
    return Sampling(**{name: getattr(config, name) for name in _SAMPLED})


def training_policy(
    spec: TrainSpec, folder: Path, loaded: LoadedModel, renderer: Renderer, weight_version: int
) -> LocalPolicy:
    """Return the policy of a model under training, with the sampling settings of its job."""
    assert isinstance(spec.config, OnlineConfig)
    products, sampling = ProductForms(folder / PRODUCTS), sampling_of(spec.config)
    return LocalPolicy(loaded, renderer, sampling, seed=spec.seed, products=products, weight_version=weight_version)


class Replica:
    """A model that acts for a training in another process, in the same number format."""

    def __init__(self, spec: TrainSpec, folder: Path) -> None:
        """Load the start model as the training does.

        Args:
            spec: Spec of an online method.
            folder: The job's folder, where the training has written its choices of number format and products.
        """
        seed_everything(spec.seed)
        self.loaded, self._format = copy_start_model(spec, folder)
        self._spec, self._folder = spec, folder
        self._renderer = Renderer.of(self.loaded.tokenizer, spec.agent.template)
        self._version: Path | None = None

    def load(self, version: Path) -> None:
        """Take over the weights of a file of `save_version`, unless it has them."""
        if version == self._version:
            return
        weights = load_file(version)
        with torch.no_grad():
            for name, parameter in trainable(self.loaded.model).items():
                parameter.copy_(weights[name])
        torch.clear_autocast_cache()  # it keeps casts by parameter, whatever its data
        self._version = version

    def number_format(self) -> AbstractContextManager[object]:
        """Return the context of the training's number format."""
        device, dtype = self.loaded.model.device, self._format.autocast
        return torch.autocast(device.type, dtype) if dtype else nullcontext()

    def policy(self, weight_version: int) -> LocalPolicy:
        """Return a policy of the current weights."""
        return training_policy(self._spec, self._folder, self.loaded, self._renderer, weight_version)
