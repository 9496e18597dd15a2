"""Every tool, once: server, facade, CLI and docs derive from this list. A tool's module is imported when it is used."""

from __future__ import annotations

from typing import Any

from quintain.errors import NotFound
from quintain.tools.spec import ToolSpec


def _read(function: str, title: str, toolset: str, **more: Any) -> ToolSpec:
    return ToolSpec(_name(function), f"quintain.tools.{function}", title, True, False, True, toolset, **more)


def _write(
    function: str, title: str, toolset: str, *, idempotent: bool = True, destructive: bool = False, **more: Any
) -> ToolSpec:
    source = f"quintain.tools.{function}"
    return ToolSpec(_name(function), source, title, False, destructive, idempotent, toolset, **more)


def _name(function: str) -> str:
    return function.partition(":")[2]


CATALOG: tuple[ToolSpec, ...] = (
    _write("data.trajectories:record_trajectory", "Record a run", "data", short="record", idempotent=False),
    _write("data.imports:import_trajectories", "Import agent logs", "data", short="import"),
    _read("data.trajectories:search_trajectories", "Search runs", "data", short="search"),
    _read("data.trajectories:get_trajectory", "Read a run", "data", short="get"),
    _write("data.datasets:export_dataset", "Make a dataset of runs", "data", short="export", idempotent=False),
    _read(
        "data.preview:preview_dataset",
        "Preview a dataset",
        "data",
        short="preview",
        watch_source="quintain.tools.data.preview:watch_preview",
    ),
    _read("data.library:list_library", "List methods, scorers and environments", "data", short="library"),
    _read("data.lineage:get_lineage", "Show where a thing comes from", "data", short="lineage"),
    _write("data.forgetting:forget", "Forget runs", "data", short="forget", destructive=True, dry_run_with="dry_run"),
    _write("labels.scoring:score_trajectories", "Score runs", "label", short="score"),
    _write("labels.preferences:record_preferences", "Prefer runs", "label", short="prefer"),
    _write(
        "labels.calibration:fit_calibration", "Calibrate scores by labels", "label", short="calibrate", idempotent=False
    ),
    _write(
        "labels.judging.tools:get_judging_batch",
        "Runs to judge",
        "label",
        short="judge",
        idempotent=False,
        asks_source="quintain.tools.labels.judging.tools:ask_person",
    ),
    _write(
        "labels.judging.tools:submit_scores",
        "Submit verdicts on runs",
        "label",
        short="submit",
        operator_source="quintain.tools.labels.judging.tools:submit_own_scores",
    ),
    _read("training.planning.plan:plan_training", "Plan a training", "train", short="plan"),
    _write("training.start:start_training", "Start training", "train"),
    _write("training.agents:register_agent", "Register an agent", "train", short="register"),
    _write("training.export_agent:export_agent", "Export an agent", "train", answers_as="start_training"),
    _read(
        "jobs.jobs:get_job",
        "Follow a job",
        "jobs",
        short="status",
        watch_source="quintain.tools.jobs.jobs:watch_job",
    ),
    _read("jobs.jobs:list_jobs", "List jobs", "jobs", short="jobs"),
    _write("jobs.jobs:cancel_job", "Stop a job", "jobs", short="cancel", destructive=True, answers_as="get_job"),
    _write("jobs.jobs:resume_job", "Continue a job", "jobs", short="resume", answers_as="get_job"),
    _read("jobs.plots:plot_job", "Draw a job's curves", "jobs", short="plot", picture=True, app=True),
    _read(
        "jobs.dashboard:show_training_dashboard",
        "Show the training dashboard",
        "jobs",
        short="dashboard",
        picture=True,
        app=True,
    ),
    _write(
        "evaluation.rollouts:collect_rollouts",
        "Collect rollouts",
        "evaluate",
        short="collect",
        answers_as="start_training",
    ),
    _write("evaluation.rollouts:evaluate_agent", "Evaluate an agent", "evaluate", answers_as="start_training"),
    _write(
        "evaluation.conversations:talk_to_agent",
        "Talk to an agent",
        "evaluate",
        short="talk",
        idempotent=False,
        is_listed=False,
        watch_source="quintain.tools.evaluation.conversations:watch_talk",
    ),
    _read(
        "evaluation.comparison:compare_agents",
        "Compare agents",
        "evaluate",
        short="compare",
        writes_with="sequential",
        app=True,
    ),
)
"""All tools, by toolset: data, label, train, evaluate, and jobs. With every set come jobs and the reading tools of data.

A read-only tool changes no run, label, dataset, agent or training. It may store what it computed: a preview, a comparison.
"""


def tool(name: str) -> ToolSpec:
    """Return a tool by its name.

    Raises:
        NotFound: there is no such tool.
    """
    for spec in CATALOG:
        if spec.name == name:
            return spec
    raise NotFound(f"there is no tool {name!r}; valid: {', '.join(spec.name for spec in CATALOG)}", code="unknown_tool")
