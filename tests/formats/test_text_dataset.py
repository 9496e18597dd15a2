"""Plain text becomes rows: documents of files and lines, without repeats, on one side of a split each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import InvalidInput
from quintain.formats.export import ExportOptions
from quintain.formats.rows import read_rows
from quintain.formats.text import MAX_TEXT_CHARS, write_text


def _options(**fields: Any) -> ExportOptions:
    return ExportOptions(**({"dataset_id": "ds-1", "name": "books", "kind": "text"} | fields))


def _texts(folder: Path, split: str = "train") -> list[str]:
    return [row.text for row in read_rows(folder, split, kind="text")]


def test_a_file_is_a_document_and_so_is_a_line_of_jsonl(tmp_path: Path) -> None:
    """A byte-order mark is no text; of five documents one repeats another and one is blank."""
    book, lines = tmp_path / "book.md", tmp_path / "notes.jsonl"
    book.write_bytes("\ufeffFirst.\n\nSecond: \u00e9\n".encode())
    lines.write_text('{"text": "a note", "source": "x"}\n\n{"text": "a note"}\n', encoding="utf-8")
    written = write_text([book, lines, "given"], tmp_path / "ds-1", _options())
    assert _texts(tmp_path / "ds-1") == ["First.\n\nSecond: \u00e9\n", "a note", "given"]
    assert (written.dataset.kind, written.dataset.rows, written.members) == ("text", 3, [])
    assert written.dataset.dropped == {"duplicate": 1, "empty_text": 1}
    manifest = json.loads((tmp_path / "ds-1" / "manifest.json").read_text())
    assert manifest["selection"] == {"shares": {}}, "nothing is told of runs"


def test_documents_are_split_by_their_content(tmp_path: Path) -> None:
    """200 documents, a quarter for validation: 50 on average, within 5 standard deviations (31); order does not matter."""
    texts = [f"document {i}" for i in range(200)]
    options = _options(shares={"validation": 0.25})
    write_text(texts, tmp_path / "a", options)
    write_text(reversed(texts), tmp_path / "b", options)
    sides = [[set(_texts(tmp_path / name, split)) for split in ("train", "validation")] for name in "ab"]
    assert sides[0] == sides[1]
    assert sides[0][0] | sides[0][1] == set(texts)
    assert abs(len(sides[0][1]) - 50) <= 31


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"\xff\xfe", r"a\.txt is not UTF-8 text"),
        ("a.txt", b" \n", r"none of 1 texts is left.*empty_text 1"),
        ("a.txt", b"x" * (MAX_TEXT_CHARS + 1), r"a\.txt holds more than 8,000,000 characters"),
        ("a.jsonl", b'{"text": "x"}\n{oops\n', r"a\.jsonl:2 is not JSON"),
        ("a.jsonl", b'{"body": "x"}\n', r"a\.jsonl:1 has no `text`"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"a\.jsonl:1 holds a lone surrogate"),
        ("a.txt", None, r"a\.txt cannot be read"),
    ],
)
def test_what_is_no_text_is_named_and_leaves_nothing(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match=said):
        write_text([path], tmp_path / "datasets" / "ds-1", _options())
    assert list((tmp_path / "datasets").iterdir()) == []


def test_no_text_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no text was selected"):
        write_text([], tmp_path / "ds-1", _options())
