"""Figures of trainings by optimizer step, of evolutions by round, of recipes by stage: success on held-out tasks first."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quintain.environments.references import short_reference
from quintain.evaluation.reports.figures import Figure, Line, Mark, Panel, Point, line, spans_decades
from quintain.records.dataset import Dataset
from quintain.records.evaluation import Evaluation
from quintain.records.hyperparameters.methods import ROLES
from quintain.records.jobs.job import EvaluateSpec, EvolveSpec, Job, RecipeSpec, RolloutSpec, TrainSpec
from quintain.records.wording import counted
from quintain.tools.jobs.descriptions import Points, StepReport, points_of, resumptions, step_reports
from quintain.tools.services import Services, find
from quintain.tools.training.methods import METHODS

_MOST_PANELS = 4


class _View(NamedTuple):
    """A panel of metrics that answer one question."""

    title: str
    ylabel: str
    metrics: Sequence[tuple[str, str]]
    """Metric and its entry of the legend."""
    format: str = "number"
    of_samples: bool = False
    """Whether its values are estimates only on text that the model sampled."""
    floor: float | None = None


_VIEWS = tuple(_View(**view) for view in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["views"])

_IN_NATS = frozenset({"sft", "bc", "pretrain", "distill"})
"""Methods whose loss is a mean over tokens in nats."""


def training_figure(services: Services, job: Job) -> Figure:
    """Return the figure of a training: what got better, by step. No panel has data before the first report."""
    assert isinstance(job.spec, TrainSpec)
    reports = step_reports(services, job.id)
    points = points_of(reports)
    marks = [Mark(x=step, label="resumed") for step in resumptions(reports)]
    kept = job.result.report.get("best_step") if job.result is not None else None
    if kept is not None and kept < job.step:
        marks.append(Mark(x=kept, label="weights kept"))
    held_out = _held_out_success(services, job)
    panels = [panel for panel in (_success(points, held_out), *_views(points, job.spec)) if panel is not None]
    for panel in panels:
        panel["marks"] = marks
    agent = services.store.agents.find(job.result.agent) if job.result and job.result.agent else None
    note = str(agent.held_out) if job.spec.method in ROLES and agent is not None and agent.held_out else ""
    is_measured = held_out is not None or "held_out_success" in points
    if job.result is not None and not is_measured and job.spec.method not in ROLES:
        note = _result_alone(services, job.result.agent)
    return Figure(title=training_title(services, job.spec), subtitle=subtitle(job, note), panels=panels[:_MOST_PANELS])


def _result_alone(services: Services, agent_id: str | None) -> str:
    """Return what is known of a trained agent on held-out tasks that its start has not played."""
    for found in _measured(services, agent_id or ""):
        what = counted(found.rate.n, "held-out row" if found.held_out is not None else "held-out task")
        return f"{found.rate.value:.1%} of {what}, where its start was not evaluated"
    return "not evaluated on held-out tasks yet"


def training_title(services: Services, spec: TrainSpec) -> str:
    """Return what was trained on what by which method."""
    source = short_reference(spec.environment or "")
    if spec.dataset_id is not None:
        dataset = find(services.store.datasets.get, spec.dataset_id)
        source = spec.dataset_id if dataset is None else _dataset_title(dataset)
    lead = METHODS[spec.method].partition(":")[0]
    acting = "in" if spec.environment is not None else "on"
    return f"{lead}: {spec.agent.name} \N{RIGHTWARDS ARROW} {spec.name}, {acting} {source}"


def subtitle(job: Job, *more: str) -> str:
    """Return the facts of a job in one line: id, state, steps, duration."""
    parts = [job.id, str(job.status)]
    if job.total_steps:
        unit = "episode" if isinstance(job.spec, RolloutSpec | EvaluateSpec) else "step"
        parts.append(f"{job.step:,} of {counted(job.total_steps, unit)}")
    if (
        job.started_at is not None and job.ended_at is not None and job.started_at <= job.ended_at
    ):  # else the clock was set
        parts.append(f"{(job.ended_at - job.started_at).total_seconds():.0f} s")
    return ", ".join([*parts, *(one for one in more if one)])


def metric_panels(points: Points, names: Sequence[str]) -> list[Panel]:
    """Return a panel for each named metric, with its interval where both bounds are reported (NAME_low and NAME_high)."""
    return [_panel(_View(name.replace("_", " ").capitalize(), name, ((name, name),)), points) for name in names]


def _dataset_title(dataset: Dataset) -> str:
    noun = {"dpo": "pair", "reward": "pair", "grpo": "group", "text": "text"}.get(dataset.kind, "run")
    return f"{dataset.name} ({counted(dataset.rows, noun)})"


def _views(points: Points, spec: TrainSpec) -> list[Panel]:
    """Return the panels with data. The loss of a policy gradient does not measure progress, so it is left out."""
    acts = "mean_reward" in points
    paired = "reward_margin" in points
    varies = {name for name, values in points.items() if len(values) == 1 or _varies(list(values.values()))}
    found = []
    for view in _VIEWS:
        names = dict(view.metrics)
        if "chosen_reward" in names and ("reward_margin" in names) != paired:
            continue  # a margin is between the runs of a pair, and KTO has none
        shown = tuple((metric, label) for metric, label in view.metrics if metric in varies)
        is_shown = shown and (not acts if view.title == "Loss" else acts or not view.of_samples)
        if acts and "mean_reward" in view.metrics[0] and points["mean_reward"] == points.get("success_rate"):
            continue  # the reward of the environment is success itself
        if is_shown:
            ylabel = "nats a token" if view.title == "Loss" and spec.method in _IN_NATS else view.ylabel
            found.append(_panel(view._replace(ylabel=ylabel, metrics=shown), points))
        if is_shown and "mean_cost" in names:
            limit = dict.fromkeys(points["mean_cost"], spec.config.constraint.limit)  # type: ignore[union-attr]
            found[-1]["lines"].append(line(limit, "limit", smooth=False))
    return found


def _varies(values: Sequence[float]) -> bool:
    """Whether values differ by more than rounding."""
    return max(values) - min(values) > 1e-9 * max(1.0, *map(abs, values))


def _panel(view: _View, points: Points) -> Panel:
    lines = []
    reported = set[int]().union(*points.values())
    for metric, label in view.metrics:
        low, high = points.get(f"{metric}_low"), points.get(f"{metric}_high")
        bounds = (low, high) if low and high else None
        smooth = not metric.startswith("validation_")
        # A step whose rows have no value of a metric, such as one without good runs, is not a gap in its line.
        steps = reported if smooth else ()
        found = line(points[metric], label, bounds=bounds, smooth=smooth, reported=steps)
        if metric == "validation_loss":
            step = min(points[metric], key=lambda one: (points[metric][one], one))
            found["best"] = Point(x=step, y=points[metric][step], label=f"lowest loss: step {step}")
        lines.append(found)
    panel = Panel(title=view.title, xlabel="optimizer step", ylabel=view.ylabel, lines=lines)
    if view.format == "percent":
        panel["format"] = "percent"
    elif "loss" in dict(view.metrics) and spans_decades(lines):
        panel["log"] = True
    if view.floor is not None:
        panel["floor"] = view.floor
    return panel


def _success(points: Points, held_out: tuple[Line, str] | None) -> Panel | None:
    lines: list[Line] = []
    title, xlabel = "Success", "optimizer step"
    if measured := points.get("held_out_success"):
        low, high = (points.get(f"held_out_success_{side}", {}) for side in ("low", "high"))
        lines.append(line(measured, "held-out tasks", bounds=(low, high), smooth=False))
        title = "Success on held-out tasks"
    elif held_out is not None:
        lines.append(held_out[0])
        title = held_out[1]
    if rates := points.get("success_rate"):
        lines.append(line(rates, "training tasks, as it acts"))
        title = title if len(lines) > 1 else "Success on training tasks"
    if not lines:
        return None
    return Panel(title=title, xlabel=xlabel, ylabel="share of tasks solved", format="percent", lines=lines)


def _held_out_success(services: Services, job: Job) -> tuple[Line, str] | None:
    """Return success of the start and of the result on the newest suite that both have run, with a title."""
    assert isinstance(job.spec, TrainSpec)
    if job.result is None or job.result.agent is None or job.spec.agent.id is None:
        return None
    starts = {one.suite_hash: one for one in reversed(_measured(services, job.spec.agent.id))}
    for after in sorted(_measured(services, job.result.agent), key=lambda one: one.held_out is not None):
        if (before := starts.get(after.suite_hash)) is not None:
            last = int(job.result.report.get("best_step") or job.step)
            measured = measured_line(
                [(0, before), (last, after)], f"held-out tasks, {counted(after.rate.n, 'episode')}"
            )
            what = "rows" if after.held_out is not None else "tasks"
            return measured, f"Success on held-out {what}"
    return None


def measured_line(places: Sequence[tuple[float, Evaluation]], label: str) -> Line:
    """Return evaluations with their exact intervals as one line."""
    rates = [(x, one.rate) for x, one in places]
    return Line(
        x=[x for x, _ in rates],
        y=[rate.value for _, rate in rates],
        low=[rate.ci_low for _, rate in rates],
        high=[rate.ci_high for _, rate in rates],
        label=label,
        style="measured",
    )


def _measured(services: Services, agent_id: str) -> list[Evaluation]:
    """Return the evaluations of an agent on held-out tasks or rows, newest first."""
    return [
        one
        for one in services.store.evaluations.of_agent(agent_id)
        if one.split != "train" and one.purpose == "measurement" and one.rate.value is not None
    ]


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
            f"new tasks: {final['before']:.1%} at the start, {final['after']:.1%} now ({100 * final['gain']:+.1f} points, "
            f"95 % interval {100 * final['ci_low']:+.1f} to {100 * final['ci_high']:+.1f})"
        )
    rounds = counted(spec.config.iterations, "round")
    title = f"Self-improvement: {spec.agent.name} \N{RIGHTWARDS ARROW} {spec.name}, {rounds} in {short_reference(spec.environment)}"
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
                by_round[int(one.stage[:2])] = one.metrics[name]  # the stage's folder is `NN-NAME`
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
        one["round"] - 1: one["explored_success"]
        for one in report.get("rounds", ())
        if one.get("explored_success") is not None
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


def _stage_name(stage: str) -> str:
    number, _, name = stage.partition("-")
    return f"round {int(number)}" if name == "train" and number.isdecimal() else name
