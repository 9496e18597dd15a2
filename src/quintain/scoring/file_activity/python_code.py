"""File operations of Python code, by its syntax tree."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from quintain.scoring.file_activity.operations import Operation, OperationKind

_WRITING_MODULES = frozenset(
    {"shutil", "subprocess", "fileinput", "runpy", "importlib", "ctypes", "sqlite3", "tempfile"}
)
_RUNNING = frozenset({"exec", "eval", "__import__", "compile"})
_WRITING_METHODS = frozenset(
    re.findall(
        r"\S+",
        "write_text write_bytes touch unlink rename symlink_to hardlink_to rmdir savetxt to_csv to_json savefig save dump",
    )
)
_OS_CALLS = re.compile(
    r"rename|replace|remove|unlink|system|popen|exec\w*|spawn\w*|truncate|link|symlink|rmdir|removedirs|open|write"
)
_EDITING_CALL = re.compile(
    r"\w{0,40}(?:edit|patch|write|insert|append|create|replace|delete)\w{0,20}(?:file|line|text|content)\w{0,40}"
)
_READ_MODE = re.compile(r"r?[bt]?r?")
_MAX_CHARS = 50_000


def python_operations(code: str) -> Iterator[Operation]:
    """Yield what Python code does to files whose paths it states, and the code itself; code that does not parse only runs."""
    if (tree := _parsed(code)) is not None:
        yield from _file_operations(tree, code)
    yield Operation("run", new=code, is_exact=False, note="python")


def _file_operations(tree: ast.Module, code: str) -> Iterator[Operation]:
    names = _constant_names(tree)
    written = [value for node in ast.walk(tree) if (value := _written_text(node)) is not None]
    replaced = [pair for node in ast.walk(tree) if (pair := _replaced(node)) is not None]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or (found := _file_operation(node, names)) is None:
            continue
        if found.kind not in {"write", "append"}:
            yield found
        elif replaced:
            old, new = ("\n".join(parts) for parts in zip(*replaced, strict=True))
            yield replace(found, kind="edit", old=old, new=new, is_whole=False)
        else:
            yield replace(found, new=written[0] if len(written) == 1 else code)


def may_write(code: str, files: Mapping[str, str], seen: frozenset[str] = frozenset()) -> bool:
    """Whether the code, or modules among `files` that it imports, may change files; true for code that does not parse."""
    tree = _parsed(code)
    if tree is None:
        return True
    modules = {name for node in ast.walk(tree) for name in _imported(node)}
    if not _WRITING_MODULES.isdisjoint(name.partition(".")[0] for name in modules):
        return True
    if any(isinstance(node, ast.Call) and _call_may_write(node) for node in ast.walk(tree)):
        return True
    paths = {f"{name.replace('.', '/')}.py" for name in modules}
    return any(may_write(files[path], files, seen | paths) for path in (paths - seen) & files.keys())


def _parsed(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(textwrap.dedent(code[:_MAX_CHARS]))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


REST = "__rest__"
"""Name in place of code that a fragment does not contain."""
_ENDS = ("", f" {REST}", f"(): {REST}", f"\ndef {REST}(): {REST}")
"""Completions of a header, the name of a function, and a decorator."""


class Fragment(NamedTuple):
    """Code that may be a part of a file, as parsed."""

    text: str
    tree: ast.Module
    is_indented: bool
    """Whether it belongs to a block whose header is missing."""


@lru_cache(maxsize=16)
def parse_fragment(code: str) -> Fragment | None:
    """Return code as a syntax tree, completed where an edit cut a block; None for code that cannot be read."""
    lines = [line for line in code[:_MAX_CHARS].splitlines() if line.strip()]
    if not lines:
        return None
    indents = [len(line) - len(line.lstrip()) for line in lines]
    if (
        indents[0] == 0
        and min(indents[1:], default=0) > 0
        and not lines[0].rstrip().endswith((":", "(", "[", "{", ","))
    ):
        lines[0] = " " * min(indents[1:]) + lines[0]  # The edit begins within a line.
    text = textwrap.dedent("\n".join(lines))
    head = "try:\n    pass\n" if text.startswith(("except", "finally")) else ""
    head = f"if {REST}:\n    {REST}\n" if text.startswith(("else", "elif")) else head
    for end in _ENDS:
        if (tree := _parsed(whole := f"{head}{text}{end}")) is not None:
            return Fragment(whole, tree, lines[0][:1].isspace())
    return None


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module


def _call_may_write(node: ast.Call) -> bool:
    name, owner = _called(node)
    if name == "open" and owner != "os":
        mode = _mode(node)
        return mode is None or not _READ_MODE.fullmatch(mode)
    return (
        (owner is None and name in _RUNNING)
        or (owner is not None and name in _WRITING_METHODS)
        or (owner == "os" and _OS_CALLS.fullmatch(name) is not None)
        or _EDITING_CALL.fullmatch(name) is not None
    )


def _called(node: ast.Call) -> tuple[str, str | None]:
    """Return the called name, and the object of which it is an attribute: empty where that is not a plain name."""
    if isinstance(node.func, ast.Name):
        return node.func.id, None
    if isinstance(node.func, ast.Attribute):
        return node.func.attr, node.func.value.id if isinstance(node.func.value, ast.Name) else ""
    return "", None


def _mode(node: ast.Call) -> str | None:
    """Return the mode of a call of `open`; None where the code does not state it."""
    place = 1 if isinstance(node.func, ast.Name) else 0
    mode = next((keyword.value for keyword in node.keywords if keyword.arg == "mode"), None)
    if mode is None:
        if len(node.args) <= place:
            return "r"
        mode = node.args[place]
    return mode.value if isinstance(mode, ast.Constant) and isinstance(mode.value, str) else None


def _constant_names(tree: ast.Module) -> dict[str, str]:
    """Return names that are assigned a path: `p = "a.py"`, `p = Path("a.py")`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        if path := _path(node.value, names):
            names[node.targets[0].id] = path
    return names


