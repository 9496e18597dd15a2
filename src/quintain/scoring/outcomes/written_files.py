"""The files that a run leaves behind, replayed from its calls: whole writes, edits by old and new text, patches, here-documents.

What can be replayed exactly is; any other call that may have changed a file makes the files unknown, which is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quintain.records.trajectory import Action, Observation, Step, Trajectory, text_of
from quintain.scoring.outcomes.final_message import final_messages
from quintain.scoring.outcomes.replayed import Written, relative, workspace
from quintain.scoring.outcomes.shell_replay import code_writes, replay_command, replay_patch

_PATHS = ("file_path", "path", "filePath", "filename", "file", "target_file", "absolute_path", "file_name")
_WHOLE = ("content", "contents", "file_text", "new_source", "text", "data")
_OLD = ("old_string", "old_str", "old_text", "oldText", "oldString", "search", "old")
_NEW = ("new_string", "new_str", "new_text", "newText", "newString", "replace", "new")
_COMMANDS = ("command", "cmd", "script", "code", "bash", "input", "commands", "cell")
_PATCHES = ("patch", "input", "patch_text", "diff", "patchText")
_MAKES = re.compile(r"writ|creat|save|put_file|overwrit", re.IGNORECASE)
_DELETES = re.compile(r"delet|remov|unlink", re.IGNORECASE)
_MOVES = re.compile(r"\bmov|renam", re.IGNORECASE)
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
_REFUSED = re.compile(
    r"(?m)^[^\n]{0,200}(?:Permission denied|Read-only file system|command not found|No space left|cannot create)"
)
_UNAPPLIED = re.compile(r"(?m)^<{5,9} ?SEARCH\b")
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)


def written_files(
    run: Trajectory, start: Mapping[str, str], *, root: str | None = None, given: Sequence[str] = ()
) -> Written:
    """Replay what the agent's calls did to files; calls that failed did nothing.

    A recorder that knows better says so: `run.extra["files"]` (path -> text) is the state at the end.

    Args:
        run: The run.
        start: The files that it found.
        root: The folder on the agent's machine that paths are below, such as `/workspace`; None: the usual ones.
        given: Names of other files that the workspace is known to hold or to get.
    """
    told = run.extra.get("files")
    if isinstance(told, Mapping) and told and all(isinstance(text, str) for text in told.values()):
        state = Written(dict(start))
        for path, text in told.items():
            name = relative(str(path), root)
            if name is not None:
                state.files[name] = text
                state.changed.add(name)
        return state
    paths = [path for step in run.agent_steps for action in step.actions if (path := _first(action.args or {}, _PATHS))]
    state = workspace(start, root, {*start, *given}, paths)
    for step in run.agent_steps:
        if step.copied_context:
            continue
        for action, seen in _calls(step):
            _replay(action, seen, state)
        if _UNAPPLIED.search(text_of(step.message)):
            state.lose("a message with SEARCH/REPLACE blocks, which no call applies")
    return state


def last_code(run: Trajectory) -> str | None:
    """The last fenced block of what the agent said last with one; None: there is none."""
    for message in final_messages(run):
        blocks = _FENCED.findall(message)
        if blocks:
            return str(blocks[-1][1])
    return None


def _calls(step: Step) -> Iterator[tuple[Action, Observation | None]]:
    """Each call with what came back."""
    by_id = {seen.call_id: seen for seen in step.observations if seen.call_id}
    for place, action in enumerate(step.actions):
        seen = by_id.get(action.call_id) if action.call_id else None
        if seen is None and len(step.observations) == len(step.actions):
            seen = step.observations[place]
        yield action, seen


def _replay(action: Action, seen: Observation | None, state: Written) -> None:
    """Do to the files what a call did; one that failed did nothing, but a script may have done a part of its work."""
    args = action.args or {}
    told = text_of(seen.content) if seen else ""
    failed = bool(seen and (seen.is_error or told.lstrip().lower().startswith("error")))
    path = _first(args, _PATHS)
    command = _command(action)
    if (patch := _patch(action)) is not None and not failed:
        replay_patch(patch, state)
    elif path is None and command is not None:
        before = (dict(state.files), state.unseen)
        _run(action, command, state)
        if (failed or _REFUSED.search(told)) and (dict(state.files), state.unseen) != before:
            state.lose(f"a command that failed may have changed files: {str(command).strip()[:80]!r}")
    elif failed:
        return
    elif path is None:
        if _ALTERS.search(action.tool) and not _LOOKS.search(action.tool):
            _move(action, state)
    else:
        _replay_file(action, path, args, state)


def _command(action: Action) -> str | list[str] | None:
    """The command that a call runs, as text or as a program and its arguments; None: it runs none."""
    args = action.args or {}
    if args:
        value = next((args[name] for name in _COMMANDS if isinstance(args.get(name), str | list)), None)
    else:
        value = action.raw_args
    if isinstance(value, list):
        return value if value and all(isinstance(word, str) for word in value) else None
    known = _RUNS.search(action.tool) or "command" in args or "cmd" in args
    return value if isinstance(value, str) and known else None


def _patch(action: Action) -> str | None:
    args = action.args or {}
    text = _first(args, _PATCHES) if args else action.raw_args
    return text if text is not None and ("*** Begin Patch" in text or action.tool.endswith("apply_patch")) else None


def _run(action: Action, command: str | list[str], state: Written) -> None:
    args = action.args or {}
    folder = _first(args, ("workdir", "cwd", "working_directory")) or ""
    if isinstance(command, str) and _PYTHON.search(action.tool):
        if code_writes(command, state):
            state.lose(f"code that may change files: {command.strip()[:80]!r}")
        return
    inside = next((root for root in state.roots if f"{folder}/".startswith(f"{root}/")), None)
    replay_command(command, state, folder[len(inside) :].strip("/") if inside else folder.strip("./"))


def _move(action: Action, state: Written) -> None:
    args = action.args or {}
    source = _first(args, ("source", "old_path", "src", "from", "source_path"))
    target = _first(args, ("destination", "new_path", "dst", "dest", "to", "target", "destination_path"))
    names = [state.place(path) if path else None for path in (source, target)]
    if names[0] in state.files and names[1] and _MOVES.search(action.tool.replace("_", " ")):
        text = state.files[names[0] or ""]
        state.drop(names[0] or "")
        state.put(names[1], text)
    elif any(names) or not (source and target):
        state.lose(f"a call of {action.tool[:60]!r} that cannot be replayed")


def _replay_file(action: Action, path: str, args: Mapping[str, Any], state: Written) -> None:
    asked = _first(args, ("command",))
    verb = (
        asked if asked in {"create", "write", "str_replace", "insert", "view", "delete", "undo_edit"} else action.tool
    )
    if _looks_only(verb):
        return
    name = state.place(path)
    if name is None:
        return
    edits = args["edits"] if isinstance(args.get("edits"), list) else [args]
    text = _first(args, _WHOLE)
    if verb == "undo_edit":
        state.undo(name)
    elif any(isinstance(edit, Mapping) and _first(edit, _OLD) is not None for edit in edits):
        for edit in edits:
            _edit(name, edit, state)
    elif verb == "insert" or "insert_line" in args:
        _insert(name, args, state)
    elif (
        text is not None
        and _MAKES.search(verb)
        and not {"mode", "append", "start_line", "line", "offset"} & args.keys()
    ):
        state.put(name, text)
    elif _DELETES.search(verb):
        state.drop(name)
    elif _ALTERS.search(verb) or text is not None or "diff" in args or "patch" in args:
        state.lose(f"a call of {action.tool[:60]!r} on {name!r} that cannot be replayed")
    elif _RUNS.search(verb) and (name not in state.files or code_writes(state.files[name], state)):
        state.lose(f"{name!r} was run, which may change files")


def _looks_only(verb: str) -> bool:
    return bool(_LOOKS.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", verb))) and not _ALTERS.search(verb)


def _edit(name: str, edit: Any, state: Written) -> None:
    old, new = (_first(edit, _OLD), _first(edit, _NEW)) if isinstance(edit, Mapping) else (None, None)
    text = state.files.get(name)
    if old is None or new is None:
        state.lose(f"an edit of {name!r} without its old or new text")
    elif old == "" and text in (None, ""):
        state.put(name, new)
    elif text is None or not old or old not in text:
        state.lose(f"an edit of {name!r} whose old text is not in what is known of the file")
    elif edit.get("replace_all") is True or edit.get("replaceAll") is True:
        state.put(name, text.replace(old, new))
    elif text.count(old) > 1:
        state.lose(f"an edit of {name!r} whose old text stands there {text.count(old)} times")
    else:
        state.put(name, text.replace(old, new))


def _insert(name: str, args: Mapping[str, Any], state: Written) -> None:
    line, new = args.get("insert_line"), _first(args, ("insert_text", *_NEW, "text"))
    lines = state.files.get(name, "").splitlines(keepends=True)
    if not isinstance(line, int) or new is None or not 0 <= line <= len(lines):
        return state.lose(f"an insertion into {name!r} at a line that is not known")
    state.put(name, "".join([*lines[:line], new if new.endswith("\n") else new + "\n", *lines[line:]]))
    return None


def _first(args: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((args[name] for name in names if isinstance(args.get(name), str)), None)
