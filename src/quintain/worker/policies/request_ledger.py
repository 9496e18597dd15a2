"""Requests of a job: a ledger that survives the death of the worker, the clients that write it, and answers that were paid for."""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from quintain.endpoints.client import Clock, EndpointClient, read_key
from quintain.endpoints.completion import Spent
from quintain.jobs.directory import iterate_lines, open_appending, write_atomically, write_line
from quintain.records.labels.judging import Endpoint
from quintain.settings import secret

_FILE = "requests.jsonl"


class Ledger:
    """`requests.jsonl`: one line when a request is sent, and one with its usage when it ends.

    Requests with the first line only were in flight when their worker died, so their cost is unknown.
    """

    def __init__(self, directory: Path) -> None:
        """Continue the ledger of earlier attempts of the job."""
        self._descriptor = open_appending(directory / _FILE)
        self._total = _read(directory)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def spent(self) -> Spent:
        """Total over all attempts."""
        with self._lock:
            return Spent.model_validate(dict(self._total))

    def note(self, more: Mapping[str, int]) -> None:
        """Record usage. After `close`, requests in flight remain at unknown cost."""
        with self._lock:
            if not self._closed:
                write_line(self._descriptor, json.dumps(dict(more)))
                self._total.update(more)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._closed = True
            os.close(self._descriptor)


def open_client(
    endpoint: Endpoint,
    folder: Path,
    *,
    seed: int = 0,
    asks_for: Literal["answers", "scores", "samples"] = "answers",
) -> tuple[EndpointClient, Ledger]:
    """Open the connections to an endpoint, and the ledger in which the client notes its requests.

    Args:
        endpoint: Target of the requests.
        folder: Folder of the ledger.
        seed: See `EndpointClient`.
        asks_for: See `EndpointClient`.
    """
    clock, key, ledger = Clock(now=lambda: datetime.now(UTC)), read_key(endpoint, secret), Ledger(folder)
    client = EndpointClient(endpoint, clock, key, seed, asks_for=asks_for, before=ledger.spent, note=ledger.note)
    return client, ledger


def close_after(owner: object, client: EndpointClient, ledger: Ledger) -> None:
    """Close a client and its ledger when their owner is garbage-collected."""
    weakref.finalize(owner, ledger.close)
    weakref.finalize(owner, client.close)  # the last finalizer runs first


def spending_report(directory: Path, endpoint: Endpoint) -> dict[str, Any]:
    """Return the total spent at an endpoint over all attempts, for the job's report."""
    spent = Spent.model_validate(dict(_read(directory)))
    return {**spent.model_dump(exclude={"in_flight"}), **cost_report(spent.usd(endpoint), spent.in_flight)}


def cost_report(usd: float | None, unknown: int) -> dict[str, Any]:
    """Return the cost for the report, as a lower bound if requests of unknown cost were in flight at a worker's death."""
    known = None if usd is None else round(usd, 6)
    if not unknown:
        return {"usd": known}
    return {"usd": None, "usd_at_least": known, "requests_of_unknown_cost": unknown}


def _read(directory: Path) -> Counter[str]:
    total = Counter[str]()
    for line in iterate_lines(directory / _FILE):
        total.update(json.loads(line))
    return total


@dataclass(frozen=True)
class AnswerCache:
    """The remembered answers; several jobs may use it at a time."""

    folder: Path

    def get(self, key: str) -> str | None:
        """Return the cached answer to a question, or None."""
        try:
            answer = json.loads(self._path(key).read_bytes())["answer"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return answer if isinstance(answer, str) else None

    def put(self, key: str, answer: str, runs: Sequence[str]) -> None:
        """Remember an answer, with the runs that it is about, so that it goes when one of them is forgotten."""
        path = self._path(key)
        with suppress(OSError):  # a full disk costs money, later, and not the job
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, json.dumps({"runs": list(runs), "answer": answer}).encode())

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"
