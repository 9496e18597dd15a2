"""Generated projects: how a task's id alone gives back a small package, what is to be done in it, and how that is checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from quintain.environments.families import Family, TaskKey
from quintain.environments.sandbox.cases import Call, Case, gives, outcome_of
from quintain.environments.sandbox.domains import DOMAINS
from quintain.environments.sandbox.lists import LISTS
from quintain.environments.sandbox.specimens import Specimen, Written
from quintain.environments.sandbox.sums import SUMS

ENVIRONMENT_ID = "quintain/sandbox"
VERSION = "1"
FAMILY = Family("sandbox", ENVIRONMENT_ID, VERSION, ("fix", "implement", "extend", "rename"))
DIFFICULTIES = FAMILY.difficulties
"""easy: two functions; medium: four, in several files, and tests that a bug passes; hard: six, and two of them to change, or a
bug that is only told by what the package's front does."""
TEST_COMMAND = "python3 -m unittest -q"
SPECIMENS: tuple[Specimen, ...] = (*SUMS, *LISTS)

_FUNCTIONS = {"easy": 2, "medium": 4, "hard": 6}
_SHOWN, _HIDDEN = 2, 8
_TRIED = 40


class Project(NamedTuple):
    """What a task's id stands for."""

    prompt: str
    files: dict[str, str]
    cases: tuple[Case, ...]
    """Calls that must give what they give, those of the visible tests among them."""
    gone: tuple[str, ...] = ()
    """Names that may stand nowhere any more."""


class _Part(NamedTuple):
    """One function of a project."""

    written: Written
    source: str
    """As the agent finds it."""
    cases: tuple[Case, ...]
    """The first of them stand in the visible tests."""
    asked: str = ""
    """What the prompt says of it."""


@lru_cache(maxsize=256)
def build_project(key: TaskKey) -> Project:
    """The project of a task; same key, same project."""
    rng = FAMILY.rng(key)
    domain = rng.choice(DOMAINS[key.split])
    functions = [Written(one, domain) for one in rng.sample(SPECIMENS, _FUNCTIONS[key.difficulty])]
    n_targets = 2 if key.difficulty == "hard" and key.type != "fix" else 1
    make = {"fix": _broken, "implement": _missing, "extend": _short, "rename": _misnamed}[key.type]
    targets = [make(rng, key, function) for function in functions[:n_targets]]
    others = [_Part(one, one.source, tuple(_cases(rng, one, 8)[: _SHOWN + 1])) for one in functions[n_targets:]]
    rng.shuffle(others)
    parts = [*others, *targets] if rng.random() < 0.5 else [*targets, *others]
    told = " ".join(part.asked for part in targets)
    cases = tuple(case for part in parts for case in part.cases)
    gone: tuple[str, ...] = ()
    if key.type == "rename":
        gone = tuple(part.written.name for part in targets)
        renamed = {part.written.name: part.written.renamed for part in targets}
        cases = tuple(
            Case(c.call._replace(function=renamed.get(c.call.function, c.call.function)), c.expected) for c in cases
        )
    fronts = [_front(case, parts) for part in parts for case in part.cases[:1]]
    return Project(_PROMPTS[key.type].format(package=domain.package, told=told), _files(parts), (*cases, *fronts), gone)


_PROMPTS = {
    "fix": "The package `{package}` has a bug. {told} Find the cause and mend it; all else stays as it is. Its tests are in tests/.",
    "implement": "Write what is missing in the package `{package}`. {told} All else stays as it is. Its tests are in tests/.",
    "extend": "Extend the package `{package}`. {told} All else stays as it is. Its tests are in tests/.",
    "rename": "Tidy up the package `{package}`. {told} Do it wherever the name stands: where it is defined, used, tested and described. "
    "No old name may be left. The words of the commands in {package}/app.py stay.",
}


def _broken(rng: Random, key: TaskKey, function: Written) -> _Part:
    """With a bug. An easy one shows in the visible tests, others where some cases pass, do not."""
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
        call = _front(example, [_Part(function, source, ())]).call
        asked = f"A user reports that `{call.text}` of {function.domain.package}/app.py {gives(actual)}; it should {_should(example)}."
    else:
        asked = f"In {function.path} `{example.call.text}` {gives(actual)}; it should {_should(example)}."
    return _Part(function, source, tuple([*shown, *hidden][: _SHOWN + _HIDDEN]), asked)


def _should(case: Case) -> str:
    return gives(case.expected).replace("raises", "raise", 1).replace("gives", "give", 1)


def _missing(rng: Random, key: TaskKey, function: Written) -> _Part:
    """Without its body."""
    cases = tuple(_cases(rng, function)[: _SHOWN + _HIDDEN])
    asked = f"`{function.name}` in {function.path} shall do what its docstring says; {_shortest(cases).told}."
    return _Part(function, function.stub, cases, asked)


