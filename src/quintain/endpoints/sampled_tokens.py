"""Continuations of token ids from OpenAI-compatible servers: POST `/completions` with the ids as prompt.

Nothing is tokenised twice: the prompt goes as ids, and the answer comes as ids with log-probs. vLLM gives them with
`return_token_ids` (`prompt_token_ids` and `token_ids` of a choice), and with `return_weight_versions` the label of the weights that
sampled each span of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.endpoints.completion import (
    Ask,
    BadAnswer,
    Completion,
    TokenIds,
    VersionSpan,
    first_choice,
    openai_usage,
    require_object,
)
from quintain.endpoints.openai import headers as headers
from quintain.errors import InvalidInput
from quintain.records.protocols import Stop

PATH = "/completions"

_NAMED = "token_id:"


def body(model: str, ask: Ask, max_tokens: int) -> dict[str, Any]:
    """Return the request's body. Every limit of sampling is sent, because servers have defaults of their own."""
    fields: dict[str, Any] = {
        "model": model,
        "prompt": list(ask.prompt_ids),
        "max_tokens": max_tokens,
        "temperature": ask.temperature,
        "top_p": ask.top_p,
        "top_k": ask.top_k,
        "min_p": ask.min_p,
        "stop_token_ids": list(ask.stop_ids),
        "logprobs": 0,
        "add_special_tokens": False,
        "skip_special_tokens": False,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "return_weight_versions": True,
    }
    return fields if ask.seed is None else fields | {"seed": ask.seed}


def read(document: object) -> Completion:
    """Return the continuation in the body of an answer.

    Raises:
        BadAnswer: There is none, or its parts do not fit.
        InvalidInput: It has no token ids or no log-probs (`no_token_ids`): the server does not give them.
    """
    whole = require_object(document, "the answer")
    choice = first_choice(whole)
    logprobs = choice.get("logprobs")
    fields = {
        "prompt_token_ids": choice.get("prompt_token_ids", whole.get("prompt_token_ids")),
        "token_ids": choice.get("token_ids"),
        "logprobs.token_logprobs": logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None,
    }
    if missing := [name for name, value in fields.items() if not isinstance(value, list)]:
        raise InvalidInput(
            f"expected token ids and log-probs in the answer (return_token_ids, logprobs), got none in {', '.join(missing)}; use a "
            "server that returns them, such as vLLM from 0.10.2 on",
            code="no_token_ids",
        )
    if choice.get("finish_reason") == "abort":
        raise BadAnswer("the server aborted the request")
    prompt_ids, token_ids, values = (list(value) for value in fields.values() if isinstance(value, list))
    text, model = choice.get("text"), whole.get("model")
    sampled = TokenIds(
        prompt_ids=_ids(prompt_ids, "prompt_token_ids"),
        token_ids=_ids(token_ids, "token_ids"),
        logprobs=_numbers(values),
        versions=_versions(choice.get("weight_versions")),
    )
    if len(sampled.logprobs) != len(sampled.token_ids):
        raise BadAnswer(f"{len(sampled.token_ids)} token_ids have {len(sampled.logprobs)} log-probs")
    _require_same_names(logprobs, sampled.token_ids)
    return Completion(
        text=text if isinstance(text, str) else "",
        stop=Stop.LENGTH if choice.get("finish_reason") == "length" else Stop.END,
        usage=openai_usage(whole),
        model=model if isinstance(model, str) else None,
        sampled=sampled,
    )


def _ids(values: list[Any], name: str) -> tuple[int, ...]:
    if not all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in values):
        raise BadAnswer(f"{name} has entries that are not token ids")
    return tuple(values)


def _numbers(values: list[Any]) -> tuple[float, ...]:
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise BadAnswer("token_logprobs has entries that are not numbers")
    return tuple(map(float, values))


def _require_same_names(logprobs: object, token_ids: tuple[int, ...]) -> None:
    """Refuse log-probs of other tokens, where the server names them by their ids."""
    names = logprobs.get("tokens") if isinstance(logprobs, Mapping) else None
    if not isinstance(names, list) or not all(str(name).startswith(_NAMED) for name in names):
        return
    if [str(name).removeprefix(_NAMED) for name in names] != [str(token) for token in token_ids]:
        raise BadAnswer("logprobs.tokens are not the token_ids")


def _versions(spans: object) -> tuple[VersionSpan, ...]:
    if not isinstance(spans, list):
        return ()
    found = []
    for span in spans:
        fields = require_object(span, "a span of weight_versions")
        start, end = fields.get("start"), fields.get("end")
        if not isinstance(start, int) or not isinstance(end, int):
            raise BadAnswer("a span of weight_versions has no start or end")
        found.append(VersionSpan(version=str(fields.get("version")), start=start, end=end))
    return tuple(found)
