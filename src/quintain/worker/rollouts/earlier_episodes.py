"""Episodes of the jobs that a job resumes. Those with a verdict, played under the same settings, are not played again."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quintain.evaluation.episodes import EpisodePlan
from quintain.evaluation.suites import Suite
from quintain.jobs.directory import earlier_folders, has_lost_job, output_records, output_records_at
from quintain.records.evaluation import EpisodeResult
from quintain.records.imports import TakenOver
from quintain.records.jobs.job import EvaluateSpec, RolloutSpec
from quintain.records.protocols import Reporter
from quintain.records.trajectory import OutcomeStatus, Trajectory

RESULT = "episode_result"
"""Key of `Trajectory.extra` with an episode's result, so that a resumed job can read it."""

SETTINGS = "settings_hash"
"""Key of `Trajectory.extra` with the hash of what an episode was played under."""

logger = logging.getLogger(__name__)


def settings_hash(suite: Suite, spec: RolloutSpec | EvaluateSpec) -> str:
    """Return a hash of the environment's version, the tasks and the settings, apart from where the agent acts."""
    settings = spec.model_dump(mode="json", exclude={"actors", "actor_backend"})
    content = json.dumps([suite.hash, settings], sort_keys=True)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


Key = tuple[str, int]
"""Task and attempt of an episode."""


def unplayed(plans: Sequence[EpisodePlan], results: Iterable[EpisodeResult]) -> list[EpisodePlan]:
    """Return the planned episodes without a result."""
    done = {(result.task_id, result.repeat) for result in results}
    return [plan for plan in plans if (plan.task.name, plan.attempt) not in done]


class _Played(NamedTuple):
    """An episode in the output file of an earlier job."""

    folder: Path
    offsets: list[int]
    """Of the runs of its players."""
    result: EpisodeResult


class EarlierEpisodes:
    """The episodes that a job can take over from the jobs that it resumes."""

    def __init__(
        self,
        folder: Path,
        settings: str,
        reporter: Reporter,
        *,
        side: str = "",
        players: int = 1,
    ) -> None:
        """Find them, and warn of those that cannot be used any more because something else has changed.

        Args:
            folder: Folder of the job, or of its stage.
            settings: Hash of what its episodes are played under.
            reporter: Receives the runs that are taken over.
            side: Name of the agent in a comparison, which is in the keys of its episodes.
            players: Number of runs of an episode.
        """
        self._reporter, self._side, self._players = reporter, side, players
        self._found: dict[Key, _Played] = {}
        changed = set[Key]()
        for earlier in earlier_folders(folder):
            for played, found in self._read(earlier):
                key = played.result.task_id, played.result.repeat
                if found != settings:
                    changed.add(key)
                elif played.result.status is not OutcomeStatus.ERROR and len(played.offsets) == players:
                    self._found.setdefault(key, played)
        if has_lost_job(folder):
            reporter.warn(
                "played_again", "no episode is taken over: the folder of the job that this one resumes was deleted"
            )
        if again := changed.difference(self._found):
            reporter.warn(
                "played_again",
                f"{len(again)} episodes of the job that this one resumes are not taken over: the environment, its tasks or the "
                "settings are others now, or are not known",
            )

    def take(self, wanted: Sequence[EpisodePlan]) -> Iterator[tuple[Trajectory, EpisodeResult]]:
        """Output those of these episodes that are there, and yield them with the agent's runs."""
        taken = 0
        keys = [(plan.task.name, plan.attempt) for plan in wanted]
        for played in [found for key in keys if (found := self._found.get(key)) is not None]:
            for fields in output_records_at(played.folder, "trajectory", played.offsets):
                run = Trajectory.model_validate(fields).identified()
                self._reporter.output("taken_over", TakenOver(trajectory_id=run.id or ""))
                self._reporter.output("trajectory", run)
                if RESULT in run.extra:
                    yield run, played.result
            taken += 1
        if taken:
            logger.info("%d of %d episodes are taken over from the job that this one resumes", taken, len(wanted))

    def _read(self, folder: Path) -> Iterator[tuple[_Played, str | None]]:
        """Yield the episodes of a job, and the hash of what they were played under."""
        offsets: dict[str, list[int]] = {}
        results: dict[str, tuple[dict[str, Any], str | None]] = {}
        for offset, fields in output_records(folder, "trajectory"):
            key, extra = str(fields["episode_key"]), fields["extra"]
            if self._side and not key.startswith(f"{fields['job_id']}/{self._side}/"):
                continue
            episode = key if self._players == 1 else key.rpartition("/")[0]  # the last part is the role
            offsets.setdefault(episode, []).append(offset)
            if RESULT in extra:
                results[episode] = extra[RESULT], extra.get(SETTINGS)
        for episode, (result, settings) in results.items():
            yield _Played(folder, offsets[episode], EpisodeResult.model_validate(result)), settings


def take_over_stage(folder: Path, reporter: Reporter) -> None:
    """Count the runs of a stage that a job which this one resumes has finished as this job's, too."""
    made = next((earlier for earlier in earlier_folders(folder) if (earlier / "outputs").exists()), folder)
    for _, fields in output_records(made, "trajectory"):
        reporter.output("taken_over", TakenOver(trajectory_id=Trajectory.model_validate(fields).identified().id or ""))


def taken_over_report(episodes: int) -> dict[str, Any]:
    """Return how many episodes a job has taken over, for its report; nothing for none."""
    note = "played by the job that this one resumes"
    return {"taken_over": {"episodes": episodes, "note": note}} if episodes else {}
