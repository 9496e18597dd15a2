"""Trajectory filters as SQL conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Engine, Select, func, or_, select

from quintain.errors import Unavailable
from quintain.records.dataset import SplitName
from quintain.records.filters import TrajectoryFilter
from quintain.store.database.engine import read_transaction
from quintain.store.database.tables import dataset_members, datasets, links, trajectory_tags
from quintain.store.database.tables import trajectories as table
from quintain.store.lineage.links import TAKEN_OVER
from quintain.store.trajectories.text_index import (
    MATCHED_SEQ,
    TEXT_INDEX,
    index_new_texts,
    runs_with_short,
    trigram_query,
)

_c = table.c
_t = trajectory_tags.c


class FilterClause(NamedTuple):
    """SQL conditions of a filter, and the column to order by."""

    conditions: tuple[ColumnElement[bool], ...]
    key: ColumnElement[int]
    """Column `seq` of the table whose index provides the order."""


def filter_clause(filter: TrajectoryFilter, engine: Engine) -> FilterClause:
    """Return the conditions of a filter. Forgotten runs never match.

    A search for text first brings the index of SQLite up to date, as far as that is quick. It does without the index
    where runs are still missing from it, or where the database cannot be written.
    """
    found: list[ColumnElement[bool]] = [_c.forgotten_at.is_(None)]
    key: ColumnElement[int] = _c.seq
    agent = filter.agent and filter.agent.removeprefix("agent:")
    equal = {
        # A label without a version is a bare name, and bare names do not contain "@".
        "agent_label" if agent and "@" in agent else "agent": agent,
        "environment": filter.environment,
        "task_id": filter.task_id,
        "task_type": filter.task_type,
        "session_id": filter.session_id,
        "outcome": filter.outcome and filter.outcome.value,
        "personal_data": filter.personal_data,
    }
    found += [_c[name] == value for name, value in equal.items() if value is not None]
    if filter.job_id is not None:
        found.append(
            job_condition(filter.job_id) if _has_taken_over(engine, filter.job_id) else _c.job_id == filter.job_id
        )
    if filter.tags:
        found += _tag_conditions(list(dict.fromkeys(filter.tags)))
        key = _t.seq
    if filter.dataset_id is not None:
        m = dataset_members.c
        d = datasets.c
        named = select(d.id).where(or_(d.id == filter.dataset_id, d.name == filter.dataset_id))
        newest = named.order_by((d.id == filter.dataset_id).desc(), d.seq.desc()).limit(1).scalar_subquery()
        members = select(m.trajectory_id).where(m.dataset_id == newest)
        if filter.split is not None:
            members = members.where(in_split(filter.split))
        found.append(_c.id.in_(members))
    if filter.min_reward is not None:
        found.append(_c.reward >= filter.min_reward)
    if filter.max_reward is not None:
        found.append(_c.reward <= filter.max_reward)
    if filter.since is not None:
        found.append(_c.created_at >= filter.since)
    if filter.until is not None:
        found.append(_c.created_at < filter.until)
    if filter.text is not None:
        text = filter.text.casefold()
        found.append(_c.text.contains(text, autoescape=True))
        if engine.dialect.name == "sqlite" and _is_indexed(engine):
            if trigrams := trigram_query(text):
                found += [_c.seq == MATCHED_SEQ, TEXT_INDEX.c.trajectories_text.op("MATCH")(trigrams)]
                key = TEXT_INDEX.c.rowid
            elif (runs := runs_with_short(engine, text)) is not None:
                found.append(_c.seq.in_(runs))
    return FilterClause(tuple(found), key)


def job_condition(job_id: str) -> ColumnElement[bool]:
    """Return the condition that a job played a run, or has taken it over from the job that it resumes."""
    return or_(_c.job_id == job_id, _c.id.in_(_taken_over(job_id)))


def _taken_over(job_id: str) -> Select[str]:
    here = links.c.target_kind == "job", links.c.target_id == job_id
    return select(links.c.source_id).where(*here, links.c.source_kind == TAKEN_OVER)


def _has_taken_over(engine: Engine, job_id: str) -> bool:
    """Whether a job has runs of another one. Without, the index of the jobs' runs gives them in order."""
    with read_transaction(engine) as connection:
        return connection.scalar(_taken_over(job_id).limit(1)) is not None


def in_split(split: SplitName) -> ColumnElement[bool]:
    """Return the condition that a member of a dataset is in a split; those of unknown split are in train."""
    m = dataset_members.c
    return (m.split == split) | m.split.is_(None) if split == "train" else m.split == split


def _is_indexed(engine: Engine) -> bool:
    try:
        return index_new_texts(engine)
    except Unavailable:
        return False


def _tag_conditions(tags: Sequence[str]) -> list[ColumnElement[bool]]:
    """Return the conditions that a run has all of these tags: a join for the first one, one count for the others."""
    conditions: list[ColumnElement[bool]] = [_t.tag == tags[0], _t.seq == _c.seq]
    if others := tags[1:]:
        more = trajectory_tags.alias("other_tags").c
        counted = select(func.count()).where(more.seq == _c.seq, more.tag.in_(others)).scalar_subquery()
        conditions.append(counted == len(others))
    return conditions
