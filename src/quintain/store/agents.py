"""Agents: names, versions and what they are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, insert, or_, select

from quintain.errors import NotFound
from quintain.records.agent import Agent
from quintain.records.filters import Page
from quintain.records.record import nearest, shown
from quintain.store.documents import encode
from quintain.store.engine import reading, writing
from quintain.store.lineage.links import add_links, of_agent
from quintain.store.paging import fetch_page
from quintain.store.tables import agents as table

_REFERENCE = re.compile(r"(?:agent:)?(?P<name>[^@:]+)(?:@(?P<version>[0-9]{1,9}))?")


@dataclass(frozen=True)
class Agents:
    """The stored agents."""

    engine: Engine

    def add(self, agent: Agent, now: datetime) -> Agent:
        """Store an agent under the next version of its name.

        The same job again, or the same content as the newest version, gives back the row that exists.

        Args:
            agent: Its `id`, `version` and `created_at` are given here.
            now: When it is stored.
        """
        with writing(self.engine) as connection:
            if agent.job_id is not None:
                query = select(table.c.document).where(table.c.job_id == agent.job_id)
                if document := connection.scalar(query):
                    return Agent.model_validate_json(document)
            newest = find_agent(connection, agent.name)
            if newest and _content(newest) == _content(agent):
                return newest
            version = newest.version + 1 if newest and newest.version else 1
            given = {"id": f"agent:{agent.name}@{version}", "version": version, "created_at": now}
            stored = agent.model_copy(update=given)
            row = {"name": agent.name, "job_id": agent.job_id, "document": encode(stored, "agent")}
            connection.execute(insert(table), given | row)
            add_links(connection, of_agent(connection, stored))
            return stored

    def get(self, reference: str) -> Agent:
        """The agent that `agent:NAME@VERSION`, `NAME@VERSION`, `agent:NAME` or `NAME` (the newest) means.

        Raises:
            NotFound: lists the known names.
        """
        with reading(self.engine) as connection:
            agent = find_agent(connection, reference)
            if agent is None:
                names = list(connection.scalars(select(table.c.name).distinct().order_by(table.c.name).limit(20)))
                known = f"known names: {', '.join(names)}" if names else "no agent is registered yet"
                near = nearest(reference.removeprefix("agent:"), names)
                raise NotFound(f"no agent {shown(reference)}{near}; {known}; list_library shows every version")
        return agent

    def find(self, reference: str) -> Agent | None:
        """As `get`, but None where there is no such agent."""
        with reading(self.engine) as connection:
            return find_agent(connection, reference)

    def of_job(self, job_id: str) -> list[Agent]:
        """The agents that a job made: those of its stages in their order, then its own."""
        made = or_(table.c.job_id == job_id, table.c.job_id.startswith(f"{job_id}/", autoescape=True))
        with reading(self.engine) as connection:
            documents = connection.scalars(select(table.c.document).where(made))
            agents = [Agent.model_validate_json(document) for document in documents]
        return sorted(agents, key=lambda agent: (agent.job_id == job_id, agent.job_id))

    def page(self, *, limit: int = 50, cursor: str | None = None) -> Page[Agent]:
        """One page of the agents, newest first."""
        with reading(self.engine) as connection:
            return fetch_page(
                connection,
                select(table.c.seq, table.c.document),
                table,
                lambda rows: [Agent.model_validate_json(row.document) for row in rows],
                limit=limit,
                cursor=cursor,
            )


def find_agent(connection: Connection, reference: str) -> Agent | None:
    """The agent that a reference means, as `Agents.get` reads it; None where there is none."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return None
    query = select(table.c.document).where(table.c.name == match["name"]).order_by(table.c.version.desc()).limit(1)
    if match["version"]:
        query = query.where(table.c.version == int(match["version"]))
    document = connection.scalar(query)
    return Agent.model_validate_json(document) if document else None


def _content(agent: Agent) -> Agent:
    return agent.model_copy(update={"id": None, "version": None, "created_at": None})
