"""A tool-selection environment: find the right one of a thousand tools and call it with the right arguments.

In mode `search` the agent has two tools, `search_tools` and `call_tool`. In mode `direct` it has `k` of the thousand tools,
including the right one; in mode `retrieved` the `k` tools that a retriever finds by the prompt. A call that fits the schema of its
tool ends the episode; any other call returns an error. The `info["metrics"]` of the last step measures the search: all listed tools,
in the order of first appearance, form one ranking; in mode `retrieved` the offered tools. Without a search there are no ranking
metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictInt, StrictStr

from quintain.environments.configuration import BM25
from quintain.environments.scripted_policy import Move, Script, policy_by_prompt
from quintain.environments.tasks.families import Difficulty, FamilySource, Names, TaskKey
from quintain.environments.tool_calls import read_call, refusal, single_call, tool_schemas, unreadable, verdict
from quintain.environments.tools_1k.catalogue import (
    ENVIRONMENT_ID,
    FAMILY,
    PARAMETERS,
    VERSION,
    Need,
    Tool,
    build_need,
    catalogue,
    catalogue_with,
)
from quintain.environments.tools_1k.retriever import KS, ranking_metrics
from quintain.errors import InvalidInput
from quintain.records.protocols import Environment, Policy, TimeStep
from quintain.records.record import Record, require_number
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Action, Observation, Task
from quintain.records.wording import clip, nearest

SEARCH_PROMPT = "You do what is asked by calling one of many tools. Find it with search_tools, then use call_tool once."
DIRECT_PROMPT = "You do what is asked by calling the one tool that fits, once."
CANDIDATES = 10

Mode = Literal["search", "direct", "retrieved"]
Candidates = Annotated[int, Field(ge=2, le=50), BeforeValidator(lambda k: require_number(k))]


class SearchTools(Record):
    """List the k tools that fit a description best."""

    query: Annotated[StrictStr, Field(min_length=1, max_length=1000)]
    k: Annotated[StrictInt, Field(ge=1, le=20)] = 5


class CallTool(Record):
    """Call a tool by its name, with its arguments as an object."""

    name: StrictStr
    args: dict[str, Any]


_ARGUMENTS: dict[str, type[Record]] = {"search_tools": SearchTools, "call_tool": CallTool}
TOOLS = tool_schemas(_ARGUMENTS)


class SearchEpisode:
    """An episode of mode `search`."""

    id = ENVIRONMENT_ID
    system_prompt = SEARCH_PROMPT
    tools = TOOLS
    max_turns = 10

    def __init__(self, retriever: str = BM25) -> None:
        self._retriever = retriever
        self._need: Need | None = None
        self._seen: dict[str, None] = {}
        self._searches = 0

    def reset(self, task: Task) -> TimeStep:
        """Start the task and return its prompt."""
        self._need = build_need(FAMILY.parse(task.id))
        self._seen, self._searches = {}, 0
        return TimeStep(message=self._need.prompt)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Search, or run the call that ends the episode."""
        assert self._need is not None, "reset comes before step"
        arguments = read_call(actions, _ARGUMENTS)
        if isinstance(arguments, TimeStep):
            return arguments
        if isinstance(arguments, SearchTools):
            return self._search(arguments)
        assert isinstance(arguments, CallTool)
        tool = catalogue().tools.get(arguments.name)
        if tool is None:
            near = nearest(arguments.name, self._seen)
            fault = f"no tool of the catalogue is called {clip(arguments.name)!r}{near}; find one with search_tools"
            return TimeStep(observations=(refusal(fault),))
        return _finish(self._need, tool, arguments.args, self._metrics())

    def close(self) -> None:
        """Do nothing: the episode has no resources."""

    def _search(self, wanted: SearchTools) -> TimeStep:
        found = catalogue_with(self._retriever).search(wanted.query, wanted.k)
        self._searches += 1
        self._seen.update(dict.fromkeys(tool.name for tool in found))
        listed = "\n".join(tool.line for tool in found) or "No tool matches; try other words."
        # Every search returns metrics, because an episode at its turn limit ends without a call.
        return TimeStep(observations=(Observation(content=listed),), info={"metrics": self._metrics()})

    def _metrics(self) -> dict[str, float]:
        assert self._need is not None
        if not self._searches:
            return {"searches": 0.0}
        ranking = ranking_metrics(list(self._seen), frozenset((self._need.tool.name,)))
        return {**ranking, "searches": float(self._searches)}


