"""Stored runs sorted by the reward or by a scorer's stored values."""

from __future__ import annotations

import pytest

from mcp_client import ToolCaller
from quintain.records.trajectory import Outcome, OutcomeStatus
from quintain.tools.data import trajectories
from quintain.tools.services import Services
from tools.stored_records import add_runs, add_scores, new_score
from trajectory_runs import answer, run, user


def test_runs_are_sorted_by_the_mean_of_their_raters_newest_verdicts_page_by_page(
    services: Services, ask: ToolCaller
) -> None:
    """Means: a (0.2 + 0.6) / 2, b 0.9 after 0.1, c 0.5; d's value was taken back, e was judged by another rubric, f never."""
    rewards = dict(zip("abcdef", (3.0, None, 1.0, 2.0, None, None), strict=True))
    runs = [run(f"t-{name}", user(), answer(name), reward=reward, tags=(name,)) for name, reward in rewards.items()]
    a, b, c, d, e, _ = add_runs(services, *runs)
    for run_id, value, rater, rubric in (
        (e, 1.0, "assistant", "steps"),
        (a, 0.2, "assistant", "default"),
        (a, 0.6, "endpoint:x", "default"),
        (b, 0.1, "assistant", "default"),
        (b, 0.9, "assistant", "default"),
        (d, 0.8, "assistant", "default"),
        (d, None, "assistant", "default"),
        (c, 0.5, "assistant", "default"),
    ):
        add_scores(services, new_score(run_id, "judge", value, rater=rater, rubric=rubric))

    first = ask("search_trajectories", sort="judge", limit=2)
    assert [(item["id"], item["score"]) for item in first["items"]] == [(b, 0.9), (c, 0.5)]
    assert first["count"] is None
    assert "sort='judge'" in first["next_step"]
    second = ask("search_trajectories", sort="judge", limit=2, cursor=first["next_cursor"])
    assert [(item["id"], item["score"]) for item in second["items"]] == [(a, 0.4)]
    assert second["next_cursor"] is None

    worst = ask("search_trajectories", sort="-judge:default", filter={"outcome": "success"})
    assert [item["id"] for item in worst["items"]] == [a, c, b]
    assert [item["id"] for item in ask("search_trajectories", sort="reward")["items"]] == [a, d, c]
    assert [item["id"] for item in ask("search_trajectories", sort="judge", filter={"tags": ["c"]})["items"]] == [c]
    (refused,) = ask.refused("search_trajectories", {"sort": "rules"})
    assert refused.startswith(
        "[nothing_to_sort] expected runs with stored values of 'rules' to sort by, got none; score"
    )
    (refused,) = ask.refused("search_trajectories", {"sort": "jugde"})
    assert "did you mean" in refused
    (refused,) = ask.refused("search_trajectories", {"sort": "-judge", "cursor": first["next_cursor"]})
    assert refused.startswith("[bad_cursor]")
    add_scores(services, new_score(a, "rules", 0.25))
    assert ask("search_trajectories", sort="rules")["items"][0]["score"] == pytest.approx(0.25)


def test_scores_of_an_imported_log_are_chosen_by_their_name(services: Services, ask: ToolCaller) -> None:
    """Feedback 1, 0 and 0.25, the last scored 0.75 here since; a rating of 1 to 5 is not a score."""
    logged: tuple[dict[str, float], ...] = (
        {"user-feedback": 1.0, "rating": 5.0},
        {"user-feedback": 0.0},
        {"user-feedback": 0.25, 'a"b': 0.5},
        {},
    )
    runs = [run(f"t-{i}", user(), answer(str(i)), status=OutcomeStatus.UNKNOWN, tags=("k",)) for i in range(4)]
    up, down, later, _ = add_runs(
        services,
        *(one.model_copy(update={"outcome": Outcome(scores=scores)}) for one, scores in zip(runs, logged, strict=True)),
    )
    add_scores(services, new_score(later, "user-feedback", 0.75))
    found = ask("search_trajectories", sort="user-feedback")["items"]
    assert [(item["id"], item["score"]) for item in found] == [(up, 1.0), (later, 0.75), (down, 0.0)]
    kto = {"kind": "kto", "name": "d", "filter": {"tags": ["k"]}}
    frozen = ask("export_dataset", **kto, scorer="user-feedback")
    assert (frozen["rows"], frozen["dropped"]) == (3, {"unscored": 1})
    assert ask("export_dataset", **kto, scorer='a"b')["dropped"] == {"unscored": 3}
    (refused,) = ask.refused("export_dataset", kto | {"scorer": "rating"})
    assert "expected the scores 'rating' of imported logs in 0..1, got 5..5" in refused
    (refused,) = ask.refused("export_dataset", kto | {"scorer": "feedback"})
    assert refused.endswith('imported logs have scores a"b, rating, user-feedback')


def test_a_search_counts_what_matches_however_short_the_page(
    ask: ToolCaller, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(services, *(run(f"t{n}", tags=("even",) if n % 2 == 0 else ()) for n in range(9)))
    even = ask("search_trajectories", filter={"tags": ["even"]}, limit=2)
    assert (len(even["items"]), even["count"]) == (2, 5)
    assert ask("search_trajectories", filter={"tags": ["odd"]})["count"] == 0
    assert ask("search_trajectories", limit=2, cursor=even["next_cursor"])["count"] is None
    monkeypatch.setattr(trajectories, "_MOST_COUNTED", 8)
    assert ask("search_trajectories", limit=2)["count"] is None, "more than a call counts"
    assert ask("search_trajectories", filter={"tags": ["even"]}, limit=2)["count"] == 5
