"""Agents: anything that can act, named, versioned and comparable."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quintain.records.record import Instant, Name, Record

MAX_TEMPERATURE = 5.0
"""The greatest sampling temperature; far below it text is noise."""

MAX_NEW_TOKENS = 32_768
"""The most tokens of one turn."""


class ModelRef(Record):
    """Where the weights are, or which endpoint profile leads to a model whose weights are elsewhere."""

    source: Literal["starter", "folder", "hub", "endpoint"]
    path: str = Field(
        description="Folder (absolute) or Hub name; for `starter` the folder in the package, for `endpoint` the profile's name."
    )
    adapter: str | None = Field(default=None, description="Folder of a LoRA adapter on top of the model.")
    revision: str | None = Field(
        default=None, description="Pinned revision of a Hub model; of an endpoint the model that its profile names."
    )


class Sampling(Record):
    """How an agent picks its tokens."""

    temperature: float = Field(default=0.0, ge=0, le=MAX_TEMPERATURE, description="0 is greedy.")
    top_p: float = Field(default=1.0, gt=0, le=1, description="1 is off.")
    max_new_tokens: int = Field(
        default=192, ge=1, le=MAX_NEW_TOKENS, description="Tokens of one turn, the end token included."
    )


class Agreement(Record):
    """How often a model that values runs met held-out labels, with the exact 95 % interval (Clopper & Pearson 1934)."""

    of: str = Field(description="What is counted: pairs in the labelled order, or steps on their label's side of 0.5.")
    right: int = Field(ge=0)
    n: int = Field(ge=1)
    rate: float
    ci_low: float
    ci_high: float
    brier: float | None = Field(default=None, description="Mean of (value - label)^2 over held-out steps.")

    def __str__(self) -> str:
        brier = "" if self.brier is None else f", Brier score {self.brier:.3f}"
        interval = f"{self.rate:.1%}, 95 % {self.ci_low:.1%} to {self.ci_high:.1%}"
        return f"{self.right} of {self.n} held-out {self.of} ({interval}{brier})"


class Agent(Record):
    """A named, versioned agent; `id` is `agent:NAME@VERSION`."""

    id: str | None = Field(default=None, description="Given by the store.")
    name: Name
    version: int | None = Field(default=None, ge=1, description="Given by the store.")
    model: ModelRef
    system_prompt: str | None = Field(
        default=None, description="Replaces the environment's; null: use the environment's."
    )
    sampling: Sampling = Sampling()
    template: Literal["auto", "tools", "react"] = Field(
        default="auto",
        description="How turns are written: native tool calls, ReAct text, or what the model's template supports.",
    )
    role: Literal["policy", "reward_model", "step_model"] = Field(
        default="policy",
        description="policy: it acts; reward_model: it scores whole runs; step_model: it scores steps (a process reward model).",
    )
    held_out: Agreement | None = Field(
        default=None, description="Of a reward model or step model; null: nobody knows how often it is right."
    )
    description: str = ""
    parent: str | None = Field(default=None, description="The agent that it was trained from.")
    dataset_id: str | None = Field(default=None, description="The dataset that it was trained on.")
    job_id: str | None = Field(default=None, description="The job that made it; JOB/STAGE for a recipe's stage.")
    created_at: Instant | None = None
