"""`plan_training`: the choice of a method, settings that start as they are, honest estimates, exact blockers."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from mcp_client import ToolCaller
from quintain.datasets.splits import split_of, task_key
from quintain.errors import InvalidInput, NotFound
from quintain.next_step import ToolCall
from quintain.next_step import call as tool_call
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.dataset import BenchmarkRow, Curation, LabelledRow, PairRow, SplitName
from quintain.records.evaluation import Rate
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.learning_rates import default_rate
from quintain.records.hyperparameters.methods import (
    CONFIGS,
    DATASET_KINDS,
    ONLINE_METHODS,
    LoraConfig,
    PPOConfig,
    SFTConfig,
)
from quintain.records.jobs.job import EvolveSpec, JobResult, JobStatus
from quintain.records.jobs.job_events import JobEvent
from quintain.records.jobs.plan import Estimate, TrainingPlan
from quintain.records.jobs.preview import Histogram, Sample, SplitCounts, Statistics
from quintain.records.trajectory import Outcome, OutcomeStatus, Task, Trajectory
from quintain.store.database.engine import write_transaction
from quintain.store.database.tables import jobs
from quintain.store.job_spans import Span
from quintain.tools.catalog import CATALOG
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.preview import preview_spec
from quintain.tools.evaluation.rollouts import collect_rollouts
from quintain.tools.invocation import check
from quintain.tools.jobs.jobs import get_job
from quintain.tools.labels.judging.tools import get_judging_batch
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services
from quintain.tools.training.config_files import start_config
from quintain.tools.training.methods import METHODS, check_evolution, describe_method, read_hyperparameters
from quintain.tools.training.planning import estimate, warnings
from quintain.tools.training.planning.cost import PassSize, TrainingWork, disk_mb, memory_parts, operations
from quintain.tools.training.planning.device import Device, has_bf16
from quintain.tools.training.planning.estimate import shortages
from quintain.tools.training.planning.model_files import Matrix, ModelFacts, read_model
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.planning.purposes import PURPOSES, Purpose
from quintain.tools.training.planning.settings import settle
from quintain.tools.training.start import start_training
from quintain.worker.evolution.stage_specs import selection_tasks, training_spec
from store_shelves import evaluation
from terminal import quintain
from tools.dict_calls import Caller
from tools.stored_records import add_runs, freeze_rows, freeze_runs
from trajectory_runs import answer, call, run, user

INVENTORY = "quintain/inventory"
CPU = Device("cpu", 16_000.0, 2)
FACTS = ModelFacts(
    parameters=1000 * 64 + 2 * 64 * 64 + 64,
    matrices=(Matrix("q_proj", 64, 64), Matrix("up_proj", 64, 64)),
    active_share=1.0,
    head=64_000,
    hidden=64,
    intermediate=128,
    layers=2,
    heads=2,
    attention_width=128,
    vocabulary=1000,
    context_tokens=4096,
)
"""64,000 embeddings, two matrices of 4,096, and 64 numbers of a norm."""


def made(i: int, status: OutcomeStatus = OutcomeStatus.SUCCESS) -> Trajectory:
    steps = (user(f"Find box {i}."), call("look", f"box {i}"), answer(f"Box {i}."))
    return run(f"t{i}", *steps).model_copy(update={"outcome": Outcome(status=status)})


def good_runs(services: Services, n: int = 12, status: OutcomeStatus = OutcomeStatus.SUCCESS) -> str:
    return freeze_runs(services, *(made(i, status) for i in range(n)))


def codes(plan: TrainingPlan) -> list[str]:
    return [blocker.code for blocker in plan.blockers]


PURPOSE_METHODS: list[tuple[tuple[Purpose, ...], str | None, str]] = [
    (("imitate",), None, "sft"),
    (("prefer",), None, "dpo"),
    (("prefer",), "orpo", "orpo"),
    (("learn_from_marks",), None, "kto"),
    (("improve_by_acting",), None, "grpo"),
    (("score_runs",), None, "reward"),
    (("label_steps",), None, "prm"),
    (("absorb_text",), None, "pretrain"),
    (("keep_skills", "imitate", "improve_by_acting"), None, "sft"),
]


def test_a_purpose_decides_the_method_unless_one_is_named(services: Services) -> None:
    for goal, named, method in PURPOSE_METHODS:
        plan = plan_training(services, goal=goal, method=named)
        assert plan.method == method
        asked = plan.branches[0]
        assert asked.answer in plan.why
        assert asked.question == ("Is a method named?" if named else "What is the training for?")
        if "keep_skills" in goal:
            assert {"lora", "replay"} <= plan.hyperparameters.keys()
            assert "plan_training(goal=['improve_by_acting'], model=...)" in plan.notes[-1]


def test_every_purpose_is_a_closed_word_with_a_sentence_and_free_text_is_refused_with_all_of_them(tool: Caller) -> None:
    refused = tool(action="plan", goal="do not use dpo, use orpo")
    one = tool(action="plan", goal="measure_only", environment=INVENTORY)
    both = tool(action="plan", goal=["measure_only", "imitate"])
    assert refused["status"] == "error"
    assert all(f"{name}: {meaning.sentence}" in refused["message"] for name, meaning in PURPOSES.items())
    assert (one["method"], one["blockers"]) == (None, [])
    assert "evaluate_agent(agent='starter', environment='quintain/inventory')" in one["next_step"]
    assert "got 'measure_only' with imitate" in both["message"]
    named = tool(action="plan", goal="measure_only", method="sft", dataset_id="d")
    assert "got 'measure_only' with sft" in named["message"], "a method that is left out without a word"


UNKNOWN_METHODS: list[tuple[str, str]] = [
    ("REINFORCE++", "ppo"),
    ("ipo", "dpo"),
    ("rejection-sampling", "evolve"),
    ("qlora", "sft"),
    ("4-bit", "sft"),
    ("RLAIF", "grpo"),
    ("proximal policy optimization", "ppo"),
    ("behavioral cloning", "bc"),
    ("Kahneman-Tversky", "kto"),
    ("offline RL", "bc"),
]


_SHELF = "On the shelf are seven boxes of tea and two jars of honey."
"""Long enough that an equal answer shows that a call brought nothing new."""


def _unknown(kind: str) -> list[Trajectory]:
    """Runs of unknown outcome: plain answers; answers beside expected ones, half of them right; runs with and without faults."""
    ask = [user("How many boxes?")]
    unknown = OutcomeStatus.UNKNOWN
    if kind == "rules":
        return [
            run(f"t{i}", *ask, *[call("look", _SHELF, item=i % 2 or n) for n in range(3)], status=unknown)
            for i in range(12)
        ]
    meta = [{"answer": str(i % 2)} if kind == "checker" else {} for i in range(12)]
    tasks = [Task(id=f"t{i}", prompt="How many boxes?", metadata=one) for i, one in enumerate(meta)]
    return [run(None, *ask, answer("1"), task=task, tools=(), status=unknown) for task in tasks]


@pytest.mark.parametrize("kind", ["rules", "checker", "judging"])
def test_runs_of_unknown_outcome_are_sent_to_a_scorer_that_tells_them_apart(services: Services, kind: str) -> None:
    dataset_id = freeze_runs(services, *_unknown(kind))
    (note,) = (one for one in plan_training(services, dataset_id=dataset_id).notes if "outcome" in one)
    (advised,) = note.calls
    if kind == "judging":
        assert advised.tool == "get_judging_batch"
        assert "`checker` and `rules` tell none of 12 runs looked at apart" in note
        assert get_judging_batch(services, 10, filter=TrajectoryFilter(dataset_id=dataset_id)).items
        services.settings.endpoints_file.write_text(
            '[big]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
        )
        (note,) = (one for one in plan_training(services, dataset_id=dataset_id).notes if "outcome" in one)
        assert note.calls[0].arguments["judge"] == "endpoint:big"
    else:
        assert advised.arguments["scorer"] == kind
        found = score_trajectories(services, **{**advised.arguments, "filter": TrajectoryFilter(dataset_id=dataset_id)})
        assert found.scored == 12
        assert found.summary.minimum < found.summary.maximum
        assert "which values 12 of 12 runs looked at" in note
        chosen = TrajectoryFilter(dataset_id=dataset_id)
        scored = export_dataset(services, "sft", "scored", chosen, scorer=kind, min_score=0).dataset_id
        assert not [one for one in plan_training(services, dataset_id=scored).notes if "outcome" in one]


def test_stored_runs_of_unknown_outcome_are_what_a_plan_makes_a_dataset_of(services: Services) -> None:
    """The advised calls are made as they are: scoring, the choice by the scores, and all runs as they are."""
    add_runs(services, *_unknown("checker"))
    advised: list[tuple[Purpose, list[int]]] = [("imitate", [6, 12]), ("learn_from_marks", [12])]
    for purpose, rows in advised:
        (missing,) = plan_training(services, goal=(purpose,)).blockers
        score, *exports = missing.remedy.calls
        assert score.tool == "score_trajectories"
        run_call(services, score)
        made = [
            run_call(services, one, **({"min_score": 0.5} if "min_score" in one.arguments else {})) for one in exports
        ]
        assert [one.rows for one in made] == rows
    (missing,) = plan_training(services, goal=("prefer",)).blockers
    assert [(one.tool, "min_score" in one.arguments) for one in missing.remedy.calls][-1] == ("export_dataset", False)


def run_call(services: Services, advised: ToolCall, **given: Any) -> Any:
    arguments = advised.arguments | given
    chosen = TrajectoryFilter.model_validate(arguments.pop("filter"))
    advise = {"score_trajectories": score_trajectories, "export_dataset": export_dataset}[advised.tool]
    return advise(services, **arguments, filter=chosen)


def test_a_validation_split_is_advised_by_whether_one_was_asked_for(services: Services) -> None:
    shares: dict[SplitName, float] = {"validation": 0.1}
    add_runs(services, *(one for one in map(made, range(9)) if split_of(task_key(one), shares, 0) == "train"))
    every = TrajectoryFilter(outcome=OutcomeStatus.SUCCESS)
    without = export_dataset(services, "sft", "without", every)
    (advice,) = [one for note in plan_training(services, dataset_id=without.dataset_id).notes for one in note.calls]
    split = {"kind": "sft", "name": "without", "path": without.dataset_id, "validation_share": 0.1}
    assert (advice.tool, advice.arguments) == ("export_dataset", split)
    empty = export_dataset(services, "sft", "empty", every, validation_share=0.1)
    assert not empty.splits.get("validation")
    (warning,) = empty.warnings
    assert "meets it" in warning
    (note,) = plan_training(services, dataset_id=empty.dataset_id).notes
    assert note == f"The validation split that was asked for is empty, so overfitting goes unnoticed: {warning}."


def test_steps_that_rules_cannot_rank_are_not_sent_to_rules(services: Services) -> None:
    settings = {"step_weighting": "reward"}
    for kind, advice in (("rules", "score_trajectories(scorer='rules'"), ("judging", "leave `step_weighting` out")):
        dataset_id = freeze_runs(services, *_unknown(kind), name=kind)
        plan = plan_training(services, dataset_id=dataset_id, method="sft", hyperparameters=settings)
        (note,) = (one for one in plan.notes if "weigh alike" in one)
        assert advice in note


def test_step_weights_that_some_runs_have_are_not_advised_away(tool: Caller) -> None:
    for number, rewards in enumerate(((0.2, 0.9), (0.4, 0.1), (None, None))):
        steps = [
            {
                "actor": "agent",
                "actions": [{"tool": "read", "args": {"path": path}}],
                "observations": [{"content": "x"}],
            }
            for path in ("a", "b")
        ]
        steps = [
            step | ({} if reward is None else {"reward": reward}) for step, reward in zip(steps, rewards, strict=True)
        ]
        asked = {"actor": "user", "message": f"Find {number}."}
        record = {
            "task": {"prompt": f"Find {number}."},
            "steps": [asked, *steps, {"actor": "agent", "message": "Done."}],
        }
        recorded = tool(action="record", trajectory=record | {"outcome": {"status": "success"}}, tags=["valued"])
        assert recorded["status"] == "success", recorded
    made = tool(action="export", kind="sft", name="valued", filter={"tags": ["valued"]})
    plan = tool(action="plan", dataset_id=made["dataset_id"], hyperparameters={"step_weighting": "reward"})
    (note,) = (one for one in plan["notes"] if "weigh alike" in one)
    assert note.endswith(
        "1 of 3 runs that were looked at would all weigh alike (no_step_values 1); those of the others are weighed."
    )


def test_a_named_method_that_serves_none_of_the_purposes_is_noted(services: Services) -> None:
    plans = [plan_training(services, ["label_steps"], environment=INVENTORY, method=one) for one in ("grpo", "prm")]
    stated = [
        "grpo was named and serves none of the purposes: label_steps is served by prm." in one.notes for one in plans
    ]
    assert stated == [True, False]


@pytest.mark.parametrize("method", [None, "ppo"])
def test_a_plan_in_a_game_has_an_opponent_and_starts_as_it_is(waiting: Services, method: str | None) -> None:
    nim = "quintain/nim?difficulty=easy"
    plan = plan_training(waiting, ["improve_by_acting"], environment=nim, method=method)
    assert (plan.method, plan.blockers) == (method or "grpo", ())
    assert plan.hyperparameters["self_play"]["pool_size"] == 5
    assert any("opponent='expert'" in note for note in plan.notes), "a game is measured against somebody"
    started = start_training(waiting, plan.method, "starter", environment=nim, hyperparameters=plan.hyperparameters)
    assert started.job_id
    (short,) = plan.estimate.unknown["duration_s"].calls
    assert short.arguments["hyperparameters"]["rollouts"] == 1
    assert start_training(waiting, **short.arguments).job_id, "the short one, too, is played against somebody"


def test_an_unknown_method_lists_all_and_the_one_that_serves_the_same_purpose(services: Services) -> None:
    for name, method in UNKNOWN_METHODS:
        with pytest.raises(
            InvalidInput, match=rf"sft, bc, .*evolve, got '{re.escape(name)}'; for the same purpose use '{method}'"
        ):
            plan_training(services, method=name)
        start = next(spec for spec in CATALOG if spec.name == "start_training")
        with pytest.raises(InvalidInput, match=f"for the same purpose use '{method}'"):
            check(start, {"method": name, "model": "starter"})
    with pytest.raises(InvalidInput, match="got 'prompt optimisation'; list_library") as unrelated:
        plan_training(services, method="prompt optimisation")
    assert "for the same purpose" not in str(unrelated.value), (
        "half of its letters stand in 'proximal policy optimisation'"
    )


def test_a_method_may_be_written_in_capitals(services: Services) -> None:
    assert plan_training(services, method="GRPO", environment=INVENTORY).method == "grpo"
    assert plan_training(services, method="Evolve", environment=INVENTORY).method == "evolve"
    start = next(spec for spec in CATALOG if spec.name == "start_training")
    assert check(start, {"method": "DPO", "model": "starter"})["method"] == "dpo"


def test_constraints_change_settings_and_given_settings_win(services: Services) -> None:
    plan = plan_training(services, goal=("fit_memory", "finish_sooner"), dataset_id=good_runs(services))
    assert plan.hyperparameters["gradient_checkpointing"] is True
    assert plan.hyperparameters["epochs"] == 1.0
    assert plan.hyperparameters["lora"] is None, "adapters on so small a model save nothing"
    kept = plan_training(services, goal=("keep_skills",), dataset_id="some-sft", hyperparameters={"lora": None})
    assert kept.hyperparameters["lora"] is None
    evolved = plan_training(services, goal=("improve_by_acting", "fit_memory"), environment=INVENTORY)
    assert evolved.method == "evolve"
    assert evolved.hyperparameters["training"]["gradient_checkpointing"] is True


def test_settings_choose_among_the_methods_of_a_purpose(services: Services) -> None:
    """TRL's num_generations are the answers of a group, and evolve's rounds only where evolve is named."""

    def planned(*goal: Purpose, method: str | None = None, **settings: Any) -> TrainingPlan:
        return plan_training(services, goal=goal, method=method, environment=INVENTORY, hyperparameters=settings)

    assert planned("improve_by_acting").method == "evolve", "nobody has measured the starter here"
    trl = planned("improve_by_acting", num_generations=8, loss_type="dapo", max_steps=3)
    assert (trl.method, trl.hyperparameters["group_size"]) == ("grpo", 8)
    (branch,) = [one for one in trl.branches if one.question == "Which methods take the settings?"]
    assert branch.answer == "The settings are of grpo: not all are known to evolve and dpo and ppo."
    assert planned("improve_by_acting", iterations=3).hyperparameters["iterations"] == 3
    assert planned(method="evolve", num_generations=3).hyperparameters["iterations"] == 3
    with pytest.raises(InvalidInput, match=r"`beta` cannot be 0.0: .*; the plan chose evolve, .* name their `method`"):
        planned("improve_by_acting", iterations=3, beta=0.0)


def test_a_plan_gives_no_reason_for_a_setting_that_was_asked_for(services: Services) -> None:
    """A reason says what the plan chose: with other settings it would be untrue."""
    chosen = plan_training(services, dataset_id=good_runs(services))
    reasons = ("few enough to train all of them", " instead of 16.")
    assert all(reason in chosen.why for reason in reasons)
    asked = {"batch_size": 8, "lora": {"rank": 4}}
    kept = plan_training(services, dataset_id="some-sft", hyperparameters=asked)
    assert (kept.hyperparameters["batch_size"], kept.hyperparameters["lora"]["rank"]) == (8, 4)
    assert not any(reason in kept.why for reason in reasons)
    wished: tuple[Purpose, ...] = ("improve_by_acting", "finish_sooner", "keep_skills")
    for settings, count in (({}, 3), ({"rollouts": 200, "lora": None}, 1), ({"lora": {"rank": 4}}, 3)):
        plan = plan_training(services, goal=wished, method="grpo", environment=INVENTORY, hyperparameters=settings)
        told = ("finish_sooner: rollouts 5.", "keep_skills: adapters forget less", "keep_skills: a KL term pulls")
        assert sum(reason in plan.why for reason in told) == count


@pytest.mark.parametrize(
    ("solved", "temperature", "blocked", "noted"),
    [(0, 0.0, ["no_successes"], False), (9, 0.0, [], True), (9, 1.0, [], False)],
    ids=["never", "greedily", "by sampling"],
)
def test_an_agent_that_was_measured_learns_by_acting_if_it_succeeds_sometimes(
    services: Services, solved: int, temperature: float, blocked: list[str], noted: bool
) -> None:
    """Groups are sampled: a rate of greedy runs is no rate of theirs."""
    agent = services.store.agents.add(
        Agent(name="mine", model=ModelRef(source="starter", path="starter")), services.clock()
    )
    rate = Rate(successes=solved, n=20, value=solved / 20, ci_low=0, ci_high=1)
    sampling = Sampling(temperature=temperature)
    found = evaluation("eval-1", agent.id or "", environment=INVENTORY, rate=rate, sampling=sampling, repeats=2)
    services.store.evaluations.add(found, services.clock())
    plan = plan_training(services, goal=("improve_by_acting",), environment=INVENTORY, model=agent.id)
    assert (plan.method, codes(plan)) == ("grpo", blocked)
    assert ("solves 45% of 20 episodes there" in plan.why) == (solved > 0)
    assert any("attempts=4, temperature=1) shows how many" in note for note in plan.notes) == noted


def test_without_data_the_goal_decides_and_what_is_missing_blocks_with_its_remedy(services: Services) -> None:
    better = plan_training(services, environment=INVENTORY)
    assert (better.method, better.environment, better.blockers) == ("evolve", INVENTORY, ())
    assert better.estimate.duration_s is None
    assert "hyperparameters={'iterations': 1}" in better.estimate.unknown["duration_s"]
    nowhere = plan_training(services, goal=("improve_by_acting",))
    assert (nowhere.method, codes(nowhere)) == ("grpo", ["no_environment"])
    assert "list_library(kind='environments')" in nowhere.blockers[0].remedy
    acting = plan_training(services, method="ppo", environment=INVENTORY)
    assert (acting.method, acting.blockers, acting.estimate.steps) == ("ppo", (), 80)
    assert acting.hyperparameters["tasks_per_step"] == 64
    assert codes(plan_training(services, method="ppo")) == ["no_environment"]
    taught = plan_training(services, method="distill", environment=INVENTORY, hyperparameters={"teacher": "starter"})
    assert (taught.environment, taught.blockers, taught.dataset_id) == (INVENTORY, (), None)
    nothing = plan_training(services, goal=("imitate",))
    assert (nothing.method, codes(nothing)) == ("sft", ["no_dataset"])
    assert "collect_rollouts" in nothing.blockers[0].remedy
    services.store.trajectories.add_many([made(i) for i in range(12)], services.clock())
    stored = plan_training(services, goal=("imitate",))
    assert "filter={'outcome': 'success'}) takes 12 runs" in stored.blockers[0].remedy
    gone = plan_training(services, goal=("imitate",), model="/no/such/folder")
    assert codes(gone)[0] == "model_not_found"
    assert gone.estimate.memory_mb is None
    with pytest.raises(InvalidInput, match="expected something to plan for"):
        plan_training(services)
    with pytest.raises(NotFound):
        plan_training(services, dataset_id="none")


def test_a_dataset_decides_by_its_kind_and_its_outcomes(services: Services) -> None:
    good, bad = [made(i) for i in range(6)], [made(i + 6, OutcomeStatus.FAILURE) for i in range(6)]
    freeze_runs(services, *good, *bad, name="mixed")
    failed = [made(i + 20, OutcomeStatus.FAILURE) for i in range(3)]
    freeze_runs(services, *failed, name="failed")
    freeze_rows(services, "dpo", [PairRow(chosen=a, rejected=b) for a, b in zip(good, bad, strict=True)], "pairs")
    freeze_rows(services, "kto", [LabelledRow(trajectory=one, desirable=True) for one in good], "thumbs")
    freeze_rows(services, "benchmark", [BenchmarkRow(task=Task(prompt="x"))], "suite")
    assert plan_training(services, dataset_id="mixed").method == "bc"
    hopeless = plan_training(services, dataset_id="failed")
    assert codes(hopeless) == ["too_few_rows", "no_successes"]
    assert "3 training rows" in hopeless.blockers[0].message
    assert plan_training(services, dataset_id="pairs").method == "dpo"
    assert plan_training(services, dataset_id="pairs", method="simpo").method == "simpo"
    assert (
        plan_training(services, goal=("prefer",)).dataset_id == plan_training(services, dataset_id="pairs").dataset_id
    )
    for wrong in (
        plan_training(services, dataset_id="thumbs", method="dpo"),
        plan_training(services, dataset_id="thumbs", goal=("prefer",)),
    ):
        assert codes(wrong) == ["wrong_dataset_kind"]
    assert "kind 'kto' and dpo learns from kind 'dpo'" in wrong.blockers[0].message
    acting = plan_training(services, dataset_id="thumbs", method="ppo")
    assert codes(acting) == ["wrong_dataset_kind", "no_environment"]
    assert "ppo learns by acting, not from dataset" in acting.blockers[0].message
    suite = plan_training(services, dataset_id="suite")
    assert (suite.method, codes(suite)) == (None, ["wrong_dataset_kind"])


def test_uncounted_tokens_are_null_with_a_range_and_the_call_that_counts_them(services: Services) -> None:
    dataset_id = good_runs(services)
    plan = plan_training(services, dataset_id=dataset_id)
    result = plan.estimate
    assert (result.tokens, result.duration_s) == (None, None)
    assert result.tokens_range[0] * 6 == pytest.approx(result.tokens_range[1], abs=6)
    assert result.duration_range_s[0] <= result.duration_range_s[1]
    assert f"preview_dataset(dataset_id={dataset_id!r}" in result.unknown["tokens"]
    assert "held-out" not in plan.why
    assert any("validation_share" in note for note in plan.notes)
    every = describe_method("sft")["hyperparameters"]
    assert plan.fields == {name: line for name, line in every.items() if name in plan.fields}
    assert plan.fields["learning_rate"].startswith("number, default null, above 0 to 1: ")
    assert plan.fields.keys() >= {*plan.hyperparameters, "neftune_alpha"}, "what is set, and the method's own"
    assert not plan.fields.keys() & {"schedule", "lora.rank"}, "what all methods share"
    adapters = plan_training(services, dataset_id=dataset_id, hyperparameters={"lora": {"rank": 4}})
    assert "lora.alpha" in adapters.fields


def test_tokens_that_a_preview_counted_are_taken_and_rows_that_are_cut_are_chunked(services: Services) -> None:
    dataset_id = good_runs(services)
    spec = preview_spec(services, dataset_id, "starter", "sft", {}, Sample())
    counts = SplitCounts(
        rows=12, token_rows=12, total_tokens=1200, trained_tokens=300, truncated_rows=2, dropped={"too_long": 4}
    )
    counted = Statistics(
        fingerprint="f",
        style="tools",
        kind="sft",
        method="sft",
        max_length=4096,
        context_tokens=4096,
        splits={"train": counts},
        lengths=Histogram(n=12, longest=5000),
        checks={},
        warnings=(),
        verdict="Ready",
        places={},
    )
    folder = Path(spec.cache_dir)
    folder.mkdir(parents=True)
    (folder / f"{spec.key}.json").write_text(counted.model_dump_json(), encoding="utf-8")
    plan = plan_training(services, dataset_id=dataset_id)
    assert plan.estimate.tokens == 1200
    assert (plan.hyperparameters["batch_size"], plan.hyperparameters["epochs"], plan.estimate.steps) == (1, 3, 3 * 8)
    assert plan.estimate.duration_s is not None
    assert plan.estimate.unknown == {}
    assert plan.hyperparameters["chunk"] is True
    shorter = plan_training(services, dataset_id=dataset_id, hyperparameters={"max_length": 64}).estimate
    assert shorter.tokens is None, "the preview counted other cuts"
    assert "hyperparameters={'max_length': 64}) counts them" in shorter.unknown["tokens"]


@pytest.mark.usefixtures("jobs_in_process")
def test_the_planned_settings_start_a_job_that_ends_and_the_next_plan_goes_by_it(services: Services) -> None:
    dataset_id = good_runs(services)
    plan = plan_training(services, dataset_id=dataset_id, hyperparameters={"max_steps": 2})
    assert plan.blockers == ()
    # 12 rows make 3 steps of 16 in three epochs: with 1 row a step there are 36.
    assert plan.hyperparameters == {
        **{"epochs": 3.0, "batch_size": 1, "batch_tokens": 4096, "learning_rate": 0.0005, "lora": None},
        "max_steps": 2,
    }
    started = start_training(services, "sft", "starter", dataset_id, hyperparameters=plan.hyperparameters)
    assert started.warnings == ()
    view = get_job(services, started.job_id)
    assert view.status == "succeeded", view.error
    assert view.result.report["steps"] == plan.estimate.steps == 2
    again = plan_training(services, dataset_id=dataset_id, hyperparameters={"max_steps": 2})
    assert view.result.report["learning_rate"] == plan.hyperparameters["learning_rate"]
    assert view.result.report["learning_rate_rule"] == "as requested"
    assert again.estimate.measured_by == (started.job_id,)
    assert again.estimate.memory_mb == pytest.approx(view.metrics["peak_memory_mb"], rel=0.2)
    assert f"Earlier trainings of this model ({started.job_id})" in again.why
    with write_transaction(services.store.engine) as connection:  # as a newer version writes it on the same home
        connection.execute(update(jobs).where(jobs.c.id == started.job_id).values(spec='{"kind": "newer"}'))
    unmeasured = plan_training(services, dataset_id=dataset_id, hyperparameters={"max_steps": 2})
    assert (unmeasured.blockers, unmeasured.estimate.measured_by) == ((), ())


def test_a_plan_to_act_counts_all_rollouts_of_the_training_that_it_goes_by(waiting: Services) -> None:
    """10 s to load, 3 rollouts of 4 s each, acting included, and 2 s to save: 12 s for 3 x 2 x 2 episodes, 1 s each."""
    settings = {"rollouts": 3, "updates_per_rollout": 1, "group_size": 2, "tasks_per_step": 2}
    job_id = start_training(waiting, "grpo", "starter", environment=INVENTORY, hyperparameters=settings).job_id
    begun, store = waiting.clock(), waiting.store.jobs
    store.begin_attempt(job_id, 0, 1, begun)
    marks = [(10, "training"), *((10 + 2 * n, ("acting", "training")[n % 2]) for n in range(6)), (22, "saving")]
    events = [
        JobEvent(attempt=1, seq=n, time=begun + timedelta(seconds=s), type="phase", name=name)
        for n, (s, name) in enumerate(marks)
    ]
    store.ingest_spans([Span(job_id, "events.jsonl", 0, 1, events)], begun)
    ended = begun + timedelta(seconds=24)
    store.finish(job_id, 1, JobStatus.SUCCEEDED, ended, result=JobResult(report={"steps": 3}))
    more = {**settings, "rollouts": 200}
    plan = plan_training(waiting, method="grpo", environment=INVENTORY, hyperparameters=more)
    assert f"{job_id} took 1 s an episode here, and 800 are planned." in plan.why
    assert plan.estimate.duration_s == 812.0


def test_what_blocks_a_plan_is_a_warning_of_a_training_that_starts_all_the_same(waiting: Services) -> None:
    few = good_runs(waiting, 3, OutcomeStatus.FAILURE)
    planned = plan_training(waiting, dataset_id=few)
    started = start_training(waiting, "sft", "starter", few)
    assert [f"[{one.code}] {one.message}; {one.remedy}" for one in planned.blockers] == list(started.warnings)
    assert [text.split("]")[0] for text in started.warnings] == ["[too_few_rows", "[no_successes"]
    stages = [{"method": "sft", "dataset": few, "hyperparameters": {"batch_size": 1}}]
    assert start_config(waiting, {"model": "starter", "stages": stages}).warnings == started.warnings


def test_an_evolution_and_a_stage_in_a_file_of_few_tasks_take_no_more_than_it_has(waiting: Services) -> None:
    """Of all numbers of tasks that nobody stated; what is stated stays, and is refused by the job."""
    rows = [{"prompt": f"{n}?", "answer": "1", "split": "test" if n % 2 else "train"} for n in range(24)]
    waiting.settings.inbox_dir.mkdir(parents=True, exist_ok=True)
    (waiting.settings.inbox_dir / "quiz.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    place = "quintain/tasks?file=quiz.jsonl"
    plan = plan_training(waiting, method="evolve", environment=place)
    fitting = {"tasks_per_iteration": 12, "evaluation_tasks": 4, "final_tasks": 8}
    assert fitting.items() <= plan.hyperparameters.items()
    (note,) = (one for one in plan.notes if "significant" in one)
    assert note.startswith(
        "evaluation_tasks is 4 and final_tasks is 8: a gain is significant from 6 tasks solved more on"
    )
    started = start_training(waiting, "evolve", "starter", environment=place)
    assert started.warnings == (f"[few_held_out] {note}",)
    spec = waiting.store.jobs.get(started.job_id).spec
    assert isinstance(spec, EvolveSpec)
    assert fitting.items() <= spec.config.model_dump().items()
    assert selection_tasks(spec)
    trained = training_spec(spec, 1, spec.agent, place, Path("01-train"))
    assert trained.cache_dir == str(waiting.settings.cache_dir), "equal jobs choose equal back ends there"
    stated = {"tasks_per_iteration": 30, "final_tasks": 2}
    plan = plan_training(waiting, method="evolve", environment=place, hyperparameters=stated)
    assert stated.items() <= plan.hyperparameters.items()
    stage = {"method": "evaluate", "environment": place}
    stages = [stage, {**stage, "split": "all"}]
    recipe = waiting.store.jobs.get(start_config(waiting, {"model": "starter", "stages": stages}).job_id).spec
    assert [one.n_tasks for one in recipe.stages] == [12, 24]
    with pytest.raises(InvalidInput, match=r"stages\[0\]: expected `n_tasks` of at most 12, got 30"):
        start_config(waiting, {"model": "starter", "stages": [{**stage, "n_tasks": 30}]})


def test_a_plan_that_takes_longer_than_it_may_says_so(services: Services) -> None:
    dataset_id = good_runs(services)

    def notes(**settings: float) -> list[str]:
        plan = plan_training(services, dataset_id=dataset_id, hyperparameters=settings)
        return [note for note in plan.notes if note.startswith("max_minutes is 0.01, and its ")]

    assert (len(notes(max_minutes=0.01, epochs=1000)), notes(max_minutes=600, epochs=1)) == (1, [])


def test_a_plan_knows_what_rollouts_have_measured(waiting: Services) -> None:
    goal: Purpose = "improve_by_acting"
    assert plan_training(waiting, goal=(goal,), environment=INVENTORY).method == "evolve"
    played(waiting, 0.25)
    plan = plan_training(waiting, goal=(goal,), environment=INVENTORY)
    assert (plan.method, plan.notes) == ("grpo", ())
    assert "It solves 25% of 20 episodes of rollouts there." in plan.why
    played(waiting, 0.0)
    assert codes(plan_training(waiting, goal=(goal,), environment=INVENTORY)) == ["no_successes"]


def played(services: Services, success_rate: float) -> None:
    """Store rollouts of 20 episodes that have ended."""
    job_id = collect_rollouts(services, "starter", INVENTORY, n_tasks=20, seed=round(success_rate * 100)).job_id
    services.store.jobs.begin_attempt(job_id, 0, 1, services.clock())
    result = JobResult(n=20, success_rate=success_rate)
    services.store.jobs.finish(job_id, 1, JobStatus.SUCCEEDED, services.clock(), result=result)


@pytest.mark.parametrize("method", ["grpo", "evolve"])
def test_an_agent_that_never_succeeds_is_a_warning_of_a_training_that_pays_for_success_alone(
    waiting: Services, method: str
) -> None:
    model = ModelRef(source="starter", path="starter")
    agent = waiting.store.agents.add(Agent(name="mine", model=model), waiting.clock()).id or ""
    never = Rate(successes=0, n=20, value=0.0, ci_low=0, ci_high=0.2)
    waiting.store.evaluations.add(evaluation("eval-1", agent, environment=INVENTORY, rate=never), waiting.clock())
    (blocker,) = plan_training(waiting, method=method, environment=INVENTORY, model=agent).blockers
    both = {"outcome": 1, "length": 1}
    pays_failures = [
        (None, False),
        ("outcome", False),
        ({"parts": both, "combine": "product"}, False),
        (both, True),
        ("length", True),
    ]
    for reward, pays in pays_failures:
        started = start_training(waiting, method, agent, environment=INVENTORY, reward=reward)
        assert started.warnings == (() if pays else (f"[no_successes] {blocker.message}; {blocker.remedy}",))


def test_what_an_agent_lost_to_another_does_not_speak_against_a_game_with_itself(waiting: Services) -> None:
    never = Rate(successes=0, n=20, value=0.0, ci_low=0, ci_high=0.2)
    for place in ("quintain/nim", INVENTORY):
        measured = evaluation(f"eval-{place[-1]}", "agent:starter@1", environment=place, rate=never)
        waiting.store.evaluations.add(measured, waiting.clock())
    game = plan_training(waiting, method="grpo", environment="quintain/nim")
    assert (game.blockers, game.notes) == ((), ())
    (lost,) = plan_training(waiting, method="grpo", environment=INVENTORY).blockers
    assert "at temperature 0: where all runs of a task earn the same" in lost.message
    sample, show, _ = lost.remedy.calls
    assert [one.arguments["agent"] for one in (sample, show)] == ["agent:starter@1", "expert"], "no good run is stored"
    add_runs(waiting, good := made(1), good.model_copy(update={"task": Task(prompt="Find it.", environment=INVENTORY)}))
    (lost,) = plan_training(waiting, method="grpo", environment=INVENTORY).blockers
    _, export = lost.remedy.calls
    assert export.arguments["filter"] == {"environment": INVENTORY, "outcome": "success"}


def test_an_evolution_that_does_not_fit_into_memory_starts_with_a_warning(
    waiting: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warnings, "look_at_device", lambda: CPU._replace(memory_mb=100.0))
    started = start_training(waiting, "evolve", "starter", environment=INVENTORY)
    assert [text.split("]")[0] for text in started.warnings] == ["[out_of_memory"]


def test_the_newest_dataset_with_enough_rows_is_planned_for(services: Services) -> None:
    enough = good_runs(services)
    few = freeze_runs(services, *(made(i + 50) for i in range(3)), name="few")
    plan = plan_training(services, goal=("imitate",))
    assert (plan.dataset_id, plan.blockers) == (enough, ())
    assert codes(plan_training(services, dataset_id=few)) == ["too_few_rows"]


def test_a_planned_step_takes_as_many_rows_as_the_method_needs(services: Services) -> None:
    """A retriever compares the rows of a step: few teach little, however few there are."""
    good_runs(services)
    plan = plan_training(services, goal=("find_tools",))
    assert (plan.method, plan.hyperparameters["batch_size"]) == ("retriever", 16)


def test_branches_show_what_sizes_outcomes_and_memory_decided(services: Services) -> None:
    runs = [made(i, OutcomeStatus.FAILURE if i % 3 == 0 else OutcomeStatus.SUCCESS) for i in range(12)]
    freeze_runs(services, *runs)
    plan = plan_training(services, goal=("imitate",), memory_gb=0.5)
    branches = {branch.question: branch for branch in plan.branches}
    assert plan.method == "bc"
    assert branches["Are all runs good?"].answer.startswith("4 of its runs failed")
    assert branches["Adapters or all weights?"].otherwise == "from 100M parameters on: adapters (LoRA)"
    assert branches["Are there enough rows?"].otherwise == "with rows for 20 steps or more: batch_size 16"
    assert "adapters in place of all weights" in branches["Does it fit into the memory?"].answer
    roomy = plan_training(services, goal=("imitate",), memory_gb=64).branches[-1]
    assert "adapters in place of all weights" in roomy.otherwise
    assert all(branch.answer in plan.why for branch in plan.branches)


def test_notes_of_an_export_are_warnings_of_a_training_on_it(waiting: Services) -> None:
    right = Outcome(status=OutcomeStatus.SUCCESS, reward=1.0)
    add_runs(waiting, *(made(i).model_copy(update={"outcome": right}) for i in range(12)))
    every = TrajectoryFilter(outcome=OutcomeStatus.SUCCESS)
    data = export_dataset(waiting, "sft", "best", every, curation=Curation(top_share=0.9))
    (note,) = data.warnings
    assert note.startswith(
        "`curation.top_share=0.9` takes 11 of 12 runs, 11 of them by the seed among 12 of equal value (1)"
    )
    assert f"[export] {note}" in start_training(waiting, "sft", "starter", data.dataset_id).warnings
    stages = [{"method": "sft", "dataset": data.dataset_id}]
    assert f"[export] {note}" in start_config(waiting, {"model": "starter", "stages": stages}).warnings


def test_bf16_on_a_processor_without_it_is_reported_before_the_job_starts(
    waiting: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "cpuinfo"
    for flags, known in (("fpu avx2 avx512f", False), ("fpu avx512_bf16", True), ("fpu amx_bf16 amx_tile", True)):
        old.write_text(f"processor\t: 0\nflags\t\t: {flags}\n", encoding="ascii")
        assert has_bf16(old) is known
    assert has_bf16(tmp_path / "none") is None
    monkeypatch.setattr(estimate, "has_bf16", lambda: False)
    dataset_id = good_runs(waiting)
    for setting, found in (("bf16", ["no_bf16"]), ("auto", [])):
        planned = plan_training(waiting, dataset_id=dataset_id, hyperparameters={"precision": setting})
        asked = {"precision": setting, "batch_size": 1}
        started = start_training(waiting, "sft", "starter", dataset_id, hyperparameters=asked)
        assert [one.code for one in planned.blockers] == found
        assert [text.split("]")[0].strip("[") for text in started.warnings] == found


@pytest.mark.parametrize("method", METHODS)
def test_settings_of_every_method_are_taken_as_they_are(method: str) -> None:
    acts = method == "evolve"
    settled = settle(method, {}, model=FACTS, data=None, device=CPU, acts=acts)
    if acts:
        assert check_evolution(settled.hyperparameters)[1] == settled.config
        assert "of each round: hidden size 64 <= 512: rate of the starter for sft" in settled.reasons[-1]
    else:
        rate = default_rate(method, 64, adapters=False)
        planned = CONFIGS[method](learning_rate=rate.value)
        assert read_hyperparameters(method, settled.hyperparameters) == planned
        assert settled.reasons[-1] == f"Learning rate {rate.value:g}: {rate.rule}."
        large = FACTS._replace(parameters=200_000_000)
        assert settle(method, {}, model=large, data=None, device=CPU).config.lora == LoraConfig()
        kept = settle(method, {"lora": None, "epochs": 1}, model=large, data=None, device=CPU)
        assert (kept.config.lora, kept.hyperparameters["epochs"]) == (None, 1.0)
    assert set(settled.hyperparameters) <= set(describe_method(method)["hyperparameters"])
    assert method == "evolve" or method in ONLINE_METHODS or method in DATASET_KINDS


def test_memory_disk_and_operations_are_those_of_the_formula() -> None:
    size, mb = PassSize(1024, 512), 2**20
    parts = memory_parts(FACTS, SFTConfig(), CPU, size)
    assert parts["weights"] == parts["gradients"] == FACTS.parameters * 4 / mb
    assert parts["optimizer"] == FACTS.parameters * 8 / mb
    kept = 2 * 2 * 2 * 512 * 1024  # bytes of probabilities: half of 512 keys, two heads, two layers
    assert parts["activations"] == (4 * 2 * (16 * 64 + 8 * 128) * 1024 + kept) / mb
    separate = memory_parts(FACTS, PPOConfig(critic="separate"), CPU, size)
    assert separate["critic"] == 4 * parts["weights"], "weights, gradients and two moments of a copy"
    lora = SFTConfig(lora=LoraConfig(rank=8))
    trained = 2 * 8 * (64 + 64)
    assert FACTS.adapter_parameters(LoraConfig(rank=8)) == trained
    assert FACTS.adapter_parameters(LoraConfig(rank=8, targets=("q_proj",))) == trained / 2
    assert memory_parts(FACTS, lora, CPU, size)["optimizer"] == 8 * trained / mb
    narrow = memory_parts(FACTS, lora.model_copy(update={"precision": "bf16"}), CPU, size)
    assert narrow["weights"] == (2 * FACTS.parameters + 4 * trained) / mb  # passes need more than loading
    assert disk_mb(FACTS, lora) == (12 * trained * 3 + 4 * trained + 4 * trained) / mb
    halved = memory_parts(FACTS, SFTConfig(optimizer="adamw_bf16"), CPU._replace(kind="cuda"), size)
    assert [halved[name] * mb / FACTS.parameters for name in ("weights", "gradients", "optimizer")] == [2, 2, 4]
    quantised = lora.model_copy(update={"quantization": "nf4", "optimizer": "adamw_8bit"})
    parts = memory_parts(FACTS, quantised, CPU, size)
    matrices = sum(matrix.size for matrix in FACTS.matrices)
    blocks = 0.5 + 1 / 64 + 4 / (64 * 256)  # packed weights, 8-bit scales, scales of the scales
    assert parts["weights"] == (4 * (FACTS.parameters - matrices) + blocks * matrices + 4 * trained) / mb
    assert parts["optimizer"] == 2 * trained / mb
    assert memory_parts(FACTS._replace(quantization="nf4"), lora, CPU, size)["weights"] == parts["weights"]
    large = FACTS._replace(parameters=10**9, matrices=(Matrix("q_proj", 30_000, 30_000),))
    assert sum(memory_parts(large, quantised, CPU, PassSize(1, 1)).values()) == pytest.approx(
        4 * (10**9 + 8 * 60_000) / mb + parts["libraries"]
    )
    work = TrainingWork(10, 1000.0, 100.0, 0.5, 0.25, PassSize(1000.0, 100.0), 0.0)
    token = 6 * 8192 + 6 * 128 * 100 / 0.5 + 20_000 * 2 * 64
    assert operations(FACTS, SFTConfig(), work) == pytest.approx(
        500 * token + 6 * 64_000 * 250 + 200 * FACTS.parameters * 10
    )


def test_a_plan_tells_the_largest_model_that_the_memory_holds() -> None:
    """At 4 bytes a parameter 14.4 GB hold less than 3.8B by adapters; at 16 bytes, all weights of less than 0.94B."""

    def told(memory_mb: float, **settings: Any) -> tuple[str, str]:
        branches = settle("sft", settings, model=FACTS, data=None, device=CPU._replace(memory_mb=memory_mb)).branches
        (found,) = [branch for branch in branches if branch.question == "How large may a model be?"]
        return found.answer.rpartition(": ")[2], found.otherwise.rpartition(": ")[2]

    adapters, whole = told(16_000.0)
    assert 2.5 < float(adapters.split()[1][:-1]) < 3.8
    assert 0.6 < float(whole.split()[1][:-1]) < 0.94
    assert told(100.0) == ("none.", "none")


def test_what_does_not_fit_is_made_smaller_and_what_cannot_fit_blocks() -> None:
    wide = FACTS._replace(hidden=2048, intermediate=8192, layers=16)
    settled = settle("sft", {}, model=wide, data=None, device=CPU._replace(memory_mb=3000.0))
    assert settled.config.lora == LoraConfig()
    assert settled.config.batch_tokens < SFTConfig().batch_tokens
    assert any("To fit into memory" in reason for reason in settled.reasons)
    short = Estimate(device="cpu", memory_mb=900.0, available_memory_mb=500.0, disk_mb=70.0, available_disk_mb=60.0)
    assert [blocker.code for blocker in shortages(short)] == ["out_of_memory", "no_disk"]
    assert "900 MiB" in shortages(short)[0].message
    assert shortages(Estimate(device="cpu", memory_mb=900.0)) == []  # nobody knows what is free


def weights(folder: Path, header: dict[str, Any] | bytes, length: int | None = None) -> ModelRef:
    folder.mkdir(exist_ok=True)
    config = {"vocab_size": 100, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    body = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(body) if length is None else length) + body)
    return ModelRef(source="folder", path=str(folder))


def test_sizes_are_read_from_headers_and_hostile_headers_are_told(tmp_path: Path) -> None:
    tensors = {
        "model.embed_tokens.weight": [100, 8],
        "model.layers.0.self_attn.q_proj.weight": [8, 8],
        "norm.weight": [8],
    }
    header = {name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in tensors.items()}
    facts = read_model(weights(tmp_path / "m", {"__metadata__": {"format": "pt"}, **header}))
    assert (facts.parameters, facts.body, facts.head, facts.attention_width) == (872, 64, 800, 8)
    assert facts.matrices == (Matrix("q_proj", 8, 8),)
    bad: list[tuple[dict[str, Any] | bytes, int | None]] = [
        (b"{", None),
        (b"[]", None),
        (b"{}", 2**62),
        ({"w": {"shape": [-1, 2]}}, None),
        ({"w": {"shape": [2**40, 2**40]}}, None),
        ({"w": {"shape": "ab"}}, None),
        ({"w": 5}, None),
        (b"[" * 100_000, None),
    ]
    for content, length in bad:
        result = read_model(weights(tmp_path / "m", content, length))
        assert isinstance(result, str), content
        assert "cannot be read" in result
    assert isinstance(read_model(ModelRef(source="hub", path="a/b")), str)


def test_the_plan_is_the_same_over_mcp_and_by_dict_call(services: Services, ask: ToolCaller, tool: Caller) -> None:
    dataset_id = good_runs(services)
    planned = ask("plan_training", dataset_id=dataset_id)
    assert planned.keys() >= {"method", "hyperparameters", "estimate", "blockers", "why", "fields", "next_step"}
    start = tool_call("start_training", method="sft", model="agent:starter@1", dataset_id=dataset_id)
    assert f"{str(start)[:-1]}, hyperparameters={{" in planned["next_step"]
    answered = tool(action="plan", dataset_id=dataset_id)
    refused = tool(action="plan", dataset_id=dataset_id, hyperparameters={"epoch": 1})
    assert (answered["status"], answered["hyperparameters"]) == ("success", planned["hyperparameters"])
    assert refused["status"] == "error"
    assert "did you mean 'epochs'" in refused["message"]
    small = ask("plan_training", dataset_id=dataset_id, memory_gb=0.25)
    (short,) = small["blockers"]
    assert (short["code"], "256 MiB were stated" in short["message"]) == ("out_of_memory", True)
    assert small["estimate"] | {"available_memory_mb": 256, "memory_is_stated": True} == small["estimate"]
    assert "Memory is compared with what was stated" in small["why"]
    roomy = tool(action="plan", dataset_id=dataset_id, memory_gb=8)
    assert (roomy["blockers"], roomy["estimate"]["available_memory_mb"]) == ([], 8192)


def test_the_command_shows_the_plan_and_ends_with_1_where_something_blocks(services: Services, home: Path) -> None:
    dataset_id = good_runs(services)
    done = quintain("plan", "--dataset", dataset_id, "--set", "epochs=2", "--memory-gb", "8", home=home)
    start = f"quintain train --method sft --model agent:starter@1 --dataset {dataset_id} --set epochs=2.0"
    assert (done.returncode, start in done.stdout, "of 8 GiB stated" in done.stdout) == (0, True, True), done.stdout
    blocked = quintain("plan", "improve_by_acting", home=home)
    assert (blocked.returncode, "[no_environment] grpo learns by acting" in blocked.stdout) == (1, True)


@pytest.mark.soak
def test_planning_loads_no_torch(services: Services, home: Path) -> None:
    good_runs(services)
    program = (
        "import sys; from quintain.cli.main import app; "
        f"app(['plan', '--dataset', 'some-sft', '--home', {str(home)!r}], standalone_mode=False); "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
