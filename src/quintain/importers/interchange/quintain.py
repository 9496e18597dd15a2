"""Quintain's own files: exported trajectories and dataset rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, read_rows
from quintain.importers.run_builder import NO_RUN
from quintain.importers.values import dicts_in, nonblank
from quintain.records.trajectory import Trajectory, read_trajectory


def _detect(probe: Probe) -> float:
    """Match rows that are or contain trajectories with steps of an `actor`."""
    holders = ("steps", "trajectory", "chosen", "trajectories")
    return 0.98 * matching_share(probe, lambda row: any(True for _ in _trajectories_in(row)), *holders)


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    parents: dict[str, str] = {}

    def read_row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
        held = list(_trajectories_in(row))
        if not held:
            raise InvalidInput(NO_RUN)
        for value, extra, tags in held:
            yield _run(read_trajectory(value), extra, tags, line, parents)

    return read_rows(log, report, read_row)


IMPORTER = Importer("quintain", "Quintain trajectories and datasets", _detect, _read)


def _run(run: Trajectory, extra: Mapping[str, Any], tags: tuple[str, ...], line: int, parents: dict[str, str]) -> Run:
    """Return the run without ids of another store; its links use the old ids as keys."""
    key = f"quintain:{run.id}" if run.id else None
    parent = parents.get(run.id or "")
    continues = f"quintain:{run.continues}" if run.continues else None
    if key:
        parents |= dict.fromkeys(run.subagents, key)
    fresh = {
        "id": None,
        "job_id": None,
        "subagents": (),
        "continues": None,
        "tags": tuple(dict.fromkeys([*run.tags, *tags])),
        "extra": {**run.extra, **extra},
    }
    return Run(run.model_copy(update=fresh), line, key, parent, continues)


def _trajectories_in(row: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], dict[str, Any], tuple[str, ...]]]:
    """Yield each trajectory of a row with the row's own fields about it."""
    if _is_trajectory(row):
        yield row, {}, ()
    elif _is_trajectory(row.get("trajectory")):
        desirable = row.get("desirable")
        yield row["trajectory"], {"desirable": desirable} if isinstance(desirable, bool) else {}, ()
    elif _is_trajectory(row.get("chosen")) and _is_trajectory(row.get("rejected")):
        ids = [nonblank(row[side].get("id")) for side in ("chosen", "rejected")]
        for side in ("chosen", "rejected"):
            extra = {"preference": {"pair": " ".join(filter(None, ids)), "side": side}} if all(ids) else {}
            yield row[side], extra, (f"preference:{side}",)
    else:
        for value in dicts_in(row.get("trajectories")):
            if _is_trajectory(value):
                yield value, {}, ()


def _is_trajectory(value: Any) -> bool:
    steps = dicts_in(value.get("steps")) if isinstance(value, Mapping) else []
    return bool(steps) and all(isinstance(step.get("actor"), str) for step in steps[:3])
