"""Pictures of a job's curves."""

from __future__ import annotations

import pytest

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, ModelRef
from quintain.records.job import JobResult, JobSpec, JobStatus, RolloutSpec, SelftestSpec
from quintain.records.job_events import JobEvent
from quintain.store.job_spans import Span
from quintain.tools.jobs.curves import metric_curves, thin_curves
from quintain.tools.jobs.plots import plot_job
from quintain.tools.results import Curve
from quintain.tools.services import Services
from quintain.worker.pictures.draw import draw
from quintain.worker.pictures.panels import draw_panels
from store_shelves import job


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


def test_curves_of_an_answer_are_thinned_together_and_keep_their_ends_and_the_best_step() -> None:
    steps = tuple(range(1000))
    curve = Curve(steps=steps, values=tuple(1 / 3 + step for step in steps), best_step=501)
    (alone,) = thin_curves({"validation_loss": curve}).values()
    assert (alone.steps[0], alone.steps[-1], len(alone.steps)) == (0, 999, 201)
    assert alone.values[alone.steps.index(501)] == 501.333
    many = thin_curves({f"m{n}": curve.model_copy(update={"best_step": None}) for n in range(20)})
    assert {len(one.steps) for one in many.values()} == {100}
