"""The import rules: which room may import which, what a server may load, how large a piece of code may grow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "quintain"

# Rooms from the ground up. A room imports rooms of the lines above it in this table, never of its own line or below.
ORDER: tuple[tuple[str, ...], ...] = (
    ("__init__",),
    ("errors", "files", "next_step", "threads"),
    ("settings", "extensions"),
    ("records",),
    ("store", "redaction", "sandbox", "endpoints", "checkers"),
    ("artifacts", "importers", "jobs"),
    ("datasets",),
    ("exporters", "scoring", "environments"),
    ("evaluation", "trainers"),
    ("tools", "worker"),
    ("server", "client"),
    ("ui",),
    ("cli",),
    ("__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
# What the order alone would allow and stays apart nevertheless: the parent never loads a trainer, only the faces and the
# launcher of jobs open the store, and a worker learns everything else from its job folder.
NO_TRAINING = {room: frozenset({"trainers", "worker"}) for room in ("tools", "server", "client", "ui", "cli")}
WITHOUT_STORE = ("importers", "datasets", "exporters", "scoring", "environments", "evaluation", "trainers", "worker")
APART = NO_TRAINING | {room: frozenset({"store"}) for room in WITHOUT_STORE}
ALLOWED: dict[str, set[str]] = {
    room: {below for below in LEVEL if LEVEL[below] < level} - APART.get(room, frozenset())
    for room, level in LEVEL.items()
}
# The environment is read in settings.py alone, and only the composition roots look at the settings. The worker, which is told
# everything else in its spec, reads keys of endpoints there: no spec may hold one.
READS_SETTINGS = {"tools", "server", "client", "cli"}
READS_SECRETS = {"worker"}

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
FORBIDDEN_NAMES = {"utils", "util", "base", "manager", "helpers", "common", "misc"}


class Module(NamedTuple):
    """What the rules below look at in one module. The trees themselves are not kept: they are millions of objects."""

    path: Path
    room: str
    lines: int
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    functions: tuple[tuple[str, int, int], ...]
    """Name, first line and number of lines of each."""
    environment: tuple[int, ...]
    """Lines that read or set the environment."""

    def place(self, line: int) -> str:
        return f"{self.path.relative_to(SOURCE)}:{line}"


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement, inside functions too; expressions, nine of ten nodes, are left out."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(tree, name, ()):
            yield child
            yield from statements(child)


def read_module(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    found = list(statements(tree))
    places = [
        node.lineno
        for node in (ast.walk(tree) if "environ" in text or "getenv" in text else ())
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    ]
    return Module(
        path=path,
        room=path.relative_to(SOURCE).parts[0].removesuffix(".py"),
        lines=text.count("\n"),
        imports=tuple(node for node in found if isinstance(node, ast.Import | ast.ImportFrom)),
        functions=tuple(
            (node.name, node.lineno, (node.end_lineno or 0) - node.lineno + 1)
            for node in found
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        environment=tuple(places),
    )


@cache
def modules() -> list[Module]:
    """Every module of the project."""
    return [read_module(path) for path in sorted(SOURCE.rglob("*.py"))]


def imports() -> Iterator[tuple[Module, ast.Import | ast.ImportFrom]]:
    """Every import of the project, inside functions too."""
    return ((module, node) for module in modules() for node in module.imports)


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Dotted names of the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"relative import in line {node.lineno}"
    return [node.module or ""]


def test_rooms_import_only_what_lies_below_them() -> None:
    faults = []
    for module in modules():
        assert module.room in ALLOWED, f"{module.path}: expected a room of the table, got {module.room!r}; add it there"
    for module, node in imports():
        for name in imported(node):
            if name != "quintain" and not name.startswith("quintain."):
                continue
            target = [*name.split("."), "__init__"][1]
            if target not in ALLOWED[module.room] | {module.room}:
                faults.append(f"{module.place(node.lineno)} {module.room} imports {target}")
    assert not faults, "\n".join(faults)


def test_no_imports_run_in_a_circle_not_even_inside_functions_or_for_types() -> None:
    def name_of(path: Path) -> str:
        return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")

    graph: dict[str, set[str]] = {name_of(module.path): set() for module in modules()}
    for module, node in imports():
        names = imported(node)
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            names = [name if name in graph else node.module for name in inner]
        graph[name_of(module.path)].update(names)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def test_settings_are_read_by_the_composition_roots_only_and_secrets_by_the_worker_alone() -> None:
    faults, secret_readers = [], set()
    for module, node in imports():
        if "quintain.settings" not in imported(node):
            continue
        names = [alias.name for alias in node.names]
        if "secret" in names:
            secret_readers.add(module.room)
        if module.room not in READS_SETTINGS and not (module.room in READS_SECRETS and names == ["secret"]):
            faults.append(module.place(node.lineno))
    assert not faults, "\n".join(faults)
    assert secret_readers == READS_SECRETS


def test_the_protocol_is_spoken_by_the_server_the_demo_and_the_environment_of_mcp_servers_only() -> None:
    speakers = {
        module.path.relative_to(SOURCE).as_posix()
        for module, node in imports()
        for name in imported(node)
        if name.partition(".")[0] == "mcp"
    }
    allowed = ("server/", "environments/mcp_server/", "cli/commands/demo.py")
    assert not [path for path in speakers if not path.startswith(allowed)]


def test_no_python_that_is_started_imports_from_the_working_directory() -> None:
    """A client starts the server in the folder of a project, whose `queue.py` would run in place of that of the library."""
    started = re.compile(r"sys\.executable,\s*(?:args=\[)?\"-(?![PI]\b)|(?<![\w.])\[?\"-m\", \"quintain\.cli")
    faults = [
        f"{path.relative_to(SOURCE)}: {match[0]}"
        for path in sorted(SOURCE.rglob("*.py"))
        for match in started.finditer(path.read_text(encoding="utf-8"))
        if not match.string[: match.start()].endswith('"-P", ')
    ]
    assert faults == []


def test_the_environment_is_read_in_settings_and_set_for_threads_alone() -> None:
    faults = [
        module.place(line)
        for module in modules()
        if module.room not in {"settings", "threads"}
        for line in module.environment
    ]
    # The shim hands its own environment to the worker that it starts; it reads nothing from it.
    assert [fault for fault in faults if not fault.startswith("jobs/")] == []


def test_no_module_and_no_function_outgrows_its_bound() -> None:
    lengths = {one.path: one.lines for one in modules()}
    lengths |= {path: len(path.read_bytes().splitlines()) for path in (SOURCE.parents[1] / "benchmarks").rglob("*.py")}
    faults = [f"{path.name}: {lines} lines" for path, lines in lengths.items() if lines > MAX_MODULE_LINES]
    faults += [
        f"{module.place(line)} {name}: {length} lines"
        for module in modules()
        for name, line, length in module.functions
        if length > MAX_FUNCTION_LINES
    ]
    assert not faults, f"bounds: {MAX_MODULE_LINES} and {MAX_FUNCTION_LINES} lines\n" + "\n".join(faults)


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [module.path for module in modules() if module.path.stem in FORBIDDEN_NAMES]


def test_a_fresh_interpreter_that_imports_the_server_or_a_worker_loads_nothing_heavy() -> None:
    """A worker loads torch for a job that needs a model, not for one that only asks judges or environments."""
    entries = (
        "quintain.server, quintain.server.app, quintain.tools.catalog, quintain.cli.main, quintain.worker.__main__"
    )
    heavy = ["torch", "transformers", "peft", "numpy", "scipy", "matplotlib", "tokenizers", "accelerate"]
    heavy += ["quintain.environments.data_files"]
    program = f"import sys, {entries}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]", done.stdout
