"""What an import spares itself: rows parsed twice, identities hashed twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quintain.importers.files.byte_streams import ReadState
from quintain.importers.files.probing import MAX_ROWS, probe_file
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Report
from quintain.records.trajectory import Trajectory
from quintain.redaction.redact import redact, texts_of

ROWS: list[dict[str, Any]] = [{"n": n, "messages": [{"role": "user", "content": "x" * n}]} for n in range(30)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def rows_of(path: Path, reading: ReadState) -> list[Any]:
    return [row.value for row in LogFile(path, path.parent, reading).rows(Report())]


def test_rows_that_detection_has_parsed_reach_the_reader_once_and_as_they_are(log: Path) -> None:
    found = probe_file(log, log.parent)
    assert list(found.parsed.values()) == ROWS[:MAX_ROWS]
    reading = ReadState(parsed=dict(found.parsed))
    rows = rows_of(log, reading)
    assert rows == ROWS
    assert all(row is known for row, known in zip(rows, found.probe.rows, strict=False))
    assert not reading.parsed
    again = rows_of(log, reading)
    assert again == ROWS
    assert not any(
        row is known for row, known in zip(again, rows, strict=True)
    )  # readers may change what they are given
    log.write_text(json.dumps({"n": "new"}) + "\n" + log.read_text())
    assert rows_of(log, ReadState(parsed=dict(found.parsed))) == [{"n": "new"}, *ROWS], "a new row is parsed anew"


@pytest.mark.parametrize("row", ['{"a": "\\ud800"}', '{"a": NaN}', '{"a": 1e999}'])
def test_rows_with_something_to_mend_are_left_to_the_reader_which_counts_the_repair_once(
    tmp_path: Path, row: str
) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(f'{{"b": 1}}\n{row}\n')
    found = probe_file(path, tmp_path)
    assert found.parsed == {}
    reading = ReadState(parsed=dict(found.parsed))
    rows_of(path, reading)
    assert sum(reading.repairs.values()) == 1


def test_a_root_that_is_a_link_is_opened_and_a_link_below_it_is_not(log: Path) -> None:
    root = log.parent / "linked"
    root.symlink_to(log.parent, target_is_directory=True)
    assert [row.value for row in LogFile(root / log.name, root).rows(Report())] == ROWS
    (log.parent / "below.jsonl").symlink_to(log)
    report = Report()
    assert list(LogFile(log.parent / "below.jsonl", log.parent).rows(report)) == []
    assert report.n_rejected == 1


def _run(said: str) -> Trajectory:
    return Trajectory.model_validate({"steps": [{"actor": "agent", "message": said}]})


def test_a_run_whose_identity_was_asked_for_is_the_same_run() -> None:
    run, asked = _run("key sk-ant-" + "a1B2" * 8), _run("key sk-ant-" + "a1B2" * 8)
    assert len(asked.identity) == 64
    assert asked == run
    assert asked.model_dump_json() == run.model_dump_json()
    assert redact(asked) == redact(run)
    assert redact(asked).identity != asked.identity
    assert texts_of(run)[1] == texts_of(asked)[1]
