"""Reconstruct the files that a run leaves behind, by replaying its calls.

Operations whose text is known exactly are replayed. After any other call that may have changed a file, the files are unknown,
with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from quintain.records.trajectory import Trajectory, text_of
from quintain.scoring.file_activity.calls import FileCall, file_calls_of
from quintain.scoring.file_activity.operations import Operation
from quintain.scoring.file_activity.patches import apply_patch
from quintain.scoring.file_activity.python_code import may_write
from quintain.scoring.outcomes.final_message import final_messages

_ROOTS = ("/workspace", "/testbed", "/repo", "/app", "/tmp/workspace")
"""Common workspaces on agents' machines."""
_ELSEWHERE = ("/tmp", "/dev", "/etc", "/proc", "/usr", "/var")
"""Folders outside of every workspace."""
_REFUSED = re.compile(
    r"(?m)^[^\n]{0,200}(?:Permission denied|Read-only file system|command not found|No space left|cannot create)"
)
_UNAPPLIED = re.compile(r"(?m)^<{5,9} ?SEARCH\b")
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)


def written_files(
    run: Trajectory, start: Mapping[str, str], *, root: str | None = None, copied: Sequence[str] = ()
) -> WorkspaceChanges:
    """Replay what the agent's calls did to files.

    A recorder that knows the final state gives it as `run.extra["files"]` (path -> text), which is taken instead.

    Args:
        run: The run.
        start: The files at its start, by path.
        root: The workspace on the agent's machine, such as `/workspace`; None: it is inferred, else one of the usual ones.
        copied: Names of other files that the workspace is known to contain or will receive.

    Returns:
        The files at the end; `unseen` is the reason where they are not known.
    """
    recorded = run.extra.get("files")
    if isinstance(recorded, Mapping) and recorded and all(isinstance(text, str) for text in recorded.values()):
        state = WorkspaceChanges(dict(start))
        for path, text in recorded.items():
            name = relative(str(path), root)
            if name is not None:
                state.files[name] = text
                state.changed.add(name)
        return state
    calls = list(file_calls_of(run))
    paths = [operation.path for call in calls if not call.command for operation in call.operations]
    state = workspace(start, root, {*start, *copied}, paths)
    for call in calls:
        _replay(call, state)
    if any(_UNAPPLIED.search(text_of(step.message)) for step in run.own_steps):
        state.lose("a message with SEARCH/REPLACE blocks, which no call applies")
    return state


def last_code(run: Trajectory) -> str | None:
    """Return the last fenced block of the agent's last message with one; None where no message has one."""
    for message in final_messages(run):
        blocks = _FENCED.findall(message)
        if blocks:
            return str(blocks[-1][1])
    return None


def _replay(call: FileCall, state: WorkspaceChanges) -> None:
    """Apply a call; a script that failed may have done part of its work."""
    before = (dict(state.files), state.unseen)
    for operation in call.operations:
        _apply(operation, state)
    result = text_of(call.result.content) if call.result else ""
    changed = (dict(state.files), state.unseen) != before
    if call.command and before[1] is None and state.unseen is not None:
        state.unseen = f"{state.unseen}, by the command {call.command.strip()[:80]!r}"
    if call.command and (call.failed or _REFUSED.search(result)) and changed:
        state.lose(f"a command that failed may have changed files: {call.command.strip()[:80]!r}")


def _apply(operation: Operation, state: WorkspaceChanges) -> None:
    kind, path = operation.kind, operation.path
    if kind == "run":
        _run(operation, state)
        return
    if not operation.changes_files:
        return
    name = state.place(path) if path else None
    if kind == "move" or kind == "copy":
        _move(operation, name, state)
    elif path and name is None:
        return
    elif not operation.is_exact or name is None:
        state.lose(f"a change that cannot be replayed: {operation.note or kind}")
    elif kind == "patch":
        _patch(operation, name, state)
    elif kind == "write":
        state.put(name, operation.new)
    elif kind == "append":
        _append(name, operation.new, state)
    elif kind == "delete":
        state.drop(name)
    elif kind == "undo":
        state.undo(name)
    elif kind == "insert":
        _insert(name, operation, state)
    else:
        _edit(name, operation, state)


def _run(operation: Operation, state: WorkspaceChanges) -> None:
    """Pass over Python code that changes no file; anything else that runs may change any."""
    code: str | None = operation.new if operation.note == "python" and not operation.path else None
    if operation.path:
        code = state.files.get(state.place(operation.path) or "")
    if code is None or may_write(code, state.files):
        state.lose(f"{operation.note or operation.path!r} may change files")


def _patch(operation: Operation, name: str, state: WorkspaceChanges) -> None:
    change = operation.change
    if change is None or change.kind == "delete":
        state.drop(name)
    elif change.kind == "add":
        state.put(name, f"{change.added}\n" if change.added else "")
    elif name not in state.files:
        state.lose(f"a patch that cannot be replayed: the text of {name!r} is not known")
    else:
        try:
            text = apply_patch(state.files[name], change)
        except ValueError as error:
            state.lose(f"a patch that cannot be replayed: {error}")
            return
        target = state.place(operation.target) if operation.target else name
        if operation.target:
            state.drop(name)
        if target:
            state.put(target, text)


