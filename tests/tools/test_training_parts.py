"""Trainings through the tools: adapters, frozen blocks, quantised bases, earlier skills, influence and retrievers."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from quintain.environments import configuration
from quintain.environments.registry import task_source
from quintain.errors import Unavailable
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.dataset import PairRow
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.methods import SFTConfig
from quintain.records.jobs.job import Job, JobStatus
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.lineage import datasets_of
from quintain.tools.data.preview import preview_spec
from quintain.tools.data.trajectories import search_trajectories
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.jobs.descriptions import step_reports
from quintain.tools.jobs.jobs import get_job
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.agents import register_agent, resolve_agent
from quintain.tools.training.config_files import start_config
from quintain.tools.training.export_agent import export_agent
from quintain.tools.training.methods import read_hyperparameters
from quintain.tools.training.planning.model_files import adapter_settings
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.start import copy_model, start_training
from tiny_models import save_tiny_model
from tools.stored_records import add_runs, ended, error_of, freeze_rows, freeze_runs, spec_of
from trajectory_runs import NOW, TOOLS, answer, call, run, user

SHORT: dict[str, Any] = {"max_steps": 1, "batch_size": 1}
PISSA: dict[str, Any] = {"lora": {"rank": 2, "alpha": 4.0, "init": "pissa"}, **SHORT}


@pytest.fixture
def dataset(services: Services) -> str:
    """A dataset of one run; its id."""
    return freeze_runs(services, run("t1", user(), answer("Done.")))


@pytest.fixture
def plain(services: Services) -> str:
    """An agent of two blocks; its name."""
    base = ModelRef(source="folder", path=str(save_tiny_model(services.settings.agents_dir / "base", hidden=16)))
    services.store.agents.add(Agent(name="plain", model=base, sampling=Sampling(max_new_tokens=4)), NOW)
    services.store.agents.add(Agent(name="nf4", model=base.model_copy(update={"quantization": "nf4"})), NOW)
    return "plain"


@pytest.mark.usefixtures("jobs_in_process")
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_a_pissa_adapter_is_exported_and_trained_on_as_a_plain_one(
    services: Services, dataset: str, plain: str
) -> None:
    """Rank 2 is stored as 4 with alpha 8: the same scale. Export compares the files with the agent, and fails where they differ."""

    def trained(model: str, settings: dict[str, Any], name: str) -> Agent:
        job = start_training(services, "sft", model, dataset_id=dataset, name=name, hyperparameters=settings)
        assert ended(services, job).error is None
        return resolve_agent(services, name)

    first = trained(plain, PISSA, "first")
    merged = ended(services, export_agent(services, first.id or "", format="merged"))
    assert (merged.status, merged.error) == ("succeeded", None)
    again = trained("first", {"lora": {"b_rate_ratio": 4.0}, **SHORT}, "again")
    settings = adapter_settings(services.settings.agents_dir / str(again.model.adapter))
    assert (settings.rank, settings.alpha) == (4, 8.0)


def test_a_stage_goes_on_with_the_adapter_of_the_stage_before(waiting: Services, dataset: str, plain: str) -> None:
    """A pissa adapter of rank 2 is stored with rank 4; after a stage that trains all weights a new adapter begins."""

    def stages(*settings: dict[str, Any]) -> dict[str, Any]:
        found = [{"method": "sft", "dataset": dataset, "hyperparameters": one} for one in settings]
        return {"model": plain, "stages": found}

    ratio, new = {"lora": {"b_rate_ratio": 4.0}}, {"lora": {"rank": 3}}
    job = waiting.store.jobs.get(start_config(waiting, stages(PISSA, ratio, {}, new)).job_id)
    adapters = [stage.config.lora for stage in job.spec.stages]
    assert [one and (one.rank, one.alpha, one.b_rate_ratio) for one in adapters] == [
        (2, 4.0, 1.0),
        (4, 8.0, 4.0),
        None,
        (3, 32.0, 1.0),
    ]
    error = error_of(start_config, waiting, stages(PISSA, new))
    assert (error.code, "stages[1]: lora: expected" in error.message) == ("adapter_exists", True), error


@pytest.mark.usefixtures("jobs_in_process")
def test_a_training_on_a_dataset_measures_success_in_the_environment_that_is_named(
    services: Services, dataset: str, plain: str
) -> None:
    """A model without training solves none of 3 tasks: the upper bound of 0 of 3 is 1 - 0.025^(1/3)."""
    measured = {"evaluate_every_steps": 2, "evaluate_tasks": 3, "evaluate_environment": "quintain/math"}

    def trained(name: str, **settings: Any) -> list[dict[str, Any]]:
        asked = {"max_steps": 3, "batch_size": 1, "epochs": 3, "learning_rate": 1e-3} | settings
        job = start_training(services, "sft", plain, dataset_id=dataset, name=name, hyperparameters=asked)
        assert ended(services, job).error is None
        return [one.metrics for one in step_reports(services, job.job_id)]

    start, *steps = trained("measured", **measured)
    assert (start["held_out_success"], start["held_out_success_low"]) == (0.0, 0.0)
    assert start["held_out_success_high"] == pytest.approx(1 - 0.025 ** (1 / 3))
    assert ["held_out_success" in one for one in steps] == [False, True, True]
    assert [one["loss"] for one in steps] == [one["loss"] for one in trained("plainly")]


def test_success_is_measured_only_in_an_environment_that_is_named_and_exists(
    waiting: Services, dataset: str, plain: str
) -> None:
    for named, code in (({}, "no_environment"), ({"evaluate_environment": "quintain/maths"}, "environment_not_found")):
        asked = {"evaluate_every_steps": 2, **named}
        error = error_of(start_training, waiting, "sft", plain, dataset_id=dataset, hyperparameters=asked)
        assert error.code == code, error


def test_parts_that_a_model_does_not_have_are_refused_before_a_job_starts(
    waiting: Services, dataset: str, plain: str
) -> None:
    base = resolve_agent(waiting, plain).model
    waiting.store.agents.add(
        Agent(name="adapted", model=base.model_copy(update={"adapter": str(waiting.settings.agents_dir)})), NOW
    )
    unfit = [
        (plain, {"frozen_layers": 2}, "too_many_layers", "expected at most 1 for agent:plain@1"),
        ("nf4", PISSA, "quantized_base", "lora.init"),
        ("adapted", PISSA, "adapter_exists", "whose adapter is trained further"),
        (plain, PISSA | {"weight_decay": 0.1}, "invalid_input", "set weight_decay to 0"),
    ]
    for name, settings, code, words in unfit:
        error = error_of(start_training, waiting, "sft", name, dataset_id=dataset, hyperparameters=settings)
        assert (error.code, words in error.message) == (code, True), error
    assert waiting.store.jobs.page().items == ()


ADAPTERS: dict[str, Any] = {"lora": {"rank": 4}, "quantization": "nf4", "max_steps": 1, "batch_size": 1}


def base_of(services: Services) -> ModelRef:
    return ModelRef(source="folder", path=str(save_tiny_model(services.settings.agents_dir / "base", hidden=16)))


def test_what_cannot_be_trained_on_a_quantised_base_is_refused_before_a_job_starts(
    services: Services, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = base_of(services)
    add = services.store.agents.add
    for method in ("gptq", "fp8"):
        stored = services.settings.agents_dir / method
        shutil.copytree(model.path, stored)
        config = json.loads((stored / "config.json").read_bytes()) | {"quantization_config": {"quant_method": method}}
        (stored / "config.json").write_text(json.dumps(config), encoding="utf-8")
        add(Agent(name=method, model=ModelRef(source="folder", path=str(stored))), NOW)
    add(Agent(name="plain", model=model), NOW)
    add(Agent(name="nf4", model=model.model_copy(update={"quantization": "nf4"})), NOW)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)  # as where the extra is not installed
    unfit = [
        ("plain", {"quantization": "nf4"}, "invalid_input", "set lora to {}"),
        ("plain", {"load_in_4bit": True}, "invalid_input", "set lora to {}"),
        ("plain", ADAPTERS | {"sharding": "full", "processes": 2}, "invalid_input", "set sharding to 'none'"),
        ("gptq", {}, "unsupported_model", "weights are quantised by gptq; name the folder of its plain weights"),
        ("gptq", {"lora": {}}, "unsupported_model", "bitsandbytes, fp8, mxfp4"),
        ("fp8", {}, "quantized_base", "name the unquantised model"),
        ("nf4", {}, "quantized_base", "set lora to {}"),
        ("nf4", ADAPTERS | {"quantization": "int8"}, "quantized_base", "expected quantization 'nf4'"),
        ("nf4", {"lora": {}}, "missing_extra", "quintain[quantized]"),
        ("plain", ADAPTERS, "missing_extra", "bitsandbytes for quantization 'nf4'"),
        ("plain", {"optimizer": "adamw_8bit"}, "missing_extra", "optimizer 'adamw_8bit'"),
    ]
    for name, settings, code, words in unfit:
        error = error_of(start_training, services, "sft", name, dataset_id=dataset, hyperparameters=settings)
        assert (error.code, words in error.message) == (code, True), error
    assert error_of(evaluate_agent, services, "gptq", environment="quintain/inventory").code == "unsupported_model"
    blockers = plan_training(services, method="sft", model="gptq", dataset_id=dataset).blockers
    assert [one.code for one in blockers if "model" in one.code] == ["unsupported_model"]
    acting: list[tuple[Any, dict[str, Any]]] = [
        (collect_rollouts, {"environment": "quintain/inventory"}),
        (evaluate_agent, {"environment": "quintain/inventory"}),
        (evaluate_agent, {"dataset_id": dataset}),
        (export_agent, {"format": "merged"}),
    ]
    for start, more in acting:
        assert error_of(start, services, "nf4", **more).code == "missing_extra"
    assert services.store.jobs.page().items == ()
    plan = plan_training(
        services, method="sft", model="plain", dataset_id=dataset, hyperparameters={"quantization": "nf4"}
    )
    assert plan.hyperparameters["lora"]["rank"] == 16
    assert "missing_extra" in {blocker.code for blocker in plan.blockers}


def test_the_names_of_other_trainers_for_quantised_bases_and_8_bit_moments_are_understood() -> None:
    asked = {"load_in_4bit": True, "load_in_8bit": False, "optim": "adamw_bnb_8bit", "lora_r": 4}
    config = read_hyperparameters("sft", asked)
    assert (config.quantization, config.optimizer) == ("nf4", "adamw_8bit")
    assert read_hyperparameters("sft", {"optim": "adamw_torch"}) == SFTConfig()
    both = error_of(read_hyperparameters, "sft", {"load_in_4bit": True, "load_in_8bit": True})
    assert "both set quantization" in both.message


@pytest.mark.usefixtures("jobs_in_process")
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_a_trained_agent_records_its_quantised_base_and_is_trained_on_with_it(services: Services, dataset: str) -> None:
    pytest.importorskip("bitsandbytes")
    services.store.agents.add(Agent(name="plain", model=base_of(services)), NOW)
    stages = [{"method": "sft", "dataset": dataset, "hyperparameters": one} for one in (ADAPTERS, {})]
    recipe = error_of(start_config, services, {"model": "plain", "stages": stages})
    assert (recipe.code, "stages[1]: expected adapters" in recipe.message) == ("quantized_base", True), recipe
    first = start_training(services, "sft", "plain", dataset_id=dataset, name="first", hyperparameters=ADAPTERS)
    assert get_job(services, first.job_id).status == "succeeded"
    agent = resolve_agent(services, "first")
    assert (agent.model.quantization, agent.model.adapter is not None) == ("nf4", True)
    again = start_training(
        services, "sft", "first", dataset_id=dataset, name="second", hyperparameters={"lora": {}, "max_steps": 1}
    )
    assert get_job(services, again.job_id).status == "succeeded"
    spec = services.store.jobs.get(again.job_id).spec
    assert (spec.config.quantization, spec.config.lora.rank) == ("nf4", 4)
    assert resolve_agent(services, "second").model.quantization == "nf4"


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
    ("clerk", {"stage": "sft"}, "no_earlier_skill", "stages belong to recipes"),
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


@pytest.mark.usefixtures("jobs_in_process")
def test_runs_are_ranked_by_their_gradients_towards_those_of_a_dataset_and_sorted_by_it(services: Services) -> None:
    targets = [run(f"t{n}", user(), call("look", "a box", at=f"shelf {n}"), answer(), tags=("good",)) for n in range(3)]
    add_runs(services, *targets)
    alike = run("a", user(), call("look", "a box", at="shelf 7"), answer(), tags=("pool",))
    garbled = run("b", user(), answer("zq xj vv kk qp wx"), tags=("pool",))
    silent = run("c", user(), answer().model_copy(update={"train": False}), tags=("pool",))
    pool = add_runs(services, alike, garbled, silent)
    export_dataset(services, "sft", "target", filter=TrajectoryFilter(tags=("good",)))

    chosen = TrajectoryFilter(tags=("pool",))
    assert (
        "scorer='influence', judge='starter', target=..." in score_trajectories(services, "influence", chosen).next_step
    )
    job = score_trajectories(services, "influence", judge="starter", target="target", filter=chosen)
    ended = get_job(services, str(job.job_id))
    assert ended.status == "succeeded", ended.error
    assert (ended.result.n, ended.result.n_error) == (2, 1)
    assert {name: ended.result.report[name] for name in ("runs", "targets", "targets_unread", "text_spearman")} == {
        "runs": 3, "targets": 3, "targets_unread": 0, "text_spearman": 1.0,
    }  # fmt: skip
    found = search_trajectories(services, chosen, sort="influence").items
    assert [item.id for item in found] == pool[:2]
    assert (found[0].score or 0) > 0.8 > (found[1].score or 1)
    score = services.store.scores.of_trajectory(pool[0])[0]
    assert [(part.name, part.weight) for part in score.components] == [("gradient", 1.0), ("text", 0.0)]
    assert "to the gradients of 3 targets" in score.feedback
    read = score_trajectories(services, "influence", filter=chosen)
    assert (read.scored, read.unscored_count) == (2, 1)
    assert "cannot be trained on" in next(iter(read.reasons))

    freeze_rows(services, "dpo", [PairRow(chosen=targets[0], rejected=garbled)], name="pairs")
    for arguments, message in (
        ({"judge": "starter"}, r"[no_target] expected `target`, the dataset of the runs"),
        ({"judge": "starter", "target": "nothing"}, "expected a dataset id or name, got 'nothing'"),
        ({"judge": "expert", "target": "target"}, "a script without weights"),
        ({"judge": "starter", "target": "pairs"}, "[wrong_dataset_kind] expected a target of kind sft or benchmark"),
        ({"target": "target"}, "got no `judge`; give `judge='starter'`"),
    ):
        error = error_of(score_trajectories, services, "influence", filter=chosen, **arguments)
        assert message in str(error), str(error)
    error = error_of(score_trajectories, services, "judge", judge="starter", target="target", filter=chosen)
    assert "only `scorer='influence'` takes `target`" in str(error)


TOOLS_1K = "quintain/tools-1k"


def done(services: Services, started: JobStarted) -> Job:
    job = ended(services, started)
    assert job.status is JobStatus.SUCCEEDED, job.error
    return job


@pytest.mark.usefixtures("jobs_in_process")
def test_recorded_calls_train_a_retriever_that_an_environment_searches_with(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Demonstrations of a category, some steps of training, then the expert searches with the result."""
    monkeypatch.setattr(configuration, "_open", None)
    offered = f"{TOOLS_1K}?mode=direct&k=4&types=music&difficulty=easy"
    played = done(services, collect_rollouts(services, "expert", offered, n_tasks=120))
    runs = TrajectoryFilter(job_id=played.id)
    data = export_dataset(services, kind="sft", name="calls", filter=runs, validation_share=0.2)
    started = start_training(
        services,
        "retriever",
        "starter",
        dataset_id=data.dataset_id,
        name="finder",
        hyperparameters={"trunk": "new", "epochs": 8, "batch_size": 8},
    )
    done(services, started)
    agent = resolve_agent(services, "finder")
    assert (agent.role, agent.parent) == ("retriever", "agent:starter@1")
    assert agent.held_out.n == data.splits["validation"]
    assert "retriever=agent:finder@1" in get_job(services, started.job_id).next_step

    searched = f"{TOOLS_1K}?types=music&difficulty=easy&retriever=finder"
    measured = done(services, evaluate_agent(services, "expert", f"{searched}&mode=retrieved&k=5", n_tasks=10))
    metrics = services.store.evaluations.get(measured.result.evaluation_id).metrics
    assert metrics["recall@5"].value == measured.result.success_rate > 0.3, (
        "the expert succeeds where its tool is found"
    )
    assert {"mrr", "ndcg@5", "recall@1"} <= metrics.keys()
    listed = done(services, evaluate_agent(services, "expert", searched, n_tasks=4))
    assert listed.spec.environment.endswith(f"retriever={agent.model.path}")

    exported = done(services, export_agent(services, "finder", "merged"))
    folder = Path(exported.result.report["path"])
    assert {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"} <= set(
        exported.result.report["files"]
    )
    assert "SentenceTransformer" in (folder / "README.md").read_text()
    assert register_agent(services, "copy", str(folder)).agent.role == "retriever"


