"""What an agent leaves: the files that it changed, found from outside its workspace, and the patch that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from quintain.environments.sandbox.workshop import IGNORED
from quintain.records.record import counted
from quintain.sandbox.files import Entry, read_bytes, read_link, walk, write_link
from quintain.sandbox.limits import Limits
from quintain.sandbox.sandbox import Sandbox, Workspace

MAX_CHANGED, MAX_BYTES = 2_000, 50_000_000
"""Files that a submission may change, and their size."""
MAX_PATCH = 200_000
"""Characters of a patch that are kept."""

_LARGE = 1_000_000
# Attributes among the changed files could hide what they change: those of the repository itself go before them.
_DIFF = """cd a && git init -q . && echo '* !diff !text !eol !filter' > .git/info/attributes && git add -A -f . && old=$(git write-tree) &&
cd ../b && git --git-dir=../a/.git --work-tree=. add -A -f . && git --git-dir=../a/.git diff --cached --no-color --no-ext-diff $old"""


class TooLarge(Exception):
    """A submission that changes more than is looked at."""


class File(NamedTuple):
    """A file, or a link."""

    data: bytes
    mode: int = 0o644
    is_link: bool = False


class Change(NamedTuple):
    """A file that differs from how the agent found it."""

    path: str
    before: File | None
    after: File | None


class Patch(NamedTuple):
    """A patch in the form of `git diff`."""

    text: str
    files: int
    lines: int
    """Added and removed ones."""


def changes(base: Workspace, agent: Workspace) -> list[Change]:
    """What differs between two workspaces in which no command runs.

    Raises:
        TooLarge: more files, or larger ones, than are looked at.
    """
    try:
        old, new = _files(base), _files(agent)
    except OSError as error:
        raise TooLarge(str(error.strerror)) from None
    found: list[Change] = []
    size = 0
    for path in sorted(old.keys() | new.keys()):
        before, after = old.get(path), new.get(path)
        if before and after and before.size != after.size:
            pass
        elif before and after and _load(base, before) == _load(agent, after):
            continue
        size += after.size if after else 0
        if len(found) >= MAX_CHANGED or size > MAX_BYTES:
            raise TooLarge(f"more than {counted(MAX_CHANGED, 'file')} or {MAX_BYTES // 1_000_000} MB are changed")
        found.append(Change(path, before and _load(base, before), after and _load(agent, after)))
    return found


def _files(workspace: Workspace) -> dict[str, Entry]:
    entries = walk(workspace.folder, IGNORED)
    return {
        entry.path: entry for entry in entries if entry.kind in {"file", "link"} and not entry.path.endswith(".pyc")
    }


def _load(workspace: Workspace, entry: Entry) -> File:
    if entry.kind == "link":
        return File(read_link(workspace.folder, entry.path).encode("utf-8", "surrogateescape"), 0o777, True)
    # Of permissions git knows one alone: may it be executed?
    mode = 0o755 if entry.mode & 0o100 else 0o644
    return File(read_bytes(workspace.folder, entry.path, MAX_BYTES + 1), mode)


def put(workspace: Workspace, wanted: Sequence[Change]) -> None:
    """Make these changes in a workspace.

    Raises:
        TooLarge: they do not fit in, such as a file where a folder stays.
    """
    try:
        for change in wanted:  # first all that goes: a file may give way to a folder
            workspace.remove(change.path) if change.before else None
        for change in wanted:
            if change.after is not None:
                _write(workspace, change.path, change.after)
    except OSError as error:
        raise TooLarge(f"{error.filename}: {error.strerror}") from None


def _write(workspace: Workspace, path: str, file: File) -> None:
    if file.is_link:
        target = file.data.decode("utf-8", "surrogateescape")
        write_link(workspace.folder, path, target, workspace.place.uid)
    else:
        workspace.write(path, file.data, file.mode)


def patch_of(sandbox: Sandbox, found: Sequence[Change], limits: Limits) -> Patch:
    """The patch of some changes, made by git in a workspace that the agent has never seen."""
    small = [
        change for change in found if all(len(file.data) <= _LARGE for file in (change.before, change.after) if file)
    ]
    text = ""
    if small:
        with sandbox.workspace({"a/.keep": "", "b/.keep": ""}) as workspace:
            for change in small:
                for side, file in (("a", change.before), ("b", change.after)):
                    if file is not None:
                        _write(workspace, f"{side}/{change.path}", file)
            text = workspace.run(_DIFF, limits).stdout
    text += "".join(f"[{change.path} is too large to be shown]\n" for change in found if change not in small)
    lines = sum(line[:1] in {"+", "-"} and line[:4] not in {"+++ ", "--- "} for line in text.splitlines())
    return Patch(text[:MAX_PATCH], len(found), lines)


def without(found: Sequence[Change], kept_back: Callable[[str], bool]) -> list[Change]:
    """Changes less those of files that are taken from the task alone."""
    return [change for change in found if not kept_back(change.path)]


def texts(files: Mapping[str, str]) -> list[Change]:
    """Files of a task as changes, which replace those that are there."""
    return [Change(path, File(b""), File(text.encode("utf-8", "replace"))) for path, text in files.items()]