def _path(node: ast.AST, names: Mapping[str, str]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Call) and _called(node)[0] in {"Path", "PurePath", "str"} and node.args:
        return _path(node.args[0], names)
    return ""


_FUNCTIONS: Mapping[str, OperationKind] = {
    "os.remove": "delete",
    "os.unlink": "delete",
    "os.rename": "move",
    "os.replace": "move",
    "shutil.move": "move",
}
_PATH_METHODS: Mapping[str, OperationKind] = {
    "write_text": "write",
    "write_bytes": "write",
    "read_text": "read",
    "read_bytes": "read",
    "unlink": "delete",
}


def _file_operation(node: ast.Call, names: Mapping[str, str]) -> Operation | None:
    name, owner = _called(node)
    first, second, *_ = (*(_path(argument, names) for argument in node.args), "", "")
    of_path = _path(node.func.value, names) if isinstance(node.func, ast.Attribute) else ""
    if name == "open" and owner != "os":
        return _opened(first if isinstance(node.func, ast.Name) else of_path, _mode(node))
    kind = _FUNCTIONS.get(f"{owner}.{name}", "delete" if name == "rmtree" else None)
    if kind == "move":
        return _stated(kind, first, second) if first and second else None
    if kind is not None:
        return _stated(kind, first) if first else None
    kind = _PATH_METHODS.get(name)
    return _stated(kind, of_path) if kind is not None and of_path else None


def _opened(path: str, mode: str | None) -> Operation | None:
    if not path:
        return None
    if not mode or (mode[0] == "r" and "+" not in mode):
        return _stated("read", path)
    return _stated("append" if mode[0] == "a" else "write", path)


def _stated(kind: OperationKind, path: str, target: str = "") -> Operation:
    exact, whole = kind == "read", kind == "write"
    return Operation(kind, path, target=target, is_exact=exact, is_whole=whole, note="Python code")


def _written_text(node: ast.AST) -> str | None:
    """Return the constant text of `file.write("...")` and `path.write_text("...")`."""
    if not isinstance(node, ast.Call) or _called(node)[0] not in {"write", "write_text"} or len(node.args) != 1:
        return None
    value = node.args[0]
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _replaced(node: ast.AST) -> tuple[str, str] | None:
    """Return old and new text of `text.replace("a", "b")` and `re.sub("a", "b", text)`."""
    if not isinstance(node, ast.Call):
        return None
    name, owner = _called(node)
    if not (name == "replace" and owner != "os") and not (name == "sub" and owner == "re"):
        return None
    texts = [value.value for value in node.args[:2] if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return (texts[0], texts[1]) if len(texts) == 2 else None
