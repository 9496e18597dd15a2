"""Generated projects: a small package, the work to do in it and its test cases follow from the task's id.

Test cases are calls of functions and their expected results. These come from the correct functions and never enter the project's
process, which only runs the calls and reports its results. Code that cheats its own tests (an object that equals everything, another
test runner) therefore fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from quintain.checkers.json_equality import difference
from quintain.environments.registry import SANDBOX_ID
from quintain.environments.sandbox.functions import Function, domains, templates
from quintain.environments.tasks.families import Family, TaskKey
from quintain.sandbox.limits import Limits
from quintain.sandbox.sandbox import Workspace

_RUNNER = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
def answer(module, function, arguments, options):
    try:
        __import__(module)
        return json.dumps({"value": getattr(sys.modules[module], function)(*arguments, **options)})
    except BaseException as error:
        return json.dumps({"error": type(error).__name__})
answers.write("[" + ",".join([answer(*call) for call in json.loads(sys.argv[1])]) + "]")
answers.flush()
"""


class Call(NamedTuple):
    """A call of a function."""

    module: str
    function: str
    arguments: list[Any]
    options: dict[str, Any]

    @property
    def text(self) -> str:
        """Its Python expression."""
        arguments = [*map(repr, self.arguments), *(f"{name}={value!r}" for name, value in self.options.items())]
        return f"{self.function}({', '.join(arguments)})"


class Case(NamedTuple):
    """A call and its expected outcome: `{"value": ...}`, or `{"error": name}` with the exception's class."""

    call: Call
    expected: dict[str, Any]

    @property
    def text(self) -> str:
        """The case as a sentence of a prompt."""
        return f"`{self.call.text}` {outcome_text(self.expected)}"


def outcome_text(outcome: dict[str, Any]) -> str:
    """Return the outcome of a call as the end of a sentence."""
    return f"raises {outcome['error']}" if "error" in outcome else f"gives `{outcome['value']!r}`"


def outcome_of(source: str, call: Call) -> dict[str, Any]:
    """Run a call of a generated function in this process and return its outcome."""
    try:
        value = _function(source, call.function)(*json.loads(json.dumps(call.arguments)), **call.options)
    except Exception as error:  # expected of some functions, possible with a bug
        return {"error": type(error).__name__}
    return {"value": json.loads(json.dumps(value))}


@lru_cache(maxsize=512)
def _function(source: str, name: str) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(source, space)  # source from this package's templates, never from a run
    found: Callable[..., Any] = space[name]
    return found


def count_right(workspace: Workspace, cases: Sequence[Case], limits: Limits) -> int | None:
    """Return how many cases a project passes; None: its process reported no results."""
    calls = json.dumps([case.call for case in cases], separators=(",", ":"))
    ran = workspace.run(["python3", "-c", _RUNNER, calls], limits)
    try:
        answers = json.loads(ran.stdout)
    except (ValueError, RecursionError):
        return None
    if ran.stopped or not isinstance(answers, list) or len(answers) != len(cases):
        return None
    return sum(difference(case.expected, answer) is None for answer, case in zip(answers, cases, strict=True))


VERSION = "1"
FAMILY = Family("sandbox", SANDBOX_ID, VERSION, ("fix", "implement", "extend", "rename"))
"""easy: two functions. medium: four in several files, and visible tests that a bug passes. hard: six, two of them to change, or a bug
that the prompt describes only by what the package's `app.run` gives."""
TEST_COMMAND = "python3 -m unittest -q"
EXTEND, RENAME = "`{name}` in {path} gets an option", "Rename the function `{old}` to `{new}`"
"""Parts of prompts, by which the expert reads what is to be done."""

_FUNCTIONS = {"easy": 2, "medium": 4, "hard": 6}
_SHOWN, _HIDDEN = 2, 8
_TRIED = 40


class Project(NamedTuple):
    """Contents of a task."""

    prompt: str
    files: dict[str, str]
    cases: tuple[Case, ...]
    """All test cases, those of the visible tests among them."""
    gone: tuple[str, ...] = ()
    """Names that may not occur in any file any more."""


class _Part(NamedTuple):
    """One function of a project."""

    function: Function
    source: str
    """Its source at the start of the task."""
    cases: tuple[Case, ...]
    """Its test cases, of which the first ones are visible."""
    request: str = ""
    """Its part of the prompt."""


