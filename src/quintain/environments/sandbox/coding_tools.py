"""Tools of an agent that works on code, and what each does in the workspace."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, StrictInt, StrictStr

from quintain.environments.tool_calls import refusal, tool_schemas
from quintain.errors import InvalidInput, Unavailable
from quintain.records.record import Record
from quintain.records.trajectory import Observation
from quintain.records.wording import clip, counted
from quintain.sandbox.backends import WORKSPACE
from quintain.sandbox.files import Entry, walk
from quintain.sandbox.limits import CommandResult, Limits
from quintain.sandbox.sandbox import Workspace

IGNORED = frozenset({".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Folders that do not belong to the code."""
MAX_OBSERVED = 16_000
MAX_WRITTEN = 1_000_000

_MAX_COMMAND = 30_000
_MAX_LISTED = 500
_MAX_READ = 4_000_000
_DURATION = re.compile(r"(\bin )[\d.]+s\b( \([\d:]+\))?( =*)?$", re.MULTILINE)
_Path = Annotated[StrictStr, Field(min_length=1, max_length=1000)]


class ListFiles(Record):
    """List the files below a folder."""

    path: _Path = "."


class ReadFile(Record):
    """Show a file, or `limit` lines of it from line `offset` on."""

    path: _Path
    offset: Annotated[StrictInt, Field(ge=1)] = 1
    limit: Annotated[StrictInt, Field(ge=1)] | None = None


class WriteFile(Record):
    """Write a whole file."""

    path: _Path
    content: Annotated[StrictStr, Field(max_length=MAX_WRITTEN)]


class EditFile(Record):
    """Replace a text that occurs exactly once in a file."""

    path: _Path
    old_string: Annotated[StrictStr, Field(min_length=1, max_length=MAX_WRITTEN)]
    new_string: Annotated[StrictStr, Field(max_length=MAX_WRITTEN)]


class Grep(Record):
    """List the lines that match an extended regular expression."""

    pattern: Annotated[StrictStr, Field(min_length=1, max_length=1000)]
    path: _Path = "."


class Bash(Record):
    """Run a shell command in /workspace. Only files there outlive it; there is no network."""

    command: Annotated[StrictStr, Field(min_length=1, max_length=_MAX_COMMAND)]


class Git(Record):
    """Run git, such as diff, status or log -p."""

    arguments: Annotated[StrictStr, Field(max_length=_MAX_COMMAND)] = "diff"


class RunTests(Record):
    """Run the tests that are there."""


class Submit(Record):
    """End: hidden tests judge the files as they are."""


ARGUMENTS: dict[str, type[Record]] = {
    "list_files": ListFiles,
    "read_file": ReadFile,
    "write_file": WriteFile,
    "edit_file": EditFile,
    "grep": Grep,
    "bash": Bash,
    "git": Git,
    "run_tests": RunTests,
    "submit": Submit,
}
TOOLS = tool_schemas(ARGUMENTS)


