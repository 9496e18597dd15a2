"""Trajectories: every run of an agent that was recorded, imported or rolled out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Engine, Row, delete, func, insert, or_, select, update

from quintain.errors import Conflict
from quintain.records.filters import Page, TrajectoryFilter, TrajectorySummary
from quintain.records.trajectory import Actor, AgentInfo, OutcomeStatus, Task, Trajectory, text_of
from quintain.store.documents import chunks, encode, fetch, missing
from quintain.store.engine import reading, writing
from quintain.store.paging import fetch_page
from quintain.store.tables import trajectories as table
from quintain.store.tables import trajectory_tags

_BATCH = 50
"""Documents held in memory at once while streaming."""

_PROMPT_CHARS = 200


class Added(NamedTuple):
    """What became of one trajectory: the id it is stored under, and whether a row was made for it."""

    id: str
    created: bool


@dataclass(frozen=True)
class Trajectories:
    """The stored trajectories."""

    engine: Engine

    def add_many(self, trajectories: Iterable[Trajectory], now: datetime) -> list[Added]:
        """Store trajectories, all or none, in one transaction; the same run again adds nothing.

        A session that has grown replaces the row that holds its beginning, under the same id; a session that is shorter
        than the stored one is known already.

        Raises:
            Conflict: a trajectory has the id of another run.
            InvalidInput: NaN, Infinity or a lone surrogate in a free field.
        """
        # Encoding is the slow part, so it comes before the write lock.
        rows = [_columns(trajectory.identified()) for trajectory in trajectories]
        with writing(self.engine) as connection:
            return _Addition(connection, now).of(rows)

    def get(self, trajectory_id: str) -> Trajectory:
        """The trajectory with this id.

        Raises:
            NotFound: names the three newest ids.
        """
        with reading(self.engine) as connection:
            return fetch(connection, table, Trajectory, trajectory_id, "trajectory")

    def grow(self, trajectory_id: str, change: Callable[[Trajectory], Trajectory], now: datetime) -> Trajectory:
        """Change a live recording under its id; read and written in one transaction, so no other change is lost.

        Args:
            trajectory_id: The recording.
            change: From what is stored to what shall be; the id stays. What it raises undoes everything.
            now: When it happens.

        Raises:
            NotFound: nothing is stored under the id.
            Conflict: another row already holds exactly the new run.
        """
        with writing(self.engine) as connection:
            stored = fetch(connection, table, Trajectory, trajectory_id, "trajectory")
            grown = change(stored).model_copy(update={"id": trajectory_id})
            row = _columns(grown)
            twin = connection.scalar(
                select(table.c.id).where(table.c.identity == row.columns["identity"], table.c.id != trajectory_id)
            )
            if twin is not None:
                raise Conflict(f"{twin} already holds exactly this run; use it in place of {trajectory_id}")
            _overwrite(connection, row, now)
        return grown

    def search(
        self, filter: TrajectoryFilter, *, limit: int = 50, cursor: str | None = None
    ) -> Page[TrajectorySummary]:
        """One page of the trajectories that match, newest first.

        Raises:
            InvalidInput: a limit outside 1..200 or a cursor of another list.
        """
        c = table.c
        shown = (c.seq, c.id, c.agent_label, c.environment, c.task_id, c.task_type, c.prompt, c.outcome, c.reward)
        statement = select(*shown, c.n_steps, c.job_id, c.created_at).where(*_conditions(filter))
        with reading(self.engine) as connection:
            return fetch_page(
                connection,
                statement,
                table,
                lambda rows: _summaries(rows, _tags(connection, [row.id for row in rows])),
                limit=limit,
                cursor=cursor,
            )

    def iterate(self, filter: TrajectoryFilter | None = None, ids: Sequence[str] | None = None) -> Iterator[Trajectory]:
        """Stream what matches, oldest first; rows that arrive meanwhile are not part of it.

        No lock is held between two batches, however slow the reader.

        Args:
            filter: Conditions; None: every trajectory.
            ids: Only these; None: no such bound.

        Raises:
            NotFound: ids that do not exist, at once and by name.
        """
        conditions = _conditions(filter or TrajectoryFilter())
        with reading(self.engine) as connection:
            if ids is None:
                seqs = list(connection.scalars(select(table.c.seq).where(*conditions).order_by(table.c.seq)))
            else:
                seqs = _seqs_of(connection, ids, conditions)
        return self._stream(seqs)

    def _stream(self, seqs: Sequence[int]) -> Iterator[Trajectory]:
        for start in range(0, len(seqs), _BATCH):
            wanted = select(table.c.document).where(table.c.seq.in_(seqs[start : start + _BATCH]))
            with reading(self.engine) as connection:
                documents = list(connection.scalars(wanted.order_by(table.c.seq)))
            yield from map(Trajectory.model_validate_json, documents)

    def count(self, filter: TrajectoryFilter) -> int:
        """How many trajectories match."""
        with reading(self.engine) as connection:
            return connection.scalar(select(func.count()).select_from(table).where(*_conditions(filter))) or 0


class _Prepared(NamedTuple):
    """A trajectory with an id and what the table holds of it."""

    trajectory: Trajectory
    columns: dict[str, Any]


def _columns(trajectory: Trajectory) -> _Prepared:
    document = encode(trajectory, "trajectory")
    name, label = _agent_names(trajectory.agent)
    columns = {
        "id": trajectory.id,
        "identity": trajectory.identity,
        "session_id": trajectory.session_id or None,
        "opening": _opening(trajectory) if trajectory.session_id else None,
        "job_id": trajectory.job_id,
        "agent": name,
        "agent_label": label,
        "environment": trajectory.task.environment,
        "task_id": trajectory.task.id,
        "task_type": trajectory.task.type,
        "prompt": trajectory.task.prompt[:_PROMPT_CHARS],
        "outcome": trajectory.outcome.status.value,
        "reward": trajectory.outcome.reward,
        "n_steps": len(trajectory.agent_steps),
        "text": _searchable(trajectory),
        "document": document,
    }
    return _Prepared(trajectory, columns)


def _agent_names(agent: AgentInfo) -> tuple[str, str]:
    """The agent's bare name, and NAME@VERSION; a name may be a whole id, `agent:NAME@VERSION`."""
    name, _, version = agent.name.removeprefix("agent:").partition("@")
    version = agent.version or version
    return name, f"{name}@{version}" if version else name


