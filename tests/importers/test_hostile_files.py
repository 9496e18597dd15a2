"""Files that are torn, mislabelled, enormous or made to hurt: the good records come in, the bad ones are listed, all stays calm."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import socket
import threading
from collections.abc import Callable
from itertools import chain, product, repeat
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hostile import CALM, JSON, MB, OBJECTS, imported, log, memory_below, rows, zip_of
from quintain.errors import InvalidInput
from quintain.importers.files import byte_streams, json_parser
from quintain.importers.files.probing import outline, probe
from quintain.importers.files.raw_values import elements, lines
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Report
from quintain.records.imports import ImportReport
from quintain.records.text import require_clean

GOOD: list[Any] = [{"n": i, "text": f'é \U0001f600 " \\ [{i}]\n', "inner": {"list": [1, None, True]}} for i in range(3)]


# --- encodings x shapes x faults ------------------------------------------------------------------------------------

ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "utf-8": lambda text: text.encode(),
    "utf-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "utf-16 little": lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
    "utf-16 big": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "utf-16 without a mark": lambda text: text.encode("utf-16-le"),
    "utf-32": lambda text: text.encode("utf-32"),
}
SHAPES: dict[str, Callable[[list[str]], str]] = {
    "lines": lambda texts: "\n".join(texts) + "\n",
    "lines of windows with gaps": lambda texts: "\r\n\r\n".join(texts),
    "array": lambda texts: f"[{', '.join(texts)}]",
    "array over lines": lambda texts: "[\n" + ",\n".join(texts) + "\n]\n",
    "values over lines": lambda texts: "\n".join(text.replace("{", "{\n ", 1) for text in texts),
}
# Fault -> a bad second value, and what its rejection says; None: it comes in, mended to this value.
FAULTS: dict[str, tuple[str, str | None, Any]] = {
    "none": (json.dumps(GOOD[1]), None, GOOD[1]),
    "no json": ('{"a": nonsense}', "not JSON", None),
    "single quotes": ("{'a': 1}", "not JSON", None),
    "trailing comma": ('{"a": 1,}', "not JSON", None),
    "long number": ('{"a": ' + "9" * 5000 + "}", "4,300 digits", None),
    "deep": ('{"a": ' + "[" * 150 + "]" * 150 + "}", "100 levels", None),
    "very deep": ('{"a": ' + "[" * 10_000 + "]" * 10_000 + "}", "100 levels", None),
    "not finite": ('{"a": NaN, "b": [-Infinity, 1e999]}', None, {"a": None, "b": [None, None]}),
    "half a character": ('{"a\\ud83d": "x\\udc00y\\uD83D"}', None, {"a\ufffd": "x\ufffdy\ufffd"}),
    "nul": ('{"a": "x\\u0000y"}', None, {"a": "x\ufffdy"}),
    "raw control characters": ('{"a": "tab\t bell\x07"}', None, {"a": "tab\t bell\x07"}),
    "twice the same key": ('{"a": 1, "a": 2}', None, {"a": 2}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_bad_value_costs_only_itself_in_every_encoding_and_shape(tmp_path: Path, fault: str) -> None:
    text, reason, mended = FAULTS[fault]
    for encode, (shape, write) in product(ENCODINGS.values(), SHAPES.items()):
        found, rejected, file = rows(tmp_path, encode(write([json.dumps(GOOD[0]), text, json.dumps(GOOD[2])])))

        number = 3 if "gaps" in shape else 2
        assert found == ([GOOD[0], GOOD[2]] if reason else [GOOD[0], mended, GOOD[2]])
        assert [(line, reason in why) for line, why in rejected if reason] == ([(number, True)] if reason else [])
        assert len(rejected) == (reason is not None)
        assert bool(file.reading.repairs) == (fault in {"not finite", "half a character", "nul"})


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip of two members": lambda raw: gzip.compress(raw[:40]) + gzip.compress(raw[40:]),
    "zstd": lambda raw: zstandard.compress(raw),
    "zstd of two frames": lambda raw: zstandard.compress(raw[:40]) + zstandard.compress(raw[40:]),
    "bzip2": bz2.compress,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_packed_files_are_read_by_what_they_are_and_a_cut_one_as_far_as_it_goes(tmp_path: Path, packing: str) -> None:
    for shape, write in SHAPES.items():
        found, rejected, _ = rows(tmp_path, PACKINGS[packing](write(list(map(json.dumps, GOOD))).encode()), "log.txt")
        assert (found, rejected) == (GOOD, [])
        assert probe(tmp_path / "log.txt", tmp_path).shape == ("array" if "array" in shape else "lines")
    many = [{"n": i, "hash": f"{i * 2654435761 % 2**32:08x}"} for i in range(60)]
    whole = PACKINGS[packing]("".join(json.dumps(row) + "\n" for row in many).encode())
    for cut in (3, 10, 20, 200, -8, -1):
        found, rejected, _ = rows(tmp_path, whole[:cut])
        assert found == many[: len(found)]
        assert rejected or found == many, "a checksum that is missing at the very end costs nothing"


@pytest.mark.parametrize("raw", [b"caf\xe9", b"\x80\x81", b"\xc3", b"\xed\xa0\x80", b"\xff", b"\xf5\x80\x80\x80"])
def test_bytes_that_are_no_text_become_replacement_characters_and_are_counted(tmp_path: Path, raw: bytes) -> None:
    for write in SHAPES.values():
        written = write([json.dumps(GOOD[0]), '{"a": "HERE"}', json.dumps(GOOD[2])]).encode()
        found, rejected, file = rows(tmp_path, written.replace(b"HERE", raw))
        assert not rejected
        assert [found[0], found[2]] == [GOOD[0], GOOD[2]]
        assert found[1]["a"].endswith("\ufffd")
        assert file.reading.repairs[byte_streams.UNDECODABLE] >= 1


# --- files that end too early, anywhere -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_a_torn_file_gives_every_row_that_is_whole(tmp_path: Path, shape: str) -> None:
    written = SHAPES[shape]([json.dumps(row) for row in GOOD]).encode()
    for cut in range(1, 12):
        torn = written[: len(written) * cut // 12]
        whole = sum(json.dumps(row, separators=(",", ":")) in _squeezed(torn) for row in GOOD)
        found, rejected, _ = rows(tmp_path, torn)
        assert found == GOOD[:whole]
        assert len(rejected) <= 1
        assert rejected or whole, "what is missing is listed"


def _squeezed(raw: bytes) -> str:
    """The text without the white space between values."""
    text = raw.decode("utf-8", errors="ignore")
    for loose, tight in ((": ", ":"), (", ", ","), ("{\n ", "{")):
        text = text.replace(loose, tight)
    return text


# --- bombs and giants ---------------------------------------------------------------------------------------------------


def test_a_line_above_the_limit_is_rejected_without_being_held(tmp_path: Path) -> None:
    path, good = tmp_path / "log.jsonl", json.dumps(GOOD[0]).encode()
    with path.open("wb") as file:
        file.write(good + b'\n{"a": "')
        for _ in range(80):
            file.write(b"x" * MB)
        file.write(b'"}\n' + good)
    report = Report()
    with memory_below(16 * MB):
        found = list(LogFile(path, tmp_path).rows(report))
    assert [(row.line, row.value) for row in found] == [(1, GOOD[0]), (3, GOOD[0])]
    assert report.rejected == [(2, "larger than 64 MiB")]


def test_an_element_above_the_limit_is_cut_out_without_being_held() -> None:
    good = json.dumps(GOOD[0]).encode()
    long = (b"x" * 1020 + b'", "') * 1024
    with memory_below(10 * MB):
        found = list(elements(chain([b"[" + good + b', {"a": ["'], repeat(long, 20), [b'"]},' + good + b"]"]), 4 * MB))
    assert [(piece.number, piece.raw and piece.raw.strip()) for piece in found] == [(1, good), (2, None), (3, good)]


def test_many_rows_are_read_in_constant_memory(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "x" * 4000}, {"role": "assistant", "content": "y"}]
    row = json.dumps({"messages": chat}).encode()
    for name, raw in (("log.jsonl", (row + b"\n") * 1500), ("log.json", b"[" + (row + b",") * 1499 + row + b"]")):
        file = log(tmp_path, raw, name)
        with memory_below(5 * MB):
            assert sum(1 for _ in file.rows(Report())) == 1500


def test_a_value_of_too_many_values_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_parser, "MAX_VALUES", 1000)
    found, rejected, _ = rows(tmp_path, b'{"a": [' + b"[]," * 2000 + b"[]]}\n{}\n")
    assert found == [{}]
    assert rejected == [(1, "expected at most 1,000 values")]


@pytest.mark.parametrize("packing", ["gzip", "zstd", "bzip2"])
def test_a_bomb_is_left_before_it_goes_off(tmp_path: Path, packing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MB of blank lines after a good row pack to some kB; of the good row all is kept."""
    monkeypatch.setattr(byte_streams, "RATIO_FREE_BYTES", MB // 2)
    bomb = PACKINGS[packing](b'{"good": 1}\n' + (b" " * 4999 + b"\n") * 1600)
    with memory_below(40 * MB):
        found, rejected, file = rows(tmp_path, bomb)
    assert found == [{"good": 1}]
    assert len(rejected) == 1
    assert "bomb" in rejected[0][1]
    assert file.reading.unpacked < 4 * MB


def test_a_document_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.importers.log_file.MAX_DOCUMENT_BYTES", 3 * MB)
    file = log(tmp_path, gzip.compress(json.dumps({"a": os.urandom(2 * MB).hex()}).encode()), "a.json.gz")
    with memory_below(24 * MB), pytest.raises(InvalidInput, match="3 MiB"):
        file.document()


# --- what expected a regular file, and what lies outside -----------------------------------------------------------------------

ROW = json.dumps({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}) + "\n"


def test_links_pipes_sockets_and_secret_files_are_listed_and_not_opened(tmp_path: Path) -> None:
    folder, outside = tmp_path / "logs", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret.jsonl").write_text(ROW)
    (folder / "good.jsonl").write_text(ROW)
    (folder / "a-link-out.jsonl").symlink_to(outside / "secret.jsonl")
    (folder / "a-folder-out").symlink_to(outside)
    (folder / "a-link-in.jsonl").symlink_to(folder / "good.jsonl")
    (folder / "a-loop").symlink_to(folder)
    (folder / "a-broken-link").symlink_to(folder / "nowhere")
    (folder / "a-ring").symlink_to(folder / "a-ring")
    os.mkfifo(folder / "a-pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "s"))
        (folder / "closed.jsonl").write_text(ROW)
        (folder / "closed.jsonl").chmod(0)
        report = imported(folder)

    reasons = {one.file: one.reason for one in report.rejected}
    assert report.imported == 1 or os.geteuid() == 0
    assert "target outside the folder" in reasons["a-link-out.jsonl"]
    assert "target outside the folder" in reasons["a-folder-out"]
    assert "at its own path" in reasons["a-link-in.jsonl"]
    assert "at its own path" in reasons["a-loop"]
    assert "a broken link" in reasons["a-broken-link"]
    assert "a broken link" in reasons["a-ring"]
    assert "named pipe" in reasons["a-pipe.jsonl"]
    assert "socket" in reasons["s"]
    if os.geteuid() != 0:
        assert "Permission denied" in reasons["closed.jsonl"]


@pytest.mark.parametrize(
    "relative",
    [
        "../outside.json",
        "../../outside.json",
        "/etc/passwd",
        "link.json",
        "folder/../../outside.json",
        "a\0b",
        "x" * 9999,
        ".",
    ],
)
def test_a_reader_gets_no_sibling_outside_of_the_folder(tmp_path: Path, relative: str) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "outside.json").write_text("{}")
    (root / "link.json").symlink_to(tmp_path / "outside.json")
    file = log(root, b"{}", "log.json")
    assert file.sibling(relative) is None
    assert file.siblings("..") == file.siblings("/etc") == file.siblings("not there") == []
    assert file.reading.consulted


def test_a_file_that_becomes_a_link_or_a_pipe_before_it_is_opened_is_not_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.jsonl").write_text(ROW)
    swapped = [log(root, b"{}", name) for name in ("link.jsonl", "pipe.jsonl", "folder.jsonl", "gone.jsonl")]
    for file in swapped:
        file.path.unlink()
    swapped[0].path.symlink_to(tmp_path / "secret.jsonl")
    os.mkfifo(swapped[1].path)
    swapped[2].path.mkdir()
    for file in swapped:
        report = Report()
        assert list(file.rows(report)) == []
        assert len(report.rejected) == 1
        with pytest.raises(InvalidInput):
            file.document()
        with pytest.raises(InvalidInput):
            probe(file.path, root)


def test_a_file_that_is_swapped_for_a_link_all_the_time_never_leads_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    secret, path = tmp_path / "secret.jsonl", root / "log.jsonl"
    secret.write_text('{"secret": 1}\n')
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for target in (None, secret):
                made = root / "new"
                made.symlink_to(target) if target else made.write_text('{"fine": 1}\n')
                made.replace(path)

    path.write_text('{"fine": 1}\n')
    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        result = [list(LogFile(path, root).rows(Report())) for _ in range(3000)]
    finally:
        over.set()
        swapping.join()
    assert {str([row.value for row in found]) for found in result} <= {"[{'fine': 1}]", "[]"}
    assert any(result)


@pytest.mark.parametrize(
    "name", ["new\nline.jsonl", "bell\x07.jsonl", "\x1b[31mred.jsonl", "bad \udcff bytes.jsonl", "é😀.jsonl"]
)
def test_strange_names_of_files_are_read_and_shown_harmlessly(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(ROW + "{\n")
    report = imported(tmp_path)
    assert report.imported == 1
    assert report.rejected[0].file.isprintable()
    ImportReport.model_validate_json(report.model_dump_json())


EXAMPLE = b"# Logs\n\n```python\nmessages = [\n" + ROW.strip().encode() + b",\n]\n```\n"
OTHER_FILES = {
    "README.md": (b"# Logs\n\n[a list](x) of {things}\n", "text other than JSON"),
    "example.md": (EXAMPLE, "text with few lines of JSON; if it is a log, import it by its own path with its format"),
    "notes.txt": (b"[1] a footnote\n", "JSON"),
    "picture.png": (b"\x89PNG\r\n\x1a\n\0\0\0", "an image"),
    "model.bin": (b"\x01\x02\x00\x00" * 100, "a binary file"),
    "data.parquet": (b"PAR1\0\0\0\0", "Parquet"),
    "state.db": (b"SQLite format 3\0" + b"\0" * 100, "SQLite"),
    "chats.db": (
        b'SQLite format 3\0\n{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}\n',
        "SQLite",
    ),
    "large.jsonl": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
    "archive.xz": (b"\xfd7zXZ\0\0\0", "xz"),
    "empty.jsonl": (b"", "empty"),
    "blank.json": (b" \n\n\t", "empty"),
    "config.json": (b'{"learning_rate": 0.1, "name": "x"}', "with the keys learning_rate, name"),
    "numbers.json": (b"[1, 2, 3]", ": a JSON array without an object"),
    "nothing.json": (b"[]", ": an empty JSON array"),
    "null.json": (b"null\n", ": JSON without an object"),
    "text.json": (b'"hello"', ": JSON without an object"),
    "config.yaml": (b"a: 1\nb: [x]\n", "text other than JSON"),
    "main.py": (b"import os\nprint({'a': 1})\n", "text other than JSON"),
    "table.csv": (b"a,b\n1,2\n", "a table of no known format, with the keys a, b"),
    "latin.csv": ("prompt,response\nTür?,Größe\n".encode("latin-1"), "got byte 0xfc after row 0"),
    "empty.csv": (b"", "expected a first row with the names of the columns"),
    "head.csv": (b"prompt,response\n", "a table without rows"),
    "book.xlsx": (zip_of({"xl/workbook.xml": b"<x/>"}), "an Excel workbook; save it as CSV"),
    "docs.zip": (zip_of({"a.txt": b"x"}), "zip archive"),
}


def test_a_file_that_is_no_log_is_refused_in_plain_words_and_is_no_failure(tmp_path: Path) -> None:
    for name, (raw, _) in OTHER_FILES.items():
        (tmp_path / name).write_bytes(raw)
    report = imported(tmp_path)
    assert (report.imported, report.n_refused + report.n_rejected, report.format) == (0, len(OTHER_FILES), None)
    reasons = {one.file: one.reason for one in report.rejected}
    assert {name for name, (_, reason) in OTHER_FILES.items() if reason not in reasons[name]} == set()
    assert report.notes[0].startswith(f"None of {len(OTHER_FILES)} files contains a trajectory")
    assert imported(tmp_path / "example.md", format="openai_chat").imported == 1


# --- generated ------------------------------------------------------------------------------------------------------------


def _clean(value: Any) -> Any:
    return json.loads(json.dumps(value).replace("\\u0000", "\\ufffd"))


@CALM
@given(values=OBJECTS, size=st.integers(1, 40), indent=st.sampled_from([None, 0, 2]), ascii=st.booleans())
def test_where_chunks_end_changes_nothing(values: list[Any], size: int, indent: int | None, ascii: bool) -> None:
    array = json.dumps(values, indent=indent, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    cut = [array[at : at + size] for at in range(0, len(array), size)]
    assert [json.loads(piece.raw or b"") for piece in elements(cut)] == values
    by_line = b"\n".join(json.dumps(value).encode() for value in values)
    cut = [by_line[at : at + size] for at in range(0, len(by_line), size)]
    assert [json.loads(piece.raw or b"") for piece in lines(cut)] == values


@CALM
@given(values=OBJECTS, junk=st.binary(min_size=1, max_size=40), place=st.integers(0, 6))
def test_junk_between_lines_costs_only_its_own_lines(
    tmp_path: Path, values: list[Any], junk: bytes, place: int
) -> None:
    written = [json.dumps(value).encode() for value in values]
    place = min(place, len(written))
    head, tail = written[:place], written[place:]
    found, _, _ = rows(tmp_path, b"\n".join([b'{"first": 1}', *head, b"# " + junk.replace(b"\n", b" "), *tail]))
    assert found == [{"first": 1}, *map(_clean, values)]


@CALM
@given(
    raw=st.binary(max_size=200),
    head=st.sampled_from([b"", b"{", b"[", b'{"a":', b"\xff\xfe", b"\x1f\x8b", b"BZh9", b"PK\x03\x04"]),
)
def test_no_bytes_break_the_reading_of_a_file(tmp_path: Path, raw: bytes, head: bytes) -> None:
    file, report = log(tmp_path, head + raw, "any.json"), Report()
    for row in file.rows(report):
        require_clean(row.value, "row")
    for look in (file.document, lambda: probe(file.path, tmp_path)):
        try:
            look()
        except InvalidInput:
            pass


@CALM
@given(value=st.dictionaries(st.text(max_size=6), JSON, max_size=5), share=st.floats(0, 1))
def test_the_outline_of_a_beginning_is_a_part_of_the_value(value: dict[str, Any], share: float) -> None:
    text = json.dumps(value)
    found = outline(text[: int(len(text) * share)])
    assert isinstance(found, dict)
    assert set(found) <= set(value)
