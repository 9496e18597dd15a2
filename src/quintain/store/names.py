"""Ids and names of stored records for shell completion, read without SQLAlchemy, which takes most of a second to import."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal
from urllib.parse import quote

NamedKind = Literal["runs", "jobs", "datasets", "agents", "evaluations", "comparisons"]

_QUERIES: dict[NamedKind, str] = {
    "runs": "SELECT id, '' FROM trajectories WHERE forgotten_at IS NULL AND id LIKE ? ESCAPE '\\' ORDER BY seq DESC LIMIT ?",
    "jobs": "SELECT id, kind || ', ' || status FROM jobs WHERE id LIKE ? ESCAPE '\\' ORDER BY seq DESC LIMIT ?",
    "datasets": "SELECT name, id FROM datasets WHERE removed_at IS NULL AND name LIKE ? ESCAPE '\\' ORDER BY seq DESC LIMIT ?",
    "agents": "SELECT name, max(version) || ' versions' FROM agents WHERE removed_at IS NULL AND name LIKE ? ESCAPE '\\' "
    "GROUP BY name ORDER BY max(seq) DESC LIMIT ?",
    "evaluations": "SELECT id, agent_id FROM evaluations WHERE id LIKE ? ESCAPE '\\' ORDER BY seq DESC LIMIT ?",
    "comparisons": "SELECT id, environment FROM comparisons WHERE id LIKE ? ESCAPE '\\' ORDER BY seq DESC LIMIT ?",
}
_WAIT_S = 0.2


def newest_names(database: Path, kind: NamedKind, start: str, limit: int = 50) -> list[tuple[str, str]]:
    """Return the newest ids or names of a kind that begin with a text, each with a word about it.

    A missing or locked file, or one without the table, yields nothing. Datasets and agents have names, the others ids.
    """
    pattern = start.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True, timeout=_WAIT_S)) as connection:
            return [
                (str(name), str(about or "")) for name, about in connection.execute(_QUERIES[kind], (pattern, limit))
            ]
    except sqlite3.Error:
        return []
