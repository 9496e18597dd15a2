"""What a picture shows of a training, an evolution and an evaluation."""

from __future__ import annotations

from typing import Any

import pytest

from evaluation.test_comparison import evaluated
from quintain.evaluation.reports.figures import line
from quintain.records.agent import Agent, Agreement, ModelRef
from quintain.records.evolve import EvolveConfig
from quintain.records.hyperparameters import DPOConfig, SFTConfig
from quintain.records.job import EvolveSpec, JobResult, JobSpec, JobStatus, TrainSpec
from quintain.records.job_events import JobEvent
from quintain.store.job_spans import Span
from quintain.tools.jobs.figures import figure_of, figure_text
from quintain.tools.services import Services
from store_shelves import job

BASE = Agent(name="base", model=ModelRef(source="folder", path="/m"))


def reported(services: Services, spec: JobSpec, *events: dict[str, Any], report: dict[str, Any] | None = None) -> str:
    """A finished job with these events; `attempt` 1 where an event has none."""
    now = services.clock()
    job(services.store, "job-1", spec, JobStatus.QUEUED, now=now)
    attempts = sorted({event.get("attempt", 1) for event in events})
    for number in attempts:
        services.store.jobs.begin_attempt("job-1", number - 1, number, now)
    rows = [JobEvent(**{"attempt": 1, "seq": n, "time": now, **event}) for n, event in enumerate(events)]
    services.store.jobs.ingest_spans([Span("job-1", "events.jsonl", 0, 1, rows)], now)
    result = JobResult(agent="agent:pupil@1", report=report or {})
    services.store.jobs.finish("job-1", attempts[-1], JobStatus.SUCCEEDED, now, result=result)
    return "job-1"


def step(n: int, attempt: int = 1, **metrics: float) -> dict[str, Any]:
    return {"type": "progress", "step": n, "total_steps": 9, "metrics": metrics, "attempt": attempt}


def phase(stage: str) -> dict[str, Any]:
    return {"type": "phase", "name": f"{stage} working"}


def trained(**more: Any) -> TrainSpec:
    given = {"agent": BASE, "name": "pupil", "output_dir": "/o", "dataset_id": "ds-1", **more}
    return TrainSpec.model_validate(given)


def test_a_line_is_broken_where_steps_have_no_value_and_smooth_where_it_has_enough_points() -> None:
    """Steps 1 to 10, none from 11 to 19, then 20 to 29."""
    steps = [*range(1, 11), *range(20, 30)]
    found = line({n: float(n % 2) for n in steps}, "loss")
    assert found["x"][9:12] == [10, 15, 20]
    assert found["y"][9:12] == [0.0, None, 0.0]
    smooth = [value for value in found["smooth"] if value is not None]
    assert max(smooth[8:]) - min(smooth[8:]) < 0.7, "the raw values swing by 1"
    assert "smooth" not in line({1: 0.5, 2: 0.4}, "loss")


def test_a_training_shows_held_out_success_before_and_after_first_and_marks_its_resumption(services: Services) -> None:
    services.store.agents.add(BASE, services.clock())
    for name, outcomes in (("base", "0001"), ("pupil", "0111")):
        services.store.evaluations.add(evaluated(name, outcomes), services.clock())
    spec = trained(agent=BASE.model_copy(update={"id": "agent:base@1"}), method="dpo", config=DPOConfig())
    events = (step(1, reward_margin=0.0, loss=0.7), step(2, reward_margin=0.3, loss=0.5), step(3, 2, reward_margin=0.6))
    figure = figure_of(services, reported(services, spec, *events))
    assert [panel["title"] for panel in figure["panels"]] == ["Success on held-out tasks", "Preference margin", "Loss"]
    (success,) = figure["panels"][0]["lines"]
    assert (success["x"], success["y"], success["style"]) == ([0, 3], [0.25, 0.75], "measured")
    assert success["low"][1] == pytest.approx(0.194, abs=0.001), "Clopper and Pearson for 3 of 4"
    assert [panel["marks"] for panel in figure["panels"]] == [[{"x": 3, "label": "resumed"}]] * 3
    assert figure["title"] == "Direct preference optimisation: base → pupil, on ds-1"


def test_a_training_without_an_evaluation_says_so_and_a_policy_gradient_shows_no_loss(services: Services) -> None:
    rows = [step(n, loss=0.1 * n, success_rate=0.2 * n, mean_reward=0.3 * n, kl=0.01 * n) for n in (1, 2, 3)]
    spec = trained(dataset_id=None, environment="quintain/inventory", method="grpo", config={"method": "grpo"})
    figure = figure_of(services, reported(services, spec, *rows))
    titles = [panel["title"] for panel in figure["panels"]]
    assert titles == ["Success on training tasks", "Reward while acting", "Distance from the start model"]
    assert "not evaluated on held-out tasks yet" in figure["subtitle"]


