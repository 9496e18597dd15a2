"""What may be asked of rollouts and of replay, before any job is started."""

from __future__ import annotations

import re
from typing import Any

import pytest

from quintain.errors import InvalidInput, NotFound
from quintain.records.labels.calibration import Calibration
from quintain.records.trajectory import Trajectory
from quintain.scoring.registry import _REGISTERED, register
from quintain.tools.catalog import CATALOG
from quintain.tools.evaluation.leaderboard import environment_leaderboard
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.invocation import check
from quintain.tools.labels.rewards import reward_spec
from quintain.tools.labels.score_jobs import start_replay, start_step_labels
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services
from quintain.worker.job_inputs import open_run_inputs
from tools.stored_records import add_runs, error_of, spec_of
from trajectory_runs import answer, run, user

INVENTORY = "quintain/inventory"
TRUSTED = False
TOOLS = {spec.name: spec for spec in CATALOG}

pytestmark = pytest.mark.usefixtures("waiting")  # jobs are stored and never begin


def recorded(environment: str | None, job_id: str | None = None, task: str = "t1") -> Trajectory:
    made = run(task, user(), answer("Done."))
    return made.model_copy(
        update={"job_id": job_id, "task": made.task.model_copy(update={"environment": environment})}
    ).identified()


def test_a_schedule_and_a_live_scorer_become_part_of_the_job(services: Services) -> None:
    asked = {"agent": "starter", "environment": [INVENTORY, "quintain/math"], "temperature": [0.5, 1.5], "attempts": 4}
    arguments = check(TOOLS["collect_rollouts"], {**asked, "diversity": 1, "scorer": "composite"})
    spec = spec_of(services, collect_rollouts(services, **arguments))
    assert (spec.temperatures, spec.sampling.temperature, spec.diversity) == ((0.5, 1.5), 0.5, 1.0)
    assert (spec.environment, spec.reward.names) == ("mix(quintain/inventory=1,quintain/math=1)", ("composite",))
    plain = spec_of(services, collect_rollouts(services, "starter", INVENTORY, temperature=0.7))
    assert (plain.temperatures, plain.sampling.temperature, plain.reward) == (None, 0.7, None)


UNPLAYABLE: list[tuple[dict[str, Any], str]] = [
    ({"temperature": [1.0, 0.2]}, "give the lower one first: [0.2, 1]"),
    ({"temperature": [0.5]}, "temperature"),
    ({"temperature": [0.5, 9]}, "temperature"),
    ({"diversity": 1.0, "attempts": 2}, "attempts is 2"),
    ({"diversity": 1.0, "attempts": 4, "temperature": 0}, "temperature is 0"),
    ({"diversity": 9, "attempts": 4}, "diversity"),
    ({"environment": {INVENTORY: True}}, "environment"),
    ({"scorer": {"rules": "much"}}, "scorer"),
    ({"scorer": {}}, "to be a name or a mix"),
]


def test_what_cannot_be_played_is_told_with_the_bound(services: Services) -> None:
    for asked, words in UNPLAYABLE:
        with pytest.raises(InvalidInput, match=re.escape(words)):
            collect_rollouts(
                services, **check(TOOLS["collect_rollouts"], {"agent": "starter", "environment": INVENTORY, **asked})
            )
    assert services.store.jobs.page().items == ()


def test_questions_without_a_file_are_refused_before_a_job_and_an_unknown_environment_names_the_ways_to_own_ones(
    services: Services,
) -> None:
    with pytest.raises(InvalidInput, match=r"no_task_file.*quintain/tasks\?file=PATH"):
        evaluate_agent(services, "starter", "quintain/tasks")
    with pytest.raises(
        NotFound, match=r"'guess\.py'.*quintain/tasks\?file=guess\.py.*mcp:NAME.*quintain\.environments"
    ):
        collect_rollouts(services, "starter", "guess.py")
    assert services.store.jobs.page().items == ()


def test_episodes_that_repeat_each_other_are_warned_of(services: Services) -> None:
    """A greedy model plays a task the same way each time, which looks like certainty."""
    for started in (
        evaluate_agent(services, "starter", INVENTORY, n_tasks=2, repeats=2),
        collect_rollouts(services, "starter", INVENTORY, n_tasks=2, attempts=4, temperature=0),
    ):
        (warning,) = started.warnings
        assert "[greedy_repeats] temperature is 0" in warning
    assert not evaluate_agent(services, "starter", INVENTORY, n_tasks=3).warnings
    assert not collect_rollouts(services, "starter", INVENTORY, n_tasks=2, attempts=4).warnings


