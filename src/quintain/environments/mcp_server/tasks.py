"""Tasks on a server: their checks, setup calls and scripts, and tasks from recordings of successful runs.

Checks are of the submitted answer, the server's state, or the calls that the agent made:

{"type": "answer", "answer": 42}                                             or `json`, `regex` (see checkers/)
{"type": "state", "tool": "read_note", "args": {"id": 1}, "contains": "milk"}      or `expect`, `regex`, `json`
{"type": "calls", "expect": [{"tool": "add", "args": {"a": 1}}], "order": true}    other arguments are free
{"type": "all", "checkers": [...]}                                                 every check must pass
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from quintain.checkers.check import check as check_text
from quintain.checkers.declared import checker_type
from quintain.checkers.json_equality import difference
from quintain.checkers.patterns import check_pattern
from quintain.checkers.values import same
from quintain.environments.servers import Call, ToolResult
from quintain.environments.tasks.task_files import prompt_fault
from quintain.errors import InvalidInput
from quintain.records.record import Record
from quintain.records.score import CheckResult
from quintain.records.trajectory import OutcomeStatus, Task, Trajectory
from quintain.records.wording import clip, explain


class AnswerCheck(Record):
    """Check of the submitted answer by `quintain.checkers`."""

    type: Literal["answer", "json", "regex"]
    answer: Any = None
    answers: tuple[str | int | float, ...] | None = None
    expected: Any = None
    tolerance: float | None = Field(default=None, ge=0)
    pattern: str | None = None
    flags: str = ""
    full: bool = False

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if self.type == "regex" and not self.pattern:
            raise ValueError("expected a `pattern` in a regex checker, got none")
        if self.type != "regex" and self.answer is None and self.expected is None and not self.answers:
            raise ValueError(f"expected an `answer` in a checker of type {self.type!r}, got none")
        return self


class StateCheck(Record):
    """Check of a tool's result after the episode, against exactly one expectation."""

    type: Literal["state"]
    tool: str = Field(min_length=1)
    args: dict[str, Any] = Field(default_factory=dict)
    expect: str | int | float | None = Field(default=None, description="The whole text, numbers by value.")
    contains: str | None = None
    regex: str | None = None
    json_value: Any = Field(default=None, alias="json", description="The structured content, or the text as JSON.")

    @model_validator(mode="after")
    def _expects_one_thing(self) -> Self:
        if len(self.model_fields_set & {"expect", "contains", "regex", "json_value"}) != 1:
            raise ValueError("expected exactly one of `expect`, `contains`, `regex`, `json` in a state checker")
        return self


class CallsCheck(Record):
    """Check that the agent made these calls successfully, with at least the arguments named here."""

    type: Literal["calls"]
    expect: tuple[Call, ...] = Field(min_length=1, max_length=100)
    order: bool = False


Check = Annotated[AnswerCheck | StateCheck | CallsCheck, Field(discriminator="type")]
_TEXTS = ("answer", "json", "regex")
_BARE = ("answer", "answers", "expected", "pattern")
_CHECKS: TypeAdapter[tuple[Check, ...]] = TypeAdapter(tuple[Check, ...])


class Verdict(NamedTuple):
    """Joint result of a task's checks."""

    value: float | None
    """1: all pass; 0: one fails; None: there are no checks, or one is undecided."""
    reasons: tuple[str, ...]


def read_checks(metadata: Mapping[str, Any], where: str = "checker") -> tuple[Check, ...]:
    """Return the checks of a task from its `checker` or its `answer`; empty if it has neither.

    Raises:
        InvalidInput: an invalid checker.
    """
    declared = metadata.get("checker")
    if isinstance(declared, Mapping) and declared.get("type") == "all":
        declared = declared.get("checkers")
    if not isinstance(declared, list | tuple):
        declared = [] if declared is None and metadata.get("answer") is None else [_of_text(metadata) or declared]
    try:
        return _CHECKS.validate_python(tuple(declared))
    except ValidationError as error:
        raise InvalidInput(explain(error, where), code="bad_checker") from None


