"""One pass over a run: calls with the names, targets and effects that the profile gives them.

A tool only looks where its profile says so, or where the run's own description of it does (`readOnlyHint`). Its name shows nothing.

Every rule reads calls and turns only, each once, so the cost of all rules is linear in steps and bytes.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from quintain.records.labels.profiles import DomainProfile, ToolCategory, ToolProfile
from quintain.records.trajectory import Action, Actor, Observation, Step, Trajectory, text_of
from quintain.scoring.file_activity.calls import FOLDER_NAMES, FileCall, command_text, first_text, read_call
from quintain.scoring.file_activity.operations import Files, normal
from quintain.scoring.file_activity.programs import Purpose, waits
from quintain.scoring.file_activity.shell import parse_script
from quintain.scoring.integrity.permissions import Permissions
from quintain.scoring.profiles import PROFILES, bare_name, text_tools, tool_functions
from quintain.scoring.rules.commands import Effect, canonical_text, classify, printed_part

_STARTS = ("offset", "start_line", "line_start", "startLine", "start", "line_number")
_ENDS = ("end_line", "line_end", "endLine", "end")

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=repr).encode


@dataclass(slots=True)
class Call:
    """A tool call of the agent."""

    turn: int
    """Which of the agent's turns, from 0."""
    name: str
    """The name as the agent wrote it."""
    tool: str
    """The name in the profile, else the bare name."""
    category: ToolCategory | None
    """None: unknown."""
    key: str
    """Tool and arguments without comments; equal calls have equal keys."""
    args: Mapping[str, Any]
    target: str
    """The normal path that it works on; empty where it names none."""
    effect: Effect
    purpose: Purpose
    result: str | None
    """Result of the call; None where the run does not contain it."""
    failed: bool
    readable: bool
    repeatable: bool
    activity: FileCall
    command: str = ""
    """The command line of a call that executes."""
    file: str = ""
    """The file or page of the target: one for `a.py` and `/repo/a.py`; empty where it may be one of several."""
    lines: tuple[int, int | None] | None = None
    """First line of a read, from 1 (-1: from the end), and its last line; None: open end."""
    polls: bool = False
    """Whether a command waits for something that goes on by itself."""


@dataclass(slots=True)
class Turn:
    """A turn of the agent."""

    index: int
    calls: list[Call]
    text: str
    thought: str
    is_copy: bool
    """Whether it was copied from another session and is not work of this run."""
    is_answer: bool
    """Whether it is the final message, without calls."""
    after_user: bool
    """Whether a user spoke since the turn before."""
    failed: bool
    """Whether it got an error that belongs to no call."""


class ToolIndex:
    """The tools of a profile by all their names."""

    def __init__(self, profile: DomainProfile) -> None:
        self.profile = profile
        self._tools = {name.casefold(): tool for tool in profile.tools for name in (tool.name, *tool.aliases)}
        self._found: dict[str, ToolProfile | None] = {}

    def find(self, name: str) -> ToolProfile | None:
        """Return the tool of a name as agents write it, with or without the prefix of a server or namespace."""
        if name not in self._found:
            if len(self._found) > 10_000:  # names come from outside
                self._found.clear()
            self._found[name] = self._tools.get(name.casefold()) or self._tools.get(bare_name(name).casefold())
        return self._found[name]

    def canonical(self, name: str) -> str:
        """Return the one name of a tool for all its aliases."""
        tool = self.find(name)
        return tool.name if tool else bare_name(name).casefold()


@dataclass(slots=True)
class View:
    """A run as the rules see it."""

    index: ToolIndex
    turns: list[Turn]
    calls: list[Call]
    offered: frozenset[str]
    required: dict[str, tuple[str, ...]]
    """Tool -> arguments that its schema requires."""
    prompt: str
    """All messages before the agent's first turn."""
    calls_due: bool
    heard: list[tuple[int, str]]
    """Later messages: (turn of the agent that follows, text)."""
    permissions: Permissions
    """Names and declarations of the users."""
    files: Files

    def is_new_talk(self, turn: int) -> bool:
        """Whether a person spoke before this turn; in episodes the messages come from the environment."""
        return turn > 0 and self.turns[turn].after_user and not self.calls_due


