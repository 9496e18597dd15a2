"""Scoring through a real client, and one name, one value: judges by rubric, agents by version, with and without a calibration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from mcp_client import ToolCaller
from quintain.errors import InvalidInput, NotFound, Refused
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import Curation
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.methods import PRMConfig, RewardConfig
from quintain.records.jobs.job import Job, JobResult, TrainSpec
from quintain.records.jobs.run_jobs import ScoreSpec
from quintain.records.labels.calibration import Calibration, CalibrationMap, DomainFit
from quintain.records.score import Score, StepScore
from quintain.records.trajectory import OutcomeStatus, Task, Trajectory
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.server.app import create_server
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.data.library import list_library
from quintain.tools.data.run_files import write_runs
from quintain.tools.jobs.jobs import view_of
from quintain.tools.labels import scoring
from quintain.tools.labels.calibration import fit_calibration
from quintain.tools.labels.preferences import record_preferences
from quintain.tools.labels.scorer_resolution import full_scorer_name, runs_with_values
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services, open_services
from quintain.tools.training.agents import resolve_agent
from tools.stored_records import add_runs, add_scores, new_score
from trajectory_runs import NOW, answer, call, run, user

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
    assert "call again with the same arguments and `cursor=" in results[0].next_step
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
    ({"scorer": "rules", "judge": "endpoint:x"}, "expected `scorer='judge'`"),
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
        {"the outcome is unknown, which is not a verdict": 300},
    )


def test_the_library_describes_every_scorer_and_what_it_needs(services: Services) -> None:
    items = {item["name"]: item for item in list_library(services, "scorers").items}
    assert {"outcome", "rules", "answer", "unit_tests", "judge", "people", "composite"} <= items.keys()
    assert "QUINTAIN_SANDBOX" in items["unit_tests"]["about"]
    assert all(item["about"] and "broken" not in item for item in items.values())


def add(services: Services, n: int, task: str = "t{}") -> list[str]:
    runs: list[Trajectory] = [run(task.format(i), user(), call("look", f"box {i}"), answer(f"{i}.")) for i in range(n)]
    return add_runs(services, *runs)


def said(run_id: str, value: float, scorer: str = "judge", **fields: Any) -> Score:
    return new_score(run_id, scorer, value, **{"rater": "assistant", **fields})


def halve(services: Services, scorer: str) -> None:
    half = CalibrationMap(method="isotonic", x=(0.0, 1.0), y=(0.0, 0.5))
    fit = DomainFit(map=half, n_labels=10, error_before=0.1, error_after=0.01, spearman=None)

    def make(version: int) -> Calibration:
        return Calibration(
            id=f"cal-{len(scorer)}-{version}", scorer=scorer, version=version, labels="people", domains={"*": fit}
        )

    services.store.calibrations.add(scorer, make, NOW)


def reward_model(services: Services, name: str = "rm", role: str = "reward_model") -> str:
    folder = resolve_agent(services, "starter").model.path
    agent = Agent(name=name, model=ModelRef(source="folder", path=folder), role=role)
    return services.store.agents.add(agent, NOW).id or ""


def worth(services: Services, scorer: str, ids: list[str]) -> list[float | None]:
    runs = services.store.trajectories.iterate(ids=ids)
    return [one.value for one in runs_with_values(services, runs, scorer, lambda run: None)]


def exported(services: Services, name: str, scorer: str, ids: list[str], least: float) -> int:
    made = export_dataset(
        services, "sft", name, trajectory_ids=ids, scorer=scorer, min_score=least, outcomes=["success", "unknown"]
    )
    return made.rows


def test_scores_that_a_job_stored_are_calibrated_when_they_are_read_whoever_reads(services: Services) -> None:
    """0.8 halved is 0.4: of a judge, of a reward model and of a scorer that computes."""
    first, *_ = ids = add(services, 2)
    model = reward_model(services)
    add_scores(services, said(first, 0.8, model, rater=model), said(first, 0.8, rater="endpoint:a"))
    score_trajectories(services, "outcome", trajectory_ids=ids)
    for scorer in (model, "judge", "outcome"):
        halve(services, scorer)
    assert [worth(services, name, [first]) for name in (model, "judge")] == [[0.4], [0.4]]
    assert score_trajectories(services, {model: 1}, trajectory_ids=[first]).summary.mean == 0.4
    with pytest.raises(InvalidInput, match="below_min_score 1"):
        exported(services, "a", model, ids, 0.5)
    assert exported(services, "b", model, ids, 0.4) == 1
    result = score_trajectories(services, "outcome", trajectory_ids=[first])
    assert result.summary.mean == worth(services, "outcome", [first])[0]
    assert worth(services, "raw:outcome", [first])[0] == 2 * (result.summary.mean or 0.0)


def test_a_value_does_not_depend_on_the_order_of_calls(services: Services) -> None:
    """One rater's 0.8 is 0.4; scored, judged again by another rater (0.6, so 0.35), read raw: export says the same as scoring."""
    (first,) = ids = add(services, 1)
    add_scores(services, said(first, 0.8))
    halve(services, "judge")
    for calibrate in (True, False, True):
        score_trajectories(services, "judge", trajectory_ids=ids, calibrate=calibrate)
        assert worth(services, "judge", ids) == [0.4]
    add_scores(services, said(first, 0.6, rater="endpoint:b"))
    result = score_trajectories(services, "judge", trajectory_ids=ids)
    assert result.summary.mean == pytest.approx(0.35)
    assert worth(services, "judge", ids) == pytest.approx([0.35])
    raw = score_trajectories(services, "judge", trajectory_ids=ids, calibrate=False)
    assert (raw.scorer, "scorer='raw:judge'" in raw.next_step) == ("raw:judge", True)
    assert worth(services, raw.scorer, ids) == pytest.approx([0.7])
    mix = {"judge": 1, "outcome": 1}
    mixed, plain = (score_trajectories(services, mix, trajectory_ids=ids, calibrate=c) for c in (True, False))
    assert (mixed.scorer, mixed.summary.mean) == ("mix(judge=1, outcome=1)", pytest.approx((0.35 + 1) / 2))
    assert (plain.scorer, plain.summary.mean) == ("mix(outcome=1, raw:judge=1)", pytest.approx((0.7 + 1) / 2))
    assert (list(mixed.calibrations), plain.calibrations) == (["judge"], {})


