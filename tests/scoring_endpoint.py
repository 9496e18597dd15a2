"""A model behind HTTP that scores token ids: the embedded model's own log-probs, in the forms of vLLM and of an echo."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from fake_endpoint import Answer, Asked, fails
from quintain.records.agent import ModelRef
from quintain.tools.training.model_folders import starter_folder
from quintain.trainers.models.loading import load_model

STARTER = ModelRef(source="starter", path=str(starter_folder()))


def scorer(ref: ModelRef = STARTER, *, echo: bool = False, shift: int = 0) -> Callable[[Asked, int], Answer]:
    """Return what answers requests for log-probs by a model.

    Args:
        ref: The model.
        echo: Answer as servers do that know `echo` with `logprobs` and name tokens by their ids.
        shift: Added to every token id of an answer, as by a server with another tokenizer.
    """
    model = load_model(ref).model.eval()

    def answer(asked: Asked, before: int) -> Answer:
        if not asked.path.endswith("/v1/completions"):
            return fails(404, "not here")
        ids, top = asked.body["prompt"], asked.body["prompt_logprobs"]
        with torch.no_grad():
            logs = model(torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)
        places: list[dict[int, float] | None] = [None]
        for place, token in enumerate(ids[1:]):
            best = logs[place].topk(top).indices.tolist() if top else []
            places.append({other + shift: float(logs[place, other]) for other in dict.fromkeys([token, *best])})
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1}
        choice = _echoed(ids, places) if echo else {"prompt_logprobs": _mapped(places)}
        return Answer(body=json.dumps({"choices": [{"text": "", **choice}], "usage": usage}).encode())

    return answer


def _mapped(places: list[dict[int, float] | None]) -> list[Any]:
    return [place and {str(token): {"logprob": value, "rank": 1} for token, value in place.items()} for place in places]


def _echoed(ids: list[int], places: list[dict[int, float] | None]) -> dict[str, Any]:
    named = [place and {f"token_id:{token}": value for token, value in place.items()} for place in places]
    return {
        "logprobs": {
            "tokens": [*(f"token_id:{token}" for token in ids), "token_id:0"],
            "token_logprobs": [*(place and next(iter(place.values())) for place in places), -1.0],
            "top_logprobs": [*named, None],
        }
    }
