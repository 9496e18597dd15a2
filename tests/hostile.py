"""What tests of hostile files share: files made of bytes, imports that keep nothing, a bound on memory, values to draw."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import zstandard
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from quintain.errors import InvalidInput
from quintain.importers.files.probing import probe
from quintain.importers.log_file import LogFile
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.protocol import Probe, Report
from quintain.importers.registry import detect, importer
from quintain.importers.row_reader import Importer
from quintain.importers.run_sink import DryRun
from quintain.records.imports import ImportReport
from quintain.records.text import require_clean
from quintain.records.trajectory import Trajectory

MB = 2**20

CALM = settings(max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=6), JSON, min_size=1, max_size=4), min_size=1, max_size=6)


def log(folder: Path, raw: bytes, name: str = "log.jsonl") -> LogFile:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
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


WRONG: tuple[Any, ...] = (
    *(None, 0, -1.5, True, "", "x", "{", [], ["x"], [None], [[]], [{}], {}, {"x": None}, 1e300, 10**300, "\ufffd"),
    *(
        "attachment://x",
        "0001-01-01T00:00:00+05:00",
        '[{"type": 1}]',
        {"type": 3},
        [{"type": []}],
        [{"content": {"a": []}}],
    ),
)
"""Values that a field has by mistake: every kind of value, and texts that are JSON or times at the edge."""


def mutations(value: Any, at_most: int) -> Iterator[Any]:
    """The value with one part of it replaced or left out, part by part, or every second or third part of a large one.

    The wrong values take turns.
    """
    paths = list(_paths(value))
    for turn, path in enumerate(paths[:: len(paths) // at_most + 1]):
        yield _replaced(value, path, WRONG[turn % len(WRONG)])
        if isinstance(path[-1], str):
            yield _replaced(value, path, None, leave_out=True)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from _paths(item, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], wrong: Any, *, leave_out: bool = False) -> Any:
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) > 1:
        copy[path[0]] = _replaced(copy[path[0]], path[1:], wrong, leave_out=leave_out)
    elif leave_out:
        del copy[path[0]]
    else:
        copy[path[0]] = wrong
    return copy


def read_calmly(reader: Importer, file: LogFile, found: Probe | None = None) -> list[Trajectory]:
    """The runs before a rejection of the whole file; any other error fails the test."""
    runs: list[Trajectory] = []
    with suppress(InvalidInput):
        assert 0 <= reader.detect(found or probe(file.path, file.root)) <= 1
        runs.extend(run.trajectory for run in reader.read(file, Report()))
    for trajectory in runs:
        require_clean(trajectory.model_dump(mode="json"), "run")
    return runs


def survives(format: str, value: Any, folder: Path) -> None:
    """Read a log with about thirty of its parts made wrong in turn: only rejections or our errors result."""
    name = "log.jsonl" if isinstance(value, list) else "log.json"
    for changed in mutations(value, 30):
        raw = b"".join(json.dumps(row).encode() + b"\n" for row in (changed if isinstance(value, list) else [changed]))
        file = log(folder, raw, name)
        assert not detect(probe(file.path, folder)).failed
        for run in read_calmly(importer(format), file):
            assert run.agent_steps
            assert run.identity