def test_rubrics_are_never_averaged_and_the_answer_says_which_one_counts(services: Services) -> None:
    """`default` 0.9 by two raters, then `brevity` 0.1 by one of them: judge is 0.1 and says so, each can be chosen."""
    ids = add(services, 2)
    for run_id in ids:
        add_scores(
            services, said(run_id, 0.9, rubric="default"), said(run_id, 0.7, rubric="default", rater="endpoint:b")
        )
    alone = score_trajectories(services, "judge", trajectory_ids=ids)
    assert (alone.scorer, alone.summary.mean, alone.warnings) == ("judge:default", 0.8, ())
    add_scores(services, said(ids[0], 0.1, rubric="brevity"))
    result = score_trajectories(services, "judge", trajectory_ids=ids)
    assert (result.scorer, result.scored, result.summary.mean) == ("judge:brevity", 1, 0.1)
    assert "2 rubrics, brevity, default" in result.warnings[0]
    assert score_trajectories(services, "judge:default", trajectory_ids=ids).summary.mean == 0.8
    assert score_trajectories(services, "judge", trajectory_ids=ids[1:]).scorer == "judge:default"
    assert worth(services, "judge", ids) == pytest.approx([0.1, 0.8])
    made = export_dataset(services, "kto", "k", trajectory_ids=ids, scorer="judge")
    assert (made.rows, "2 rubrics" in " ".join(made.warnings)) == (1, True)
    with pytest.raises(NotFound, match=r"rubric 'brevty' \(did you mean 'brevity'\?\)"):
        score_trajectories(services, "judge:brevty", trajectory_ids=ids)


