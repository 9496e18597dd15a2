"""Pairs for a reward model with parts: recorded preferences beside the components of stored scores."""

from __future__ import annotations

import json
from pathlib import Path

from quintain.records.dataset import Curation
from quintain.records.labels.preference import Preference
from quintain.records.score import Component, Score
from quintain.tools.data.datasets import export_dataset
from quintain.tools.services import Services
from tools.stored_records import add_runs, add_scores, error_of, new_score
from trajectory_runs import NOW, answer, run, user


def judged(run_id: str, rater: str, **parts: float) -> Score:
    components = tuple(Component(name=name, weight=1, value=value) for name, value in parts.items())
    return new_score(run_id, "judge", 0.5, components=components, rater=rater, rubric="default")


def test_recorded_pairs_get_the_mean_components_of_their_runs_and_forks_none(services: Services) -> None:
    good, bad, other = (run("t1", user(), answer(text), answer("Bye.")) for text in ("One.", "Two.", "Three."))
    a, b, c = add_runs(services, good, bad, other)
    services.store.preferences.add_many(
        [
            Preference(a=a, b=b, better="a", source="person", rater="person:ann"),
            Preference(a=a, b=c, better="a", source="person", rater="person:ann", step=0),
        ],
        NOW,
    )
    arguments = {"trajectory_ids": [a, b, c], "pairs": "recorded", "curation": Curation(parts_of="judge")}
    refused = error_of(export_dataset, services, "reward", "pairs", **arguments)
    assert str(refused).startswith("[no_parts] expected runs with stored components of 'judge'")
    assert "parts_of" in str(error_of(export_dataset, services, "sft", "x", **{**arguments, "pairs": None}))

    by_x, by_y = judged(a, "endpoint:x", right=1.0, polite=0.5), judged(a, "endpoint:y", right=0.5)
    add_scores(services, by_x, by_y, judged(c, "assistant", right=0))
    made = export_dataset(services, "reward", "pairs", **arguments)
    rows = [json.loads(line) for file in Path(made.path).glob("*.jsonl") for line in file.read_text().splitlines()]
    whole, fork = sorted(rows, key=lambda row: -len(row["chosen"]["steps"]))
    assert (whole["chosen_parts"], whole.get("rejected_parts", {})) == ({"right": 0.75, "polite": 0.5}, {})
    assert (fork.get("chosen_parts", {}), fork.get("rejected_parts", {})) == ({}, {})
