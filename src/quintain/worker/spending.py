"""What a job has spent on requests, written down as it is spent: a worker that dies takes no bill with it."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quintain.endpoints.client import Spent
from quintain.jobs.directory import open_appending, read_lines
from quintain.records.judging import Endpoint

_FILE = "requests.jsonl"


class Ledger:
    """`requests.jsonl`: a line when a request is sent, and one with what it used when it comes to an end.

    Requests with the first line alone were in flight when their worker died: whether they cost anything is not known.
    """

    def __init__(self, directory: Path) -> None:
        """Go on with what earlier attempts of the job have written."""
        self._descriptor = open_appending(directory / _FILE)
        self._total = _read(directory)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def spent(self) -> Spent:
        """What was spent so far, all attempts together."""
        with self._lock:
            return Spent.model_validate(dict(self._total))

    def note(self, more: Mapping[str, int]) -> None:
        """Write down what was spent just now; after the end of the job, what was in flight stays of unknown cost."""
        with self._lock:
            if not self._closed:
                append_line(self._descriptor, more)
                _add(self._total, more)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._closed = True
            os.close(self._descriptor)


def bill(directory: Path, endpoint: Endpoint) -> dict[str, Any]:
    """What a job has spent at an endpoint, all attempts together, for its report."""
    spent = Spent.model_validate(dict(_read(directory)))
    return {**spent.model_dump(exclude={"in_flight"}), **cost_of(spent.usd(endpoint), spent.in_flight)}


def cost_of(usd: float | None, unknown: int) -> dict[str, Any]:
    """The cost for the report; requests that were in flight when a worker died may have cost something: then it is a lower bound."""
    known = None if usd is None else round(usd, 6)
    if not unknown:
        return {"usd": known}
    return {"usd": None, "usd_at_least": known, "requests_of_unknown_cost": unknown}


def _read(directory: Path) -> Counter[str]:
    total = Counter[str]()
    for line in lines_of(directory / _FILE):
        _add(total, json.loads(line))
    return total


def _add(total: Counter[str], more: Mapping[str, int]) -> None:
    for name, n in more.items():
        total[name] += n


def lines_of(path: Path) -> Iterator[bytes]:
    """The whole lines of a file; none where it does not exist."""
    offset = 0
    while (read := read_lines(path, offset)).lines:
        yield from read.lines
        offset = read.end


def append_line(descriptor: int, record: Mapping[str, object]) -> None:
    """Write a record as one line."""
    data = memoryview(json.dumps(dict(record)).encode() + b"\n")
    while data:
        data = data[os.write(descriptor, data) :]