def test_a_calibration_is_of_one_rubric(services: Services) -> None:
    (first,) = ids = add(services, 1)
    add_scores(services, said(first, 0.8, rubric="default"), said(first, 0.6, rubric="brevity"))
    halve(services, "judge:default")
    assert [worth(services, f"judge:{rubric}", ids) for rubric in ("default", "brevity")] == [[0.4], [0.6]]


def test_a_fit_takes_labels_by_the_rubric_of_the_scores(services: Services) -> None:
    ids = add(services, 12)
    for n, run_id in enumerate(ids):
        add_scores(services, said(run_id, 0.5 + n / 30, rubric="default"))
        add_scores(services, said(run_id, n / 12, "people", rubric="default", rater="person:ann"))
        add_scores(services, said(run_id, 1.0, "people", rubric="brevity", rater="person:ann"))
    made = services.store.calibrations.get(fit_calibration(services, "judge").calibration_id)
    assert (made.scorer, made.labels) == ("judge:default", "people:default")
    assert score_trajectories(services, "judge", trajectory_ids=ids).calibrations == {"judge:default": made.id}


def test_step_labels_are_of_a_rubric_that_speaks_of_steps(services: Services) -> None:
    (first,) = add(services, 1)
    steps = (StepScore(step=0, value=1.0), StepScore(step=1, value=0.0))
    add_scores(services, said(first, 0.5, rubric="steps", steps=steps), said(first, 0.9, rubric="default"))
    assert full_scorer_name(services, "judge", ids=[first], steps=True).name == "judge:steps"
    curation = {"step_labels": "scores"}
    made = export_dataset(
        services, "prm", "p", trajectory_ids=[first], scorer="judge", curation=Curation.model_validate(curation)
    )
    assert made.rows == 1
    implied = export_dataset(services, "prm", "q", trajectory_ids=[first], scorer="judge")
    assert (implied.rows, implied.dropped) == (1, {}), "a scorer gives labels"


@pytest.mark.usefixtures("waiting")
def test_an_agent_has_one_name_everywhere(services: Services) -> None:
    ids = add(services, 3, task="t")
    model = reward_model(services)
    assert model == "agent:rm@1"
    add_scores(services, *(said(run_id, n / 2, model, rater=model) for n, run_id in enumerate(ids)))
    assert exported(services, "a", "agent:rm", ids, 0.5) == 2
    mined = record_preferences(services, "mined", trajectory_ids=ids, scorer="agent:rm")
    assert mined.created > 0
    assert score_trajectories(services, {"agent:rm": 1}, trajectory_ids=ids).scorer == "mix(agent:rm@1=1)"
    with pytest.raises(InvalidInput, match="0 have labels"):
        fit_calibration(services, "agent:rm")
    started = score_trajectories(services, "agent:rm", trajectory_ids=ids)
    services.jobs.cancel(started.job_id or "")
    assert started.scorer == model
    with pytest.raises(InvalidInput, match="not_a_reward_model"):
        score_trajectories(services, {"agent:starter": 1, "outcome": 1}, trajectory_ids=ids)
    with pytest.raises(NotFound, match="did you mean 'rm'"):
        exported(services, "b", "agent:rmm", ids, 0.5)


def test_runs_that_were_forgotten_are_unscored_and_say_so(services: Services) -> None:
    gone, kept = add(services, 2)
    forget(services, gone, dry_run=False)
    result = score_trajectories(services, "outcome", trajectory_ids=[gone, kept])
    assert (result.scored + result.unscored_count, result.unscored[0].id) == (2, gone)
    assert result.unscored[0].reason.startswith("forgotten")
    assert score_trajectories(services, "outcome", trajectory_ids=[gone]).unscored_count == 1


