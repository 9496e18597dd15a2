"""Every tool, once: server, facade and CLI are thin adapters over this list."""

from __future__ import annotations

from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.imports import import_trajectories
from quintain.tools.data.library import list_library
from quintain.tools.data.lineage import get_lineage
from quintain.tools.data.preview import preview_dataset, watch_preview
from quintain.tools.data.trajectories import get_trajectory, record_trajectory, search_trajectories
from quintain.tools.evaluation.comparison import compare_agents
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.jobs.jobs import cancel_job, get_job, list_jobs, resume_job, watch_job
from quintain.tools.jobs.pictures import plot_job
from quintain.tools.labels.calibration import fit_calibration
from quintain.tools.labels.judging.tools import ask_person, get_judging_batch, submit_scores
from quintain.tools.labels.preferences import record_preferences
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.spec import ToolSpec
from quintain.tools.training.agents import register_agent
from quintain.tools.training.export_agent import export_agent
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.start import start_training


def _read(name: str, function: object, title: str, toolset: str, **more: object) -> ToolSpec:
    return ToolSpec(name, function, title, True, False, True, toolset, **more)  # type: ignore[arg-type]


def _write(
    name: str,
    function: object,
    title: str,
    toolset: str,
    *,
    idempotent: bool = True,
    destructive: bool = False,
    **more: object,
) -> ToolSpec:
    return ToolSpec(name, function, title, False, destructive, idempotent, toolset, **more)  # type: ignore[arg-type]


CATALOG: tuple[ToolSpec, ...] = (
    _write("record_trajectory", record_trajectory, "Record a run", "data", short="record", idempotent=False),
    _write("import_trajectories", import_trajectories, "Import agent logs", "data", short="import"),
    _read("search_trajectories", search_trajectories, "Search runs", "data", short="search"),
    _read("get_trajectory", get_trajectory, "Read a run", "data", short="get"),
    _write("export_dataset", export_dataset, "Freeze a dataset", "data", short="export", idempotent=False),
    _write("preview_dataset", preview_dataset, "X-ray a dataset", "data", short="preview", watch=watch_preview),
    _read("list_library", list_library, "List the library", "data", short="library"),
    _write("get_lineage", get_lineage, "Trace or forget", "data", short="lineage", destructive=True),
    _write("score_trajectories", score_trajectories, "Score runs", "label", short="score"),
    _write("record_preferences", record_preferences, "Prefer runs", "label", short="prefer"),
    _write("fit_calibration", fit_calibration, "Fit scores to labels", "label", short="calibrate", idempotent=False),
    _write(
        "get_judging_batch",
        get_judging_batch,
        "Runs to judge",
        "label",
        short="judge",
        idempotent=False,
        asks=ask_person,
    ),
    _write("submit_scores", submit_scores, "Store verdicts", "label", short="submit"),
    _write("plan_training", plan_training, "Plan a training", "train", short="plan"),
    _write("start_training", start_training, "Start training", "train"),
    _write("register_agent", register_agent, "Name an agent", "train", short="register"),
    _write("export_agent", export_agent, "Hand over an agent", "train", answers_as="start_training"),
    _read("get_job", get_job, "Follow a job", "jobs", short="status", watch=watch_job),
    _read("list_jobs", list_jobs, "List jobs", "jobs", short="jobs"),
    _write("cancel_job", cancel_job, "Stop a job", "jobs", short="cancel", destructive=True, answers_as="get_job"),
    _write("resume_job", resume_job, "Continue a job", "jobs", short="resume", answers_as="get_job"),
    _read("plot_job", plot_job, "Draw a job's curves", "jobs", short="plot", picture=True),
    _write("collect_rollouts", collect_rollouts, "Collect rollouts", "evaluate", short="collect"),
    _write("evaluate_agent", evaluate_agent, "Evaluate an agent", "evaluate"),
    _write("compare_agents", compare_agents, "Compare agents", "evaluate", short="compare"),
)
"""All tools, by toolset: data, label, train, evaluate, and jobs, which comes with label, train and evaluate."""


def tool_named(name: str) -> ToolSpec:
    """Return the tool with this name."""
    return next(spec for spec in CATALOG if spec.name == name)
