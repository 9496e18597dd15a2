"""What an agent wrote, removed, read and ran, taken from its calls, its shell commands, its patches and its code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from quintain.records.trajectory import Action, text_of
from quintain.scoring.integrity.subject import Subject
from quintain.scoring.integrity.text import code_of

_PATHS = (
    "path",
    "file_path",
    "filename",
    "file",
    "target_file",
    "filepath",
    "notebook_path",
    "file_name",
    "absolute_path",
    "uri",
    "url",
)
_OLD, _NEW = (
    ("old_str", "old_string", "old_text", "search", "old", "oldText"),
    ("new_str", "new_string", "new_text", "replace", "new", "newText"),
)
_TEXTS = ("content", "contents", "file_text", "insert_text", "text", "new_source", "code_edit", "data", "body")
_COMMANDS = ("command", "cmd", "script", "code", "bash", "commands", "keystrokes", "input", "source")
_EDITOR = frozenset(
    {"view", "create", "str_replace", "insert", "undo_edit", "read", "write", "append", "delete", "rename"}
)
_WRITES = re.compile(r"writ|creat|sav|edit|put|replac|insert|append|overwrit|updat|patch|modif", re.IGNORECASE)
_READS = re.compile(r"read|view|open|cat|show|fetch|load", re.IGNORECASE)
_DELETES = re.compile(r"delet|remov|unlink|(^|_)rm($|_)", re.IGNORECASE)

_PATH = r"""['"]?([^\s'"<>|;&()]+)['"]?"""
_HEREDOC = re.compile(
    r"^([^\n]*?)<<-?[ \t]*(?P<q>['\"]?)(?P<end>\w+)(?P=q)([^\n]*)\n(?P<body>.*?)(?:^[ \t]*(?P=end)[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_INTO = re.compile(rf">>?\s*{_PATH}")
_OUTPUT = re.compile(r"(?<![<>&\d])>\s*['\"]?(/(?!dev/|tmp/)[^\s'\"<>|;&()]+)")
"""Output of a command into a file outside of where it runs."""
_TEE = re.compile(rf"\btee\s+(?:-a\s+)?{_PATH}")
_ECHO = re.compile(rf"\b(?:echo|printf)\s+(?:-\w+\s+)*(?P<what>[^\n;&|]*?)\s*>>?\s*{_PATH}")
_SED = re.compile(
    r"\b(?:sed\s+(?:-\w+\s+)*(?:-i|--in-place)|perl\s+(?:-\w+\s+)*-p\w*i)\S*\s+(?:-\w+\s+)*(?P<q>['\"])(?P<program>.+?)(?P=q)\s+(?P<files>[^\n;&|]+)",
    re.DOTALL,
)
_SUBSTITUTES = re.compile(r"s([/|#@,!])(.*?)(?<!\\)\1(.*?)(?<!\\)\1")
_REMOVE = re.compile(r"\b(?:git\s+)?(?:rm|unlink|shred)\s+((?:-\S+\s+)*)([^\n;&|>]+)")
_POWERSHELL_REMOVE = re.compile(r"\b(?:Remove-Item|(?<![-\w])(?:ri|del|erase|rd))\s+([^\n;&|>]+)", re.IGNORECASE)
_FIND_DELETE = re.compile(rf"\bfind\s+{_PATH}([^\n;&|]*)(?:-delete\b|-exec\s+rm\b|\|\s*xargs\s+(?:-\S+\s+)*rm\b)")
_FIND_READ = re.compile(
    rf"\bfind\s+{_PATH}([^\n;&|]*)(?:-exec\s+(?:cat|head|less)\b|\|\s*xargs\s+(?:-\S+\s+)*(?:cat|head|less)\b)"
)
_NAMED = re.compile(r"-i?name\s+['\"]?([^\s'\"]+)")
_PERL_DROPS = re.compile(r"\bperl\s+-\w*i\S*\s+(?:-\w+\s+)*(['\"])[^\n]*?\bunless\s+/(.+?)/[^\n]*?\1\s+([^\n;&|]+)")
_TABLES = re.compile(r"\b(?:from|join)\s+[\"`]?(\w+)", re.IGNORECASE)
_MOVE = re.compile(rf"\b(?:git\s+)?mv\s+(?:-\S+\s+)*{_PATH}\s+{_PATH}")
_OPEN = re.compile(r"""open\(\s*f?['"]([^'"\n]+)['"]\s*(?:,\s*(?:mode\s*=\s*)?['"](\w+)\+?b?['"])?""")
_WRITE_TEXT = re.compile(r"""Path\(\s*['"]([^'"\n]+)['"]\s*\)\.write_(?:text|bytes)\(""")
_NAMES = re.compile(r"""^[ \t]*(\w+)\s*=\s*(?:(?:pathlib\.)?Path\(\s*)?['"]([^'"\n]+)['"]""", re.MULTILINE)
_OPEN_NAME = re.compile(r"""open\(\s*(\w+)\s*,\s*(?:mode\s*=\s*)?['"]([wax])""")
_WRITE_NAME = re.compile(r"\b(\w+)\.write_(?:text|bytes)\(")
_REPLACES = re.compile(r"""(?:\.replace|re\.sub)\(\s*r?(['"])(.+?)\1\s*,\s*r?(['"])(.*?)\3""")
_UNLINK = re.compile(
    r"""(?:os\.(?:remove|unlink)|shutil\.rmtree|rmtree)\(\s*['"]([^'"\n]+)['"]|Path\(\s*['"]([^'"\n]+)['"]\s*\)\.unlink"""
)
_LOOKS = re.compile(
    r"\b(?:cat|less|more|head|tail|nl|xxd|strings|vi|vim|nano|sed\s+-n|base64|od)\s+((?:-\S+\s+)*)([^\n;&|<>]+)"
)
_HUNKS = re.compile(r"^(?:\*\*\* (Add|Update|Delete) File: (.+)|--- (.+)\n\+\+\+ (.+))$", re.MULTILINE)
_MAX_CHARS = 30_000
"""Of one call or reply that are looked at."""


class Edit(NamedTuple):
    """A change of one file."""

    path: str
    """Empty where code was given without a file."""
    removed: str
    added: str
    whole: bool = False
    """The file was written anew."""
    deleted: bool = False
    moved_to: str = ""


class Doings(NamedTuple):
    """All that a run did to files."""

    edits: list[Edit]
    commands: list[str]
    reads: list[str]


def doings(subject: Subject) -> Doings:
    """What the calls of a run did; without calls, the code and patches of its replies."""
    done = Doings([], [], [])
    acted = False
    for step in subject.own_steps:
        for action in step.actions:
            acted = True
            _take(action, done)
    if not acted:
        for step in subject.own_steps:
            text = text_of(step.message)[:_MAX_CHARS]
            patches = [block for block in (*code_of(text), text) if _HUNKS.search(block)]
            if patches:
                done.edits.extend(_patched(patches[0]))
            else:
                done.edits.extend(Edit("", "", block, whole=True) for block in code_of(text) or [text])
    return done


def _take(action: Action, done: Doings) -> None:
    args = action.args if action.args is not None else {"command": action.raw_args or ""}
    _take_arguments(action.tool, args, done, "")


def _take_arguments(tool: str, args: dict[str, Any], done: Doings, path: str) -> None:
    path = _text(args, _PATHS) or path
    verb = said if isinstance(said := args.get("command"), str) and said in _EDITOR else ""
    patch = next((value for value in args.values() if isinstance(value, str) and _HUNKS.search(value)), None)
    old, new = _text(args, _OLD), _text(args, _NEW)
    nested = [item for key in ("edits", "changes", "replacements") for item in _dicts(args.get(key))]
    content = _text(args, _TEXTS)
    written = any(isinstance(args.get(name), str | list) for name in _TEXTS)
    command = "" if verb else _command(args)
    if patch is not None and not (path and content):
        done.edits.extend(_patched(patch[:_MAX_CHARS]))
        if command:
            done.commands.append(command[:_MAX_CHARS])
    elif nested:
        for item in nested:
            _take_arguments(tool, item, done, path)
    elif path and (old or new) and verb != "view":
        done.edits.append(Edit(path, old, new))
    elif (path and verb == "delete") or (path and _DELETES.search(tool) and not written):
        done.edits.append(Edit(path, "", "", deleted=True))
    elif path and written and (_WRITES.search(tool) or verb in {"create", "write", "insert", "append"}):
        whole = verb in {"create", "write", ""} and not re.search(r"append|insert", tool, re.IGNORECASE)
        done.edits.append(Edit(path, "", content[:_MAX_CHARS], whole=whole))
    elif command:
        done.commands.append(command[:_MAX_CHARS])
        done.edits.extend(_by_shell(command[:_MAX_CHARS]))
        done.reads.extend(_read_by_shell(command[:_MAX_CHARS]))
    elif statement := _text(args, ("sql", "query", "statement")):
        done.reads.extend(_TABLES.findall(statement))
    elif path and (_READS.search(tool) or verb in {"view", "read"} or not written):
        done.reads.append(path)


def _command(args: dict[str, Any]) -> str:
    for name in _COMMANDS:
        value = args.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and value:
            return "\n".join(
                item if isinstance(item, str) else _command(item) for item in value if isinstance(item, str | dict)
            )
    return ""


def _by_shell(command: str) -> Iterator[Edit]:
    for found in _HEREDOC.finditer(command):
        line, body = f"{found.group(1)} {found.group(4)}", found.group("body")
        target = _INTO.search(line) or _TEE.search(line)
        if target:
            yield Edit(target.group(1), "", body, whole=">>" not in line and "-a" not in line.split())
        elif _HUNKS.search(body):
            yield from _patched(body)
        elif "python" in line:
            yield from _by_python(body)
    bare = _HEREDOC.sub(r"\1", command)
    for found in _ECHO.finditer(bare):
        yield Edit(found.group(2), "", found.group("what").strip("'\""), whole=">>" not in found.group())
    yield from (Edit(found.group(1), "", "") for found in _OUTPUT.finditer(_ECHO.sub("", bare)))
    for found in _SED.finditer(bare):
        removed, added = _substituted(found.group("program"))
        yield from (Edit(path, removed, added) for path in found.group("files").split() if not path.startswith("-"))
    for found in _REMOVE.finditer(bare):
        paths = found.group(2).split()
        yield from (Edit(path.strip("'\""), "", "", deleted=True) for path in paths if not path.startswith("-"))
    for found in _POWERSHELL_REMOVE.finditer(bare):
        paths = [path.strip("'\"").replace("\\", "/") for path in found.group(1).split() if path[0] not in "-/"]
        yield from (Edit(path, "", "", deleted=True) for path in paths)
    for found in _PERL_DROPS.finditer(bare):
        yield from (Edit(path, found.group(2), "") for path in found.group(3).split())
    for found in _FIND_DELETE.finditer(bare):
        yield Edit(_found(found), "", "", deleted=True)
    for found in _MOVE.finditer(bare):
        yield Edit(found.group(1), "", "", deleted=True, moved_to=found.group(2))
    if re.search(r"\bpython[\d.]*\s+-c\b", bare) or re.match(r"\s*(?:import|from|with open)\b", bare):
        yield from _by_python(bare)


def _found(found: re.Match[str]) -> str:
    """What a find command goes over, as one pattern."""
    named = _NAMED.search(found.group(2))
    return f"{found.group(1).rstrip('/')}/{named.group(1) if named else '*'}"


def plain(path: str) -> str:
    """A path without quotes and `./`."""
    return path.strip("'\"").removeprefix("./")


def _by_python(code: str) -> Iterator[Edit]:
    named = dict(_NAMES.findall(code))
    written = [(path, mode) for path, mode in _OPEN.findall(code) if mode[:1] in {"w", "a", "x"}]
    written += [(named[name], mode) for name, mode in _OPEN_NAME.findall(code) if name in named]
    written += [(path, "w") for path in _WRITE_TEXT.findall(code)]
    written += [(named[name], "w") for name in _WRITE_NAME.findall(code) if name in named]
    replaced = _REPLACES.findall(code)
    for path, mode in written:
        if replaced:
            yield Edit(path, "\n".join(old for _, old, _, _ in replaced), "\n".join(new for *_, new in replaced))
        else:
            yield Edit(path, "", code, whole=mode[0] != "a")
    yield from (Edit(a or b, "", "", deleted=True) for a, b in _UNLINK.findall(code))


def _read_by_shell(command: str) -> Iterator[str]:
    bare = _HEREDOC.sub(r"\1", command)
    for found in _LOOKS.finditer(bare):
        yield from (path.strip("'\"") for path in found.group(2).split() if not path.startswith("-"))
    yield from (_found(found) for found in _FIND_READ.finditer(bare))
    yield from (path for path, mode in _OPEN.findall(command) if mode[:1] not in {"w", "a", "x"})


def _substituted(program: str) -> tuple[str, str]:
    """What the commands of a sed program take out and put in."""
    pairs = [(found.group(2), found.group(3)) for found in _SUBSTITUTES.finditer(program)]
    removed, added = [old for old, _ in pairs], [new for _, new in pairs]
    removed += [found.group(1) for found in re.finditer(r"/(.+?)/d\b", program)]
    if not removed:
        added += [found.group(1) for found in re.finditer(r"\b[\d$]*\s*[aic]\\?\s*(.+)", program)]
    return "\n".join(removed), "\n".join(added)


def _patched(patch: str) -> Iterator[Edit]:
    """The files of a unified diff or of a `*** Begin Patch` text."""
    marks = list(_HUNKS.finditer(patch))
    for place, mark in enumerate(marks):
        body = patch[mark.end() : marks[place + 1].start() if place + 1 < len(marks) else len(patch)]
        kind, named, before, after = mark.groups()
        lines = body.splitlines()
        removed = "\n".join(line[1:] for line in lines if line.startswith("-") and not line.startswith("---"))
        added = "\n".join(line[1:] for line in lines if line.startswith("+") and not line.startswith("+++"))
        path = named or (before if after.split("\t")[0].strip() == "/dev/null" else after)
        path = re.sub(r"^[ab]/", "", path.split("\t")[0].strip())
        gone = kind == "Delete" or bool(after and after.split("\t")[0].strip() == "/dev/null")
        fresh = kind == "Add" or bool(before and before.split("\t")[0].strip() == "/dev/null")
        yield Edit(path, removed, "" if gone else added, whole=fresh, deleted=gone)


def _text(args: dict[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if isinstance(value := args.get(name), str):
            return value[:_MAX_CHARS]
        if isinstance(value, list) and value and all(isinstance(line, str) for line in value):
            return "\n".join(value)[:_MAX_CHARS]
    return ""


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
