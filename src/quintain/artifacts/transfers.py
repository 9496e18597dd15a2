"""Upload folders to fsspec URLs, and download them into a cache by address and content.

An upload is visible as a whole: `artifact.json` is written first without files, and last with the size and SHA-256 of each. A
reader refuses a folder whose manifest has no files, and a file that differs from it. A folder without a manifest, of another
program, is read as it is listed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from filelock import FileLock, Timeout
from pydantic import ValidationError

from quintain.artifacts.faults import faults_explained
from quintain.errors import Conflict, InvalidInput, Unavailable
from quintain.files import created, sha256_of
from quintain.records.artifacts import MANIFEST, ArtifactFile, ArtifactManifest, require_relative
from quintain.records.wording import size_text

_BLOCK = 8 * 2**20
_THREADS = 8
"""Files that are downloaded at once."""
_REQUEST_BYTES = 128 * 2**10
"""Bytes that could be read in the time of a request."""
_MAX_MANIFEST = 64 * 2**20
_MAX_FILES = 100_000

Progress = Callable[[int, int], None]
"""Receives bytes done and bytes in total."""


class TooLarge(Exception):
    """The artifact has more bytes than the caller accepts."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.bytes = size


class _RemoteFile(NamedTuple):
    name: str
    """Relative to the artifact."""
    path: str
    """In the file system."""
    size: int
    version: str
    """Changes with the content."""
    sha256: str | None
    """None: unknown."""


