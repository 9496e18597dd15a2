"""Every reader, fed with what it does not expect: it rejects, it never fails, and it never thinks for long."""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import CALM, JSON, WRONG, imported, log, mutations, read_calmly, zip_of
from quintain.errors import InvalidInput
from quintain.importers.files.probing import probe
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe
from quintain.importers.registry import IMPORTERS, detect, importer
from quintain.importers.row_reader import Importer
from small_logs import SMALL_LOGS, content

FORMATS = sorted(SMALL_LOGS)


@pytest.mark.parametrize("format", FORMATS)
def test_a_wrong_value_in_any_place_costs_only_its_own_row(tmp_path: Path, format: str) -> None:
    """The reader's own log with its parts made wrong in turn; in formats of rows all of them before a good row."""
    reader, (name, value) = importer(format), SMALL_LOGS[format]
    has_rows = isinstance(value, list) and len(value) == 1 and format != "langsmith"
    good = read_calmly(reader, log(tmp_path, content(name, value), name))[-1].steps[-1]
    changes = list(mutations(value, 80))
    for changed in [[*chain(*changes), *value]] if has_rows else changes:
        runs = read_calmly(reader, log(tmp_path, content(name, changed), name))
        assert not has_rows or good == runs[-1].steps[-1]


NAMELESS = {
    "openai_chat": [
        {"messages": [{"role": "assistant", "content": [{"type": [], "functionCall": {"name": "f"}}]}]},
        {"input": [{"type": "message", "role": [], "content": "x"}, {"type": "function_call", "name": "f"}]},
    ],
    "cline": [*SMALL_LOGS["cline"][1][:2], {"role": "user", "content": [{"type": "text", "tool_use_id": []}]}],
    "pydantic_ai": [
        *SMALL_LOGS["pydantic_ai"][1][:2],
        {"kind": "request", "parts": [{"part_kind": "tool-return", "content": [{"kind": []}], "tool_call_id": "c1"}]},
    ],
}
"""Logs with a list where the name of a kind, a role or a call belongs."""


@pytest.mark.parametrize("format", NAMELESS)
def test_a_list_in_the_place_of_a_name_names_nothing(tmp_path: Path, format: str) -> None:
    read_calmly(importer(format), log(tmp_path, json.dumps(NAMELESS[format]).encode(), "log.json"))


@pytest.fixture(scope="module")
def strange_files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[LogFile, Probe]]:
    """The logs of all formats under one name, and files that are no logs."""
    folder = tmp_path_factory.mktemp("strange")
    contents = [content(*small) for small in SMALL_LOGS.values()]
    contents += [json.dumps(wrong).encode() for wrong in WRONG]
    contents += [b"", b"\0" * 100, zip_of({"header.json": b'{"eval": {}}', "samples/1_epoch_1.json": b"{}"})]
    files = []
    for n, raw in enumerate(contents):
        (folder / str(n)).mkdir()
        file = log(folder / str(n), raw, "strange.json")
        with suppress(InvalidInput):
            files.append((file, probe(file.path, file.root)))
    return files


@pytest.mark.parametrize("reader", IMPORTERS, ids=lambda reader: reader.name)
def test_a_reader_takes_the_logs_of_all_other_formats_calmly(
    reader: Importer, strange_files: list[tuple[LogFile, Probe]]
) -> None:
    for file, found in strange_files:
        read_calmly(reader, file, found)


# Beginnings without ends: what makes a pattern try every place again.
ENDLESS = (
    *(
        "<think>",
        "<think> ",
        "<tool_call>{",
        "<function=a><parameter=b>",
        "<|im_start|>",
        "<returncode>",
        "<<1+1=2>>####",
    ),
    *("```bash\n", "Act: bash\n\n```bash\n", "Step 1:\nThought: x\nAction: f(", "Thought: Action: ", "Observation: "),
    *('{"a":', "[", "((", "f('a', ", '\\"', "a,", " ", "\n"),
)