def test_forbidden_tools_that_an_environment_does_not_offer_are_warned_of(services: Services) -> None:
    """Otherwise an agent would seem to obey: a tool that is not there is never called."""
    place = "quintain/inventory"
    (warning,) = evaluate_agent(services, "expert", place, n_tasks=2, forbidden=["serch", "open"]).warnings
    assert "offers no tool 'serch' (did you mean 'search'?), so that no call of it proves nothing" in warning
    for known in (["open"], []):
        assert evaluate_agent(services, "expert", place, n_tasks=3, forbidden=known).warnings == ()


def test_scorers_that_need_more_than_the_run_are_refused_with_the_way_to_use_them(services: Services) -> None:
    register("mine", lambda run: 1.0)
    try:
        for scorer in ("people", "montecarlo", "replay", "mine"):
            for asked in (scorer, {"rules": 0.5, scorer: 0.5}):
                assert error_of(reward_spec, services, asked).code == "not_a_live_scorer"
    finally:
        del _REGISTERED["mine"]
    with pytest.raises(NotFound, match="did you mean 'rules'"):
        reward_spec(services, "ruels")


def test_a_part_with_a_calibration_goes_into_a_live_mix_as_it_is(services: Services) -> None:
    def make(version: int) -> Calibration:
        return Calibration(id="cal-1", scorer="rules", version=version, labels="people", domains={})

    services.store.calibrations.add("rules", make, services.clock())
    mixed = reward_spec(services, {"rules": 1, "outcome": 2}, calibrate=False)
    assert [(part.scorer, part.weight) for part in mixed.parts] == [("raw:rules", 1.0), ("outcome", 2.0)]
    assert reward_spec(services, "rules").names == ("rules",)


def test_a_run_is_carried_out_again_where_it_was_recorded_options_included(services: Services) -> None:
    """The run names the environment; the job that played it has the options. Parts of mixtures name theirs in full."""
    hard, both = f"{INVENTORY}?difficulty=hard", {INVENTORY: 1.0, "quintain/math?difficulty=easy": 1.0}
    played = collect_rollouts(services, "starter", hard).job_id
    mixed = collect_rollouts(services, "starter", both).job_id
    places = [
        (INVENTORY, played),
        (INVENTORY, None),
        ("quintain/math", played),
        (INVENTORY, mixed),
        (f"{INVENTORY}?difficulty=easy", mixed),
        ("acme/shop", None),
        ("quintain/tasks?file=/etc/passwd", None),
        (None, None),
    ]
    runs = [recorded(*place, task=f"t{i}") for i, place in enumerate(places)]
    spec = spec_of(services, start_replay(services, runs))
    written = list(open_run_inputs(spec.runs).stream())
    assert [one.id for one in written] == [one.id for one in runs]
    found = [one.task.environment for one in written]
    assert found[:5] == [hard, INVENTORY, "quintain/math", INVENTORY, f"{INVENTORY}?difficulty=easy"]
    assert found[5:] == [
        "acme/shop",
        "quintain/tasks",
        None,
    ]  # the run has its task, a file that may not be read is not
    assert list(spec.unusable) == ["acme/shop"]
    assert "no environment is called 'acme/shop'" in spec.unusable["acme/shop"]
    agent = spec_of(services, collect_rollouts(services, "starter", INVENTORY)).agent
    labelled = start_step_labels(services, [runs[0]], agent=agent)
    labels = spec_of(services, labelled)
    assert labels.environment == next(open_run_inputs(labels.runs).stream()).task.environment == hard


def test_replay_of_runs_that_no_environment_here_knows_is_refused_and_nothing_is_started(services: Services) -> None:
    runs = [recorded("acme/shop"), recorded(None, task="t2")]
    ids = add_runs(services, *runs)
    for asked, words in (
        ({"trajectory_ids": ids}, "none of these 2 runs can be replayed: acme/shop: no environment is called"),
        ({"trajectory_ids": ids[1:]}, "no run names its environment"),
        ({"trajectory_ids": ids, "judge": "starter"}, "expected `scorer='judge'`"),
        ({"trajectory_ids": ids, "rubric": "default"}, "only a judge takes"),
        ({"trajectory_ids": ids, "cap": 0.5}, "a scorer that runs as a job"),
    ):
        with pytest.raises(InvalidInput, match=words):
            score_trajectories(services, "replay", **asked)
    stored = score_trajectories(services, {"replay": 1.0}, trajectory_ids=ids)
    assert "score_trajectories(scorer='replay', filter=...)" in next(iter(stored.reasons))
    assert services.store.jobs.page().items == ()


def test_a_leaderboard_of_a_mixture_is_found_however_it_is_written(services: Services) -> None:
    with pytest.raises(NotFound, match=r"evaluated in 'mix\(quintain/inventory=2,quintain/math=1\)'"):
        environment_leaderboard(services, "quintain/math=0.5,quintain/inventory=1")
