"""Tool calls as operations on files, by the names of arguments and verbs that coding agents use.

A record does not say what a tool does. A call whose arguments name a file counts as an edit where it brings a text or its tool's
name has a verb of change, and as a read otherwise; only edits whose old and new text it states are exact.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quintain.records.trajectory import Action, Observation, Trajectory, text_of
from quintain.scoring.file_activity.operations import Operation, patch_operations
from quintain.scoring.file_activity.python_code import python_operations
from quintain.scoring.file_activity.script_operations import script_operations
from quintain.scoring.file_activity.shell import script_of

PATH_NAMES = (
    *("file_path", "path", "filePath", "filename", "file", "target_file", "absolute_path", "file_name", "filepath"),
    *("notebook_path", "uri"),
)
WHOLE_NAMES = ("content", "contents", "file_text", "new_source", "new_content", "text", "data", "code_edit", "body")
OLD_NAMES = ("old_string", "old_str", "old_text", "oldText", "oldString", "search", "old")
NEW_NAMES = ("new_string", "new_str", "new_text", "newText", "newString", "replace", "new")
COMMAND_NAMES = (
    *("command", "cmd", "script", "code", "bash", "commands", "keystrokes", "input", "cell", "args", "chars"),
)
_PATCH_NAMES = ("patch", "input", "patch_text", "diff", "patchText")
FOLDER_NAMES = ("workdir", "cwd", "working_directory")
_SOURCE_NAMES = ("source", "old_path", "src", "from", "source_path")
_TARGET_NAMES = ("destination", "new_path", "dst", "dest", "to", "target", "destination_path")
_EDITOR_COMMANDS = frozenset({"create", "write", "append", "str_replace", "insert", "view", "delete", "undo_edit"})
"""Values of the argument `command` that name the operation of an editor tool."""

_MAKES = re.compile(r"writ|creat|save|put_file|overwrit", re.IGNORECASE)
_APPENDS = re.compile(r"append", re.IGNORECASE)
_DELETES = re.compile(r"delet|remov|unlink|(?:^|_)rm(?:$|_)", re.IGNORECASE)
_MOVES = re.compile(r"(?:^|[^a-z])mov|renam", re.IGNORECASE)
_LOOKS = re.compile(
    r"(?:^|[^a-z])(?:view|read|open|cat|get|list|ls|show|search|grep|find|glob|head|tail|stat|exists?|check|lint|goto|scroll|fetch|browse|load"
    r"|diagnostics|tree|inspect|summar\w*|submit|finish|answer|think|todo\w*|plan|memory|web\w*|test|tests|verify|click|ask)(?:[^a-z]|$)",
    re.IGNORECASE,
)
_ALTERS = re.compile(
    r"edit|patch|diff|replac|writ|mov|renam|copy|delet|remov|insert|updat|append|creat|apply|undo|revert|restor|save|modif|refactor|format"
    r"|^(?:mkdir|touch|rm|cp|mv)$",
    re.IGNORECASE,
)
_RUNS = re.compile(
    r"bash|shell|terminal|exec|run|command|python|jupyter|repl|code|node|console|cell|process", re.IGNORECASE
)
_PYTHON = re.compile(r"python|jupyter|cell|notebook|code_interpreter", re.IGNORECASE)
_PLACED_TEXT = frozenset({"mode", "append", "start_line", "line", "offset"})
"""Arguments by which a text is not the whole of its file."""
_TABLES = re.compile(r"\b(?:from|join)\s+[\"`]?(\w+)", re.IGNORECASE)
_MAX_CHARS = 200_000


@dataclass(frozen=True, slots=True)
class FileCall:
    """A call of the agent with its effects on files.

    Attributes:
        turn: Index of the agent's turn with the call, from 0.
        action: The call.
        result: Result of the call; None where the run does not contain it.
        failed: Whether it failed.
        command: The script or code that it runs; empty for other calls.
        operations: Its file operations, in order; nothing of a call that failed, other than a script.
    """

    turn: int
    action: Action
    result: Observation | None
    failed: bool
    command: str
    operations: tuple[Operation, ...]


def file_calls_of(run: Trajectory) -> Iterator[FileCall]:
    """Yield the agent's calls in order, without turns that were copied from another session."""
    for turn, step in enumerate(run.agent_steps):
        if step.copied_context:
            continue
        for action, result in step.calls_with_results:
            yield read_call(action, result, turn)


def read_call(action: Action, result: Observation | None = None, turn: int = 0) -> FileCall:
    """Return a call with its effects on files."""
    text = text_of(result.content) if result else ""
    failed = bool(result and (result.is_error or text.lstrip().lower().startswith("error")))
    script = command_of(action)[:_MAX_CHARS]
    operations = tuple(_operations(action, script))
    if failed and not script:
        operations = ()
    return FileCall(turn, action, result, failed, script, operations)


