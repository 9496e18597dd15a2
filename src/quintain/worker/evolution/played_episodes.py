"""Episodes of an evolution round, in the output files of the stages that played them; they are read one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from quintain.jobs.directory import read_lines
from quintain.records.evaluation import EpisodeResult
from quintain.records.trajectory import Trajectory
from quintain.worker.job_kinds.rollouts import RESULT


class PlayedEpisode(NamedTuple):
    """An episode in the output file of its stage."""

    run: Trajectory
    result: EpisodeResult
    place: tuple[Path, int]
    """The file, and the offset of the line."""

    @property
    def key(self) -> str:
        """Key that is the same when the episode is played again."""
        return f"{self.run.task.environment or ''}/{self.result.task_id}/{self.result.repeat}"


def read_episodes(folder: Path) -> Iterator[PlayedEpisode]:
    """Yield the episodes that a stage has played, in order, with their ids."""
    path, offset = folder / "outputs" / "trajectory.jsonl", 0
    while lines := read_lines(path, offset).lines:
        for line in lines:
            yield _parse_episode(line, (path, offset))
            offset += len(line) + 1


def _parse_episode(line: bytes, place: tuple[Path, int]) -> PlayedEpisode:
    run = Trajectory.model_validate(json.loads(line)["record"]).identified()
    return PlayedEpisode(run, EpisodeResult.model_validate(run.extra[RESULT]), place)


def episode_at(place: tuple[Path, int]) -> PlayedEpisode:
    """Return the episode whose line is at a place of a file."""
    path, offset = place
    with path.open("rb") as file:
        file.seek(offset)
        return _parse_episode(file.readline(), place)
