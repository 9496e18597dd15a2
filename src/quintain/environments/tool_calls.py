"""Tool calls of an environment: each tool is a record, whose fields define its schema and validate the arguments of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from quintain.records.protocols import TimeStep
from quintain.records.record import Record
from quintain.records.trajectory import Action, Observation
from quintain.records.wording import explain

_OMITTED = {"title", "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum", "default"}


def tool_schemas(tools: Mapping[str, type[Record]]) -> tuple[dict[str, Any], ...]:
    """Return tool definitions in the OpenAI function style.

    Args:
        tools: Name -> record of its arguments, whose docstring becomes the description.
    """
    return tuple(_schema(name, arguments) for name, arguments in tools.items())


def _schema(name: str, arguments: type[Record]) -> dict[str, Any]:
    drawn = arguments.model_json_schema()
    properties = {key: _bare(value) for key, value in drawn["properties"].items()}
    parameters = {"type": "object", "properties": properties, "required": drawn.get("required", [])}
    return tool_definition(name, arguments.__doc__, parameters)


def tool_definition(name: str, description: str | None, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a tool in the OpenAI function style."""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without titles and bounds: each of its tokens costs in every episode."""
    return {key: value for key, value in schema.items() if key not in _OMITTED}


def single_call(actions: Sequence[Action], names: Sequence[str]) -> Action | TimeStep:
    """Return the only call of a turn, or the answer to a turn with no call or several; such a turn carries out nothing."""
    if not actions:
        return TimeStep(message=f"You called no tool. Call one of: {', '.join(names)}.")
    if len(actions) > 1:
        refused = refusal(f"{len(actions)} calls in one turn and none was carried out; make one call a turn")
        return TimeStep(observations=(refused,) * len(actions))
    return actions[0]


def arguments_of(action: Action, tools: Mapping[str, type[Record]]) -> Record | str:
    """Return the validated arguments of a call, or the text of its error."""
    model = tools.get(action.tool)
    if model is None:
        return f"no tool is called {action.tool[:40]!r}; call one of: {', '.join(tools)}"
    if action.args is None:
        return unreadable(action)
    try:
        return model.model_validate(action.args)
    except ValidationError as error:
        try:
            return explain(error, action.tool, verbatim=True)
        except RecursionError:
            return f"the arguments of {action.tool} are nested too deep to be read"


def read_call(actions: Sequence[Action], tools: Mapping[str, type[Record]]) -> Record | TimeStep:
    """Return the arguments of the only call of a turn, or the answer to a turn that cannot be carried out."""
    call = single_call(actions, list(tools))
    if isinstance(call, TimeStep):
        return call
    arguments = arguments_of(call, tools)
    return TimeStep(observations=(refusal(arguments),)) if isinstance(arguments, str) else arguments


def unreadable(action: Action) -> str:
    """Return the error text of a call whose arguments are not JSON."""
    return f"the arguments of {action.tool} are not valid JSON: {(action.raw_args or '')[:80]!r}"


def verdict(reward: float, info: Mapping[str, Any] | None = None) -> TimeStep:
    """Return the last step of an episode: `Right.` from a reward of 1 on, else `Wrong.`."""
    shown = Observation(content="Right." if reward >= 1 else "Wrong.")
    return TimeStep(observations=(shown,), reward=reward, terminated=True, info=dict(info or {}))


def refusal(text: str) -> Observation:
    """Return the observation of a call that was not carried out."""
    return Observation(content=f"Error: {text}.", is_error=True)
