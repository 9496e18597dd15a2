from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from quintain.environments.inventory import Inventory
from quintain.environments.inventory.scripted_policy import Expert
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.protocols import Reply, Stop, TimeStep, Turn
from quintain.records.trajectory import Action, Actor, AgentInfo, Observation, SampledTokens, Task


class Counting:
    """A small environment: it counts calls of `tick`, ends with `reward` after `goal` of them, and can fail where told."""

    id = "test/counting"
    version = "1"
    system_prompt = "Count."
    tools: tuple[dict[str, Any], ...] = ({"type": "function", "function": {"name": "tick", "parameters": {}}},)
    max_turns = 5

    def __init__(
        self,
        reward: float | None = 1.0,
        goal: int = 2,
        fails: str = "",
        truncates: bool = False,
        info: dict[str, Any] | None = None,
    ) -> None:
        self.reward, self.goal, self.fails, self.truncates, self.info = reward, goal, fails, truncates, info or {}
        self.made: list[Counting] = []
        self.count, self.closed, self.asked = 0, 0, ""

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        return [Task(id=f"t{i}", prompt=f"count {i}", type="count", difficulty="easy") for i in range(n)]

    def make(self) -> Counting:
        fails = self.fails if len(self.made) == 1 or self.fails == "all" else ""
        self.made.append(Counting(self.reward, self.goal, fails, self.truncates, self.info))
        if fails == "make":
            raise OSError("no room")
        return self.made[-1]

    def reset(self, task: Task) -> TimeStep:
        if self.fails == "reset":
            raise RuntimeError("no warehouse")
        self.asked = task.prompt
        return TimeStep()

    def step(self, actions: Sequence[Action]) -> TimeStep:
        if self.fails == "step" and self.count:
            raise ZeroDivisionError("counted too far")
        self.count += 1
        if not actions:
            return TimeStep(message="Please tick.")
        seen = Observation(content=str(self.count))
        done = self.count >= self.goal
        return TimeStep(
            observations=(seen,),
            reward=self.reward if done else None,
            terminated=done and not self.truncates,
            truncated=done and self.truncates,
            info=self.info,
        )

    def close(self) -> None:
        self.closed += 1
        if self.fails == "close":
            raise RuntimeError("cannot close")


