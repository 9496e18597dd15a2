"""Tool calls of an environment, each tool one record: its fields give the schema, and check the arguments of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from quintain.records.record import Record, explain
from quintain.records.seams import TimeStep
from quintain.records.trajectory import Action, Observation

_UNTOLD = {"title", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum", "default"}


def tool_schemas(tools: Mapping[str, type[Record]]) -> tuple[dict[str, Any], ...]:
    """Tools in the OpenAI function style.

    Args:
        tools: Name -> the record of its arguments, whose docstring says what it does.
    """
    return tuple(_schema(name, arguments) for name, arguments in tools.items())


def _schema(name: str, arguments: type[Record]) -> dict[str, Any]:
    drawn = arguments.model_json_schema()
    properties = {key: _bare(value) for key, value in drawn["properties"].items()}
    parameters = {"type": "object", "properties": properties, "required": drawn.get("required", [])}
    return {
        "type": "function",
        "function": {"name": name, "description": arguments.__doc__, "parameters": parameters},
    }


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    """Without titles and bounds: every token of a schema is paid for in every episode."""
    return {key: value for key, value in schema.items() if key not in _UNTOLD}


def only_call(actions: Sequence[Action], names: Sequence[str]) -> Action | TimeStep:
    """The one call of a turn, or what to answer where there is none, or more than one: nothing is carried out then."""
    if not actions:
        return TimeStep(message=f"You called no tool. Call one of: {', '.join(names)}.")
    if len(actions) > 1:
        told = refusal(f"{len(actions)} calls in one turn and none was carried out; make one call a turn")
        return TimeStep(observations=(told,) * len(actions))
    return actions[0]


def arguments_of(action: Action, tools: Mapping[str, type[Record]]) -> Record | str:
    """The arguments of a call as the record of its tool, or what is wrong with it."""
    model = tools.get(action.tool)
    if model is None:
        return f"no tool is called {action.tool[:40]!r}; call one of: {', '.join(tools)}"
    if action.args is None:
        return unreadable(action)
    try:
        return model.model_validate(action.args)
    except ValidationError as error:
        try:
            return explain(error, action.tool)
        except RecursionError:
            return f"the arguments of {action.tool} are nested too deep to be read"


def unreadable(action: Action) -> str:
    """What is wrong with a call whose arguments could not be read."""
    return f"the arguments of {action.tool} are not valid JSON: {(action.raw_args or '')[:80]!r}"


def refusal(text: str) -> Observation:
    """What an agent is told of a call that was not carried out."""
    return Observation(content=f"Error: {text}.", is_error=True)
