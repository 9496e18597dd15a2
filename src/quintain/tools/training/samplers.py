"""Endpoints that sample the episodes of online training: which profile, and whether the settings fit it."""

from __future__ import annotations

from typing import NamedTuple

from quintain.endpoints.profiles import find_profile
from quintain.errors import InvalidInput
from quintain.records.hyperparameters import SamplerConfig, TrainingConfig
from quintain.records.judging import Endpoint
from quintain.tools.services import Services
from quintain.tools.training.agents import ENDPOINT


class SamplerFields(NamedTuple):
    """The fields of a spec about who samples."""

    sampler_endpoint: Endpoint | None = None


def sampler_of(services: Services, config: TrainingConfig) -> SamplerFields:
    """Return the profile of the endpoint that samples; nothing where the trainer samples itself.

    Raises:
        InvalidInput: The training has no adapter that could be handed over (`no_adapter`) or plays against itself
            (`no_self_play`), or the endpoint gives no log-probs (`no_logprobs`).
        NotFound: There is no such profile.
        Refused: As `find_profile`.
    """
    sampler: SamplerConfig | None = getattr(config, "sampler", None)  # of the methods that act
    if sampler is None:
        return SamplerFields()
    if config.lora is None or config.lora.dora:
        got = "null" if config.lora is None else "dora true"
        raise InvalidInput(
            f"expected lora without dora beside sampler, because the server gets the adapter after each update, got {got}; set lora "
            "to {}, or leave sampler out",
            code="no_adapter",
        )
    if getattr(config, "self_play", None) is not None:
        raise InvalidInput(
            "expected self_play null beside sampler, got settings: a server samples with one adapter, not with earlier versions; "
            "leave one of the two out",
            code="no_self_play",
        )
    endpoint = find_profile(services.settings.endpoints_file, sampler.endpoint.removeprefix(ENDPOINT))
    if endpoint.protocol != "openai":
        raise InvalidInput(
            f"expected an endpoint that gives token ids and log-probs, got {endpoint.name!r} of protocol {endpoint.protocol!r}, "
            "which has none; name an OpenAI-compatible server such as vLLM",
            code="no_logprobs",
        )
    return SamplerFields(endpoint)