def _of_text(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a text checker in full form: task files may use a synonym or a bare word, or give the answer alone."""
    kind = checker_type(Task(metadata=dict(metadata))) or "answer"
    if kind not in _TEXTS:
        return None
    declared = metadata.get("checker")
    fields = declared if isinstance(declared, Mapping) else {name: metadata[name] for name in _BARE if name in metadata}
    return {**fields, "type": kind}


def needs_answer(checks: Sequence[Check]) -> bool:
    """Whether the agent must submit an answer."""
    return any(isinstance(check, AnswerCheck) for check in checks)


def judge(
    checks: Sequence[Check], answer: str | None, calls: Sequence[Call], ask: Callable[[Call], ToolResult]
) -> Verdict:
    """Return the verdict on an episode.

    Args:
        checks: Checks of the task.
        answer: The submitted answer; None: none.
        calls: Calls that the server carried out without an error, in order.
        ask: Calls a tool of the server.
    """
    found = [_run_check(check, answer, calls, ask) for check in checks]
    values = [checked.value for checked in found]
    value = None if not values else 0.0 if any(v is not None and v < 1 for v in values) else 1.0
    if value == 1.0 and None in values:
        value = None
    return Verdict(value, tuple(checked.reason for checked in found))


def _run_check(
    check: Check, answer: str | None, calls: Sequence[Call], ask: Callable[[Call], ToolResult]
) -> CheckResult:
    if isinstance(check, AnswerCheck):
        if answer is None:
            return CheckResult(0.0, "No answer was submitted.")
        return check_text(Task(metadata={"checker": check.model_dump(exclude_none=True)}), [answer])
    if isinstance(check, StateCheck):
        result = ask(Call(tool=check.tool, args=check.args))
        if result.is_error:
            return CheckResult(0.0, f"{check.tool} failed: {clip(result.text)}")
        return _compare(check, result)
    missing = _missing(check, calls)
    if missing is None:
        return CheckResult(1.0, "The expected calls were made.")
    return CheckResult(
        0.0, f"The call {missing.tool}({clip(json.dumps(missing.args))}) was not made{' in order' * check.order}."
    )


def _compare(check: StateCheck, result: ToolResult) -> CheckResult:
    if check.expect is not None:
        passed = same(str(check.expect), result.text) or str(check.expect).strip() == result.text.strip()
    elif check.contains is not None:
        passed = check.contains in result.text
    elif check.regex is not None:
        return check_pattern(Task(metadata={"checker": {"type": "regex", "pattern": check.regex}}), [result.text])
    else:
        place = difference(check.json_value, result.value)
        return (
            CheckResult(1.0, "The state is the expected one.")
            if place is None
            else CheckResult(0.0, f"The state differs at {place}.")
        )
    return CheckResult(float(passed), f"{check.tool} returned: {clip(result.text)}")


def _missing(check: CallsCheck, calls: Sequence[Call]) -> Call | None:
    """Return the first expected call without a matching call of the agent, each of which matches one; None: all match."""
    fits = [[place for place, call in enumerate(calls) if _meets(call, wanted)] for wanted in check.expect]
    if check.order:
        last = -1
        for wanted, places in zip(check.expect, fits, strict=True):
            following = [place for place in places if place > last]
            if not following:
                return wanted
            last = following[0]
        return None
    taken: dict[int, int] = {}  # place -> expected call; a bipartite matching by augmenting paths
    for i, wanted in enumerate(check.expect):
        if not _placed(i, fits, taken, set()):
            return wanted
    return None


def _placed(i: int, fits: Sequence[Sequence[int]], taken: dict[int, int], tried: set[int]) -> bool:
    for place in fits[i]:
        if place not in tried:
            tried.add(place)
            if place not in taken or _placed(taken[place], fits, taken, tried):
                taken[place] = i
                return True
    return False


def _meets(call: Call, wanted: Call) -> bool:
    """Whether a call is of the same tool and contains the wanted arguments, recursively."""
    return call.tool == wanted.tool and _within(wanted.args, call.args)


def _within(wanted: Any, actual: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(actual, Mapping) and all(
            key in actual and _within(wanted[key], actual[key]) for key in wanted
        )
    return difference(wanted, actual) is None


_COLUMNS = ("checker", "answer", "split")


def calls_of(task: Task, name: str) -> tuple[Call, ...]:
    """Return the calls in a task's metadata: `setup` before it begins, `script` to solve it.

    Raises:
        InvalidInput: the metadata does not contain calls.
    """
    listed = task.metadata.get(name) or ()
    try:
        return tuple(Call.model_validate(call) for call in listed)
    except (ValidationError, TypeError) as error:
        why = explain(error, f"metadata.{name}") if isinstance(error, ValidationError) else str(error)
        raise InvalidInput(f"{why}; write a list of {{'tool': ..., 'args': {{...}}}}", code="bad_task_rows") from None


def unplayable(task: Task) -> str | None:
    """Return why a task cannot be played on a server; None: it can. A task without a checker ends without a verdict."""
    if (fault := prompt_fault(task)) is not None:
        return fault
    try:
        read_checks(task.metadata)
        calls_of(task, "setup")
    except InvalidInput as error:
        return error.message
    return None


def write_rows(tasks: Iterable[Task]) -> str:
    """Return the text of a task file, which `task_files` reads."""
    rows = []
    for task in tasks:
        columns = {name: task.metadata[name] for name in _COLUMNS if name in task.metadata}
        rest = {name: value for name, value in task.metadata.items() if name not in _COLUMNS}
        row = {
            "id": task.id,
            "prompt": task.prompt,
            "type": task.type,
            "difficulty": task.difficulty,
            **columns,
            "metadata": rest,
        }
        rows.append(
            json.dumps({name: value for name, value in row.items() if value is not None}, ensure_ascii=False) + "\n"
        )
    return "".join(rows)


def digest(*values: Any) -> str:
    """Return a short hash of JSON values."""
    return sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


_SUBMITS = ("submit", "submit_answer")


def mine_tasks(runs: Iterable[Trajectory], tools: Collection[str]) -> list[Task]:
    """Return tasks from the prompts of successful runs, checked by the runs' calls.

    Args:
        runs: Recordings; only successful ones with a call of at least one of the tools count.
        tools: Names of the server's tools; calls of other tools (a shell, an editor) are not part of the check.

    Returns:
        One task per prompt, from the run with the fewest calls. It expects all calls that did not fail, in their order, and the
        submitted answer, if any. That includes superfluous calls of the run: read the tasks (`tasks.write_rows`) before use.
    """
    best: dict[str, tuple[int, Task]] = {}
    for run in runs:
        prompt = run.task.prompt or run.first_user_text
        calls = [Call(tool=name, args=args) for name, args in _carried_out(run) if name in tools]
        if run.outcome.status is not OutcomeStatus.SUCCESS or not prompt or not calls:
            continue
        if prompt not in best or len(calls) < best[prompt][0]:
            best[prompt] = len(calls), _task(run, prompt, calls)
    return [task for _, task in best.values()]


def _task(run: Trajectory, prompt: str, calls: list[Call]) -> Task:
    checks: list[dict[str, Any]] = [{"type": "calls", "expect": [call.model_dump() for call in calls], "order": True}]
    answers = [args["answer"] for name, args in _carried_out(run) if name in _SUBMITS and "answer" in args]
    if answers:
        checks.append({"type": "answer", "answer": answers[-1]})
    return Task(
        id=f"mined/{digest(prompt)}",
        prompt=prompt,
        type=run.task.type or "mined",
        difficulty=run.task.difficulty,
        metadata={"checker": {"type": "all", "checkers": checks}, "mined_from": run.identified().id},
    )


def _carried_out(run: Trajectory) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the calls that did not end in an error, with their arguments."""
    for step in run.agent_steps:
        for action, result in step.calls_with_results:
            if action.args is not None and not (result is not None and result.is_error):
                yield action.tool, action.args
