"""What the tools advise, in the words of the command line."""

from __future__ import annotations

import re

_COMMANDS = {
    "get_judging_batch": "quintain judge",
    "submit_scores": "quintain judge ANSWERS.json",
    "record_preferences": "quintain prefer",
    "export_dataset": "quintain export",
    "preview_dataset": "quintain preview",
    "score_trajectories": "quintain score",
    "record_trajectory": "quintain record",
    "import_trajectories": "quintain import",
    "get_lineage": "quintain lineage",
    "fit_calibration": "quintain calibrate",
    "plan_training": "quintain plan",
    "start_training": "quintain train",
    "evaluate_agent": "quintain evaluate",
    "compare_agents": "quintain compare",
    "export_agent": "quintain export-agent",
    "get_job": "quintain jobs watch",
    "cancel_job": "quintain jobs cancel",
    "resume_job": "quintain jobs resume",
    "list_jobs": "quintain jobs",
}
_POSITIONAL = {
    "export_dataset": "kind",
    "preview_dataset": "dataset_id",
    "get_lineage": "id",
    "score_trajectories": "scorer",
    "fit_calibration": "scorer",
    "record_preferences": "source",
    "plan_training": "goal",
    "evaluate_agent": "agent",
    "compare_agents": "agents",
    "export_agent": "agent",
    "get_job": "job_id",
    "cancel_job": "job_id",
    "resume_job": "job_id",
}
_OPTIONS = {"dataset_id": "dataset"}
"""Arguments whose option has another name."""

_WITHOUT = {"filter", "trajectory_ids", "hyperparameters", "curation", "sampling", "wait_s", "detail"}
"""Arguments that no command has in this form."""

_SERVED = ("search_trajectories", "get_trajectory", "collect_rollouts", "list_library", "register_agent", "plot_job")
"""Tools without a command of their own."""

_CALL = re.compile(rf"\b({'|'.join(_COMMANDS)})\b(?:\(([^()]*)\))?")
_TOOL = re.compile(rf"\b({'|'.join(_SERVED)})\b(\([^()]*\))?")
_ARGUMENT = re.compile(r"(\w+)=('[^']*'|\"[^\"]*\"|\[[^\]]*\]|\{[^}]*\}|[^,\s]+)")
_BARE = re.compile(r"[^\s\[\]'\",]+")
"""What stands between quotes, brackets and commas."""


def in_commands(text: str) -> str:
    """The text with commands in the place of calls of tools; a tool that has no command is named as one of the server."""
    return _TOOL.sub(r"\1 (a tool of quintain serve)", _CALL.sub(_command, text))


def _command(call: re.Match[str]) -> str:
    words, positional = [_COMMANDS[call[1]]], _POSITIONAL.get(call[1])
    given = {name: " ".join(_BARE.findall(value)) for name, value in _ARGUMENT.findall(call[2] or "")}
    if given.get("method") == "evolve":
        words, positional = ["quintain evolve"], "model"
        del given["method"]
    words += [value for name, value in given.items() if name == positional and value != "..."]
    if call[1] == "export_dataset" and call[2]:
        words.append("NAME")
    for name, value in given.items():
        if name == positional or name in _WITHOUT or value == "...":
            continue
        option = f"--{_OPTIONS.get(name, name).replace('_', '-')}"
        words.append(option if value == "true" else f"{option} {value}")
    return " ".join(words)