def _short(rng: Random, key: TaskKey, function: Written) -> _Part:
    """Without an option that it is to have."""
    extension = function.specimen.extension
    option = function.domain.fill(extension.option)
    pool = [
        Case(call, outcome_of(function.extended, call))
        for case in _cases(rng, function)
        if (call := case.call._replace(options={option.partition("=")[0]: rng.choice(extension.values)}))
    ]
    telling = [case for case in pool if outcome_of(function.source, case.call._replace(options={})) != case.expected]
    cases = [*_cases(rng, function, 8)[:_SHOWN], *(telling or pool)[: _HIDDEN - 2], *pool[:2]]
    asked = (
        f"`{function.name}` in {function.path} gets an option `{option}`: {function.domain.fill(extension.told)}. "
        f"Without it nothing changes. So {_shortest(telling or pool).told}."
    )
    return _Part(function, function.source, tuple(cases), asked)


def _misnamed(rng: Random, key: TaskKey, function: Written) -> _Part:
    """With a name that is to be another."""
    asked = f"Rename the function `{function.name}` to `{function.renamed}`."
    return _Part(function, function.source, tuple(_cases(rng, function, 12)[: _SHOWN + 2]), asked)


def _cases(rng: Random, function: Written, tried: int = _TRIED) -> list[Case]:
    """Different calls, and what they must give."""
    module = function.path.removesuffix(".py").replace("/", ".")
    calls = {
        (call := Call(module, function.name, function.specimen.arguments(rng, function.domain), {})).text: call
        for _ in range(tried)
    }
    return [Case(call, outcome_of(function.source, call)) for call in calls.values()]


def _shortest(cases: Sequence[Case]) -> Case:
    return min(cases, key=lambda case: len(case.told))


def _front(case: Case, parts: Sequence[_Part]) -> Case:
    """The same call by the package's front; its words stay whatever functions are called."""
    written = next(part.written for part in parts if case.call.function in {part.written.name, part.written.renamed})
    arguments: list[Any] = [written.name.replace("_", "-"), *case.call.arguments]
    return Case(Call(f"{written.domain.package}.app", "run", arguments, dict(case.call.options)), case.expected)


def _files(parts: Sequence[_Part]) -> dict[str, str]:
    domain = parts[0].written.domain
    modules: dict[str, list[_Part]] = {}
    for part in parts:
        modules.setdefault(part.written.specimen.module, []).append(part)
    files = {f"{domain.package}/__init__.py": f'"""About {domain.things}."""\n', "tests/__init__.py": ""}
    for name, held in modules.items():
        about = f'"""{domain.things.capitalize()}: {name}."""\n'
        files[f"{domain.package}/{name}.py"] = "\n\n".join([about, *(part.source for part in held)])
        files[f"tests/test_{name}.py"] = _tests(f"{domain.package}.{name}", held)
    files[f"{domain.package}/app.py"] = _app(domain.package, modules)
    described = "".join(f"- `{part.written.name}`: {part.written.summary}\n" for part in parts)
    files["README.md"] = f"# {domain.package.capitalize()}\n\nFunctions:\n\n{described}\nTests: `{TEST_COMMAND}`.\n"
    return files


def _app(package: str, modules: dict[str, list[_Part]]) -> str:
    imports = "".join(
        f"from {package}.{name} import {', '.join(sorted(part.written.name for part in held))}\n"
        for name, held in sorted(modules.items())
    )
    words = "".join(
        f'    "{part.written.name.replace("_", "-")}": {part.written.name},\n'
        for held in modules.values()
        for part in held
    )
    return (
        f'"""The front of the package: commands by their words."""\n\n{imports}\nCOMMANDS = {{\n{words}}}\n\n\n'
        'def run(command, *arguments, **options):\n    """Carry out a command."""\n'
        "    return COMMANDS[command](*arguments, **options)\n"
    )


def _tests(module: str, held: Sequence[_Part]) -> str:
    names = ", ".join(sorted(part.written.name for part in held))
    lines = ["import unittest", "", f"from {module} import {names}", "", "", "class Tests(unittest.TestCase):"]
    for part in held:
        for number, case in enumerate(part.cases[:_SHOWN], 1):
            lines += [f"    def test_{part.written.name}_{number}(self):", *_test(case), ""]
    return "\n".join(lines)


def _test(case: Case) -> list[str]:
    if "error" in case.expected:
        return [f"        with self.assertRaises({case.expected['error']}):", f"            {case.call.text}"]
    return [f"        self.assertEqual({case.call.text}, {case.expected['value']!r})"]


def named(text: str, name: str) -> bool:
    """Does a name stand in a text as a whole word?"""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None
