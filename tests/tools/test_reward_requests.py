"""Rewards as callers write them: one form for scoring, trainings, rollouts and evolutions, resolved before a job starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_endpoint import profile, write_profiles
from quintain.errors import InvalidInput
from quintain.records.jobs.job import EvolveSpec, RolloutSpec, TrainSpec
from quintain.scoring.registry import _REGISTERED, register
from quintain.tools.evaluation.rollouts import collect_rollouts
from quintain.tools.labels.rewards import reward_spec
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services
from quintain.tools.training.start import start_training
from tools.dict_calls import Caller
from tools.stored_records import add_runs, error_of, spec_of
from trajectory_runs import answer, run, user

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
    ({"outcome": {"wieght": 1}}, "wieght is not a known field"),
    ({"parts": {"outcome": 1}, "cap": 2}, "at most 1"),
    ({"parts": {"outcome": 1}, "combine": "least"}, "mean, lower_bound, product"),
    ({"parts": {"outcome": 1}, "combine": "lower_bound"}, "at least two"),
    ({"parts": {"outcome": 20, "length": 1}, "combine": "product"}, "exponent of at most 10"),
    ({str(i): 1 for i in range(30)}, "at most 20 parts"),
    ("outcom", "did you mean 'outcome'"),
    ("people", "when the job is done"),
    ({"length": 1, "x": {"type": "length"}, "y": {"type": "length", "name": "x"}}, "twice"),
    ("agent:starter", "not_a_reward_model"),
]


def test_a_wrong_reward_is_refused_before_a_job_is_made(waiting: Services) -> None:
    for reward, words in WRONG_REWARDS:
        assert words in str(error_of(start_training, waiting, "grpo", "starter", environment=INVENTORY, reward=reward))
    assert waiting.store.jobs.page().items == ()


def test_methods_that_learn_from_no_reward_refuse_one(tool: Caller) -> None:
    runs = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": f"a{i}"}], "task": f"t{i}"}
        for i in range(3)
    ]
    tool.register_dataset("mine", runs)
    found = tool(action="train", algorithm="sft", dataset="mine", reward="length", wait=False)
    assert (found["status"], found["code"]) == ("error", "no_reward")


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
