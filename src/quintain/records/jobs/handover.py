"""Export of an agent: files, provenance and verification."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from quintain.records.agent import Agent
from quintain.records.dataset import DatasetKind
from quintain.records.record import Instant, Record

AGENT_FILE = "agent.json"
"""Description of an exported agent. Written last, so that it marks a complete folder."""

ExportFormat = Literal["adapter", "merged", "gguf"]
"""adapter: LoRA weights for their base model; merged: all weights, readable by any program that supports the model; gguf: one file for
llama.cpp and Ollama."""

GgufType = Literal["f16", "q8_0", "q4_k_m"]
"""Number format of weights in a GGUF file: 16, about 8.5 or about 4.8 bits each."""


class Ancestor(Record):
    """An ancestor of the exported agent, and how it was trained."""

    agent: str
    methods: tuple[str, ...] = Field(default=(), description="Training methods in order. Empty: not trained here.")
    dataset_id: str | None = None
    environment: str | None = Field(default=None, description="Environment of online training.")
    job_id: str | None = None


class TrainingDataset(Record):
    """A dataset on which the agent or one of its ancestors was trained."""

    dataset_id: str
    name: str
    kind: DatasetKind
    rows: int
    files: dict[str, str] = Field(description="File name -> SHA-256.")


class Result(Record):
    """Result of an evaluation of the agent."""

    evaluation_id: str
    environment: str
    split: str
    suite_hash: str
    n: int = Field(description="Episodes with a verdict.")
    success_rate: float | None
    ci_low: float | None
    ci_high: float | None
    mean_reward: float | None
    loss: float | None = Field(default=None, description="Set for an evaluation on a dataset.")
    created_at: Instant | None = None


class Provenance(Record):
    """Provenance of an agent."""

    ancestors: tuple[Ancestor, ...] = Field(description="From the agent itself to its base model.")
    datasets: tuple[TrainingDataset, ...] = ()
    trajectories: int = Field(default=0, description="Number of training runs, including those of its ancestors.")
    results: tuple[Result, ...] = Field(default=(), description="Newest first.")


class ExportAgentSpec(Record):
    """Export an agent to a new folder, after verifying that the files reproduce it."""

    kind: Literal["export_agent"] = "export_agent"
    agent: Agent
    format: ExportFormat
    gguf_type: GgufType = "q8_0"
    destination: str = Field(description="Target folder. It must be empty or not exist.")
    push_to: str | None = Field(default=None, description="URL or hub:OWNER/NAME to upload the folder to.")
    provenance: Provenance


class Parity(Record):
    """Deviation of the files from the agent, on a few rendered turns and random tokens."""

    compared_in: str = Field(description="Number format of the comparison.")
    stored_in: str = Field(description="Number format of the weights in the files.")
    bound: float = Field(
        description="Maximum difference of a token's log-probability l, in nats per max(1, -l); of a GGUF file the maximum mean."
    )
    bounded: float | None = Field(default=None, description="What `bound` bounds, in its unit; null in older files.")
    max_difference: float = Field(description="The largest difference of a token's log-probability, in nats.")
    mean_difference: float
    tokens: int = Field(description="Tokens compared.")
    greedy_tokens: int = Field(description="Number of equal tokens in greedy continuation.")
    greedy_tie: bool = Field(
        default=False,
        description="Whether greedy decoding diverges at two tokens within twice the bound of each other.",
    )
    max_value_difference: float | None = Field(default=None, description="Largest difference of a value head's output.")
    equal_ids: int = Field(description="Number of texts with equal token ids.")
    equal_renderings: int = Field(description="Number of conversations rendered equally by the chat template.")


class AgentExport(Record):
    """Contents of `agent.json` in an exported folder."""

    quintain: str = Field(description="Version of the program.")
    format: ExportFormat
    job_id: str
    agent: Agent
    base: dict[str, Any]
    template: dict[str, Any] = Field(description="Format of turns: style, end tokens, fingerprint.")
    provenance: Provenance
    parity: Parity
    versions: dict[str, str]
    files: dict[str, str] = Field(description="File name -> SHA-256, for all other files.")
    bytes: int = Field(description="Total size of those files.")
    notes: tuple[str, ...] = ()
