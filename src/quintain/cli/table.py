"""Every command: which tool it calls, how its options are named, and what runs it. The tool's signature gives the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class CommandOption:
    """An option that belongs to the command and not to its tool; without `flag` a positional argument."""

    name: str
    flag: str | None
    type: Any
    default: Any
    help: str


@dataclass(frozen=True)
class Command:
    """One command over a tool of the catalog."""

    tool: str
    run: str = "answers:run_tool"
    """`module:function` in `quintain.cli`; it takes a `session.CommandRun` and returns the exit status."""
    show: str = "answers:show_record"
    """`module:function` in `quintain.cli` with which `run_tool` prints a result; it takes a console and the result."""
    positional: tuple[str, ...] = ()
    names: Mapping[str, str | None] = field(default_factory=dict)
    """Argument, or ARGUMENT.MEMBER, -> its option, where that has another name; None: a member without an option."""
    hidden: tuple[str, ...] = ()
    """Arguments without an option."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the command sets itself."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that differ from the tool's."""
    optional: tuple[str, ...] = ()
    """Arguments that the tool requires and that `run` can get otherwise."""
    mixes: tuple[str, ...] = ()
    """Arguments that take weights as NAME=WEIGHT,NAME=WEIGHT."""
    listed: Mapping[str, str] = field(default_factory=dict)
    """Argument -> `module:function` that returns the names it takes, for the help."""
    helps: Mapping[str, str] = field(default_factory=dict)
    """Argument -> its help, where the terminal does something else with it than a server."""
    selects: bool = False
    """Whether runs have to be selected: by the filter's options, or all of them with --all."""
    selects_instead: tuple[str, ...] = ()
    """Arguments that may take the place of a selection."""
    waits: bool = False
    """Whether it starts a job and follows it, unless --detach is given."""
    own: tuple[CommandOption, ...] = ()
    summary: str = ""
    """Addition of the terminal to the description of the tool."""
    title: str = ""
    """Its line in the list of commands; empty: the summary of a group's command, or the tool's title."""


def _file(name: str, help: str) -> CommandOption:
    return CommandOption(name, f"--{name.replace('_', '-')}", Path | None, None, help)


def _switch(name: str, help: str) -> CommandOption:
    """Return an option `--NAME` that is on or off."""
    return CommandOption(name, f"--{name.replace('_', '-')}", bool, False, help)


_CONFIG = _file("config", "YAML or JSON file with any of this; options replace its values.")
_PICTURE = _file("out", "Write the picture (PNG) to this file.")
_REPORT = _file("report", "Also write a report to this file: .md, .html (needs no network) or .json.")
_NO_REDACT = _switch("no_redact", "Keep secrets in the stored runs.")
_RUNS = {"tags": "tag", "filter.tags": "tag", "filter.dataset_id": "dataset"}


def _listing(kind: str) -> Command:
    return Command(
        "list_library",
        show="commands.library:show_library",
        fixed={"kind": kind},
        hidden=("kind",),
        title=f"List the {kind}.",
    )


