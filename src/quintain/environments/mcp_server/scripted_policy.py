"""A policy that needs no model: it plays the scripts of generated tasks, for demonstrations and checks."""

from __future__ import annotations

from collections.abc import Iterable

from quintain.environments.mcp_server.episode import as_text
from quintain.environments.mcp_server.generation import expected
from quintain.environments.mcp_server.tasks import calls_of
from quintain.environments.scripted_policy import Move, Script, ScriptedPolicy
from quintain.errors import InvalidInput
from quintain.records.record import clip
from quintain.records.trajectory import Task


def expert(tasks: Iterable[Task], submit: str = "submit") -> ScriptedPolicy:
    """A policy for tasks that carry a script: its calls, one a turn, and then the answer.

    Args:
        tasks: Those that it will meet, told apart by their prompts.
        submit: The tool that takes the answer.
    """
    known = {task.prompt: task for task in tasks}

    def script(prompt: str) -> Script:
        task = known.get(prompt)
        if task is None or not calls_of(task, "script"):
            raise InvalidInput(f"the expert has no script for {clip(prompt)!r}")
        for call in calls_of(task, "script"):
            yield Move(f"Call {call.tool}.", call.tool, call.args)
        answer = expected(task)[0]
        yield Move(f"{task.metadata.get('field') or 'The answer'} is {as_text(answer)}.", submit, {"answer": answer})

    return ScriptedPolicy(script)
