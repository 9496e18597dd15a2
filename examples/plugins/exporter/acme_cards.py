"""Flash cards: a CSV file for each split, with the prompt and the agent's last message."""

from __future__ import annotations

import csv
from pathlib import Path

from quintain.exporters.protocol import Export, Rows
from quintain.records.dataset import Dataset, DatasetRow
from quintain.records.trajectory import text_of


class Cards:
    """Writes datasets of kind `sft`."""

    name = "acme_cards"  # as the entry point
    kinds = frozenset({"sft"})

    def write(self, dataset: Dataset, rows: Rows, folder: Path) -> Export:
        """Write one file a split, row by row; count what the format cannot represent."""
        export = Export()
        for split in dataset.splits:
            path = folder / f"{split}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                cards = csv.writer(file)
                cards.writerow(["front", "back"])
                for row in rows(split):
                    assert isinstance(row, DatasetRow)
                    back = text_of(row.trajectory.agent_steps[-1].message).strip()
                    if not back:
                        export.dropped["the last turn has no text"] += 1
                        continue
                    cards.writerow([row.trajectory.task.prompt, back])
                    export.rows[path.name] += 1
                    export.splits[split] += 1
        export.notes["tool calls and all turns but the last are lost"] = None
        return export
