"""Folders at fsspec URLs: what a reader sees of an upload, what it refuses, and which locations a caller may name."""

from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from quintain.artifacts import transfers
from quintain.artifacts.faults import TransferStopped
from quintain.artifacts.locations import allowed_destination, allowed_location
from quintain.artifacts.transfers import TooLarge, delete, fetch, names_below, upload
from quintain.errors import Conflict, InvalidInput, NotFound, QuintainError, Refused, Unavailable

PREFIXES = ("s3://bucket/team", "memory://bucket", "hub:owner")


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty location in memory, or in a folder."""
    return f"memory://{tmp_path.name}/shelf/clerk" if request.param == "memory" else f"file://{tmp_path}/shelf/clerk"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(transfers, "_BLOCK", 4_000)
    made = tmp_path / "made"
    (made / "inner").mkdir(parents=True)
    (made / "card.md").write_text("card", encoding="utf-8")
    (made / "inner" / "weights.bin").write_bytes(os.urandom(9_000))  # three blocks
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def code_of(error: pytest.ExceptionInfo[QuintainError]) -> str:
    return error.value.code


def test_an_upload_is_read_back_whole_and_downloaded_once(url: str, folder: Path, tmp_path: Path) -> None:
    steps: list[int] = []
    assert upload(folder, url, lambda done, total: steps.append(done)) == steps[-1] == 9_004
    copy = fetch(url, tmp_path / "cache")
    assert contents(copy) == contents(folder)
    assert copy.name == "clerk"
    changed = copy / "card.md"
    changed.write_text("mark", encoding="utf-8")
    assert fetch(f"{url}", tmp_path / "cache", limit_bytes=1) == copy  # in the cache, so no limit applies
    assert changed.read_text(encoding="utf-8") == "mark"
    with pytest.raises(TooLarge):
        fetch(url, tmp_path / "other", limit_bytes=9_004)  # and two requests
    assert fetch(f"{url}/card.md", tmp_path / "cache").read_text(encoding="utf-8") == "card"
    assert contents(fetch(f"{url}/inner", tmp_path / "cache")).keys() == {"weights.bin"}
    assert names_below(url) == ["artifact.json", "card.md", "inner"]
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.name.endswith(".partial")] == []


def test_an_interrupted_upload_is_invisible_and_continues_and_another_one_is_refused(
    url: str, folder: Path, tmp_path: Path
) -> None:
    def stop(done: int, total: int) -> None:
        raise TransferStopped

    with pytest.raises(TransferStopped):
        upload(folder, url, stop)
    assert "card.md" in names_below(url)
    with pytest.raises(InvalidInput) as incomplete:
        fetch(url, tmp_path / "cache")
    assert code_of(incomplete) == "artifact_incomplete"
    other = tmp_path / "another"
    other.mkdir()
    (other / "card.md").write_text("another", encoding="utf-8")
    with pytest.raises(Conflict):
        upload(other, url)
    upload(folder, url)
    assert upload(folder, url) == 9_004  # the same files again: nothing to do
    assert contents(fetch(url, tmp_path / "cache")) == contents(folder)
    with pytest.raises(Conflict) as taken:
        upload(other, url)
    assert code_of(taken) == "exists"
    with pytest.raises(Conflict):
        upload(other, url.rpartition("/")[0])  # no artifact, but not empty
    delete(url)
    assert names_below(url) == []
    upload(other, url)
    assert contents(fetch(url, tmp_path / "cache")).keys() == {"card.md"}


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "manifest"])
def test_a_damaged_artifact_is_refused_and_leaves_nothing(url: str, folder: Path, tmp_path: Path, damage: str) -> None:
    upload(folder, url)
    fs, root = fsspec.url_to_fs(url)
    if damage == "gone":
        fs.rm_file(f"{root}/card.md")
    elif damage == "manifest":
        manifest = fs.cat_file(f"{root}/artifact.json")
        fs.pipe_file(f"{root}/artifact.json", manifest.replace(b"card.md", b"../../../card.md"))
    else:
        fs.pipe_file(f"{root}/card.md", b"care" if damage == "changed" else b"c")
    with pytest.raises((InvalidInput, NotFound)) as refused:
        fetch(url, tmp_path / "cache")
    assert code_of(refused) == ("artifact_not_found" if damage == "gone" else "artifact_damaged")
    assert contents(tmp_path / "cache") == {} or all(name.endswith(".lock") for name in contents(tmp_path / "cache"))
    assert not (tmp_path / "card.md").exists()


def test_a_folder_of_another_program_is_read_as_listed_without_its_links(url: str, tmp_path: Path) -> None:
    fs, root = fsspec.url_to_fs(url, **({"auto_mkdir": True} if url.startswith("file") else {}))
    fs.pipe_file(f"{root}/a.jsonl", b"{}\n")
    first = fetch(url, tmp_path / "cache")
    assert contents(first) == {"a.jsonl": b"{}\n"}
    fs.pipe_file(f"{root}/b/c.jsonl", b"[]\n")
    if url.startswith("file"):
        (tmp_path / "private").write_text("private", encoding="utf-8")
        (Path(root) / "link.jsonl").symlink_to(tmp_path / "private")
        (Path(root) / "folder").symlink_to(tmp_path)
    second = fetch(url, tmp_path / "cache")
    assert second != first
    assert contents(second) == {"a.jsonl": b"{}\n", "b/c.jsonl": b"[]\n"}
    assert contents(first) == {"a.jsonl": b"{}\n"}  # what was registered from it stays
    with pytest.raises(NotFound) as missing:
        fetch(f"{url}-else", tmp_path / "cache")
    assert code_of(missing) == "artifact_not_found"


def test_only_locations_below_the_operators_prefixes_can_be_named(tmp_path: Path) -> None:
    assert allowed_location("s3://bucket/team/a/", PREFIXES).url == "s3://bucket/team/a"
    named = "s3://bucket/team/it's/2026-01-02T03:04:05 (1).jsonl"
    assert allowed_location(named, PREFIXES).url == named
    assert allowed_location("s3://bucket/team", PREFIXES).url == "s3://bucket/team"
    assert allowed_destination("hub:owner/clerk", PREFIXES).url == "hub:owner/clerk"
    for outside in (
        "s3://bucket/team-b/x",
        "s3://bucket",
        "gs://bucket/team/x",
        "hub:others/clerk",
        "file:///etc/passwd",
    ):
        with pytest.raises(Refused, match="QUINTAIN_ARTIFACTS"):
            allowed_location(outside, PREFIXES)
    with pytest.raises(Refused, match="now: none"):
        allowed_location("s3://bucket/team/a", ())
    for malformed in (
        *(
            "s3://bucket/team/../x",
            "s3://bucket/team/./x",
            "s3://bucket/team//x",
            "s3://bucket/team/x?versionId=1",
            "s3://",
        ),
        *(
            "zip://a.zip::s3://bucket/team/x",
            "s3://bucket/team/a::zip",
            "s3://key:secret@bucket/team/x",
            "s3://bucket/team/*",
            "s3://bucket/team/\0",
            "x",
        ),
    ):
        with pytest.raises(InvalidInput) as refused:
            allowed_location(malformed, PREFIXES)
        assert code_of(refused) == "bad_location", malformed
    for unfit in ("s3://bucket/team", "hub:owner", "memory://bucket/clerk"):
        with pytest.raises(InvalidInput) as refused:
            allowed_destination(unfit, PREFIXES)
        assert code_of(refused) == "bad_location", unfit
    with pytest.raises(InvalidInput) as bad:
        allowed_location("s3://bucket/x", ("bucket/x",))
    assert code_of(bad) == "bad_setting"
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "out").symlink_to(tmp_path)
    assert allowed_location(f"file://{shelf}/x", (f"file://{shelf}",)).url == f"file://{shelf}/x"
    with pytest.raises(Refused):
        allowed_location(f"file://{shelf}/out/private", (f"file://{shelf}",))


def test_a_missing_library_and_a_store_that_fails_are_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unavailable) as missing:
        fetch("adl://store/x", tmp_path)
    assert code_of(missing) == "missing_extra"
    from fsspec.implementations.memory import MemoryFileSystem

    def fail(*_: object, **__: object) -> bool:
        raise RuntimeError("login with key AKIAIOSFODNN7EXAMPLF failed\nmore")

    monkeypatch.setattr(MemoryFileSystem, "info", fail)
    with pytest.raises(Unavailable) as failed:
        fetch("memory://store/x", tmp_path)
    assert code_of(failed) == "artifact_unreachable"
    assert "RuntimeError: login with key" in failed.value.message
    assert "AKIAIOSFODNN7EXAMPLF" not in failed.value.message
    assert "more" not in failed.value.message
