"""Trajectory filters as SQL conditions: one statement per combination of fields, with values as parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, ColumnElement, Engine, String, bindparam, func, literal_column, select

from quintain.errors import Unavailable
from quintain.records.filters import TrajectoryFilter
from quintain.store.tables import Moment, dataset_members, trajectory_tags
from quintain.store.tables import trajectories as table
from quintain.store.trajectories.text_index import MATCHED_SEQ, TEXT_INDEX, index_new_texts, trigram_query

_c = table.c
_t = trajectory_tags.c


class FilterClause(NamedTuple):
    """SQL conditions of a filter, and the column to order by."""

    conditions: tuple[ColumnElement[bool], ...]
    """Conditions with parameters named as in `filter_parameters`."""
    key: ColumnElement[int]
    """Column `seq` of the table whose index provides the order."""


def filter_parameters(filter: TrajectoryFilter, engine: Engine) -> dict[str, Any]:
    """Return parameter name -> value for the conditions that are set.

    A search for text first brings the index of SQLite up to date, as far as that is quick. It does without the index
    where runs are still missing from it, or where the database cannot be written.
    """
    text = filter.text and filter.text.casefold()
    trigrams = trigram_query(text) if text and engine.dialect.name == "sqlite" else None
    if trigrams and not _is_indexed(engine):
        trigrams = None
    agent = filter.agent and filter.agent.removeprefix("agent:")
    values = {
        "job_id": filter.job_id,
        "dataset_id": filter.dataset_id,
        # A label without a version is a bare name, and bare names do not contain "@".
        "agent_label" if agent and "@" in agent else "agent": agent,
        "environment": filter.environment,
        "task_type": filter.task_type,
        "outcome": filter.outcome and filter.outcome.value,
        "personal_data": filter.personal_data,
        "min_reward": filter.min_reward,
        "max_reward": filter.max_reward,
        "since": filter.since and Moment.text_of(filter.since),
        "text": text and f"%{_escaped(text)}%",
        "trigrams": trigrams,
        **{f"tag_{i}": tag for i, tag in enumerate(dict.fromkeys(filter.tags))},
    }
    return {name: value for name, value in values.items() if value is not None}


def _is_indexed(engine: Engine) -> bool:
    try:
        return index_new_texts(engine)
    except Unavailable:
        return False


def _escaped(text: str) -> str:
    for character in "/%_":
        text = text.replace(character, f"/{character}")
    return text


@lru_cache(maxsize=256)
def filter_clause(names: tuple[str, ...]) -> FilterClause:
    """Return the conditions for these parameters. Forgotten runs never match."""
    found: list[ColumnElement[bool]] = [_c.forgotten_at.is_(None)]
    key: ColumnElement[int] = _c.seq
    if tags := [name for name in names if name.startswith("tag_")]:
        found += _tag_conditions(tags)
        key = _t.seq
    for name in names:
        if name in tags:
            continue
        if name == "trigrams":
            found += [_c.seq == MATCHED_SEQ, TEXT_INDEX.c.trajectories_text.op("MATCH")(bindparam(name))]
            key = TEXT_INDEX.c.rowid
        elif name == "dataset_id":
            m = dataset_members.c
            found.append(_c.id.in_(select(m.trajectory_id).where(m.dataset_id == bindparam(name))))
        elif name == "min_reward":
            found.append(_c.reward >= bindparam(name))
        elif name == "max_reward":
            found.append(_c.reward <= bindparam(name))
        elif name == "since":
            found.append(_c.created_at >= bindparam(name, type_=String()))
        elif name == "text":
            found.append(_c.text.like(bindparam(name), escape="/"))
        else:
            found.append(_c[name] == bindparam(name))
    return FilterClause(tuple(found), key)


def _tag_conditions(names: Sequence[str]) -> list[ColumnElement[bool]]:
    """Return the conditions that a run has all of these tags: a join for the first one, one count for the others."""
    conditions: list[ColumnElement[bool]] = [_t.tag == bindparam(names[0]), _t.seq == _c.seq]
    others: list[BindParameter[str]] = [bindparam(name) for name in names[1:]]
    if others:
        more = trajectory_tags.alias("other_tags").c
        counted = select(func.count()).where(more.seq == _c.seq, more.tag.in_(others)).scalar_subquery()
        conditions.append(counted == literal_column(str(len(others))))
    return conditions
