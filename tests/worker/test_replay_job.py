"""Recorded runs carried out again: what came out as recorded, where others first differ, and what cannot be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quintain.records.jobs.job import JobResult, SelftestSpec
from quintain.records.jobs.run_jobs import ReplaySpec
from quintain.records.score import Score
from quintain.records.trajectory import (
    STATED_BY,
    Action,
    Observation,
    Outcome,
    OutcomeStatus,
    Step,
    Trajectory,
)
from quintain.worker.job_kinds import replay
from worker.job_folder import Stopping, expert_runs, resuming, runs_file, scores, warnings


def run_stage(folder: Path, runs: list[Trajectory], after: int = 0, **spec: Any) -> JobResult:
    file = runs_file(folder.parent, runs)
    return replay.run(ReplaySpec(runs=file, **spec), folder, Stopping(folder, "score", after))


def score(folder: Path, run: Trajectory, **changes: Any) -> Score:
    """Of the run as it would be if it had been recorded otherwise."""
    run_stage(folder, [run.model_copy(update=changes)])
    return scores(folder)[0]


def altered(run: Trajectory, number: int, **changes: Any) -> tuple[Step, ...]:
    """The steps, the agent's step of this number otherwise."""
    place = [i for i, step in enumerate(run.steps) if step.actor == "agent"][number]
    return (*run.steps[:place], run.steps[place].model_copy(update=changes), *run.steps[place + 1 :])


def test_a_run_that_comes_out_as_recorded_is_worth_one_with_each_of_its_steps(tmp_path: Path) -> None:
    run = expert_runs(1)[0]
    n = len(run.agent_steps)
    found = score(tmp_path / "job", run)
    assert (found.scorer, found.trajectory_id, found.value, found.rater) == ("replay", run.id, 1.0, None)
    assert [step.value for step in found.steps] == [1.0] * n
    assert [(part.name, part.value) for part in found.components] == [("answers", 1.0), ("outcome", 1.0)]
    assert found.feedback == f"{n} steps as recorded; now success, reward 1; recorded success, reward 1"


def test_the_first_divergence_is_named_with_both_answers_and_later_steps_are_not_judged(tmp_path: Path) -> None:
    run = next(run for run in expert_runs(8) if len(run.agent_steps) == 4)
    found = score(tmp_path / "job", run, steps=altered(run, 1, observations=(Observation(content="Empty shelf."),)))
    assert (found.value, [step.value for step in found.steps]) == (0.0, [1.0, 0.0, None, None])
    assert found.components[0].value == 0.25
    assert found.components[1].value is None
    assert found.feedback.startswith("first divergence at step 1 the environment returned")
    assert str(run.agent_steps[1].observations[0].content)[:20] in found.feedback
    assert "Empty shelf." in found.feedback
    opening = score(tmp_path / "opening", run, steps=(Step(actor="user", message="Hello?"), *run.steps[2:]))
    assert (opening.value, {step.value for step in opening.steps}) == (0.0, {None})
    assert "at the opening" in opening.feedback


def test_a_prompt_that_the_environment_does_not_ask_is_a_divergence_at_the_opening(tmp_path: Path) -> None:
    run = expert_runs(1)[0]
    praised = run.task.model_copy(update={"prompt": "Do something else and be praised"})
    for name, steps in (("all", run.steps), ("no-opening", run.steps[2:])):
        found = score(tmp_path / name, run, task=praised, steps=steps)
        assert (found.value, {step.value for step in found.steps}) == (0.0, {None})
        assert "run recorded the prompt 'Do something else" in found.feedback
    words = Step(actor="user", message="Do something else and be praised")
    assert score(tmp_path / "said", run, steps=(run.steps[0], words, *run.steps[2:])).value == 0.0