class _Listing(NamedTuple):
    files: list[_RemoteFile]
    is_folder: bool

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def cost_bytes(self) -> int:
        """Bytes, and those that could be read during the requests."""
        return self.bytes + len(self.files) * _REQUEST_BYTES

    @property
    def version(self) -> str:
        content = [[file.name, file.size, file.version] for file in self.files]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def upload(folder: Path, url: str, progress: Progress = lambda done, total: None) -> int:
    """Upload a folder to a new location, where it becomes visible with its manifest. Repeat it after an interruption.

    `progress` is called after each file. Return the number of bytes.

    Raises:
        Conflict: There is another artifact (`exists`), or another upload in progress.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    paths.pop(MANIFEST, None)
    files = {name: ArtifactFile(size=path.stat().st_size, sha256=sha256_of(path)) for name, path in paths.items()}
    total, done = sum(file.size for file in files.values()), 0
    identity = hashlib.sha256(json.dumps({name: file.sha256 for name, file in files.items()}).encode()).hexdigest()
    with faults_explained("write", url):
        fs, root = _open(url)
        before = _manifest(fs, root, url)
        if before is None and fs.exists(root) and not all(map(_is_marker, fs.ls(root, detail=False))):
            raise _exists(url)
        if before is not None and before.upload != identity:
            raise _exists(url)
        if before is not None and before.files is not None:
            return total
        _write_manifest(fs, root, ArtifactManifest(upload=identity))
        for name, path in paths.items():
            fs.put_file(str(path), f"{root}/{name}")
            done += files[name].size
            progress(done, total)
        current = _manifest(fs, root, url)
        if current is None or current.upload != identity:
            raise _exists(url)
        _write_manifest(fs, root, ArtifactManifest(upload=identity, files=files))
    return total


def fetch(
    url: str, cache: Path, *, limit_bytes: int | None = None, progress: Progress = lambda done, total: None
) -> Path:
    """Return the local copy of a remote file or folder, downloaded unless the cache has this content of this URL.

    Args:
        url: Location, allowed by the caller.
        cache: Folder of all copies; each appears whole.
        limit_bytes: Most bytes to download, where each file counts `_REQUEST_BYTES` more. None: no limit, and more
            patience with a store that does not answer.
        progress: Called after each block.

    Raises:
        TooLarge: It has more bytes than `limit_bytes` and is not in the cache.
        NotFound: There is nothing at the URL.
        InvalidInput: A file differs from the manifest (`artifact_damaged`), or the upload is incomplete
            (`artifact_incomplete`).
        Conflict: Another process is downloading it.
        Refused, Unavailable: As `faults_explained`; or the disk has not enough room.
    """
    with faults_explained("read", url):
        fs, root = _open(url, is_brief=limit_bytes is not None)
        listing = _listing(fs, root, url)
    place = cache / f"{hashlib.sha256(url.encode()).hexdigest()[:12]}-{listing.version[:20]}"
    name = root.rstrip("/").rpartition("/")[2]
    if (place / name).exists():
        return place / name
    if limit_bytes is not None and listing.cost_bytes > limit_bytes:
        raise TooLarge(listing.bytes)
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (free := shutil.disk_usage(cache).free) < listing.bytes:
        raise Unavailable(
            f"expected {size_text(listing.bytes)} for {url} in {cache}, got {size_text(free)} free; free disk space",
            code="disk_full",
        )
    with _exclusive(place, url) as aside:
        if not (place / name).exists():
            with faults_explained("read", url):
                _download_all(fs, listing, aside / name if listing.is_folder else aside, url, progress)
            shutil.rmtree(place, ignore_errors=True)
            aside.rename(place)
    return place / name


def names_below(url: str) -> list[str]:
    """Return the names of the folders and files directly below a URL; none if there is nothing."""
    with faults_explained("list", url):
        fs, root = _open(url)
        try:
            return sorted(path.rstrip("/").rpartition("/")[2] for path in fs.ls(root, detail=False))
        except FileNotFoundError:
            return []


def delete(url: str) -> None:
    """Delete an artifact, its manifest first, so that no reader takes a part of it."""
    with faults_explained("delete", url):
        fs, root = _open(url)
        if fs.exists(f"{root}/{MANIFEST}"):
            fs.rm_file(f"{root}/{MANIFEST}")
        if fs.exists(root):
            fs.rm(root, recursive=True)


def _open(url: str, *, is_brief: bool = False) -> tuple[Any, str]:
    """Return the file system of a URL without its cached listings, and the path in it.

    Of s3, two libraries repeat each other's repetitions, one of them twice for a block: 25 or 125 requests of 15 s to a store that
    does not answer. Here it is 9 or 27, and of a brief one 2.
    """
    from fsspec.core import url_to_fs

    options = {"auto_mkdir": True} if url.startswith(("file://", "local://")) else {}
    fs, root = url_to_fs(url, skip_instance_cache=is_brief, **options)
    if hasattr(fs, "config_kwargs"):
        fs.retries, attempts = (1, 2) if is_brief else (3, 3)
        fs.config_kwargs = fs.config_kwargs | {"retries": {"total_max_attempts": attempts}}
    fs.invalidate_cache()
    return fs, str(root).rstrip("/")


def _manifest(fs: Any, root: str, url: str) -> ArtifactManifest | None:
    """Return the manifest of a folder; None where there is none."""
    try:
        with fs.open(f"{root}/{MANIFEST}", "rb") as file:
            content = file.read(_MAX_MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return ArtifactManifest.model_validate_json(content)
    except ValidationError:
        raise InvalidInput(
            f"cannot read {url}/{MANIFEST}; upload the folder again to another location", code="artifact_damaged"
        ) from None


def _write_manifest(fs: Any, root: str, manifest: ArtifactManifest) -> None:
    fs.pipe_file(f"{root}/{MANIFEST}", manifest.model_dump_json().encode())


def _listing(fs: Any, root: str, url: str) -> _Listing:
    try:
        about = fs.info(root)
    except FileNotFoundError:
        about = {"type": "directory"}  # some stores know no folders
    if about["type"] == "file":
        files = [_listed(root.rpartition("/")[2], root, about, url)]
        return _Listing([file for file in files if file is not None], is_folder=False)
    manifest = _manifest(fs, root, url)
    if manifest is None:
        return _foreign_listing(fs, root, url)
    if manifest.files is None:
        raise InvalidInput(
            f"expected a complete artifact at {url}, got an upload that is in progress or was interrupted; wait for its job, or "
            "resume it",
            code="artifact_incomplete",
        )
    known = sorted(manifest.files.items())
    return _Listing([_RemoteFile(n, f"{root}/{n}", f.size, f.sha256, f.sha256) for n, f in known], is_folder=True)


def _foreign_listing(fs: Any, root: str, url: str) -> _Listing:
    """List a folder without a manifest."""
    listed: Mapping[str, Mapping[str, Any]] = fs.find(root, detail=True)
    found = {path: about for path, about in listed.items() if not _is_marker(path)}
    if not found:
        raise FileNotFoundError(root)
    if len(found) > _MAX_FILES:
        raise InvalidInput(f"expected at most {_MAX_FILES:,} files at {url}, got {len(found):,}; name a folder in it")
    files = [_listed(path.removeprefix(f"{root}/"), path, about, url) for path, about in sorted(found.items())]
    return _Listing([file for file in files if file is not None], is_folder=True)


def _is_marker(path: str) -> bool:
    """Whether an object stands for an empty folder, as consoles of buckets create it."""
    return path.endswith("/")


def _listed(name: str, path: str, about: Mapping[str, Any], url: str) -> _RemoteFile | None:
    """Return a file of a listing; None for a link of a local file system, which may lead out of the folder."""
    if about.get("islink"):
        return None
    try:
        require_relative(name)
    except ValueError as error:
        raise InvalidInput(f"{url}: {error}; rename or remove it", code="artifact_damaged") from None
    version = hashlib.sha256(str(sorted(about.items(), key=str)).encode()).hexdigest()
    return _RemoteFile(name, path, int(about["size"] or 0), version, None)


def _download_all(fs: Any, listing: _Listing, folder: Path, url: str, progress: Progress) -> None:
    """Download the files in threads; the first error ends all. Calls of `progress` never overlap."""
    lock, done = Lock(), 0

    def advance(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            progress(done, listing.bytes)

    def download(file: _RemoteFile) -> None:
        for size in _download(fs, file, folder / file.name, url):
            advance(size)

    with ThreadPoolExecutor(_THREADS) as pool:
        downloads = [pool.submit(download, file) for file in listing.files]
        try:
            for finished in as_completed(downloads):
                finished.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _download(fs: Any, file: _RemoteFile, target: Path, url: str) -> Iterator[int]:
    """Write a remote file while hashing it; yield the size of each block."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with fs.open(file.path, "rb", block_size=_BLOCK) as source, created(target) as copy:
        while block := source.read(_BLOCK):
            digest.update(block)
            copy.write(block)
            size += len(block)
            yield len(block)
    if size != file.size:
        raise InvalidInput(
            f"expected {file.size:,} bytes of {file.name!r} at {url}, got {size:,}; it changed or was cut: upload it again",
            code="artifact_damaged",
        )
    if file.sha256 is not None and digest.hexdigest() != file.sha256:
        raise InvalidInput(
            f"expected SHA-256 {file.sha256[:12]} of {file.name!r} at {url}, got {digest.hexdigest()[:12]}; the file was changed or "
            "damaged: upload the artifact again to another location",
            code="artifact_damaged",
        )


@contextmanager
def _exclusive(place: Path, url: str) -> Iterator[Path]:
    """Yield an empty folder beside `place` that no other process writes; it is removed unless it was renamed."""
    aside = place.with_name(f".{place.name}.partial")
    lock = FileLock(place.with_name(f".{place.name}.lock"))
    try:
        with lock.acquire(timeout=0):
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            try:
                yield aside
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except Timeout:
        raise Conflict(
            f"expected no other download of {url}, but another process is downloading it; try again when it is done",
            code="fetching",
        ) from None


def _exists(url: str) -> Conflict:
    return Conflict(
        f"expected nothing at {url}, got another artifact or upload; nothing is overwritten: name another location, or delete it",
        code="exists",
    )