def command_of(action: Action) -> str:
    """Return the script or code that a call runs; empty for other calls."""
    args = action.args or {}
    if not args:
        return action.raw_args if action.raw_args and _RUNS.search(action.tool) else ""
    asked = args.get("command")
    if first_text(args, PATH_NAMES) or (isinstance(asked, str) and asked in _EDITOR_COMMANDS):
        return ""
    return command_text(args) if _RUNS.search(action.tool) or "command" in args or "cmd" in args else ""


def command_text(args: Mapping[str, Any]) -> str:
    """Return the command line among the arguments of a tool that runs something; empty where it has none."""
    for name in COMMAND_NAMES:
        value = args.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, list) and value:
            words = [word for word in value if isinstance(word, str)]
            nested = [text for item in value if isinstance(item, dict) and (text := first_text(item, COMMAND_NAMES))]
            return script_of(words) if words else "\n".join(nested)
    return ""


def _operations(action: Action, script: str) -> Iterator[Operation]:
    args = action.args or {}
    path = first_text(args, PATH_NAMES)
    if (patch := _patch(action)) is not None:
        yield from patch_operations(patch[:_MAX_CHARS])
    elif script and _PYTHON.search(action.tool):
        yield from python_operations(script)
    elif script:
        yield from script_operations(script, first_text(args, FOLDER_NAMES) or "")
    elif path is not None:
        yield from _file_operations(action.tool, path, args)
    elif statement := first_text(args, ("sql", "query", "statement")):
        yield from (Operation("read", table) for table in _TABLES.findall(statement))
    elif _ALTERS.search(action.tool) and not _looks_only(action.tool):
        yield from _transfer(action.tool, args)


def _patch(action: Action) -> str | None:
    args = action.args or {}
    text = first_text(args, _PATCH_NAMES) if args else action.raw_args
    if text is None:
        return None
    return text if "*** Begin Patch" in text or action.tool.endswith("apply_patch") or "\n+++ " in text else None


def _transfer(tool: str, args: Mapping[str, Any]) -> Iterator[Operation]:
    source, target = first_text(args, _SOURCE_NAMES), first_text(args, _TARGET_NAMES)
    is_move = _MOVES.search(tool.replace("_", " ")) is not None
    note = f"a call of {tool[:60]!r} that cannot be replayed"
    if source and target:
        yield Operation("move" if is_move else "copy", source, target=target, is_exact=is_move, note=note)
    else:
        yield Operation("unknown", source or target or "", is_exact=False, note=note)


def _file_operations(tool: str, path: str, args: Mapping[str, Any]) -> Iterator[Operation]:
    asked = args.get("command")
    verb = asked if isinstance(asked, str) and asked in _EDITOR_COMMANDS else tool
    text = first_text(args, WHOLE_NAMES)
    nested = [item for name in ("edits", "changes", "replacements") for item in _mappings(args.get(name))]
    edits = nested or [args]
    if _looks_only(verb):
        yield Operation("read", path)
    elif verb == "undo_edit":
        yield Operation("undo", path)
    elif any(first_text(edit, OLD_NAMES) is not None for edit in edits):
        yield from (_edit(path, edit) for edit in edits)
    elif verb == "insert" or "insert_line" in args:
        yield _insertion(path, args)
    elif text is not None and (_MAKES.search(verb) or _APPENDS.search(verb)) and not _PLACED_TEXT & args.keys():
        appends = _APPENDS.search(verb) is not None
        yield Operation("append" if appends else "write", path, new=text, is_whole=not appends, is_exact=not appends)
    elif text is None and _DELETES.search(verb):
        yield Operation("delete", path)
    elif _ALTERS.search(verb) or text is not None or "diff" in args or "patch" in args:
        note = f"a call of {tool[:60]!r} on {path!r} that cannot be replayed"
        yield Operation("edit", path, new=text or "", is_exact=False, note=note)
    elif _RUNS.search(verb):
        yield Operation("run", path, is_exact=False, note="python")
    else:
        yield Operation("read", path)


def _looks_only(verb: str) -> bool:
    return bool(_LOOKS.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", verb))) and not _ALTERS.search(verb)


def _edit(path: str, edit: Mapping[str, Any]) -> Operation:
    old, new = first_text(edit, OLD_NAMES), first_text(edit, NEW_NAMES)
    own_path = first_text(edit, PATH_NAMES) or path
    if old is None or new is None:
        note = f"an edit of {own_path!r} without its old or new text"
        return Operation("edit", own_path, old or "", new or "", is_exact=False, note=note)
    everywhere = edit.get("replace_all") is True or edit.get("replaceAll") is True
    return Operation("edit", own_path, old, new, everywhere=everywhere)


def _insertion(path: str, args: Mapping[str, Any]) -> Operation:
    line, new = args.get("insert_line"), first_text(args, ("insert_text", *NEW_NAMES, "text"))
    if not isinstance(line, int) or new is None:
        note = f"an insertion into {path!r} at an unknown line"
        return Operation("insert", path, new=new or "", is_exact=False, note=note)
    return Operation("insert", path, new=new, line=line)


def first_text(args: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the first of the named arguments that is a text, or a list of lines."""
    for name in names:
        value = args.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(line, str) for line in value):
            return "\n".join(value)
    return None


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