COMMANDS: Mapping[str, Command] = {
    "record": Command(
        "record_trajectory",
        run="commands.record:run_record",
        hidden=("trajectory", "messages", "tools"),
        own=(
            CommandOption(
                "file",
                None,
                str | None,
                None,
                "JSON file with chat messages or a whole trajectory; - for standard input.",
            ),
        ),
        summary="FILE has the run; without it, state the outcome of a stored run with --trajectory-id and --outcome.",
    ),
    "import": Command(
        "import_trajectories",
        run="commands.imports:run_import",
        positional=("path",),
        names={"tags": "tag", "columns": "column"},
        listed={"format": "quintain.importers.registry:reader_names"},
        helps={"path": "File, folder or URL of logs; relative: in the current folder, else in the inbox"},
        own=(CommandOption("more", None, list[str] | None, None, "More of them, as of a pattern."), _NO_REDACT),
    ),
    "runs": Command(
        "search_trajectories",
        run="commands.library:run_runs",
        show="commands.library:show_runs",
        names=_RUNS,
        own=(_file("csv", "Write all matching runs to this file as a table; - for standard output."),),
        title="List or search runs.",
    ),
    "tag": Command(
        "tag_trajectories", names={**_RUNS, "trajectory_ids": "run"}, selects=True, title="Add or remove tags of runs."
    ),
    "show": Command(
        "get_trajectory",
        run="commands.show:run_show",
        positional=("trajectory_id",),
        names={"trajectory_id": "id"},
        title="Show a run, job, dataset, agent, evaluation, comparison, guide or leaderboard.",
        summary="ID may also be a job, dataset, agent, evaluation or comparison, the name of a dataset or agent, or the address of "
        "a guide or leaderboard: guide://pipeline, guide://curation, guide://methods/METHOD, leaderboard://ENVIRONMENT.",
    ),
    "agents": _listing("agents"),
    "datasets": _listing("datasets"),
    "environments": _listing("environments"),
    "library": Command("list_library", show="commands.library:show_library", positional=("kind",)),
    "score": Command(
        "score_trajectories",
        run="commands.score:run_score",
        positional=("scorer",),
        names={**_RUNS, "calibrate": "--calibrate/--raw", "trajectory_ids": "run"},
        mixes=("scorer",),
        selects=True,
        waits=True,
        own=(_switch("lower_bound", "Of a mix: mean less spread, as --combine lower_bound."),),
        summary="Exit status 1 where --audit flags the rewards.",
    ),
    "calibrate": Command(
        "fit_calibration",
        run="commands.score:run_calibrate",
        positional=("scorer",),
        names={**_RUNS, "per_domain": "--per-domain/--one-map"},
        own=(_file("picture", "Also write the reliability diagram (PNG) to this file."),),
    ),
    "judge": Command(
        "get_judging_batch",
        title="Judge runs, blind, at the terminal.",
        run="commands.judge:run_judge",
        names={**_RUNS, "trajectory_ids": "run"},
        defaults={"judge": "person", "limit": 5},
        own=(
            CommandOption(
                "answers", None, str | None, None, 'JSON file of answers, {"batch_id", "scores"}; - for standard input.'
            ),
            _switch("agreement", "Show how far the raters agree."),
        ),
        summary="A person is asked at the terminal; --json prints the batch instead, whose answers come back as a file.",
    ),
    "submit": Command("submit_scores", positional=("batch_id", "scores")),
    "prefer mine": Command(
        "record_preferences",
        show="commands.prefer:show_preferences",
        names={**_RUNS, "max_pairs_per_task": "max-pairs", "trajectory_ids": "run"},
        hidden=("source", "pairs"),
        fixed={"source": "mined"},
        selects=True,
        helps={"scorer": "Whose stored scores value the runs; default: the outcome"},
        summary="Mine preferences from stored values of runs, for export --pairs recorded.",
    ),
    "prefer imported": Command(
        "record_preferences",
        show="commands.prefer:show_preferences",
        names={**_RUNS, "trajectory_ids": "run"},
        hidden=("source", "pairs", "scorer", "mode", "margin", "max_pairs_per_task", "ties"),
        fixed={"source": "imported"},
        selects=True,
        summary="Record the pairs that imported logs contain, for export --pairs recorded.",
    ),
    "prefer record": Command(
        "record_preferences",
        run="commands.prefer:run_record_pairs",
        hidden=(
            *("pairs", "filter", "trajectory_ids", "scorer", "mode", "margin", "max_pairs_per_task", "ties"),
            "source",
        ),
        own=(
            CommandOption("file", None, Path, ..., "JSONL, in each line {a, b, better} or {chosen, rejected}."),
            CommandOption(
                "source", "--source", Literal["person", "assistant"], "person", "Whose preferences these are."
            ),
        ),
        summary="Record the pairs of a file.",
    ),
    "export": Command(
        "export_dataset",
        run="commands.export:run_export",
        positional=("kind", "name"),
        names={
            **_RUNS,
            **{"outcomes": "keep", "path": "rows", "columns": "column", "trajectory_ids": "run"},
            **{"filter.min_reward": None, "filter.max_reward": None, "filter.dataset_id": None},
        },
        listed={"format": "quintain.exporters.registry:format_names"},
        selects=True,
        selects_instead=("path",),
        own=(_file("out", "Also copy the written folder here; must not exist."),),
    ),
    "preview": Command(
        "preview_dataset",
        run="commands.preview:run_preview",
        positional=("dataset_id",),
        names={"hyperparameters": "set"},
        hidden=("max_chars",),
        own=(_file("html", "Also write a page that needs no network to this file."),),
    ),
    "lineage": Command(
        "get_lineage",
        run="commands.lineage:run_lineage",
        positional=("id",),
        own=(_file("png", "Also write a picture to this file."),),
    ),
    "forget": Command(
        "forget",
        run="commands.lineage:run_forget",
        names={"dry_run": "--dry-run/--for-good", **_RUNS},
        positional=("id",),
        own=(_switch("yes", "Do not ask before forgetting."),),
    ),
    "backup": Command(
        "back_up_home",
        show="commands.backup:show_backup",
        positional=("name",),
        title="Back up the database, datasets, agents and jobs.",
        summary="Here NAME is the path of a new folder, or of an archive that ends with .tar or .tar.gz. Caches, inbox/ and exports/ "
        "are left out. A last file, manifest.json, has the hash of every other one. `quintain restore` checks and restores.",
    ),
    "plan": Command(
        "plan_training",
        show="commands.plan:show_plan",
        positional=("goal",),
        names={"dataset_id": "dataset", "hyperparameters": "set"},
        summary="Exit status 1 where something prevents the training.",
    ),
    "train": Command(
        "start_training",
        run="commands.train:run_train",
        names={"dataset_id": "dataset", "hyperparameters": "set"},
        mixes=("reward",),
        optional=("method", "model"),
        own=(_CONFIG, _file("output_dir", "Also copy the trained model to this folder.")),
        waits=True,
        summary="--config names a file with one training, or a recipe with stages.",
    ),
    "evolve": Command(
        "start_training",
        run="commands.evolve:run_evolve",
        positional=("model",),
        names={"hyperparameters": "set"},
        hidden=("method", "dataset_id"),
        mixes=("reward",),
        fixed={"method": "evolve"},
        optional=("model",),
        own=(
            CommandOption(
                "iterations", "--iterations", int | None, None, "Rounds of exploring and training at most (5)."
            ),
            CommandOption("train", "--train", str | None, None, "How a round trains: sft, bc, dpo, grpo or ppo."),
            _CONFIG,
        ),
        waits=True,
        title="Let an agent improve, round after round.",
        summary="Let an agent explore, train on its best runs and be measured, round after round, as a background job. The "
        "result is a new agent.",
    ),
    "register": Command("register_agent", positional=("name",)),
    "talk": Command(
        "talk_to_agent",
        run="commands.talk:run_talk",
        positional=("agent",),
        names={"job_id": "job"},
        own=(_switch("keep", "Store the conversation as a run at the end."),),
        summary="Without --message lines of the standard input are sent, until an empty one.",
    ),
    "export-agent": Command(
        "export_agent",
        run="commands.export:run_export_agent",
        positional=("agent",),
        defaults={"format": "merged"},
        waits=True,
    ),
    "collect": Command("collect_rollouts", positional=("agent",), mixes=("reward", "scorer"), waits=True),
    "evaluate": Command(
        "evaluate_agent",
        run="commands.evaluate:run_evaluate",
        positional=("agent",),
        names={"dataset_id": "dataset", "forbidden": "forbidden"},
        own=(_REPORT,),
        waits=True,
    ),
    "compare": Command(
        "compare_agents", run="commands.evaluate:run_compare", positional=("agents",), own=(_REPORT,), waits=True
    ),
    "jobs list": Command("list_jobs", show="commands.jobs:show_list"),
    "jobs note": Command("annotate_job", show="commands.jobs:print_job", positional=("job_id", "note")),
    "jobs show": Command("get_job", show="commands.jobs:print_job", positional=("job_id",)),
    "jobs watch": Command(
        "get_job",
        run="commands.jobs:run_watch",
        positional=("job_id",),
        hidden=("wait_s", "detail", "until"),
        fixed={"wait_s": 30},
        summary="Follow a job until it has ended; Ctrl-C leaves it running.",
    ),
    "jobs cancel": Command("cancel_job", show="commands.jobs:print_job", positional=("job_id",)),
    "jobs resume": Command(
        "resume_job",
        show="commands.jobs:print_job",
        positional=("job_id",),
        names={"hyperparameters": "set"},
    ),
    "plot": Command("plot_job", positional=("job_id",), names={"job_id": "id"}, own=(_PICTURE,)),
    "dashboard": Command("show_training_dashboard", names={"job_id": "id"}, own=(_PICTURE,)),
}
"""Command -> its tool and options. A name of two words is a command of a group."""