@lru_cache(maxsize=256)
def build_project(key: TaskKey) -> Project:
    """Return the project of a task; the same key gives the same project."""
    rng = FAMILY.rng(key)
    domain = rng.choice(domains(key.split))
    functions = [Function(one, domain) for one in rng.sample(templates(), _FUNCTIONS[key.difficulty])]
    n_targets = 2 if key.difficulty == "hard" and key.type != "fix" else 1
    make = {"fix": _broken, "implement": _missing, "extend": _short, "rename": _misnamed}[key.type]
    targets = [make(rng, key, function) for function in functions[:n_targets]]
    others = [_Part(one, one.source, tuple(_cases(rng, one, 8)[: _SHOWN + 1])) for one in functions[n_targets:]]
    rng.shuffle(others)
    parts = [*others, *targets] if rng.random() < 0.5 else [*targets, *others]
    request = " ".join(part.request for part in targets)
    cases = tuple(case for part in parts for case in part.cases)
    gone: tuple[str, ...] = ()
    if key.type == "rename":
        gone = tuple(part.function.name for part in targets)
        renamed = {part.function.name: part.function.renamed for part in targets}
        cases = tuple(
            Case(c.call._replace(function=renamed.get(c.call.function, c.call.function)), c.expected) for c in cases
        )
    app_cases = [_app_case(case, parts) for part in parts for case in part.cases[:1]]
    prompt = _PROMPTS[key.type].format(package=domain.package, request=request)
    return Project(prompt, _files(parts), (*cases, *app_cases), gone)


_PROMPTS = {
    "fix": "The package `{package}` has a bug. {request} Find the cause and mend it; all else stays as it is. Its tests are in tests/.",
    "implement": "Write what is missing in the package `{package}`. {request} All else stays as it is. Its tests are in tests/.",
    "extend": "Extend the package `{package}`. {request} All else stays as it is. Its tests are in tests/.",
    "rename": "Tidy up the package `{package}`. {request} Do it wherever the name stands: where it is defined, used, tested and described. "
    "No old name may be left. The words of the commands in {package}/app.py stay.",
}


def _broken(rng: Random, key: TaskKey, function: Function) -> _Part:
    """Return the function with a bug. Easy tasks show it in a visible test, others hide it if some cases pass."""
    pool = _cases(rng, function)
    bugs = list(function.bugs(key.split))
    rng.shuffle(bugs)
    source, failing = next(
        (bug, found)
        for bug in bugs
        if (found := [case for case in pool if outcome_of(bug, case.call) != case.expected])
    )
    passing = [case for case in pool if case not in failing]
    shown = [*failing[:1], *passing[:1]] if key.difficulty == "easy" else (passing or failing)[:_SHOWN]
    hidden = [case for case in [*failing, *passing] if case not in shown]
    example = _shortest(failing)
    actual = outcome_of(source, example.call)
    if key.difficulty == "hard":
        call = _app_case(example, [_Part(function, source, ())]).call
        request = (
            f"A user reports that `{call.text}` of {function.domain.package}/app.py {outcome_text(actual)}; "
            f"it should {_should(example)}."
        )
    else:
        request = f"In {function.path} `{example.call.text}` {outcome_text(actual)}; it should {_should(example)}."
    return _Part(function, source, tuple([*shown, *hidden][: _SHOWN + _HIDDEN]), request)


def _should(case: Case) -> str:
    return outcome_text(case.expected).replace("raises", "raise", 1).replace("gives", "give", 1)


def _missing(rng: Random, key: TaskKey, function: Function) -> _Part:
    """Return the function without its body."""
    cases = tuple(_cases(rng, function)[: _SHOWN + _HIDDEN])
    request = f"`{function.name}` in {function.path} shall do what its docstring says; {_shortest(cases).text}."
    return _Part(function, function.stub, cases, request)


