"""Rollouts of a job that learns online, with the inventory environment and small ones that misbehave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from quintain.environments.isolation.isolated import IsolatedSource
from quintain.errors import TrainingFailed
from quintain.records.agent import Agent
from quintain.records.dataset import GroupRow
from quintain.records.jobs.job import TrainSpec
from quintain.records.trajectory import Actor, AgentInfo, Outcome, OutcomeStatus, Step, Trajectory
from quintain.store.store import open_store
from quintain.tools.training.model_folders import role_in
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.models.loading import LoadedModel, load_model
from quintain.trainers.rendering.renderer import Renderer
from quintain.worker.job_kinds import train as training
from quintain.worker.rollouts import online_rollouts
from quintain.worker.rollouts.online_rollouts import reward_of, rollout_collector
from worker.ending_environment import Ending
from worker.job_folder import MOMENT, Stopping, events, outputs, progress, trajectories, warnings
from worker.online import online, stopped_as_whole, tasks_file


def spec(environment: str = "quintain/inventory", **settings: Any) -> TrainSpec:
    small = {"group_size": 2, "tasks_per_step": 2, "rollouts": 3, "max_new_tokens": 8, "max_turns": 2}
    return online(environment=environment, **small | settings)


def collect(
    folder: Path, tiny: tuple[LoadedModel, Renderer], job: TrainSpec, iteration: int = 0, after: int = 0
) -> list[GroupRow]:
    folder.mkdir(exist_ok=True)
    return rollout_collector(job, folder, Stopping(folder, "trajectory", after))(*tiny, iteration)


def test_an_episode_is_handed_over_with_ids_logprobs_and_its_group(
    tmp_path: Path, tiny: tuple[LoadedModel, Renderer]
) -> None:
    folder = tmp_path / "job-1"
    groups = collect(folder, tiny, spec(), iteration=1)
    runs = trajectories(folder)
    assert [run for group in groups for run in group.trajectories] == runs
    assert [run.episode_key.rsplit("/", 1) for run in runs] == [[g.key, a] for g in groups for a in "01"]
    for group in groups:
        task = group.trajectories[0].task
        assert group.key == f"job-1/1/{task.id}"
        assert task.metadata["split"] == "train"
        for run in group.trajectories:
            assert (run.group_id, run.tags, run.job_id) == (group.key, ("rollout", "iteration:1"), "job-1")
            assert run.agent == AgentInfo(name="learner", model="job-1/1")
            for step in run.agent_steps:
                assert step.sampled
                assert step.sampled.tokenizer == tiny[1].fingerprint
                assert len(step.sampled.logprobs or ()) == len(step.sampled.token_ids) > 0
    assert [event.name for event in events(folder) if event.type == "phase"] == ["acting", "training"]


def test_groups_follow_from_job_seed_and_iteration(tmp_path: Path, tiny: tuple[LoadedModel, Renderer]) -> None:
    def tokens(groups: list[GroupRow]) -> list[Any]:
        return [
            [step.sampled and step.sampled.token_ids for step in t.agent_steps] for g in groups for t in g.trajectories
        ]

    (tmp_path / "again").mkdir()
    first = collect(tmp_path / "job-1", tiny, spec(), 1)
    again = collect(tmp_path / "again" / "job-1", tiny, spec(), 1)
    assert again == first
    runs = tokens(first)
    assert runs[0] != runs[1], "attempts at one task have streams of their own"
    greedy = tokens(collect(tmp_path / "job-4", tiny, spec(top_k=1), 1))
    assert greedy[0] == greedy[1], "with top_k 1 there is nothing to draw"
    other_seed = collect(tmp_path / "job-2", tiny, spec(seed=6), 1)
    later = collect(tmp_path / "job-3", tiny, spec(), 2)
    asked = [{t.task.id for g in groups for t in g.trajectories} for groups in (first, other_seed, later)]
    assert asked[0].isdisjoint(asked[1] | asked[2])


def test_tasks_are_fresh_until_all_have_had_their_turn(
    tmp_path: Path, tiny: tuple[LoadedModel, Renderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tasks, two in a rollout: t0 t1, t2 t0, t1 t2."""
    monkeypatch.setattr(online_rollouts, "open_source", lambda _: Ending(1.0, 0.0, 0.5))
    job = spec("test/few", rollouts=100)
    asked = [[g.trajectories[0].task.id for g in collect(tmp_path / "job-1", tiny, job, i)] for i in range(3)]
    assert asked == [["t0", "t1"], ["t2", "t0"], ["t1", "t2"]]
    wide = collect(tmp_path / "job-2", tiny, spec("test/few", tasks_per_step=50), 1)
    assert [g.trajectories[0].task.id for g in wide] == ["t0", "t1", "t2"]


