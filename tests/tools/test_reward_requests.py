"""Rewards as callers write them, resolved before a job starts, and the values of steps and parts that trainings learn from."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_endpoint import profile, write_profiles
from quintain.datasets.rows import read_rows
from quintain.datasets.step_labels import unweighted_reason
from quintain.errors import InvalidInput
from quintain.records.dataset import Curation, DatasetRow, GroupRow
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import EvolveSpec, RolloutSpec, TrainSpec
from quintain.records.labels.preference import Preference
from quintain.records.score import Component, Score, StepScore
from quintain.records.trajectory import OutcomeStatus
from quintain.scoring import registry
from quintain.scoring.registry import _REGISTERED, register
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.preview import preview_dataset
from quintain.tools.evaluation.rollouts import collect_rollouts
from quintain.tools.labels.rewards import reward_spec
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.start import start_training
from tools.dict_calls import Caller
from tools.stored_records import add_runs, add_scores, error_of, new_score, spec_of
from trajectory_runs import NOW, answer, call, run, user

INVENTORY = "quintain/inventory"
MIX = {"parts": {"outcome": 0.8, "short": {"weight": 0.2, "type": "length", "full_at": 5}}, "cap": 0.9}


def test_one_reward_goes_into_every_kind_of_job(waiting: Services) -> None:
    wanted = reward_spec(waiting, MIX)
    assert [(part.scorer, part.weight) for part in wanted.parts] == [("outcome", 0.8), ("short", 0.2)]
    small: dict[str, Any] = {"environment": INVENTORY, "reward": MIX}
    jobs = [
        start_training(waiting, "grpo", "starter", **small),
        start_training(waiting, "dpo", "starter", **small),
        start_training(waiting, "evolve", "starter", **small),
        collect_rollouts(waiting, "starter", INVENTORY, reward=MIX),
        collect_rollouts(waiting, "starter", INVENTORY, scorer=MIX),
    ]
    specs = [spec_of(waiting, job) for job in jobs]
    assert [type(spec) for spec in specs] == [TrainSpec, TrainSpec, EvolveSpec, RolloutSpec, RolloutSpec]
    assert [spec.reward for spec in specs] == [wanted] * 5
    assert len({job.job_id for job in jobs[:3]}) == 3
    other = start_training(waiting, "grpo", "starter", environment=INVENTORY)
    assert (other.deduplicated, spec_of(waiting, other).reward) == (False, None)


def test_scoring_takes_the_same_form_and_the_same_names(services: Services) -> None:
    runs = [run(f"t{i}", user(), answer("word " * n)) for i, n in enumerate((5, 200))]
    ids = add_runs(services, *runs)
    found = score_trajectories(services, MIX, trajectory_ids=ids)
    assert found.scorer == "mix(outcome=0.8, short:length(full_at=5)=0.2, cap=0.9)"
    assert (found.summary.minimum, found.summary.maximum) == (pytest.approx(0.8), 0.9)
    wider = {
        "parts": {**MIX["parts"], "short": {"weight": 0.2, "type": "length", "full_at": 5, "zero_at": 300}},
        "cap": 0.9,
    }
    other = score_trajectories(services, wider, trajectory_ids=ids)
    assert other.summary.minimum != found.summary.minimum
    for one in (found, other):
        stored = services.store.scores.latest(one.scorer, ids).values()
        assert min(score.value for score in stored) == pytest.approx(one.summary.minimum, abs=1e-6), (
            "each mix keeps its own scores"
        )
    single = score_trajectories(services, {"type": "length", "full_at": 5}, trajectory_ids=ids)
    assert (single.scorer, single.summary.mean) == ("length(full_at=5)", 0.5)
    named = score_trajectories(services, {"length": {"weight": 1, "full_at": 5}}, trajectory_ids=ids)
    assert (named.scorer, named.summary.mean) == ("mix(length(full_at=5)=1)", 0.5), "a part named as a type is of it"


def test_a_part_that_says_the_same_of_every_run_is_named_with_what_it_saw(services: Services) -> None:
    runs = [run(f"t{i}", user(), answer(f"Done {i}.")) for i in range(10)]
    ids = add_runs(services, *runs)
    found = score_trajectories(services, "helloagents", trajectory_ids=ids)
    result = {warning.split("'")[1]: warning for warning in found.warnings}
    assert "is 0 in all 10 runs" in result["steps"]
    assert "0 step marks in the text" in result["steps"]
    assert "is 1 in all 10 runs" in result["length"]
    assert "free up to 1,024" in result["length"]


def test_a_judge_is_named_in_the_reward_or_is_the_only_endpoint(waiting: Services) -> None:
    with pytest.raises(InvalidInput, match=r"no_judge.*there is no endpoint"):
        reward_spec(waiting, "judge:default")
    write_profiles(waiting.settings, profile("fake"))
    (part,) = reward_spec(waiting, "judge:default").parts
    (judge,) = part.judges
    assert (part.scorer, judge.endpoint.name, judge.rubric.name) == ("judge:default", "fake", "default")
    write_profiles(waiting.settings, profile("fake"), profile("other"))
    with pytest.raises(InvalidInput, match="endpoints: fake, other"):
        reward_spec(waiting, {"judge:default": 1})
    asked = {
        "judge": {"weight": 1, "judge": "endpoint:other", "mode": "group", "rubric": {"criteria": {"kind": "Is it?"}}}
    }
    (part,) = reward_spec(waiting, asked).parts
    (judge,) = part.judges
    assert (judge.mode, part.scorer.startswith("judge:custom-")) == ("group", True)


def test_a_function_reaches_a_job_if_another_process_can_import_it(
    waiting: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_mine.py").write_text("def mine(run):\n    return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    from acme_mine import mine

    try:
        register("mine", mine)
        (part,) = reward_spec(waiting, "mine").parts
        assert (part.function, part.folder) == ("acme_mine:mine", str(tmp_path))
        (tmp_path / "acme_mine.py").rename(tmp_path / "gone.py")
        with pytest.raises(InvalidInput, match=r"No module named 'acme_mine'.*top level of a module"):
            reward_spec(waiting, "mine")
        (tmp_path / "gone.py").rename(tmp_path / "acme_mine.py")
        monkeypatch.setenv(
            "PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        )
        part = reward_spec(waiting, {"mine": 1, "outcome": 1}).parts[0]
        assert (part.function, part.folder) == ("acme_mine:mine", None), "found without its folder"
        register("local", lambda run: 1.0)
        with pytest.raises(InvalidInput, match="the running program defines it"):
            reward_spec(waiting, "local")
    finally:
        for name in ("mine", "local"):
            _REGISTERED.pop(name, None)
        del sys.modules["acme_mine"]


WRONG_REWARDS: list[tuple[Any, str]] = [
    ({"outcome": 0.0}, "at least one weight above 0"),
    ({"outcome": 1, "length": {"weight": "much"}}, "expected the weight of 'length' to be a number >= 0, got 'much'"),
    ({"outcome": True}, "expected the weight of 'outcome' to be a number >= 0, got True"),
    ({"outcome": {"wieght": 1}}, "wieght is not a known field"),
    ({"parts": {"outcome": 1}, "cap": 2}, "at most 1"),
    ({"parts": {"outcome": 1}, "combine": "least"}, "mean, lower_bound, product"),
    ({"parts": {"outcome": 1}, "combine": "lower_bound"}, "at least two"),
    ({"parts": {"outcome": 20, "length": 1}, "combine": "product"}, "exponent of at most 10"),
    ({str(i): 1 for i in range(30)}, "at most 20 parts"),
    ("outcom", "did you mean 'outcome'"),
    ("people", "when the job is done"),
    ({"people": 1, "outcome": 1}, "export_dataset(kind=..., name=..., scorer='people', filter=...)"),
    ({"outcome": 1, "length": 1, "cap": 0.9}, "expected cap beside parts"),
    ({"outcome": 1, "length": 1, "combine": "product"}, "'combine': 'product'}"),
    ({"length": 1, "x": {"type": "length"}, "y": {"type": "length", "name": "x"}}, "twice"),
    ("agent:starter", "not_a_reward_model"),
]


def test_a_wrong_reward_is_refused_before_a_job_is_made(waiting: Services) -> None:
    for reward, words in WRONG_REWARDS:
        assert words in str(error_of(start_training, waiting, "grpo", "starter", environment=INVENTORY, reward=reward))
    assert waiting.store.jobs.page().items == ()


@pytest.mark.usefixtures("waiting")
def test_a_function_of_the_program_is_a_reward_of_a_dict_call_if_a_job_can_import_it(
    tool: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_given.py").write_text("def given(run):\n    return 1 / len(run.agent_steps)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    given = importlib.import_module("acme_given").given
    acting = {"environment": INVENTORY, "n_tasks": 1, "agent": "starter", "max_turns": 1}
    started = tool(action="collect", reward=given, **acting)
    assert "job_id" in started, started
    assert tool(action="cancel", job_id=started["job_id"])["job_id"] == started["job_id"]
    refused = tool(action="train", model_name="starter", algorithm="grpo", environment=INVENTORY, reward=lambda run: 1)
    assert (refused["code"], "top level of a module" in refused["message"]) == ("not_a_live_scorer", True)


def test_methods_that_learn_from_no_reward_refuse_one(tool: Caller) -> None:
    runs = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": f"a{i}"}], "task": f"t{i}"}
        for i in range(3)
    ]
    tool.register_dataset("mine", runs)
    found = tool(action="train", algorithm="sft", dataset="mine", reward="length", wait=False)
    assert (found["status"], found["code"]) == ("error", "no_reward")
    played = {"environment": INVENTORY, "hyperparameters": {"teacher": "starter"}}
    found = tool(action="train", model_name="starter", algorithm="distill", **played, reward="length", wait=False)
    assert (found["status"], found["code"]) == ("error", "no_reward"), "a teacher stands in its place"


def said(text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": text}]
    return {"messages": messages, "task": {"id": "t1", "prompt": "Where is it?"}}


@pytest.mark.usefixtures("jobs_in_process")
def test_a_reward_replaces_what_a_dataset_says_of_its_runs(tool: Caller) -> None:
    """Brevity is 1 for one word and 0.5 for three; the run without text has none and leaves its group."""
    runs = [said("Here."), said("Here it is."), said("")]
    tool.register_dataset("groups", [{"runs": runs[:2], "rewards": [0.0, 1.0]}], kind="grpo")
    tool.register_dataset("pairs", [{"chosen": runs[1], "rejected": runs[0]}], kind="dpo")
    reward = {"brief": {"weight": 1, "type": "length", "full_at": 1, "zero_at": 5}, "steps": 1}
    for method, dataset in (("grpo", "groups"), ("dpo", "pairs")):
        settings = {"action": "train", "algorithm": method, "dataset": dataset, "num_epochs": 1, "batch_size": 1}
        found = tool(**settings, use_lora=False, reward=reward, name=f"brief-{method}")
        assert found["status"] == "success", found
        view = tool(action="status", job_id=found["job_id"])
        assert view["metrics"]["reward/brief"] == pytest.approx(0.75)
        assert view["metrics"]["reward/steps"] == 1.0
        report = view["result"]["report"]
        assert report["reward"]["mean"] == pytest.approx(0.875)
        assert report["examples"] == 1


RUNS = TrajectoryFilter(tags=("k",))


@pytest.fixture
def stored(services: Services) -> list[str]:
    """Six runs of two tasks with two calls and a closing message; the scorer `mine` values the calls of all but the last."""
    runs = [
        run(
            task,
            user(),
            call(item=f"box {i}"),
            call("take", item=f"box {i}"),
            answer(f"Done {i}."),
            status=OutcomeStatus.SUCCESS if i % 2 else OutcomeStatus.FAILURE,
            tags=("k",),
        )
        for task in ("a", "b")
        for i in range(3)
    ]
    ids = add_runs(services, *runs)
    steps = (StepScore(step=0, value=0.2), StepScore(step=1, value=0.8), StepScore(step=2))
    for i, run_id in enumerate(ids):
        add_scores(services, new_score(run_id, "mine", 0.5 + 0.1 * i, steps=steps if i < 5 else ()))
    return ids


def rows(services: Services, kind: Any, **arguments: Any) -> list[Any]:
    made = export_dataset(services, kind, f"d-{kind}", filter=RUNS, scorer="mine", **arguments)
    return list(read_rows(Path(made.path), "train", kind=kind))


def test_datasets_carry_the_step_scores_of_the_scorer_that_they_were_exported_with(
    services: Services, stored: list[str]
) -> None:
    for extra in ({}, {"curation": Curation(max_rows=6)}):
        single: list[DatasetRow] = rows(services, "sft", min_score=0.0, outcomes=["success", "failure"], **extra)
        found = {row.trajectory.id: row.step_values for row in single}
        assert [found[one] for one in stored] == [(0.2, 0.8, None)] * 5 + [()]
    groups: list[GroupRow] = rows(services, "grpo")
    of_run = {r.id: v for group in groups for r, v in zip(group.trajectories, group.step_values, strict=True)}
    assert [of_run[one] for one in stored] == [(0.2, 0.8, None)] * 5 + [()]


@pytest.mark.usefixtures("jobs_in_process")
def test_runs_whose_steps_cannot_be_weighted_are_counted_in_preview_and_plan(
    services: Services, stored: list[str]
) -> None:
    rows(services, "sft", min_score=0.0, outcomes=["success", "failure"])
    settings = {"step_weighting": "reward"}
    seen = preview_dataset(services, "d-sft", "starter", method="sft", hyperparameters=settings)
    (warning,) = [one for one in seen.warnings if "unweighted_steps" in one]
    assert "the steps of 1 run weigh alike" in warning
    assert "no_step_values 1" in warning
    weights = {span["weight"] for row in json.loads(seen.model_dump_json())["rows"] for span in row["spans"]}
    assert {round(weight, 4) for weight in weights} >= {0.4, 1.6, 1.0}
    plan = plan_training(services, dataset_id="d-sft", method="sft", hyperparameters=settings)
    assert any("1 of 6 runs" in note and "no_step_values 1" in note for note in plan.notes)
    assert not any("weigh alike" in note for note in plan_training(services, dataset_id="d-sft", method="sft").notes)


def test_why_values_rank_no_step_has_a_name() -> None:
    assert unweighted_reason([0.2, None, 0.8]) is None
    assert unweighted_reason([None, None]) == "no_step_values"
    assert unweighted_reason([None, 0.3]) == "one_step_value"
    assert unweighted_reason([0.3, 0.3]) == "equal_step_values"
    assert (unweighted_reason([-1, 0.5]), unweighted_reason([-1, 0.5], positive=True)) == (
        None,
        "step_values_not_positive",
    )


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