def _short(rng: Random, key: TaskKey, function: Function) -> _Part:
    """Return the function without the option that the task asks for."""
    extension = function.template.extension
    option = function.domain.fill(extension.option)
    pool = [
        Case(call, outcome_of(function.extended, call))
        for case in _cases(rng, function)
        if (call := case.call._replace(options={option.partition("=")[0]: rng.choice(extension.values)}))
    ]
    telling = [case for case in pool if outcome_of(function.source, case.call._replace(options={})) != case.expected]
    cases = [*_cases(rng, function, 8)[:_SHOWN], *(telling or pool)[: _HIDDEN - 2], *pool[:2]]
    request = (
        f"{EXTEND.format(name=function.name, path=function.path)} `{option}`: {function.domain.fill(extension.effect)}. "
        f"Without it nothing changes. So {_shortest(telling or pool).text}."
    )
    return _Part(function, function.source, tuple(cases), request)


def _misnamed(rng: Random, key: TaskKey, function: Function) -> _Part:
    """Return the function under its old name."""
    request = f"{RENAME.format(old=function.name, new=function.renamed)}."
    return _Part(function, function.source, tuple(_cases(rng, function, 12)[: _SHOWN + 2]), request)


def _cases(rng: Random, function: Function, tried: int = _TRIED) -> list[Case]:
    """Return distinct calls with their outcomes."""
    module = function.path.removesuffix(".py").replace("/", ".")
    calls = {(call := Call(module, function.name, function.draw_arguments(rng), {})).text: call for _ in range(tried)}
    return [Case(call, outcome_of(function.source, call)) for call in calls.values()]


def _shortest(cases: Sequence[Case]) -> Case:
    return min(cases, key=lambda case: len(case.text))


def _app_case(case: Case, parts: Sequence[_Part]) -> Case:
    """Return the same call through `app.run`, whose command names stay when functions are renamed."""
    function = next(
        part.function for part in parts if case.call.function in {part.function.name, part.function.renamed}
    )
    arguments: list[Any] = [function.name.replace("_", "-"), *case.call.arguments]
    return Case(Call(f"{function.domain.package}.app", "run", arguments, dict(case.call.options)), case.expected)


def _files(parts: Sequence[_Part]) -> dict[str, str]:
    domain = parts[0].function.domain
    modules: dict[str, list[_Part]] = {}
    for part in parts:
        modules.setdefault(part.function.template.module, []).append(part)
    files = {f"{domain.package}/__init__.py": f'"""About {domain.things}."""\n', "tests/__init__.py": ""}
    for name, group in modules.items():
        about = f'"""{domain.things.capitalize()}: {name}."""\n'
        files[f"{domain.package}/{name}.py"] = "\n\n".join([about, *(part.source for part in group)])
        files[f"tests/test_{name}.py"] = _tests(f"{domain.package}.{name}", group)
    files[f"{domain.package}/app.py"] = _app(domain.package, modules)
    described = "".join(f"- `{part.function.name}`: {part.function.summary}\n" for part in parts)
    files["README.md"] = f"# {domain.package.capitalize()}\n\nFunctions:\n\n{described}\nTests: `{TEST_COMMAND}`.\n"
    return files


def _app(package: str, modules: dict[str, list[_Part]]) -> str:
    imports = "".join(
        f"from {package}.{name} import {', '.join(sorted(part.function.name for part in group))}\n"
        for name, group in sorted(modules.items())
    )
    words = "".join(
        f'    "{part.function.name.replace("_", "-")}": {part.function.name},\n'
        for group in modules.values()
        for part in group
    )
    return (
        f'"""The front of the package: commands by their words."""\n\n{imports}\nCOMMANDS = {{\n{words}}}\n\n\n'
        'def run(command, *arguments, **options):\n    """Carry out a command."""\n'
        "    return COMMANDS[command](*arguments, **options)\n"
    )


def _tests(module: str, group: Sequence[_Part]) -> str:
    names = ", ".join(sorted(part.function.name for part in group))
    lines = ["import unittest", "", f"from {module} import {names}", "", "", "class Tests(unittest.TestCase):"]
    for part in group:
        for number, case in enumerate(part.cases[:_SHOWN], 1):
            lines += [f"    def test_{part.function.name}_{number}(self):", *_test(case), ""]
    return "\n".join(lines)


def _test(case: Case) -> list[str]:
    if "error" in case.expected:
        return [f"        with self.assertRaises({case.expected['error']}):", f"            {case.call.text}"]
    return [f"        self.assertEqual({case.call.text}, {case.expected['value']!r})"]


def occurs_as_word(text: str, name: str) -> bool:
    """Whether a name occurs in a text as a whole word."""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None
