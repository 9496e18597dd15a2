"""Files of examples: tokenised runs with their streams, for a replay buffer, or to be computed once in a job."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quintain.errors import InvalidInput, Unavailable
from quintain.jobs.directory import write_atomically
from quintain.trainers.data.streams import Example, TokenRow, rows_of

_FORMAT = 1
_STREAMS = tuple(field.name for field in fields(TokenRow))
_DAMAGE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions of reading a damaged file; a zip archive has a checksum of each array."""


class StoredExamples(NamedTuple):
    """The examples of a file."""

    fingerprint: str
    """Fingerprint of the renderer of their tokens."""
    examples: list[Example]


def write_examples(path: Path, examples: Sequence[Example], fingerprint: str) -> None:
    """Write examples atomically to an uncompressed NumPy archive without pickles.

    See `packed`.
    """
    write_atomically(path, packed(examples, fingerprint))


def packed(examples: Sequence[Example], fingerprint: str = "") -> bytes:
    """Return examples as an uncompressed NumPy archive.

    `index` is JSON in UTF-8: the rows of each example and the streams of each row. Every other array is one stream, concatenated over
    the rows that have it.
    """
    rows = rows_of(examples)
    arrays: dict[str, Any] = {
        name: np.concatenate(present)
        for name in _STREAMS
        if (present := [stream for row in rows if (stream := getattr(row, name)) is not None])
    }
    index = {"format": _FORMAT, "fingerprint": fingerprint, "examples": [_entry(example) for example in examples]}
    arrays["index"] = np.frombuffer(json.dumps(index).encode("utf-8"), np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def read_examples(path: Path) -> StoredExamples:
    """Read a file of `write_examples`.

    Raises:
        OSError: The file cannot be opened.
        InvalidInput: It is damaged.
        Unavailable: A newer version of this program wrote it.
    """
    content = path.read_bytes()
    try:
        return unpacked(content)
    except _DAMAGE as error:
        # numpy's message would advise to load the file unsafely.
        raise InvalidInput(f"cannot read the examples in {path}: the file is damaged", code="damaged_file") from error


def unpacked(content: bytes) -> StoredExamples:
    """Return the examples of an archive by `packed`."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    index = json.loads(arrays["index"].tobytes())
    if index["format"] > _FORMAT:
        raise Unavailable("the examples were written by a newer version of Quintain; update, or name another buffer")
    return StoredExamples(str(index["fingerprint"]), list(_examples(index["examples"], arrays)))


def _entry(example: Example) -> dict[str, Any]:
    rows = [[len(row), [name for name in _STREAMS if getattr(row, name) is not None]] for row in example.rows]
    return vars(example) | {"rows": rows}


def _examples(entries: Sequence[dict[str, Any]], arrays: dict[str, NDArray[Any]]) -> Iterator[Example]:
    places = dict.fromkeys(_STREAMS, 0)
    for entry in entries:
        rows = []
        for length, names in entry["rows"]:
            rows.append(TokenRow(**{name: arrays[name][places[name] : places[name] + length] for name in names}))
            for name in names:
                places[name] += length
        known: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()
        }
        yield Example(**known | {"rows": tuple(rows)})
