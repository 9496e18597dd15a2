"""What a picture shows of a job, an evaluation and a comparison, and the pages in the home folder's `reports/`."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from evaluation.test_comparison import evaluated
from quintain.errors import InvalidInput, NotFound, Unavailable
from quintain.evaluation.reports.figures import Figure, Panel, line
from quintain.records.agent import Agent, Agreement, ModelRef
from quintain.records.hyperparameters.methods import DPOConfig, SFTConfig
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.jobs.job import EvolveSpec, JobResult, JobSpec, JobStatus, RolloutSpec, SelftestSpec, TrainSpec
from quintain.records.jobs.job_events import JobEvent
from quintain.store.job_spans import Span
from quintain.tools.evaluation.comparison import compare_agents, comparison_picture
from quintain.tools.jobs import pictures
from quintain.tools.jobs.curves import metric_curves, thin_curves
from quintain.tools.jobs.dashboard import show_training_dashboard
from quintain.tools.jobs.figures import figure_of, figure_text
from quintain.tools.jobs.plots import plot_job, save_report
from quintain.tools.results import Curve
from quintain.tools.services import Services
from quintain.tools.web_address import page_announced
from quintain.worker.pictures.draw import draw
from quintain.worker.pictures.panels import draw_panels
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


def measured(
    services: Services,
    job_id: str,
    *rows: dict[str, float],
    first: int = 1,
    resumed_from: str | None = None,
    spec: JobSpec | None = None,
) -> str:
    """A job that reported these metrics, one step each."""
    now = services.clock()
    job(services.store, job_id, spec or SelftestSpec(), JobStatus.RUNNING, now=now, resumed_from=resumed_from)
    events = [
        JobEvent(attempt=1, seq=n, time=now, type="progress", step=n, total_steps=len(rows), metrics=row)
        for n, row in enumerate(rows, first)
    ]
    services.store.jobs.ingest_spans([Span(job_id, "events.jsonl", 0, 1, events)], now)
    return job_id


def test_the_text_of_a_comparison_has_the_success_along_each_training() -> None:
    points = [{"name": "base@1", "value": 0.3, "x": 0}, {"name": "clerk@1", "value": 0.875, "x": 1}]
    panel = Panel(title="Success along the training", curves=[{"label": "clerk", "points": points}])
    assert figure_text(Figure(title="t", panels=[panel])).endswith("  clerk: base@1 30.0%, clerk@1 87.5%")


def test_a_rate_is_drawn_with_its_interval_where_the_job_tells_both_bounds(services: Services) -> None:
    rows = [
        {"success_rate": rate, "success_rate_low": rate - 0.1, "success_rate_high": rate + 0.1} for rate in (0.2, 0.6)
    ]
    whole = plot_job(services, measured(services, "job-1", *rows))
    plain = plot_job(services, measured(services, "job-2", *({"success_rate": row["success_rate"]} for row in rows)))
    assert whole.png.startswith(b"\x89PNG")
    assert len(whole.png) > len(plain.png), "the band is more to compress"
    assert "success_rate: 0.2 -> 0.6  ▁█" in whole.text
    assert "success_rate_low" not in whole.text, "bounds are no curves of their own"
    with pytest.raises(InvalidInput, match="job-2 has no metric loss; it has: success_rate"):
        plot_job(services, "job-2", ["loss"])


def test_the_lowest_validation_loss_is_marked_from_the_start_on(services: Services) -> None:
    losses = ({"validation_loss": 2.0}, {"validation_loss": 0.5, "loss": 1.0}, {"validation_loss": 0.75, "loss": 0.5})
    job_id = measured(services, "job-1", *losses)
    curves = metric_curves(services, job_id)
    assert curves["validation_loss"].best_step == 2
    assert curves["loss"].best_step is None
    assert plot_job(services, job_id, ["loss", "validation_loss"]).text.splitlines()[-2].endswith("best 0.5 at 2")


def test_a_resumed_job_has_the_steps_of_the_one_before_up_to_its_checkpoint(services: Services) -> None:
    """Steps 1 to 4, then from the checkpoint of step 2 on steps 3 and 4 again."""
    measured(services, "job-1", *({"loss": float(n)} for n in range(1, 5)))
    measured(services, "job-2", {"loss": 30.0}, {"loss": 40.0}, first=3, resumed_from="job-1")
    assert metric_curves(services, "job-2")["loss"] == Curve(steps=(1, 2, 3, 4), values=(1.0, 2.0, 30.0, 40.0))
    assert metric_curves(services, "job-1")["loss"].values == (1.0, 2.0, 3.0, 4.0)


def test_a_rollout_job_is_drawn_as_its_success_rate_and_has_no_running_mean(services: Services) -> None:
    """3 of 4 by Clopper and Pearson: 19.4 % to 99.4 %."""
    agent = Agent(id="agent:a@1", name="a", model=ModelRef(source="starter", path="starter"))
    spec = RolloutSpec(agent=agent, environment="quintain/inventory", n_tasks=4)
    job_id = measured(services, "job-1", {}, spec=spec)
    with pytest.raises(InvalidInput, match="none yet"):
        plot_job(services, job_id)
    result = JobResult(n=4, success_rate=0.75)
    services.store.jobs.finish(job_id, 1, JobStatus.SUCCEEDED, services.clock(), result=result)
    picture = plot_job(services, job_id)
    assert picture.text.splitlines()[-2] == "  all (n = 4): 75.0% [19.4%, 99.4%]"
    assert picture.text.endswith("Saved in the home folder: reports/job-1.html, reports/job-1.png")
    assert (services.settings.reports_dir / "job-1.png").read_bytes() == picture.png
    assert picture.text.startswith("rollouts of a in quintain/inventory: 4 tasks, train\njob-1, succeeded")


def test_ticks_of_steps_are_whole_and_markup_in_names_is_plain() -> None:
    panels = [
        {
            "title": "Loss",
            "lines": [{"x": [0, 1, 2], "y": [3.0, 1.0, 2.0], "best": {"x": 1, "y": 1.0, "label": "best step 1"}}],
        }
    ]
    canvas = draw_panels(panels, "sft a -> $x on b$")
    assert [tick for tick in canvas.axes[0].get_xticks() if tick != int(tick)] == []
    assert [text.get_text() for text in canvas.axes[0].get_legend().get_texts()] == ["best step 1"]
    canvas.canvas.draw()


def test_a_figure_in_which_nothing_was_measured_is_still_a_picture() -> None:
    assert draw({"title": "a_b^2 of $x", "panels": []}).startswith(b"\x89PNG")


@pytest.fixture
def two_agents(services: Services) -> Services:
    """Agents `a` and `b`, which solved 1 and 3 of 4 tasks."""
    for name, outcomes in (("a", "0001"), ("b", "0111")):
        services.store.agents.add(Agent(name=name, model=ModelRef(source="folder", path="/m")), services.clock())
        services.store.evaluations.add(evaluated(name, outcomes), services.clock())
    return services


@pytest.mark.usefixtures("two_agents")
def test_a_comparison_saves_its_picture_and_page_once_and_names_them(services: Services) -> None:
    found = compare_agents(services, ["a", "b"])
    page, picture = (f"reports/{found.comparison_id}.{ending}" for ending in ("html", "png"))
    assert f"Saved in the home folder: {page}, {picture}." in found.next_step
    png = (services.settings.home / picture).read_bytes()
    assert png.startswith(b"\x89PNG")
    assert "b - a" in (services.settings.home / page).read_text(encoding="utf-8")
    (services.settings.home / picture).write_bytes(b"kept")
    again = compare_agents(services, [found.comparison_id], show=True)
    assert again.png == b"kept", "a stored comparison never changes, so it is drawn once"


@pytest.mark.usefixtures("two_agents")
def test_a_picture_that_cannot_be_drawn_costs_the_picture_and_not_the_verdict(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(command: list[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, 60)

    with monkeypatch.context() as patch:
        patch.setattr(pictures, "subprocess", SimpleNamespace(**{**vars(subprocess), "run": late}))
        found = compare_agents(services, ["a", "b"])
        assert (
            "No picture is saved: expected a picture, got none: the process that draws it took longer"
            in found.next_step
        )
        with pytest.raises(Unavailable, match="call again later"):
            comparison_picture(services, found.comparison_id)
    assert len(found.comparisons) == 1
    assert comparison_picture(services, found.comparison_id).startswith(b"\x89PNG"), "the next call draws it"


def test_a_dashboard_shows_the_newest_training_and_where_it_is_live(services: Services) -> None:
    with pytest.raises(NotFound, match=r"expected a training, got none; begin one with start_training\("):
        show_training_dashboard(services)
    reported(services, trained(), step(1, loss=1.0), step(2, loss=0.5))
    with page_announced(services.settings.home, "http://127.0.0.1:8000"):
        shown = show_training_dashboard(services)
    assert shown.text.startswith("sft base -> pupil on ds-1: succeeded, step 2 of 9")
    assert "Live: http://127.0.0.1:8000/jobs/job-1" in shown.text
    assert shown.figure is not None
    assert "Live:" not in show_training_dashboard(services, "job-1").text


def test_a_folder_that_cannot_be_written_costs_the_files_and_not_the_answer(services: Services) -> None:
    services.settings.reports_dir.write_text("a file in the way", encoding="utf-8")
    picture = plot_job(services, reported(services, trained(), step(1, loss=1.0), step(2, loss=0.5)))
    assert picture.png.startswith(b"\x89PNG")
    assert picture.text.endswith("Not saved in the home folder's reports/: File exists")


def test_a_report_to_send_has_the_settings_and_no_folder_of_this_machine(services: Services) -> None:
    model = ModelRef(source="folder", path="/secret/place/critic")
    critic = Agent(id="agent:critic@1", name="critic", model=model)
    spec = trained(
        dataset_id=None,
        environment="quintain/inventory",
        method="grpo",
        config={"method": "grpo", "reward_model": "critic", "rollouts": 7},
        reward_agent=critic,
    )
    (page, _) = save_report(
        services, reported(services, spec, step(1, loss=1.0), report={"path": "/secret/place/x.gguf"})
    )
    text = (services.settings.home / page).read_text(encoding="utf-8")
    assert "/secret" not in text
    assert "agent:critic@1" in text
    assert "…/x.gguf" in text
    assert "<td>rollouts</td><td>7</td>" in text


@pytest.mark.usefixtures("two_agents")
def test_an_agent_has_a_page_too(services: Services) -> None:
    assert save_report(services, "agent:a@1") == ("reports/agent-a@1.html",)
    assert "25.0% [0.6%, 80.6%]" in (services.settings.reports_dir / "agent-a@1.html").read_text(encoding="utf-8")


def test_curves_of_an_answer_are_thinned_together_and_keep_their_ends_and_the_best_step() -> None:
    steps = tuple(range(1000))
    curve = Curve(steps=steps, values=tuple(1 / 3 + step for step in steps), best_step=501)
    (alone,) = thin_curves({"validation_loss": curve}).values()
    assert (alone.steps[0], alone.steps[-1], len(alone.steps)) == (0, 999, 201)
    assert alone.values[alone.steps.index(501)] == 501.333
    many = thin_curves({f"m{n}": curve.model_copy(update={"best_step": None}) for n in range(20)})
    assert {len(one.steps) for one in many.values()} == {100}
