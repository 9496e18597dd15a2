"""Judges as parts of a reward: they value the runs of groups inside a job, each run by itself or relative to its group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from quintain.datasets.selection import agent_digest
from quintain.endpoints.faults import STOPPED
from quintain.records.labels.reward import JudgePart
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.judging_items import comparisons
from quintain.worker.judging.asking import Verdicts
from quintain.worker.judging.judges import EndpointJudge, JudgedRuns, LocalJudge
from quintain.worker.policies.request_ledger import spending_report

_ALONE = "the run has no other run of its task to be ranked with; give several attempts, or judge with mode 'score'"


class RewardJudge:
    """A judge that is opened at its first question and asked about whole batches."""

    def __init__(self, part: JudgePart, directory: Path, should_stop: Callable[[], bool], seed: int) -> None:
        """Configure the judge.

        Args:
            part: Who judges, by which rubric, and in which form.
            directory: Folder of its ledger.
            should_stop: Whether the job was asked to stop.
            seed: Seed of the order in which runs are shown.
        """
        self._part, self._directory, self._should_stop, self._seed = part, directory, should_stop, seed
        self._judge: EndpointJudge | LocalJudge | None = None
        self._judged = self._cached = self._failed = 0

    def scores(self, groups: Sequence[Sequence[Trajectory]]) -> dict[str, Score] | None:
        """Return run id -> score of each run; None if the job was asked to stop before all were judged."""
        if self._part.mode == "group":
            return self._ranked(groups)
        # Runs of a task share its control, and often their text: neighbours of different tasks do not wait for each other.
        return self._each([run for runs in zip_longest(*groups) for run in runs if run is not None])

    def report(self) -> dict[str, Any]:
        """Return counts of judged items and what they cost, over all attempts of the job."""
        counts = {"judged": self._judged, "failed": self._failed, "answers_from_cache": self._cached}
        if self._part.endpoint is None:
            return counts
        return counts | spending_report(self._directory, self._part.endpoint)

    def close(self) -> None:
        """Close connections."""
        if self._judge is not None:
            self._judge.close()
            self._judge = None

    def _each(self, runs: Sequence[Trajectory]) -> dict[str, Score] | None:
        found: dict[str, Score] = {}
        for items, verdicts in self._ask((run,) for run in runs):
            if verdicts.code == STOPPED:
                return None
            found[items[0].id or ""] = verdicts.judged.scores[0]
        return found if len(found) == len({run.id for run in runs}) else None

    def _ranked(self, groups: Sequence[Sequence[Trajectory]]) -> dict[str, Score] | None:
        """Rank the distinct runs of each group; runs with the same text share their value."""
        by_text = [_by_text(group) for group in groups]
        first = {same[0].id or "": same[0] for texts in by_text for same in texts}
        items = [
            tuple(first[run] for run in part)
            for texts in by_text
            for part in comparisons([same[0].id or "" for same in texts], "group", self._seed)
        ]
        values: dict[str, Score] = {}
        for runs, verdicts in self._ask(items):
            if verdicts.code == STOPPED:
                return None
            values |= self._of_ranking(runs, verdicts)
        found: dict[str, Score] = {}
        for texts in by_text:
            for same in texts:
                score = values.get(same[0].id or "") or self._without_ranking(same, len(texts))
                if score is None:
                    return None
                found |= {run.id or "": score.model_copy(update={"trajectory_id": run.id or ""}) for run in same}
        return found

    def _of_ranking(self, runs: Sequence[Trajectory], verdicts: Verdicts) -> dict[str, Score]:
        """Return each run's share of the others that it beats; a tie counts half."""
        if verdicts.judged.failed:
            return {run.id or "": self._score(run, None, verdicts.judged.failed) for run in runs}
        wins = {run.id or "": 0.0 for run in runs}
        for preference in verdicts.judged.preferences:
            share = {"a": 1.0, "b": 0.0, "tie": 0.5}[preference.better]
            wins[preference.a] += share
            wins[preference.b] += 1 - share
        return {run.id or "": self._score(run, wins[run.id or ""] / (len(runs) - 1)) for run in runs}

    def _without_ranking(self, same: Sequence[Trajectory], n_texts: int) -> Score | None:
        """Return the score of a group whose runs all have one text: a tie; of a single run: none."""
        if n_texts > 1:
            return None
        return self._score(same[0], 0.5) if len(same) > 1 else self._score(same[0], None, _ALONE)

    def _ask(self, items: Iterable[tuple[Trajectory, ...]]) -> Iterator[JudgedRuns]:
        part = self._part
        if self._judge is None:
            if part.endpoint is not None:
                self._judge = EndpointJudge.open(part.endpoint, part, self._directory, self._seed)
            else:
                assert part.agent is not None
                self._judge = LocalJudge.open(part.agent, part, self._seed)
        for runs, verdicts in self._judge.judge(items, self._should_stop):
            self._judged += 1
            self._cached += verdicts.cached
            self._failed += verdicts.judged.failed is not None
            yield runs, verdicts

    def _score(self, run: Trajectory, value: float | None, reason: str | None = None) -> Score:
        return Score(
            trajectory_id=run.id or "",
            scorer="judge",
            status="unscored" if value is None else "scored",
            value=value,
            reason=reason,
            feedback="" if value is None else f"Better than {value:.0%} of the other runs of its group.",
            rater=self.rater,
            rubric=self._part.rubric.name,
        )

    @property
    def rater(self) -> str:
        """Name under which its verdicts are kept."""
        if self._part.endpoint is not None:
            return f"endpoint:{self._part.endpoint.name}"
        agent = self._part.agent
        return "" if agent is None else agent.id or f"agent:{agent.name}"


def _by_text(group: Sequence[Trajectory]) -> list[list[Trajectory]]:
    """Return the runs of a group by what the agent wrote."""
    found: dict[str, list[Trajectory]] = {}
    for run in group:
        found.setdefault(agent_digest(run), []).append(run)
    return list(found.values())
