"""Requests of a batch, in a file beside the file of its answers: both name them by `custom_id` (OpenAI, Anthropic, Groq)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.importers.files.spooled_list import Spool
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Report
from quintain.importers.values import as_dict, as_list, as_text, nonblank

_FOUND = "what was asked is in {} beside this file, by custom_id"


class BatchRequests:
    """Bodies of requests by their names, in bounded memory; files beside the log are read when an answer needs them."""

    def __init__(self, log: LogFile) -> None:
        """Begin without requests."""
        self._log = log
        self._spool = Spool()
        self._places: dict[str, int | None] | None = None
        """Name -> place of the body; None: several requests have that name."""
        self._file = ""

    def of(self, row: Mapping[str, Any], model: str | None, report: Report) -> dict[str, Any]:
        """Return the body of the request that a row answers; {} where it names none, or one for another model."""
        name = nonblank(row.get("custom_id"))
        if name is None:
            return {}
        if self._places is None:
            self._places = {}
            for beside in self._log.siblings(".", ".jsonl"):
                self._read(beside, self._places)
        place = self._places.get(name)
        body = {} if place is None else as_dict(self._spool.get(place))
        if not body or not (model or "").startswith(as_text(body.get("model"))):
            return {}
        report.note(_FOUND.format(self._file))
        return body

    def _read(self, beside: LogFile, places: dict[str, int | None]) -> None:
        """Take the requests of a file, as far as its rows are requests."""
        for _, row in beside.rows(Report()):
            request = as_dict(row)
            body, name = as_dict(request.get("body", request.get("params"))), nonblank(request.get("custom_id"))
            if name is None or not as_list(body.get("messages")):
                return
            self._file = beside.path.name
            places[name] = None if name in places else self._spool.put(body, beside.reading.unpacked)
