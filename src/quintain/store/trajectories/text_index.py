"""Index for substrings of the searched text: trigrams, by FTS5 in SQLite and by pg_trgm in PostgreSQL.

Both answer the same question, whether the casefolded text contains the casefolded pattern. The index only proposes rows, and
LIKE decides. A pattern of one or two characters begins trigrams: FTS5 finds the runs that have one of them, for every text ends
in two line breaks there. Where these are many, and in PostgreSQL, it is compared with every run, the newest first.

FTS5 takes three times as long as the insertion of a run. New runs are therefore indexed by the reconciler and by searches, a
bounded amount at a time. Until none is left, searches compare the text of every run.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection, Engine, Select, column, func, literal_column, select, table

from quintain.errors import Unavailable
from quintain.store.database.engine import read_transaction, write_transaction

FTS_SINCE = (3, 34)
"""First version of SQLite with the tokenizer `trigram` (sqlite.org/fts5.html#the_trigram_tokenizer)."""

_TRIGRAMS = 10
"""Trigrams of a pattern that are looked up; more of them hardly exclude further rows."""

_TOKENIZED = str.maketrans("\ufffe\uffff", "\ufffd\ufffd")
"""Token that FTS5 makes of two characters that Unicode assigns to nothing."""

_FREQUENT = 2000
"""Runs with a short pattern beyond which the newest runs fill a page soon, however many there are."""

TEXT_INDEX = table("trajectories_text", column("rowid"), column("trajectories_text"))
"""The FTS5 table of the column `text` of the trajectories. Its row id is their `seq`."""

_TRIGRAM_RUNS = table("trajectories_text_trigrams", column("term"), column("doc"))
"""Each trigram with the runs that have it, by `seq` (sqlite.org/fts5.html#the_fts5vocab_virtual_table_module)."""

MATCHED_SEQ = TEXT_INDEX.c.rowid + literal_column("0")
"""The row id as an expression, which no index serves: SQLite then starts from the matches, not from every run."""

_END = "char(10, 10)"
_INDEXED = "old.seq <= (SELECT seq FROM trajectories_text_state)"
_DELETED = (
    f"INSERT INTO trajectories_text(trajectories_text, rowid, text) VALUES ('delete', old.seq, old.text || {_END})"
)
_INSERTED = f"INSERT INTO trajectories_text(rowid, text) VALUES (new.seq, new.text || {_END})"

_SQLITE: tuple[str, ...] = (
    # Without positions (`detail`), the index has a third of the text's size instead of twice it, at half the time.
    "CREATE VIRTUAL TABLE trajectories_text USING fts5(text, content='', tokenize='trigram', detail='none', columnsize=0)",
    "CREATE VIRTUAL TABLE trajectories_text_trigrams USING fts5vocab(trajectories_text, instance)",
    # The newest indexed run. All older ones are indexed too.
    "CREATE TABLE trajectories_text_state (seq INTEGER NOT NULL)",
    "INSERT INTO trajectories_text_state VALUES (0)",
    f"CREATE TRIGGER trajectories_text_delete AFTER DELETE ON trajectories WHEN {_INDEXED} BEGIN {_DELETED}; END",
    "CREATE TRIGGER trajectories_text_update AFTER UPDATE OF text ON trajectories "
    f"WHEN old.text <> new.text AND {_INDEXED} BEGIN {_DELETED}; {_INSERTED}; END",
)

_NEWEST = "SELECT (SELECT seq FROM trajectories_text_state), (SELECT coalesce(max(seq), 0) FROM trajectories)"
_SIZES = "SELECT seq, length(text) FROM trajectories WHERE seq > ? ORDER BY seq"
_ADD = (
    f"INSERT INTO trajectories_text(rowid, text) SELECT seq, text || {_END} FROM trajectories "
    "WHERE seq > ? AND seq <= ? ORDER BY seq"
)
_AT_ONCE_CHARS = 3_000_000
"""Characters that are indexed under one write lock, which takes about 0.4 s."""

_POSTGRESQL: tuple[str, ...] = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    "CREATE INDEX ix_trajectories_text ON trajectories USING gin (text gin_trgm_ops) WHERE forgotten_at IS NULL",
)


def create_text_index(connection: Connection) -> None:
    """Create the index and keep it in step with every later change; `index_new_texts` fills it from the stored runs.

    Raises:
        Unavailable: SQLite was built without FTS5, or is too old for trigrams.
    """
    if connection.dialect.name != "sqlite":
        statements = _POSTGRESQL
    elif sqlite3.sqlite_version_info >= FTS_SINCE and _has_fts5(connection):
        statements = _SQLITE
    else:
        raise Unavailable(
            f"expected SQLite {'.'.join(map(str, FTS_SINCE))} or newer with FTS5, got {sqlite3.sqlite_version}; use a "
            "Python with a newer SQLite",
            code="sqlite_too_old",
        )
    for statement in statements:
        connection.exec_driver_sql(statement)


def index_new_texts(engine: Engine, most_chars: int = _AT_ONCE_CHARS) -> bool:
    """Add the oldest runs that are not in the index yet. Return whether all are in it now.

    It stops behind the run with which the texts exceed `most_chars`. PostgreSQL indexes every run at once by itself.
    """
    if engine.dialect.name != "sqlite":
        return True
    with read_transaction(engine) as connection:
        indexed, newest = connection.exec_driver_sql(_NEWEST).one()
    if indexed == newest:
        return True
    with write_transaction(engine) as connection:
        indexed, newest = connection.exec_driver_sql(_NEWEST).one()
        last, chars = indexed, 0
        for seq, size in connection.exec_driver_sql(_SIZES, (indexed,)):
            last, chars = seq, chars + size
            if chars > most_chars:
                break
        connection.exec_driver_sql(_ADD, (indexed, last))
        connection.exec_driver_sql("UPDATE trajectories_text_state SET seq = ?", (last,))
    return bool(last == newest)


def _has_fts5(connection: Connection) -> bool:
    return bool(connection.exec_driver_sql("SELECT sqlite_compileoption_used('ENABLE_FTS5')").scalar())


def purge_deleted_text(connection: Connection) -> None:
    """Rewrite the index without deleted rows, whose trigrams would otherwise remain until a later merge."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("INSERT INTO trajectories_text(trajectories_text) VALUES ('optimize')")


def runs_with_short(engine: Engine, pattern: str) -> Select[int] | None:
    """Return a query of the `seq` of all indexed runs with a casefolded pattern of one or two characters; None where many match."""
    first = pattern.translate(_TOKENIZED)
    begin = _TRIGRAM_RUNS.c.term.between(first, first + "\U0010ffff" * (3 - len(first)))
    found = select(_TRIGRAM_RUNS.c.doc).where(begin)
    with read_transaction(engine) as connection:
        n = connection.execute(select(func.count()).select_from(found.limit(_FREQUENT).subquery())).scalar_one()
    return found if n < _FREQUENT else None


def trigram_query(pattern: str) -> str | None:
    """Return the FTS5 expression that all texts with this casefolded substring match, or None for fewer than three characters."""
    trigrams = list(dict.fromkeys(pattern[i : i + 3] for i in range(len(pattern) - 2)))
    stride = -(-len(trigrams) // _TRIGRAMS)
    quoted = ('"' + trigram.replace('"', '""') + '"' for trigram in trigrams[:: max(stride, 1)])
    return " AND ".join(quoted) or None