class Ticking:
    """A policy that ticks, or gives the replies it was told to, and remembers what it was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = replies
        self.turns: list[list[Turn]] = []
        self.closed: list[str] = []

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        self.turns.append(list(turns))
        if self.replies:
            return [self.replies[min(len(self.turns), len(self.replies)) - 1]] * len(turns)
        return [tick() for _ in turns]

    def close(self, episode_id: str) -> None:
        self.closed.append(episode_id)


def tick(**more: Any) -> Reply:
    return Reply(text="tick", thought="On.", actions=(Action(tool="tick", args={}, call_id="c1"),), **more)


def run(source: Any, policy: Any, n: int = 3, *, concurrency: int = 2, **settings: Any) -> list[Episode]:
    shared = {"seed": 1, "max_turns": None, "concurrency": concurrency, "agent": AgentInfo(name="a", model="agent:a@1")}
    plans = [EpisodePlan(task) for task in source.tasks("train", n, 0)]
    return list(run_episodes(source, policy, plans, EpisodeSettings(**{**shared, **settings})))


def test_a_trajectory_contains_messages_calls_and_observations_in_order() -> None:
    sampled = SampledTokens(token_ids=(5, 6, 2), logprobs=(-0.1, -0.2, -0.3), tokenizer="tok-1")
    episode = run(Counting(), Ticking(tick(sampled=sampled)), 1, job_id="job-1", tags=("x",))[0]
    trajectory, result, _ = episode
    assert [step.actor for step in trajectory.steps] == [Actor.SYSTEM, Actor.USER, Actor.AGENT, Actor.AGENT]
    assert [step.message for step in trajectory.steps] == ["Count.", "count 0", "", ""]
    last = trajectory.steps[-1]
    assert (last.thought, last.actions[0].tool, last.model, last.reward) == ("On.", "tick", "agent:a@1", 1.0)
    assert last.observations == (Observation(content="2", call_id="c1"),)
    assert last.sampled == sampled
    assert last.usage.output_tokens == 3
    assert trajectory.task.environment == "test/counting"
    assert (trajectory.episode_key, trajectory.tags, trajectory.job_id) == ("job-1/t0/0", ("x",), "job-1")
    assert (trajectory.outcome.status, trajectory.outcome.reward) == ("success", 1.0)
    assert trajectory.id == result.trajectory_id is not None
    assert (result.turns, result.output_tokens, result.task_type, result.difficulty) == (2, 6, "count", "easy")


def test_a_policy_receives_only_new_messages() -> None:
    policy = Ticking()
    run(Counting(), policy, 1)
    first, second = (turns[0] for turns in policy.turns)
    assert [(m.role, m.content) for m in first.messages] == [("system", "Count."), ("user", "count 0")]
    assert [(m.role, m.content, m.call_id) for m in second.messages] == [("tool", "1", "c1")]
    assert first.tools == Counting.tools
    assert first.episode_id == second.episode_id


def test_batches_act_together_and_every_episode_is_closed() -> None:
    source, policy = Counting(), Ticking()
    episodes = run(source, policy, 5, concurrency=2)
    assert [len(turns) for turns in policy.turns] == [2, 2, 2, 2, 1, 1]
    assert [episode.result.task_id for episode in episodes] == ["t0", "t1", "t2", "t3", "t4"]
    assert set(policy.closed) == {turn.episode_id for turns in policy.turns for turn in turns}
    assert [environment.closed for environment in source.made] == [1] * 5


def test_each_episode_has_its_own_seed_whatever_its_batch() -> None:
    def seeds(concurrency: int, seed: int = 1) -> list[int]:
        policy = Ticking()
        run(Counting(goal=1), policy, 4, concurrency=concurrency, seed=seed)
        return [turn.seed for turns in policy.turns for turn in turns]

    assert seeds(1) == seeds(4)
    assert len(set(seeds(1))) == 4
    assert set(seeds(1)).isdisjoint(seeds(1, seed=2))


@pytest.mark.parametrize(
    ("source", "status", "reward"),
    [
        (Counting(reward=1.0), "success", 1.0),
        (Counting(reward=0.0), "failure", 0.0),
        (Counting(reward=0.5), "failure", 0.5),
        (Counting(reward=None), "unknown", None),
        (Counting(reward=None, truncates=True), "truncated", None),
        (Counting(goal=9), "truncated", None),
    ],
)
def test_the_outcome_is_that_of_the_environment(source: Counting, status: str, reward: float | None) -> None:
    episode = run(source, Ticking(), 1)[0]
    assert (episode.result.status, episode.result.reward) == (status, reward)
    assert (episode.trajectory.outcome.status, episode.trajectory.outcome.reward) == (status, reward)


def test_the_turn_limit_of_the_run_replaces_the_environments() -> None:
    assert run(Counting(goal=9), Ticking(), 1)[0].result.turns == 5
    episode = run(Counting(goal=9), Ticking(), 1, max_turns=3)[0]
    assert (episode.result.turns, episode.trajectory.outcome.exit_status) == (3, "max_turns")
    assert run(Counting(goal=3), Ticking(), 1, max_turns=3)[0].result.success is True


@pytest.mark.parametrize(("where", "turns"), [("make", 0), ("reset", 0), ("step", 1)])
def test_an_environment_that_fails_costs_its_own_episode_only(where: str, turns: int) -> None:
    episodes = run(Counting(fails=where), Ticking(), 3, concurrency=3)
    assert [episode.result.status for episode in episodes] == ["success", "error", "success"]
    failed = episodes[1]
    assert failed.result.success is None
    assert failed.result.error is not None
    assert failed.trajectory.extra["error"] == failed.result.error
    assert failed.trajectory.outcome.exit_status == "environment_error"
    assert [step.train for step in failed.trajectory.agent_steps] == ([False] if turns == 0 else [None, None])
    unclosable = run(Counting(fails="close"), Ticking(), 2)
    assert [episode.result.status for episode in unclosable] == ["success", "success"]


def test_a_policy_that_fails_ends_the_run_and_closes_what_was_open() -> None:
    class Failing(Ticking):
        def act(self, turns: Sequence[Turn]) -> list[Reply]:
            raise MemoryError("out of memory")

    source, policy = Counting(), Failing()
    with pytest.raises(MemoryError):
        run(source, policy, 2)
    assert len(policy.closed) == 2
    assert [environment.closed for environment in source.made] == [1, 1]


def test_what_cannot_be_read_is_kept_as_it_was_written_and_answered() -> None:
    bad = Reply(text='Hm <tool_call>{"name"', thought="Hm", error="the JSON ends too early.")
    policy = Ticking(bad, tick())
    trajectory, result, _ = run(Counting(goal=1), policy, 1)[0]
    agent, user = trajectory.steps[2:4]
    assert (agent.message, agent.thought, agent.actions) == ('Hm <tool_call>{"name"', None, ())
    assert user.message == "Your turn could not be read: the JSON ends too early."
    assert policy.turns[1][0].messages[0].content == user.message
    assert (result.status, result.turns) == ("success", 2)


def test_a_turn_without_a_call_is_the_environments_to_answer() -> None:
    policy = Ticking(Reply(text="I wonder.", thought="I wonder."), tick())
    trajectory, result, _ = run(Counting(), policy, 1)[0]
    assert [step.message or step.thought for step in trajectory.steps[2:]] == ["I wonder.", "Please tick.", "On."]
    assert result.status == "success"


def test_a_full_context_truncates_the_episode() -> None:
    full = Reply(text="", stop=Stop.CONTEXT)
    trajectory, result, _ = run(Counting(), Ticking(tick(), full), 1)[0]
    assert (result.status, result.turns, trajectory.outcome.exit_status) == ("truncated", 1, "context")
    assert len(trajectory.agent_steps) == 1
    trajectory, result, _ = run(Counting(), Ticking(full), 1)[0]
    assert (result.status, result.turns) == ("truncated", 0)
    assert trajectory.agent_steps[0].train is False


def test_a_stop_gives_up_the_batch_under_way_and_closes_it() -> None:
    source, policy = Counting(), Ticking()
    plans = [EpisodePlan(task) for task in source.tasks("train", 6, 0)]
    settings = EpisodeSettings(seed=1, max_turns=None, concurrency=2, agent=AgentInfo())
    ticks = 0

    def after_three_ticks() -> bool:
        nonlocal ticks
        ticks += 1
        return ticks > 3

    episodes = list(run_episodes(source, policy, plans, settings, after_three_ticks))
    assert [episode.result.task_id for episode in episodes] == ["t0", "t1"]
    assert [environment.closed for environment in source.made] == [1] * 4
    assert len(set(policy.closed)) == 4


def test_an_agents_own_system_prompt_replaces_the_environments() -> None:
    trajectory = run(Inventory(), Expert(), 1, system_prompt="Be quick.")[0].trajectory
    assert trajectory.steps[0].message == "Be quick."
    assert run(Inventory(), Expert(), 1, system_prompt="")[0].trajectory.steps[0].actor is Actor.USER


def test_environments_that_wait_for_other_processes_are_stepped_side_by_side() -> None:
    """Steps return once those of all others have begun: in turn they never would."""
    barrier = threading.Barrier(3)

    class Meeting(Counting):
        waits = True

        def make(self) -> Meeting:
            return Meeting()

        def step(self, actions: Sequence[Action]) -> TimeStep:
            barrier.wait(timeout=100)
            return super().step(actions)

    episodes = run(Meeting(), Ticking(), 3, concurrency=3)
    assert [episode.result.success for episode in episodes] == [True] * 3
