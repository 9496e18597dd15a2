"""Read zip archives of logs member by member within size bounds, zstd members included."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from quintain.errors import InvalidInput
from quintain.importers.files.byte_streams import CHUNK_BYTES, MAX_RATIO, RATIO_FREE_BYTES, open_regular, zstd_reader
from quintain.records.wording import size_text

MAX_MEMBER_BYTES = 256 * 2**20
"""Unpacked bytes of one member; the size in its header is not trusted."""

MAX_DIRECTORY_BYTES = 64 * 2**20
"""Bytes of an archive's table of contents; enough for about 500,000 members."""

MAX_UNPACKED = 10_000
"""Members of an archive that is read like a folder."""

_ZSTD = 93
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_FAULTS = (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, zlib.error, struct.error)
"""Exceptions of damaged and encrypted archives."""


def is_zip(path: Path, root: Path) -> bool:
    """Whether a file below a root begins like a zip archive with members."""
    with open_regular(path, root) as file:
        return file.read(4) == b"PK\x03\x04"


@contextmanager
def archive(path: Path, root: Path) -> Iterator[Archive]:
    """Open a zip archive below a root, for the duration of a `with` block.

    Raises:
        InvalidInput: no regular file inside the root, damaged, or its table of contents is too large.
    """
    with open_regular(path, root) as file:
        try:
            size = file.seek(0, os.SEEK_END)
            _require_small_directory(file, size)
            opened = zipfile.ZipFile(file)
        except _FAULTS as error:
            raise InvalidInput(f"is a damaged zip archive ({str(error) or type(error).__name__})") from None
        with opened:
            yield Archive(opened, file, size)


@dataclass
class Archive:
    """An open zip archive."""

    _zip: zipfile.ZipFile
    _file: BinaryIO
    _size: int
    unpacked: int = 0
    """Unpacked bytes of all members read so far."""

    @property
    def names(self) -> list[str]:
        """Names of the members in archive order; never used as paths."""
        return self._zip.namelist()

    def read(self, name: str) -> bytes:
        """Return the unpacked content of a member.

        Raises:
            InvalidInput: there is none, it is damaged or encrypted, packed in an unknown way, or too large.
        """
        shown = repr(name[:80])
        try:
            info = self._zip.getinfo(name)
            with self._packed_by_zstd(info) if info.compress_type == _ZSTD else self._zip.open(info) as member:
                return self._bounded(cast(BinaryIO, member), shown)
        except KeyError:
            raise InvalidInput(f"the archive has no member {shown}") from None
        except InvalidInput:
            raise
        except _FAULTS as error:
            reason = str(error) or type(error).__name__
            raise InvalidInput(f"{shown} in the archive cannot be read ({reason})") from None

    def _bounded(self, member: BinaryIO, shown: str) -> bytes:
        parts, size = [], 0
        while chunk := member.read(CHUNK_BYTES):
            parts.append(chunk)
            size += len(chunk)
            self.unpacked += len(chunk)
            if size > MAX_MEMBER_BYTES:
                raise InvalidInput(
                    f"{shown} in the archive unpacks to more than {size_text(MAX_MEMBER_BYTES)}", code="too_large"
                )
            if self.unpacked > RATIO_FREE_BYTES and self.unpacked > MAX_RATIO * self._size:
                raise InvalidInput(
                    f"the archive unpacks to more than {MAX_RATIO} times its size, like a decompression bomb",
                    code="too_large",
                )
        return b"".join(parts)

    @contextmanager
    def _packed_by_zstd(self, info: zipfile.ZipInfo) -> Iterator[BinaryIO]:
        """Open a member of compression method 93, which the standard library supports only from Python 3.14."""
        if info.flag_bits & 1:
            raise InvalidInput(f"{info.filename[:80]!r} in the archive is encrypted")
        self._file.seek(info.header_offset)
        mark, name, extra = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
        if mark != b"PK\x03\x04":
            raise zipfile.BadZipFile("no local header at the offset in the table of contents")
        self._file.seek(name + extra, os.SEEK_CUR)
        yield zstd_reader(cast(BinaryIO, _Window(self._file, info.compress_size)))


def unpack(path: Path, root: Path, folder: Path) -> None:
    """Write the members of a zip archive below an empty folder; hidden ones and those outside it are left out.

    Raises:
        InvalidInput: damaged, encrypted, too many members, or too large unpacked.
    """
    with archive(path, root) as opened:
        if len(opened.names) > MAX_UNPACKED:
            raise InvalidInput(f"has {len(opened.names):,} members, at most {MAX_UNPACKED:,} are read; unpack it first")
        for name in opened.names:
            parts = PurePosixPath(name.replace("\\", "/")).parts
            if name.endswith("/") or any(part.startswith((".", "/", "__MACOSX")) for part in parts):
                continue
            place = folder.joinpath(*parts)
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(opened.read(name))
            except (OSError, ValueError) as error:
                raise InvalidInput(f"{name[:80]!r} in the archive cannot be unpacked ({error})") from None


@dataclass
class _Window:
    """File-like view of the next bytes of a file."""

    file: BinaryIO
    left: int

    def read(self, size: int = -1) -> bytes:
        part = self.file.read(self.left if size < 0 else min(size, self.left))
        self.left -= len(part)
        return part


def _require_small_directory(file: BinaryIO, size: int) -> None:
    """Check the size of the table of contents first, because the standard library reads all of it at once."""
    file.seek(max(0, size - 2**16 - 22))
    tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        raise zipfile.BadZipFile("no end record")
    (length,) = struct.unpack_from("<I", tail, end + 12)
    large = tail.rfind(b"PK\x06\x06", 0, end)
    if length == 0xFFFFFFFF and large >= 0:
        (length,) = struct.unpack_from("<Q", tail, large + 40)
    if length > MAX_DIRECTORY_BYTES:
        raise InvalidInput(
            f"its table of contents is larger than {size_text(MAX_DIRECTORY_BYTES)}; unpack it first", code="too_large"
        )
