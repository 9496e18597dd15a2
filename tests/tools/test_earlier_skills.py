"""EWC through the tools: what it keeps is resolved, and what it cannot keep is refused before a job starts."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.records.agent import Agent
from quintain.records.dataset import PairRow
from quintain.tools.data.lineage import datasets_of
from quintain.tools.services import Services
from quintain.tools.training.agents import resolve_agent
from quintain.tools.training.config_files import start_config
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.start import start_training
from tools.stored_records import error_of, freeze_rows, freeze_runs, spec_of
from trajectory_runs import answer, run, user

ENVIRONMENT = "quintain/inventory"


@pytest.fixture
def library(waiting: Services) -> Services:
    """Datasets `first` and `second` of runs and `pairs`; `clerk`, trained from the starter on `first`; jobs never begin."""
    good, bad = run("t1", user(), answer("Done.")), run("t1", user(), answer("No idea."))
    first = freeze_runs(waiting, good, name="first")
    freeze_runs(waiting, bad, name="second")
    freeze_rows(waiting, "dpo", [PairRow(chosen=good, rejected=bad)], "pairs")
    starter = resolve_agent(waiting, "starter")
    clerk = Agent(name="clerk", model=starter.model, parent=starter.id, dataset_id=first)
    waiting.store.agents.add(clerk, waiting.clock())
    waiting.store.agents.add(clerk.model_copy(update={"name": "baker", "parent": None}), waiting.clock())
    return waiting


def test_a_training_keeps_the_skill_of_its_start_model_or_of_an_agent_before_it(library: Services) -> None:
    started = start_training(library, "sft", "clerk", dataset_id="second", hyperparameters={"ewc": {"strength": 3}})
    spec = spec_of(library, started)
    assert (spec.earlier.agent, spec.earlier.dataset_id) == (None, library.store.datasets.get("first").id)
    assert set(datasets_of(spec)) == {spec.dataset_id, spec.earlier.dataset_id}
    lineage = library.store.lineage
    assert spec.earlier.dataset_id in {ref.id for ref in lineage.ancestors(lineage.resolve(started.job_id), 2).nodes}

    ewc = {"agent": "starter", "dataset": "first", "labels": "recorded"}
    started = start_training(library, "sft", "clerk", dataset_id="second", hyperparameters={"ewc": ewc})
    assert spec_of(library, started).earlier.agent.id == "agent:starter@1"


UNFIT: list[tuple[str, dict[str, Any], str, str]] = [
    ("starter", {}, "no_earlier_skill", "trained on no dataset; name runs of the skill in ewc.dataset"),
    ("starter", {"agent": "clerk"}, "no_earlier_skill", "the start model agent:starter@1 or an agent"),
    ("clerk", {"agent": "baker"}, "no_earlier_skill", "got agent:baker@1"),
    ("clerk", {"stage": "sft"}, "no_earlier_skill", "stages are those of a recipe"),
    ("clerk", {"stage": "sft", "agent": "clerk"}, "invalid_input", "both stage and agent"),
    ("clerk", {"dataset": "pairs"}, "wrong_dataset_kind", "of kind 'dpo'"),
    ("clerk", {"dataset": "none"}, "not_found", "none"),
]


def test_what_has_no_earlier_skill_to_keep_is_refused_before_a_job_starts(library: Services) -> None:
    for model, ewc, code, words in UNFIT:
        error = error_of(start_training, library, "sft", model, dataset_id="second", hyperparameters={"ewc": ewc})
        assert (error.code, words in error.message) == (code, True), error
    more: list[tuple[str, str, dict[str, Any], str]] = [
        ("sft", "clerk", {"ewc": {}, "lora": {}}, "ewc_new_adapters"),
        ("sft", "clerk", {"ewc": {}, "sharding": "full", "processes": 2}, "invalid_input"),
    ]
    for method, model, settings, code in more:
        error = error_of(start_training, library, method, model, dataset_id="second", hyperparameters=settings)
        assert (error.code, "replay" in error.message) == (code, True), error
    evolved = {"training": {"ewc": {}}}
    error = error_of(start_training, library, "evolve", "clerk", environment=ENVIRONMENT, hyperparameters=evolved)
    assert "leave ewc out" in error.message
    assert library.store.jobs.page().items == ()
    plan = plan_training(library, method="sft", model="starter", dataset_id="second", hyperparameters={"ewc": {}})
    assert "no_earlier_skill" in {blocker.code for blocker in plan.blockers}
    plan = plan_training(library, method="sft", model="clerk", dataset_id="second", hyperparameters={"ewc": {}})
    assert {blocker.code for blocker in plan.blockers} == {"too_few_rows"}


def recipe(*stages: dict[str, Any]) -> dict[str, Any]:
    return {"stages": [{"method": "sft", **stage} for stage in stages]}


def test_a_stage_of_a_recipe_names_the_stage_whose_skill_it_keeps(library: Services) -> None:
    first = {"dataset": "first", "label": "first"}
    keeping = {"dataset": "second", "label": "second", "hyperparameters": {"ewc": {"stage": "first"}}}
    measured = {"method": "evaluate", "environment": ENVIRONMENT, "label": "first"}
    spec = spec_of(library, start_config(library, recipe(measured, first, keeping)))
    stage = spec.stages[2]
    assert (stage.earlier.stage, stage.earlier.dataset_id) == ("first", library.store.datasets.get("first").id)
    assert len(library.store.jobs.page().items) == 1

    lora = {**keeping, "hyperparameters": {"ewc": {"stage": "first"}, "lora": {}}}
    online = {"method": "grpo", "environment": ENVIRONMENT, "label": "first"}
    unfit = [
        (recipe(keeping), "stages[0]: expected in ewc.stage", "none, because no training comes before"),
        (recipe(first, first, keeping), "stages[2]", "one earlier stage"),
        (recipe(first, {**keeping, "hyperparameters": {"ewc": {}}}), "stages[1]", "got null"),
        (recipe(first, lora), "stages[1]", "new adapters begin at B = 0"),
        (recipe(online, keeping), "stages[1]", "name runs of the skill in ewc.dataset"),
    ]
    for document, *words in unfit:
        error = error_of(start_config, library, document)
        assert all(word in error.message for word in words), error
    assert len(library.store.jobs.page().items) == 1
