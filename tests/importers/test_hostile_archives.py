"""Zip archives that are torn, enormous or made to hurt."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from hostile import MB, imported, log, memory_below, zip_of, zstd_zip_of
from quintain.errors import InvalidInput
from quintain.importers.files import archives
from quintain.importers.files.archives import archive


def opened(folder: Path, raw: bytes, name: str, *members: str) -> list[bytes]:
    file = log(folder, raw, name)
    with archive(file.path, folder) as found:
        return [found.read(member) for member in members]


def test_members_packed_with_zstd_are_read(tmp_path: Path) -> None:
    members = {"header.json": b'{"a": 1}', "samples/1_epoch_1.json": b"x" * 100_000}
    assert opened(tmp_path, zstd_zip_of(members), "a.eval", *members) == list(members.values())


@pytest.mark.parametrize("make", [zip_of, zstd_zip_of])
def test_a_member_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, make: Callable[[dict[str, bytes]], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 2 * MB)
    raw = make({"a": os.urandom(MB) * 4})
    with memory_below(16 * MB), pytest.raises(InvalidInput, match="2 MiB"):
        opened(tmp_path, raw, "a.zip", "a")


@pytest.mark.parametrize("make", [zip_of, zstd_zip_of])
def test_an_archive_that_is_a_bomb_is_left_before_it_goes_off(
    tmp_path: Path, make: Callable[[dict[str, bytes]], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "RATIO_FREE_BYTES", 4 * MB)
    raw = make({f"{n}": b"\0" * (8 * MB) for n in range(3)})
    with memory_below(24 * MB), pytest.raises(InvalidInput, match="bomb"):
        opened(tmp_path, raw, "a.zip", "0", "1", "2")


GOOD_ZIP = zip_of(
    {"header.json": b'{"version": 2, "status": "success", "eval": {}}', "samples/1_epoch_1.json": b"{}" * 50}
)


def test_a_zip_archive_of_logs_is_read_like_the_folder_in_it_and_nothing_leaves_that_folder(tmp_path: Path) -> None:
    chat = b'{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}'
    members = {"logs/a b.jsonl": chat, "../out.jsonl": chat, "/abs.jsonl": chat, ".hidden/c.jsonl": chat, "n.txt": b"?"}
    path = tmp_path / "my export.zip"
    path.write_bytes(zip_of(members))
    report = imported(path)
    assert (report.imported, [file.file for file in report.files]) == (1, ["logs/a b.jsonl", "n.txt"])
    assert not list(tmp_path.rglob("*.jsonl"))
    assert not (tmp_path.parent / "out.jsonl").exists()
    many = tmp_path / "many.zip"
    many.write_bytes(zip_of({f"{n}.json": chat for n in range(3)}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archives, "MAX_UNPACKED", 2)
        refused = imported(many)
    assert refused.imported == 0
    assert "at most 2 are read" in refused.rejected[0].reason


def test_a_zip_archive_that_ends_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    for cut in range(0, len(GOOD_ZIP), 9):
        path.write_bytes(GOOD_ZIP[:cut])
        report = imported(path)
        assert report.imported == 0
        assert report.rejected
        assert "failed on it" not in report.rejected[0].reason


def test_a_zip_archive_with_a_wrong_byte_is_no_danger(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    for at in range(0, len(GOOD_ZIP), 5):
        path.write_bytes(GOOD_ZIP[:at] + bytes([GOOD_ZIP[at] ^ 0xFF]) + GOOD_ZIP[at + 1 :])
        assert not [one for one in imported(path).rejected if "failed on it" in one.reason]
        with suppress(InvalidInput), archive(path, tmp_path) as found:
            for name in found.names:
                found.read(name)


def test_the_table_of_contents_of_an_archive_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_DIRECTORY_BYTES", 10_000)
    with pytest.raises(InvalidInput, match="table of contents"):
        opened(tmp_path, zip_of({f"sample {n}": b"" for n in range(500)}), "a.zip")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "C:\\x", "a\0b", "x" * 5000, "samples/"])
def test_names_in_an_archive_never_become_paths(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    raw = zip_of({"header.json": b"{}", name: b"data"})
    assert opened(tmp_path / "in", raw, "a.zip", "header.json") == [b"{}"]
    with pytest.raises(InvalidInput, match="no member"):
        opened(tmp_path / "in", raw, "a.zip", "not there")
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "a.zip"]
