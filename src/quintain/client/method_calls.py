"""The names of the client's methods and their arguments, and calls of tools in texts as calls of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from quintain.errors import QuintainError
from quintain.next_step import Hint, ToolCall
from quintain.records.record import Record
from quintain.tools.catalog import tool as find
from quintain.tools.catalog import translate
from quintain.tools.invocation import arguments_model

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


def in_methods(value: Any, tool: str = "") -> Any:
    """Return a result of a tool whose hints, nested ones too, name methods and the arguments of the tool's own."""
    if isinstance(value, Hint):
        return Hint(explain_for_python(value, tool))
    if type(value) is tuple:  # and no picture
        return tuple(in_methods(one, tool) for one in value)
    if isinstance(value, dict):
        return {in_methods(key, tool): in_methods(one, tool) for key, one in value.items()}
    if isinstance(value, Record):
        named = {name: in_methods(one, tool) for name, one in value if name in value.model_fields_set}
        return value.model_copy(update=named)
    return value


def explain_for_python(text: str, tool: str = "") -> str:
    """Return a text of ours with calls of methods in place of tools, and the arguments of a tool by their names in its method."""
    known = arguments_model(find(tool)).model_fields if tool else ()

    def own_name(code: str) -> str | None:
        name = re.split(r"\W", code, maxsplit=1)[0]
        own = argument_of(tool, name) if name in known else name
        return None if own == name else f"`{own}{code[len(name) :]}`"

    return translate(text, method_call, own_name)


@contextmanager
def errors_name_methods(tool: str = "") -> Iterator[None]:
    """Let the errors of a block, which calls a tool, name methods and their arguments."""
    try:
        yield
    except QuintainError as error:
        error.message = explain_for_python(error.message, tool)
        raise