_INDEXES = {name: ToolIndex(profile) for name, profile in PROFILES.items()}


def index_of(profile: DomainProfile) -> ToolIndex:
    """Return the index of a profile; those of built-in profiles are cached."""
    return _INDEXES[profile.name] if profile is PROFILES.get(profile.name) else ToolIndex(profile)


def view_of(run: Trajectory, index: ToolIndex) -> View:
    """Return a run as the rules see it."""
    turns: list[Turn] = []
    calls: list[Call] = []
    read_only = _read_only(run)
    prompt, heard = [run.task.prompt], []
    user_spoke = False
    for step in run.steps:
        if step.actor is not Actor.AGENT:
            if turns:
                heard.append((len(turns), text_of(step.message)))
            else:
                prompt.append(text_of(step.message))
            user_spoke |= step.actor is Actor.USER
            continue
        turn = _turn(step, len(turns), index, read_only, user_spoke=user_spoke)
        turns.append(turn)
        calls += turn.calls
        user_spoke = False
    last = run.steps[-1]
    turns[-1].is_answer = last.actor is Actor.AGENT and not last.actions and bool(turns[-1].text.strip())
    offered, required = _offered(run)
    profile = index.profile
    is_episode = run.source.format == "quintain" and bool(run.episode_key and run.tools)
    due = profile.calls == "due" or (profile.calls == "auto" and is_episode)
    texts = text_tools(run)
    for call in calls:
        call.readable |= call.name in texts
    files = Files(call.target for call in calls if call.target)
    for call in calls:
        if call.target:
            call.file = files[call.target]
    return View(index, turns, calls, offered, required, "\n".join(prompt), due, heard, Permissions(run), files)


def _turn(step: Step, number: int, index: ToolIndex, read_only: Set[str], *, user_spoke: bool) -> Turn:
    calls, left = [], False
    if step.actions:
        calls = [_call(action, number, index, read_only, seen) for action, seen in step.calls_with_results]
    if len(step.observations) > len(step.actions):
        left = any(seen.is_error for seen in step.observations[len(step.actions) :])
    return Turn(
        index=number,
        calls=calls,
        text=step.message if isinstance(step.message, str) else text_of(step.message),
        thought=step.thought or "",
        is_copy=step.copied_context,
        is_answer=False,
        after_user=user_spoke,
        failed=left,
    )


def _call(action: Action, turn: int, index: ToolIndex, read_only: Set[str], seen: Observation | None) -> Call:
    args = action.args if action.args is not None else {}
    known = index.find(action.tool)
    name = bare_name(action.tool).casefold()
    if known is None and action.tool in read_only:
        known = ToolProfile(name=name, category="read")
    call = Call(
        turn=turn,
        name=action.tool,
        tool=known.name if known else name,
        category=_category(known, args) if known else None,
        key="",
        args=args,
        target=_target(args, known.target) if known and known.target else "",
        effect=Effect.ANY,
        purpose=Purpose.OTHER,
        result=None if seen is None else seen.content if isinstance(seen.content, str) else text_of(seen.content),
        failed=seen is not None and seen.is_error,
        readable=action.args is not None,
        repeatable=known is not None and known.repeatable,
        activity=read_call(action, seen, turn),
    )
    compared: Mapping[str, Any] = args
    if call.category == "execute":
        compared = _read_script(call)
    elif call.category in {"read", "search", "think"}:
        call.effect = Effect.NONE
        call.lines = line_range(args) if call.category == "read" else None
    elif call.category == "write":
        call.target = call.target or _only_changed(call.activity)
        call.effect = Effect.TARGET if call.target else Effect.ANY
    if call.category == "read" and call.tool == "read_file" and len(compared) == 1 and call.target:
        call.key = f"read_file\n{call.target}"  # `Read(file_path=a)`, `cat a` and `read_file(path=a)` are one call
    else:
        call.key = f"{name}\n{_written(action, compared, turn)}"
    return call