def test_episodes_without_a_verdict_leave_their_group_and_are_counted(
    tmp_path: Path, tiny: tuple[LoadedModel, Renderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online_rollouts, "open_source", lambda _: Ending(0.25, "no room", None))
    folder = tmp_path / "job-1"
    groups = collect(folder, tiny, spec("test/few", tasks_per_step=3))
    assert [(group.key, group.rewards) for group in groups] == [("job-1/0/t0", (0.25, 0.25))]
    assert len(trajectories(folder)) == 6
    ((_, message),) = warnings(folder)
    assert "4 episodes" in message
    assert "RuntimeError: no room" in message
    job = spec("test/few", tasks_per_step=3)
    by_model = job.config.model_copy(update={"reward_model": "judge", "alpha": 0.0})
    groups = collect(tmp_path / "job-2", tiny, job.model_copy(update={"config": by_model}))
    assert [group.key for group in groups] == ["job-2/0/t0", "job-2/0/t2"], (
        "a model values what has no verdict, but no fault"
    )


def test_a_rollout_without_any_verdict_ends_the_run(
    tmp_path: Path, tiny: tuple[LoadedModel, Renderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online_rollouts, "open_source", lambda _: Ending("no room"))
    with pytest.raises(TrainingFailed, match=r"expected verdicts from the 2 episodes .* no room"):
        collect(tmp_path / "job-1", tiny, spec("test/few"))


@pytest.mark.parametrize(
    ("status", "reward", "worth"),
    [
        ("success", 1.0, 1.0),
        ("failure", 0.25, 0.25),
        ("failure", -1.0, -1.0),
        ("truncated", None, 0.0),
        ("truncated", 0.5, 0.5),
        ("error", 0.5, None),
        ("unknown", None, None),
    ],
)
def test_the_reward_of_an_episode_is_the_environments_or_else_its_verdict(
    status: str, reward: float | None, worth: float | None
) -> None:
    outcome = Outcome(status=OutcomeStatus(status), reward=reward)
    assert reward_of(Trajectory(steps=(Step(actor=Actor.AGENT, message="x"),), outcome=outcome)) == worth


def test_a_stopped_rollout_gives_no_groups_and_the_next_attempt_plays_only_what_is_left(
    tmp_path: Path, tiny: tuple[LoadedModel, Renderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    whole = collect(tmp_path / "whole" / "job-1", tiny, spec(tasks_per_step=3))
    monkeypatch.setattr(online_rollouts, "_EPISODES_AT_ONCE", 2)
    folder = tmp_path / "job-1"
    assert collect(folder, tiny, spec(tasks_per_step=3), after=2) == []
    assert len(trajectories(folder)) == 2
    with (folder / "outputs" / "trajectory.jsonl").open("ab") as lines:
        lines.write(b'{"kind":"trajectory","rec')  # the attempt died while it wrote
    resumed = collect(folder, tiny, spec(tasks_per_step=3))
    assert len(trajectories(folder)) == 6
    assert [g.rewards for g in resumed] == [g.rewards for g in whole]
    assert [[t.id for t in g.trajectories] for g in resumed] == [[t.id for t in g.trajectories] for g in whole]
    untrained = (LoadedModel(None, None, 0), tiny[1])
    assert collect(folder, untrained, spec(tasks_per_step=3)) == resumed, "played already: nobody acts"


def test_an_environment_in_a_child_process_gives_the_same_groups_and_may_have_few_tasks(
    tmp_path: Path, tiny: tuple[LoadedModel, Renderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host hears of a refusal that something failed, and asks for fewer."""
    tasks = tasks_file(tmp_path, 3)
    job = spec(f"quintain/tasks?file={tasks}", tasks_per_step=4, rollouts=50, episodes_at_once=2)
    here = collect(tmp_path / "job-1", tiny, job)
    assert sorted(group.key for group in here) == [f"job-1/0/t{i}" for i in range(3)]
    monkeypatch.setattr(online_rollouts, "open_source", IsolatedSource)
    (tmp_path / "far").mkdir()
    assert collect(tmp_path / "far" / "job-1", tiny, job) == here


def test_batches_are_whole_groups_as_far_as_the_environment_bears_so_many(tmp_path: Path) -> None:
    def at_once(group_size: int, bound: int | None) -> int:
        found = rollout_collector(spec(group_size=group_size), tmp_path, Stopping(tmp_path))
        if bound is not None:
            found.source.at_once = bound  # type: ignore[attr-defined]
        return found._at_once  # type: ignore[attr-defined, no-any-return]

    assert [at_once(n, None) for n in (3, 8, 100)] == [63, 64, 100]
    assert [at_once(n, 8) for n in (3, 8, 100)] == [6, 8, 8]


def test_a_mixture_gives_groups_of_its_parts(tmp_path: Path, tiny: tuple[LoadedModel, Renderer]) -> None:
    job = spec("mix(quintain/inventory=1,quintain/math?difficulty=easy=1)")
    groups = collect(tmp_path / "job-1", tiny, job)
    played = [{run.task.environment for run in group.trajectories} for group in groups]
    assert sorted(played, key=str) == [{"quintain/inventory"}, {"quintain/math?difficulty=easy"}]
    assert collect(tmp_path / "job-1", (LoadedModel(None, None, 0), tiny[1]), job) == groups, "read back"


def test_what_dpo_learns_from_are_the_sampled_ids(tmp_path: Path, tiny: tuple[LoadedModel, Renderer]) -> None:
    """What a tiny model babbles would not come out the same if it were tokenised again."""
    job = spec(method="dpo")
    (group, *_) = collect(tmp_path / "job-1", tiny, job)
    judged = group.model_copy(update={"rewards": (0.0, 1.0)})
    maker = ExampleMaker.of(tiny[0].tokenizer, "auto", job.config, 4096)
    examples = maker.of_rollout(judged, ExampleBatch())
    assert isinstance(examples, list)
    for row, run in zip(examples[0].rows, reversed(group.trajectories), strict=True):
        sampled = [i for step in run.agent_steps if step.sampled for i in step.sampled.token_ids]
        assert row.token_ids[row.supervised].tolist() == sampled


def test_an_iteration_that_is_played_twice_is_stored_once(tmp_path: Path, tiny: tuple[LoadedModel, Renderer]) -> None:
    """Equal weights and seeds give equal episodes, and equal episodes of one job are one trajectory."""
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    (tmp_path / "again").mkdir()
    for folder, created in ((tmp_path / "job-1", True), (tmp_path / "again" / "job-1", False)):
        runs = [run for group in collect(folder, tiny, spec()) for run in group.trajectories]
        assert [added.created for added in store.trajectories.add_many(runs, MOMENT)] == [created] * 4
    store.close()


def test_a_constraint_is_learnt_measured_and_enforced(tmp_path: Path, tiny_agent: Agent) -> None:
    """Six tokens cost a half: the multiplier grows, a limit that was not kept is told, and an enforced one leaves no agent."""
    tasks = tasks_file(tmp_path, 2)
    cost = {"type": "length", "unit": "tokens", "full_at": 7, "zero_at": 5}
    bound = {"cost": cost, "limit": 0.0, "multiplier": 0.5, "rate": 2.0}
    reports = {}
    for method, enforce in (("ppo", False), ("grpo", True)):
        job = spec(
            f"quintain/tasks?file={tasks}", agent=tiny_agent, method=method,
            group_size=4, rollouts=1, max_new_tokens=6, updates_per_rollout=1, learning_rate=1e-3,
            constraint={**bound, "enforce": enforce}, output=tmp_path / method,
        )  # fmt: skip
        folder = tmp_path / f"{method}-job"
        if enforce:
            with pytest.raises(TrainingFailed, match=r"above_limit.*got 0\.5.*set enforce to false"):
                training.run(job, folder, Stopping(folder))
        else:
            reports[method] = training.run(job, folder, Stopping(folder)).report["constraint"]
            told = dict(warnings(folder))["above_limit"]
            assert told.startswith("expected a mean cost of at most 0 in the last rollout, got 0.5; raise rollouts")
        (last,) = progress(folder)
        assert (last["mean_cost"], last["cost_multiplier"]) == (0.5, 1.5)
        assert len(outputs(folder, "agent")) == (not enforce)
    assert reports["ppo"] == {"limit": 0.0, "mean_cost": 0.5, "cost_multiplier": 1.5}
    assert load_file(tmp_path / "ppo" / "value_head.safetensors")["bias"].shape == (2,)
    assert role_in(tmp_path / "ppo") == "policy"
    assert not (tmp_path / "grpo").exists()


def test_an_online_job_stopped_in_a_rollout_and_between_updates_continues_bit_equal(
    tmp_path: Path, tiny_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rollouts of eight episodes with two updates each: stopped after an update, then within the second rollout.

    The value head resumes too, and the coefficient that its controller
    has reached. test_actors.py and test_self_play.py resume GRPO.
    """
    job = spec(
        f"quintain/tasks?file={tasks_file(tmp_path, 4)}", agent=tiny_agent, method="ppo",
        group_size=4, tasks_per_step=2, rollouts=2, updates_per_rollout=2, max_new_tokens=6,
        checkpoint_every_steps=1, learning_rate=1e-3, seed=2, minibatches=2, critic_warmup_steps=1,
        kl_coefficient=0.1, kl_target=0.01, kl_horizon=10,
    )  # fmt: skip
    monkeypatch.setattr(online_rollouts, "_EPISODES_AT_ONCE", 4)
    model, coefficients, resumed = stopped_as_whole(job, tmp_path, 4, "kl_coefficient")
    assert resumed == [None, 1, 2]
    assert len(trajectories(tmp_path / "parts" / "job-1")) == 16
    before, learned = load_model(tiny_agent.model).model.state_dict(), load_file(model / "model.safetensors")
    assert any(not torch.equal(learned[name], before[name]) for name in learned)
    assert load_file(model / "value_head.safetensors")["weight"].any()
    assert coefficients[:2] == [0.1, 0.1]
    assert coefficients[2] != 0.1