@pytest.mark.parametrize("format", FORMATS)
def test_no_text_makes_a_reader_think_for_long(tmp_path: Path, format: str) -> None:
    """All prose of a log replaced by 10,000 characters that only begin; quadratic patterns take half a second here."""
    reader, (name, value) = importer(format), SMALL_LOGS[format]
    slow = []
    for piece in ENDLESS:
        file = log(tmp_path, content(name, _prose_replaced(value, piece * (10_000 // len(piece)))), name)
        took = math.inf
        for _ in range(3):  # a collection of garbage in this large process takes as long as the bound
            begin = time.process_time()
            read_calmly(reader, file)
            took = min(took, time.process_time() - begin)
            if took <= 0.2:
                break
        else:
            slow.append(f"{piece!r}: {took:.2f} s")
    assert not slow


def _prose_replaced(value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {key: _prose_replaced(inner, text) for key, inner in value.items()}
    if isinstance(value, list):
        return [_prose_replaced(inner, text) for inner in value]
    return text if isinstance(value, str) and " " in value and not value.startswith("{") else value


def test_detection_looks_at_anything() -> None:
    """The keys of all formats at once with each wrong value, and each key alone with one of them."""
    parts = ("folder", "file.json")
    rows = [row for _, value in SMALL_LOGS.values() for row in (value if isinstance(value, list) else [value])]
    keys = sorted({key for row in rows if isinstance(row, dict) for key in row})
    alone = [({key: wrong}, wrong) for key, wrong in zip(keys, cycle(WRONG))]
    for document, wrong in [*((dict.fromkeys(keys, wrong), wrong) for wrong in WRONG), *alone]:
        for shape in ("object", "array", "lines", "zip", "other"):
            found = detect(Probe(parts, shape, document if shape == "object" else None, (document, wrong)))  # type: ignore[arg-type]
            assert found.failed == ()
            assert 0 <= found.confidence <= 1


@pytest.mark.parametrize("format", FORMATS)
def test_a_log_that_ends_anywhere_is_imported_calmly(tmp_path: Path, format: str) -> None:
    """Every log cut at eight places, in one folder each: nothing fails, and what is cut off is never invented."""
    name, value = SMALL_LOGS[format]
    raw = content(name, value)
    whole = _read_alone(tmp_path, format, name, raw)
    for n in range(1, 9):
        path = tmp_path / f"{n:02}" / name
        path.parent.mkdir()
        path.write_bytes(raw[: len(raw) * n // 9])

    report = imported(tmp_path, format="auto")

    assert not [one for one in report.rejected if "failed on it" in one.reason or "unexpected" in one.reason]
    assert max((file.steps for file in report.files if "/" in file.file), default=0) <= whole
    assert report.n_rejected + report.n_refused + len([f for f in report.files if f.trajectories]) >= 8


def _read_alone(folder: Path, format: str, name: str, raw: bytes) -> int:
    (folder / name).write_bytes(raw)
    report = imported(folder / name, format=format)
    return sum(file.steps for file in report.files)


@CALM
@given(data=st.data())
def test_no_rows_break_an_import(tmp_path: Path, data: st.DataObject) -> None:
    """Rows with the keys of real formats and any values: nothing fails, and every run that comes in is clean."""
    name, small = data.draw(st.sampled_from([log for log in SMALL_LOGS.values() if not isinstance(log[1], str)]))
    row = small if isinstance(small, dict) else data.draw(st.sampled_from(small))
    row = dict(row) | data.draw(st.dictionaries(st.sampled_from(sorted(row)), JSON, max_size=3))
    (tmp_path / name).write_bytes(content(name, [row] if isinstance(small, list) else row))
    report = imported(tmp_path)
    (tmp_path / name).unlink()
    assert not [one for one in report.rejected if "failed on it" in one.reason], report.rejected
    assert not [note for note in report.notes if "failed to detect" in note]
