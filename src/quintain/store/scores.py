"""Stored scores of trajectories, with their history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, func, insert, select

from quintain.records.filters import TrajectoryFilter
from quintain.records.score import Score
from quintain.store.database.documents import encode, json_of, read_all, require_stored, rows_with
from quintain.store.database.engine import read_transaction, write_transaction
from quintain.store.database.tables import scores as table
from quintain.store.database.tables import trajectories
from quintain.store.trajectories.filters import filter_clause


@dataclass(frozen=True)
class Scores:
    """Table of scores."""

    engine: Engine

    def add_many(self, scores: Iterable[Score], now: datetime) -> None:
        """Store scores, all or none.

        Raises:
            NotFound: A trajectory is not stored.
        """
        stamped = [score if score.created_at else score.model_copy(update={"created_at": now}) for score in scores]
        documents = [encode(score, "score") for score in stamped]
        with write_transaction(self.engine) as connection:
            c = trajectories.c
            known = select(c.id, c.identity).where(c.forgotten_at.is_(None))
            ids = [score.trajectory_id for score in stamped]
            identities = {row.id: row.identity for row in rows_with(connection, known, c.id, ids)}
            require_stored(connection, trajectories, ids, identities, "trajectory")
            rows = [
                {
                    "trajectory_id": score.trajectory_id,
                    "identity": identities[score.trajectory_id],
                    "scorer": score.scorer,
                    "document": document,
                    "created_at": score.created_at,
                }
                for score, document in zip(stamped, documents, strict=True)
            ]
            if rows:
                connection.execute(insert(table), rows)

    def of_trajectory(self, trajectory_id: str) -> list[Score]:
        """Return every score of a trajectory, newest first."""
        query = (
            select(table.c.trajectory_id, table.c.document)
            .where(table.c.trajectory_id == trajectory_id)
            .order_by(table.c.seq.desc())
        )
        return read_all(self.engine, Score, query)

    def current_of(self, trajectory_id: str) -> list[Score]:
        """Return the newest score of each scorer, rater and rubric for a trajectory's current content, newest first.

        Scores voided by a later one of the same rater are left out.
        """
        query = (
            select(table.c.trajectory_id, table.c.document)
            .join(trajectories, _CURRENT)
            .where(table.c.trajectory_id == trajectory_id)
            .order_by(table.c.seq.desc())
        )
        newest: dict[tuple[str, str | None, str | None], Score] = {}
        for score in _without_voided(read_all(self.engine, Score, query)):
            newest.setdefault((score.scorer, score.rater, score.rubric), score)
        return list(newest.values())

    def by_scorers(self, scorers: Sequence[str], ids: Sequence[str]) -> dict[str, list[Score]]:
        """Return trajectory -> its scores by these scorers, newest first.

        Scores of content that has since grown, and scores voided by a later one of the same rater, are left out.
        """
        query = (
            select(table.c.trajectory_id, table.c.document)
            .join(trajectories, _CURRENT)
            .where(table.c.scorer.in_(scorers))
            .order_by(table.c.seq.desc())
        )
        found: dict[str, list[Score]] = {}
        with read_transaction(self.engine) as connection:
            for run_id, document in rows_with(connection, query, table.c.trajectory_id, ids):
                found.setdefault(run_id, []).append(Score.from_stored(document, f"score of {run_id}"))
        return {run_id: _without_voided(scores) for run_id, scores in found.items()}

    def trajectories_scored_by(self, scorers: Sequence[str]) -> list[str]:
        """Return the trajectories that all of these scorers have scored in their current state, oldest first."""
        query = (
            select(table.c.trajectory_id)
            .join(trajectories, _CURRENT)
            .where(table.c.scorer.in_(scorers))
            .group_by(table.c.trajectory_id)
            .having(func.count(table.c.scorer.distinct()) == len(set(scorers)))
            .order_by(func.min(trajectories.c.seq))
        )
        with read_transaction(self.engine) as connection:
            return list(connection.scalars(query))

    def rubrics(
        self,
        scorer: str,
        filter: TrajectoryFilter | None = None,
        ids: Sequence[str] | None = None,
        *,
        steps: bool = False,
        rater: str | None = None,
    ) -> list[str | None]:
        """Return the rubrics by which the selected trajectories were judged, the most recently used first.

        With `steps` only scores with step scores count, and only those by `rater` where one is named.
        """
        selected = filter_clause(filter or TrajectoryFilter(), self.engine).conditions
        document = json_of(self.engine, table.c.document)
        query = (
            select(document["rubric"].as_string().label("rubric"), func.max(table.c.seq))
            .join(trajectories, _CURRENT)
            .where(table.c.scorer == scorer, *selected)
            .where(document["status"].as_string() == "scored")
            .group_by("rubric")
        )
        if steps:
            query = query.where(document["steps", 0].as_string().is_not(None))
        if rater is not None:
            query = query.where(document["rater"].as_string() == rater)
        newest: dict[str | None, int] = {}
        with read_transaction(self.engine) as connection:
            rows: Iterable[Any]
            if ids is None:
                rows = connection.execute(query)
            else:
                rows = rows_with(connection, query, table.c.trajectory_id, ids)
            for name, seq in rows:
                newest[name] = max(seq, newest.get(name, 0))
        return sorted(newest, key=lambda name: -newest[name])

    def values(self, scorer: str, filter: TrajectoryFilter) -> Mapping[str, list[Score]]:
        """Return trajectory -> its scores by this scorer, newest first, of the matching trajectories.

        The scores have values, raters and rubrics, but neither components, steps nor feedback.
        """
        document = json_of(self.engine, table.c.document)
        query = (
            select(
                table.c.trajectory_id,
                *(document[name].as_string().label(name) for name in _TEXTS),
                *(document[name].as_float().label(name) for name in ("value", "raw")),
            )
            .join(trajectories, _CURRENT)
            .where(table.c.scorer == scorer, *filter_clause(filter, self.engine).conditions)
            .order_by(table.c.seq.desc())
        )
        found: dict[str, list[Score]] = {}
        with read_transaction(self.engine) as connection:
            for row in connection.execute(query):
                # Checked when it was stored; to check 100,000 scores again would take seconds.
                score = Score.model_construct(scorer=scorer, **row._mapping)
                found.setdefault(score.trajectory_id, []).append(score)
        return {run_id: _without_voided(scores) for run_id, scores in found.items()}

    def scorers(self) -> list[str]:
        """Return the names under which scores are stored, sorted."""
        with read_transaction(self.engine) as connection:
            return sorted(connection.scalars(select(table.c.scorer).distinct()))  # databases sort differently

    def latest(self, scorer: str, ids: Sequence[str]) -> dict[str, Score]:
        """Return each trajectory's newest score by this scorer, without scores of content that has since grown."""
        newest = (
            select(func.max(table.c.seq).label("seq"))
            .join(trajectories, _CURRENT)
            .where(table.c.scorer == scorer)
            .group_by(table.c.trajectory_id)
        )
        with read_transaction(self.engine) as connection:
            seqs = [row.seq for row in rows_with(connection, newest, table.c.trajectory_id, ids)]
            rows = rows_with(connection, select(table.c.trajectory_id, table.c.document), table.c.seq, seqs)
            return {row.trajectory_id: Score.from_stored(row.document, f"score of {row.trajectory_id}") for row in rows}


_CURRENT = (trajectories.c.id == table.c.trajectory_id) & (trajectories.c.identity == table.c.identity)
"""Join condition for scores of a trajectory's current content."""


_TEXTS = ("status", "reason", "rater", "rubric", "calibration")


def _without_voided(scores: Sequence[Score]) -> list[Score]:
    """Drop scores of a run (newest first) that a later score of the same rater voids."""
    voided: set[tuple[str, str | None, str | None]] = set()
    kept: list[Score] = []
    for score in scores:
        by = (score.scorer, score.rater, score.rubric)
        if by not in voided:
            kept.append(score)
        if score.voids:
            voided.add(by)
    return kept
