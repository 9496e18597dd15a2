"""A scripted policy for tasks of MCP servers, generated or written: it plays the script in their metadata."""

from __future__ import annotations

from collections.abc import Iterable

from quintain.environments.mcp_server.episode import as_text
from quintain.environments.mcp_server.generation import expected_answers
from quintain.environments.mcp_server.tasks import calls_of
from quintain.environments.scripted_policy import Move, Script, ScriptedPolicy
from quintain.errors import InvalidInput
from quintain.records.record import clip
from quintain.records.trajectory import Task


def expert(tasks: Iterable[Task], submit: str = "submit") -> ScriptedPolicy:
    """Return a policy for tasks with a script: its calls, one per turn, then the answer, if the task asks for one.

    Args:
        tasks: The tasks to play, with distinct prompts.
        submit: Tool that takes the answer.
    """
    known = {task.prompt: task for task in tasks}

    def script(prompt: str) -> Script:
        task = known.get(prompt)
        if task is None or not calls_of(task, "script"):
            raise InvalidInput(f"expected the prompt of a task with a script, got {clip(prompt)!r}")
        for call in calls_of(task, "script"):
            yield Move(f"Call {call.tool}.", call.tool, call.args)
        for answer in expected_answers(task)[:1]:  # without one the script has done all, and says so without a call
            yield Move(
                f"{task.metadata.get('field') or 'The answer'} is {as_text(answer)}.", submit, {"answer": answer}
            )

    return ScriptedPolicy(script)
