"""Values in a temporary file instead of in memory: the turns and lines of a session that is too long to hold whole."""

from __future__ import annotations

import os
import pickle
import tempfile
import weakref
from collections.abc import Container, Iterable, Iterator, MutableSequence
from typing import IO, Any, TypeVar, overload

from quintain.errors import Unavailable, disk_remedy

T = TypeVar("T")

Place = int
"""Place of a spooled value: its batch times `_BATCH`, and its index in the batch."""

_BATCH = 16
"""Values that are written and read together: what they share, like the names of fields, is there once."""
_BATCH_BYTES = 2**20
_RECENT = 2
"""Batches that stay in memory after they were read; values are mostly read in the order in which they were written."""


class ScratchFile:
    """An unnamed temporary file of this process, which nobody else can read. It is gone with the object."""

    def __init__(self) -> None:
        """Create the file with the first bytes."""
        self._file: IO[bytes] | None = None
        self._is_flushed = True
        self.size = 0
        """Bytes written so far."""

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            Unavailable: the file cannot be written.
        """
        try:
            if self._file is None:
                self._file = file = tempfile.TemporaryFile(prefix="quintain-")  # noqa: SIM115
                weakref.finalize(self, file.close)
            self._file.write(data)
        except OSError as error:
            raise Unavailable(
                f"expected to write a long session to a temporary file, got {error.strerror}; {disk_remedy(error)}, or set "
                "TMPDIR to another folder",
                code="no_temporary_file",
            ) from error
        self.size += len(data)
        self._is_flushed = False

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes between two offsets."""
        if self._file is None:
            return b""
        if not self._is_flushed:
            self._file.flush()
            self._is_flushed = True
        return os.pread(self._file.fileno(), end - begin, begin)


class Spool:
    """Values in a `ScratchFile`."""

    def __init__(self) -> None:
        """Create the spool without values."""
        self._file = ScratchFile()
        self._ends = [0]
        """Offset behind each batch, after that of the beginning."""
        self._batch: list[Any] = []
        """Values that are not written yet."""
        self._position = 0
        self._recent: dict[int, list[Any]] = {}

    def put(self, value: Any, position: int = 0) -> Place:
        """Write a value and return its place.

        Args:
            value: The value.
            position: How many bytes of a log were read so far; a batch is written before it has much of them.

        Raises:
            Unavailable: the file cannot be written.
        """
        if len(self._batch) == _BATCH or position - self._position > _BATCH_BYTES:
            self.flush()
            self._position = position
        self._batch.append(value)
        return (len(self._ends) - 1) * _BATCH + len(self._batch) - 1

    def flush(self) -> None:
        """Write the values that are not written yet.

        Raises:
            Unavailable: the file cannot be written.
        """
        if not self._batch:
            return
        self._file.write(pickle.dumps(self._batch, pickle.HIGHEST_PROTOCOL))
        self._ends.append(self._file.size)
        self._batch = []

    def get(self, place: Place) -> Any:
        """Return the value of a place."""
        number, index = divmod(place, _BATCH)
        if number == len(self._ends) - 1:
            return self._batch[index]
        if number not in self._recent:
            while len(self._recent) >= _RECENT:
                del self._recent[next(iter(self._recent))]
            self._recent[number] = self._read(number)
        return self._recent[number][index]

    def _read(self, number: int) -> list[Any]:
        # Only this process has written to the file, which has no name.
        values: list[Any] = pickle.loads(self._file.read(*self._ends[number : number + 2]))
        return values

    def mean_bytes(self, place: Place) -> int:
        """Return the mean size of the values in the batch of a place; 0 if they are not written yet."""
        number = place // _BATCH
        return (self._ends[number + 1] - self._ends[number]) // _BATCH if number < len(self._ends) - 1 else 0


class SpooledList(MutableSequence[T]):
    """A list of values other than integers, of which `store` moves some to a file.

    A value that is read by its index is in memory again, so that it can be changed. Iteration yields copies of the
    stored values instead.
    """

    def __init__(self, values: Iterable[T] = ()) -> None:
        """Create the list in memory."""
        self._items: list[Any] = list(values)
        self._spool = Spool()
        self.is_spooled = False
        """Whether values were ever moved to the file."""

    def store(self, end: int, keep: Container[int] = ()) -> None:
        """Move the values before an index to the file, except those with the indices in `keep`.

        Raises:
            Unavailable: the file cannot be written.
        """
        for index, item in enumerate(self._items[:end]):
            if type(item) is not int and index not in keep:
                self._items[index] = self._spool.put(item)
                self.is_spooled = True
        self._spool.flush()

    def append_stored(self, value: T, position: int) -> None:
        """Append a value in the file; the arguments are those of `Spool.put`.

        Raises:
            Unavailable: the file cannot be written.
        """
        self._items.append(self._spool.put(value, position))
        self.is_spooled = True

    def unspooled(self) -> list[T]:
        """Return the values that are in memory."""
        return [item for item in self._items if type(item) is not int]

    def drain(self) -> Iterator[tuple[T, int]]:
        """Yield each value with its approximate bytes in the file (0: it was in memory), and release it."""
        items, self._items = self._items, []
        for index, item in enumerate(items):
            items[index] = None
            yield self._value(item), self._spool.mean_bytes(item) if type(item) is int else 0

    def _value(self, item: Any) -> Any:
        return self._spool.get(item) if type(item) is int else item

    def __iter__(self) -> Iterator[T]:
        return map(self._value, self._items)

    def __reversed__(self) -> Iterator[T]:
        return map(self._value, reversed(self._items))

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        item = self._items[index]
        if type(item) is int:
            item = self._items[index] = self._value(item)
        value: T = item
        return value

    @overload
    def __setitem__(self, index: int, value: T) -> None: ...

    @overload
    def __setitem__(self, index: slice, value: Iterable[T]) -> None: ...

    def __setitem__(self, index: int | slice, value: Any) -> None:
        """Replace a value; the new one is stored where the old one was."""
        if isinstance(index, int) and type(self._items[index]) is int:
            value = self._spool.put(value)
        self._items[index] = value

    def __delitem__(self, index: int | slice) -> None:
        del self._items[index]

    def insert(self, index: int, value: T) -> None:
        """Insert a value before an index."""
        self._items.insert(index, value)

    def append(self, value: T) -> None:
        """Append a value."""
        self._items.append(value)
