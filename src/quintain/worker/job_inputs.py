"""Inputs of a job: runs, as JSON lines that the parent process wrote when it created the job, and the files of a dataset."""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from quintain.datasets.splits import task_key
from quintain.errors import InvalidInput, Unavailable
from quintain.files import sha256_of
from quintain.jobs.directory import earlier_folders, output_records
from quintain.records.jobs.job import EvaluateDatasetSpec, PreviewSpec, TrainSpec
from quintain.records.jobs.recipe import EarlierSkill
from quintain.records.jobs.run_jobs import RunsFile
from quintain.records.protocols import Reporter
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.records.wording import clip


class _Place(NamedTuple):
    offset: int
    size: int


@dataclass(frozen=True)
class RunInputs:
    """The runs of a verified file."""

    path: Path
    n: int

    def stream(self) -> Iterator[Trajectory]:
        """Yield every run in file order."""
        with self.path.open("rb") as lines:
            for line in lines:
                yield _run(line)

    def by_task(self) -> TaskRuns:
        """Index the runs by task. Only offsets are kept in memory."""
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
    """Runs by task, read on demand."""

    path: Path
    places: dict[str, _Place]
    tasks: dict[str, list[str]]
    """Task -> ids of its runs."""

    def read(self, ids: Sequence[str]) -> tuple[Trajectory, ...]:
        """Return the runs with these ids, in this order."""
        with self.path.open("rb") as file:
            found = []
            for run_id in ids:
                place = self.places[run_id]
                file.seek(place.offset)
                found.append(_run(file.read(place.size)))
            return tuple(found)


def open_run_inputs(runs: RunsFile) -> RunInputs:
    """Open the runs of a job's file.

    Raises:
        InvalidInput: The file is missing, or has changed since the job was created.
    """
    path = Path(runs.path)
    try:
        digest = sha256_of(path)
    except FileNotFoundError:
        raise InvalidInput(
            "cannot find the runs of this job in the cache (one was forgotten, or the cache was emptied); start it again",
            code="runs_gone",
        ) from None
    if digest != runs.sha256:
        raise InvalidInput(
            "expected the runs that the job was created with, got a changed file; start it again", code="runs_gone"
        )
    return RunInputs(path, runs.n)


class ScoringProgress(NamedTuple):
    """Progress of scoring runs one by one."""

    n: int
    """Finished runs, including those of earlier attempts of the job."""
    valued: int
    """Finished runs with a value."""
    is_whole: bool
    """False if the job was asked to stop before the last run."""


def score_each(
    runs: RunInputs,
    directory: Path,
    reporter: Reporter,
    score: Callable[[Iterator[Trajectory]], Iterable[Score | None]],
) -> ScoringProgress:
    """Output a score for each run that no earlier attempt of the job has finished, and warn of those without a value.

    The values of the jobs that it resumes are output again, not computed again.

    Args:
        runs: All runs.
        directory: The job's folder.
        reporter: Receives the scores, and requests a stop.
        score: Scores the runs that it gets, in order. Its score is None if the job was asked to stop.

    Raises:
        Unavailable: No run has a value (`nothing_scored`).
    """
    done = dict(scored_runs(directory))
    for before in chain.from_iterable(map(read_scores, earlier_folders(directory))):
        if before.value is not None and before.trajectory_id not in done:
            reporter.output("score", before)
            done[before.trajectory_id] = True
    left = (run for run in runs.stream() if run.id not in done)
    for found in score(takewhile(lambda _: not reporter.should_stop(), left)):
        if found is None:
            break
        reporter.output("score", found)
        done[found.trajectory_id] = found.value is not None
        reporter.progress(len(done), runs.n, {"unscored": float(len(done) - sum(done.values()))})
    is_whole = len(done) == runs.n or not reporter.should_stop()
    progress = ScoringProgress(len(done), sum(done.values()), is_whole=is_whole)
    if is_whole and progress.valued < progress.n:
        reasons = Counter[str]()
        for valued in read_scores(directory):
            if valued.value is None:
                note_reason(reasons, valued.reason)
        causes = most_common_causes(reasons)
        if not progress.valued:
            raise Unavailable(
                f"expected runs that can be scored, got {progress.n} without a value: {causes}; correct the cause, or score others",
                code="nothing_scored",
            )
        reporter.warn("not_scored", f"{progress.n - progress.valued} of {progress.n} runs have no value: {causes}")
    return progress


def most_common_causes(reasons: Counter[str]) -> str:
    """Return the three most frequent reasons with their counts."""
    return "; ".join(f"{clip(reason, 300)} ({n})" for reason, n in reasons.most_common(3))


def scored_runs(directory: Path) -> Iterator[tuple[str, bool]]:
    """Yield the id of each run that an earlier attempt has finished, and whether it got a value."""
    return ((score.trajectory_id, score.value is not None) for score in read_scores(directory))


_MOST_REASONS = 20


def note_reason(reasons: Counter[str], reason: str | None) -> None:
    """Count why a run has no value; beyond 20 different reasons they count together."""
    named = reason or "no reason given"
    reasons[named if named in reasons or len(reasons) < _MOST_REASONS else "other reasons"] += 1


def read_scores(directory: Path) -> Iterator[Score]:
    """Return the scores that a job has output so far, including earlier attempts."""
    return (Score.model_validate(record.fields) for record in output_records(directory, "score"))


def _run(line: bytes) -> Trajectory:
    try:
        return Trajectory.model_validate_json(line)
    except ValidationError as error:
        raise InvalidInput(f"cannot read a run of this job ({error.error_count()} errors); start it again") from None


def link_dataset(spec: TrainSpec | PreviewSpec | EvaluateDatasetSpec | EarlierSkill, folder: Path) -> Path:
    """Link (or copy) the dataset's files into the job, so that the job survives a deletion of the dataset.

    Raises:
        InvalidInput: The dataset on disk has changed since the job was created.
    """
    folder.mkdir(exist_ok=True)
    for name, sha256 in spec.dataset_files.items():
        target = folder / name
        if not target.exists():
            aside = folder / f".{name}.{os.getpid()}"
            try:
                os.link(Path(spec.dataset_path or "") / name, aside)
            except FileNotFoundError:
                raise InvalidInput(
                    f"cannot find {name!r} of dataset {spec.dataset_id}; a moved home is mended by `quintain doctor`, else export the "
                    "dataset again",
                    code="dataset_damaged",
                ) from None
            except OSError:
                shutil.copyfile(Path(spec.dataset_path or "") / name, aside)
            aside.replace(target)
        if sha256_of(target) != sha256:
            raise InvalidInput(
                f"expected the manifest's SHA-256 for {name!r} of dataset {spec.dataset_id}, got another; datasets are immutable, "
                "export it again",
                code="dataset_damaged",
            )
    return folder