def _append(name: str, text: str, state: WorkspaceChanges) -> None:
    if name in state.files:
        state.put(name, state.files[name] + text)
    else:
        state.lose(f"a text is appended to {name!r}, which is not known")


def _edit(name: str, operation: Operation, state: WorkspaceChanges) -> None:
    old, new = operation.old, operation.new
    text = state.files.get(name)
    if old == "" and text in (None, ""):
        state.put(name, new)
    elif text is None or not old or old not in text:
        state.lose(f"an edit of {name!r} whose old text is not in what is known of the file")
    elif text.count(old) > 1 and not operation.everywhere:
        state.lose(f"an edit of {name!r} whose old text occurs {text.count(old)} times")
    else:
        state.put(name, text.replace(old, new))


def _insert(name: str, operation: Operation, state: WorkspaceChanges) -> None:
    line, new = operation.line, operation.new
    lines = state.files.get(name, "").splitlines(keepends=True)
    if line is None or not 0 <= line <= len(lines):
        state.lose(f"an insertion into {name!r} at an unknown line")
    else:
        state.put(name, "".join([*lines[:line], new if new.endswith("\n") else new + "\n", *lines[line:]]))


def _move(operation: Operation, source: str | None, state: WorkspaceChanges) -> None:
    """Move or copy one file whose text is known to a path that is a file or a known folder."""
    target = state.place(operation.target)
    if source is None and target is None:
        return
    is_exact = operation.is_exact and not operation.target.endswith(("/", "."))
    if source is None or target is None or source not in state.files or not is_exact:
        state.lose(f"a {operation.kind} that cannot be replayed: {operation.note or operation.path!r}")
        return
    if any(name.startswith(f"{target}/") for name in state.files):
        target = f"{target}/{source.rpartition('/')[2]}"
    elif "." not in target.rpartition("/")[2]:
        state.lose(f"a {operation.kind} to {operation.target[:40]!r}, which may be a file or a folder")
        return
    text = state.files[source]
    if operation.kind == "move":
        state.drop(source)
    state.put(target, text)


@dataclass
class WorkspaceChanges:
    """File operations of a run in a workspace."""

    files: dict[str, str]
    changed: set[str] = field(default_factory=set)
    """Paths that the run wrote or edited."""
    unseen: str | None = None
    """The first change that cannot be replayed; None: all were replayed."""
    roots: tuple[str, ...] = ()
    """Folders on the agent's machine that may be its workspace."""
    is_stated: bool = False
    """Whether the task states the workspace, so that any other path is outside of it."""
    _before: dict[str, list[str | None]] = field(default_factory=dict)

    def put(self, name: str, text: str) -> None:
        """Set the text of a file."""
        self._before.setdefault(name, []).append(self.files.get(name))
        self.files[name] = text
        self.changed.add(name)

    def drop(self, name: str) -> None:
        """Remove a file, or a folder with its content."""
        for path in [path for path in self.files if path == name or path.startswith(f"{name}/")]:
            self._before.setdefault(path, []).append(self.files.pop(path))
            self.changed.add(path)

    def undo(self, name: str) -> None:
        """Undo the last change of a file."""
        if not self._before.get(name):
            self.lose(f"{name!r} is reset to an unknown text")
        elif (before := self._before[name].pop()) is None:
            self.files.pop(name, None)
        else:
            self.files[name] = before

    def lose(self, why: str) -> None:
        """Note a change that cannot be replayed; the first reason stays."""
        self.unseen = self.unseen or why

    def place(self, path: str) -> str | None:
        """Return the name of a file in the workspace; None for one outside of it, or whose place is not known (see `unseen`)."""
        whole = path.strip()
        name = next((found for root in self.roots if (found := relative(whole, root)) is not None), None)
        if (
            name is None
            and not self.is_stated
            and not any(PurePosixPath(whole).is_relative_to(top) for top in _ELSEWHERE)
        ):
            self.lose(f"{path.strip()[:80]!r} may be a file of the workspace or not; state its folder as checker.root")
        return name


def relative(path: str, root: str | None) -> str | None:
    """Return a path on the agent's machine relative to its workspace; None for a path outside of it."""
    parts: list[str] = []
    pure = PurePosixPath(path.strip())
    if pure.is_absolute():
        top = next((top for top in ([root] if root else _ROOTS) if pure.is_relative_to(top)), None)
        if top is None:
            return None
        pure = pure.relative_to(top)
    for part in pure.parts:
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts) if parts and "\0" not in path else None


def workspace(start: Mapping[str, str], root: str | None, known: set[str], paths: list[str]) -> WorkspaceChanges:
    """Return the workspace before the first call.

    Its folder on the agent's machine is the given one, else inferred from absolute paths of known files, else one of the usual ones.
    """
    if root:
        return WorkspaceChanges(dict(start), roots=(root,), is_stated=True)
    tops = {
        path[: -len(name) - 1]
        for path in map(str.strip, paths)
        for name in known
        if path.startswith("/") and path.endswith(f"/{name}") and relative(path, None) is None
    }
    state = WorkspaceChanges(dict(start), roots=(*tops, *_ROOTS) if len(tops) == 1 else _ROOTS)
    if len(tops) > 1:
        state.lose(f"its files are named below {len(tops)} folders ({', '.join(sorted(tops)[:2])}); state checker.root")
    return state
