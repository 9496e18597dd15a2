"""Games of two players: each has its own run, illegal moves lose, and a player who cannot go on ends the game for both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from playing import Scripted, act, text_of
from quintain.environments.mixture import Mixture
from quintain.environments.nim import Nim
from quintain.environments.nim.environment import Game, best_move, is_lost
from quintain.errors import InvalidInput
from quintain.evaluation.episode_state import Player
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, run_episodes
from quintain.evaluation.games import PolicyRouter, with_players
from quintain.records.protocols import Policy, Reply, Stop, TimeStep, Turn
from quintain.records.trajectory import Action, Actor, AgentInfo, OutcomeStatus

A, B = AgentInfo(name="a", model="agent:a@1"), AgentInfo(name="b", model="agent:b@1")
SETTINGS = EpisodeSettings(seed=0, max_turns=None, concurrency=8, agent=A, job_id="job-1")


def play(a: Policy, b: Policy, n: int = 4, types: str = "normal", **changes: Any) -> list[Episode]:
    source = Nim("easy", (types,))
    plans = [EpisodePlan(task) for task in source.tasks("train", n, 0)]
    games = with_players(plans, source, Player("", A, system_prompt="You are a."), Player("", B, "other"))
    settings = replace(SETTINGS, **changes)
    return list(run_episodes(source, PolicyRouter({"": a, "other": b}), games, settings))


def reply(heap: int, stones: int) -> Reply:
    return Reply(text="x", thought="x", actions=(Action(tool="take", args={"heap": heap, "stones": stones}),))


def expert() -> Policy:
    return Nim().expert(())


def test_each_player_has_a_run_of_its_own_and_the_roles_change_from_task_to_task() -> None:
    episodes = play(expert(), expert())
    assert [episode.policy for episode in episodes] == ["", "other", "other", ""] * 2
    assert [episode.result.reward for episode in episodes] == [1.0, 0.0] * 4, "every start is won by who moves first"
    first, second = episodes[0].trajectory, episodes[1].trajectory
    assert (first.agent, second.agent) == (A, B)
    assert (first.extra["role"], second.extra["role"]) == ("first", "second")
    assert (first.extra["opponents"], second.extra["opponents"]) == (["agent:b@1"], ["agent:a@1"])
    assert len({one.trajectory.id for one in episodes}) == len({one.trajectory.episode_key for one in episodes}) == 8
    assert (first.outcome.status, second.outcome.status) == (OutcomeStatus.SUCCESS, OutcomeStatus.FAILURE)
    assert first.steps[0].message == "You are a."
    opening = next(step.message for step in second.steps if step.actor is Actor.USER)
    assert "You move second" in str(opening), "the rules, and the move before"
    assert {len(step.observations) for step in (*first.agent_steps, *second.agent_steps)} == {1}


def test_greedy_games_from_equal_positions_have_equal_digests_and_sampled_ones_none() -> None:
    """40 tasks of a game with 27 positions in two roles: where first and second heap and role are the same, so is the game."""
    own = [episode for episode in play(expert(), expert(), 40, greedy=True) if not episode.policy]
    openings = {episode.result.digest: str(episode.trajectory.steps[1].message) for episode in own}
    games = {(str(e.trajectory.steps[1].message), e.trajectory.extra["role"]) for e in own}
    assert 1 < len(openings) == len(games) < 40
    assert {episode.result.digest for episode in play(expert(), expert())} == {None}


def test_three_turns_without_a_legal_move_lose_and_text_that_cannot_be_read_is_one() -> None:
    garbled = Scripted(lambda turn: Reply(text="{", error="not JSON"))
    greedy = Scripted(lambda turn: reply(9, 1))
    for loser in (garbled, greedy):
        episodes = play(expert(), loser, n=1)
        ended = [(episode.result.status, episode.result.reward) for episode in episodes]
        assert ended == [("success", 1), ("failure", 0)]
        assert len(episodes[1].trajectory.agent_steps) == 3
    task = Nim("easy", ("normal",)).tasks("train", 1, 0)[0]
    game = Nim().make()
    assert game.reset(task).player == 0
    refused = game.step([Action(tool="take", args={"heap": 1, "stones": 99})])
    assert (refused.player, refused.observations[0].is_error, refused.terminated) == (0, True, False)
    assert "Heaps:" in text_of(act(game, "take", heap=1, stones=1))


def test_a_player_without_an_answer_ends_the_game_without_a_verdict_for_the_other() -> None:
    silent = Scripted(lambda turn: Reply(text="", stop=Stop.FAILED, error="no endpoint"))
    found = [(episode.result.status, episode.trajectory.outcome.exit_status) for episode in play(silent, expert(), n=1)]
    assert found == [("error", "endpoint_error"), ("unknown", "game_over")]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"terminated": True, "reward": 1.0}, "one for each of the 2 players, got 0"),
        ({"terminated": True, "rewards": (1.0,)}, "one for each of the 2 players, got 1"),
        ({"player": 7}, "player 0 to 1 of the game, got 7"),
    ],
)
def test_a_step_that_does_not_fit_the_players_ends_the_game_in_an_error_for_both(
    wrong: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Game, "step", lambda self, actions: TimeStep(**wrong))
    found = [episode.result for episode in play(expert(), expert(), n=1)]
    assert [result.status for result in found] == ["error", "error"]
    assert message in (found[0].error or "")


def test_the_players_of_a_game_sample_from_different_streams() -> None:
    seeds: dict[str, set[int]] = {"": set(), "other": set()}

    def answer(turn: Turn) -> Reply:
        seeds[turn.policy].add(turn.seed)
        return reply(9, 1)

    play(Scripted(answer), Scripted(answer), n=2)
    assert seeds[""].isdisjoint(seeds["other"])


def test_a_game_needs_its_players_and_is_no_part_of_a_mixture() -> None:
    source = Nim()
    task = source.tasks("train", 1, 0)[0]
    with pytest.raises(InvalidInput, match=r"expected 2 players \(first, second\).*got 0; name an opponent"):
        list(run_episodes(source, expert(), [EpisodePlan(task)], SETTINGS))
    with pytest.raises(InvalidInput, match="expected environments for one player"):
        Mixture("mix", {"quintain/nim": source}, {"quintain/nim": 1})


def test_positions_of_nim_are_won_or_lost_as_the_theory_has_it() -> None:
    """1-2-3 and n-n are lost; one stone is lost in misere play; the splits share no position."""
    assert is_lost([1, 2, 3], misere=False)
    assert is_lost([4, 4], misere=True)
    assert is_lost([1], misere=True)
    assert not is_lost([1], misere=False)
    assert is_lost([], misere=False)
    assert not is_lost([], misere=True)
    assert best_move([3, 5], misere=False) == (1, 2)
    assert best_move([1, 4], misere=True) == (1, 4), "leaves one stone"
    starts = {
        split: {tuple(sorted(map(int, task.prompt.split(":")[1].split()))) for task in Nim().tasks(split, 200, 1)}
        for split in ("train", "held_out")
    }
    assert starts["train"].isdisjoint(starts["held_out"])
    for episode in play(expert(), expert(), types="misere"):
        assert episode.result.reward == (episode.trajectory.extra["role"] == "first")
