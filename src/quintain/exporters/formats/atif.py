"""ATIF v1.7, lossless: one document a line; fields that ATIF lacks are stored in `extra.quintain`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quintain.datasets.rows import trajectories_of
from quintain.errors import InvalidInput
from quintain.exporters.protocol import Export, Exporter, Rows
from quintain.exporters.split_files import splits_of
from quintain.importers.transcripts.atif_documents import write_atif
from quintain.records.dataset import Dataset, DatasetRow, GroupRow, LabelledRow, PairRow, Row, StepLabelRow


def _write(dataset: Dataset, rows: Rows, folder: Path) -> Export:
    export = Export()
    for split in splits_of(dataset):
        name = f"{split}.jsonl"
        export.splits[split] = dataset.splits[split]
        with (folder / name).open("w", encoding="utf-8") as file:
            for number, row in enumerate(rows(split), 1):
                for document in _documents(row, number):
                    file.write(json.dumps(document, ensure_ascii=False) + "\n")
                    export.rows[name] += 1
    if not export.rows:
        raise InvalidInput(
            f"expected runs in {dataset.id}, got none; ATIF supports the kinds {', '.join(sorted(EXPORTER.kinds))}"
        )
    export.notes["each line is one ATIF document; import it again with `format='atif'`, which gives equal runs"] = None
    return export


EXPORTER = Exporter("atif", frozenset({"sft", "dpo", "kto", "grpo", "reward", "prm"}), _write)


def _documents(row: Row, number: int) -> Iterator[dict[str, Any]]:
    for place, run in enumerate(trajectories_of(row)):
        document = write_atif(run)
        if beside := _beside(row, number, place):
            extra, name = document.get("extra", {}), "row"
            while name in extra:  # runs that were read from a table keep its other columns there
                name += "_"
            document["extra"] = {**extra, name: beside}
        yield document


def _beside(row: Row, number: int, place: int) -> dict[str, Any]:
    """Return the fields of a row besides the run itself."""
    if isinstance(row, DatasetRow):
        fields: dict[str, Any] = {} if row.weight == 1 else {"weight": row.weight}
        return fields if row.reward is None else {**fields, "reward": row.reward}
    if isinstance(row, PairRow):
        side = "rejected" if place else "chosen"
        return {
            "pair": number,
            "side": side,
            "weight": row.weight,
            **({} if row.margin is None else {"margin": row.margin}),
        }
    if isinstance(row, LabelledRow):
        return {"desirable": row.desirable, "weight": row.weight}
    if isinstance(row, GroupRow):
        return {"group": row.key, "reward": row.rewards[place]}
    return {"labels": list(row.labels)} if isinstance(row, StepLabelRow) else {}
