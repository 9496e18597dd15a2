"""Policies by token ids behind an endpoint: of an agent, and of a model under training.

A model under training hands its adapter over before each rollout, and the server is checked with a probe.
"""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from quintain.endpoints.adapter_updates import AdapterUpdates
from quintain.endpoints.client import EndpointClient
from quintain.errors import InvalidInput, Unavailable
from quintain.jobs.directory import run_name
from quintain.records.agent import Agent, Sampling
from quintain.records.hyperparameters.online import SamplerConfig
from quintain.records.labels.judging import Endpoint
from quintain.records.protocols import Message
from quintain.records.seeds import stable_seed
from quintain.trainers.acting.episode import Episode
from quintain.trainers.acting.policy import end_ids
from quintain.trainers.engine.forward import Engine
from quintain.trainers.models.loading import save_model
from quintain.trainers.models.model_files import ModelFiles
from quintain.trainers.models.tokenizer_files import load_tokenizer
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rollouts.sampler_comparison import EXPONENTS, SampleComparison, compare_samples, log_evidence
from quintain.worker.policies.request_ledger import close_after, open_client
from quintain.worker.policies.token_policy import ServedWeights, TokenModel, TokenPolicy, no_answer_error

if TYPE_CHECKING:
    from quintain.trainers.models.loading import LoadedModel

_PROBE = "Describe in two sentences how you would look for a lost key in a house with four rooms."
_PROBE_TOKENS = 64
_MAX_EXCESS = 0.05
"""Highest relative sharpness of reported log-probs that a number format explains."""
_ERRORS = 4.0
"""Standard errors by which the sharpness must exceed that."""
_MAX_LOG_EVIDENCE = math.log(10_000)
"""Log-likelihood ratio from which tokens count as drawn from other distributions."""
_LONGEST = 2**30
"""Context in tokens where the tokenizer's files name none: the server refuses what does not fit."""