SECTIONS: Mapping[str, str] = {
    "": "Start and installation",
    "data": "Runs and datasets",
    "label": "Scores and preferences",
    "train": "Training and agents",
    "evaluate": "Acting and measuring",
    "jobs": "Jobs",
}
"""Toolset -> heading of its commands in the help of the program; empty: commands that are not one tool."""

ALIASES: Mapping[str, str] = {"search": "runs", "get": "show", "jobs plot": "plot"}
"""Earlier name of a command -> its name. They work, and no help lists them."""

FUNCTIONS: Mapping[str, tuple[str, str]] = {
    "demo": ("commands.demo:demo", "Watch an agent get better: collect, score, export, train, evaluate, compare."),
    "serve": ("commands.serve:serve", "Serve the tools over MCP."),
    "ui": ("commands.ui:ui", "Show runs, jobs and agents on a local web page."),
    "report": (
        "commands.reports:report",
        "Write a page about a job, comparison, evaluation, agent or dataset to send.",
    ),
    "jobs first": ("commands.jobs:first_command", "Let a queued job start before the others that wait."),
    "jobs prune": ("commands.prune:prune_command", "Free the disk space of jobs that ended long ago."),
    "prefer list": ("commands.prefer:list_preferences", "List stored preferences."),
    "install": ("commands.install:install", "Add the server to an MCP client, or its skill."),
    "restore": ("commands.backup:restore_command", "Restore a backup into an empty home."),
    "doctor": ("commands.doctor:doctor", "Check this installation, with a real job from start to end."),
    "version": ("main:version", "Print the version."),
    "sage-dev": ("commands.sage:sage_dev", "Command lines of sage-dev agent."),
    "knowlyr-trainer sft": ("commands.knowlyr:sft", "As train --method sft."),
    "knowlyr-trainer dpo": ("commands.knowlyr:dpo", "As train --method dpo."),
    "knowlyr-trainer grpo": ("commands.knowlyr:grpo", "As train --method grpo."),
    "knowlyr-trainer eval": ("commands.knowlyr:evaluate_file", "As evaluate --dataset."),
    "knowlyr-hub export": ("commands.knowlyr:export", "As export --rows --format knowlyr."),
    "knowlyr-hub evaluate": ("commands.knowlyr:evaluate", "As evaluate --environment."),
    "knowlyr-hub online": ("commands.knowlyr:online", "As evolve."),
    "knowlyr-hub process": ("commands.knowlyr:process", "As import."),
    "knowlyr-hub process-batch": ("commands.knowlyr:process", "As import of a folder."),
    "knowlyr-hub run": ("commands.knowlyr:run", "As collect on a file of tasks."),
    "knowlyr-hub status": ("commands.knowlyr:status", "As jobs list."),
    "knowlyr-hub tasks": ("commands.knowlyr:tasks", "List the tasks of a file."),
    "knowlyr-hub ingest": ("commands.knowlyr:ingest", "As import --format crew."),
    "knowlyr-hub publish": ("commands.knowlyr:publish", "As export --push-to hub:OWNER/NAME."),
    "knowlyr-recorder schema": ("commands.knowlyr:schema", "Print the JSON schema of a run."),
    "knowlyr-recorder convert": ("commands.knowlyr:convert", "As import, with the runs in a file."),
    "knowlyr-recorder validate": ("commands.knowlyr:validate", "As import --dry-run."),
    "knowlyr-recorder batch": ("commands.knowlyr:process", "As import of a folder."),
    "knowlyr-reward score": ("commands.knowlyr:score", "As import and score knowlyr."),
    "knowlyr-reward compare": ("commands.knowlyr:compare", "As import and score knowlyr, file by file."),
    "knowlyr-reward calibrate": ("commands.knowlyr:calibrate", "Fit scores of a file to people's."),
    "knowlyr-reward rubrics": ("commands.knowlyr:rubrics", "Print the rubrics."),
    "knowlyr-reward preferences": ("commands.knowlyr:preferences", "As import and prefer mine."),
}
"""Command -> its function in `quintain.cli`, and a line of help: what is not one tool."""

GROUPS: Mapping[str, tuple[str, str | None]] = {
    "jobs": ("List jobs, or show, watch, cancel, resume or put first one; free their disk space.", "list"),
    "prefer": ("Record which of two runs of a task is better.", None),
    **{
        f"knowlyr-{part}": (f"Command lines of knowlyr-{part}.", None)
        for part in ("trainer", "hub", "recorder", "reward")
    },
}
"""Group -> its help, and the command that runs where none is named."""
