"""The runs that a job works on: lines of JSON that the parent wrote down when it started the job."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from quintain.datasets.splits import task_key
from quintain.errors import InvalidInput
from quintain.jobs.directory import read_lines
from quintain.records.job import RunsFile
from quintain.records.score import Score
from quintain.records.seams import Reporter
from quintain.records.trajectory import Trajectory


class _Place(NamedTuple):
    offset: int
    size: int


@dataclass(frozen=True)
class RunLines:
    """The runs of a file that was checked."""

    path: Path
    n: int

    def stream(self) -> Iterator[Trajectory]:
        """Every run, in the order of the file."""
        with self.path.open("rb") as lines:
            for line in lines:
                yield _run(line)

    def by_task(self) -> TaskRuns:
        """The runs by task; only where they stand is kept in memory."""
        places: dict[str, _Place] = {}
        tasks: dict[str, list[str]] = defaultdict(list)
        offset = 0
        with self.path.open("rb") as lines:
            for line in lines:
                run = _run(line)
                places[run.id or ""] = _Place(offset, len(line))
                tasks[task_key(run)].append(run.id or "")
                offset += len(line)
        return TaskRuns(self.path, places, dict(tasks))


@dataclass(frozen=True)
class TaskRuns:
    """Runs by task, read when they are needed."""

    path: Path
    places: dict[str, _Place]
    tasks: dict[str, list[str]]
    """Task -> ids of its runs."""

    def read(self, ids: Sequence[str]) -> tuple[Trajectory, ...]:
        """The runs with these ids, in this order."""
        with self.path.open("rb") as file:
            found = []
            for run_id in ids:
                place = self.places[run_id]
                file.seek(place.offset)
                found.append(_run(file.read(place.size)))
            return tuple(found)


def open_runs(runs: RunsFile) -> RunLines:
    """The runs of a job's file.

    Raises:
        InvalidInput: the file is gone, or is not the one that the job was started with.
    """
    path, digest = Path(runs.path), hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except FileNotFoundError:
        raise InvalidInput(
            "the runs of this job are gone from the cache (one of them was forgotten, or the cache was emptied); start it again",
            code="runs_gone",
        ) from None
    if digest.hexdigest() != runs.sha256:
        raise InvalidInput("the runs of this job were changed on disk; start it again", code="runs_gone")
    return RunLines(path, runs.n)


class TokenScores(NamedTuple):
    """What came of scoring runs one by one."""

    n: int
    """Runs that were dealt with, by earlier attempts of the job too."""
    valued: int
    """Those of them that got a value."""
    is_whole: bool
    """False: the job was asked to stop, and runs are left."""


def score_each(
    runs: RunLines, directory: Path, reporter: Reporter, score: Callable[[Trajectory], Score | None]
) -> TokenScores:
    """Hand over a score for each run that no earlier attempt of the job has dealt with.

    Args:
        runs: All of them.
        directory: The job's folder.
        reporter: Hears of each run, and says when to stop.
        score: Of a run; None where it was broken off because the job was asked to stop.
    """
    done = dict(scored_runs(directory))
    for run in runs.stream():
        if run.id in done:
            continue
        found = None if reporter.should_stop() else score(run)
        if found is None:
            return TokenScores(len(done), sum(done.values()), is_whole=False)
        reporter.output("score", found)
        done[found.trajectory_id] = found.value is not None
        reporter.progress(len(done), runs.n, {"unscored": float(len(done) - sum(done.values()))})
    return TokenScores(len(done), sum(done.values()), is_whole=True)


def scored_runs(directory: Path) -> Iterator[tuple[str, bool]]:
    """Runs that an earlier attempt has dealt with, and whether they got a value."""
    return ((score.trajectory_id, score.value is not None) for score in scores_of(directory))


def scores_of(directory: Path) -> Iterator[Score]:
    """The scores that a job has handed over so far, earlier attempts included."""
    path, offset = directory / "outputs" / "score.jsonl", 0
    while (read := read_lines(path, offset)).lines:
        for line in read.lines:
            yield Score.model_validate(json.loads(line)["record"])
        offset = read.end


def _run(line: bytes) -> Trajectory:
    try:
        return Trajectory.model_validate_json(line)
    except ValidationError as error:
        raise InvalidInput(f"a run of this job cannot be read ({error.error_count()} faults); start it again") from None
