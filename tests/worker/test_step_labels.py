"""Values of steps by Monte Carlo, with the embedded model playing on in the inventory environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quintain.errors import Unavailable
from quintain.records.agent import Agent, Sampling
from quintain.records.jobs.job import JobResult, StepLabelSpec
from quintain.records.trajectory import Action, Actor, Observation, Step, Trajectory
from quintain.worker.job_kinds import step_labels
from worker.job_folder import STARTER, Stopping, expert_runs, runs_file, scores


def wrong_at_the_end(run: Trajectory) -> Trajectory:
    """The same run, but that it submits something else."""
    last = run.steps[-1].model_copy(
        update={
            "actions": (Action(tool="submit", args={"answer": "nothing at all"}),),
            "observations": (Observation(content="Wrong."),),
        }
    )
    return run.model_copy(update={"steps": (*run.steps[:-1], last), "episode_key": "wrong", "id": None}).identified()


def value(folder: Path, runs: list[Trajectory], after: int = 0, **settings: Any) -> JobResult:
    file, few = runs_file(folder.parent, runs), {"agent": STARTER, "completions": 2, "seed": 4}
    spec = StepLabelSpec(environment="quintain/inventory", runs=file, **few | settings)
    return step_labels.run(spec, folder, Stopping(folder, "score", after))


def test_a_step_is_worth_what_it_leads_to_and_the_last_one_what_it_is(tmp_path: Path) -> None:
    """The same steps up to the last: with its own completions each; the last is judged as it ended, without any."""
    good = expert_runs(1)[0]
    bad = wrong_at_the_end(good)
    result = value(tmp_path / "job", [good, bad])
    assert (result.n, result.n_error) == (2, 0)
    right, wrong = scores(tmp_path / "job")
    assert (right.scorer, right.rater, right.trajectory_id) == ("montecarlo", "agent:starter@1", good.id)
    assert [step.step for step in right.steps] == list(range(len(good.agent_steps)))
    assert right.steps[-1].value == 1.0
    assert "the run ends here: success" in right.steps[-1].feedback
    assert wrong.steps[-1].value == 0.0
    for step in right.steps[:-1]:
        assert step.value in {0.0, 0.5, 1.0}
        assert step.feedback == f"{round((step.value or 0) * 2)} of 2 completions succeeded"
    known = [step.value for step in right.steps if step.value is not None]
    assert right.value == pytest.approx(sum(known) / len(known))


def test_a_stopped_job_goes_on_with_the_runs_that_are_left_and_ends_the_same(tmp_path: Path, tiny_agent: Agent) -> None:
    runs = expert_runs(2)
    quick = {"agent": tiny_agent, "completions": 1, "sampling": Sampling(temperature=1.0, max_new_tokens=2)}
    value(tmp_path / "whole", runs, **quick)
    partial = value(tmp_path / "job", runs, after=1, **quick)
    assert partial == JobResult(report={"valued": 1, "planned": 2})
    assert len(scores(tmp_path / "job")) == 1
    assert value(tmp_path / "job", runs, **quick).n == 2
    assert scores(tmp_path / "job") == scores(tmp_path / "whole")


def test_what_cannot_be_carried_out_again_is_unscored_with_the_reason(tmp_path: Path) -> None:
    run = expert_runs(1)[0]
    first = next(i for i, step in enumerate(run.steps) if step.actions)
    changed = run.steps[first].model_copy(update={"observations": (Observation(content="Empty shelf."),)})
    idle = Step(actor=Actor.AGENT, extra={"acted": False})
    changes: list[dict[str, Any]] = [
        {"steps": (*run.steps[:first], changed, *run.steps[first + 1 :])},
        {"task": run.task.model_copy(update={"environment": "shop"})},
        {"steps": (*run.steps[:first], idle)},
    ]
    runs = [run.model_copy(update={"id": f"traj-{i}", **change}) for i, change in enumerate(changes)]
    with pytest.raises(Unavailable, match="expected runs that can be scored, got 3 without a value: "):
        value(tmp_path / "job", runs)
    reasons = [score.reason or "" for score in scores(tmp_path / "job")]
    assert "Empty shelf." in reasons[0]
    assert "recorded in shop" in reasons[1]
    assert "never acted" in reasons[2]
    assert all(score.steps == () and score.value is None for score in scores(tmp_path / "job"))
