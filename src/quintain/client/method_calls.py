"""The names of the client's methods and their arguments, and calls of tools in texts as calls of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from quintain.errors import QuintainError
from quintain.next_step import Hint, ToolCall
from quintain.records.record import Record
from quintain.tools.catalog import rewrite_calls

METHODS: Mapping[str, str] = {
    "import_trajectories": "import_logs",
    "export_dataset": "create_dataset",
    "preview_dataset": "preview",
    "list_library": "library",
    "get_lineage": "lineage",
    "score_trajectories": "score",
    "fit_calibration": "calibrate",
    "get_judging_batch": "judging_batch",
    "tag_trajectories": "tag",
    "plan_training": "plan",
    "start_training": "train",
    "cancel_job": "cancel",
    "resume_job": "resume",
    "annotate_job": "annotate",
    "plot_job": "plot",
    "collect_rollouts": "collect",
    "evaluate_agent": "evaluate",
    "compare_agents": "compare",
    "search_trajectories": "runs",
    "get_trajectory": "trajectory",
    "get_job": "job",
}
"""Tool -> method of `Home`. A tool that is not named here has its own name."""

_ARGUMENTS = {
    "dataset_id": "dataset",
    "trajectory_ids": "trajectories",
    "trajectory_id": "trajectory",
    "job_id": "job",
    "id": "thing",
}
_OWN_ARGUMENTS = {("record_trajectory", "trajectory_id"): "recording", ("export_dataset", "path"): "data"}
_BY_ID = {"get_job": "job_id", "get_trajectory": "trajectory_id"}
"""Tools whose methods take an id alone."""


def argument_of(tool: str, name: str) -> str:
    """Return the name of a tool's argument in its method."""
    return _OWN_ARGUMENTS.get((tool, name), _ARGUMENTS.get(name, name))


def method_call(call: ToolCall) -> str:
    """Return the call of the method that calls a tool, such as `home.train(method='sft')`."""
    method, given = f"home.{METHODS.get(call.tool, call.tool)}", call.arguments
    if call.tool in _BY_ID:
        given = {"id": given[_BY_ID[call.tool]]} if _BY_ID[call.tool] in given else {}
    else:
        given = {argument_of(call.tool, name): value for name, value in given.items()}
    if call.tool == "search_trajectories" and isinstance(conditions := given.get("filter"), Mapping):
        given = {**conditions, **{name: value for name, value in given.items() if name != "filter"}}
    return str(ToolCall(method, given))


def in_methods(value: Any) -> Any:
    """Return a result of a tool whose hints, nested ones too, name methods."""
    if isinstance(value, Hint):
        return Hint(value.render(method_call))
    if type(value) is tuple:  # and no picture
        return tuple(map(in_methods, value))
    if isinstance(value, dict):
        return {in_methods(key): in_methods(one) for key, one in value.items()}
    if isinstance(value, Record):
        return value.model_copy(update={name: in_methods(one) for name, one in value if name in value.model_fields_set})
    return value


@contextmanager
def errors_name_methods() -> Iterator[None]:
    """Let the errors of a block name methods where they named tools."""
    try:
        yield
    except QuintainError as error:
        error.message = rewrite_calls(str(error.message), method_call)
        raise
