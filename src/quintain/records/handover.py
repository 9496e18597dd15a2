"""Handing an agent over: what is written, and what the store knows of it at that time."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from quintain.records.agent import Agent
from quintain.records.dataset import DatasetKind
from quintain.records.record import Instant, Record

AGENT_FILE = "agent.json"
"""Of a handed-over folder: what the agent is beside its weights; written last, so that it vouches for the rest."""

ExportFormat = Literal["adapter", "merged"]
"""adapter: the LoRA weights alone, for their base model; merged: all weights, for any program that reads the model's kind."""


class Ancestor(Record):
    """An agent on the way to the one that is handed over, and how it was made."""

    agent: str
    methods: tuple[str, ...] = Field(default=(), description="Of its training, in order; empty: not trained here.")
    dataset_id: str | None = None
    environment: str | None = Field(default=None, description="Where it learned, if online.")
    job_id: str | None = None


class TaughtBy(Record):
    """A dataset that the agent or one of its ancestors learned from."""

    dataset_id: str
    name: str
    kind: DatasetKind
    rows: int
    files: dict[str, str] = Field(description="File name -> SHA-256.")


class Result(Record):
    """What an evaluation of the agent measured."""

    evaluation_id: str
    environment: str
    split: str
    suite_hash: str
    n: int = Field(description="Episodes with a verdict.")
    success_rate: float | None
    ci_low: float | None
    ci_high: float | None
    mean_reward: float | None
    loss: float | None = Field(default=None, description="Of an evaluation on a dataset.")
    created_at: Instant | None = None


class Provenance(Record):
    """What the store knows of an agent."""

    ancestors: tuple[Ancestor, ...] = Field(description="The agent itself first, its base model last.")
    datasets: tuple[TaughtBy, ...] = ()
    trajectories: int = Field(default=0, description="Runs that it learned from, its ancestors' included.")
    results: tuple[Result, ...] = Field(default=(), description="Newest first.")


class ExportAgentSpec(Record):
    """Hand an agent over: its files in a folder of their own, after they were read back and found equal to the agent."""

    kind: Literal["export_agent"] = "export_agent"
    agent: Agent
    format: ExportFormat
    destination: str = Field(description="Folder that receives the files; it must not exist, or be empty.")
    provenance: Provenance


class Parity(Record):
    """How near the files are to the agent, on a few rendered turns and random tokens."""

    compared_in: str = Field(description="Number format that both computed in.")
    stored_in: str = Field(description="Number format of the files' weights.")
    bound: float = Field(description="Most that a token's log-probability l may differ, in nats for each max(1, -l).")
    max_difference: float = Field(description="The largest difference of a token's log-probability, in nats.")
    mean_difference: float
    tokens: int = Field(description="Tokens compared.")
    greedy_tokens: int = Field(description="Tokens of the greedy continuation that are equal.")
    greedy_tie: bool = Field(
        default=False, description="It then parts at two tokens that the agent holds equal within twice the bound."
    )
    max_value_difference: float | None = Field(default=None, description="Of a value head's numbers.")
    equal_ids: int = Field(description="Texts that give the same token ids.")
    equal_renderings: int = Field(description="Conversations that the chat template writes alike.")


class HandedOver(Record):
    """`agent.json` of a handed-over folder."""

    quintain: str = Field(description="Version of the program.")
    format: ExportFormat
    job_id: str
    agent: Agent
    base: dict[str, Any]
    template: dict[str, Any] = Field(description="How turns are written: style, end tokens, fingerprint.")
    provenance: Provenance
    parity: Parity
    versions: dict[str, str]
    files: dict[str, str] = Field(description="File name -> SHA-256, of all files but this one.")
    bytes: int = Field(description="Of those files.")
    notes: tuple[str, ...] = ()
