"""Write one file a split, row by row; count rows that the format cannot represent, and lost fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml

from quintain.errors import InvalidInput
from quintain.exporters.chat_turns import Losses
from quintain.exporters.protocol import Export, Rows
from quintain.records.dataset import Dataset, Row, SplitName

Line = Mapping[str, Any]
Convert = Callable[[Row, Losses], Iterable[Line]]
"""Return the lines of a row; raise InvalidInput with a reason if the format cannot represent it."""
Write = Callable[[Iterable[Line], SplitName], tuple[str, int]]
"""Write the lines of one split; return the file name and the number of lines."""


def write_splits(dataset: Dataset, rows: Rows, convert: Convert, write: Write) -> Export:
    """Write each split that has lines.

    Raises:
        InvalidInput: no line is left; lists the reasons.
    """
    export, losses = Export(), Losses()
    for split in splits_of(dataset):
        name, n = write(_converted(rows(split), convert, export, split, losses), split)
        if n:
            export.rows[name] = n
    if not export.rows:
        reasons = "; ".join(f"{reason}: {n:,} rows" for reason, n in export.dropped.most_common())
        raise InvalidInput(
            f"none of the rows of {dataset.id} fits this format ({reasons or 'it has no rows'}); use another format, such as "
            "atif, which supports every run",
            code="nothing_fits",
        )
    export.notes |= dict.fromkeys(f"{sentence} ({n:,})" for sentence, n in (+losses).items())
    return export


def splits_of(dataset: Dataset) -> list[SplitName]:
    """Return the splits of a dataset in their usual order."""
    return [split for split in get_args(SplitName) if split in dataset.splits]


def write_lines(lines: Iterable[Line], path: Path) -> int:
    """Write JSON lines and return their number; without lines, no file is left."""
    n = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
            n += 1
    if not n:
        path.unlink()
    return n


def front_matter(export: Export, features: Mapping[str, str], **more: object) -> str:
    """Return YAML front matter with the files of each split and the type of each column.

    Args:
        export: Its files are named by split.
        features: Column -> `list: json`, `dtype: string`, ...
        **more: Further entries, before those.
    """
    files = [{"split": Path(name).stem, "path": name} for name in export.rows]
    columns = [{"name": name, **yaml.safe_load(feature)} for name, feature in features.items()]
    header = {
        **more,
        "configs": [{"config_name": "default", "data_files": files}],
        "dataset_info": [{"config_name": "default", "features": columns}],
    }
    return f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---\n\n"


def json_lines(folder: Path) -> Write:
    """Return a function that writes `<split>.jsonl`."""

    def write(lines: Iterable[Line], split: SplitName) -> tuple[str, int]:
        name = f"{split}.jsonl"
        return name, write_lines(lines, folder / name)

    return write


def _converted(
    rows: Iterable[Row], convert: Convert, export: Export, split: SplitName, losses: Losses
) -> Iterator[Line]:
    for row in rows:
        lost = Losses()
        try:
            lines = list(convert(row, lost))
        except InvalidInput as error:
            export.dropped[error.message] += 1
        else:
            losses.update(lost)
            export.splits[split] += bool(lines)
            yield from lines
