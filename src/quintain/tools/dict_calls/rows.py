"""Rows of dict calls: datasets by name, files and lists of rows, and the action `load_dataset`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from quintain.datasets.rows import read_rows
from quintain.errors import InvalidInput
from quintain.jobs.directory import write_atomically
from quintain.records.dataset import DatasetKind, DatasetRow
from quintain.records.record import shown
from quintain.tools.data.row_references import find_rows, named_dataset, test_rows
from quintain.tools.invocation import refuse_unknown
from quintain.tools.services import Services, find

DEFAULT_ROWS = "gsm8k"
"""Rows of `train` and `load_dataset` without `dataset`, as HelloAgents documents them."""

_KINDS: dict[str, DatasetKind] = {"rl": "sft"}
"""Format of HelloAgents -> kind of dataset: its rows for RL are the same questions, read as tasks by training."""


def default_rows(services: Services) -> str:
    """Return the rows that calls without `dataset` mean: GSM8K, as a dataset or a file in the inbox.

    Raises:
        InvalidInput: neither exists.
    """
    if (dataset := find(services.store.datasets.get, DEFAULT_ROWS)) is not None:
        return dataset.id
    if find_rows(services, DEFAULT_ROWS) is not None:
        return DEFAULT_ROWS
    raise InvalidInput(
        "train needs `dataset`: a dataset id or name from export or register_dataset, a file of rows, or a list of rows; for "
        "grpo or dpo and without `max_samples` also `environment`. Without any of these it is "
        f"{DEFAULT_ROWS!r}, which is not here: put its train split into the inbox as {DEFAULT_ROWS}.jsonl"
    )


def file_of_rows(services: Services, rows: Sequence[Any]) -> str:
    """Write rows to a file of the inbox, named by their content; return its path.

    Raises:
        InvalidInput: the list is empty, or a row is not JSON.
    """
    if not rows:
        raise InvalidInput("dataset: expected a list of at least one row, got an empty one")
    try:
        text = "".join(f"{json.dumps(row, ensure_ascii=False, allow_nan=False, sort_keys=True)}\n" for row in rows)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"dataset: expected rows of JSON values ({error}); convert them first") from None
    target = services.settings.inbox_dir / f"rows-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text.encode())
    return str(target)


def load_rows(services: Services, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return size and keys of a split of a dataset, or of a file of rows, which becomes a dataset.

    Args:
        services: Where the rows are.
        parameters: `dataset` (a name, a path or a list of rows), `format` (a kind of dataset, or `rl`), `split`, `max_samples`;
            `model_name` has no effect, because templates are applied in training.

    Raises:
        InvalidInput: an unknown format or split.
        NotFound: as `named_dataset`.
    """
    refuse_unknown(
        "load_dataset", parameters, dict.fromkeys(("dataset", "format", "split", "max_samples", "model_name"))
    )
    asked = parameters.get("format", "sft")
    kinds: dict[str, DatasetKind] = {**_KINDS, **{name: name for name in get_args(DatasetKind)}}
    kind = kinds.get(asked) if isinstance(asked, str) else None
    if kind is None:
        raise InvalidInput(f"format: expected one of {', '.join(sorted(kinds))}, got {shown(asked)}")
    name, split = parameters.get("dataset") or default_rows(services), parameters.get("split", "train")
    name = file_of_rows(services, name) if isinstance(name, list) else str(name)
    test = test_rows(services, name) if split == "test" else None
    dataset = services.store.datasets.get(named_dataset(services, name if test is None else str(test), kind) or "")
    part: Any = "train" if test is not None else split
    if part not in dataset.splits:
        raise InvalidInput(f"{dataset.id} has no split {split!r}; it has: {', '.join(dataset.splits)}")
    most = parameters.get("max_samples")
    if most is not None:
        require_count("max_samples", most)
    rows = list(islice(read_rows(Path(dataset.path), part, kind=dataset.kind), most))
    sample = rows[0].trajectory if rows and isinstance(rows[0], DatasetRow) else next(iter(rows), None)
    return {
        "status": "success",
        "dataset_id": dataset.id,
        "format": asked if "format" in parameters else dataset.kind,
        "split": split,
        "dataset_size": len(rows),
        "sample_keys": sorted(sample.model_dump(exclude_defaults=True)) if sample else [],
    }


def require_count(name: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1.

    Raises:
        InvalidInput: names the value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"expected {name} to be a whole number of at least 1, or left out, got {shown(value)}")
