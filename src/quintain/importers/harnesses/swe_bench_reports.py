"""Find the SWE-bench reports on a run, where the harness and the agents' programs store them.

The harness writes `MODEL.RUN_ID.json` (ids of all instances by verdict) where it was started, and a report for each
instance at `logs/run_evaluation/RUN_ID/MODEL/INSTANCE/report.json`. MODEL is what the predictions call it, `__` for `/`.
Leaderboard folders have `trajs/` and `logs/INSTANCE/report.json`. Many agents are evaluated in one place, so a report with a
model's name counts only where the predictions beside the run name that model, or no report names another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import first_verdict, report_verdict
from quintain.importers.values import as_dict, as_text, nonblank

_NEAR = ("report.json", "results.json", "../report.json", "../results.json", "../preds.report.json")
_ABOVE = (".", "..", "../..")
"""Folders, relative to the run, in which the harness may have been started."""
_PREDICTIONS = ("preds.json", "../preds.json", "../all_preds.json")


def find_verdict(log: LogFile, own: Iterable[Any], instance: str | None) -> bool | None:
    """Return whether an instance was resolved, by the log itself, a report beside it, or the harness."""
    if (own_verdict := first_verdict(own, instance)) is not None or instance is None:
        return own_verdict
    near = (*_NEAR, f"{instance}/report.json", *(f"{above}/logs/{instance}/report.json" for above in _ABOVE))
    if (own_verdict := first_verdict(map(_content, map(log.sibling, near)), instance)) is not None:
        return own_verdict
    found = [
        (model, verdict)
        for model, report in _by_model(log, instance)
        if (verdict := report_verdict(report, instance)) is not None
    ]
    wanted = _models(log, instance)
    known = {model for model, _ in found}
    chosen = wanted & known if wanted else known if len(known) == 1 else set()
    verdicts = {verdict for model, verdict in found if model in chosen}
    return verdicts.pop() if len(verdicts) == 1 else None


def _by_model(log: LogFile, instance: str) -> Iterator[tuple[str, Any]]:
    """Yield reports of the harness with the model that each one covers."""
    for above in _ABOVE:
        for beside in log.siblings(above):
            model, dot, run = beside.path.name.removesuffix(".json").rpartition(".")
            if dot and model and run != "traj":
                report = as_dict(_content(beside))
                if isinstance(report.get("resolved_ids"), list):
                    yield model, report
                else:
                    beside.disown()
        place = f"{above}/logs/run_evaluation"
        for run in log.folders(place):
            for model in log.folders(f"{place}/{run}"):
                yield model, _content(log.sibling(f"{place}/{run}/{model}/{instance}/report.json"))


def _models(log: LogFile, instance: str) -> set[str]:
    """Return the model names in the predictions beside a run, spelled as in reports."""
    predictions = [as_dict(_content(log.sibling(name))).get(instance) for name in _PREDICTIONS]
    predictions.append(_content(log.sibling(f"{instance}.pred")))
    named = (as_dict(prediction).get("model_name_or_path") for prediction in predictions)
    return {as_text(name).replace("/", "__") for name in named if nonblank(name)}


def _content(beside: LogFile | None) -> Any:
    """Return the content of a file beside the log; None if it is missing or not JSON."""
    if beside is None:
        return None
    try:
        stamp = beside.path.stat()
        return _parsed(beside, stamp.st_mtime_ns, stamp.st_size)
    except (InvalidInput, OSError):
        return None


@lru_cache(maxsize=8)
def _parsed(beside: LogFile, mtime_ns: int, size: int) -> Any:
    return beside.document()