def test_the_next_step_is_a_call_that_works(services: Services) -> None:
    add(services, 3)
    result = score_trajectories(services, "outcome", TrajectoryFilter(task_type=None, since=NOW))
    call_text = result.next_step.split("export_dataset", 1)[1].split("; ")[0]
    arguments = eval(f"dict{call_text}")
    arguments["filter"] = TrajectoryFilter.model_validate(arguments["filter"])
    assert export_dataset(services, **arguments, outcomes=["success", "failure", "unknown"]).dataset_id
    ids = add(services, 2)
    none = score_trajectories(services, "montecarlo", trajectory_ids=ids)
    assert "judge='starter'" in none.next_step
    assert "get_judging_batch" not in none.next_step


def test_scores_that_are_all_alike_are_not_to_be_exported_by(services: Services) -> None:
    """A bound at the one value would keep every run, and call it good."""
    ids = add(services, 12)
    result = score_trajectories(services, {"type": "regex", "pattern": "nowhere in it"}, trajectory_ids=ids)
    assert result.scored == 12
    assert result.next_step.startswith(
        "All 12 runs have the value 0, which ranks none of them; list_library(kind='scorers')"
    )


LONG = "x" * 100_000


def _mix(name: str) -> dict[str, float]:
    return {name: 1, "rules": 1}


WRONG: list[dict[str, Any]] = [
    {"scorer": LONG},
    {"scorer": _mix(LONG)},
    {"scorer": f"agent:{LONG}"},
    {"scorer": "mix(" + LONG},
    {"scorer": "rules", "profile": LONG},
    {"scorer": "rules", "profile": f"{LONG}.json"},
    {"scorer": LONG, "combine": "lower_bound"},
    {"scorer": "rules", "judge": LONG},
    {"scorer": _mix("rules"), "judge": LONG},
    {"scorer": "judge", "judge": "starter", "rubric": LONG},
    {"scorer": "judge", "judge": "starter", "rubric": f"{LONG}.json"},
    {"scorer": "judge", "judge": f"endpoint:{LONG}"},
    {"scorer": "judge", "judge": LONG},
    {"scorer": "rules", "trajectory_ids": [LONG]},
    {"scorer": {"judge": 1}, "judge": "endpoint:good"},
    {"scorer": {"rules": True}},
    {"scorer": {"rules": "0.5"}},
]


def test_a_client_hears_what_is_wrong_in_a_few_words(services: Services, ask: ToolCaller) -> None:
    add(services, 1)
    given = [one if "trajectory_ids" in one else one | {"filter": {"since": "2000-01-01"}} for one in WRONG]
    for text in ask.refused("score_trajectories", *given):
        assert len(text) < 1500, text[:3000]
        assert "[internal]" not in text


