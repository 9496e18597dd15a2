"""A replay buffer: examples that earlier jobs were trained on, mixed into later ones against forgetting.

It is a folder with one file, `examples.npz`, and its lock. Which examples stay is a reservoir in the form of a bottom-k
sample (Cohen and Kaplan 2007, PODC): each key has a number made of it by a hash, and the `size` smallest are kept. So
the buffer is a uniform sample of all distinct examples that were ever added, however they came: in any order, by several
jobs at once, or twice because a job was resumed. (A buffer that is made larger later cannot bring back what it let go.)
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from quintain.errors import Conflict, InvalidInput, Unavailable
from quintain.jobs.directory import write_atomically
from quintain.trainers.data.streams import Example, TokenRow

_FILE_NAME = "examples.npz"
_FORMAT = 1
_LOCK_TIMEOUT_S = 60.0
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
"""What reading a damaged file raises; a zip archive holds a checksum of each array."""


class StoredExamples(NamedTuple):
    """The examples of a file."""

    fingerprint: str
    """Of the renderer that wrote their tokens."""
    examples: list[Example]


class ReplayBuffer:
    """Examples of earlier jobs; make it by `ReplayBuffer.open`. What it holds is as of then, or of the newest `add`."""

    def __init__(self, folder: Path, size: int, fingerprint: str) -> None:
        """See `open`."""
        self.folder, self.size, self.fingerprint = folder, size, fingerprint
        self.warning: str | None = None
        """What was wrong with the file, if it could not be read and the buffer starts empty."""
        self._examples: dict[str, Example] = {}

    @staticmethod
    def open(folder: Path, size: int, fingerprint: str) -> ReplayBuffer:
        """The buffer of a folder, which need not exist yet.

        Args:
            folder: Where it persists; several jobs may share it.
            size: Examples to keep.
            fingerprint: Of the renderer: token ids of another one mean nothing here.

        Raises:
            InvalidInput: `size` is below 1.
            Conflict: it holds examples of another tokenizer or template.
            Unavailable: the folder cannot be used, or a newer version of this program wrote it.
        """
        if size < 1:
            raise InvalidInput(f"the replay buffer's size is {size}; keep at least 1 example")
        buffer = ReplayBuffer(folder, size, fingerprint)
        with buffer._locked():
            buffer._read()
        return buffer

    def __len__(self) -> int:
        return len(self._examples)

    def sample(self, n: int, *, exclude: Collection[str], seed: int) -> list[Example]:
        """Up to `n` examples by chance, fewer where there are not so many.

        Args:
            n: How many.
            exclude: Keys of the new data, which are never drawn.
            seed: Same seed and same content, same examples.
        """
        if n < 0:
            raise InvalidInput(f"{n} examples cannot be replayed; give 0 or more")
        free = sorted(self._examples.keys() - set(exclude))
        return [self._examples[key] for key in random.Random(f"replay/{seed}").sample(free, min(n, len(free)))]

    def add(self, examples: Sequence[Example]) -> int:
        """Offer examples to the buffer, and write it; one with a key that it holds takes the other's place.

        Returns:
            How many examples the buffer holds now.

        Raises:
            InvalidInput: an example has no key.
            Conflict: another job wrote examples of another tokenizer meanwhile.
            Unavailable: the folder cannot be written.
        """
        if nameless := [i for i, example in enumerate(examples) if not example.key]:
            raise InvalidInput(f"example {nameless[0]} has no key; give each example that is to be replayed a key")
        with self._locked():
            self._read()
            offered = self._examples | {example.key: example for example in examples}
            kept = sorted(offered, key=_priority)[: self.size]
            self._examples = {key: offered[key] for key in kept}
            write_examples(self.folder / _FILE_NAME, list(self._examples.values()), self.fingerprint)
        return len(self)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / "lock", timeout=_LOCK_TIMEOUT_S):
                yield
        except Timeout:
            raise Unavailable(
                f"another job has held the replay buffer in {self.folder} for {_LOCK_TIMEOUT_S:.0f} s; try again"
            ) from None
        except OSError as error:
            raise Unavailable(
                f"the replay buffer in {self.folder} cannot be used: {error}; free space or mend its permissions"
            ) from error

    def _read(self) -> None:
        path = self.folder / _FILE_NAME
        self._examples = {}
        try:
            stored = read_examples(path)
        except FileNotFoundError:
            return
        except InvalidInput as error:
            self.warning = f"{error.message}; the replay buffer starts empty"
            return
        if stored.fingerprint != self.fingerprint and stored.examples:
            raise Conflict(
                f"the replay buffer in {self.folder} holds tokens of {stored.fingerprint}, this model writes "
                f"{self.fingerprint}; name another buffer, or delete that folder"
            )
        kept = sorted(stored.examples, key=lambda example: _priority(example.key))[: self.size]
        self._examples = {example.key: example for example in kept}


def write_examples(path: Path, examples: Sequence[Example], fingerprint: str) -> None:
    """Write examples to a file that appears whole: an uncompressed NumPy archive without pickles.

    `index` is JSON in UTF-8 that says how the examples are made of rows, and which streams each row has; every other
    array is one stream, of all rows end to end that have it.
    """
    rows = [row for example in examples for row in example.rows]
    arrays: dict[str, Any] = {
        name: np.concatenate(present)
        for name in _STREAMS
        if (present := [stream for row in rows if (stream := getattr(row, name)) is not None])
    }
    index = {"format": _FORMAT, "fingerprint": fingerprint, "examples": [_entry(example) for example in examples]}
    arrays["index"] = np.frombuffer(json.dumps(index, allow_nan=False).encode("utf-8"), np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_atomically(path, content.getvalue())


def read_examples(path: Path) -> StoredExamples:
    """The examples that `write_examples` wrote.

    Raises:
        OSError: the file is not there or cannot be opened.
        InvalidInput: it is damaged.
        Unavailable: a newer version of this program wrote it.
    """
    content = path.read_bytes()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        index = json.loads(arrays["index"].tobytes())
        if index["format"] > _FORMAT:
            raise Unavailable(f"{path} was written by a newer version of Quintain; update, or name another buffer")
        return StoredExamples(str(index["fingerprint"]), list(_examples(index["examples"], arrays)))
    except _DAMAGE as error:
        # numpy's own words would advise to load the file unsafely.
        raise InvalidInput(
            f"the examples in {path} cannot be read: the file is damaged", code="damaged_file"
        ) from error


def _entry(example: Example) -> dict[str, Any]:
    return {
        "key": example.key,
        "member": example.member,
        "value": example.value,
        "weight": example.weight,
        "divisible": example.divisible,
        "rows": [[len(row), [name for name in _STREAMS if getattr(row, name) is not None]] for row in example.rows],
    }


def _examples(entries: Sequence[dict[str, Any]], arrays: dict[str, NDArray[Any]]) -> Iterator[Example]:
    places = dict.fromkeys(_STREAMS, 0)
    for entry in entries:
        rows = []
        for length, names in entry["rows"]:
            rows.append(TokenRow(**{name: arrays[name][places[name] : places[name] + length] for name in names}))
            for name in names:
                places[name] += length
        yield Example(
            tuple(rows),
            tuple(entry["member"]),
            tuple(entry["value"]),
            weight=entry["weight"],
            key=entry["key"],
            divisible=entry["divisible"],
        )


def _priority(key: str) -> bytes:
    """A number for the key that is as good as drawn by chance, and the same in every job."""
    return hashlib.sha256(f"replay/{key}".encode()).digest()
