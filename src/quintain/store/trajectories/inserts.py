"""Insertion of runs within one transaction: known runs are skipped, sessions grow in place, forgotten runs stay out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, Select, bindparam, delete, insert, or_, select, update

from quintain.errors import Conflict, Unavailable
from quintain.records.imports import IngestStatus
from quintain.records.trajectory import STATED_BY, AgentInfo, OutcomeStatus, Trajectory
from quintain.store.database.documents import chunks
from quintain.store.database.engine import insert_missing
from quintain.store.database.tables import forgotten_sessions, trajectory_tags
from quintain.store.database.tables import trajectories as table
from quintain.store.lineage.links import Link, add_links, run_links
from quintain.store.trajectories.rows import UNNAMED, EncodedRun, agent_names, encode_run, is_prefix, text_of_first_turn


class InsertResult(NamedTuple):
    """Id under which a trajectory is stored, and whether it is new, known or grown."""

    id: str
    status: IngestStatus

    @property
    def created(self) -> bool:
        """Whether a row was inserted."""
        return self.status == "new"


class _Session(NamedTuple):
    """A row of a session. Its document is read on demand."""

    id: str
    forgotten: bool


_c = table.c
_NAMES = select(_c.identity, _c.id, _c.agent, _c.forgotten_at)
_STATES = select(_c.id, _c.identity, _c.outcome, _c.reward, _c.agent, _c.tags, _c.personal_data, _c.forgotten_at)
_SESSIONS = select(_c.opening, _c.session_id, _c.id, _c.forgotten_at).order_by(_c.seq.desc())
_FORGOTTEN = select(forgotten_sessions.c.session_id, forgotten_sessions.c.trajectory_id)

_Key = tuple[str, str]
"""Opening hash and session id."""

_RELATIVES = 200
"""Newest runs of a session that a run is compared with. Very many attempts can share a session id."""


@dataclass
class TrajectoryInserter:
    """Inserts runs. `add` looks up known runs first, one chunk at a time; `add_new` does not."""

    connection: Connection
    now: datetime
    fresh: dict[str, EncodedRun] = field(default_factory=dict)
    """Id -> row of this chunk that is not inserted yet."""
    known: dict[str, str] = field(default_factory=dict)
    """Identity -> id, of stored runs and of `fresh`."""
    sessions: dict[_Key, list[_Session]] = field(default_factory=dict)
    """Runs with this opening, newest first, of stored runs and of `fresh`."""

    def add(self, rows: Sequence[EncodedRun]) -> list[InsertResult]:
        """Store runs.

        Raises:
            Conflict: Another run has the same id.
        """
        added: list[InsertResult] = []
        for chunk in chunks(list(rows)):
            chunk, taken = self._look_up(chunk)
            forgotten = self._look_up_sessions(chunk)
            arrived = [self._add(row, taken, forgotten) for row in chunk]
            self._insert()
            added += self._complete_known(chunk, arrived)
        return added

    def add_new(self, rows: Sequence[EncodedRun]) -> list[InsertResult]:
        """Store runs that are all new and belong to no session, the most common case."""
        self.connection.execute(insert(table), self._complete_rows(rows))
        self._add_details(rows)
        return [InsertResult(row.columns["id"], "new") for row in rows]

    def _look_up(self, chunk: Sequence[EncodedRun]) -> tuple[list[EncodedRun], set[str]]:
        """Look up stored identities. Return the runs, equal ones of several agents apart, and the ids that are taken."""
        stored = list(self._rows_in(_NAMES, _c.identity, [row.columns["identity"] for row in chunk]))
        apart = self._by_agent(chunk, stored)
        changed = [row.columns["identity"] for row, before in zip(apart, chunk, strict=True) if row is not before]
        stored += self._rows_in(_NAMES, _c.identity, changed)
        self.known = {one.identity: one.id for one in stored}
        ids = [row.columns["id"] for row in apart if row.columns["identity"] not in self.known]
        return apart, {one.id for one in self._rows_in(_NAMES, _c.id, ids)}

    def _by_agent(self, rows: Sequence[EncodedRun], stored: Iterable[Any]) -> list[EncodedRun]:
        """Return the runs; one that equals a run of another agent has its agent in its episode key, and so in its identity.

        A run that goes on from another one, such as a correction, is the same whoever wrote it, and so is one that lacks
        the name which the other has. Equals of a forgotten run are forgotten.
        """
        agents = {one.identity: None if one.forgotten_at else one.agent for one in stored}
        ids = {one.identity: one.id for one in stored}
        named: set[str] = set()
        apart: list[EncodedRun] = []
        for row in rows:
            run, identity, name = row.trajectory, row.columns["identity"], row.columns["agent"]
            known = agents.get(identity, UNNAMED)
            if known is not None and _is_nameless(known, row):
                agents[identity] = name
                if run.agent.name != UNNAMED:
                    named.add(identity)
            elif (
                known is not None and name not in (UNNAMED, known) and run.session_id is None and run.continues is None
            ):
                lacks_name = run.agent.name == UNNAMED and identity not in named and identity in ids
                if lacks_name and self._load(ids[identity]).agent.name != UNNAMED:
                    named.add(identity)
                if run.agent.name != UNNAMED or identity not in named:
                    given = run.id if run.id != f"traj-{identity[:16]}" else None
                    key = f"{run.episode_key}/{name}" if run.episode_key else name
                    row = encode_run(run.model_copy(update={"id": given, "episode_key": key}))
            apart.append(row)
        return apart

    def _look_up_sessions(self, chunk: Sequence[EncodedRun]) -> dict[str, str]:
        """Look up the runs of these sessions. Return forgotten session -> id of one of its runs."""
        self.sessions = {}
        openings = sorted({row.columns["opening"] for row in chunk if row.columns["opening"]})
        for row in self._rows_in(_SESSIONS, _c.opening, openings):
            opening, session_id, run_id, forgotten_at = row
            known = self.sessions.setdefault((opening, session_id), [])
            known.append(_Session(run_id, forgotten_at is not None))
        wanted = sorted({row.columns["session_id"] for row in chunk if row.columns["opening"]})
        forgotten = self._rows_in(_FORGOTTEN, forgotten_sessions.c.session_id, wanted)
        return dict(forgotten)

    def _add(self, row: EncodedRun, taken: set[str], forgotten: dict[str, str]) -> InsertResult:
        identity, session_id = row.columns["identity"], row.columns["session_id"]
        if known := self.known.get(identity) or forgotten.get(session_id or ""):
            return InsertResult(known, "known")
        if session_id and (relative := self._same_session(row)):
            self.known[identity] = relative.id
            return relative
        row = self._with_free_id(row, taken)
        run_id = row.columns["id"]
        self.fresh[run_id] = row
        self.known[identity] = run_id
        taken.add(run_id)
        if session_id:
            self.sessions.setdefault((row.columns["opening"], session_id), []).insert(0, _Session(run_id, False))
        return InsertResult(run_id, "new")

    def _same_session(self, row: EncodedRun) -> InsertResult | None:
        """Return the run of the same session that this one extends (and replaces), repeats, or was forgotten with."""
        relatives = self.sessions.get((row.columns["opening"], row.columns["session_id"]), ())
        for relative in [known for known in relatives if not known.forgotten][:_RELATIVES]:
            pending = self.fresh.get(relative.id)
            old = pending.trajectory if pending else self._load_if_related(relative.id, row.trajectory)
            if old is None:
                continue
            if is_prefix(row.trajectory, old):
                return InsertResult(relative.id, "known")
            if is_prefix(old, row.trajectory):
                grown = encode_run(row.trajectory.model_copy(update=_fields_kept(old, row.trajectory)))
                if pending:
                    self.fresh[relative.id] = grown
                else:
                    overwrite(self.connection, grown, self.now)
                return InsertResult(relative.id, "grown")
        return next((InsertResult(known.id, "known") for known in relatives if known.forgotten), None)

    def _complete_known(self, rows: Sequence[EncodedRun], arrived: Sequence[InsertResult]) -> list[InsertResult]:
        """Add missing tags, outcome and knowledge of personal data to known runs. Forgotten runs are unchanged."""
        ids = [one.id for one in arrived if one.status == "known"]
        states = {run_id: state for run_id, *state in self._rows_in(_STATES, _c.id, ids)}
        added = list(arrived)
        for place, (row, one) in enumerate(zip(rows, arrived, strict=True)):
            if one.status == "known":
                identity, outcome, reward, agent, tags, personal_data, forgotten_at = states[one.id]
                if forgotten_at is not None:
                    added[place] = InsertResult(one.id, "forgotten")
                    continue
                is_same = identity == row.columns["identity"]
                has_outcome = row.trajectory.outcome.status is not OutcomeStatus.UNKNOWN and is_same
                # Reading the document is expensive, and most repeated runs agree with the stored one.
                differs = has_outcome and outcome != row.trajectory.outcome.status
                lacks = differs and self._load(one.id).takes_outcome_of(None)
                is_rated = is_same and row.trajectory.outcome.reward is not None
                lacks |= is_rated and reward is None and outcome == OutcomeStatus.UNKNOWN
                is_searched = is_same and personal_data == "unknown" != row.columns["personal_data"]
                is_new_name = is_same and _is_nameless(agent, row) and row.columns["agent"] not in (UNNAMED, agent)
                if lacks or is_searched or is_new_name or not set(row.trajectory.tags) <= set(json.loads(tags)):
                    self._complete(one.id, row.trajectory, same=is_same, outcome=lacks, redaction=is_searched)
                    added[place] = InsertResult(one.id, "completed")
        return added

    def _complete(self, run_id: str, new: Trajectory, *, same: bool, outcome: bool, redaction: bool) -> None:
        old = self._load(run_id)
        changes: dict[str, Any] = {"tags": tuple(dict.fromkeys((*old.tags, *new.tags)))}
        if redaction:
            changes |= {"redaction": new.redaction, "redactions": new.redactions}
        if outcome:
            changes["outcome"] = new.outcome
        if same:  # another file may label the run, or compare it
            extra = {**new.extra, **old.extra}
            if outcome or STATED_BY not in old.extra:
                extra.pop(STATED_BY, None)
            changes["extra"] = extra
            if old.agent.name == UNNAMED:
                changes["agent"] = new.agent
        overwrite(self.connection, encode_run(old.model_copy(update=changes)), self.now)

    def _load_if_related(self, run_id: str, new: Trajectory) -> Trajectory | None:
        """Return a stored run unless its text shows that neither run is the beginning of the other.

        The parts of a long session have 8 million characters each, and an import compares each with all before it.
        """
        shared = text_of_first_turn(new)
        if shared is None:
            return self._load(run_id)
        related = or_(_c.n_steps < 2, _c.text.contains(shared, autoescape=True))
        document = self.connection.scalar(select(_c.document).where(_c.id == run_id, related))
        return Trajectory.from_stored(document) if document else None

    def _load(self, run_id: str) -> Trajectory:
        document = self.connection.scalar(select(table.c.document).where(table.c.id == run_id))
        return Trajectory.from_stored(document or "")

    def _with_free_id(self, row: EncodedRun, taken: set[str]) -> EncodedRun:
        """Return the row with an unused id. A replaced run keeps the id of its old content."""
        wanted, identity = row.columns["id"], row.columns["identity"]
        if wanted not in taken:
            return row
        if wanted != f"traj-{identity[:16]}":
            raise Conflict(
                f"expected an unused trajectory id, got {wanted!r}, which belongs to another run; omit `id`, or pass the id of "
                "the run to extend"
            )
        return encode_run(row.trajectory.model_copy(update={"id": f"traj-{identity[:32]}"}))

    def _insert(self) -> None:
        rows = list(self.fresh.values())
        self.fresh = {}
        if rows:
            # Never with SQLite, whose write lock is held since the look-up.
            if insert_missing(self.connection, table, self._complete_rows(rows)) < len(rows):
                raise Unavailable(
                    "expected to insert new runs, but another program stores the same runs; add them again"
                )
            self._add_details(rows)

    def _complete_rows(self, rows: Sequence[EncodedRun]) -> list[dict[str, Any]]:
        return [{**row.columns, "created_at": self.now, "updated_at": self.now} for row in rows]

    def _rows_in(self, query: Select[Any], column: Column[Any], values: Sequence[Any]) -> Sequence[Any]:
        return self.connection.execute(query.where(column.in_(values))).all() if values else ()

    def _add_details(self, rows: Sequence[EncodedRun]) -> None:
        _insert_tags(self.connection, rows)
        add_run_links(self.connection, (row.trajectory for row in rows))


def _is_nameless(agent: str, row: EncodedRun) -> bool:
    """Whether an equal run that is stored under this name may lack the name of its agent: it has none, or that of the model."""
    return agent in (UNNAMED, agent_names(AgentInfo(model=row.trajectory.agent.model))[0])


def _fields_kept(old: Trajectory, new: Trajectory) -> dict[str, Any]:
    """Return the fields a run keeps when its session grows: id, tags, and links found in other files."""
    return {
        "id": old.id,
        "tags": tuple(dict.fromkeys((*old.tags, *new.tags))),
        "subagents": tuple(dict.fromkeys((*old.subagents, *new.subagents))),
        "continues": new.continues or old.continues,
    }


def overwrite(connection: Connection, row: EncodedRun, now: datetime) -> None:
    """Replace the run stored under this id."""
    run_id = row.columns["id"]
    seq, tags = connection.execute(select(table.c.seq, table.c.tags).where(table.c.id == run_id)).one()
    connection.execute(update(table).where(table.c.id == run_id).values(**row.columns, updated_at=now))
    remove_tags(connection, seq, tags)
    _insert_tags(connection, [row])
    add_run_links(connection, [row.trajectory])


def remove_tags(connection: Connection, seq: int, tags: str) -> None:
    """Remove a row's tags (JSON of the column) from the tag index."""
    t = trajectory_tags.c
    connection.execute(delete(trajectory_tags).where(t.tag.in_(json.loads(tags)), t.seq == seq))


def add_run_links(connection: Connection, runs: Iterable[Trajectory]) -> None:
    """Store the links of these runs to other runs."""
    found: list[Link] = [link for run in runs if run.subagents or run.continues for link in run_links(run)]
    if found:
        add_links(connection, found)


_INSERT_TAG = insert(trajectory_tags).from_select(
    ["tag", "seq"],
    select(bindparam("a_tag", type_=trajectory_tags.c.tag.type), table.c.seq).where(table.c.id == bindparam("a_run")),
)


def _insert_tags(connection: Connection, rows: Sequence[EncodedRun]) -> None:
    tags = [
        {"a_run": row.columns["id"], "a_tag": tag}
        for row in rows
        if row.trajectory.tags
        for tag in dict.fromkeys(row.trajectory.tags)
    ]
    if tags:
        connection.execute(_INSERT_TAG, tags)