def _searchable(trajectory: Trajectory) -> str:
    """What was asked, said, done and seen, casefolded; field names are not part of it."""
    said = [trajectory.task.prompt]
    for step in trajectory.steps:
        said += [text_of(step.message), step.thought or ""]
        for action in step.actions:
            said += [action.tool, action.raw_args or json.dumps(action.args, ensure_ascii=False)]
        said += [text_of(observation.content) for observation in step.observations]
    return "\n".join(said).casefold()


@dataclass(frozen=True)
class _Addition:
    """One `add_many`, inside its transaction."""

    connection: Connection
    now: datetime

    def of(self, rows: list[_Prepared]) -> list[Added]:
        added: list[Added] = []
        for chunk in chunks(rows):
            known = self._known(chunk)
            fresh: list[_Prepared] = []
            for row in chunk:
                identity = row.columns["identity"]
                if identity in known:
                    added.append(Added(known[identity], created=False))
                    continue
                if row.trajectory.session_id:
                    self._insert(fresh)  # an earlier part of this session may be among them
                    fresh = []
                    if relative := self._same_session(row):
                        known[identity] = relative
                        added.append(Added(relative, created=False))
                        continue
                row = self._with_free_id(row, fresh)
                fresh.append(row)
                known[identity] = row.columns["id"]
                added.append(Added(row.columns["id"], created=True))
            self._insert(fresh)
        return added

    def _known(self, rows: list[_Prepared]) -> dict[str, str]:
        found = select(table.c.identity, table.c.id).where(
            table.c.identity.in_([row.columns["identity"] for row in rows])
        )
        return {row.identity: row.id for row in self.connection.execute(found)}

    def _same_session(self, row: _Prepared) -> str | None:
        """The id of the stored row that this one grew from (it is overwritten) or is the beginning of; else None."""
        new = row.trajectory
        stored = (
            select(table.c.document)
            .where(table.c.opening == row.columns["opening"], table.c.session_id == new.session_id)
            .order_by(table.c.seq.desc())
        )
        for document in self.connection.scalars(stored).all():
            old = Trajectory.model_validate_json(document)
            if _begins(new, old):
                return old.id
            if _begins(old, new):
                grown = new.model_copy(update={"id": old.id})
                _overwrite(self.connection, _columns(grown), self.now)
                return old.id
        return None

    def _with_free_id(self, row: _Prepared, fresh: list[_Prepared]) -> _Prepared:
        """The row under an id that no other run has; a run that was replaced keeps the id of its old content."""
        given, identity = row.columns["id"], row.columns["identity"]
        if (
            all(other.columns["id"] != given for other in fresh)
            and self.connection.scalar(select(table.c.seq).where(table.c.id == given)) is None
        ):
            return row
        if given != f"traj-{identity[:16]}":
            raise Conflict(
                f"trajectory id {given!r} belongs to another run; leave `id` out and the store gives one, or use the id of "
                "the run that you mean"
            )
        return _columns(row.trajectory.model_copy(update={"id": f"traj-{identity[:32]}"}))

    def _insert(self, rows: list[_Prepared]) -> None:
        if not rows:
            return
        moments = {"created_at": self.now, "updated_at": self.now}
        self.connection.execute(insert(table), [row.columns | moments for row in rows])
        _insert_tags(self.connection, rows)


