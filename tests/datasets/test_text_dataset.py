"""Plain text becomes rows: documents of files and lines, without repeats, on one side of a split each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quintain.datasets.dataset_writer import ExportOptions
from quintain.datasets.rows import read_rows
from quintain.datasets.selection import ExportCounts
from quintain.datasets.text_dataset import MAX_TEXT_CHARS, write_text
from quintain.errors import InvalidInput


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
    assert (written.dataset.kind, written.dataset.rows, written.members) == ("text", 3, {})
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
        ("a.txt", b"\xff\xfe", r"a\.txt: not UTF-8 text"),
        ("a.txt", b" \n", r"none of 1 texts is left.*empty_text 1"),
        ("a.txt", b"x" * (MAX_TEXT_CHARS + 1), r"a\.txt: has more than 8,000,000 characters"),
        ("a.jsonl", b"\n{oops\n", r"a\.jsonl:2: not JSON"),
        ("a.jsonl", b'{"body": "x"}\n', r"a\.jsonl:1: has no `text`"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"a\.jsonl:1: it contains a lone surrogate"),
        ("a.txt", None, r"a\.txt: cannot be read"),
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


def test_what_cannot_be_read_is_listed_and_the_rest_comes_in(tmp_path: Path) -> None:
    """Of six lines one is torn, one has no text and one is no UTF-8; of two files one is a picture."""
    lines, picture, tally = tmp_path / "a.jsonl", tmp_path / "b.png", ExportCounts()
    lines.write_bytes(b'{"text": "one"}\n{"text": "tw\n{"body": "x"}\n\n{"text": "\xff"}\n{"text": "two"}\n')
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    written = write_text([lines, picture], tmp_path / "ds-1", _options(), tally)
    assert _texts(tmp_path / "ds-1") == ["one", "two"]
    assert written.dataset.dropped == {"unreadable_row": 4, "empty_text": 1}
    assert [row.place for row in tally.rejected] == ["a.jsonl:2", "a.jsonl:3", "a.jsonl:5", "b.png"]
    manifest = json.loads((tmp_path / "ds-1" / "manifest.json").read_text())
    assert [row["line"] for row in manifest["rejected"]] == [2, 3, 5, None]


def test_secrets_are_taken_out_of_plain_text_and_counted(tmp_path: Path) -> None:
    """Texts that differ in their secrets alone are one; without redaction both stay as they are."""
    texts = [f"token ghp_{c * 36} of jo@corp.org" for c in "aB"]
    written = write_text(texts, tmp_path / "ds-1", _options())
    assert _texts(tmp_path / "ds-1") == ["token [REDACTED:github_token] of [REDACTED:email]"]
    assert (written.redactions, written.dataset.dropped) == ({"github_token": 2, "email": 2}, {"duplicate": 1})
    manifest = (tmp_path / "ds-1" / "manifest.json").read_text()
    assert json.loads(manifest)["redactions"] == written.redactions
    write_text(texts, tmp_path / "ds-2", _options(), redact=())
    assert _texts(tmp_path / "ds-2") == texts


def test_no_text_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no text was selected"):
        write_text([], tmp_path / "ds-1", _options())
