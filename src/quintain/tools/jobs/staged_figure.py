"""Figures of jobs in stages: evolutions by round, recipes by stage. Steps at which nothing was trained are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quintain.evaluation.reports.figures import Figure, Line, Mark, Panel, Point, line, spans_decades
from quintain.records.evaluation import Evaluation
from quintain.records.jobs.job import EvolveSpec, Job, RecipeSpec
from quintain.records.record import counted
from quintain.tools.jobs.curves import StepReport, step_reports
from quintain.tools.jobs.training_figure import measured_line, subtitle
from quintain.tools.services import Services, find

_MOST_TRAININGS = 5
"""Trainings of a recipe that are drawn, the first ones."""


def evolution_figure(services: Services, job: Job) -> Figure:
    """Return the figure of an evolution: success by round, and the loss of each round's training."""
    assert isinstance(job.spec, EvolveSpec)
    reports = step_reports(services, job.id)
    report = job.result.report if job.result is not None else {}
    panels = [panel for panel in (_success_by_round(services, reports, report), _loss(reports)) if panel is not None]
    spec, note = job.spec, ""
    if (final := report.get("final")) and final.get("gain") is not None:
        note = (
            f"new tasks: {final['before']:.0%} at the start, {final['after']:.0%} now ({final['gain']:+.0%}, "
            f"95 % interval {final['ci_low']:+.0%} to {final['ci_high']:+.0%})"
        )
    rounds = counted(spec.config.iterations, "round")
    title = f"Self-improvement: {spec.agent.name} \N{RIGHTWARDS ARROW} {spec.name}, {rounds} in {spec.environment}"
    return Figure(title=title, subtitle=subtitle(job, note), panels=panels)


def recipe_figure(services: Services, job: Job) -> Figure:
    """Return the figure of a recipe: success of each evaluated stage, and the loss of each training."""
    assert isinstance(job.spec, RecipeSpec)
    reports = step_reports(services, job.id)
    places, _ = _training_steps(reports)
    stages = job.result.report.get("stages", []) if job.result is not None else []
    reached, measured = 0, list[tuple[float, Evaluation]]()
    ticks = list[Mark]()
    for stage in stages:
        reached += stage["steps"] if stage["kind"] != "evaluate" else 0
        if stage.get("evaluation_id") and (found := find(services.store.evaluations.get, stage["evaluation_id"])):
            measured.append((reached, found))
            ticks.append(Mark(x=reached, label=f"{stage['stage']}\n(step {reached})"))
    panels = _losses_by_stage(reports)
    if measured and places:
        panel = Panel(
            title="Success on held-out tasks",
            xlabel="stage",
            ylabel="share of tasks solved",
            format="percent",
            lines=[measured_line(measured, "held-out tasks")],
            ticks=ticks,
        )
        panels.insert(0, panel)
    names = ", ".join(stage.label for stage in job.spec.stages)
    title = f"Recipe: {job.spec.agent.name} \N{RIGHTWARDS ARROW} {job.spec.name} by {names}"
    return Figure(title=title, subtitle=subtitle(job), panels=panels)


def _success_by_round(services: Services, reports: Sequence[StepReport], report: dict[str, Any]) -> Panel | None:
    """Return success on the selection tasks and while exploring, and on new tasks for start and result."""
    values: dict[str, dict[int, float]] = {"success_rate": {}, "success_rate_low": {}, "success_rate_high": {}}
    for one in reports:
        for name, by_round in values.items():
            if name in one.metrics:
                by_round[_round(one.stage)] = one.metrics[name]
    if not values["success_rate"]:
        return None
    bounds = (values["success_rate_low"], values["success_rate_high"])
    chosen = line(values["success_rate"], "tasks that choose the round", smooth=False, bounds=bounds)
    chosen["style"] = "measured"
    lines: list[Line] = [chosen]
    best = report.get("result_round", 0)
    if best:
        chosen["best"] = Point(x=best, y=values["success_rate"][best], label=f"best round: {best}")
    lines += _new_tasks(services, report, best)
    explored = {
        one["round"] - 1: one["explored_success"] for one in report.get("rounds", ()) if one.get("explored_success")
    }
    if explored:
        lines.append(line(explored, "training tasks, while exploring", smooth=False))
    last = max(values["success_rate"])
    ticks = [Mark(x=n, label=f"round {n}" if n else "start") for n in range(last + 1)]
    return Panel(
        title="Success by round",
        xlabel="agent after the round",
        ylabel="share of tasks solved",
        format="percent",
        lines=lines,
        ticks=ticks,
    )


def _new_tasks(services: Services, report: dict[str, Any], best: int) -> list[Line]:
    """Return start and result on the tasks that chose no round, if both were measured."""
    ids = report.get("final", {}).get("evaluations", ())
    found = [find(services.store.evaluations.get, one) for one in ids]
    if not best or len(found) != 2 or found[0] is None or found[1] is None:
        return []
    # Beside the points of the rounds, so that the intervals do not cover each other.
    return [measured_line([(0.12, found[0]), (best + 0.12, found[1])], "new tasks, start and result")]


def _loss(reports: Sequence[StepReport]) -> Panel | None:
    places, marks = _training_steps(reports)
    points = {places[one.step]: one.metrics["loss"] for one in reports if "loss" in one.metrics and one.step in places}
    if not points:
        return None
    breaks = [int(mark["x"]) for mark in marks]
    lines: list[Line] = [line(points, "training rows", breaks=breaks)]
    panel = Panel(
        title="Loss while training", xlabel="optimizer step, all trainings", ylabel="loss", lines=lines, marks=marks
    )
    if spans_decades(lines):
        panel["log"] = True
    return panel


def _losses_by_stage(reports: Sequence[StepReport]) -> list[Panel]:
    """Return a panel for each training of a recipe: losses of different methods do not compare."""
    panels = []
    for stage in dict.fromkeys(one.stage for one in reports if "loss" in one.metrics):
        panel = _loss([one for one in reports if one.stage == stage])
        if panel is not None:
            name = _stage_name(stage)
            panels.append(panel | Panel(title=f"Loss of {name}", xlabel=f"optimizer step of {name}", marks=[]))
    return panels[:_MOST_TRAININGS]


def _training_steps(reports: Sequence[StepReport]) -> tuple[dict[int, int], list[Mark]]:
    """Number the steps that trained from 1 on; return them by step of the job, and the start of each stage."""
    places, marks, stage = dict[int, int](), list[Mark](), None
    for one in reports:
        if "loss" not in one.metrics:
            continue
        places[one.step] = len(places) + 1
        if one.stage != stage:
            stage = one.stage
            marks.append(Mark(x=places[one.step], label=_stage_name(stage)))
    return places, marks


def _round(stage: str) -> int:
    """Return the round of a stage's folder, `NN-NAME`."""
    return int(stage[:2])


def _stage_name(stage: str) -> str:
    number, _, name = stage.partition("-")
    return f"round {int(number)}" if name == "train" and number.isdecimal() else name
