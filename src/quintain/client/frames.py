"""Rows of pandas, `datasets` and plain Python, in and out. Both libraries are imported only where a caller wants their objects."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args

from quintain.datasets.rows import read_rows
from quintain.errors import InvalidInput, Unavailable
from quintain.exporters.chat_turns import Losses
from quintain.exporters.formats.trl import FEATURES, trl_lines
from quintain.records.dataset import Dataset, DatasetKind, SplitName
from quintain.records.wording import list_names, shown
from quintain.tools.dict_calls.actions import file_of_rows

if TYPE_CHECKING:
    from quintain.tools.services import Services


class Frame(Protocol):
    """A pandas DataFrame."""

    def to_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return its rows."""


Rows = Iterable[Mapping[str, Any]] | Frame
"""A DataFrame of pandas or polars, a `datasets.Dataset`, or any iterable of rows."""

RowSource = str | PathLike[str] | Rows
"""Rows, or the path or URL of a file of them."""


def rows_of(data: Rows) -> Iterator[dict[str, Any]]:
    """Yield rows of plain values; a missing value of a frame is left out.

    Raises:
        InvalidInput: a row is not a mapping; further errors as of `_listed`.
    """
    for number, row in enumerate(_listed(data)):
        if not isinstance(row, Mapping):
            raise InvalidInput(
                f"expected rows with named columns, got {shown(row)} at row {number}; pass a list of objects"
            )
        plain = {str(name): _plain(value) for name, value in row.items()}
        yield {name: value for name, value in plain.items() if value is not None}


def _listed(data: Any) -> Iterable[Any]:
    """Return the rows of a frame of pandas, polars or pyarrow, or of anything else that iterates over them.

    Raises:
        InvalidInput: an object of columns or splits, or two columns of one name, of which pandas would drop one.
    """
    if isinstance(data, Mapping):
        keys = list_names([repr(name) for name in data], 6)
        raise InvalidInput(
            f"expected rows, got an object of {keys}; pass a split of it, a list of objects or a DataFrame"
        )
    for method in ("to_dicts", "to_pylist"):
        if hasattr(data, method):
            return getattr(data, method)()  # type: ignore[no-any-return]
    if not (hasattr(data, "columns") and hasattr(data, "to_dict")):
        return data  # type: ignore[no-any-return]
    if twice := sorted(name for name, n in Counter(map(str, data.columns)).items() if n > 1):
        raise InvalidInput(f"expected columns of different names, got several named {', '.join(twice)}; rename them")
    return data.to_dict("records")  # type: ignore[no-any-return]


def runs_of(data: Rows) -> Iterator[dict[str, Any]]:
    """Yield rows of runs; `messages` and `tools` may be JSON texts, as `datasets` keeps values without one shape.

    Raises:
        InvalidInput: as `rows_of`, or a text is not JSON.
    """
    for number, row in enumerate(rows_of(data)):
        texts = {name: row[name] for name in ("messages", "tools") if isinstance(row.get(name), str)}
        try:
            yield row | {name: json.loads(text) for name, text in texts.items()}
        except ValueError as error:
            raise InvalidInput(
                f"expected JSON in {' and '.join(texts)} of row {number} ({error}); pass lists of objects"
            ) from None


def file_of(services: Services, data: RowSource) -> str:
    """Return the path of rows, which are written to the inbox if they are in memory.

    Raises:
        InvalidInput: no row, or one that JSON cannot represent.
    """
    if isinstance(data, str | PathLike):
        return str(data)
    return file_of_rows(services, list(rows_of(data)))


def _plain(value: Any) -> Any:
    """Return a value of numpy, pandas or pyarrow as JSON has it; a missing one is None."""
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return _plain(value.tolist())
    if hasattr(value, "isoformat"):  # times; a missing one of pandas is not equal to itself
        return value.isoformat() if value == value else None
    return None if value is not value or type(value).__name__ == "NAType" else value


def lines_of(dataset: Dataset, split: SplitName, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a split in the conversational form of TRL: `messages`, or `prompt`, `chosen` and so on.

    Raises:
        NotFound: the folder of the dataset is missing.
        InvalidInput: it was changed after the export.
    """
    rows = read_rows(Path(dataset.path), split, dataset.files.get(f"{split}.jsonl"), kind=dataset.kind)
    losses = Losses()
    return list(islice((dict(line) for row in rows for line in trl_lines(row, losses)), limit))


def to_pandas(rows: Iterable[Mapping[str, Any]], columns: list[str] | None = None) -> Any:
    """Return a DataFrame.

    Raises:
        Unavailable: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise _missing("pandas") from None
    return pandas.DataFrame(list(rows), columns=columns)


def to_datasets(kind: DatasetKind, rows: list[dict[str, Any]]) -> Any:
    """Return a `datasets.Dataset` whose columns have the types of the kind; messages keep exactly their own keys.

    Raises:
        Unavailable: `datasets` is not installed, or has no JSON columns.
    """
    try:
        import datasets

        features = datasets.Features({name: _feature(datasets, text) for name, text in FEATURES[kind].items()})
    except (ImportError, AttributeError):
        raise _missing("datasets>=4.7") from None
    filled = [{name: row.get(name) for name in features} for row in rows]
    return datasets.Dataset.from_list(filled, features=features)


def _feature(datasets: Any, text: str) -> Any:
    """Return the feature of a column from its text, as in `FEATURES`."""
    form, _, of = text.partition(": ")
    inner = datasets.Json() if of == "json" else datasets.Value(of)
    return datasets.List(inner) if form == "list" else inner


def _missing(package: str) -> Unavailable:
    return Unavailable(
        f"expected the package {package}, got none that can be imported; install it, or quintain[data]",
        code="no_package",
    )


SPLITS: tuple[SplitName, ...] = get_args(SplitName)