def _category(known: ToolProfile, args: Mapping[str, Any]) -> ToolCategory | None:
    """Return what a tool does in the mode of this call, as an editor's `view` or `create`."""
    mode = args.get("command") if known.modes else None
    return known.modes.get(mode, known.category) if isinstance(mode, str) else known.category


def _read_script(call: Call) -> Mapping[str, Any]:
    """Add to a call what its command line does; return what makes it equal to another call.

    A script is one call in one folder, whatever the other arguments explain. One that only prints part of a file reads it.
    """
    call.command = command_text(call.args)
    if call.tool == "git" and call.command and not call.command.startswith("git"):
        call.command = f"git {call.command}"
    if call.tool not in {"bash", "git"} or not call.command:
        return call.args
    commands = parse_script(call.command)
    call.effect, call.purpose = classify(commands)
    call.polls = waits(commands)
    part = printed_part(commands) if call.effect is Effect.NONE else None
    if part:
        call.category, call.target, call.lines = "read", posixpath.normpath(part.path), (part.first, part.last)
        if call.lines == (1, None) and len(commands) == 1 and commands[0].program != "head":
            call.tool = "read_file"
            return {"path": part.path}
    return {"command": canonical_text(commands), "folder": first_text(call.args, FOLDER_NAMES)}


def _only_changed(activity: FileCall) -> str:
    """Return the file that a call changes where it is one file, else an empty path."""
    changed = {one.change.path for one in activity.operations if one.change is not None}
    return normal(changed.pop()) if len(changed) == 1 else ""


def line_range(args: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return the first and last line that a read asks for, from 1; the last is None for an open end."""
    both = args.get("view_range")
    if isinstance(both, list) and len(both) == 2:
        first, last = _line(both[0]), _line(both[1])
    else:
        first = next((line for name in _STARTS if (line := _line(args.get(name))) is not None), None)
        last = next((line for name in _ENDS if (line := _line(args.get(name))) is not None), None)
        limit = _line(args.get("limit", args.get("num_lines")))
        if last is None and limit is not None:
            last = (first or 1) + limit - 1
    first = first or 1
    return first, last if last is not None and first <= last else None


def _line(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:12])
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12 else None


def _written(action: Action, compared: Mapping[str, Any], turn: int) -> str:
    if action.args is None:
        return action.raw_args or ""
    try:
        return _encode(compared)
    except (ValueError, RecursionError):  # integers of thousands of digits, nesting without end: equal to no other call
        return f"cannot be written: turn {turn}"


def _target(args: Mapping[str, Any], names: Iterable[str]) -> str:
    for name in names:
        value = args.get(name)
        if isinstance(value, str) and value:
            return normal(value)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18:
            return str(value)
    return ""


def _read_only(run: Trajectory) -> frozenset[str]:
    """Return the tools whose description in the run says that they change nothing, as MCP's annotation does."""
    names = set()
    for function in tool_functions(run):
        hints = function.get("annotations")
        if (
            isinstance(name := function.get("name"), str)
            and isinstance(hints, dict)
            and hints.get("readOnlyHint") is True
        ):
            names.add(name)
    return frozenset(names)


def _offered(run: Trajectory) -> tuple[frozenset[str], dict[str, tuple[str, ...]]]:
    names, required = [], {}
    for function in tool_functions(run):
        if isinstance(name := function.get("name"), str):
            names.append(name)
            parameters = function.get("parameters")
            wanted = parameters.get("required") if isinstance(parameters, dict) else None
            if isinstance(wanted, list):
                required[name] = tuple(key for key in wanted if isinstance(key, str))
    return frozenset(names), required
