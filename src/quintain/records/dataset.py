"""Datasets: an immutable folder of rows and its manifest, free of any model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quintain.records.record import Instant, Name, Record
from quintain.records.trajectory import Trajectory

SplitName = Literal["train", "validation", "test"]


class DatasetRow(Record):
    """One line of `<split>.jsonl` in the format `quintain`, kind `sft`."""

    trajectory: Trajectory
    weight: float = Field(default=1.0, ge=0, description="Weight of the whole row in the loss.")


class Dataset(Record):
    """A frozen dataset; `manifest.json` in its folder holds the same."""

    id: str
    name: Name
    kind: Literal["sft"]
    format: Literal["quintain"] = "quintain"
    path: str
    rows: int = Field(ge=1)
    splits: dict[str, int]
    dropped: dict[str, int] = Field(default_factory=dict, description="Reason -> how many trajectories it kept out.")
    files: dict[str, str] = Field(default_factory=dict, description="File name -> SHA-256.")
    source_models: dict[str, int] = Field(default_factory=dict, description="Model -> agent steps that it wrote.")
    environments: dict[str, int] = Field(default_factory=dict)
    seed: int = 0
    created_at: Instant | None = None
