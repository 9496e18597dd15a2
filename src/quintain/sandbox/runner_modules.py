"""Modules imported by test runners: a file with such a name beside the tests would shadow the module."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from quintain.sandbox.limits import Limits
from quintain.sandbox.sandbox import Workspace

PYTEST_MODULES = frozenset(
    {"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "colorama"}
)
"""pytest and the modules it imports, in case the interpreter cannot list them."""

_LIST_MODULES = r"""
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
"""An importable file. Compiled ones have several suffixes: `json.cpython-311-x86_64-linux-gnu.so`."""


def added_modules(paths: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the new top-level entries of some paths that can be imported, with their module names.

    Args:
        paths: Files, relative to the folder in which the tests run.
        known: The files of the task in that folder.
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
    """Return the modules of Python, pytest, its installed plugins and their requirements, as listed by an interpreter.

    Args:
        workspace: Contains only the files of the task, because the interpreter can import files of the workspace.
        command: The test command; its interpreter is asked, or `python3` if it names none.
        limits: Limits of the listing.
    """
    words = command.split() if isinstance(command, str) else command
    python = next((word for word in words if re.fullmatch(r"(?:\S*/)?python[\d.]*", word)), "python3")
    ran = workspace.run([python, "-c", _LIST_MODULES], limits)
    lines = (line.split() for line in ran.stdout.splitlines())
    listed = {words[1] for words in lines if len(words) == 2 and words[0] == "module"}
    return PYTEST_MODULES | sys.stdlib_module_names | listed
