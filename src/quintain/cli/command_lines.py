"""Calls of tools as command lines, and hints as the terminal shows them.

How a command writes the arguments of its tool is kept in `option_forms.json`, so that a hint imports no tool.
`python -m scripts.make_tool_reference` writes the file from the catalog; a test compares the two.
"""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from quintain.cli.table import COMMANDS, Command
from quintain.next_step import Hint, ToolCall
from quintain.records.filters import EVERY_RUN
from quintain.tools.catalog import translate

FORMS_FILE = Path(__file__).with_name("option_forms.json")

Shape = Literal["value", "flag", "switch", "list", "settings", "columns", "mix", "document", "yaml"]

_FILE_ARGUMENTS = {"record_trajectory": ("messages", "trajectory"), "record_preferences": ("pairs",)}
"""Arguments that a command reads from its FILE."""


@dataclass(frozen=True)
class OptionForm:
    """One option or positional argument of a command, which gives one argument of the tool or a member of it."""

    argument: str
    member: str | None
    flag: str | None
    """`--name`; None: positional."""
    shape: Shape
    tool_default: Any
    """The tool's default, where the command has another one."""

    def encode(self, value: Any) -> list[str]:
        """Return the words of a command line that decode to the value; `...` becomes a placeholder."""
        if self.shape in ("flag", "switch"):
            return [(self.flag or "").split("/")[self.shape == "switch"]] if value is (self.shape == "flag") else []
        words = self._texts(value)
        return words if self.flag is None else [word for text in words for word in (self.flag, text)]

    def _texts(self, value: Any) -> list[str]:
        name = (self.member or self.argument).upper()
        if value is ...:
            return [name]
        if self.shape == "list" and isinstance(value, list | tuple):
            return [name.removesuffix("S") if one is ... else str(one) for one in value]
        if isinstance(value, Mapping):
            if self.shape in ("settings", "columns"):
                written = json.dumps if self.shape == "settings" else str
                return [f"{key}={'VALUE' if one is ... else written(one)}" for key, one in value.items()]
            if self.shape in ("mix", "value") and all(isinstance(one, int | float) for one in value.values()):
                return [",".join(f"{key}={weight:g}" for key, weight in value.items())]
        return [str(value)] if isinstance(value, str | int | float) else [json.dumps(value)]


@cache
def stored_forms() -> dict[str, list[OptionForm]]:
    """Return the forms of each command's options, positional ones first."""
    rows = json.loads(FORMS_FILE.read_text(encoding="utf-8"))
    return {command: [OptionForm(*row) for row in found] for command, found in rows.items()}


def render_for_terminal(text: str) -> str:
    """Return a value of a result with its calls of tools as command lines."""
    return Hint(text).render(command_line)


def explain_for_terminal(text: str, command: str) -> str:
    """Return a text of ours with its calls of tools as command lines, and what names arguments of a command as options."""
    options = stored_forms().get(command, [])
    return translate(text, command_line, lambda code: _to_options(code, command, options))


def _to_options(code: str, command: str, options: list[OptionForm]) -> str | None:
    """Return an argument in Python syntax as the options of a command; None: it has none, or the code is no argument."""
    try:
        (statement,) = ast.parse(code).body
    except (SyntaxError, ValueError):
        return None
    assigned = statement.value if isinstance(statement, ast.Assign) else None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "value", None)
    if not isinstance(target, ast.Name | ast.Attribute):
        return None
    argument, _, member = ast.unparse(target).partition(".")
    own = [one for one in options if one.argument == argument]
    if assigned is not None:
        try:
            value = ast.literal_eval(_Literals().visit(assigned))
        except (ValueError, TypeError):
            return None
        named = [one for one in own if one.flag is not None]
        given = {argument: {member: value} if member else value}
        return shlex.join(_arguments(COMMANDS[command], named, given)) if named else None
    for one in own:
        if (one.member or "") == member:
            return (one.flag or (COMMANDS[command].names.get(argument) or argument).upper()).split("/")[0]
        if one.shape == "settings":
            return f"{one.flag} {member}"
    return None


class _Literals(ast.NodeTransformer):
    """Makes literals of the constants of JSON, and placeholders of other names, as of VALUE."""

    def visit_Name(self, node: ast.Name) -> ast.Constant:
        return ast.Constant({"true": True, "false": False, "null": None}.get(node.id, ...))


def command_line(call: ToolCall) -> str:
    """Return the command line that makes a call; a word in capitals is a value that the caller chooses."""
    name, command = _command_of(call)
    if not call.arguments:  # it is only named
        return f"quintain {name}"
    arguments = {argument: value for argument, value in call.arguments.items() if argument not in command.fixed}
    words = ["quintain", *name.split()]
    if any(argument in arguments for argument in _FILE_ARGUMENTS.get(call.tool, ())):
        words.append("FILE")
    return shlex.join([*words, *_arguments(command, stored_forms()[name], arguments)])


def _command_of(call: ToolCall) -> tuple[str, Command]:
    """Return the command of a tool, the one that sets most of the call's arguments itself, else the one that sets fewest."""
    fitting = [
        (name, command)
        for name, command in COMMANDS.items()
        if command.tool == call.tool and all(name in call.arguments for name in command.fixed)
        if all(call.arguments[key] == value for key, value in command.fixed.items() if key not in _APPROXIMATE)
    ]
    every = [(name, command) for name, command in COMMANDS.items() if command.tool == call.tool]
    fewest = min(every, key=lambda found: len(found[1].fixed))
    return max(fitting, key=lambda found: len(found[1].fixed), default=fewest)


_APPROXIMATE = ("wait_s",)
"""Fixed arguments whose value a command chooses by itself."""


def _arguments(command: Command, options: list[OptionForm], values: dict[str, Any]) -> list[str]:
    positional, named = list[str](), list[str]()
    rest = dict(values)
    if command.selects and rest.get("filter") in (..., EVERY_RUN):
        del rest["filter"]
        named.append("--all")
    for option in options:
        if option.tool_default is not None and option.argument not in rest:
            rest[option.argument] = option.tool_default
    for option in options:
        if option.argument not in rest:
            continue
        value = rest[option.argument]
        if option.member is not None:
            if not isinstance(value, dict) or option.member not in value:
                continue
            members = {key: one for key, one in value.items() if key != option.member}
            rest[option.argument], value = members, value[option.member]
        elif option.shape == "yaml" and isinstance(value, dict) and _has_members(options, option.argument):
            continue
        (positional if option.flag is None else named).extend(option.encode(value))
    for option in options:  # what no option of a member took
        value = rest.get(option.argument)
        if option.member is None and isinstance(value, dict) and value and _has_members(options, option.argument):
            named += option.encode(value)
    return [*positional, *named]


def _has_members(options: list[OptionForm], argument: str) -> bool:
    return any(option.argument == argument and option.member is not None for option in options)
