"""Games by tool: an opponent is named before the job starts, and both players' runs are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.filters import TrajectoryFilter
from quintain.tools.evaluation.comparison import compare_agents
from quintain.tools.evaluation.leaderboards import environment_leaderboard
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.jobs.jobs import get_job
from quintain.tools.services import Services
from quintain.tools.training.start import start_training
from tiny_models import save_tiny_model
from tools.stored_records import ended

NIM = "quintain/nim?difficulty=easy"
GRPO = {"method": "grpo", "model": "starter"}


@pytest.fixture
def tiny(services: Services, tmp_path: Path) -> str:
    folder = save_tiny_model(tmp_path / "tiny", hidden=16)
    agent = Agent(name="tiny", model=ModelRef(source="folder", path=str(folder)), sampling=Sampling(max_new_tokens=2))
    return services.store.agents.add(agent, services.clock()).id or ""


@pytest.mark.usefixtures("jobs_in_process")
def test_an_agent_is_measured_against_an_opponent_and_both_runs_are_stored(services: Services, tiny: str) -> None:
    started = evaluate_agent(services, "expert", environment=NIM, opponent=tiny, n_tasks=4)
    job = get_job(services, started.job_id)
    assert job.status == "succeeded", job.error
    assert job.label == f"evaluate expert against tiny on {NIM}: 4 tasks, held_out"
    assert job.result.trajectories.count == 8
    evaluation = services.store.evaluations.get(str(job.result.evaluation_id))
    assert (evaluation.opponent_id, evaluation.rate.value, evaluation.rate.n) == (tiny, 1.0, 4)
    runs = services.store.trajectories.search(TrajectoryFilter(job_id=started.job_id), limit=50).items
    assert sorted(run.agent for run in runs) == ["expert@1"] * 4 + ["tiny@1"] * 4
    other = ended(services, evaluate_agent(services, "expert", environment=NIM, opponent="self", n_tasks=4))
    alone = services.store.evaluations.get(str(other.result.evaluation_id))
    assert (alone.rate.value, alone.opponent_id) == (0.5, alone.agent_id), "who moves first wins, and roles alternate"
    assert alone.suite_hash != evaluation.suite_hash, "results against different opponents are not paired"


def test_a_game_without_an_opponent_and_an_opponent_without_a_game_are_refused(services: Services) -> None:
    refused: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (evaluate_agent, {"agent": "expert", "environment": NIM}, "opponent='self', 'expert' or another agent"),
        (collect_rollouts, {"agent": "expert", "environment": NIM}, "a game of first and second, got none"),
        (evaluate_agent, {"agent": "expert", "environment": "quintain/math", "opponent": "self"}, "acts alone"),
        (compare_agents, {"agents": ["expert", "starter"], "environment": NIM, "sequential": True}, "for one player"),
        (start_training, GRPO | {"environment": NIM}, r"set hyperparameters=\{'self_play': \{\}\}"),
        (start_training, GRPO | {"environment": "quintain/math", "hyperparameters": {"self_play": {}}}, "acts alone"),
        (
            start_training,
            GRPO | {"environment": NIM, "hyperparameters": {"self_play": {"train_role": "third"}}},
            "first or second, got 'third'",
        ),
    )
    for tool, arguments, words in refused:
        with pytest.raises(InvalidInput, match=words):
            tool(services, **arguments)
    assert not services.store.jobs.page().items


@pytest.mark.usefixtures("jobs_in_process")
def test_a_model_trained_by_self_play_is_rated_against_its_start(services: Services, tiny: str) -> None:
    settings = {"self_play": {"pool_size": 2}, "rollouts": 2, "group_size": 2, "tasks_per_step": 1, "max_new_tokens": 4}
    started = start_training(
        services, method="grpo", model=tiny, environment=NIM, name="player", hyperparameters=settings
    )
    assert ended(services, started).error is None
    runs = services.store.trajectories.search(TrajectoryFilter(job_id=started.job_id), limit=50).items
    assert len(runs) == 8, "two rollouts of two games, each with a run of either player"
    for opponent in (tiny, "expert"):
        played = evaluate_agent(services, "player", environment=NIM, opponent=opponent, n_tasks=4)
        assert ended(services, played).error is None
    board = environment_leaderboard(services, NIM)
    assert board.ratings[0].agent == "agent:expert@1"
    assert {rating.agent: rating.games for rating in board.ratings} == {
        "agent:player@1": 8,
        tiny: 4,
        "agent:expert@1": 4,
    }
