"""Random projections of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from quintain.trainers.data.streams import Floats


@dataclass(frozen=True)
class CountSketch:
    """A random projection to k numbers that keeps inner products in expectation (Charikar, Chen and Farach-Colton 2002).

    Each number of the gradient is added to one of k places with a random sign; gradients of at most k numbers stay as they are. The
    variance of an inner product of unit vectors is at most 2 / k.
    """

    places: tuple[torch.Tensor, ...]
    """int64 [d] of each parameter."""
    signs: tuple[torch.Tensor, ...]
    """int8 [d] of each parameter."""
    dims: int

    @staticmethod
    def of(sizes: Sequence[int], dims: int, seed: int) -> CountSketch:
        """Draw a projection for parameters of these sizes."""
        if sum(sizes) <= dims:
            places = torch.arange(sum(sizes)).split(list(sizes))
            return CountSketch(places, tuple(torch.ones(n, dtype=torch.int8) for n in sizes), sum(sizes))
        random = torch.Generator().manual_seed(seed)
        drawn = [(torch.randint(dims, (n,), generator=random), torch.randint(2, (n,), generator=random)) for n in sizes]
        return CountSketch(
            tuple(places for places, _ in drawn), tuple((2 * bits - 1).to(torch.int8) for _, bits in drawn), dims
        )

    def project(self, gradients: Sequence[torch.Tensor | None]) -> Floats:
        """Return the projection [k] of the gradients of the parameters, in their order; None counts as zeros."""
        found = torch.zeros(self.dims, dtype=torch.float64)
        for gradient, places, signs in zip(gradients, self.places, self.signs, strict=True):
            if gradient is not None:
                found.index_add_(0, places, gradient.detach().cpu().double().flatten() * signs)
        projected: Floats = found.numpy().astype(np.float32)
        return projected
