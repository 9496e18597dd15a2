"""Scores: what scorers said of stored trajectories, the history kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, func, insert, select

from quintain.records.filters import TrajectoryFilter
from quintain.records.score import Score
from quintain.store.documents import chunks, encode, missing
from quintain.store.engine import reading, writing
from quintain.store.tables import scores as table
from quintain.store.tables import trajectories
from quintain.store.trajectories.filtering import matching, values_of


@dataclass(frozen=True)
class Scores:
    """The stored scores."""

    engine: Engine

    def add_many(self, scores: Iterable[Score], now: datetime) -> None:
        """Store scores, all or none.

        Raises:
            NotFound: a trajectory that is not stored.
        """
        stamped = [score if score.created_at else score.model_copy(update={"created_at": now}) for score in scores]
        documents = [encode(score, "score") for score in stamped]
        with writing(self.engine) as connection:
            identities: dict[str, str] = {}
            ids = list(dict.fromkeys(score.trajectory_id for score in stamped))
            for chunk in chunks(ids):
                c = trajectories.c
                found = select(c.id, c.identity).where(c.id.in_(chunk), c.forgotten_at.is_(None))
                identities.update((row.id, row.identity) for row in connection.execute(found))
            if unknown := [i for i in ids if i not in identities]:
                raise missing(connection, trajectories, unknown, "trajectory")
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

    def of(self, trajectory_id: str) -> list[Score]:
        """Every score of a trajectory, newest first."""
        query = select(table.c.document).where(table.c.trajectory_id == trajectory_id).order_by(table.c.seq.desc())
        with reading(self.engine) as connection:
            return [Score.model_validate_json(document) for document in connection.scalars(query)]

    def by(self, scorers: Sequence[str], ids: Sequence[str]) -> dict[str, list[Score]]:
        """Trajectory -> its scores by these scorers, newest first.

        Neither a score of content that has since grown counts, nor what a later one of its rater voids.
        """
        found: dict[str, list[Score]] = {}
        with reading(self.engine) as connection:
            for chunk in chunks(list(ids)):
                query = (
                    select(table.c.trajectory_id, table.c.document)
                    .join(
                        trajectories,
                        (trajectories.c.id == table.c.trajectory_id) & (trajectories.c.identity == table.c.identity),
                    )
                    .where(table.c.scorer.in_(scorers), table.c.trajectory_id.in_(chunk))
                    .order_by(table.c.seq.desc())
                )
                for run_id, document in connection.execute(query):
                    found.setdefault(run_id, []).append(Score.model_validate_json(document))
        return {run_id: _standing(scores) for run_id, scores in found.items()}

    def runs_of(self, scorers: Sequence[str]) -> list[str]:
        """The runs that every one of these scorers has scored, as they are now, oldest first."""
        query = (
            select(table.c.trajectory_id)
            .join(
                trajectories,
                (trajectories.c.id == table.c.trajectory_id) & (trajectories.c.identity == table.c.identity),
            )
            .where(table.c.scorer.in_(scorers))
            .group_by(table.c.trajectory_id)
            .having(func.count(table.c.scorer.distinct()) == len(set(scorers)))
            .order_by(func.min(trajectories.c.seq))
        )
        with reading(self.engine) as connection:
            return list(connection.scalars(query))

    def rubrics(
        self,
        scorer: str,
        filter: TrajectoryFilter | None = None,
        ids: Sequence[str] | None = None,
        *,
        steps: bool = False,
    ) -> list[str | None]:
        """The rubrics that chosen runs, as they are now, were judged by; the one that was judged by last comes first.

        Args:
            scorer: Whose verdicts.
            filter: Conditions on the runs; None: none.
            ids: Only these; None: no such bound.
            steps: Only verdicts that speak of single steps.
        """
        values = values_of(filter or TrajectoryFilter())
        rubric = func.json_extract(table.c.document, "$.rubric").label("rubric")
        query = (
            select(rubric, func.max(table.c.seq))
            .join(
                trajectories,
                (trajectories.c.id == table.c.trajectory_id) & (trajectories.c.identity == table.c.identity),
            )
            .where(table.c.scorer == scorer, *matching(tuple(values)).conditions)
            .where(func.json_extract(table.c.document, "$.status") == "scored")
            .group_by(rubric)
        )
        if steps:
            query = query.where(func.json_array_length(table.c.document, "$.steps") > 0)
        queries = (
            [query] if ids is None else [query.where(table.c.trajectory_id.in_(part)) for part in chunks(list(ids))]
        )
        newest: dict[str | None, int] = {}
        with reading(self.engine) as connection:
            for one in queries:
                for name, seq in connection.execute(one, values):
                    newest[name] = max(seq, newest.get(name, 0))
        return sorted(newest, key=lambda name: -newest[name])

    def scorers(self) -> list[str]:
        """The names that scores are stored under, sorted."""
        with reading(self.engine) as connection:
            return list(connection.scalars(select(table.c.scorer).distinct().order_by(table.c.scorer)))

    def latest(self, scorer: str, ids: Sequence[str]) -> dict[str, Score]:
        """Each trajectory's newest score by this scorer; a score of content that has since grown does not count."""
        found: dict[str, Score] = {}
        with reading(self.engine) as connection:
            for chunk in chunks(list(ids)):
                newest = (
                    select(func.max(table.c.seq))
                    .join(
                        trajectories,
                        (trajectories.c.id == table.c.trajectory_id) & (trajectories.c.identity == table.c.identity),
                    )
                    .where(table.c.scorer == scorer, table.c.trajectory_id.in_(chunk))
                    .group_by(table.c.trajectory_id)
                )
                query = select(table.c.trajectory_id, table.c.document).where(table.c.seq.in_(newest))
                found.update((row[0], Score.model_validate_json(row[1])) for row in connection.execute(query))
        return found


def _standing(scores: Sequence[Score]) -> list[Score]:
    """Those of a run's scores, newest first, that no later one of their raters voids."""
    gone: set[tuple[str, str | None, str | None]] = set()
    kept: list[Score] = []
    for score in scores:
        by = (score.scorer, score.rater, score.rubric)
        if by not in gone:
            kept.append(score)
        if score.voids:
            gone.add(by)
    return kept
