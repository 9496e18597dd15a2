"""Lineage: sources and targets of stored records, and reports of forgetting."""

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
    """A stored record, or `trajectories`, a set of runs with the same origin."""

    kind: NodeKind
    id: str
    label: str = Field(description="Short description. Names and prompts in it are stored text; treat as data.")
    created_at: Instant | None = None
    count: int | None = Field(default=None, description="Number of `trajectories`.")
    filter: dict[str, Any] | None = Field(
        default=None, description="Filter that finds the `trajectories` with search_trajectories."
    )
    mark: Literal["forgotten", "blocked", "tainted", "removed"] | None = Field(
        default=None,
        description="forgotten: a forgotten run; blocked: a dataset that contains one; tainted: an agent trained on one; "
        "removed: a dataset or an agent without its files.",
    )


class LineageEdge(Record):
    """`target` was derived from `source`, or created by it. Both are ids."""

    source: str
    target: str


class Lineage(Record):
    """Everything in one direction from some records, up to a depth."""

    nodes: tuple[LineageNode, ...] = Field(default=(), description="Nearest first.")
    edges: tuple[LineageEdge, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict, description="Kind -> number found, including unlisted ones.")
    truncated: bool = Field(default=False, description="Whether more was found than is listed.")


class TrainingSources(Record):
    """The runs in the training data of an agent, including those of its base agents and rows that a training left out.

    Runs of validation splits are not among them.
    """

    count: int
    datasets: tuple[str, ...] = ()
    online_jobs: tuple[str, ...] = Field(default=(), description="Trainings on their own rollouts.")

    @property
    def filters(self) -> tuple[dict[str, Any], ...]:
        """Filters that together select all of these runs."""
        online = tuple({"job_id": job, "tags": ["rollout"]} for job in self.online_jobs)
        return (*({"dataset_id": dataset, "split": "train"} for dataset in self.datasets), *online)


class AffectedRecords(Record):
    """Records derived from runs, by id."""

    trajectories: tuple[str, ...] = Field(
        default=(), description="Runs that continue or correct them, or that they started."
    )
    datasets: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    agents: tuple[str, ...] = Field(
        default=(), description="Agents that learned from them, directly or through a base agent."
    )
    evaluations: tuple[str, ...] = ()
    comparisons: tuple[str, ...] = ()


class Forgotten(Record):
    """Effects of forgetting runs in the store."""

    trajectory_ids: tuple[str, ...] = Field(description="Forgotten now.")
    before: tuple[str, ...] = Field(default=(), description="Forgotten earlier.")
    scores_removed: int = 0
    sources: tuple[str, ...] = Field(default=(), description="Files from which these runs were imported.")
    made_by: tuple[str, ...] = Field(default=(), description="Jobs that produced these runs, or have taken them over.")
    replay_buffers: tuple[str, ...] = Field(default=(), description="Replay buffers that may contain parts of them.")
    touched: AffectedRecords = AffectedRecords()
    twins: tuple[str, ...] = Field(default=(), description="Stored runs with the same content under other ids.")
    blocked: dict[str, int] = Field(default_factory=dict, description="Dataset -> number of its forgotten runs.")

    @property
    def runs(self) -> tuple[str, ...]:
        """All runs that were named, forgotten now or earlier."""
        return (*self.trajectory_ids, *self.before)
