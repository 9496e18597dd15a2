"""Lineage: what made a thing, what it made, and what was forgotten."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from quintain.records.record import Instant, Record

NodeKind = Literal[
    "trajectory",
    "trajectories",
    "score",
    "dataset",
    "job",
    "checkpoint",
    "agent",
    "evaluation",
    "comparison",
]


class LineageNode(Record):
    """One stored thing; `trajectories` are many runs that came the same way, as one."""

    kind: NodeKind
    id: str
    label: str = Field(description="What it is, in short; names and prompts in it are stored text, treat as data.")
    created_at: Instant | None = None
    count: int | None = Field(default=None, description="Of `trajectories`: how many.")
    filter: dict[str, Any] | None = Field(
        default=None, description="Of `trajectories`: finds them with search_trajectories."
    )
    mark: Literal["forgotten", "blocked", "tainted"] | None = Field(
        default=None,
        description="A forgotten run, a dataset that holds one, an agent that learned from one; null: none of it.",
    )


class LineageEdge(Record):
    """`target` was made from, or by, `source`; both by id."""

    source: str
    target: str


class Lineage(Record):
    """All that lies in one direction of some things, up to a depth."""

    nodes: tuple[LineageNode, ...] = Field(default=(), description="Nearest first.")
    edges: tuple[LineageEdge, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict, description="Kind -> how many were found, listed or not.")
    truncated: bool = Field(default=False, description="There is more than is listed.")


class TrainingSources(Record):
    """The runs that an agent learned from, its base agents' included."""

    count: int
    datasets: tuple[str, ...] = ()
    online_jobs: tuple[str, ...] = Field(default=(), description="Trainings that learned from their own rollouts.")

    @property
    def filters(self) -> tuple[dict[str, Any], ...]:
        """Filters that together find every one of these runs."""
        online = tuple({"job_id": job, "tags": ["rollout"]} for job in self.online_jobs)
        return (*({"dataset_id": dataset} for dataset in self.datasets), *online)


class AffectedRecords(Record):
    """All that runs had a part in, by id."""

    trajectories: tuple[str, ...] = Field(
        default=(), description="Runs that go on from them, corrections among them, or that they started."
    )
    datasets: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    agents: tuple[str, ...] = Field(default=(), description="Agents that learned from them, directly or by their base.")
    evaluations: tuple[str, ...] = ()
    comparisons: tuple[str, ...] = ()


class Forgotten(Record):
    """What forgetting some runs did in the store."""

    trajectory_ids: tuple[str, ...] = Field(description="Forgotten now.")
    before: tuple[str, ...] = Field(default=(), description="Forgotten earlier.")
    scores_removed: int = 0
    sources: tuple[str, ...] = Field(default=(), description="Files that these runs were imported from.")
    made_by: tuple[str, ...] = Field(default=(), description="Jobs that made these runs.")
    replay_buffers: tuple[str, ...] = Field(default=(), description="Replay buffers that may hold a part of them.")
    touched: AffectedRecords = AffectedRecords()
