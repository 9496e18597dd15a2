"""What a writer of one downstream format is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from quintain.records.dataset import Dataset, DatasetKind, Row, SplitName

Rows = Callable[[SplitName], Iterator[Row]]
"""Streams the rows of one split of a frozen dataset, from the start at each call."""


@dataclass
class Export:
    """What a writer has made, filled while it writes."""

    rows: Counter[str] = field(default_factory=Counter)
    """File name -> rows in it."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> rows that the format cannot hold."""
    notes: dict[str, None] = field(default_factory=dict)
    """What the format loses or how to load it, each once."""


class Exporter(Protocol):
    """A writer of one format. Modules of this folder each hold one frozen dataclass that is one."""

    @property
    def name(self) -> str:
        """As `format=` names it, e.g. `trl`."""

    @property
    def kinds(self) -> frozenset[DatasetKind]:
        """The kinds of dataset that the format can hold."""

    def write(self, dataset: Dataset, rows: Rows, folder: Path) -> Export:
        """Write the dataset into an empty folder, one row at a time, in stable order.

        Args:
            dataset: The frozen dataset: its kind, name and splits.
            rows: Its rows.
            folder: Exists and is empty; the caller moves it to its place when all is written.

        Raises:
            InvalidInput: nothing is left to write; names the reason and the remedy.
        """
