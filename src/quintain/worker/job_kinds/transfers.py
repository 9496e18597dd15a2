"""Job kinds `push`, which uploads a dataset's folder as a whole, and `fetch`, which downloads an artifact into the cache.

What leaves this machine is a copy whose descriptions name no path of it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from quintain.artifacts.faults import TransferStopped
from quintain.artifacts.pushing import push
from quintain.artifacts.transfers import fetch
from quintain.datasets.manifest import FILE_NAME, manifest_entries
from quintain.errors import NotFound
from quintain.jobs.directory import link_file
from quintain.records.artifacts import FetchSpec, PushSpec
from quintain.records.jobs.job import JobResult
from quintain.records.protocols import Reporter
from quintain.worker.processes.attempt import configured_home

_MB = 2**20


@dataclass
class Transfer:
    """Reports a transfer in MiB, and ends it if the job is asked to stop."""

    reporter: Reporter
    reported: int = -1

    def __call__(self, done: int, total: int) -> None:
        """Report `done` of `total` bytes."""
        if self.reporter.should_stop():
            raise TransferStopped
        if done // _MB != self.reported:
            self.reported = done // _MB
            self.reporter.progress(self.reported, -(-total // _MB), {})


def run(spec: PushSpec | FetchSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Upload or download."""
    try:
        return _push(spec, directory, reporter) if isinstance(spec, PushSpec) else _fetch(spec, reporter)
    except TransferStopped:
        return JobResult(report={"stopped": True})


def _fetch(spec: FetchSpec, reporter: Reporter) -> JobResult:
    """Download the artifact unless the cache has it, where the tool that needs it finds it."""
    reporter.phase("downloading")
    path = fetch(spec.url, Path(spec.cache_dir), progress=Transfer(reporter))
    return JobResult(report={"url": spec.url, "path": str(path)})


def _push(spec: PushSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Upload the folder, without paths of this machine."""
    reporter.phase("uploading")
    folder = Path(spec.folder)
    if not folder.is_dir():
        raise NotFound(f"expected the folder {folder} of {spec.dataset_id}, got nothing there; export it again")
    with portable_copy(folder, directory.name, (FILE_NAME,), _named_paths(folder)) as (portable, _):
        location = push(portable, spec.destination, "dataset", Transfer(reporter))
    return JobResult(dataset_id=spec.dataset_id, report={"destination": spec.destination, "pushed_to": location})


def _named_paths(folder: Path) -> list[str]:
    """Return the paths in a dataset's manifest: its folder, and the files that its rows are from."""
    entries = manifest_entries(folder)
    sources = entries.get("source", {}).get("files", [])
    return [path for path in (entries.get("dataset", {}).get("path"), *(file["name"] for file in sources)) if path]


@contextmanager
def portable_copy(
    folder: Path, job_id: str, names: Sequence[str], paths: Iterable[str]
) -> Iterator[tuple[Path, list[str]]]:
    """Yield a copy of a folder, and the names of the files in which a path was replaced; all other files are links.

    Args:
        folder: Complete folder. The copy lies beside it for the time of the block.
        job_id: Job that makes the copy.
        names: Patterns of the files that describe it, which are small texts.
        paths: What is named by its last part instead, if it is an absolute path. So is every other path into a folder that is
            there now, such as the file of tasks in the reference of an environment. The home folder is named by `.`.
    """
    instead = {path: _own_name(Path(path)) for path in (*paths, str(folder)) if Path(path).is_absolute()}
    if (home := configured_home()) is not None:
        instead[home] = "."
    aside = folder.with_name(f".{folder.name}.{job_id}")
    shutil.rmtree(aside, ignore_errors=True)  # of a killed attempt
    try:
        shutil.copytree(folder, aside, copy_function=link_file)
        changed = list[str]()
        for path in sorted({path for name in names for path in aside.glob(name) if path.is_file()}):
            text = path.read_text(encoding="utf-8")
            moved = _without(text, instead)
            if (moved := _without(moved, _paths_of_this_machine(moved))) != text:
                path.unlink()  # the link; the original stays
                path.write_text(moved, encoding="utf-8")
                changed.append(path.relative_to(aside).as_posix())
        yield aside, changed
    finally:
        shutil.rmtree(aside, ignore_errors=True)


_PATH = re.compile(r"""(?<![\w:/.~-])/[^\s"'\\?&#=,;:()<>|`]+""")
"""A path within a text or a URL's query."""


def _paths_of_this_machine(text: str) -> dict[str, str]:
    """Return the absolute paths in a text whose folder is on this machine, and the names to use instead."""
    found = {Path(path) for path in _PATH.findall(text)}
    return {str(path): _own_name(path) for path in found if len(path.parts) > 2 and path.parent.is_dir()}


def _own_name(path: Path) -> str:
    """Return the last part of a path; of the embedded model two parts, by which `register_agent` recognises it."""
    return "/".join(path.parts[-2:]) if path.parts[-2:] == ("quintain", "starter") else path.name


def _without(text: str, paths: dict[str, str]) -> str:
    """Return a text with each path replaced, longest first, also where JSON has escaped it."""
    if not paths:
        return text
    instead = paths | {_escaped(path): _escaped(name) for path, name in paths.items()}
    ways = sorted(instead, key=len, reverse=True)
    return re.sub(rf"({'|'.join(map(re.escape, ways))})(?![\w-])", lambda found: instead[found[1]], text)


def _escaped(text: str) -> str:
    return json.dumps(text)[1:-1]