def test_a_training_that_measures_itself_shows_its_curve_with_the_interval_first(services: Services) -> None:
    bounds = {"held_out_success_low": 0.1, "held_out_success_high": 0.9}
    rows = [step(n, loss=0.1 * n, success_rate=0.2 * n) for n in (1, 2, 3)]
    rows += [step(n, held_out_success=0.2 * n, **bounds) for n in (0, 2, 3)]
    spec = trained(dataset_id=None, environment="quintain/inventory", method="grpo", config={"method": "grpo"})
    figure = figure_of(services, reported(services, spec, *rows))
    assert figure["panels"][0]["title"] == "Success on held-out tasks"
    measured, acting = figure["panels"][0]["lines"]
    assert [measured[name][0] for name in ("x", "y", "low", "high")] == [0, 0.0, 0.1, 0.9]
    assert [measured[name][-1] for name in ("x", "y", "low", "high")] == [3, pytest.approx(0.6), 0.1, 0.9]
    assert acting["label"] == "training tasks, as it acts"
    assert "not evaluated" not in figure["subtitle"]


def test_marks_without_pairs_show_good_and_bad_runs_as_unbroken_lines_and_no_kl_on_rows(services: Services) -> None:
    """Steps of good runs alone or of bad ones, and a hole of the whole run from 5 to 20."""
    steps = [*range(1, 6), *range(20, 25)]
    rows = [step(n, **{"rejected_reward" if n % 3 else "chosen_reward": 0.1 * n}, loss=1.0 / n, kl=n) for n in steps]
    figure = figure_of(services, reported(services, trained(method="kto", config={"method": "kto"}), *rows))
    assert [panel["title"] for panel in figure["panels"]] == ["Implicit reward of good and bad runs", "Loss"]
    good, bad = figure["panels"][0]["lines"]
    assert (good["label"], good["x"]) == ("good runs", [3, 21, 24])
    assert [x for x, y in zip(bad["x"], bad["y"], strict=True) if y is None] == [12.5]


def test_a_reward_model_shows_the_order_of_pairs_with_its_held_out_accuracy(services: Services) -> None:
    found = Agreement(of="pairs", right=9, n=10, rate=0.9, ci_low=0.555, ci_high=0.997)
    services.store.agents.add(BASE.model_copy(update={"name": "pupil", "held_out": found}), services.clock())
    rows = [step(n, reward_accuracy=0.3 * n, validation_reward_accuracy=0.2 * n, loss=1.0 / n) for n in (1, 2, 3)]
    figure = figure_of(services, reported(services, trained(method="reward", config={"method": "reward"}), *rows))
    assert [panel["title"] for panel in figure["panels"]] == ["Pairs in the right order", "Loss"]
    assert [one["label"] for one in figure["panels"][0]["lines"]] == ["held-out pairs", "training pairs"]
    assert figure["subtitle"].endswith("9 of 10 held-out pairs (90.0%, 95 % 55.5% to 99.7%)")
    assert "not evaluated" not in figure["subtitle"]


def test_an_evolution_is_drawn_by_round_and_its_loss_over_the_steps_that_trained(services: Services) -> None:
    """Steps 1 to 3 and 6 to 9 play episodes; steps 4, 5 and 10 train."""
    rate = {"success_rate": 0.3, "success_rate_low": 0.2, "success_rate_high": 0.4}
    better = {"success_rate": 0.8, "success_rate_low": 0.7, "success_rate_high": 0.9}
    events = [
        *(phase("00-start"), step(1), step(2, **rate)),
        *(phase("01-explore"), step(3), phase("01-train"), step(4, loss=2.0), step(5, loss=1.0)),
        *(phase("01-evaluate"), step(7, **better)),
        *(phase("02-explore"), step(9), phase("02-train"), step(10, loss=1.5), phase("02-evaluate"), step(12, **rate)),
    ]
    spec = EvolveSpec(
        name="pupil",
        agent=BASE,
        environment="quintain/inventory",
        config=EvolveConfig(iterations=2),
        training=SFTConfig(),
        output_dir="/o",
        datasets_dir="/d",
    )
    figure = figure_of(services, reported(services, spec, *events, report={"result_round": 1}))
    success, loss = figure["panels"]
    (chosen,) = success["lines"]
    assert (chosen["x"], chosen["y"], chosen["high"]) == ([0, 1, 2], [0.3, 0.8, 0.3], [0.4, 0.9, 0.4])
    assert chosen["best"] == {"x": 1, "y": 0.8, "label": "best round: 1"}
    assert [tick["label"] for tick in success["ticks"]] == ["start", "round 1", "round 2"]
    assert (loss["lines"][0]["x"], loss["lines"][0]["y"]) == ([1, 2, 2.5, 3], [2.0, 1.0, None, 1.5])
    assert loss["marks"] == [{"x": 1, "label": "round 1"}, {"x": 3, "label": "round 2"}]
    assert "round 2 at step 3" in figure_text(figure)


def test_an_evaluation_shows_the_agents_on_the_same_tasks_and_no_others(services: Services) -> None:
    for name, outcomes, suite in (("a", "0111", "one"), ("b", "0001", "one"), ("c", "1111", "two")):
        services.store.evaluations.add(evaluated(name, outcomes, suite=suite), services.clock())
    shown = evaluated("a", "0111", suite="one")
    figure = figure_of(services, shown.id)
    bars = figure["panels"][0]["bars"]
    assert [(bar["label"], bar["value"], bar["strong"]) for bar in bars] == [
        ("b@1 (n = 4)", 0.25, False),
        ("a@1 (n = 4)", 0.75, True),
    ]
