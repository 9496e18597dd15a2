"""Artifacts in a bucket, through s3fs and a server that speaks S3."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from quintain.artifacts.faults import TransferStopped
from quintain.artifacts.transfers import delete, fetch, names_below, upload
from quintain.errors import Conflict, InvalidInput, NotFound, Unavailable


def test_a_folder_that_was_created_in_the_console_of_a_bucket_is_read_and_pushed_to(
    bucket: str, tmp_path: Path
) -> None:
    """The console creates an empty object whose name ends with a slash."""
    import s3fs

    made, store = tmp_path / "made", s3fs.S3FileSystem()
    made.mkdir()
    (made / "a.jsonl").write_text("{}", encoding="utf-8")
    for key in ("logs/", "logs/day/", "new/"):
        store.call_s3("put_object", Bucket="agents", Key=key)
    upload(made, f"{bucket}/new")
    with pytest.raises(NotFound):
        fetch(f"{bucket}/logs", tmp_path / "cache")
    store.pipe_file("agents/logs/day/b.jsonl", b"{}")
    copy = fetch(f"{bucket}/logs", tmp_path / "cache")
    assert [path.relative_to(copy).as_posix() for path in copy.rglob("*")] == ["day", "day/b.jsonl"]


def test_a_bucket_shows_an_artifact_whole_and_refuses_a_damaged_one(bucket: str, tmp_path: Path) -> None:
    import s3fs

    folder, url = tmp_path / "made", f"{bucket}/team/clerk"
    (folder / "inner").mkdir(parents=True)
    (folder / "README.md").write_text("card", encoding="utf-8")
    (folder / "empty").write_text("", encoding="utf-8")
    (folder / "inner" / "weights.bin").write_bytes(os.urandom(6_000_000))

    def stop(done: int, total: int) -> None:
        raise TransferStopped

    with pytest.raises(TransferStopped):
        upload(folder, url, stop)
    with pytest.raises(InvalidInput, match="in progress or was interrupted"):
        fetch(url, tmp_path / "cache")
    upload(folder, url)
    copy = fetch(url, tmp_path / "cache")
    assert {str(path.relative_to(copy)): path.read_bytes() for path in copy.rglob("*") if path.is_file()} == {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    assert fetch(f"{url}/README.md", tmp_path / "cache").read_text(encoding="utf-8") == "card"
    assert sorted(path.name for path in fetch(f"{url}/inner", tmp_path / "cache").iterdir()) == ["weights.bin"]
    with pytest.raises(Conflict):
        upload(folder / "inner", url)
    # Another process changes an object: listings of this one are not cached.
    s3fs.S3FileSystem(skip_instance_cache=True).pipe_file("agents/team/clerk/README.md", b"care")
    with pytest.raises(InvalidInput, match="SHA-256"):
        fetch(url, tmp_path / "other")
    assert names_below(f"{bucket}/team") == ["clerk"]
    delete(url)
    assert names_below(f"{bucket}/team") == []
    with pytest.raises(NotFound, match="check the address"):
        fetch(url, tmp_path / "cache")
    with pytest.raises(NotFound, match="create it"):
        upload(folder, "s3://no-such-bucket/clerk")


@pytest.mark.parametrize(("limit_bytes", "requests"), [(1, 2), (None, 9)], ids=["within a call", "in a job"])
def test_a_silent_bucket_is_given_up_after_a_few_requests(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_bytes: int | None, requests: int
) -> None:
    import s3fs

    monkeypatch.setattr(s3fs.S3FileSystem, "_cache", {})
    monkeypatch.setattr("botocore.retryhandler.delay_exponential", lambda **_: 0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(s3fs.S3FileSystem, "read_timeout", 0.05)
        with pytest.raises(Unavailable, match="Read timeout"):
            fetch(f"{bucket}/clerk", tmp_path / "cache", limit_bytes=limit_bytes)
        silent.setblocking(False)
        for _ in range(requests):
            silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()
