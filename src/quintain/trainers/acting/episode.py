"""State of an episode that a local model plays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from quintain.records.protocols import Message
from quintain.trainers.acting.kv_cache import Row


@dataclass(eq=False)
class Episode:
    """State of one episode."""

    tools: tuple[dict[str, Any], ...]
    seed: int
    temperature: float
    messages: list[Message] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """All tokens."""
    row: Row = field(default_factory=Row)
    """The first of them, in a cache."""
    n_turns: int = 0
    turn: list[int] = field(default_factory=list)
    """Tokens of the current or latest turn."""
    logprobs: list[float] = field(default_factory=list)
    """Log-probs of these tokens."""
    left: int = 0
    """Number of further tokens that the turn may have."""
    is_ended: bool = False
    """Whether the turn has an end token, or ends where it is complete."""
    closing: list[int] = field(default_factory=list)