def test_roles_are_refused_where_another_is_needed(waiting: Services) -> None:
    starter = resolve_agent(waiting, "starter")
    finder = starter.model_copy(update={"id": None, "version": None, "name": "finder", "role": "retriever"})
    waiting.store.agents.add(finder, waiting.clock())
    acting = error_of(collect_rollouts, waiting, "finder", "quintain/inventory")
    assert (acting.code, "is a retriever: it finds tools" in acting.message) == ("not_a_policy", True)
    finding = error_of(evaluate_agent, waiting, "expert", f"{TOOLS_1K}?retriever=starter")
    assert (finding.code, "got agent:starter@1, a policy" in finding.message) == ("not_a_retriever", True)
    assert error_of(evaluate_agent, waiting, "expert", f"{TOOLS_1K}?retriever=nobody").code == "not_found"
    assert error_of(export_agent, waiting, "finder", "gguf").code == "wrong_role"
    direct = error_of(evaluate_agent, waiting, "expert", f"{TOOLS_1K}?mode=direct&retriever=finder")
    assert (direct.code, "set mode=retrieved" in direct.message) == ("bad_option", True)
    assert waiting.store.jobs.page().items == ()


def test_data_from_which_no_retriever_can_learn_is_refused_before_a_job(waiting: Services) -> None:
    runs = (run(f"t{i}", user(f"box {i}"), call(), call("fly"), tools=TOOLS) for i in range(3))
    freeze_runs(waiting, *runs, name="one-tool")
    error = error_of(start_training, waiting, "retriever", "starter", dataset_id="one-tool")
    assert error.code == "too_few_tools"
    assert "got 1 in 3 runs (left out: undefined_tool 3; not defined by their runs: fly)" in error.message
    online = error_of(start_training, waiting, "retriever", "starter", environment=TOOLS_1K)
    assert online.code == "not_online"
    assert error_of(preview_spec, waiting, "one-tool", "starter", "retriever", {}, None).code == "no_preview"
    assert waiting.store.jobs.page().items == ()


