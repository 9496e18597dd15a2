"""The warehouse as an environment: four tools, one call a turn, a verdict on `submit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr, ValidationError, WithJsonSchema

from quintain.environments.inventory.tasks import ENVIRONMENT_ID, VERSION, Case, build_case, draw_tasks, parse_key
from quintain.environments.inventory.world import Item
from quintain.records.record import Record, explain
from quintain.records.seams import Environment, TimeStep
from quintain.records.trajectory import Action, Observation, Task

SYSTEM_PROMPT = "You answer questions about a warehouse. Call one tool a turn; end with submit."


class Search(Record):
    """List items by name or category."""

    query: StrictStr


class Open(Record):
    """Show all fields of an item."""

    item_id: StrictStr


class Compare(Record):
    """List items by a field, lowest first."""

    item_ids: Annotated[list[StrictStr], Field(min_length=2, max_length=10)]
    field: Literal["price", "stock", "weight"]


class Submit(Record):
    """Give the final answer: a number or a name."""

    answer: Annotated[StrictStr | StrictInt | StrictFloat, WithJsonSchema({"type": ["string", "number"]})]


_ARGUMENTS: dict[str, type[Search | Open | Compare | Submit]] = {
    "search": Search,
    "open": Open,
    "compare": Compare,
    "submit": Submit,
}


def _schema(name: str, arguments: type[Record]) -> dict[str, Any]:
    """A tool in the OpenAI function style, from the model that checks its arguments."""
    drawn = arguments.model_json_schema()
    properties = {key: _bare(value) for key, value in drawn["properties"].items()}
    parameters = {"type": "object", "properties": properties, "required": drawn["required"]}
    return {
        "type": "function",
        "function": {"name": name, "description": arguments.__doc__, "parameters": parameters},
    }


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    """Without titles and bounds: every token of a schema is paid for in every episode."""
    return {key: value for key, value in schema.items() if key not in {"title", "minItems", "maxItems"}}


TOOLS = tuple(_schema(name, arguments) for name, arguments in _ARGUMENTS.items())


def normalise(answer: object) -> float | str:
    """What two answers must agree in: numbers by value, texts without case, article, quotes and outer punctuation."""
    text = str(answer).strip().strip("\"'.!").strip()
    try:
        return float(text.replace(",", ""))
    except ValueError:
        words = text.casefold().split()
        return " ".join(words[1:] if words[:1] == ["the"] else words)


class Warehouse:
    """One episode in the warehouse of one task."""

    id = ENVIRONMENT_ID
    system_prompt = SYSTEM_PROMPT
    tools = TOOLS
    max_turns = 8

    def __init__(self) -> None:
        self._case: Case | None = None

    def reset(self, task: Task) -> TimeStep:
        """Fill the shelves as the task's id says and ask its question."""
        self._case = build_case(parse_key(task.id))
        return TimeStep(message=self._case.prompt)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Carry out the one action of the turn; `submit` ends the episode with reward 1 or 0."""
        assert self._case is not None, "reset comes before step"
        if not actions:
            return TimeStep(message=f"You called no tool. Call one of: {', '.join(_ARGUMENTS)}.")
        if len(actions) > 1:
            refusal = _error(f"{len(actions)} calls in one turn and none was carried out; make one call a turn")
            return TimeStep(observations=(refusal,) * len(actions))
        arguments = _check(actions[0])
        if isinstance(arguments, str):
            return TimeStep(observations=(_error(arguments),))
        if isinstance(arguments, Submit):
            right = normalise(arguments.answer) == normalise(self._case.answer)
            told = Observation(content="Right." if right else "Wrong.")
            return TimeStep(observations=(told,), reward=float(right), terminated=True)
        return TimeStep(observations=(_look(self._case.items, arguments),))

    def close(self) -> None:
        """Nothing is held."""


def _check(action: Action) -> Search | Open | Compare | Submit | str:
    """The arguments of a call, or what is wrong with it."""
    model = _ARGUMENTS.get(action.tool)
    if model is None:
        return f"no tool is called {action.tool[:40]!r}; call one of: {', '.join(_ARGUMENTS)}"
    if action.args is None:
        return f"the arguments of {action.tool} are not valid JSON: {(action.raw_args or '')[:80]!r}"
    try:
        return model.model_validate(action.args)
    except ValidationError as error:
        return explain(error, action.tool)


def _look(items: tuple[Item, ...], arguments: Search | Open | Compare | Submit) -> Observation:
    known = {item.id: item for item in items}
    if isinstance(arguments, Search):
        words = set(arguments.query.casefold().split())
        found = [item.line for item in items if words & item.name.words]
        return Observation(content="\n".join(found) or "No item matches.")
    if isinstance(arguments, Open):
        item = known.get(arguments.item_id)
        if item is None:
            return _error(f"no item has the id {arguments.item_id[:40]!r}; search for it first")
        values = ", ".join(f"{field} {value}" for field, value in item.values.items())
        return Observation(content=f"{item.line}, {item.name.category}, {values}")
    assert isinstance(arguments, Compare)
    missing = [item_id[:40] for item_id in arguments.item_ids if item_id not in known]
    if missing:
        return _error(f"no item has the id {', '.join(map(repr, missing))}; search for it first")
    chosen = {known[item_id].id: known[item_id] for item_id in arguments.item_ids}.values()
    ordered = sorted(chosen, key=lambda item: item.values[arguments.field])
    return Observation(content="\n".join(f"{item.name} {item.values[arguments.field]}" for item in ordered))


def _error(text: str) -> Observation:
    return Observation(content=f"Error: {text}.", is_error=True)


class Inventory:
    """The task family `quintain/inventory`."""

    id = ENVIRONMENT_ID
    version = VERSION

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """`n` distinct tasks of `train` or `held_out`, types and difficulties in turn."""
        return draw_tasks(split, n, seed)

    def make(self) -> Environment:
        """A fresh warehouse."""
        return Warehouse()
