"""The largest model of usual shape whose training fits into a memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from quintain.tools.training.planning.model_files import Matrix, ModelFacts

_WIDTHS = range(128, 32_768, 64)
_VOCABULARY = 128_000


def usual_model(hidden: int) -> ModelFacts:
    """Return the sizes of a dense transformer as Llama 3 and Qwen 2.5 are built: a layer for each 100 of the hidden size."""
    layers, feed, narrow = max(1, hidden // 100), 7 * hidden // 2, hidden // 4
    shapes = [(hidden, hidden), (narrow, hidden), (narrow, hidden), (hidden, hidden)]
    shapes += [(feed, hidden), (feed, hidden), (hidden, feed)]
    names = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    block = [Matrix(name, *shape) for name, shape in zip(names, shapes, strict=True)]
    head = _VOCABULARY * hidden
    return ModelFacts(
        parameters=layers * sum(matrix.size for matrix in block) + head,
        matrices=tuple(block * layers),
        active_share=1.0,
        head=head,
        hidden=hidden,
        intermediate=feed,
        layers=layers,
        heads=max(1, hidden // 128),
        attention_width=layers * hidden,
        vocabulary=_VOCABULARY,
        context_tokens=None,
    )


def largest_model(needs: Callable[[ModelFacts], float], room: float) -> int | None:
    """Return the parameters of the largest model that needs no more than there is room for; None where none fits."""
    n = bisect_right(_WIDTHS, room, key=lambda hidden: needs(usual_model(hidden)))
    return usual_model(_WIDTHS[n - 1]).parameters if n else None
