"""Generated tasks: a question for the result of a tool call with arguments from its schema, verified on the live server.

Only tools with the read-only hint are called, and those that the operator names in `generate_from`: a name does not show what a tool
changes, and the protocol takes a tool without hints to change things. A task asks for the result of one call, or for one value in it.
Each task is solved again on a second, fresh server at least `_APART_S` later: results that depend on the process or on the seconds of
the clock are dropped. A result that depends on the day is not noticed.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from quintain.environments.mcp_server.episode import allowed_tools, as_text
from quintain.environments.mcp_server.tasks import AnswerCheck, calls_of, digest, judge, read_checks
from quintain.environments.scripted_policy import Move, Script, ScriptedPolicy, policy_by_prompt
from quintain.environments.servers import Call, ServerProfile, ToolResult
from quintain.environments.tasks.task_files import split_of
from quintain.errors import InvalidInput
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Task
from quintain.records.wording import clip, nearest, shown

if TYPE_CHECKING:
    from quintain.environments.mcp_server.connection import Connection

_ANSWER_CHARS, _ANSWER_WORDS = 60, 6
_APART_S = 1.2
_TRIES = 300
"""Draws per tool without new arguments after which generation stops; four of five draws belong to `train`."""
_CALLS_PER_TASK, _EXTRA_CALLS = 3, 30
"""Maximum calls for each requested task, and in addition: some results are not suitable."""


class _Candidate(NamedTuple):
    """A call, and the part of its result that a task asks for."""

    call: Call
    field: str
    """Path of the value; empty: the whole result."""
    answer: Any


def generate(profile: ServerProfile, start: Callable[[], Connection], split: str, n: int, seed: int) -> list[Task]:
    """Return `n` distinct tasks of a split; the same arguments and server results give the same tasks.

    Raises:
        InvalidInput: the schemas give too few tasks.
        Unavailable: the server fails.
    """
    rng = Random(stable_seed("mcp", profile.name, split, seed))
    kept: dict[str, Task] = {}
    with closing(start()) as first:
        calls = islice(_calls(profile, first, split, rng), n * _CALLS_PER_TASK + _EXTRA_CALLS)
        asked = _ask(first, calls, n)
        if asked:
            with closing(start()) as second:
                while asked and len(kept) < n:
                    time.sleep(_APART_S)
                    solved = [task for task in (_task(profile, first, one) for one in asked) if solves(task, second)]
                    kept |= {task.id or "": task for task in solved}
                    asked = _ask(first, calls, n - len(kept))
    if len(kept) < n:
        raise InvalidInput(
            f"expected {n} tasks in {split} from the schemas of {profile.id}, got {len(kept)}; ask for fewer, give `values` for "
            "arguments in environments.toml (such as timezone = ['Asia/Tokyo', ...]), or write a file of `tasks`",
            code="too_few_tasks",
        )
    return list(kept.values())[:n]


def solves(task: Task, connection: Connection) -> bool:
    """Whether the script of a task passes its checks on this server."""
    answer: ToolResult | None = None
    calls = calls_of(task, "script")
    for call in calls:
        answer = connection.call(call.tool, call.args)
        if answer.is_error:
            return False
    assert answer is not None, "a script has a call"
    found = _at(answer, task.metadata["field"])
    if found is None:
        return False
    checks = read_checks(task.metadata)
    verdict = judge(checks, as_text(found), calls, lambda call: connection.call(call.tool, call.args))
    return verdict.value == 1.0


def _calls(profile: ServerProfile, connection: Connection, split: str, rng: Random) -> Iterator[Call]:
    """Yield distinct calls of a split, the tools in turn, until no new arguments are found."""
    tools = _callable(profile, connection)
    seen: set[str] = set()
    idle = 0
    while idle < _TRIES * len(tools):
        tool = tools[len(seen) % len(tools)] if idle == 0 else rng.choice(tools)
        idle += 1
        args = draw_arguments(tool["name"], tool["parameters"], profile.values, rng)
        if args is None:
            continue
        key = digest(tool["name"], args)
        if key not in seen and split_of(key) == split:
            seen.add(key)
            idle = 0
            yield Call(tool=tool["name"], args=args)


def _callable(profile: ServerProfile, connection: Connection) -> list[dict[str, Any]]:
    """Return the tools that may be called while tasks are generated."""
    tools = [tool["function"] for tool in allowed_tools(profile, connection.tools)]
    names = [tool["name"] for tool in tools]
    for pattern in profile.generate_from:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InvalidInput(
                f"expected a tool that agents of {profile.id} may call, got {shown(pattern)}{nearest(pattern, names)}; correct "
                "`generate_from` in environments.toml",
                code="bad_environments",
            )
    found = [
        tool
        for tool in tools
        if connection.read_only.get(tool["name"])
        or any(fnmatchcase(tool["name"], pattern) for pattern in profile.generate_from)
    ]
    if not found:
        raise InvalidInput(
            f"expected a tool of {profile.id} that tasks can be generated from, got none with the hint that it only reads among "
            f"{clip(', '.join(names))}; name those that change nothing in `generate_from` of environments.toml, or write a file of "
            "`tasks`",
            code="too_few_tasks",
        )
    return found


def _ask(connection: Connection, calls: Iterator[Call], missing: int) -> list[_Candidate]:
    """Return more candidates than are missing, because some fail; their number does not affect which tasks are kept."""
    asked: list[_Candidate] = []
    n = missing * 3 // 2 + 2 if missing > 0 else 0
    for call in calls if n else ():
        answer = connection.call(call.tool, call.args)
        fields = [] if answer.is_error else list(_fields(answer, call))
        if fields:
            field, value = Random(stable_seed(digest(call.tool, call.args))).choice(fields)
            asked.append(_Candidate(call, field, value))
        if len(asked) == n:
            break
    return asked


def _fields(answer: ToolResult, call: Call) -> Iterator[tuple[str, Any]]:
    """Yield values that a task can ask for: short texts and numbers that are not among the arguments."""
    arguments = {as_text(value) for value in call.args.values()}
    for path, value in _leaves(answer.value, ""):
        text = as_text(value)
        short = 0 < len(text) <= _ANSWER_CHARS and len(text.split()) <= _ANSWER_WORDS and "\n" not in text
        finite = not isinstance(value, float) or math.isfinite(value)
        if short and finite and not isinstance(value, bool) and text not in arguments:
            yield path, value


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        alone = len(value) == 1 and not path  # the protocol wraps a single value
        for key, inner in value.items():
            if isinstance(key, str) and "." not in key:
                yield from _leaves(inner, path if alone else f"{path}.{key}".lstrip("."))
    elif isinstance(value, str | int | float):
        yield path, value


def _at(answer: ToolResult, field: str) -> Any:
    return next((value for path, value in _leaves(answer.value, "") if path == field), None)


def _task(profile: ServerProfile, connection: Connection, asked: _Candidate) -> Task:
    key = digest(asked.call.tool, asked.call.args)
    function = next(tool["function"] for tool in connection.tools if tool["function"]["name"] == asked.call.tool)
    about = re.split(r"(?<=[.!?])\s|\n", function["description"].strip())[0].rstrip(".!? ")
    named = not about or stable_seed("named", key) % 2 == 0
    arguments = ", ".join(
        f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in asked.call.args.items()
    )
    what = f"Call {asked.call.tool}" if named else about
    asks = f"What is {asked.field}?" if asked.field else "What is the answer?"
    return Task(
        id=f"{profile.id}/{digest(key, asked.field, asked.answer, named)}",
        prompt=f"{what}{f' with {arguments}' if arguments else ''}. {asks}",
        type=asked.call.tool,
        difficulty="easy" if named else "medium",
        environment=profile.id,
        metadata={
            "checker": {"type": "answer", "answer": asked.answer},
            "split": split_of(key),
            "field": asked.field,
            "script": [asked.call.model_dump()],
        },
    )


def expert(tasks: Iterable[Task]) -> ScriptedPolicy:
    """Return a policy for tasks with a script in their metadata, generated or written: its calls, one a turn, then the answer."""
    return policy_by_prompt({task.prompt: partial(_script, task) for task in tasks})


def _script(task: Task) -> Script:
    calls = calls_of(task, "script")
    if not calls:
        raise InvalidInput(f"expected the prompt of a task with a script, got {clip(task.prompt)!r}")
    for call in calls:
        yield Move(f"Call {call.tool}.", call.tool, call.args)
    for answer in _expected_answers(task)[:1]:  # without one the script has done all, and says so without a call
        asked = task.metadata.get("field") or "The answer"
        yield Move(f"{asked} is {as_text(answer)}.", "submit", {"answer": answer})


def _expected_answers(task: Task) -> Sequence[Any]:
    """Return the answers that a task's checks accept; of a regular expression, the task's own `answer`."""
    answers: list[Any] = []
    for check in read_checks(task.metadata):
        if isinstance(check, AnswerCheck):
            stated = check.answer if check.answer is not None else check.expected
            answers.append(task.metadata.get("answer") if stated is None else stated)
    return [answer for answer in answers if answer is not None]


_NOTHING = object()
_RANGE = re.compile(r"\{(-?\d{1,12})\.\.(-?\d{1,12})\}")
_INTEGERS = (0, 99)
"""Bounds of numbers without bounds in the schema."""
_LIST_LENGTH = 3
_MAX_DEPTH = 5


def draw_arguments(
    tool: str, schema: Mapping[str, Any], values: Mapping[str, Sequence[Any]], rng: Random
) -> dict[str, Any] | None:
    """Return random arguments that the schema allows; None if it defines a required one too vaguely.

    Args:
        tool: Name of the tool.
        schema: JSON schema of its arguments.
        values: Argument or tool.argument -> values from the operator. In a text, `{1..99}` becomes an integer in that range.
        rng: Random generator.
    """
    required = set(schema.get("required") or ())
    drawn: dict[str, Any] = {}
    for name, about in (schema.get("properties") or {}).items():
        choices = values.get(f"{tool}.{name}", values.get(name))
        value = _filled(rng.choice(list(choices)), rng) if choices else _drawn(about, schema, rng, _MAX_DEPTH)
        if value is _NOTHING:
            if name in required:
                return None
        elif name in required or rng.random() < 0.5:
            drawn[name] = value
    return drawn if required <= drawn.keys() else None


def _filled(value: Any, rng: Random) -> Any:
    if not isinstance(value, str):
        return value
    return _RANGE.sub(lambda found: str(rng.randint(*sorted((int(found[1]), int(found[2]))))), value)


def _drawn(about: Any, root: Mapping[str, Any], rng: Random, depth: int) -> Any:
    about = _resolved(about, root)
    if not isinstance(about, Mapping) or depth == 0:
        return _NOTHING
    if "const" in about:
        return about["const"]
    for name in ("enum", "examples"):
        if isinstance(about.get(name), list) and about[name]:
            return rng.choice(about[name])
    if about.get("default") is not None:
        return about["default"]
    choices = [part for part in (*about.get("anyOf", ()), *about.get("oneOf", ())) if _kind(part) != "null"]
    if choices:
        return _drawn(choices[0], root, rng, depth - 1)
    match _kind(about):
        case "integer":
            return rng.randint(*_bounds(about))
        case "number":
            low, high = _bounds(about)
            return min(max(rng.randint(low * 10, high * 10) / 10, low), high)
        case "boolean":
            return rng.random() < 0.5
        case "array":
            items = [
                _drawn(about.get("items"), root, rng, depth - 1)
                for _ in range(max(about.get("minItems", 1), _LIST_LENGTH))
            ]
            return _NOTHING if any(item is _NOTHING for item in items) else items[: about.get("maxItems", len(items))]
    return _NOTHING


def _kind(about: Any) -> Any:
    kind = about.get("type") if isinstance(about, Mapping) else None
    return next((one for one in kind if one != "null"), "null") if isinstance(kind, list) else kind


def _resolved(about: Any, root: Mapping[str, Any]) -> Any:
    """Resolve a reference to a definition in the same schema."""
    target = about.get("$ref") if isinstance(about, Mapping) else None
    if not isinstance(target, str) or not target.startswith("#/"):
        return about
    place: Any = root
    for key in target[2:].split("/"):
        place = place.get(key) if isinstance(place, Mapping) else None
    return place


def _bounds(about: Mapping[str, Any]) -> tuple[int, int]:
    """Return integer bounds of a number, 0 to 99 without bounds in the schema."""
    above, below = about.get("exclusiveMinimum"), about.get("exclusiveMaximum")
    least, most = about.get("minimum"), about.get("maximum")
    low = _whole(above, +1) if above is not None else _whole(least, 0)
    high = _whole(below, -1) if below is not None else _whole(most, 0)
    low = low if low is not None else min(_INTEGERS[0], high if high is not None else _INTEGERS[0])
    high = high if high is not None else max(_INTEGERS[1], low + _INTEGERS[1])
    return low, max(low, min(high, low + 10**6))


def _whole(bound: Any, step: int) -> int | None:
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        return None
    return int(bound) + step
