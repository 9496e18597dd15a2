"""Runs whose outcome nobody stated: how they get a value that a training can go by."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from quintain.datasets.manifest import manifest_entries
from quintain.endpoints.profiles import read_profiles
from quintain.next_step import Hint, call
from quintain.records.dataset import Dataset
from quintain.records.filters import TrajectoryFilter
from quintain.records.trajectory import OutcomeStatus
from quintain.records.wording import counted
from quintain.scoring.outcomes.answer_scorers import CheckerScorer
from quintain.scoring.rules.scorer import RulesScorer
from quintain.tools.services import Services

_SAMPLED = 50
"""Runs that are scored to see whether a scorer tells them apart."""


class _Scoring(NamedTuple):
    scorer: str
    how: Hint


def scoring_note(services: Services, dataset: Dataset) -> list[Hint]:
    """Return how to score a dataset's runs of unknown outcome; nothing where a scorer chose them, or their log labels them."""
    selection = manifest_entries(Path(dataset.path)).get("selection")
    if isinstance(selection, dict) and selection.get("scorer"):
        return []
    runs = TrajectoryFilter(dataset_id=dataset.id, outcome=OutcomeStatus.UNKNOWN)
    if (scoring := _scoring(services, runs, {"dataset_id": dataset.id})) is None:
        return []
    return [Hint("The outcome of these runs is unknown: score them before you rely on them, with ", scoring.how, ".")]


def valuing(services: Services, kind: str, environment: str | None, n: int) -> Hint:
    """Return how to make a dataset of `n` stored runs of unknown outcome."""
    runs = TrajectoryFilter(environment=environment, outcome=OutcomeStatus.UNKNOWN)
    chosen = runs.model_dump(mode="json", exclude_defaults=True)
    named: dict[str, Any] = {"kind": kind, "name": "good-runs" if kind == "sft" else f"my-{kind}", "filter": chosen}
    found = f"{counted(n, 'run')} of unknown outcome"
    if (scoring := _scoring(services, runs, chosen)) is None:
        return Hint(call("export_dataset", **named), f" takes {found} by the labels of their log")
    bound: dict[str, Any] = {"min_score": ...} if kind in {"sft", "kto"} else {}
    export = call("export_dataset", **named, scorer=scoring.scorer, **bound)
    remedy = Hint(f"{found} can be scored: ", scoring.how, "; then ", export)
    if kind != "sft":
        return remedy
    return Hint(remedy, ", or all of them as they are: ", call("export_dataset", **named, outcomes=["unknown"]))


def _scoring(services: Services, stored: TrajectoryFilter, chosen: dict[str, Any]) -> _Scoring | None:
    """Return the scorer that tells a sample of runs apart, else a judge, and its call; None where their log labels them."""
    runs = list(islice(services.store.trajectories.iterate(stored), _SAMPLED))
    if all(run.logged_label for run in runs):
        return None
    looked_at = f"{counted(len(runs), 'run')} looked at"
    for scorer in (CheckerScorer(), RulesScorer()):
        values = [value for run in runs if (value := scorer.score(run).value) is not None]
        if len(set(values)) > 1:
            score = call("score_trajectories", scorer=scorer.name, filter=chosen)
            return _Scoring(scorer.name, Hint(score, f", which values {len(values)} of {looked_at}"))
    if profiles := sorted(read_profiles(services.settings.endpoints_file)):
        judge = call("score_trajectories", scorer="judge", judge=f"endpoint:{profiles[0]}", filter=chosen)
    else:
        judge = call("get_judging_batch", limit=10, filter=chosen)
    return _Scoring("judge", Hint(judge, f"; `checker` and `rules` tell none of {looked_at} apart"))