def test_a_trained_retriever_is_refused_where_no_models_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server describes environments and loads no model; only a search asks for one."""
    monkeypatch.setattr(configuration, "_open", None)
    source = task_source(f"{TOOLS_1K}?mode=retrieved&retriever=/no/such/folder")
    episode = source.make()
    with pytest.raises(Unavailable, match="play in a job"):
        episode.reset(source.tasks("train", 1, 0)[0])


def test_a_model_in_the_folder_of_another_leaves_none_of_its_files(tmp_path: Path) -> None:
    """A value head beside the sums of another model would be taken for damage; notes of the user stay."""
    for folder, files in (
        ("first", ("model.safetensors", "value_head.safetensors")),
        ("second", ("model.safetensors",)),
    ):
        (tmp_path / folder).mkdir()
        for name in files:
            (tmp_path / folder / name).write_text(folder)
        (tmp_path / folder / "SHA256SUMS").write_text("".join(f"{0:064}  {name}\n" for name in files))
    target = tmp_path / "output"
    copy_model(str(tmp_path / "first"), target)
    (target / "notes.txt").write_text("mine")
    copy_model(str(tmp_path / "second"), target)
    assert sorted(path.name for path in target.iterdir()) == ["SHA256SUMS", "model.safetensors", "notes.txt"]