class RemoteSampler:
    """Policies behind an endpoint for the live model of one training."""

    def __init__(
        self,
        config: SamplerConfig,
        endpoint: Endpoint,
        directory: Path,
        *,
        seed: int,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Read the API key and open the connections; nothing is sent yet.

        Args:
            config: Settings of the sampler.
            endpoint: Profile of the server.
            directory: The job's folder.
            seed: Part of the seed of every request.
            should_stop: Checked while requests are running.
        """
        self._config, self._seed = config, seed
        self._is_asked_to_stop, self._stopping = should_stop, threading.Event()
        self._name = f"quintain-{run_name(directory)}"
        self._folder = Path(endpoint.adapters).expanduser() if endpoint.adapters else directory / "adapters"
        self._folder = self._folder.absolute() / self._name
        named = endpoint.model_copy(update={"model": self._name})
        self._client, self._ledger = open_client(named, directory, seed=seed, asks_for="samples")
        self._updates = AdapterUpdates(EndpointClient(named, self._client.clock, self._client.key, seed), self._name)
        self._weights = ServedWeights(self._name)
        self._handed_over: int | None = None
        self._evidence, self._drawn = np.zeros(len(EXPONENTS)), 0
        self.distance: float | None = None
        """Mean distance of the server's log-probs from the trainer's at the newest probe, in nats a token."""

    def update(self, loaded: LoadedModel, renderer: Renderer, version: int) -> None:
        """Hand the adapter over, and check the server with a probe. Requests in flight go on with the new weights.

        Args:
            loaded: The live model, with an adapter.
            renderer: Renders the probe.
            version: Optimizer steps behind the weights.
        """
        if version == self._handed_over:
            return
        self._hand_over(loaded, version)
        self.distance = self._probe(loaded, renderer, version)

    def policy(self, loaded: LoadedModel, renderer: Renderer, sampling: Sampling) -> TokenPolicy:
        """Return a policy of the weights on the server, now and as they change."""
        model = TokenModel(
            context_tokens=loaded.context_tokens,
            end_ids=end_ids(loaded.model.get_base_model(), renderer),
            vocabulary=loaded.model.get_input_embeddings().weight.shape[0],
            weights=self._weights,
        )
        return TokenPolicy(self._client, renderer, sampling, model, seed=self._seed, should_stop=self.should_stop)

    def should_stop(self) -> bool:
        """Whether to stop playing: the job was asked to stop, or `stop` was called."""
        return self._stopping.is_set() or self._is_asked_to_stop()

    def stop(self) -> None:
        """Let policies answer no further turns."""
        self._stopping.set()
        self._client.stop()

    def close(self) -> None:
        """Remove the adapter from the server and from the disk, and close the connections."""
        if self._handed_over is not None:
            self._updates.unload()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._updates.close()
        self._client.close()
        self._ledger.close()

    def _hand_over(self, loaded: LoadedModel, version: int) -> None:
        """Save the adapter in its own folder, let the server load it, and delete the one before."""
        before, folder = self._handed_over, self._folder / f"step-{version:08d}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            save_model(loaded.model, None, folder)
        except OSError as error:
            raise InvalidInput(
                f"expected a folder for adapters that can be written, got {self._folder} ({error.strerror}); set `adapters` in the "
                "endpoint's profile to one that this machine writes and the server reads",
                code="adapter_refused",
            ) from None
        self._handed_over = None
        self._weights.version = version  # before the first token of these weights
        self._updates.load(folder, self._weights.label)
        self._handed_over = version
        if before is not None:
            with suppress(OSError):
                shutil.rmtree(self._folder / f"step-{before:08d}")

    def _probe(self, loaded: LoadedModel, renderer: Renderer, version: int) -> float:
        """Return the mean distance between the log-probs of server and model on tokens that the server samples.

        Each version has its own draws, so that the evidence of all probes of the job can be added.
        """
        policy = self.policy(loaded, renderer, Sampling(temperature=1.0))
        episode = Episode((), stable_seed(self._seed, "probe", version), 1.0)
        episode.begin_turn((Message(role="user", content=_PROBE),), renderer)
        episode.left = _PROBE_TOKENS
        try:
            found = policy.sample(episode).ids
        except Unavailable as error:
            raise no_answer_error(error) from None
        comparison = compare_samples(Engine.of(loaded.model), episode.ids, found.token_ids, found.logprobs)
        self._evidence += comparison.evidence
        self._drawn += comparison.tokens
        if (fault := self._fault(comparison)) is not None:
            raise InvalidInput(
                f"expected from endpoint {self._client.endpoint.name!r} {fault}", code="sampler_mismatch"
            )
        return comparison.distance

    def _fault(self, comparison: SampleComparison) -> str | None:
        """Return how the server's distributions differ from the trainer's; None where nothing shows it."""
        n, (excess, error) = comparison.tokens, comparison.sharpness
        if not comparison.distance <= self._config.max_difference:
            return (
                f"log-probs within {self._config.max_difference:g} nats of the trainer's on {n} tokens, got a mean distance of "
                f"{comparison.distance:.3g}; let it serve the model that is trained, with raw log-probs and without penalties, or "
                "raise sampler.max_difference and set importance_cap"
            )
        if abs(excess) - _ERRORS * error > _MAX_EXCESS:
            return (
                f"log-probs as sharp as the trainer's, got ones of temperature {1 / (1 + excess):.3g} instead of 1 on {n} tokens "
                f"(1/temperature {1 + excess:.3f} with standard error {error:.2g}); let it return raw log-probs "
                "(--logprobs-mode raw_logprobs) of the model that is trained"
            )
        if log_evidence(self._evidence) > _MAX_LOG_EVIDENCE:
            likeliest = EXPONENTS[int(self._evidence.argmax())]
            return (
                f"tokens drawn at temperature 1, got {self._drawn} that are {math.exp(self._evidence.max()):.3g} times as likely at "
                f"{1 / likeliest:.3g}; let it apply the temperature of the request, and no other sampling setting of the server"
            )
        return None


def open_token_policy(
    agent: Agent,
    endpoint: Endpoint,
    sampling: Sampling,
    *,
    seed: int,
    folder: Path,
    should_stop: Callable[[], bool] = lambda: False,
    tolerance: int = 0,
) -> TokenPolicy:
    """Return the policy of an agent behind an endpoint with `token_ids`, rendered with the tokenizer of its profile.

    Args:
        agent: The agent. Its template selects the format of turns.
        endpoint: Profile of the server, with a tokenizer.
        sampling: Sampling settings.
        seed: Part of the seed of every request.
        folder: The job's folder, for the ledger of requests.
        should_stop: Checked while requests are running.
        tolerance: As of `TokenPolicy`.
    """
    assert endpoint.tokenizer is not None, "a profile with token_ids has a tokenizer"
    tokenizer = load_tokenizer(ModelFiles(Path(endpoint.tokenizer).expanduser()))
    renderer = Renderer.of(tokenizer, agent.template)
    client, ledger = open_client(endpoint, folder, seed=seed, asks_for="samples")
    model = TokenModel(min(tokenizer.model_max_length, _LONGEST), renderer.end_ids, len(tokenizer))
    policy = TokenPolicy(client, renderer, sampling, model, seed=seed, should_stop=should_stop, tolerance=tolerance)
    close_after(policy, client, ledger)
    return policy
