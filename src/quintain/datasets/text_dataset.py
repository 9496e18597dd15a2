"""Datasets of kind `text`: plain text for continued pre-training, one document a row."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from quintain.datasets.dataset_writer import ExportOptions, WrittenDataset, write_dataset
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.errors import InvalidInput
from quintain.records.dataset import TextRow
from quintain.records.imports import BOTH_LEVELS, RedactionLevel, Rejected
from quintain.records.text import require_clean
from quintain.redaction.redact import redact_text

MAX_TEXT_CHARS = 8_000_000
"""Character limit of one document; longer ones are left out."""


class TextFile(NamedTuple):
    """A text file: `*.jsonl` has one object with `text` a line, any other file is one document."""

    path: Path
    name: str
    """Name used in rejected rows."""


Source = TextFile | Path | str
"""A file, or a text itself."""


class _Document(NamedTuple):
    text: str
    line: int | None
    fault: str | None = None
    """Reason why it is left out."""


def write_text(
    sources: Iterable[Source],
    folder: Path,
    options: ExportOptions,
    tally: ExportCounts | None = None,
    *,
    redact: Sequence[RedactionLevel] = BOTH_LEVELS,
) -> WrittenDataset:
    """Stream plain text into a new dataset folder of kind `text`, which appears whole or not at all."""
    tally = tally or ExportCounts()
    return write_dataset(_lines(sources, tally, redact=redact), folder, options, tally)


def check_text(sources: Iterable[Source]) -> None:
    """Check plain text as `write_text` would read it, without writing.

    Raises:
        InvalidInput: a part of it cannot be read, or none of it is text to learn from.
    """
    tally = ExportCounts()
    n = sum(1 for _ in _lines(sources, tally, redact=()))
    if tally.rejected:
        first, more = tally.rejected[0], tally.dropped["unreadable_row"] - 1
        raise InvalidInput(f"{first.place}: {first.reason}" + (f" (and {more} more like it)" if more else ""))
    if not n:
        raise InvalidInput(
            f"none of {tally.seen} texts has anything to learn from; name files with text in them", code="empty_dataset"
        )


def _lines(sources: Iterable[Source], tally: ExportCounts, *, redact: Sequence[RedactionLevel]) -> Iterator[KeyedRow]:
    seen: set[str] = set()
    for source in sources:
        file = TextFile(source, source.name) if isinstance(source, Path) else source
        documents = iter([_Document(file, None)]) if isinstance(file, str) else _documents(file.path)
        for document in documents:
            text, fault = document.text, document.fault or _fault(document.text)
            if fault:
                name = "text" if isinstance(file, str) else file.name
                tally.reject([Rejected(file=name, line=document.line, reason=redact_text(fault)[0])])
                continue
            tally.seen += 1
            if redact:
                text, found = redact_text(text, redact)
                tally.redactions += found
            digest = hashlib.sha256(text.encode()).hexdigest()
            if digest in seen or not text.strip():
                tally.dropped["duplicate" if digest in seen else "empty_text"] += 1
                continue
            seen.add(digest)
            yield KeyedRow(f"text:{digest}", TextRow(text=text))


def _documents(path: Path) -> Iterator[_Document]:
    """Yield the documents of a file."""
    try:
        if path.suffix == ".jsonl":
            with path.open("rb") as lines:
                yield from (_of_line(line, number) for number, line in enumerate(lines, 1))
            return
        with path.open(encoding="utf-8-sig") as file:
            # One character more than the bound is enough to know that it is too long.
            yield _Document(file.read(MAX_TEXT_CHARS + 1), None)
    except UnicodeDecodeError as error:
        yield _Document("", None, _not_text(error))
    except OSError as error:
        yield _Document("", None, f"cannot be read ({error.strerror}); name files that hold text")


def _not_text(error: UnicodeDecodeError) -> str:
    return f"not UTF-8 text ({error.reason} at byte {error.start}); convert it first"


def _of_line(line: bytes, number: int) -> _Document:
    try:
        written = line.decode("utf-8-sig" if number == 1 else "utf-8")
        value = json.loads(written) if written.strip() else {"text": ""}
    except UnicodeDecodeError as error:
        return _Document("", number, _not_text(error))
    except (ValueError, RecursionError) as error:
        return _Document("", number, f"not JSON ({error}); write one object with `text` a line")
    if not isinstance(value, dict) or not isinstance(text := value.get("text"), str):
        return _Document("", number, "has no `text`; write one object with `text` a line")
    return _Document(text, number)


def _fault(text: str) -> str | None:
    """Return the reason why a text cannot be a document."""
    if len(text) > MAX_TEXT_CHARS:
        return f"has more than {MAX_TEXT_CHARS:,} characters, the bound of one document; split it in parts"
    try:
        require_clean(text, "it")
    except InvalidInput as error:
        return error.message
    return None
