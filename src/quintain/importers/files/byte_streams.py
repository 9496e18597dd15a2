"""Stream the bytes of a log file in chunks of about 1 MB: opened without blocking, unpacked within bounds, as UTF-8."""

from __future__ import annotations

import bz2
import codecs
import gzip
import os
import stat
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from quintain.errors import InvalidInput
from quintain.records.wording import size_text

CHUNK_BYTES = 2**20
"""Bytes read at once."""

MAX_UNPACKED_BYTES = 16 * 2**30
"""Unpacked size limit of a compressed file."""

MAX_RATIO = 250
"""Limit of the compression ratio; repetitive logs reach 50 to 100, decompression bombs 1,000 and more."""

RATIO_FREE_BYTES = 64 * 2**20
"""Unpacked bytes below which the ratio is not checked."""

_ZSTD_WINDOW = 2**27
"""Window size limit in bytes (`--long=27`, the limit that the format recommends)."""

_ZSTD_BYTES = 256
"""Packed bytes unpacked at once: a block of 4 bytes can expand to 128 kB."""

UNDECODABLE = "characters that are not valid in the file's encoding were replaced by U+FFFD"

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks; UTF-32 comes before UTF-16 because the UTF-32-LE mark starts with the UTF-16-LE mark."""


@dataclass
class ReadState:
    """Progress and repairs of reading one file and its companions."""

    row: int = 0
    """Number of the newest row."""
    position: int = 0
    """Bytes read from disk."""
    unpacked: int = 0
    """Bytes after unpacking."""
    repairs: Counter[str] = field(default_factory=Counter)
    """Description of a text repair -> count."""
    companions: set[Path] = field(default_factory=set)
    """Resolved paths of other files that were read for this one."""
    consulted: bool = False
    """Whether another file was looked for, found or not."""
    is_companion: bool = False
    parsed: dict[bytes, Any] = field(default_factory=dict)
    """Raw row -> value parsed during detection; each entry is removed when it is used."""
    _taken: int = 0

    @property
    def where(self) -> str:
        """The newest row, as the place in an error; empty where the file is not read by rows."""
        return f" after it read line {self.row}" if self.row else ""

    def take(self) -> int:
        """Return the unpacked bytes since the last call."""
        new, self._taken = self.unpacked - self._taken, self.unpacked
        return new

    def beside(self) -> ReadState:
        """Return the state of a companion, which shares repairs and companions but not the position."""
        return ReadState(repairs=self.repairs, companions=self.companions, is_companion=True)


def open_regular(path: Path, root: Path) -> BufferedReader:
    """Open a regular file below a root; a pipe, socket or device never blocks and is never read.

    No link below the root is followed: each folder on the way is opened from the one before it, where the system can do
    so.

    Raises:
        InvalidInput: no regular file, a link, outside the root, or not readable.
    """
    try:
        descriptor = _descriptor(path, root)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot be opened ({_plain(error)})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidInput("expected a regular file")
    return os.fdopen(descriptor, "rb")


def _descriptor(path: Path, root: Path) -> int:
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    parts = path.relative_to(root).parts
    if ".." in parts:
        raise ValueError("it is outside the folder")
    if os.open not in os.supports_dir_fd:
        return os.open(path, flags)
    try:
        place = os.open(root, flags)
    except OSError:  # the root itself may be a link
        place = os.open(root.resolve(), flags)
    for part in parts:
        try:
            inner = os.open(part, flags, dir_fd=place)
        finally:
            os.close(place)
        place = inner
    return place


def chunks(path: Path, root: Path, reading: ReadState) -> Iterator[bytes]:
    """Stream a file's content: gzip, zstd and bzip2 are unpacked by their magic bytes, UTF-16 and UTF-32 become UTF-8.

    Invalid bytes of a file without a mark of UTF-16 or UTF-32 stay as they are.

    Raises:
        InvalidInput: it cannot be opened, is damaged, or unpacks to more than the limits; the chunks before are valid.
    """
    with open_regular(path, root) as file:
        if reading.is_companion:
            reading.companions.add(path.resolve())
        yield from _as_utf8(_unpacked(file, reading), reading)


def _unpacked(file: BinaryIO, reading: ReadState) -> Iterator[bytes]:
    start = file.read(4)
    file.seek(0)
    try:
        packed = start[:2] == b"\x1f\x8b" or start[:3] == b"BZh" or start == b"\x28\xb5\x2f\xfd"
        stream = _unpacker(file, start) if packed else file
        total = 0
        while content := stream.read(CHUNK_BYTES):
            reading.position = file.tell()
            for at in range(0, len(content), CHUNK_BYTES):
                chunk = content[at : at + CHUNK_BYTES]
                total += len(chunk)
                reading.unpacked += len(chunk)
                yield chunk
                if packed:
                    _require_bounded(total, reading.position)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"cannot be read to its end ({_plain(error)})") from None


def _unpacker(file: BinaryIO, start: bytes) -> BinaryIO:
    if start[:2] == b"\x1f\x8b":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if start[:3] == b"BZh":
        return cast(BinaryIO, bz2.BZ2File(file))
    return zstd_reader(file)


def zstd_reader(file: BinaryIO) -> BinaryIO:
    """Return a reader of a zstd stream; damage, truncation and an oversized window raise `OSError`."""
    return cast(BinaryIO, _Zstd(file))


@dataclass
class _Zstd:
    # The library's own reader takes an end within a frame for the end of the content.
    file: BinaryIO
    rest: bytes = b""
    """Packed bytes not used yet."""
    frame: Any = None
    """Decompressor of the current frame."""

    def read(self, size: int) -> bytes:
        """Return at least `size` bytes unless the stream ends; may exceed it by one unpacked block (at most 8 MB)."""
        import zstandard

        parts, n = [], 0
        while n < size and (packed := self.rest or self.file.read(_ZSTD_BYTES)):
            if self.frame is None:
                self.frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
            try:
                parts.append(self.frame.decompress(packed))
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from None
            n += len(parts[-1])
            self.rest = self.frame.unused_data if self.frame.eof else b""
            self.frame = None if self.frame.eof else self.frame
        if not n and self.frame is not None:
            raise EOFError("the compressed data ends too early")
        return b"".join(parts)


def _require_bounded(unpacked: int, packed: int) -> None:
    if unpacked > MAX_UNPACKED_BYTES or (unpacked > RATIO_FREE_BYTES and unpacked > MAX_RATIO * packed):
        raise InvalidInput(
            f"unpacks to more than {MAX_RATIO} times its size (or {size_text(MAX_UNPACKED_BYTES)}), like a decompression bomb; unpack it "
            "yourself if you trust it",
            code="too_large",
        )


def _as_utf8(raw: Iterator[bytes], reading: ReadState) -> Iterator[bytes]:
    first = next(raw, b"")
    mark, encoding = next(((mark, name) for mark, name in _MARKS if first.startswith(mark)), (b"", _unmarked(first)))
    first = first[len(mark) :]
    if encoding == "utf-8":
        yield first
        yield from raw
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for chunk in (first, *raw, b""):
        text = decoder.decode(chunk, final=not chunk)
        if n := text.count("\ufffd"):
            reading.repairs[UNDECODABLE] += n
        yield text.encode("utf-8")


def _unmarked(first: bytes) -> str:
    """Return the encoding of JSON text without a byte order mark, by its first two ASCII characters (RFC 4627)."""
    zeros = "".join("0" if byte == 0 else "x" for byte in first[:4])
    return {"x000": "utf-32-le", "000x": "utf-32-be", "x0x0": "utf-16-le", "0x0x": "utf-16-be"}.get(zeros, "utf-8")


def _plain(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