def test_another_outcome_than_recorded_is_worth_nothing_though_all_answers_agree(tmp_path: Path) -> None:
    run = expert_runs(1)[0]
    claims = {
        "as failure": (Outcome(status=OutcomeStatus.FAILURE, reward=0.0), 0.0),
        "other reward": (Outcome(status=OutcomeStatus.SUCCESS, reward=0.5), 0.0),
        "no reward known": (Outcome(status=OutcomeStatus.SUCCESS), 1.0),
        "nothing known": (Outcome(), 1.0),
    }
    for name, (outcome, value) in claims.items():
        found = score(tmp_path / name, run, outcome=outcome)
        assert (name, found.value) == (name, value)
        assert "now success, reward 1" in found.feedback
    stated = score(
        tmp_path / "stated", run, outcome=Outcome(status=OutcomeStatus.FAILURE), extra={STATED_BY: "person:a"}
    )
    assert (stated.value, stated.components[1].value) == (1.0, None)
    assert "stated by person:a" in stated.feedback
    cut = run.steps[: run.steps.index(run.agent_steps[-1])]
    assert score(tmp_path / "cut", run, steps=cut).value == 0.0  # what is left of it did not succeed
    ended = Outcome(status=OutcomeStatus.TRUNCATED, exit_status="context")
    assert score(tmp_path / "context", run, steps=cut, outcome=ended).value == 1.0


def test_the_limit_that_cut_a_run_off_cuts_it_off_again(tmp_path: Path) -> None:
    run = expert_runs(1, max_turns=2)[0]
    assert (run.outcome.status, len(run.agent_steps)) == (OutcomeStatus.TRUNCATED, 2)
    found = score(tmp_path / "job", run)
    assert (found.value, found.components[1].feedback) == (1.0, "now truncated; recorded truncated")


def test_unverifiable_runs_are_unscored_with_the_reason(tmp_path: Path) -> None:
    run = expert_runs(1)[0]
    task, submit = run.task, Action(tool="submit", args={"answer": 1})
    changes: list[tuple[dict[str, Any], str]] = [
        ({"task": task.model_copy(update={"environment": None})}, "does not name its environment"),
        ({"task": task.model_copy(update={"environment": "acme/shop"})}, "no environment is called 'acme/shop'"),
        ({"task": task.model_copy(update={"environment": "acme/file"})}, "outside the allowed roots"),
        ({"task": task.model_copy(update={"id": "other"})}, "failed during the replay"),
        ({"steps": (*run.steps[:2], Step(actor="agent", extra={"acted": False}))}, "never acted"),
        ({"outcome": Outcome(status=OutcomeStatus.ERROR, exit_status="environment_error")}, "no outcome to verify"),
    ]
    runs = [run.model_copy(update={"id": f"traj-{i}", **change}) for i, (change, _) in enumerate(changes)]
    known = run.model_copy(update={"id": "traj-known", "steps": altered(run, -1, actions=(submit,))})
    result = run_stage(tmp_path / "job", [*runs, known], unusable={"acme/file": "a file outside the allowed roots"})
    found = scores(tmp_path / "job")
    for one, (_, words) in zip(found, changes, strict=False):
        assert (one.value, words in (one.reason or "")) == (None, True), one.reason
    assert (result.n, result.n_error) == (1, 6)
    assert (result.report["reproduced"], result.report["diverged"]) == (0, 1)
    assert result.report["examples"] == {"traj-known": found[-1].feedback}
    assert sum(result.report["failed"].values()) == 6
    ((code, message),) = warnings(tmp_path / "job")
    assert code == "not_scored"
    assert message.startswith("6 of 7 runs have no value: ")


def test_a_stopped_job_goes_on_with_the_runs_that_are_left(tmp_path: Path) -> None:
    runs = expert_runs(3)
    assert run_stage(tmp_path / "job", runs, after=1) == JobResult(report={"replayed": 1, "planned": 3})
    whole = run_stage(tmp_path / "job", runs)
    assert (whole.n, whole.report["reproduced"], len(scores(tmp_path / "job"))) == (3, 3, 3)


def test_a_job_that_resumes_another_keeps_its_values_and_computes_the_others(tmp_path: Path) -> None:
    runs = expert_runs(4)
    run_stage(tmp_path / "first", runs, after=3)
    lines = tmp_path / "first" / "outputs" / "score.jsonl"
    records = [json.loads(line) for line in lines.read_bytes().splitlines()]
    records[0]["record"]["value"] = 0.25
    records[1]["record"] |= {"value": None, "status": "unscored", "reason": "the environment was away"}
    lines.write_text("".join(json.dumps(record) + "\n" for record in records))
    resuming(tmp_path / "second", SelftestSpec(), "first")
    assert run_stage(tmp_path / "second", runs).n == 4
    by_run = {score.trajectory_id: score.value for score in scores(tmp_path / "second")}
    assert [by_run[run.id or ""] for run in runs] == [0.25, 1.0, 1.0, 1.0]
