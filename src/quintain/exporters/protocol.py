"""A writer of one format, and what it returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

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
    """Losses of the format, and how to load it, each once."""


@dataclass(frozen=True)
class Exporter:
    """A writer of one format; each writer module defines one as `EXPORTER`."""

    name: str
    """Name for `format=`, e.g. `trl`."""
    kinds: frozenset[DatasetKind]
    """Dataset kinds that the format supports."""
    write: Callable[[Dataset, Rows, Path], Export]
    """Writes a frozen dataset with its rows into an empty folder, one row at a time, in stable order.

    The caller moves the folder to its place when all is written. Raises `InvalidInput` where nothing is left to write,
    with the reason and the remedy.
    """
