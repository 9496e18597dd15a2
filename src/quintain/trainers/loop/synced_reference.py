"""A reference that follows the policy (TR-DPO, Gorbatovski et al. 2024, arXiv 2404.09656)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from quintain.trainers.data.streams import Example


class MovableReference(Protocol):
    """The weights of a reference, and its log-probs (`reference_log_probs.References`)."""

    def with_logprobs(self, examples: Sequence[Example], *, keep: bool = True) -> list[Example]:
        """Return the examples with `ref_logprob` in every row."""

    def move(self, share: float) -> None:
        """Replace the reference by (1 - share) reference + share policy."""

    def weights(self) -> dict[str, Any]:
        """Return the weights of the reference by name, for a checkpoint."""

    def set_weights(self, weights: dict[str, Any]) -> None:
        """Replace the weights of the reference."""


class SyncedReference:
    """Scores the examples of each step under a reference that moves every `every` steps.

    theta_ref becomes (1 - mixup) theta_ref + mixup theta before the steps every, 2 every, ... (arXiv 2404.09656, eq. 3;
    mixup 1 is the hard update of eq. 4).
    """

    def __init__(self, reference: MovableReference, every: int, mixup: float) -> None:
        """Start with the reference as it is."""
        self._reference, self._every, self._mixup = reference, every, mixup
        self._moved_at = 0

    def scored(self, examples: Sequence[Example], step: int) -> list[Example]:
        """Return the examples of a step, counted from 0, with log-probs of the reference of that step."""
        if step % self._every == 0 and step > self._moved_at:
            self._reference.move(self._mixup)
            self._moved_at = step
        return self._reference.with_logprobs(examples, keep=False)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"moved_at": self._moved_at, "weights": self._reference.weights()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self._moved_at = state["moved_at"]
        self._reference.set_weights(state["weights"])
