"""Size and modification time of imported files, so that unchanged files are not read again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine, or_, select

from quintain.records.imports import FileStamp
from quintain.store.database.engine import read_transaction, upsert, write_transaction
from quintain.store.database.tables import imported_files as table


@dataclass(frozen=True)
class Imports:
    """Table of imported files."""

    engine: Engine

    def stamps_below(self, path: Path) -> dict[str, FileStamp]:
        """Return URI -> stamp of a file, or of every file in a folder."""
        inside = table.c.uri.startswith(f"{str(path).rstrip(os.sep)}{os.sep}", autoescape=True)
        with read_transaction(self.engine) as connection:
            rows = connection.execute(select(table).where(or_(table.c.uri == str(path), inside)))
            return {row.uri: FileStamp.model_validate(dict(row._mapping)) for row in rows}

    def add(self, stamps: Sequence[FileStamp], now: datetime) -> None:
        """Record that these files were imported. A newer stamp replaces the older one."""
        rows = [stamp.model_dump() | {"imported_at": now} for stamp in {stamp.uri: stamp for stamp in stamps}.values()]
        with write_transaction(self.engine) as connection:
            upsert(connection, table, rows)
