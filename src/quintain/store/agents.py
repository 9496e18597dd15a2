"""Stored agents: names, versions and provenance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, func, insert, or_, select, update

from quintain.errors import NotFound
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.filters import Page
from quintain.records.wording import nearest, shown
from quintain.store.database.documents import encode, read_all
from quintain.store.database.engine import read_transaction, write_transaction
from quintain.store.database.paging import contain_words, fetch_page
from quintain.store.database.tables import agents as table
from quintain.store.lineage.links import add_links, agent_links

_REFERENCE = re.compile(r"(?:agent:)?(?P<name>[^@:]+)(?:@(?P<version>[0-9]{1,9}))?")


@dataclass(frozen=True)
class Agents:
    """Table of agents. Versions are immutable."""

    engine: Engine

    def add(self, agent: Agent, now: datetime) -> Agent:
        """Store an agent under the next version of its name, which is assigned here with its id and time.

        Return the existing row for a job that already has an agent, or for content equal to the newest version.
        """
        with write_transaction(self.engine) as connection:
            if agent.job_id is not None:
                query = select(table.c.document).where(table.c.job_id == agent.job_id)
                if document := connection.scalar(query):
                    return Agent.from_stored(document)
            newest = find_agent(connection, agent.name)
            if newest and _content(newest) == _content(agent):
                return newest
            versions = select(func.max(table.c.version)).where(table.c.name == agent.name)
            version = (connection.scalar(versions) or 0) + 1  # after removed ones too: an id means one agent
            assigned = {"id": f"agent:{agent.name}@{version}", "version": version, "created_at": now}
            stored = agent.model_copy(update=assigned)
            row = {"name": agent.name, "job_id": agent.job_id, "document": encode(stored, "agent")}
            connection.execute(insert(table), assigned | row)
            add_links(connection, agent_links(connection, stored))
            return stored

    def get(self, reference: str) -> Agent:
        """Return the agent for `agent:NAME@VERSION`, `NAME@VERSION`, `agent:NAME` or `NAME` (the newest version).

        Raises:
            NotFound: The agent does not exist. The message lists known names.
        """
        with read_transaction(self.engine) as connection:
            agent = find_agent(connection, reference)
            if agent is None:
                kept = select(table.c.name).where(table.c.removed_at.is_(None))
                names = sorted(connection.scalars(kept.distinct()))[:20]  # databases sort differently
                near = nearest(reference.removeprefix("agent:"), names)
                wrong = f"expected a registered agent, got {shown(reference)}{near}; "
                if not names:
                    register = call("register_agent", name="baseline", model="starter")
                    raise NotFound(Hint(f"{wrong}none is registered: name a model with ", register))
                known = f"known names: {', '.join(names)}; see "
                raise NotFound(Hint(wrong, known, call("list_library", kind="agents")))
        return agent

    def find(self, reference: str) -> Agent | None:
        """Return the agent like `get`, or None if it does not exist."""
        with read_transaction(self.engine) as connection:
            return find_agent(connection, reference)

    def remove(self, agent_id: str, now: datetime) -> None:
        """Hide a version of an agent from all but lineage. It is not given again; its files are the caller's."""
        with write_transaction(self.engine) as connection:
            connection.execute(update(table).where(table.c.id == agent_id).values(removed_at=now))

    def of_job(self, job_id: str) -> list[Agent]:
        """Return the agents that a job produced: first those of its stages in order, then its own."""
        of_job = or_(table.c.job_id == job_id, table.c.job_id.startswith(f"{job_id}/", autoescape=True))
        agents = read_all(
            self.engine, Agent, select(table.c.id, table.c.document).where(of_job, table.c.removed_at.is_(None))
        )
        return sorted(agents, key=lambda agent: (agent.job_id == job_id, agent.job_id))

    def page(self, *, text: str = "", limit: int = 50, cursor: str | None = None) -> Page[Agent]:
        """Return one page of the agents, newest first, whose ids or names contain all words of `text`."""
        words = contain_words(text, table.c.id, table.c.name)
        return fetch_page(self.engine, table, Agent, table.c.removed_at.is_(None), *words, limit=limit, cursor=cursor)


def find_agent(connection: Connection, reference: str) -> Agent | None:
    """Return the agent for a reference in the syntax of `Agents.get`, or None."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return None
    query = select(table.c.id, table.c.document).where(table.c.name == match["name"], table.c.removed_at.is_(None))
    query = query.order_by(table.c.version.desc()).limit(1)
    if match["version"]:
        query = query.where(table.c.version == int(match["version"]))
    row = connection.execute(query).first()
    return None if row is None else Agent.from_stored(row.document, row.id)


def _content(agent: Agent) -> Agent:
    return agent.model_copy(update={"id": None, "version": None, "created_at": None})