class DirectEpisode:
    """An episode of mode `direct`, or with a retriever of mode `retrieved`."""

    id = ENVIRONMENT_ID
    system_prompt = DIRECT_PROMPT
    max_turns = 4

    def __init__(self, candidates: int, retriever: str | None = None) -> None:
        self.tools: tuple[dict[str, Any], ...] = ()
        self._candidates, self._retriever = candidates, retriever
        self._offered: dict[str, Tool] = {}
        self._need: Need | None = None

    def reset(self, task: Task) -> TimeStep:
        """Start the task with its candidate tools and return its prompt."""
        key = FAMILY.parse(task.id)
        self._need = need = build_need(key)
        if self._retriever is None:
            tools = candidate_tools(need, self._candidates, Random(stable_seed(VERSION, "candidates", key.id)))
        else:
            tools = catalogue_with(self._retriever).search(need.prompt, self._candidates)
        self._offered = {tool.name: tool for tool in tools}
        self.tools = tuple(tool.schema for tool in tools)
        return TimeStep(message=need.prompt)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Run the call that ends the episode."""
        assert self._need is not None, "reset comes before step"
        call = single_call(actions, list(self._offered))
        if isinstance(call, TimeStep):
            return call
        tool = self._offered.get(call.tool)
        if tool is None:
            fault = f"no tool is called {call.tool[:40]!r}; call one of: {', '.join(self._offered)}"
            return TimeStep(observations=(refusal(fault),), info={"metrics": self._metrics()})
        if call.args is None:
            return TimeStep(observations=(refusal(unreadable(call)),))
        return _finish(self._need, tool, call.args, self._metrics())

    def close(self) -> None:
        """Do nothing: the episode has no resources."""

    def _metrics(self) -> dict[str, float]:
        if self._retriever is None or self._need is None:
            return {}
        ks = [k for k in KS if k <= self._candidates]  # what ranks behind the tools that are offered is unknown
        return ranking_metrics(list(self._offered), frozenset((self._need.tool.name,)), ks)


def candidate_tools(need: Need, k: int, rng: Random) -> list[Tool]:
    """Return the right tool and the best search results for the prompt, filled up at random to `k`, shuffled."""
    everything = catalogue()
    others = [tool for tool in everything.search(need.prompt, k) if tool is not need.tool][: k - 1]
    if len(others) < k - 1:
        chosen = {need.tool.name, *(tool.name for tool in others)}
        rest = [tool for name, tool in everything.tools.items() if name not in chosen]
        others += rng.sample(rest, k - 1 - len(others))
    tools = [need.tool, *others]
    rng.shuffle(tools)
    return tools


def _finish(need: Need, tool: Tool, args: dict[str, Any], figures: dict[str, float]) -> TimeStep:
    if (fault := tool.argument_error(args)) is not None:
        return TimeStep(observations=(refusal(fault),))
    right_tool = tool.name == need.tool.name
    right = right_tool and _same_arguments(need.args, args)
    metrics = {**figures, "tool_correct": float(right_tool), "arguments_correct": float(right)}
    return verdict(float(right), {"metrics": metrics})


def _same_arguments(wanted: dict[str, Any], actual: dict[str, Any]) -> bool:
    """Return whether names and values are equal, ignoring case and whitespace of texts."""
    return wanted.keys() == actual.keys() and all(_plain(wanted[name]) == _plain(actual[name]) for name in wanted)


def _plain(value: Any) -> Any:
    return " ".join(value.casefold().split()) if isinstance(value, str) else value


class ThousandTools(FamilySource):
    """The task family `quintain/tools-1k`; the right tools of the two splits are disjoint."""

    family = FAMILY

    def __init__(
        self,
        mode: Mode = "search",
        k: Candidates | None = None,
        difficulty: Difficulty = "all",
        types: Names = ("all",),
        retriever: str = BM25,
    ) -> None:
        """Configure the mode and filter the tasks.

        Args:
            mode: `search`, or with candidates: `direct` or `retrieved`.
            k: Number of candidates, default 10.
            difficulty: One difficulty, or `all`.
            types: Categories, or `all`.
            retriever: Finder of tools: `bm25`, or an agent of method `retriever`, here by the folder of its model.

        Raises:
            InvalidInput: A category is unknown, `k` is given in mode `search`, or a retriever in mode `direct`.
        """
        if mode == "search" and k is not None:
            raise InvalidInput(
                "expected k in modes direct and retrieved only, got it in mode search, where the agent chooses k; add "
                "mode=direct or remove k",
                code="bad_option",
            )
        if mode == "direct" and retriever != BM25:
            raise InvalidInput(
                "expected retriever in modes search and retrieved only, got it in mode direct, where the right tool is always a "
                "candidate; set mode=retrieved or remove retriever",
                code="bad_option",
            )
        super().__init__(difficulty, types)
        self._retriever, self._mode = retriever, mode
        self._candidates = (k or CANDIDATES) if mode != "search" else None
        if self._candidates is not None:
            self.version += f"-{mode}{self._candidates}"

    def prompt(self, key: TaskKey) -> str:
        """Return the request of a task."""
        return build_need(key).prompt

    def make(self) -> Environment:
        """Return a new episode."""
        if self._candidates is None:
            return SearchEpisode(self._retriever)
        return DirectEpisode(self._candidates, self._retriever if self._mode == "retrieved" else None)

    def expert(self, tasks: Sequence[Task]) -> Policy:
        """Return the scripted expert of the mode: demonstrations, and an upper bound for tests."""
        script = _search_and_call if self._candidates is None else _call_directly
        needs = [build_need(FAMILY.parse(task.id)) for task in tasks]
        return policy_by_prompt({need.prompt: partial(script, need) for need in needs})


def _search_and_call(need: Need) -> Script:
    query = f"{need.tool.verb} {need.tool.object.replace('_', ' ')}"
    found = yield Move(f"I need to {query}.", "search_tools", {"query": query, "k": 5})
    names = [line.partition("(")[0] for line in found.splitlines()]
    chosen = need.tool.name if need.tool.name in names else names[0]
    yield Move(f"{chosen} does that.", "call_tool", {"name": chosen, "args": _in_order(need.args)})


def _call_directly(need: Need) -> Script:
    yield Move(f"{need.tool.name} does that.", need.tool.name, _in_order(need.args))


def _in_order(args: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments in the order of the catalogue."""
    return {name: args[name] for name in PARAMETERS if name in args}
