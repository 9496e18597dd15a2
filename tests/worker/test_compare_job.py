"""The job of a sequential comparison: it stops when decided, and a job that died goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.evaluation import Comparison, Evaluation
from quintain.records.jobs.job import CompareSpec, EvaluateSpec
from quintain.worker.job_kinds import compare
from trainers.runs import Killed
from worker.job_folder import Stopping, outputs, resuming, trajectories

EXPERT = Agent(id="expert", name="expert", model=ModelRef(source="expert", path="expert"))


def spec_of(a: Agent, b: Agent, repeats: int = 1) -> CompareSpec:
    sides = [
        EvaluateSpec(
            agent=agent,
            environment="quintain/inventory",
            n_tasks=40,
            repeats=repeats,
            sampling=Sampling(max_new_tokens=2),
            purpose="sequential",
        )
        for agent in (a, b)
    ]
    return CompareSpec(comparison_id="cmp-1", a=sides[0], b=sides[1], tasks_per_look=4)


def test_a_comparison_stops_when_it_is_sure_and_resumes_after_its_death(tmp_path: Path, tiny_agent: Agent) -> None:
    """The expert solves all tasks and the other none, so the e-value is 14.4 after 6 tasks, and 26.8 after 7: two looks of 4."""
    spec, folder = spec_of(tiny_agent, EXPERT), tmp_path / "job-1"
    with pytest.raises(Killed):
        compare.run(spec, folder, Stopping(folder, kill_at=4))
    assert len(trajectories(folder)) == 8
    other = resuming(tmp_path / "job-2", spec, "job-1").path
    continued = compare.run(spec, other, Stopping(other))
    assert continued.report["taken_over"]["episodes"] == len(outputs(other, "taken_over")) == 8
    assert (continued.trajectories.count, len(trajectories(other))) == (16, 16)
    result = compare.run(spec, folder, Stopping(folder))
    runs = trajectories(folder)
    assert len({run.id for run in runs}) == len(runs) == 16
    (comparison,) = map(Comparison.model_validate, outputs(folder, "comparison"))
    assert continued.report["sequential"] == result.report["sequential"]
    assert result.comparison_id == comparison.id == "cmp-1"
    test = comparison.sequential
    assert test is not None
    assert (test.decision, test.n_tasks, test.n_planned, test.difference) == ("difference", 8, 40, 1.0)
    assert [row.agent for row in comparison.leaderboard] == ["expert", "agent:tiny@1"]
    evaluations = [Evaluation.model_validate(record) for record in outputs(folder, "evaluation")]
    assert [item.id for item in evaluations] == result.report["evaluations"]
    assert {item.purpose for item in evaluations} == {"sequential"}
    assert [item.rate.value for item in evaluations] == [0.0, 1.0]


def test_a_comparison_of_equal_agents_ends_without_a_difference(tmp_path: Path) -> None:
    other = EXPERT.model_copy(update={"id": "agent:other@1", "name": "other"})
    result = compare.run(spec_of(EXPERT, other, repeats=2), tmp_path / "job-1", Stopping(tmp_path / "job-1"))
    assert result.report["sequential"]["decision"] in {"hopeless", "exhausted"}
    assert result.report["sequential"]["difference"] == 0
