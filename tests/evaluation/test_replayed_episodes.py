"""Episodes that begin with what another run did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from quintain.environments.inventory import Inventory
from quintain.environments.inventory.scripted_policy import Expert
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, replay, run_episodes
from quintain.evaluation.replay_divergence import DIVERGED, turn_prefixes
from quintain.records.protocols import Reply, Turn
from quintain.records.trajectory import Action, AgentInfo, Observation, OutcomeStatus, Step, Trajectory

SETTINGS = EpisodeSettings(seed=1, max_turns=None, concurrency=4, agent=AgentInfo(name="a"))


class Fixed:
    """Answers every turn alike, and remembers what it was shown."""

    def __init__(self, reply: Reply) -> None:
        self.reply, self.turns = reply, list[Turn]()

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        self.turns += turns
        return [self.reply] * len(turns)

    def close(self, episode_id: str) -> None: ...


def submit(answer: Any) -> Reply:
    return Reply(text="submit", thought="Done.", actions=(Action(tool="submit", args={"answer": answer}),))


@pytest.fixture(scope="module")
def run() -> Trajectory:
    """An expert's run of three turns or more."""
    plans = [EpisodePlan(task) for task in Inventory().tasks("train", 8, 0)]
    runs = [episode.trajectory for episode in run_episodes(Inventory(), Expert(), plans, SETTINGS)]
    return next(run for run in runs if len(run.agent_steps) >= 3)


def from_first_turn(run: Trajectory, n_steps: int) -> tuple[Step, ...]:
    """The first steps of the agent with what was said between them."""
    return turn_prefixes(run)[n_steps - 1]


def play(run: Trajectory, prefix: tuple[Step, ...], policy: Any, **settings: Any) -> Episode:
    shared = vars(SETTINGS) | settings
    return next(run_episodes(Inventory(), policy, [EpisodePlan(run.task, prefix=prefix)], EpisodeSettings(**shared)))


def test_a_policy_goes_on_where_the_recorded_run_stood(run: Trajectory) -> None:
    """It is shown all that was said and done; what it then submits is judged in the state that the steps led to."""
    answer = run.agent_steps[-1].actions[0].args["answer"]  # type: ignore[index]
    policy = Fixed(submit(answer))
    episode = play(run, from_first_turn(run, 2), policy)
    assert [m.role for m in policy.turns[0].messages] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert policy.turns[0].messages[2].actions == run.agent_steps[0].actions
    assert policy.turns[0].messages[3].content == run.agent_steps[0].observations[0].content
    assert episode.result.status is OutcomeStatus.SUCCESS
    assert episode.result.turns == 3
    assert [step.actions for step in episode.trajectory.agent_steps[:2]] == [s.actions for s in run.agent_steps[:2]]
    assert play(run, from_first_turn(run, 2), Fixed(submit("nonsense"))).result.status is OutcomeStatus.FAILURE


def test_a_run_that_is_carried_out_to_its_end_needs_no_policy_and_cannot_go_on(run: Trajectory) -> None:
    whole = replay(Inventory(), EpisodePlan(run.task, prefix=from_first_turn(run, len(run.agent_steps))), SETTINGS)
    assert (whole.status, whole.error, whole.reward) == (OutcomeStatus.SUCCESS, None, 1.0)
    assert [step.observations for step in whole.steps] == [step.observations for step in run.steps]
    part = replay(Inventory(), EpisodePlan(run.task, prefix=from_first_turn(run, 1)), SETTINGS)
    assert (part.status, part.error, part.reward) == (None, None, None)
    policy = Fixed(submit(1))
    assert play(run, from_first_turn(run, len(run.agent_steps)), policy).result.status is OutcomeStatus.SUCCESS
    assert policy.turns == []
    more = (*from_first_turn(run, len(run.agent_steps)), run.agent_steps[0])
    longer = replay(Inventory(), EpisodePlan(run.task, prefix=more), SETTINGS)
    assert "the run has ended, but the run recorded a further step" in (longer.error or "")


def test_another_answer_than_recorded_and_the_turn_limit_end_the_episode(run: Trajectory) -> None:
    first = run.agent_steps[0].model_copy(update={"observations": (Observation(content="Nothing here."),)})
    assert str(play(run, (first,), Fixed(submit(1))).result.error).startswith(f"{DIVERGED}: at step 0 the environment")
    limited = play(run, from_first_turn(run, 1), Fixed(Reply(text="Hm.", thought="Hm.")), max_turns=2).result
    assert (limited.status, limited.turns) == (OutcomeStatus.TRUNCATED, 2)


@pytest.mark.parametrize("error", ["no JSON.", None])
def test_turns_that_were_no_action_are_carried_out_as_they_were(run: Trajectory, error: str | None) -> None:
    """An unreadable turn never reached the environment; one without a call did, and was told so."""
    reply = Reply(text="Well then", thought=None if error else "Well then", error=error)
    silent = play(run, (), Fixed(reply), max_turns=3).trajectory
    after = play(run, from_first_turn(silent, 2), Fixed(submit("x")))
    assert after.result.status is OutcomeStatus.FAILURE
    assert [step.message for step in after.trajectory.steps[:6]] == [step.message for step in silent.steps[:6]]
