"""Read dataset rows from JSON, CSV and Parquet files, folders of the `datasets` library, and the Hugging Face Hub.

Rows that are not JSON lines already are written to JSON lines first, so that the readers of logs can read them; row n
becomes line n, and a column can be given the name that the readers know.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, cast

from quintain.errors import InvalidInput, NotFound, Unavailable
from quintain.importers.files.tables import SUFFIXES, with_numbers, with_small_names
from quintain.importers.log_file import LogFile, NumberedValue
from quintain.importers.protocol import Report
from quintain.records.dataset import SplitName

HUB_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96})(?::(?P<config>[\w.-]*))?(?::(?P<split>[\w.-]+))?"
)
"""`owner/name`, `owner/name:config` or `owner/name:config:split`; the split defaults to train."""

_JSON = frozenset({".jsonl", ".json", ".ndjson"})
_COLUMNAR = frozenset({".parquet", ".arrow"})
_TABLES = _COLUMNAR | SUFFIXES
_PACKED = frozenset({".gz", ".bz2", ".zst"})
"""Suffixes of compressed JSON; the first bytes identify the compression."""
_SIDE = re.compile(r"(?:^|[^a-z])(train|validation|valid|val|dev|test|eval)(?:[^a-z]|$)")
_OUTSIDE = {"test": "test", **dict.fromkeys(("validation", "valid", "val", "dev", "eval"), "validation")}
"""Name of a split other than train -> its name here."""
_ROWS_AT_ONCE = 200

_Reader = Callable[[Any], Any]


def is_rows(path: Path) -> bool:
    """Whether the file name is that of a file of rows."""
    name = Path(path.name.lower())
    return name.suffix in _JSON | _TABLES or (name.suffix in _PACKED and Path(name.stem).suffix in _JSON)


def needs_lines(path: Path, *, text: bool) -> bool:
    """Whether rows must be converted to JSON lines before they can be read (as runs, or as `text`)."""
    return path.suffix.lower() in _COLUMNAR or (text and is_rows(path) and path.suffix != ".jsonl")


class RowFiles(NamedTuple):
    """Row files of a path."""

    taken: list[Path]
    left_out: list[Path]
    """Row files outside the training split, in a folder that has one."""


def row_files(path: Path) -> RowFiles:
    """Return the row files of a path: the file itself, or a folder's files, only its training split if it has one.

    Raises:
        NotFound: there is no such path, or the folder contains no file of rows.
        InvalidInput: the folder has several splits and none is called train.
    """
    if path.is_file():
        return RowFiles([path], [])
    if not path.is_dir():
        raise NotFound(f"expected a file or folder of rows, got nothing at {str(path)!r}; correct the path")
    if (path / "dataset_dict.json").is_file():
        splits = sorted(inner for inner in path.iterdir() if (inner / "state.json").is_file())
        taken = _training_side({one: one.name for one in splits}, path)
        files = [file for split in taken for file in row_files(split).taken]
        return RowFiles(files, [split for split in splits if split not in taken])
    if (path / "state.json").is_file():
        return RowFiles(_saved_files(path), [])
    files = [file for file in sorted(path.rglob("*")) if _is_row_file(file, path)]
    if not files:
        valid = ", ".join(sorted(_JSON | _TABLES))
        raise NotFound(
            f"{str(path)!r} has no file of rows; valid: {valid}, JSON also compressed ({', '.join(sorted(_PACKED))})"
        )
    taken = _training_side({file: file.relative_to(path).as_posix().lower() for file in files}, path)
    return RowFiles(taken, [file for file in files if file not in taken])


def rows_of(path: Path, report: Report) -> Iterator[NumberedValue]:
    """Stream the rows of a file, numbered from 1.

    Raises:
        InvalidInput: the file is damaged, or a table without names of its columns.
        Unavailable: pyarrow is not installed.
    """
    if path.suffix.lower() not in _COLUMNAR:
        return LogFile(path, path.parent, as_written=True).rows(report)
    return (NumberedValue(number, row) for number, row in enumerate(_columnar_rows(path), 1))


def hub_rows(reference: str) -> Iterator[NumberedValue]:
    """Stream the rows of a Hub dataset, numbered from 1.

    Raises:
        NotFound: the Hub has no such data set, configuration or split.
        Unavailable: `datasets` is not installed, or the Hub cannot be reached.
    """
    match = HUB_NAME.fullmatch(reference)
    if match is None:
        raise NotFound(f"expected a dataset name (owner/name or owner/name:config:split), got {reference!r:.200}")
    try:
        import datasets
    except ImportError:
        raise missing_package("datasets", "Data sets of the Hub") from None
    split = match["split"] or "train"
    try:
        rows = datasets.load_dataset(match["name"], match["config"] or None, split=split, streaming=True)
        yield from (NumberedValue(number, row) for number, row in enumerate(rows, 1))
    except (FileNotFoundError, ValueError) as error:
        raise NotFound(
            f"the Hub has no {reference!r} ({_brief(error)}); look at the names of its configurations and splits"
        ) from None
    except OSError as error:
        raise Unavailable(
            f"{reference!r} cannot be read from the Hub ({_brief(error)}); try again, or download it to a folder"
        ) from None


def split_named(value: Any) -> SplitName:
    """Return the split that a row names; train where it names none that is known."""
    return cast(SplitName, _OUTSIDE.get(str(value).casefold(), "train"))


def write_lines(rows: Iterable[NumberedValue], columns: Mapping[str, str], target: Path) -> None:
    """Write rows as JSON lines, row n on line n.

    Args:
        rows: In ascending order of their numbers.
        columns: Name that the readers know -> name of the column; it replaces a column of that name.
        target: The new file.

    Raises:
        InvalidInput: the first row lacks a named column.
    """
    last = 0
    with target.open("w", encoding="utf-8") as file:
        for number, row in rows:
            if not last and isinstance(row, Mapping):
                _require_columns(columns, row)
            file.write("\n" * (number - last - 1))
            if isinstance(row, Mapping):
                row = _finite(with_numbers(with_small_names(renamed_columns(row, columns))))
            json.dump(row, file, ensure_ascii=False, default=_plain)
            file.write("\n")
            last = number


def renamed_columns(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """Return a row with columns under other names, each in place of a column of that name.

    Args:
        row: Column -> value.
        columns: New name -> name of the column.
    """
    kept = {name: value for name, value in row.items() if name not in columns and name not in columns.values()}
    return {ours: row[theirs] for ours, theirs in columns.items() if theirs in row} | kept


def joined_columns(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """Return a row with a text of each `ASK,A,B` among the columns: the first one, then a line `A: ...` of each other.

    Args:
        row: Column -> value.
        columns: New name -> name of the column, or of several, such as a question and its choices.
    """
    several = {name: [part.strip() for part in name.split(",")] for name in columns.values() if name not in row}
    texts = {
        name: "\n".join([str(row[first]), *(f"{part}: {row[part]}" for part in others if row[part] not in (None, ""))])
        for name, (first, *others) in several.items()
        if others and all(part in row for part in (first, *others))
    }
    return {**row, **texts}


def with_inner_columns(rows: Iterable[NumberedValue], names: Iterable[str]) -> Iterator[NumberedValue]:
    """Yield rows with a column of each `OUTER.INNER` among the names that is none of their own: the value inside."""
    inner = {name: name.split(".") for name in names if "." in name}
    for number, row in rows:
        if inner and isinstance(row, Mapping):
            row = {**{name: value for name, path in inner.items() for value in value_inside(row, path)}, **row}
        yield NumberedValue(number, row)


def value_inside(value: Any, path: Sequence[str]) -> list[Any]:
    """Return the value inside, null where one around it is; none where there is no such place."""
    for name in path:
        if value is None:
            return [None]
        if not isinstance(value, Mapping) or name not in value:
            return []
        value = value[name]
    return [value]


def _require_columns(columns: Mapping[str, str], row: Mapping[str, Any]) -> None:
    if absent := [theirs for theirs in columns.values() if theirs not in row]:
        raise InvalidInput(f"the rows have no column {absent[0]!r}; they have {', '.join(map(repr, list(row)[:20]))}")


def _finite(value: Any) -> Any:
    """Replace NaN, which tables use for missing numbers, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """Convert table values that JSON does not support."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date):
        return value.isoformat()
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else str(value)


def _columnar_rows(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise missing_package("pyarrow", f"{path.suffix} files") from None
    try:
        if path.suffix.lower() == ".parquet":
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                    yield from _rows_in(batch)
        else:
            with pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_stream(source) as stream:
                for batch in stream:
                    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                        yield from _rows_in(batch.slice(start, _ROWS_AT_ONCE))
    except (pyarrow.ArrowException, OSError) as error:
        raise InvalidInput(
            f"{path.name} cannot be read as {path.suffix[1:]}: {_brief(error)}; write it again"
        ) from None


def _rows_in(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of an Arrow batch with JSON columns (`datasets.Json`, our Hub folders) decoded."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    readers = _readers(batch.schema)
    return [_read(row, readers) for row in rows] if readers else rows


def _readers(fields: Iterable[Any]) -> dict[str, _Reader]:
    return {field.name: read for field in fields if (read := _reader_of(field.type)) is not None}


def _reader_of(kind: Any) -> _Reader | None:
    """Return a decoder for JSON at any depth of an Arrow type; None if the type has none."""
    if getattr(kind, "extension_name", None) == "arrow.json":
        return _parsed
    if fields := getattr(kind, "fields", None):
        readers = _readers(fields)
        return (lambda held: held and _read(held, readers)) if readers else None
    inner = _reader_of(kind.value_type) if hasattr(kind, "value_type") else None
    return None if inner is None else lambda held: held and [inner(value) for value in held]


def _read(row: Mapping[str, Any], readers: Mapping[str, _Reader]) -> dict[str, Any]:
    return {name: readers[name](value) if name in readers else value for name, value in row.items()}


def _parsed(text: str | None) -> Any:
    try:
        return text if text is None else json.loads(text)
    except (ValueError, RecursionError):  # Arrow does not check it: then it is text
        return text


def _saved_files(folder: Path) -> list[Path]:
    """Return the files of a dataset saved by `save_to_disk`, in order."""
    try:
        named = [entry["filename"] for entry in json.loads((folder / "state.json").read_bytes())["_data_files"]]
        files = [(folder / name).resolve() for name in named]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{folder / 'state.json'} cannot be read ({error}); save the data set again") from None
    if not files or not all(file.is_file() and file.is_relative_to(folder.resolve()) for file in files):
        raise InvalidInput(f"{folder / 'state.json'} names no files, or files that are not in its folder: {named[:3]}")
    return files


def _is_row_file(file: Path, folder: Path) -> bool:
    if not is_rows(file) or file.name in {"dataset_info.json", "dataset_infos.json"}:
        return False
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    # A link may point anywhere; only what lies in the folder was allowed to be read.
    return not hidden and file.is_file() and file.resolve().is_relative_to(folder.resolve())


def _training_side(sides: Mapping[Path, str], folder: Path) -> list[Path]:
    """Return the paths of the training split by name; all paths if no name states a split."""
    splits = {path: (match[1] if (match := _SIDE.search(name)) else None) for path, name in sides.items()}
    names = set(splits.values())
    if len(names) <= 1:
        if not splits:
            raise NotFound(f"{str(folder)!r} has no split; save the dataset again")
        return list(splits)
    if "train" not in names:
        raise InvalidInput(
            f"{str(folder)!r} contains {', '.join(sorted(name or 'files of no split' for name in names))} and no train; name one file"
        )
    return [path for path, name in splits.items() if name == "train"]


def missing_package(package: str, what: str) -> Unavailable:
    """Return the error for an optional package that is not installed."""
    return Unavailable(f"{what} need {package}, which is not installed; run: pip install 'quintain[data]'")


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
