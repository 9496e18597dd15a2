"""Modules that a test runner imports itself: a file of such a name beside the tests would be imported in their place."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from quintain.sandbox.limits import Limits
from quintain.sandbox.sandbox import Workspace

OFTEN = frozenset(
    {"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "colorama"}
)
"""pytest, and what it imports, where nobody can be asked."""

_ASK = r"""
import re
from importlib.metadata import distributions

def plain(name):
    return re.sub(r"[-_.]+", "-", name or "").lower()

found = {plain(one.metadata["Name"]): one for one in distributions()}
wanted = [name for name, one in found.items() if name == "pytest" or any(e.group == "pytest11" for e in one.entry_points)]
seen = set()
while wanted:
    name = wanted.pop()
    if name in seen or name not in found:
        continue
    seen.add(name)
    one = found[name]
    needs = [need for need in one.requires or () if "extra ==" not in need]
    wanted += [plain(re.match(r"[\w.-]+", need).group()) for need in needs]
    named = (one.read_text("top_level.txt") or "").split()
    files = [str(path) for path in one.files or ()]
    tops = {path.partition("/")[0] for path in files if path.endswith((".py", ".so"))}
    for top in tops | set(named) or {name.replace("-", "_")}:
        print("module", top.partition(".")[0])
"""


_MODULE = re.compile(r"([^\W\d]\w*)\.(?:py[cdw]?|(?:[\w-]+\.)*so)")
"""A file that can be imported; compiled ones have several suffixes: `json.cpython-311-x86_64-linux-gnu.so`."""


def added_modules(paths: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """What stands at the top of these paths and not of the known ones, and the name by which it would be imported.

    Args:
        paths: Files, below the folder in which tests run.
        known: The task's own files there.
    """
    added = {parts[0]: len(parts) > 1 for path in paths if (parts := PurePosixPath(path).parts)}
    for path in known:
        added.pop(PurePosixPath(path).parts[0], None)
    modules = {}
    for top, folder in added.items():
        if folder and top.isidentifier():
            modules[top] = top
        elif found := _MODULE.fullmatch(top):
            modules[top] = found[1]
    return modules


def modules_of_runners(workspace: Workspace, command: str | Sequence[str], limits: Limits) -> frozenset[str]:
    """The modules of Python, of pytest, of its installed plugins and of all that these require, as an interpreter sees them.

    Args:
        workspace: With the task's own files alone, for what is there can be imported.
        command: That runs the tests; the interpreter is the one that it names, else `python3`.
        limits: Of the question.
    """
    words = command.split() if isinstance(command, str) else command
    python = next((word for word in words if re.fullmatch(r"(?:\S*/)?python[\d.]*", word)), "python3")
    ran = workspace.run([python, "-c", _ASK], limits)
    told = (line.split() for line in ran.stdout.splitlines())
    return OFTEN | sys.stdlib_module_names | {said[1] for said in told if len(said) == 2 and said[0] == "module"}