@pytest.mark.parametrize("argument", ["profile", "rubric"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(services: Services, argument: str) -> None:
    add(services, 1)
    pipe = services.settings.inbox_dir / "pipe.json"
    os.mkfifo(pipe)
    more: dict[str, Any] = {"rubric": {"scorer": "judge", "judge": "starter"}, "profile": {"scorer": "rules"}}[argument]
    with pytest.raises(InvalidInput, match="not a regular file"):
        score_trajectories(services, filter=TrajectoryFilter(since=NOW), **more, **{argument: "pipe.json"})


def test_a_scorer_that_raises_is_logged_once_and_prints_nothing(
    services: Services, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    from quintain.scoring import registry

    def broken(trajectory: Trajectory) -> float:
        raise RuntimeError("no luck")

    registry.register("broken-here", broken)
    try:
        result = score_trajectories(services, "broken-here", trajectory_ids=add(services, 5))
    finally:
        registry._REGISTERED.pop("broken-here")
    assert result.unscored_count == 5
    assert len(caplog.records) == 1
    assert capfd.readouterr().err == ""


def test_jobs_can_be_followed_where_they_can_be_started(settings: Settings) -> None:
    async def names(toolset: str) -> set[str]:
        async with Client(create_server(settings, toolsets=[toolset])) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    for toolset in ("label", "train", "evaluate"):
        assert "get_job" in anyio.run(names, toolset)


def test_a_reward_that_would_be_ignored_is_refused(services: Services) -> None:
    from quintain.tools.training.methods import read_hyperparameters
    from quintain.tools.training.usable_settings import reward_agent

    whole, of_steps = reward_model(services), reward_model(services, "pm", "step_model")

    def check(name: str) -> Any:
        return reward_agent(services, read_hyperparameters("grpo", {"reward_model": name, "step_level": True}))

    with pytest.raises(InvalidInput, match=r"values whole runs .*method='prm'"):
        check(whole)
    assert check(of_steps).id == of_steps
    for weight in ({"beta": 0.9}, {"alpha": 0.2}):
        with pytest.raises(InvalidInput, match="reward_model is null"):
            read_hyperparameters("grpo", weight)
    assert read_hyperparameters("grpo", read_hyperparameters("grpo", None).model_dump())


def after(services: Services, spec: Any, result: JobResult) -> str:
    """What is said of a job that has done its work."""
    facts = {"id": "job-1", "kind": spec.kind, "status": "succeeded", "request_key": "k"}
    return view_of(services, Job(**facts, spec=spec, result=result, created_at=NOW, updated_at=NOW)).next_step


def test_what_a_reward_model_is_for_is_said_when_it_is_trained(services: Services) -> None:
    agent = resolve_agent(services, "starter")
    for method, config in (("reward", RewardConfig()), ("prm", PRMConfig())):
        spec = TrainSpec(
            method=method, agent=agent, name="rm", dataset_id="ds", dataset_path="", output_dir="", config=config
        )
        result = after(services, spec, JobResult(agent="agent:rm@1"))
        assert "evaluate_agent" not in result
        assert all(
            word in result for word in ("scorer='agent:rm@1'", "'reward_model': 'agent:rm@1'", "fit_calibration")
        )
    assert "evaluate_agent" in after(
        services,
        TrainSpec(agent=agent, name="a", dataset_id="ds", dataset_path="", output_dir=""),
        JobResult(agent="agent:a@1"),
    )


def test_what_scores_of_a_judge_are_for_is_said_after_the_job(services: Services) -> None:
    (first,) = add(services, 1)
    runs = write_runs(services, services.store.trajectories.iterate(ids=[first]))
    spec = ScoreSpec(agent=resolve_agent(services, "starter"), rubric=RUBRICS["default"], runs=runs, cache_dir="")
    result = after(services, spec, JobResult(n=1, n_error=0, report={"failed": {}}))
    assert "name='good', scorer='judge:default', min_score=0.5, filter=" in result


def test_runs_that_one_rater_calls_good_and_another_bad_are_told_where_their_mean_counts(
    services: Services, ask: ToolCaller
) -> None:
    """Ann and ben agree on a and b; they part on c (1 and 0), whose mean of 0.5 is good by default, and on d (0.7 and 0.4)."""
    runs = add_runs(services, *(run(f"t-{name}", user(), answer(name), tags=("parted",)) for name in "abcd"))
    for who, values in (("person:ann", (1.0, 0.0, 1.0, 0.7)), ("person:ben", (0.9, 0.1, 0.0, 0.4))):
        marks = zip(runs, values, strict=True)
        add_scores(services, *(new_score(one, "people", value, rater=who, rubric="default") for one, value in marks))
    of = {"filter": {"tags": ["parted"]}}

    parted = (
        "raters disagree on 2 of 4 runs with several raters (good from 0.5 on), and their mean counts: ask one more"
    )
    by_one = "by `scorer='people:default@person:ann'` or `scorer='people:default@person:ben'`"
    for answered in (
        ask("score_trajectories", scorer="people", **of),
        ask("export_dataset", kind="kto", name="marks", scorer="people", **of),
    ):
        (warning,) = answered["warnings"]
        assert (warning.startswith(parted), warning.endswith(by_one)) == (True, True), warning
    strict = ask("export_dataset", kind="sft", name="strict", scorer="people", min_score=0.8, **of)
    assert "disagree on 1 of 4 runs with several raters (good from 0.8 on)" in strict["warnings"][0]
    one = ask("export_dataset", kind="kto", name="of-ann", scorer="people@ann", **of)
    assert (one["warnings"], "2 desirable, 2 undesirable" in one["next_step"]) == ([], False)
