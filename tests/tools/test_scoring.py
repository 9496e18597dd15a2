"""`score_trajectories`: through a real client, streamed, calibrated, capped, audited, and told where it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_client import ToolCaller
from quintain.errors import InvalidInput, NotFound, Refused
from quintain.records.filters import TrajectoryFilter
from quintain.records.score import Score
from quintain.records.trajectory import OutcomeStatus, Task, Trajectory
from quintain.settings import Settings
from quintain.tools.data.library import list_library
from quintain.tools.labels import scoring
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services, open_services
from tools.stored_records import add_runs, add_scores, new_score
from trajectory_runs import answer, run, user

TRUSTED = False


def asked(n: int, text: str = "The answer is 42.", expected: str = "42") -> Trajectory:
    return Trajectory(
        task=Task(id=f"t{n}", prompt=f"{n}?", metadata={"answer": expected}), steps=(user(f"{n}?"), answer(text))
    )


def stored(services: Services, run_id: str, scorer: str) -> Score:
    return services.store.scores.latest(scorer, [run_id])[run_id]


def test_a_client_scores_runs_by_their_checkers_and_hears_of_those_that_cannot_be(ask: ToolCaller) -> None:
    checkers: list[dict[str, Any]] = [
        {"answer": "42"},
        {"checker": {"type": "regex", "pattern": "^4"}},
        {"checker": "json", "expected": 42},
        {},
    ]
    steps = [{"actor": "user", "message": "?"}, {"actor": "agent", "message": "42"}]
    for n, metadata in enumerate(checkers):
        ask("record_trajectory", trajectory={"task": {"id": f"t{n}", "metadata": metadata}, "steps": steps})
    assert {"name", "about", "source"} <= ask("list_library", kind="scorers")["items"][0].keys()
    result = ask("score_trajectories", scorer="checker", filter={"since": "2000-01-01"}, audit=True)
    assert (result["scored"], result["unscored_count"], result["summary"]["mean"]) == (3, 1, 1.0)
    assert "no checker" in next(iter(result["reasons"]))
    assert result["unscored"][0]["reason"] in result["reasons"]
    assert result["audit"]["n"] == 4


def test_equal_reasons_are_listed_once_with_their_count_and_first_run(services: Services) -> None:
    """Three runs without a checker and one whose checker is malformed: two reasons."""
    tasks: list[dict[str, Any]] = [{}, {}, {"checker": {"type": "regex", "pattern": "("}}, {}]
    runs = [
        Trajectory(task=Task(id=f"t{n}", metadata=about), steps=(user("?"), answer("1")))
        for n, about in enumerate(tasks)
    ]
    ids = add_runs(services, *runs)
    found = score_trajectories(services, "checker", trajectory_ids=ids)
    assert [(one.id, one.count) for one in found.unscored] == [(ids[0], 3), (ids[2], 1)]
    assert {one.reason: one.count for one in found.unscored} == found.reasons
    assert found.unscored_count == 4


def test_a_mix_takes_stored_verdicts_and_waits_for_none(services: Services) -> None:
    """judge 0.5 from two raters 0.4 and 0.6, answer 1: mean 0.75, lower bound 0.75 - 0.25, capped 0.3."""
    first, second = add_runs(services, asked(1), asked(2))
    for rater, value in (("assistant", 0.4), ("endpoint:a", 0.6)):
        add_scores(services, new_score(first, "judge", value, rater=rater))
    mix = {"judge": 1.0, "answer": 1.0}
    both = score_trajectories(services, mix, trajectory_ids=[first, second])
    assert (both.scored, both.unscored_count, both.summary.mean) == (1, 1, 0.75)
    assert "judge: no verdict is stored" in both.unscored[0].reason
    bound = score_trajectories(services, mix, trajectory_ids=[first], combine="lower_bound", cap=0.3)
    assert (bound.scorer, bound.summary.mean) == ("mix(answer=1, judge=1, lower_bound, cap=0.3)", 0.3)
    assert stored(services, first, bound.scorer).value == 0.3


def test_reading_verdicts_stores_nothing_new_and_says_how_to_get_some(services: Services) -> None:
    (first,) = add_runs(services, asked(1))
    none = score_trajectories(services, "judge", trajectory_ids=[first])
    assert (none.scored, "get_judging_batch" in none.next_step) == (0, True)
    add_scores(services, new_score(first, "judge", 0.4))
    assert score_trajectories(services, "judge", trajectory_ids=[first]).summary.mean == 0.4
    assert len(services.store.scores.of_trajectory(first)) == 1


def test_a_call_that_runs_out_of_time_goes_on_at_its_cursor(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = add_runs(services, *(asked(n) for n in range(5)))
    monkeypatch.setattr(scoring, "MAX_S", -1.0)
    results, cursor = [], None
    for _ in range(5):
        results.append(score_trajectories(services, "answer", trajectory_ids=ids, cursor=cursor))
        cursor = results[-1].next_cursor
    assert [one.scored for one in results] == [1] * 5
    assert [one.next_cursor for one in results] == [*ids[:4], None]
    assert "call again with the same arguments and cursor=" in results[0].next_step
    assert all(stored(services, run_id, "answer").value == 1.0 for run_id in ids)
    with pytest.raises(InvalidInput, match="not one of these runs"):
        score_trajectories(services, "answer", trajectory_ids=ids, cursor="traj-gone")


def test_a_profile_is_a_name_or_a_file_that_the_caller_may_read(services: Services, tmp_path: Path) -> None:
    (first,) = add_runs(services, run())
    (services.settings.inbox_dir / "mine.json").write_text(json.dumps({"name": "mine", "extends": "coding"}))
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    for profile in ("coding", "mine.json"):
        assert score_trajectories(services, "rules", trajectory_ids=[first], profile=profile).scored == 1
    with pytest.raises(Refused):
        score_trajectories(services, "rules", trajectory_ids=[first], profile=str(outside))
    with pytest.raises(NotFound, match="built in: advisory"):
        score_trajectories(services, "rules", trajectory_ids=[first], profile="codding")


def test_the_name_of_a_mix_states_a_named_profile_of_its_parts(services: Services) -> None:
    (first,) = add_runs(services, run())
    mix = {"rules": 0.5, "outcome": 0.5}
    names = {
        profile: score_trajectories(services, mix, trajectory_ids=[first], profile=profile).scorer
        for profile in (None, "coding")
    }
    assert names == {
        None: "mix(outcome=0.5, rules=0.5)",
        "coding": "mix(outcome=0.5, rules(profile=coding)=0.5)",
    }
    assert all(stored(services, first, name).value is not None for name in names.values())
    parts = {"rules": {"weight": 1, "profile": "coding"}, "outcome": 1}
    with pytest.raises(InvalidInput, match="a domain profile is the argument `profile`"):
        score_trajectories(services, {"parts": parts}, trajectory_ids=[first])


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"scorer": "rules", "judge": "endpoint:x"}, "expected scorer='judge'"),
    ({"scorer": "rules", "rubric": "default"}, "are for a judge"),
    ({"scorer": "judge", "mode": "pairwise"}, "get_judging_batch"),
    ({"scorer": "judge", "judge": "endpoint:x", "audit": True}, "a scorer that runs as a job"),
    ({"scorer": "rules", "combine": "lower_bound"}, "at least two"),
    ({"scorer": {"rules": -1}}, "weights must be finite"),
]


def test_arguments_that_do_not_go_together_are_refused_with_what_does(services: Services) -> None:
    for arguments, words in CONTRADICTIONS:
        (first,) = add_runs(services, run())
        with pytest.raises(InvalidInput, match=words):
            score_trajectories(services, trajectory_ids=[first], **arguments)


def test_unit_tests_say_that_the_operator_has_switched_sandboxes_off(home: Path) -> None:
    opened = open_services(Settings(home=home, sandbox="off"))
    checker = {"type": "unit_tests", "files": ["a.py"], "command": "true"}
    task = Task(metadata={"checker": checker})
    (first,) = add_runs(opened, Trajectory(task=task, steps=(user(), answer("```\nx = 1\n```"))))
    result = score_trajectories(opened, "unit_tests", trajectory_ids=[first])
    opened.close()
    assert "got QUINTAIN_SANDBOX=off" in result.unscored[0].reason


def test_what_a_result_holds_does_not_grow_with_the_runs(services: Services) -> None:
    add_runs(services, *(run(f"t{n}", status=OutcomeStatus.UNKNOWN, session_id=str(n)) for n in range(300)))
    result = score_trajectories(services, "outcome", TrajectoryFilter(outcome=OutcomeStatus.UNKNOWN))
    (alone,) = result.unscored
    assert (result.unscored_count, alone.count, result.reasons) == (
        300,
        300,
        {"the outcome is unknown, which is no verdict": 300},
    )


def test_the_library_describes_every_scorer_and_what_it_needs(services: Services) -> None:
    items = {item["name"]: item for item in list_library(services, "scorers").items}
    assert {"outcome", "rules", "answer", "unit_tests", "judge", "people", "composite"} <= items.keys()
    assert "QUINTAIN_SANDBOX" in items["unit_tests"]["about"]
    assert all(item["about"] and "broken" not in item for item in items.values())
