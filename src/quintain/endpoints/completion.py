"""Requests to chat endpoints, their completions, and what these use and cost, independent of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quintain.records.labels.judging import Endpoint
from quintain.records.protocols import Message, Stop
from quintain.records.record import Record
from quintain.records.trajectory import Action, Usage


class AssistantMessage(Message):
    """A model's answer as a message of a continued conversation."""

    kept: tuple[dict[str, Any], ...] = ()
    """Blocks that the protocol requires back unchanged, such as signed thinking."""


class Ask(Record):
    """One request for a completion."""

    messages: tuple[Message, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    """Token ids to score or to continue, instead of messages."""
    top: int = 0
    """Likeliest tokens wanted at each of these ids."""
    temperature: float = 0.0
    """0: the likeliest answer."""
    max_tokens: int | None = None
    """None: the value of the endpoint's profile."""
    tools: tuple[dict[str, Any], ...] = ()
    """OpenAI function style, for both protocols."""
    top_p: float = 1.0
    """1 disables it, and is not sent."""
    top_k: int = 0
    """0 disables it, and is not sent."""
    min_p: float = 0.0
    """0 disables it, and is not sent; the Anthropic protocol has none."""
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    seed: int | None = None
    """Seed of a continuation of token ids; None: the server's."""


class VersionSpan(Record):
    """Tokens start..end-1 of a continuation, and the label of the weights that sampled them."""

    version: str
    start: int
    end: int


class TokenIds(Record):
    """The token ids of a continuation."""

    prompt_ids: tuple[int, ...]
    """The ids that the server continued."""
    token_ids: tuple[int, ...]
    """The sampled ids, the end token included."""
    logprobs: tuple[float, ...]
    """Log-prob of each in nats."""
    versions: tuple[VersionSpan, ...] = ()
    """Labels of the weights, where the server reports them."""


class Completion(Record):
    """One answer."""

    text: str
    thought: str | None = None
    actions: tuple[Action, ...] = ()
    stop: Stop = Stop.END
    usage: Usage = Usage()
    model: str | None = None
    blocked: bool = False
    """Whether the endpoint's filter withheld the answer."""
    prompt_logprobs: tuple[dict[int, float] | None, ...] = ()
    """Token id -> log-prob in nats at each scored id; None where nothing predicts it."""
    kept: tuple[dict[str, Any], ...] = ()
    """As `AssistantMessage.kept`."""
    sampled: TokenIds | None = None
    """Only of a continuation of token ids."""


class BadAnswer(ValueError):
    """A response body that violates the protocol; the client converts it to a fault."""


def require_object(value: object, what: str) -> Mapping[str, Any]:
    """The value where it is a JSON object.

    Raises:
        BadAnswer: it is something else.
    """
    if not isinstance(value, Mapping):
        raise BadAnswer(f"{what} is not an object")
    return value


def first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first of the choices in the answer of an OpenAI-compatible server.

    Raises:
        BadAnswer: There is none.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        raise BadAnswer("the answer has no choices")
    return require_object(choices[0], "choices[0]")


def openai_usage(answer: Mapping[str, Any]) -> Usage:
    """Return the usage in the answer of an OpenAI-compatible server."""
    usage = answer.get("usage")
    return Usage(input_tokens=tokens(usage, "prompt_tokens"), output_tokens=tokens(usage, "completion_tokens"))


def tokens(usage: object, *names: str) -> int | None:
    """A count of tokens by one of its names; None where there is none."""
    counts: Sequence[object] = [usage.get(name) for name in names] if isinstance(usage, Mapping) else ()
    return next((n for n in counts if isinstance(n, int) and not isinstance(n, bool) and n >= 0), None)


class Spent(Record):
    """Usage of a client."""

    requests: int = 0
    """HTTP requests, the repeated ones too."""
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unmetered: int = 0
    """Requests that may have cost tokens without reporting how many."""
    in_flight: int = 0
    """Requests that were sent and have not come to an end."""

    def plus(self, **more: int) -> Spent:
        """The same with so much more."""
        return self.model_copy(update={name: getattr(self, name) + n for name, n in more.items()})

    def usd(self, endpoint: Endpoint) -> float | None:
        """Cost of the tokens in USD by the endpoint's prices; None where prices or tokens are not known."""
        return None if self.unmetered else price(endpoint, self.input_tokens, self.output_tokens)


def price(endpoint: Endpoint, input_tokens: int | None, output_tokens: int | None) -> float | None:
    """Return the cost of tokens in USD by the endpoint's prices; None where tokens or prices are not known."""
    price_in, price_out = endpoint.input_usd_per_mtok, endpoint.output_usd_per_mtok
    if input_tokens is None or output_tokens is None or price_in is None or price_out is None:
        return None
    return (input_tokens * price_in + output_tokens * price_out) / 1e6
