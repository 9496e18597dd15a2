"""Tournaments: a judge behind an endpoint compares runs, and stored preferences rank runs and agents."""

from __future__ import annotations

import json
import math
from itertools import product

import pytest
from scipy.optimize import brentq

from fake_endpoint import Answer, Asked, profile, serving, write_profiles
from fake_endpoint import says as replies
from mcp_client import ToolCaller
from quintain.evaluation.bradley_terry import ELO_SCALE
from quintain.records.labels.preference import Preference
from quintain.records.trajectory import AgentInfo, Task
from quintain.tools.data.trajectories import search_trajectories
from quintain.tools.jobs.jobs import get_job
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services
from scripted_judges import by_run
from tools.stored_records import add_runs
from trajectory_runs import NOW, answer, run, user

HALF = len(json.dumps(["", "", []]))
"""Characters that a step without words counts."""


def judge(asked: Asked, before: int) -> Answer:
    """The longest ladder wins; of coins the one that is shown first."""
    one, other = by_run(asked.user)
    if "coin" in one:
        return replies(json.dumps({"quotes": ["Such a coin", "Such a coin"], "better": "A"}))
    better = "A" if one.count("rung") > other.count("rung") else "B"
    return replies(json.dumps({"quotes": ["Such a ladder", "Such a ladder"], "better": better}))


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.usefixtures("jobs_in_process")
def test_a_judges_tournament_values_each_run_by_its_chance_against_the_others(services: Services) -> None:
    """Of three ladders the third beats both, the second the first, so strengths are t, 0, -t.

    The maximum does not exist; with half a virtual win and loss each, 2 - f(2t) - f(t) = f(t) - 1/2, f the logistic. The best
    run's value is the mean of f(2t) and f(t), the middle one's 1/2.
    """
    ladder, coin = Task(id="ladder", prompt="Build a ladder."), Task(id="coin", prompt="Find a coin.")
    runs = [run(None, user(), answer("Such a ladder" + " rung" * n), task=ladder) for n in (1, 2, 3)]
    runs += [run(None, user(), answer(f"Such a coin: {n}"), task=coin) for n in (1, 2)]
    ids = add_runs(services, *runs, run("alone"))
    with serving(judge) as fake:
        write_profiles(services.settings, profile("judge", fake.url))
        job = score_trajectories(services, "judge", judge="endpoint:judge", mode="pairwise", trajectory_ids=ids)
    ended = get_job(services, str(job.job_id))
    assert ended.status == "succeeded", ended.error
    report = ended.result.report
    counted = ("order_inconsistent", "shown_first_preferred", "shown_second_preferred")
    assert [report[name] for name in counted] == [1, 5, 3]
    assert report["order_p"] == pytest.approx(2 * (56 + 28 + 8 + 1) / 256)  # 5 or more of 8

    found = score_trajectories(services, "tournament", trajectory_ids=ids)
    assert (found.scored, found.unscored_count) == (5, 1)
    t = brentq(lambda t: logistic(2 * t) + 2 * logistic(t) - 2.5, 0, 10)
    values = [services.store.scores.of_trajectory(run_id)[0] for run_id in ids[:5]]
    best = (logistic(2 * t) + logistic(t)) / 2
    assert [one.value for one in values] == pytest.approx([1 - best, 0.5, best, 0.5, 0.5], abs=1e-4)
    assert values[2].feedback.startswith("2 of 2 comparisons won among 3 runs; strength +")
    assert "shrunk" in values[2].feedback
    assert "shrunk" not in values[3].feedback
    assert [item.id for item in search_trajectories(services, sort="tournament", limit=1).items] == [ids[2]]


def test_agents_are_ranked_by_preferences_with_a_judges_bias_for_length_taken_out(
    services: Services, ask: ToolCaller
) -> None:
    """Two agents of equal strength; a run that is twice as long wins 3 of 4.

    x is the longer one in 36 of 48 games, so it leads as long as length is not taken out: 30 of 48 are odds of 5/3.
    """
    text = {length: "a" * (length - HALF) for length in (64, 128)}

    def of(agent: str, length: int, n: int) -> list[str]:
        name = AgentInfo(name=agent)
        label = [Task(id=f"{agent}-{length}-{i}", prompt="Find it.") for i in range(n)]
        return add_runs(services, *(run(None, user(), answer(text[length]), task=task, agent=name) for task in label))

    refused = ask.refused("list_library", {"kind": "tournament"})
    assert refused[0].startswith("[nothing_compared]")
    x_long, x_short, y_long, y_short = of("x", 128, 9), of("x", 64, 3), of("y", 128, 4), of("y", 64, 4)
    x_leads, y_leads = list(product(x_long, y_short)), list(product(x_short, y_long))
    games = [(a, b, n < 27) for n, (a, b) in enumerate(x_leads)] + [(a, b, n >= 9) for n, (a, b) in enumerate(y_leads)]
    services.store.preferences.add_many(
        [
            Preference(a=a, b=b, better="a" if won else "b", source="endpoint", rater="endpoint:j")
            for a, b, won in games
        ],
        NOW,
    )
    x, y, bias = ask("list_library", kind="tournament")["items"]
    assert (x["agent"], x["games"], x["won"]) == ("x", 48, 30.0)
    assert x["elo"] == pytest.approx(1500, abs=2)
    assert x["elo_with_length"] - y["elo_with_length"] == pytest.approx(ELO_SCALE * math.log(30 / 18), abs=0.2)
    assert (bias["rater"], bias["length_bias"]) == ("endpoint:j", pytest.approx(math.log(3), abs=0.02))
    assert 0 < bias["low"] < bias["high"]

    # People who prefer x on the runs of equal length are the reference, without a bias of their own.
    pairs = list(product(x_long[:4], y_long[:3]))
    services.store.preferences.add_many(
        [Preference(a=a, b=b, better="a", source="person", rater="person:ann") for a, b in pairs], NOW
    )
    x, y, bias = ask("list_library", kind="tournament")["items"]
    assert (x["agent"], x["games"]) == ("x", 60)
    assert x["elo"] > y["elo"] + 50
