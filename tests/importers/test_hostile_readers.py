"""Every reader, fed with what it does not expect: it rejects, it never fails, and it never thinks for long."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import CALM, JSON, imported, log
from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.probing import probe
from quintain.importers.protocol import Probe, Report
from quintain.importers.registry import IMPORTERS, Importer, detect, importer
from quintain.records.text import require_clean
from small_logs import SMALL_LOGS, content, eval_archive

WRONG: tuple[Any, ...] = (
    None,
    0,
    -1.5,
    True,
    "",
    "x",
    "{",
    [],
    ["x"],
    [None],
    [[]],
    [{}],
    {},
    {"x": None},
    1e300,
    "\ufffd",
)


def mutations(value: Any) -> Iterator[Any]:
    """The value with one part of it replaced or left out, part by part; the wrong values take turns."""
    for turn, path in enumerate(_paths(value)):
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


def unexpected(reader: Importer, file: LogFile) -> str | None:
    """What a reader raises beside `InvalidInput`."""
    try:
        found = probe(file.path, file.root)
        assert 0 <= reader.detect(found) <= 1
        for run in reader.read(file, Report()):
            require_clean(run.trajectory.model_dump(mode="json"), "run")
    except InvalidInput:
        return None
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
        return f"{type(error).__name__} at {where}: {str(error)[:80]}"
    return None


@pytest.mark.parametrize("reader", IMPORTERS, ids=lambda reader: reader.name)
def test_a_reader_rejects_what_it_does_not_expect_and_never_fails(tmp_path: Path, reader: Importer) -> None:
    """Its own log with every part made wrong in turn."""
    if reader.name not in SMALL_LOGS:
        pytest.skip("no small log")
    name, value = SMALL_LOGS[reader.name]
    faults: dict[str, Any] = {}
    for changed in mutations(value):
        if fault := unexpected(reader, log(tmp_path, content(name, changed), name)):
            faults.setdefault(fault, changed)
    assert not faults, "\n".join(
        f"{fault}  <-  {json.dumps(cause)[:300]}" for fault, cause in list(faults.items())[:10]
    )


ROW_FORMATS = sorted(
    {name for name, (_, value) in SMALL_LOGS.items() if isinstance(value, list) and len(value) == 1} - {"langsmith"}
)


@pytest.mark.parametrize("format", ROW_FORMATS)
def test_a_row_that_is_wrong_in_any_place_leaves_the_next_one_whole(tmp_path: Path, format: str) -> None:
    reader, (name, value) = importer(format), SMALL_LOGS[format]

    def told(rows: list[Any]) -> list[str]:
        found = reader.read(log(tmp_path, content(name, rows), name), Report())
        return [run.trajectory.steps[-1].model_dump_json() for run in found]

    good = told(value)
    lost = [row for (row,) in mutations(value) if good[-1] not in told([row, *value])]
    assert good
    assert not lost, json.dumps(lost[0])


@pytest.mark.parametrize("reader", IMPORTERS, ids=lambda reader: reader.name)
def test_a_reader_takes_the_logs_of_all_other_formats_calmly(tmp_path: Path, reader: Importer) -> None:
    strange = {format: content(*small) for format, small in SMALL_LOGS.items()}
    strange |= {f"strange {i}": json.dumps(wrong).encode() for i, wrong in enumerate(WRONG)}
    strange |= {"nothing": b"", "nuls": b"\0" * 100, "zip": eval_archive({"eval": {}}, {"samples/1_epoch_1.json": {}})}
    faults = {
        f"{format}: {fault}"
        for format, raw in strange.items()
        if (fault := unexpected(reader, log(tmp_path, raw, "strange.json")))
    }
    assert not faults, "\n".join(sorted(faults))


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


@pytest.mark.parametrize("format", list(SMALL_LOGS))
def test_no_text_makes_a_reader_think_for_long(tmp_path: Path, format: str) -> None:
    """All prose of a log replaced by 30,000 characters that only begin; quadratic patterns take seconds here."""
    reader, (name, value) = importer(format), SMALL_LOGS[format]
    slow = []
    for piece in ENDLESS:
        file = log(tmp_path, content(name, _prose_replaced(value, piece * (30_000 // len(piece)))), name)
        begin = time.process_time()
        assert unexpected(reader, file) is None
        if (took := time.process_time() - begin) > 0.5:
            slow.append(f"{piece!r}: {took:.1f} s")
    assert not slow


def _prose_replaced(value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {key: _prose_replaced(inner, text) for key, inner in value.items()}
    if isinstance(value, list):
        return [_prose_replaced(inner, text) for inner in value]
    return text if isinstance(value, str) and " " in value and not value.startswith("{") else value


@pytest.mark.parametrize("shape", ["object", "array", "lines", "zip", "other"])
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_detection_looks_at_anything(shape: Any, wrong: Any) -> None:
    parts = ("folder", "file.json")
    keys = {
        key
        for _, value in SMALL_LOGS.values()
        for row in (value if isinstance(value, list) else [value])
        for key in row
    }
    for document in (dict.fromkeys(keys, wrong), *({key: wrong} for key in keys)):
        found = detect(Probe(parts, shape, document if shape == "object" else None, (document, wrong)))
        assert found.failed == ()
        assert 0 <= found.confidence <= 1


@pytest.mark.parametrize("format", list(SMALL_LOGS))
def test_a_log_that_ends_anywhere_is_imported_calmly(tmp_path: Path, format: str) -> None:
    """Every log cut at sixteen places, in one folder each: nothing fails, and what is cut off is never invented."""
    if format not in {known.name for known in IMPORTERS}:
        pytest.skip(f"no reader {format}")
    name, value = SMALL_LOGS[format]
    raw = content(name, value)
    whole = _read_alone(tmp_path, format, name, raw)
    for n in range(1, 17):
        path = tmp_path / f"{n:02}" / name
        path.parent.mkdir()
        path.write_bytes(raw[: len(raw) * n // 17])

    report = imported(tmp_path, format="auto")

    assert not [one for one in report.rejected if "failed on it" in one.reason or "unexpected" in one.reason]
    assert max((file.steps for file in report.files if "/" in file.file), default=0) <= whole
    assert report.n_rejected + report.n_refused + len([f for f in report.files if f.trajectories]) >= 16


def _read_alone(folder: Path, format: str, name: str, raw: bytes) -> int:
    (folder / name).write_bytes(raw)
    report = imported(folder / name, format=format)
    return sum(file.steps for file in report.files)


@CALM
@given(data=st.data())
def test_no_rows_break_an_import(tmp_path: Path, data: st.DataObject) -> None:
    """Rows with the keys of real formats and any values: nothing fails, and every run that comes in is clean."""
    name, small = data.draw(st.sampled_from(list(SMALL_LOGS.values())))
    row = small if isinstance(small, dict) else data.draw(st.sampled_from(small))
    row = dict(row) | data.draw(st.dictionaries(st.sampled_from(sorted(row)), JSON, max_size=3))
    (tmp_path / name).write_bytes(content(name, [row] if isinstance(small, list) else row))
    report = imported(tmp_path)
    (tmp_path / name).unlink()
    assert not [one for one in report.rejected if "failed on it" in one.reason], report.rejected
    assert not [note for note in report.notes if "failed to detect" in note]
