"""Figures of trainings: success on held-out tasks first, then what the method optimises, by optimizer step."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from quintain.evaluation.reports.figures import Figure, Line, Mark, Panel, Point, line, spans_decades
from quintain.records.dataset import Dataset
from quintain.records.evaluation import Evaluation
from quintain.records.hyperparameters.methods import ROLES
from quintain.records.jobs.job import Job, TrainSpec
from quintain.records.record import counted
from quintain.tools.jobs.curves import Points, points_of, resumptions, step_reports
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


_VIEWS = tuple(_View(**view) for view in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["views"])

_IN_NATS = frozenset({"sft", "bc", "pretrain", "distill"})
"""Methods whose loss is a mean over tokens in nats."""


def training_figure(services: Services, job: Job) -> Figure:
    """Return the figure of a training: what got better, by step. No panel has data before the first report."""
    assert isinstance(job.spec, TrainSpec)
    reports = step_reports(services, job.id)
    points = points_of(reports)
    marks = [Mark(x=step, label="resumed") for step in resumptions(reports)]
    held_out = _held_out_success(services, job)
    panels = [panel for panel in (_success(points, held_out), *_views(points, job.spec)) if panel is not None]
    for panel in panels:
        panel["marks"] = marks
    note = _accuracy(services, job) if job.spec.method in ROLES else ""
    is_measured = held_out is not None or "held_out_success" in points
    if job.result is not None and not is_measured and job.spec.method not in ROLES:
        note = "not evaluated on held-out tasks yet"
    return Figure(title=training_title(services, job.spec), subtitle=subtitle(job, note), panels=panels[:_MOST_PANELS])


def _accuracy(services: Services, job: Job) -> str:
    """Return the held-out accuracy of a model that does not act, with its interval; empty if it is unknown."""
    agent = services.store.agents.find(job.result.agent) if job.result and job.result.agent else None
    return "" if agent is None or agent.held_out is None else str(agent.held_out)


def training_title(services: Services, spec: TrainSpec) -> str:
    """Return what was trained on what by which method."""
    source = spec.environment or ""
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
        parts.append(f"{job.step} of {counted(job.total_steps, 'step')}")
    if job.started_at is not None and job.ended_at is not None:
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
        # A step whose rows have no value of a metric, such as one without good runs, is no hole in its line.
        steps = reported if smooth else ()
        found = line(points[metric], label, bounds=bounds, smooth=smooth, reported=steps)
        if metric == "validation_loss":
            step = min(points[metric], key=lambda one: (points[metric][one], one))
            found["best"] = Point(x=step, y=points[metric][step], label=f"best step {step}")
        lines.append(found)
    panel = Panel(title=view.title, xlabel="optimizer step", ylabel=view.ylabel, lines=lines)
    if view.format == "percent":
        panel["format"] = "percent"
    elif "loss" in dict(view.metrics) and spans_decades(lines):
        panel["log"] = True
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
