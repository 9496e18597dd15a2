"""Options of GRPO and DPO in online jobs: a tiny model that never solves a task, whose runs differ in length alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from quintain.environments.inventory import Inventory
from quintain.errors import TrainingFailed
from quintain.records.agent import Agent, Sampling
from quintain.records.labels.reward import RewardSpec
from quintain.records.trajectory import Task
from quintain.trainers.models.loading import load_model
from quintain.trainers.rendering.renderer import Renderer
from quintain.worker.job_kinds import train as training
from quintain.worker.rollouts import held_out_tasks
from quintain.worker.rollouts.held_out_tasks import HeldOutTasks
from worker.job_folder import Stopping, progress, warnings
from worker.online import BREVITY, online

SHORT: dict[str, Any] = {
    "rollouts": 2,
    "tasks_per_step": 2,
    "group_size": 3,
    "max_new_tokens": 12,
    "learning_rate": 1e-2,
}
PENALISED: dict[str, Any] = {"overlong_tokens": 24, "overlong_buffer": 24}


def steps(
    agent: Agent,
    folder: Path,
    method: Literal["grpo", "dpo", "ppo"] = "grpo",
    reward: RewardSpec | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """The metrics of each step of an online job."""
    spec = online(agent, method, output=folder / "out", reward=reward, seed=2, **{**SHORT, **options})
    training.run(spec, folder / "job", Stopping(folder / "job"))
    return progress(folder / "job")


def test_runs_of_equal_reward_differ_by_the_penalty_of_their_length(tmp_path: Path, tiny_agent: Agent) -> None:
    """With all other options on: scaled by batch, corrected, clipped on both sides, sampled within limits."""
    options = {
        "scale_rewards": "batch",
        "importance_cap": 2.0,
        "delta": 4.0,
        "top_k": 200,
        "top_p": 0.95,
        "min_p": 1e-4,
    }
    first, *_ = steps(tiny_agent, tmp_path, max_turns=2, updates_per_rollout=2, **PENALISED, **options)
    assert first["groups_used"] >= 1
    assert first["mean_reward"] == 0.0, "the penalty is not part of what the environment gave"
    assert first["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    assert math.isfinite(first["loss"])


def test_success_on_held_out_tasks_is_measured_between_steps_and_changes_none(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    options = {"max_turns": 2, "updates_per_rollout": 2, **PENALISED}
    tiny_agent = tiny_agent.model_copy(update={"sampling": Sampling(max_new_tokens=4)})
    plain = steps(tiny_agent, tmp_path / "plain", **options)
    measured = steps(tiny_agent, tmp_path / "measured", evaluate_every_steps=3, evaluate_tasks=3, **options)
    start, *taken = measured
    assert (start["held_out_success"], start["held_out_success_low"]) == (0.0, 0.0)
    assert start["held_out_success_high"] == pytest.approx(1 - 0.025 ** (1 / 3))
    places = [place for place, step in enumerate(taken, 1) if "held_out_success" in step]
    assert places == [place for place in range(1, len(taken) + 1) if place % 3 == 0 or place == len(taken)]
    assert [step["loss"] for step in taken] == [step["loss"] for step in plain]
    lines = (tmp_path / "measured" / "job" / "outputs" / "trajectory.jsonl").read_text(encoding="utf-8").splitlines()
    stored = [json.loads(line)["record"] for line in lines]
    assert all("rollout" in run["tags"] for run in stored)


def test_a_training_ends_when_the_held_out_tasks_are_solved_as_often_as_asked_for(
    tmp_path: Path, tiny_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = iter([0.2, 0.5, 0.8, 0.8])
    monkeypatch.setattr(HeldOutTasks, "__call__", lambda *_: {"held_out_success": next(rates)})
    options = {"evaluate_every_steps": 1, "target_success": 0.8, "max_turns": 2, "rollouts": 4, **PENALISED}
    taken = steps(tiny_agent, tmp_path, **options)
    assert [step["held_out_success"] for step in taken] == [0.2, 0.5, 0.8]
    told = dict(warnings(tmp_path / "job"))["ended_early"]
    assert told.startswith("the run ended after step 2 of 4: it is as good as asked for with 0.8 of the held-out tasks")
    with pytest.raises(TrainingFailed, match=r"nothing to train: .* target_success is 0\.8; raise it"):
        steps(tiny_agent, tmp_path / "again", **options)


class OneSplit(Inventory):
    """Ignores the split, as a first version of an environment may."""

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        return super().tasks("train", n, seed)


def test_held_out_tasks_that_are_training_tasks_are_told_before_the_first_step(
    tmp_path: Path, tiny_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_out_tasks, "open_source", lambda reference: OneSplit())
    spec = online(tiny_agent, evaluate_every_steps=1, evaluate_tasks=3)
    HeldOutTasks.of(spec, tmp_path / "job", Stopping(tmp_path / "job"))
    ((code, told),) = warnings(tmp_path / "job")
    assert code == "shared_tasks"
    assert told.startswith("3 of the 3 held-out tasks of quintain/inventory are training tasks")


def test_equal_greedy_runs_of_held_out_tasks_are_one_unit_of_the_interval(tmp_path: Path, tiny_agent: Agent) -> None:
    """One task under three ids: 0 of 1 has the upper bound 0.975, where 0 of 3 has 0.708."""
    spec = online(tiny_agent, evaluate_every_steps=1, evaluate_tasks=1, max_turns=1)
    measure = HeldOutTasks.of(spec, tmp_path / "job", Stopping(tmp_path / "job"))
    assert measure is not None
    (plan,) = measure.plans
    tasks = [plan.task.model_copy(update={"id": f"{plan.task.id}{suffix}"}) for suffix in ("", "b", "c")]
    loaded = load_model(tiny_agent.model)
    found = replace(measure, plans=tuple(replace(plan, task=task) for task in tasks))(
        loaded, Renderer.of(loaded.tokenizer, tiny_agent.template)
    )
    assert (found["held_out_success"], found["held_out_success_high"]) == (0.0, pytest.approx(0.975))


def test_settings_that_found_nothing_to_act_on_are_told_in_warnings(tmp_path: Path, tiny_agent: Agent) -> None:
    """Steps that the reward does not value, a length that no run came near, and a tool that none called."""
    never = {"cost": {"type": "calls", "tool": "open", "full_at": 99, "zero_at": 98}, "limit": 0.1}
    useless = {"step_level": True, "overlong_tokens": 1000, "constraint": never}
    steps(tiny_agent, tmp_path, reward=BREVITY, max_turns=2, rollouts=1, **useless)
    told = dict(warnings(tmp_path / "job"))
    assert "(no_step_values " in told["unweighted_steps"]
    assert "a `reward` with a part that values steps" in told["unweighted_steps"]
    assert "overlong_tokens=1000 lowered its reward" in told["no_overlong_run"]
    assert told["no_costs"].startswith("no run had a cost, so the constraint changed nothing")


def test_a_training_with_a_critic_whose_runs_all_earn_the_same_says_so(tmp_path: Path, tiny_agent: Agent) -> None:
    steps(tiny_agent, tmp_path, "ppo", max_turns=1, group_size=1, updates_per_rollout=1)
    ((code, told),) = warnings(tmp_path / "job")
    assert code == "equal_rewards"
    assert told.startswith("in every rollout all runs of a task earned the same reward: raise")


def test_a_rollout_of_runs_that_were_all_cut_off_teaches_nothing(tmp_path: Path, tiny_agent: Agent) -> None:
    with pytest.raises(Exception, match="mask_truncated to false"):
        steps(tiny_agent, tmp_path, max_turns=2, mask_truncated=True, **PENALISED)


def test_an_online_reference_that_is_the_policy_of_the_step_leaves_no_margin(tmp_path: Path, tiny_agent: Agent) -> None:
    """Both updates on each rollout compare with the reference of their own step, not with that of the rollout."""
    options = {"updates_per_rollout": 2, "max_turns": 2, "reference_sync_steps": 1, "reference_mixup": 1.0}
    found = [step for step in steps(tiny_agent, tmp_path, "dpo", BREVITY, **options) if step["loss"] is not None]
    assert len(found) >= 2
    assert [step["loss"] for step in found] == pytest.approx([math.log(2)] * len(found), abs=1e-6)
    assert [step["kl"] for step in found] == pytest.approx([0.0] * len(found), abs=1e-9)
