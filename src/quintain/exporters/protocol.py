"""The interface of a format writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from quintain.records.dataset import Dataset, DatasetKind, Row, SplitName

Rows = Callable[[SplitName], Iterator[Row]]
"""Stream the rows of one split of a frozen dataset, from the start at each call."""


@dataclass
class Export:
    """Result of a writer, filled while it writes."""

    rows: Counter[str] = field(default_factory=Counter)
    """File name -> number of lines; a row of the dataset can take several."""
    splits: Counter[str] = field(default_factory=Counter)
    """Split -> number of rows in its file. Empty where the writer does not count them."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> rows that the format cannot represent."""
    notes: dict[str, None] = field(default_factory=dict)
    """What the format loses or how to load it, each once."""


class Exporter(Protocol):
    """A writer of one format. Each writer module defines one frozen dataclass that implements it."""

    @property
    def name(self) -> str:
        """Name for `format=`, e.g. `trl`."""

    @property
    def kinds(self) -> frozenset[DatasetKind]:
        """Dataset kinds that the format supports."""

    def write(self, dataset: Dataset, rows: Rows, folder: Path) -> Export:
        """Write the dataset into an empty folder, one row at a time, in stable order.

        Args:
            dataset: The frozen dataset: its kind, name and splits.
            rows: Its rows.
            folder: Exists and is empty; the caller moves it to its place when all is written.

        Raises:
            InvalidInput: nothing is left to write; names the reason and the remedy.
        """
