"""What tests of hostile files share: files made of bytes, imports that keep nothing, a bound on memory, values to draw."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zstandard
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from quintain.importers.log_file import LogFile
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.protocol import Report
from quintain.importers.run_sink import DryRun
from quintain.records.imports import ImportReport

MB = 2**20

CALM = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=6), JSON, min_size=1, max_size=4), min_size=1, max_size=6)


def log(folder: Path, raw: bytes, name: str = "log.jsonl") -> LogFile:
    path = folder / name
    path.write_bytes(raw)
    return LogFile(path, folder)


def rows(folder: Path, raw: bytes, name: str = "log.jsonl") -> tuple[list[Any], list[tuple[int | None, str]], LogFile]:
    """The good rows, the rejections, and the file."""
    file, report = log(folder, raw, name), Report()
    return [row.value for row in file.rows(report)], report.rejected, file


def imported(path: Path, **options: Any) -> ImportReport:
    return import_logs(path, ImportOptions(**options), DryRun({}))


@contextmanager
def memory_below(bound: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < bound, f"{peak / MB:.0f} MB"


def zip_of(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as made:
        for name, raw in members.items():
            made.writestr(name, raw)
    return buffer.getvalue()


def zstd_zip_of(members: dict[str, bytes]) -> bytes:
    """Members of method 93, made of stored ones: the headers then say zstd and how large they unpack."""
    packed = {name: zstandard.compress(raw) for name, raw in members.items()}
    raw = bytearray(zip_of(packed, zipfile.ZIP_STORED))
    for mark, method in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = raw.find(mark)
        while at >= 0:
            struct.pack_into("<H", raw, at + method, 93)
            at = raw.find(mark, at + 4)
    return bytes(raw)
