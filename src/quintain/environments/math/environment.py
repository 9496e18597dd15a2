"""Word problems as an environment: a calculator, and a verdict on `submit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field, StrictFloat, StrictInt, StrictStr, WithJsonSchema

from quintain.checkers.answers import expected_answers, states_number
from quintain.checkers.quantities import quantity
from quintain.environments.math.calculator import calculate, format_number
from quintain.environments.math.problems import ENVIRONMENT_ID, FAMILY, Problem, build_problem
from quintain.environments.questions import judge, judge_text
from quintain.environments.scripted_policy import Move, Script, policy_by_prompt, stated_answer, submitted_answer
from quintain.environments.tasks.families import Difficulty, FamilySource, Names, TaskKey
from quintain.environments.tasks.task_files import prompt_fault, read_tasks
from quintain.environments.tool_calls import read_call, refusal, tool_schemas
from quintain.errors import InvalidInput
from quintain.records.protocols import Environment, Policy, TimeStep
from quintain.records.record import Record
from quintain.records.trajectory import Action, Observation, Task
from quintain.records.wording import clip

SYSTEM_PROMPT = "You solve word problems. Call one tool a turn; end with submit."
FILE_VERSION = "2"
"""Version of the rules for problems of a file."""
MAX_ANSWER = 1000


class Calculate(Record):
    """Work out an arithmetic expression, such as (3 + 4) * 12."""

    expression: StrictStr


class Submit(Record):
    """Give the final answer: a number."""

    answer: Annotated[
        Annotated[StrictStr, Field(max_length=MAX_ANSWER)] | StrictInt | StrictFloat,
        WithJsonSchema({"type": ["string", "number"]}),
    ]


_ARGUMENTS: dict[str, type[Record]] = {"calculate": Calculate, "submit": Submit}
TOOLS = tool_schemas(_ARGUMENTS)


class Exercise:
    """One episode: one problem."""

    id = ENVIRONMENT_ID
    system_prompt = SYSTEM_PROMPT
    tools = TOOLS
    max_turns = 10

    def __init__(self) -> None:
        self._judged: Task | None = None
        self._is_generated = False

    def reset(self, task: Task) -> TimeStep:
        """Return the problem: a generated one by its id, any other by its prompt and stated answer.

        Raises:
            InvalidInput: the task is not a generated one, and states no number as its answer.
        """
        if "answer" in task.metadata or "checker" in task.metadata:
            if (fault := _unsolvable(task)) is not None:
                raise InvalidInput(f"cannot play task {task.id!r} in {ENVIRONMENT_ID}: {fault}", code="unknown_task")
            self._judged = task
            return TimeStep(message=task.prompt)
        problem = build_problem(FAMILY.parse(task.id))
        self._is_generated = True
        self._judged = Task(id=task.id, metadata={"answer": problem.answer})
        return TimeStep(message=problem.prompt)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Evaluate an expression, or judge the answer."""
        assert self._judged is not None, "reset comes before step"
        arguments = read_call(actions, _ARGUMENTS)
        if isinstance(arguments, TimeStep):
            return arguments
        if isinstance(arguments, Calculate):
            try:
                return TimeStep(observations=(Observation(content=format_number(calculate(arguments.expression))),))
            except InvalidInput as error:
                return TimeStep(observations=(refusal(error.message),))
        assert isinstance(arguments, Submit)
        return judge(self._judged, str(arguments.answer))

    def take_answer(self, text: str) -> TimeStep:
        """Judge the text of a turn without a call, if the problem states its answer and the text a number."""
        assert self._judged is not None, "reset comes before take_answer"
        if self._is_generated or not states_number(text, self._judged.prompt):
            return self.step(())
        return judge_text(self._judged, text)

    def close(self) -> None:
        """Do nothing."""


def _unsolvable(task: Task) -> str | None:
    """Return why a problem of a file cannot be judged; None: its answer is a number."""
    if (fault := prompt_fault(task)) is not None:
        return fault
    expected = expected_answers(task)
    if not expected:
        return "it states no answer"
    wrong = next((answer for answer in expected if quantity(answer) is None), None)
    return None if wrong is None else f"expected a number as its answer, got {clip(wrong)!r}"


class Math(FamilySource):
    """The task family `quintain/math`: generated problems, or those of a file in the format of GSM8K."""

    family = FAMILY

    def __init__(self, file: Path | None = None, difficulty: Difficulty = "all", types: Names = ("all",)) -> None:
        """Choose generated problems by difficulty and type, or take the problems of a file.

        Raises:
            NotFound: the file does not exist.
            InvalidInput: an unknown type, a file together with types or a difficulty, or a bad row.
        """
        super().__init__(difficulty, types)
        if file is not None:
            problems = read_tasks(file)
            self._play_file(problems, FILE_VERSION)
            problems.require(_unsolvable)

    def prompt(self, key: TaskKey) -> str:
        """Return the text of a generated problem."""
        return build_problem(key).prompt

    def make(self) -> Environment:
        """Return a fresh environment."""
        return Exercise()

    def expert(self, tasks: Sequence[Task]) -> Policy:
        """Return the scripted expert; problems that state their answer are solved by submitting it."""
        scripts: dict[str, Callable[[], Script]] = {}
        for task in tasks:
            if stated_answer(task) is not None:
                scripts[task.prompt] = partial(submitted_answer, task)
            else:
                problem = build_problem(FAMILY.parse(task.id))
                scripts[problem.prompt] = partial(_calculations, problem)
        return policy_by_prompt(scripts)


def _calculations(problem: Problem) -> Script:
    """Calculate a generated problem sentence by sentence, and submit the result."""
    value = ""
    for effect, numbers in problem.steps:
        known: dict[str, object] = {"x": value, **numbers}
        expression = " ".join(str(known.get(word, word)) for word in effect.split())
        if expression.isdigit():
            value = expression
        else:
            value = yield Move(f"{expression}.", "calculate", {"expression": expression})
    yield Move(f"It is {value}.", "submit", {"answer": int(value)})
