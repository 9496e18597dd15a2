"""Agents: named, versioned, comparable policies and reward models."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quintain.records.record import Instant, Name, Record

MAX_TEMPERATURE = 5.0
"""Highest sampling temperature. Text is noise far below it."""

MAX_NEW_TOKENS = 32_768
"""Maximum number of tokens per turn."""

Quantization = Literal["nf4", "int8"]
"""Type of the quantised linear layers of a base model: NF4 with double quantisation, or int8 by row."""


Role = Literal["policy", "reward_model", "step_model", "retriever"]


class ModelRef(Record):
    """Location of the weights, the endpoint profile of a remote model, or the scripted experts of the environments."""

    source: Literal["starter", "folder", "gguf", "hub", "endpoint", "expert"]
    path: str = Field(
        description="Folder or GGUF file (absolute), or Hub name. For `starter` the folder in the package, for `endpoint` the "
        "profile name, for `expert` nothing."
    )
    adapter: str | None = Field(default=None, description="Folder of a LoRA adapter on top of the model.")
    revision: str | None = Field(
        default=None, description="Pinned revision of a Hub model. For an endpoint, the model named by its profile."
    )
    quantization: Quantization | None = Field(
        default=None, description="Type of the base model's linear layers under the adapter. Null: not quantised."
    )

    @property
    def own_path(self) -> str:
        """The folder of the adapter, or `path` without one: where the agent's own weights are."""
        return self.adapter or self.path


class Sampling(Record):
    """Sampling settings of an agent."""

    temperature: float = Field(default=0.0, ge=0, le=MAX_TEMPERATURE, description="0 is greedy.")
    top_p: float = Field(default=1.0, gt=0, le=1, description="1: off.")
    top_k: int = Field(default=0, ge=0, le=1_000_000, description="0: off.")
    min_p: float = Field(default=0.0, ge=0, lt=1, description="0: off.")
    max_new_tokens: int = Field(default=192, ge=1, le=MAX_NEW_TOKENS, description="Tokens of a turn.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="Weights on a CPU; auto: bf16 where faster."
    )

    @property
    def summary(self) -> str:
        """Return temperature and limits of the tokens, such as `temperature 0.7, top_p 1, top_k 40`."""
        limits = [f", {name} {getattr(self, name):g}" for name in ("top_k", "min_p") if getattr(self, name)]
        return f"temperature {self.temperature:g}, top_p {self.top_p:g}{''.join(limits)}"


class Agreement(Record):
    """Accuracy of a model that does not act on held-out labels, with the exact 95 % interval (Clopper & Pearson 1934)."""

    of: str = Field(
        description="Unit: pairs in the labelled order, steps on their label's side of 0.5, or calls whose tool ranks first."
    )
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

    id: str | None = Field(default=None, description="Assigned by the store.")
    name: Name
    version: int | None = Field(default=None, ge=1, description="Assigned by the store.")
    model: ModelRef
    system_prompt: str | None = Field(
        default=None, description="Replaces the environment's system prompt, unless null."
    )
    sampling: Sampling = Sampling()
    template: Literal["auto", "tools", "react"] = Field(
        default="auto",
        description="Format of turns: native tool calls, ReAct text, or whatever the model's template supports.",
    )
    role: Role = Field(
        default="policy",
        description="policy: acts; reward_model: scores whole runs; step_model: scores steps (a process reward model); "
        "retriever: finds tools.",
    )
    held_out: Agreement | None = Field(
        default=None, description="Accuracy of a model that does not act. Null: unknown, or a policy."
    )
    description: str = ""
    parent: str | None = Field(default=None, description="The agent from which it was trained.")
    dataset_id: str | None = Field(default=None, description="The dataset on which it was trained.")
    job_id: str | None = Field(default=None, description="The job that produced it. JOB/STAGE for a stage of a recipe.")
    created_at: Instant | None = None

    @property
    def id_or_name(self) -> str:
        """The id, or the name of an agent that is not stored."""
        return self.id or self.name

    @property
    def root_job_id(self) -> str | None:
        """Return the id of the job that produced it; for a stage of a recipe, that of the recipe."""
        return None if self.job_id is None else self.job_id.partition("/")[0]

    def without_install_path(self) -> Agent:
        """Return the agent as clients see it: the embedded model is `starter`, not a folder of this installation."""
        if self.model.source != "starter":
            return self
        return self.model_copy(update={"model": self.model.model_copy(update={"path": "starter"})})
