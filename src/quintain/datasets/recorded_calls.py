"""Recorded calls as data of a tool retriever: the need, the tool that answered it, and the tools that were offered beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.records.protocols import tool_function
from quintain.records.trajectory import Actor, Observation, Step, Trajectory, text_of
from quintain.records.wording import clip

MIN_TOOLS = 2
"""Different tools that a retriever needs to learn from: with one, every need has the same answer."""


class RecordedCall(NamedTuple):
    """A need and the tool that was called for it."""

    need: str
    """The latest message of the user before the call."""
    tool: str
    """Name of the called tool."""
    document: str
    """Its text, as `tool_document` writes it."""
    uncalled: tuple[str, ...]
    """Texts of the tools that the run offered and never called."""


class RunCalls(NamedTuple):
    """The calls of a run."""

    calls: tuple[RecordedCall, ...]
    """One for each pair of a need and a tool, in order of the first call."""
    left_out: Counter[str]
    """Reason -> calls: `failed_call`, `masked_call`, `undefined_tool`, `no_need`."""
    undefined: tuple[str, ...]
    """Names of called tools that the run does not define."""


def tool_document(definition: Mapping[str, Any]) -> str:
    """Return the text by which a tool is found: its name in words, its description, and the names of its parameters."""
    function = tool_function(definition)
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    words = str(function.get("name", "")).replace("_", " ")
    names = ", ".join(name.replace("_", " ") for name in properties) if isinstance(properties, Mapping) else ""
    return " ".join(f"{words}: {function.get('description') or ''} {names}".split())


def calls_of_run(run: Trajectory) -> RunCalls:
    """Return the calls of a run from which a retriever can learn.

    A call counts if it did not fail, may be trained on, follows a message of the user, and the run defines its tool.
    """
    documents = {str(tool_function(tool).get("name")): tool_document(tool) for tool in run.tools}
    called = {action.tool for step in run.agent_steps for action in step.actions}
    uncalled = tuple(document for name, document in documents.items() if name not in called)
    found: dict[tuple[str, str], RecordedCall] = {}
    left_out, undefined = Counter[str](), dict[str, None]()
    need = run.task.prompt.strip()
    for step in run.steps:
        if step.actor is Actor.USER:
            need = text_of(step.message).strip() or need
        for action, result in step.calls_with_results if step.actor is Actor.AGENT else ():
            if action.tool not in documents:
                undefined[action.tool] = None
                reason = "undefined_tool"
            else:
                reason = _why_not(step, result) or ("" if need else "no_need")
            if reason:
                left_out[reason] += 1
            else:
                call = RecordedCall(need, action.tool, documents[action.tool], uncalled)
                found.setdefault((need, action.tool), call)
    return RunCalls(tuple(found.values()), left_out, tuple(undefined))


def require_calls(runs: Iterable[Trajectory]) -> None:
    """Refuse runs from which no retriever can learn; reading ends at the first need that one of the tools does not answer.

    Raises:
        InvalidInput: Fewer than `MIN_TOOLS` different tools were called (`too_few_tools`), or each need was answered by all tools
            (`no_negatives`).
    """
    tools, undefined, left_out, n = dict[str, str](), dict[str, None](), Counter[str](), 0
    answers: dict[str, set[str]] = {}
    for run in runs:
        calls, reasons, unknown = calls_of_run(run)
        for call in calls:
            tools.setdefault(call.document, call.tool)
            answers.setdefault(call.need, set()).add(call.document)
        needs = [*{call.need for call in calls}, *list(answers)[:1]]  # the first one, in case that a new tool has come
        if len(tools) >= MIN_TOOLS and any(len(answers[need]) < len(tools) for need in needs):
            return
        n += 1
        left_out += reasons
        undefined |= dict.fromkeys(unknown)
    if len(tools) >= MIN_TOOLS:
        names = ", ".join(clip(name, 40) for name in list(tools.values())[:5])
        raise InvalidInput(
            f"expected a need that some tool does not answer, got {len(answers)} needs in {n} runs that called all {len(tools)} "
            f"tools ({names}), so there is nothing to tell apart; record runs that call the tools themselves, not a search for "
            "them (in quintain/tools-1k: mode=direct)",
            code="no_negatives",
        )
    because = ", ".join(f"{reason} {count}" for reason, count in sorted(left_out.items()))
    names = (
        f"; not defined by their runs: {', '.join(clip(name, 40) for name in list(undefined)[:5])}" if undefined else ""
    )
    raise InvalidInput(
        f"expected calls of at least {MIN_TOOLS} different tools, got {len(tools)} in {n} runs"
        f"{f' (left out: {because}{names})' if because else ''}; record runs with the definitions of their tools (`tools`), and "
        "export those that succeeded",
        code="too_few_tools",
    )


def _why_not(step: Step, result: Observation | None) -> str:
    """Return why a call with this result does not count; empty if it does."""
    if step.is_masked:
        return "masked_call"
    return "failed_call" if result is not None and result.is_error else ""
