"""Actions of dict calls beside the tools: `load_dataset` with its rows by name, and `create_reward` by HelloAgents' types."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from quintain.datasets.rows import read_rows
from quintain.errors import InvalidInput, NotFound
from quintain.jobs.directory import write_atomically
from quintain.records.dataset import DatasetKind, DatasetRow
from quintain.records.labels.reward import DECLARED, Declared
from quintain.records.wording import list_names, nearest, shown
from quintain.scoring.declared import DeclaredScorer, read_declared
from quintain.scoring.registry import is_scorer_name, register_scorer, scorer
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
        raise InvalidInput("expected rows of a dataset, got an empty list; pass at least one row")
    text = "".join(_line(number, row) for number, row in enumerate(rows))
    target = services.settings.inbox_dir / f"rows-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text.encode())
    return str(target)


def _line(number: int, row: Any) -> str:
    try:
        return f"{json.dumps(row, ensure_ascii=False, allow_nan=False, sort_keys=True)}\n"
    except (TypeError, ValueError) as error:
        names = [str(name) for name, value in row.items() if not _is_json(value)] if isinstance(row, Mapping) else []
        place = f"row {number}{f' in {list_names(names, 6)}' if names else ''}"
        fault = f"dataset: expected JSON values, got others at {place} ({error}); convert them, or leave them out"
        raise InvalidInput(fault) from None


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def load_rows(services: Services, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return size and keys of a split of a dataset, or of a file of rows, which becomes a dataset.

    Args:
        services: Where the rows are.
        parameters: `dataset` (a name, a path or a list of rows), `format` (a kind of dataset, or `rl`), `split`, `max_samples`;
            `model_name` has no effect, because templates are applied in training.
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
    most = count_of("max_samples", parameters.get("max_samples"))
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


def count_of(name: str, value: object) -> int | None:
    """Return a whole number of at least 1, which may be written as text; None as it is.

    Raises:
        InvalidInput: names the value.
    """
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise InvalidInput(f"expected {name} to be a whole number of at least 1, or left out, got {shown(value)}")
    return number


_TYPES = {"step": "step_bonus"}
"""Name of HelloAgents -> type of declared scorer, where they differ."""


def create_reward(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Make a reward usable as `scorer` or `reward`; return its name and its settings.

    Args:
        parameters: `reward_type`: `accuracy` (the default), `length_penalty` with `penalty_weight` (0.001) and `max_length` (1024
            characters), `step` with `step_bonus` (0.1), a type of declared scorer with its settings and optionally `name`, or
            the name of any scorer.
    """
    kind = parameters.get("reward_type", "accuracy")
    if not isinstance(kind, str):
        raise InvalidInput(
            f"reward_type is {shown(kind)}; valid: accuracy, length_penalty, step, a declared type, or the name of a scorer"
        )
    settings = {name: value for name, value in parameters.items() if name != "reward_type"}
    declared = None
    if (declared_type := _TYPES.get(kind, kind)) in DECLARED:
        declared = _named(kind, read_declared({**settings, "type": declared_type}, f"create_reward of type {kind!r}"))
        register_scorer(declared.label, lambda: DeclaredScorer(declared))
        name = declared.label
    else:
        refuse_unknown(f"create_reward of type {kind!r}", parameters, {"reward_type": None})
        name = _scorer_name("answer" if kind == "accuracy" else kind)
    return {
        "status": "success",
        "reward_type": kind,
        "scorer": name,
        "parameters": declared.model_dump(mode="json", exclude={"type", "name"}) if declared is not None else {},
        "next_step": f"Score with `scorer={name!r}` and export with the same scorer, or train with `reward={name!r}`.",
    }


def _scorer_name(kind: str) -> str:
    try:
        return scorer(kind).name
    except NotFound as error:
        types = ["accuracy", *_TYPES, *DECLARED]
        raise NotFound(
            f"expected a reward_type, got {shown(kind)}{nearest(kind, types)}; valid: {', '.join(types)}, or a scorer ({error.message})"
        ) from None


def _named(kind: str, declared: Declared) -> Declared:
    """Return the scorer under a name: its own, else the type with its settings, such as `length_penalty-0.001-1024`."""
    if declared.name is not None:
        return declared
    settings = declared.model_dump(exclude={"type", "name"}).values()
    name = "-".join([kind, *(f"{value:g}" if isinstance(value, float) else str(value) for value in settings)])
    if not is_scorer_name(name):
        name = f"{kind}-{hashlib.sha256(declared.model_dump_json().encode()).hexdigest()[:8]}"
    return declared.model_copy(update={"name": name})
