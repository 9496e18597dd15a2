"""A model's own predictions: small models, rows, and their log-probs and gradients by the plain forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from quintain.trainers.data.streams import TokenRow, token_row
from quintain.trainers.engine.packing import Segment

VOCABULARY = 61


EOS = 1


def make(config: type[Any], model: type[Any], **settings: Any) -> Any:
    """A model of three layers whose weights are large enough that its predictions depend on all that it sees."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.15,
        "pad_token_id": EOS,
        "eos_token_id": EOS,
        "bos_token_id": None,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return model(config(**{**sizes, **settings}))


def row(ids: Sequence[int], supervised: Callable[[int], bool] = lambda t: (t // 5) % 2 == 1) -> TokenRow:
    return token_row(ids, [t > 0 and supervised(t) for t in range(len(ids))])


def own_logprobs(model: Any, rows: Sequence[TokenRow]) -> torch.Tensor:
    """The model's own forward pass, a row at a time with all logits."""
    scored = []
    for r in rows:
        ids = torch.from_numpy(r.token_ids).long()
        logs = model(input_ids=ids.unsqueeze(0), use_cache=False).logits[0].log_softmax(-1)
        scored.append(logs[r.places - 1, ids[r.places]])
    return torch.cat(scored)


def weights(rows: Sequence[TokenRow]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(sum(r.n_supervised for r in rows), generator=generator)


def gradients(model: Any, loss: Callable[[], torch.Tensor]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def distance(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Largest relative difference of two sets of gradients."""
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).norm() / a[name].norm().clamp_min(1e-6)) for name in a)


def seen_by_paths(segments: Sequence[Segment], n: int, window: int | None) -> np.ndarray[Any, Any]:
    """Which keys each token sees, bool [n, n], from the path of every token written out."""
    seen = np.zeros((n, n), bool)
    for segment in segments:
        before = [k for start, end in segment.ancestors for k in range(start, end)]
        for q in range(segment.start, segment.end):
            path = [*before, *range(segment.start, q + 1)]
            seen[q, path[-window:] if window else path] = True
    return seen


def masked_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, seen: torch.Tensor, cap: float | None, sinks: Any
) -> torch.Tensor:
    """Attention [1, tokens, heads, width] with a scale of 0.7 over all scores, of which a mask takes those not seen."""
    groups, n = query.shape[1] // key.shape[1], len(seen)
    scores = query @ key.repeat_interleave(groups, 1).mT * 0.7
    scores = cap * (scores / cap).tanh() if cap else scores
    scores = scores.where(seen, -torch.inf)
    column = torch.full((query.shape[1], n, 1), -torch.inf) if sinks is None else sinks[:, None, None].expand(-1, n, 1)
    shares = torch.cat([scores[0], column.to(scores.dtype)], -1).softmax(-1)[..., :n]
    return (shares @ value[0].repeat_interleave(groups, 0)).transpose(0, 1)[None]
