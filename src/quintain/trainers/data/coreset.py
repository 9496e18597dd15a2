"""Coresets: a subset of the data to train on.

`loss` takes the hardest examples for the model, `diversity` those that cover the data best, `hybrid` some of both, `random` is the
baseline. Losses must come from the start model; features are real vectors, such as `text_features`.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quintain.errors import InvalidInput
from quintain.trainers.data.streams import Floats

CoresetMethod = Literal["loss", "diversity", "hybrid", "random"]

_LOSS_PART = Fraction(3, 5)
"""Share of a hybrid coreset that is chosen by loss."""
_GRAM_SIZES = (1, 2, 3)
"""Lengths of the n-grams in characters: single ones carry meaning in Chinese, three distinguish languages and code."""
_WORD = re.compile(r"\w+")


def coreset(
    method: CoresetMethod, size: int, *, losses: ArrayLike | None, features: ArrayLike | None, seed: int
) -> list[int]:
    """Indices of the examples to keep, in the order in which they were chosen; all, in their own order, if `size` >= n.

    Args:
        method: `loss`: highest loss first. `diversity`: farthest first. `hybrid`: floor(0.6 size) by loss, then those
            farthest from them. `random`: by chance.
        size: Examples to keep.
        losses: float [n]; mean loss of each example under the model. For `loss` and `hybrid`.
        features: float [n, d]; one vector an example, of any length. For `diversity` and `hybrid`.
        seed: Of `random`.

    Raises:
        InvalidInput: what the method needs is missing, not finite, or not of one length.
    """
    if size < 1:
        raise InvalidInput(f"expected a coreset of at least 1 example, got size {size}")
    loss = None if losses is None else _finite(losses, "losses", 1)
    vectors = None if features is None else _finite(features, "features", 2)
    lengths = {len(array) for array in (loss, vectors) if array is not None}
    if len(lengths) != 1:
        raise InvalidInput(f"expected losses or features, one an example; got {sorted(lengths)} of them")
    n = lengths.pop()
    if size >= n:
        return list(range(n))
    if method == "random":
        return random.Random(f"coreset/{seed}").sample(range(n), size)
    by_loss = {"loss": size, "hybrid": int(_LOSS_PART * size), "diversity": 0}.get(method)
    if by_loss is None:
        raise InvalidInput(f"expected the coreset method loss, diversity, hybrid or random, got {method!r}")
    hardest: list[int] = []
    if method != "diversity":
        hardest = np.argsort(-_needed(loss, method, "losses"), kind="stable")[:by_loss].tolist()
    if method == "loss":
        return hardest
    return farthest_first(_needed(vectors, method, "features"), size, chosen=hardest)


def farthest_first(features: ArrayLike, size: int, *, chosen: Sequence[int] = ()) -> list[int]:
    """Greedy k-centre selection (Gonzalez 1985): each next example is the one farthest from all that are chosen.

    Distance is Euclidean between the vectors scaled to length 1, so 0 to itself and at most 2; a zero vector stays zero.
    The nearest chosen distance of every example is kept and lowered with each choice: O(n size d).

    Args:
        features: float [n, d].
        size: How many to choose, those given included; at most n.
        chosen: Choices already made; none: it begins with the vector farthest from the mean.

    Returns:
        `chosen` and the new ones in order; of equally far ones the first.
    """
    vectors = unit_rows(features)
    picks = list(chosen)
    if not picks:
        picks = [int(distances(vectors, vectors.mean(0)).argmax())]
    nearest = np.full(len(vectors), np.inf, np.float32)
    for pick in picks:
        np.minimum(nearest, distances(vectors, vectors[pick]), out=nearest)
    nearest[picks] = -1  # below any distance: equal vectors are chosen last, but nothing is chosen twice
    while len(picks) < min(size, len(vectors)):
        pick = int(nearest.argmax())
        picks.append(pick)
        np.minimum(nearest, distances(vectors, vectors[pick]), out=nearest)
        nearest[pick] = -1
    return picks


def distances(vectors: Floats, point: Floats) -> Floats:
    """Euclidean distances of float [n, d] to float [d]: [n]. By differences, so exactly 0 to itself and symmetric."""
    difference = vectors - point
    return np.sqrt(np.einsum("nd,nd->n", difference, difference))


def unit_rows(features: ArrayLike) -> Floats:
    """Float [n, d] with each row scaled to Euclidean length 1; zero rows stay."""
    wide = np.asarray(features, np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0).astype(np.float32)


def text_features(texts: Sequence[str], dim: int = 512) -> Floats:
    """Texts as vectors of length 1: hashed n-grams of characters, and words (signed feature hashing, arXiv 0902.2206).

    They need no vocabulary and no spaces between words, so they work for any script and for code. Counts are damped by
    log(1 + count), so that a long text does not look like no other.

    Returns:
        float32 [n, dim]; an empty text is the zero vector.
    """
    if dim < 2:
        raise InvalidInput(f"the dimension of text features is {dim}; give at least 2")
    return unit_rows(np.stack([_hashed(text.casefold(), dim) for text in texts]) if texts else np.zeros((0, dim)))


def _hashed(text: str, dim: int) -> NDArray[np.float64]:
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
    words = np.asarray([zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in _WORD.findall(text)], np.uint64)
    hashes = [_mixed(words)]
    for n in _GRAM_SIZES:
        grams = np.full(max(len(points) - n + 1, 0), n, np.uint64)
        for place in range(n):
            grams = _mixed(grams ^ points[place : place + len(grams)])
        hashes.append(grams)
    joined = np.concatenate(hashes)
    sign = np.where(joined >> np.uint64(63), 1.0, -1.0)
    counts = np.bincount((joined % np.uint64(dim)).astype(np.intp), sign, dim)
    return np.sign(counts) * np.log1p(np.abs(counts))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014): a bijection in which each bit depends on all."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _finite(values: ArrayLike, name: str, axes: int) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.ndim != axes:
        raise InvalidInput(f"expected {name} with {axes} axes, the first one the examples, got {array.ndim}")
    if not np.isfinite(array).all():
        where = int(np.argwhere(~np.isfinite(array))[0][0])
        raise InvalidInput(
            f"expected finite {name}, got others at example {where}; leave the example out, or use another model"
        )
    return array


def _needed(values: NDArray[np.float64] | None, method: str, name: str) -> NDArray[np.float64]:
    if values is None:
        raise InvalidInput(
            f"expected {name}, one an example, for the coreset method {method!r}, got none; pass them or use 'random'"
        )
    return values
