"""Regression: edits that undo earlier ones, content that is written back, commands that throw changes away."""

from __future__ import annotations

import re
from collections.abc import Iterator

from quintain.scoring.file_activity.paths import normal
from quintain.scoring.rules.shell import Kind
from quintain.scoring.rules.view import Call, View

_OLD = ("old_string", "old_str", "search", "old_text", "oldString", "old")
_NEW = ("new_string", "new_str", "replace", "new_text", "newString", "new")
_WHOLE = ("content", "file_text", "contents", "text", "new_content")
_HUNK_FILE = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$|^\+\+\+ (?:b/)?(\S+)")
_MAX_PATCH_LINES = 20_000


def replacements(call: Call) -> Iterator[tuple[str, str, str]]:
    """(file, old, new) of each replacement that a call makes."""
    if call.category != "write" or not call.readable:
        return
    file = call.target
    edits = call.args.get("edits")
    for one in edits if isinstance(edits, list) else (call.args,):
        if not hasattr(one, "get"):
            continue
        old = next((one[name] for name in _OLD if isinstance(one.get(name), str)), None)
        new = next((one[name] for name in _NEW if isinstance(one.get(name), str)), None)
        if old is not None and new is not None:
            yield file, old, new
    for value in call.args.values():
        if isinstance(value, str) and ("*** Begin Patch" in value or "\n@@" in value):
            yield from _hunks(value)


def _hunks(patch: str) -> Iterator[tuple[str, str, str]]:
    """Removed and added lines of each hunk of a patch, in the formats of Codex and of `diff -u`."""
    file = ""
    old: list[str] = []
    new: list[str] = []
    for line in patch.split("\n", _MAX_PATCH_LINES)[:_MAX_PATCH_LINES]:
        named = _HUNK_FILE.match(line)
        if named or line.startswith(("@@", "***")):
            if old or new:
                yield file, "\n".join(old), "\n".join(new)
            old, new = [], []
            file = normal((named[1] or named[2]).strip()) if named else file
        elif line.startswith("-") and not line.startswith("---"):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])
    if old or new:
        yield file, "\n".join(old), "\n".join(new)


def whole_content(call: Call) -> str | None:
    """What a call makes the whole of a file, if it does."""
    if call.category != "write" or not call.readable:
        return None
    return next((call.args[name] for name in _WHOLE if isinstance(call.args.get(name), str)), None)


def non_regression(view: View) -> list[float | None]:
    """For each call that changes files: 0 where it takes back what was changed before, else 1; None for other calls.

    What was changed before a user spoke may be taken back at the user's wish, and a path that may be one of several files is
    held to be a file of its own.
    """
    made: set[tuple[str, str, str]] = set()
    contents: dict[str, list[str]] = {}
    written: dict[str, set[str]] = {}
    parts: list[float | None] = []
    changed = False
    turn = 0
    for call in view.calls:
        if call.turn != turn:
            turn = call.turn
            if view.is_new_talk(turn):
                made.clear()
                contents.clear()
                written.clear()
                changed = False
        if call.kind is Kind.UNDO:
            parts.append(0.0 if changed else None)
            continue
        if call.category != "write":
            parts.append(None)
            continue
        undoes = call.args.get("command") == "undo_edit" and changed
        for path, old, new in replacements(call):
            file = view.files[path] or path
            undoes |= (file, new, old) in made and old != new
            if not call.failed:
                made.add((file, old, new))
        content = whole_content(call)
        if content is not None:
            file = call.file or call.target
            history = contents.setdefault(file, [])
            undoes |= bool(history) and history[-1] != content and content in written.get(file, ())
            if not call.failed:
                history[:] = [content]
                written.setdefault(file, set()).add(content)
        changed |= not call.failed
        parts.append(0.0 if undoes else 1.0)
    return parts
