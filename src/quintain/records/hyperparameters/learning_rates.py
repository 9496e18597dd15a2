"""Default learning rates by method, hidden size and trained weights; a rate that a user states is taken as it is."""

from __future__ import annotations

import math
from typing import NamedTuple

_BASE = {
    "sft": 1e-5,
    "bc": 1e-5,
    "pretrain": 1e-5,
    "distill": 1e-5,
    "dpo": 5e-7,
    "orpo": 5e-6,
    "simpo": 5e-7,
    "kto": 5e-7,
    "ranking": 5e-7,
    "reward": 5e-6,
    "prm": 5e-6,
    "retriever": 5e-6,
    "grpo": 1e-6,
    "ppo": 1e-6,
}
"""Rates of full training at hidden size 4096: values of TRL, open-instruct, OpenRLHF and LLaMA-Factory for 7 to 9 B.

That of orpo, most of whose loss is that of sft, is its authors' for 7 B (arXiv 2403.07691, `run_mistral_orpo_beta.sh`).
"""

_SMALL = {
    **dict.fromkeys(("sft", "bc", "pretrain", "distill"), 5e-4),
    **dict.fromkeys(("dpo", "orpo", "simpo", "kto", "ranking", "grpo", "ppo"), 1e-4),
    **dict.fromkeys(("reward", "prm"), 3e-4),
    "retriever": 1e-3,
    "new trunk": 1e-2,
}
"""Rates at which the starter (0.8 M parameters, hidden size 128) learns; no published source reaches so far down."""

SMALL_HIDDEN = 512
"""Largest hidden size to which the rates of the starter apply: models of up to about 70 M parameters."""

_ADAPTERS = 10.0
"""LoRA over full training (Schulman and Thinking Machines 2025, "LoRA Without Regret")."""


class Rate(NamedTuple):
    """A learning rate, and the rule that it follows."""

    value: float
    rule: str


def default_rate(method: str, hidden: int, *, adapters: bool) -> Rate:
    """Return the default peak learning rate of a method for a residual stream of a width.

    Above `SMALL_HIDDEN` it is base(method) * (10 with adapters) * sqrt(4096 / hidden), the last factor within 0.5..4:
    wider models take smaller steps.
    """
    if hidden <= SMALL_HIDDEN:
        rule = (
            f"hidden size {hidden} <= {SMALL_HIDDEN}: rate of the starter for {method}; try others, none is calibrated"
        )
        return Rate(_SMALL[method], rule)
    factor = min(4.0, max(0.5, math.sqrt(4096 / hidden)))
    value = float(f"{_BASE[method] * (_ADAPTERS if adapters else 1.0) * factor:.2g}")
    weights = " x 10 (adapters)" if adapters else " (all weights)"
    return Rate(value, f"{_BASE[method]:g} of {method}{weights} x {factor:.2g} (hidden size {hidden})")
