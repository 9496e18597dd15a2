from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from evaluation.test_failures import call, run, say
from quintain.evaluation.reference_metrics import forbidden_calls, reference_metrics
from quintain.evaluation.suites import Suite
from quintain.evaluation.summary import summarize
from quintain.records.evaluation import EpisodeResult, Evaluation
from quintain.records.jobs.job import EvaluateSpec


def test_the_tools_are_compared_as_sets() -> None:
    """look and fly called, look and search wanted: 1 hit, precision 1/2, recall 1/2, F1 1/2."""
    assert reference_metrics(run(call())) == {}
    found = reference_metrics(run(call(), call("fly"), target_tools=["look", "search"]))
    assert found == {"tool_selection_f1": 0.5, "end_to_end": 0.0, "timing": 1.0}
    solved = reference_metrics(run(call(), status="success", target_tools=["look"]))
    assert (solved["tool_selection_f1"], solved["end_to_end"]) == (1.0, 1.0)
    skipped = reference_metrics(run(say("42"), status="success", target_tools=["look"]))
    assert (skipped["tool_selection_f1"], skipped["end_to_end"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("plan", "success"), [(["look", "fly"], 1.0), (["fly", "look"], 0.0), (["look", "fly", "look"], 0.0)]
)
def test_a_plan_is_met_by_exactly_its_calls_in_order(plan: list[str], success: float) -> None:
    assert reference_metrics(run(call(), call("fly"), plan=plan))["plan_success"] == success


def test_steps_are_measured_against_the_least_for_solved_runs() -> None:
    """Three calls where two would do: 2/3; fewer than the reference is no better than it."""
    three = (call(), call("fly"), call(answer="c"))
    assert reference_metrics(run(*three, status="success", optimal_steps=2))["step_efficiency"] == pytest.approx(2 / 3)
    assert reference_metrics(run(*three, status="success", optimal_steps=9))["step_efficiency"] == 1.0
    assert "step_efficiency" not in reference_metrics(run(*three, optimal_steps=2))


def test_a_call_made_again_for_the_same_answer_is_badly_timed() -> None:
    """Of look, fly, look the third tells nothing new: 2/3. Asked again for another answer, it was worth asking."""
    assert reference_metrics(run(call(), call("fly"), call(), plan=["look"]))["timing"] == pytest.approx(2 / 3)
    polled = (call(answer="wait", args={}), call(answer="done", args={}))
    assert reference_metrics(run(*polled, plan=["look"]))["timing"] == 1.0


@pytest.mark.parametrize(
    ("metadata", "also", "n"),
    [
        ({}, (), None),
        ({"forbidden": ["fly"]}, (), 1),
        ({"forbidden": ["swim"]}, (), 0),
        ({"forbidden": "fly"}, (), None),
        ({"forbidden": ["fly"]}, ("look",), 3),
        ({}, ("look",), 2),
    ],
)
def test_forbidden_calls_are_those_of_the_task_and_of_the_request(
    metadata: dict[str, Any], also: tuple[str, ...], n: int | None
) -> None:
    assert forbidden_calls(run(call(), call("fly"), call(), **metadata), also) == n


def of(results: list[EpisodeResult], repeats: int = 1) -> Any:
    spec = EvaluateSpec(agent={"name": "a", "model": {"source": "folder", "path": "/m"}}, environment="e", n_tasks=9)
    spec = spec.model_copy(update={"repeats": repeats})
    return summarize(spec, Suite((), "suite"), results, job_id="job-1")


def test_a_summary_counts_failures_with_examples_and_forbidden_episodes() -> None:
    """Four of five episodes fail; in two of the four in which something is forbidden it was done, 5 of 12 calls."""
    whys = ["loop", "timeout", "loop", "loop", None]
    forbidden = [2, 0, 3, 0, None]
    results = [
        EpisodeResult(
            task_id=f"t{i}",
            status="success" if why is None else "failure",
            failure=why,
            calls=3,
            forbidden=done,
            trajectory_id=f"traj-{i}",
        )
        for i, (why, done) in enumerate(zip(whys, forbidden, strict=True))
    ]
    evaluation = of(results)
    assert list(evaluation.failures) == ["loop", "timeout"]
    assert (evaluation.failures["loop"].n, evaluation.failures["loop"].examples) == (3, ("traj-0", "traj-2", "traj-3"))
    part = evaluation.forbidden
    assert (part.forbidden_calls, part.calls, part.episodes.successes, part.episodes.n) == (5, 12, 2, 4)
    assert of([results[4]]).forbidden is None


def test_metrics_are_averaged_over_the_repeats_of_a_task_first() -> None:
    """Task a: 1 and 0, task b: 1, so 0.75 and not 2/3; costs add up, and are unknown where one is."""
    measured = [("a", 0, 1.0), ("a", 1, 0.0), ("b", 0, 1.0)]
    results = [
        EpisodeResult(task_id=t, repeat=r, status="success", reward=1.0, metrics={"mrr": v, "cost_usd": 0.5})
        for t, r, v in measured
    ]
    evaluation = of(results, 2)
    assert evaluation.metrics["mrr"].value == 0.75
    assert evaluation.metrics["mrr"].n == 2
    assert "cost_usd" not in evaluation.metrics
    assert evaluation.cost_usd == pytest.approx(1.5)
    results[0] = results[0].model_copy(update={"metrics": {}})
    assert of(results, 2).cost_usd is None


def test_the_interval_of_a_share_lies_in_its_range_and_an_unknown_spread_is_not_none() -> None:
    """Six of six: as a success rate, 0.541 to 1. A t interval has no width there, and of three in six ends at -0.075."""

    def measured(shares: Sequence[float]) -> Evaluation:
        found: Evaluation = of(
            [
                EpisodeResult(
                    task_id=f"t{i}", repeat=0, status="success", reward=1.0, metrics={"end_to_end": v, "mrr": v}
                )
                for i, v in enumerate(shares)
            ]
        )
        return found

    every = measured([1.0] * 6).metrics
    assert every["end_to_end"].ci_low == pytest.approx(0.5407, abs=1e-4)
    assert every["end_to_end"].ci_high == 1.0
    assert (every["mrr"].value, every["mrr"].ci_low) == (1.0, None), (
        "the range of an environment's own metric is unknown"
    )
    half = measured([1.0, 0.0] * 3).metrics["end_to_end"]
    assert half.ci_low is not None
    assert half.ci_high is not None
    assert 0 < half.ci_low < half.value < half.ci_high < 1
