"""Log-probs of given tokens from OpenAI-compatible servers: POST `/completions` with the ids as prompt.

vLLM and servers like it take `prompt_logprobs` and return, for each id of the prompt, a map from token ids to log-probs. Others
take `echo` with `logprobs` and return them by the tokens' names; these are read where a name is `token_id:N` (vLLM's
`return_tokens_as_token_ids`), because other names do not say which id is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.endpoints.completion import Ask, BadAnswer, Completion, first_choice, openai_usage, require_object
from quintain.endpoints.openai import headers as headers

PATH = "/completions"

_NAMED = "token_id:"


def body(model: str, ask: Ask, max_tokens: int) -> dict[str, Any]:
    """The request's body; one token is generated and thrown away, because servers refuse to generate none."""
    return {
        "model": model,
        "prompt": list(ask.prompt_ids),
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": ask.top,
    }


def read(document: object) -> Completion:
    """Return the log-probs of the prompt's ids, None for the first; an echo also has the generated token.

    Raises:
        BadAnswer: there are none, or some that are not numbers.
    """
    whole = require_object(document, "the answer")
    choice = first_choice(whole)
    places = choice.get("prompt_logprobs", whole.get("prompt_logprobs"))
    if not isinstance(places, list):
        places = _echoed(choice.get("logprobs"))
    return Completion(
        text="",
        usage=openai_usage(whole),
        prompt_logprobs=tuple(None if place is None else _place(place) for place in places),
    )


def _place(place: object) -> dict[int, float]:
    found = {}
    for name, value in require_object(place, "a place of prompt_logprobs").items():
        number = value.get("logprob") if isinstance(value, Mapping) else value
        token = str(name).removeprefix(_NAMED)
        if not token.isdecimal() or isinstance(number, bool) or not isinstance(number, int | float):
            raise BadAnswer("prompt_logprobs has a place that does not map token ids to log-probs")
        found[int(token)] = float(number)
    return found


def _echoed(logprobs: object) -> list[dict[str, Any] | None]:
    """Return the places of an echoed prompt, and of the generated token behind it."""
    if not isinstance(logprobs, Mapping) or not isinstance(logprobs.get("tokens"), list):
        raise BadAnswer("the answer has no prompt_logprobs and no echoed logprobs; does the server support them?")
    names, values, tops = logprobs["tokens"], logprobs.get("token_logprobs"), logprobs.get("top_logprobs")
    if not isinstance(values, list) or len(values) != len(names):
        raise BadAnswer("the answer's token_logprobs do not fit its tokens")
    tops = tops if isinstance(tops, list) and len(tops) == len(names) else [None] * len(names)
    return [
        None if value is None else {**(top if isinstance(top, Mapping) else {}), str(name): value}
        for name, value, top in zip(names, values, tops, strict=True)
    ]
