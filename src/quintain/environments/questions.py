"""`quintain/tasks`: tasks of a file that one answer solves, judged by each row's answer or checker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, WithJsonSchema

from quintain.checkers.check import CHECKS, check, kind_of_check, uncheckable
from quintain.environments.scripted_policy import policy_by_prompt, submitted_answer
from quintain.environments.tasks.task_files import prompt_fault, read_tasks
from quintain.environments.tool_calls import read_call, tool_schemas, verdict
from quintain.errors import InvalidInput
from quintain.records.protocols import Environment, Policy, TimeStep
from quintain.records.record import Record
from quintain.records.score import CheckResult
from quintain.records.trajectory import Action, Observation, Task

ENVIRONMENT_ID = "quintain/tasks"
VERSION = "2"
SYSTEM_PROMPT = "Answer the question. End with submit, which takes your answer alone."
MAX_ANSWER = 20_000
_WHOLE = re.compile(r"-?[0-9]{1,18}")


class Submit(Record):
    """Give the final answer."""

    answer: Annotated[
        Annotated[StrictStr, Field(max_length=MAX_ANSWER)] | StrictInt | StrictFloat | StrictBool,
        WithJsonSchema({"type": ["string", "number", "boolean"]}),
    ]


_ARGUMENTS: dict[str, type[Record]] = {"submit": Submit}
TOOLS = tool_schemas(_ARGUMENTS)


def judge(task: Task, answer: str) -> TimeStep:
    """Return the last step of an episode with the answer's reward; an answer that cannot be checked gets none."""
    return _verdict(_checked(task, answer))


def _verdict(checked: CheckResult) -> TimeStep:
    if checked.value is None:
        return TimeStep(
            observations=(Observation(content="The answer cannot be checked."),),
            terminated=True,
            info={"unchecked": checked.reason},
        )
    return verdict(checked.value)


def judge_text(task: Task, text: str) -> TimeStep:
    """Return the last step of an episode whose answer is a turn's text, as in evaluations without tools."""
    return _verdict(_checked(task, text, task.prompt)).model_copy(update={"observations": ()})


def _checked(task: Task, answer: str, prompt: str = "") -> CheckResult:
    """Check an answer by the task's checker; integers, the most frequent case, are compared directly."""
    expected = task.metadata.get("answer")
    if "checker" not in task.metadata and _WHOLE.fullmatch(str(expected)) and _WHOLE.fullmatch(answer):
        return CheckResult(float(int(str(expected)) == int(answer)), "two whole numbers")
    return check(task, [answer], prompt)


def unanswerable(task: Task, *, is_open: bool = False) -> str | None:
    """Return why answers to a task cannot be judged, or need not be if it may be open; None: they can."""
    if (fault := prompt_fault(task)) is not None:
        return fault
    kind = kind_of_check(task)
    if kind is None:
        return None if is_open else "it has neither an answer nor a checker"
    if kind not in CHECKS:
        return (
            f"expected a checker of type {', '.join(CHECKS)} for {ENVIRONMENT_ID}, got {kind[:40]!r}; "
            "play the task in an environment that supports it"
        )
    return uncheckable(task)


class Question:
    """One episode: a question and its answer."""

    id = ENVIRONMENT_ID
    max_turns = 4

    def __init__(self, *, plain: bool = False, is_open: bool = False) -> None:
        """Offer the question.

        Args:
            plain: Leave system prompt and tool out, as rows of prompt and answer have none.
            is_open: Take tasks without an answer, too; their episodes end without a verdict.
        """
        self.system_prompt = "" if plain else SYSTEM_PROMPT
        self.tools = () if plain else TOOLS
        self._plain, self._is_open = plain, is_open
        self._task: Task | None = None

    def reset(self, task: Task) -> TimeStep:
        """Return the task's question.

        Raises:
            InvalidInput: answers to it cannot be judged.
        """
        if (fault := unanswerable(task, is_open=self._is_open)) is not None:
            raise InvalidInput(f"cannot play task {task.id!r} in {ENVIRONMENT_ID}: {fault}", code="unknown_task")
        self._task = task
        return TimeStep(message=task.prompt)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Judge the answer; any other call gets an error. A turn that is empty is a wrong answer to a plain question."""
        assert self._task is not None, "reset comes before step"
        if self._plain and not actions:
            return TimeStep(reward=0.0, terminated=True)
        arguments = read_call(actions, _ARGUMENTS)
        if isinstance(arguments, TimeStep):
            return arguments
        assert isinstance(arguments, Submit)
        return judge(self._task, str(arguments.answer))

    def take_answer(self, text: str) -> TimeStep:
        """Judge the text of a turn without a call."""
        assert self._task is not None, "reset comes before take_answer"
        return judge_text(self._task, text)

    def close(self) -> None:
        """Do nothing."""


class Questions:
    """The tasks of a file, each with its answer or checker."""

    id = ENVIRONMENT_ID

    def __init__(
        self,
        file: Path | None = None,
        plain: bool = False,
        prompt: str | None = None,
        answer: str | None = None,
        type: str | None = None,
        open: bool = False,
    ) -> None:
        """Read the file; without one there are no tasks to draw.

        Args:
            file: The tasks.
            plain: As `Question`.
            prompt: Column of the question, where it is not called so.
            answer: Column of the right answer.
            type: Column by which evaluations report success.
            open: Take prompts without an answer, for a `reward` of the job to value: these episodes have no verdict.
        """
        named = {"prompt": prompt, "answer": answer, "type": type}
        columns = {field: column for field, column in named.items() if column is not None}
        self._file = None if file is None else read_tasks(file, columns)
        self._plain, self._is_open = plain, open
        version = f"{VERSION}-plain" if plain else VERSION
        self.version = version if self._file is None else self._file.version_of(version)
        if self._file is not None:
            self._file.require(partial(unanswerable, is_open=open))

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """Return `n` tasks of the file.

        Raises:
            InvalidInput: no file, an unknown split, or too few tasks in it.
        """
        if self._file is None:
            raise InvalidInput(
                f"expected a task file for {ENVIRONMENT_ID}, got none; name it as {ENVIRONMENT_ID}?file=PATH, or give "
                "tasks from a chat to collect_rollouts as `tasks`",
                code="no_task_file",
            )
        return [task.model_copy(update={"environment": self.id}) for task in self._file.draw(split, n, seed)]

    def make(self) -> Environment:
        """Return a fresh environment."""
        return Question(plain=self._plain, is_open=self._is_open)

    def expert(self, tasks: Sequence[Task]) -> Policy:
        """Return a policy that submits the stated answer of each task."""
        return policy_by_prompt({task.prompt: partial(submitted_answer, task) for task in tasks})