def _opening(trajectory: Trajectory) -> str:
    """Hash of the steps up to the agent's first: two runs of one session that share no opening share no more."""
    first = next(i for i, step in enumerate(trajectory.steps) if step.actor is Actor.AGENT)
    cut = {"steps": trajectory.steps[: first + 1], "task": Task(), "tools": ()}
    return trajectory.model_copy(update=cut).identity


def _begins(part: Trajectory, whole: Trajectory) -> bool:
    """Are the steps of `part` the beginning of, or equal to, those of `whole`? Times, rewards and usage do not count."""
    n = len(part.steps)
    if n > len(whole.steps):
        return False
    cut = part.model_copy(update={"steps": whole.steps[:n]})
    return cut.identity == part.identity


def _overwrite(connection: Connection, row: _Prepared, now: datetime) -> None:
    row_id = row.columns["id"]
    connection.execute(update(table).where(table.c.id == row_id).values(**row.columns, updated_at=now))
    connection.execute(delete(trajectory_tags).where(trajectory_tags.c.trajectory_id == row_id))
    _insert_tags(connection, [row])


def _insert_tags(connection: Connection, rows: list[_Prepared]) -> None:
    tags = [
        {"trajectory_id": row.columns["id"], "tag": tag} for row in rows for tag in dict.fromkeys(row.trajectory.tags)
    ]
    if tags:
        connection.execute(insert(trajectory_tags), tags)


def _conditions(filter: TrajectoryFilter) -> list[ColumnElement[bool]]:
    c = table.c
    found: list[ColumnElement[bool]] = [
        column == value
        for column, value in (
            (c.job_id, filter.job_id),
            (c.environment, filter.environment),
            (c.task_type, filter.task_type),
            (c.outcome, filter.outcome and filter.outcome.value),
        )
        if value is not None
    ]
    if filter.agent is not None:
        agent = filter.agent.removeprefix("agent:")
        found.append(or_(c.agent == agent, c.agent_label == agent))
    found += [
        c.id.in_(select(trajectory_tags.c.trajectory_id).where(trajectory_tags.c.tag == tag)) for tag in filter.tags
    ]
    if filter.min_reward is not None:
        found.append(c.reward >= filter.min_reward)
    if filter.max_reward is not None:
        found.append(c.reward <= filter.max_reward)
    if filter.since is not None:
        found.append(c.created_at >= filter.since)
    if filter.text is not None:
        found.append(c.text.contains(filter.text.casefold(), autoescape=True))
    return found


def _seqs_of(connection: Connection, ids: Sequence[str], conditions: list[ColumnElement[bool]]) -> list[int]:
    wanted = list(dict.fromkeys(ids))
    known: set[str] = set()
    seqs: list[int] = []
    for chunk in chunks(wanted):
        known.update(connection.scalars(select(table.c.id).where(table.c.id.in_(chunk))))
        seqs += connection.scalars(select(table.c.seq).where(table.c.id.in_(chunk), *conditions))
    if len(known) < len(wanted):
        raise missing(connection, table, [i for i in wanted if i not in known], "trajectory")
    return sorted(seqs)


def _tags(connection: Connection, ids: list[str]) -> dict[str, list[str]]:
    t = trajectory_tags.c
    found: dict[str, list[str]] = {}
    for row in connection.execute(select(t.trajectory_id, t.tag).where(t.trajectory_id.in_(ids)).order_by(t.tag)):
        found.setdefault(row.trajectory_id, []).append(row.tag)
    return found


def _summaries(rows: Sequence[Row[Any]], tags: dict[str, list[str]]) -> list[TrajectorySummary]:
    return [
        TrajectorySummary(
            id=row.id,
            agent=row.agent_label,
            environment=row.environment,
            task_id=row.task_id,
            task_type=row.task_type,
            prompt=row.prompt,
            outcome=OutcomeStatus(row.outcome),
            reward=row.reward,
            steps=row.n_steps,
            tags=tuple(tags.get(row.id, ())),
            job_id=row.job_id,
            created_at=row.created_at,
        )
        for row in rows
    ]