@dataclass
class CodingTools:
    """A workspace with an agent's tools."""

    workspace: Workspace
    test_command: str | Sequence[str]
    limits: Limits
    test_s: float
    """Time limit of a test run in seconds."""
    commands: int = 0

    def do(self, call: Record) -> Observation:
        """Carry out a call."""
        try:
            match call:
                case ListFiles():
                    return self._list(call)
                case ReadFile():
                    return self._read(call)
                case WriteFile():
                    return self._write(call.path, call.content, f"{counted(len(call.content), 'character')} written.")
                case EditFile():
                    return self._edit(call)
                case Grep():
                    return self._grep(call)
                case Bash():
                    return self._observe(self._run(_shell(call.command)))
                case Git():
                    return self._git(call)
                case _:
                    return self._test()
        except InvalidInput as error:  # an invalid path
            return refusal(error.message)
        except OSError as error:
            return refusal(f"{clip(getattr(call, 'path', 'the workspace'))}: {(error.strerror or str(error)).lower()}")

    def _list(self, call: ListFiles) -> Observation:
        folder = _inside(call.path)
        if folder and not any(entry.path == folder and entry.kind == "folder" for entry in self._entries()):
            return refusal(f"there is no folder {clip(call.path)!r}; list_files without a path shows what there is")
        paths = [entry.path for entry in self._entries(folder) if entry.kind != "folder"]
        more = f"\n[{len(paths) - _MAX_LISTED} more]" if len(paths) > _MAX_LISTED else ""
        return _clipped("\n".join(sorted(paths)[:_MAX_LISTED]) + more or "No files.")

    def _entries(self, below: str = "") -> list[Entry]:
        return list(walk(self.workspace.folder, IGNORED, below))

    def _read(self, call: ReadFile) -> Observation:
        text = self._text(call.path)
        lines = text.splitlines(keepends=True)
        chosen = lines[call.offset - 1 :][: call.limit]
        if lines and not chosen:
            return refusal(f"{clip(call.path)!r} has {counted(len(lines), 'line')}, so none from {call.offset} on")
        return _clipped("".join(chosen) or "The file is empty.")

    def _write(self, path: str, text: str, answer: str) -> Observation:
        if self.workspace.is_full(self.limits):
            return refusal(f"the workspace has more than {self.limits.disk_mb} MB; delete files first")
        self.workspace.write(_inside(path), text.encode("utf-8", "replace"))
        return Observation(content=answer)

    def _edit(self, call: EditFile) -> Observation:
        text = self._text(call.path)
        found = text.count(call.old_string)
        if found != 1:
            where = "does not occur" if not found else f"occurs {found} times"
            return refusal(
                f"old_string {where} in {clip(call.path)!r}; give a piece of the file that occurs there once"
            )
        return self._write(call.path, text.replace(call.old_string, call.new_string), "Edited.")

    def _text(self, path: str) -> str:
        data = self.workspace.read(_inside(path), _MAX_READ + 1)
        if len(data) > _MAX_READ:
            raise InvalidInput(f"{clip(path)!r} is larger than {_MAX_READ:,} bytes; look at a part of it with bash")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidInput(f"{clip(path)!r} is no text; look at it with bash") from None

    def _grep(self, call: Grep) -> Observation:
        skipped = [f"--exclude-dir={name}" for name in sorted(IGNORED)]
        path = _inside(call.path) or "."
        ran = self._run(["grep", "-rnIE", *skipped, "-e", call.pattern, "--", path])
        if ran.exit_code == 1 and not ran.stderr:
            return Observation(content="No line matches.")
        # The order of folders depends on the disk; sorting makes a replayed run give the same observation.
        found = sorted(ran.stdout.splitlines(), key=_place)
        return self._observe(replace(ran, stdout="\n".join(found)) if not ran.shortened else ran)

    def _git(self, call: Git) -> Observation:
        try:
            words = shlex.split(call.arguments)
        except ValueError as error:
            return refusal(f"the arguments of git cannot be read ({error}); quote them as in a shell")
        return self._observe(self._run(["sh", "-c", 'exec 2>&1; exec git --no-pager "$@"', "git", *words]))

    def _test(self) -> Observation:
        command = self.test_command
        line = command if isinstance(command, str) else shlex.join(command)
        limits = replace(self.limits, wall_s=self.test_s, cpu_s=max(int(self.test_s), 1))
        observation = self._observe(self._run(_shell(line), limits), limits)
        # Durations would make a replayed run differ.
        return observation.model_copy(update={"content": _DURATION.sub(r"\1some time\3", str(observation.content))})

    def _run(self, command: Sequence[str], limits: Limits | None = None) -> CommandResult:
        self.commands += 1
        ran = self.workspace.run(command, limits or self.limits)
        if ran.exit_code == 125 and self.workspace.is_broken():
            raise Unavailable(
                f"the sandbox does not start any more: {clip(ran.stderr.strip(), 200)}", code="no_sandbox"
            )
        return ran

    def _observe(self, ran: CommandResult, limits: Limits | None = None) -> Observation:
        text = "\n".join(part for part in (ran.stdout.rstrip(), ran.stderr.rstrip()) if part)
        if ran.timed_out:
            note = f"[stopped after {(limits or self.limits).wall_s:g} s with all that it had started]"
        elif ran.stopped:
            note = f"[the workspace has more than {self.limits.disk_mb} MB: until files are deleted nothing can be written]"
        elif ran.exit_code:
            note = f"[exit code {ran.exit_code}]"
        else:
            return _clipped(text or "[no output]")
        return _clipped(text, note, is_error=ran.stopped is not None)


def _place(line: str) -> tuple[str, int]:
    """Return file and line number of a match of grep."""
    path, _, rest = line.partition(":")
    number = rest.partition(":")[0]
    return path, int(number) if number.isdecimal() else 0


def _shell(line: str) -> list[str]:
    """Return a command that runs a line in `sh` with stdout and stderr in one stream."""
    return ["sh", "-c", f"exec 2>&1\n{line}"]


def _inside(path: str) -> str:
    """Return an agent's path relative to the workspace; empty for the workspace itself."""
    inside = path.removeprefix(WORKSPACE).lstrip("/") if path == WORKSPACE or path.startswith(f"{WORKSPACE}/") else path
    return "" if inside in ("", ".", "./") else inside.removesuffix("/")


def _clipped(text: str, note: str = "", *, is_error: bool = False) -> Observation:
    """Return an observation with the beginning and the end of a long text, and the number of characters between them."""
    if len(text) > MAX_OBSERVED:
        half = MAX_OBSERVED // 2
        text = f"{text[:half]}\n[... {len(text) - MAX_OBSERVED:,} characters left out ...]\n{text[-half:]}"
    return Observation(content="\n".join(part for part in (text, note) if part), is_error=is_error)
