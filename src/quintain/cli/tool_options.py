"""Options of a command, derived from its tool: names, types, choices and help come from the tool's signature."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from quintain.cli.command_lines import OptionForm, Shape, explain_for_terminal
from quintain.cli.completion import completion_of
from quintain.cli.table import COMMANDS, Command, CommandOption
from quintain.errors import InvalidInput
from quintain.records.documents import READERS, parse_yaml, read_value
from quintain.records.filters import EVERY_RUN
from quintain.records.record import Record
from quintain.records.wording import clip
from quintain.tools.catalog import ToolSpec
from quintain.tools.invocation import arguments_model

_DOCUMENTS = tuple(READERS)
_PLAIN = (str, int, float, bool)
_SETTINGS = "hyperparameters"
"""The argument that is given as `--set KEY=VALUE`."""


@dataclass(frozen=True)
class Option(OptionForm):
    """A form with what the parser and the help need."""

    type: Any
    default: Any
    required: bool
    help: str
    choices: tuple[str, ...] = ()
    name: str | None = None
    """Its name at the terminal, where that differs from the tool's."""

    @property
    def key(self) -> str:
        """Its name among the parsed values."""
        return self.argument if self.member is None else f"{self.argument}__{self.member}"

    def parameter(self) -> inspect.Parameter:
        """Return the parameter that typer reads."""
        parsed = self.type if self.required or self.shape in ("flag", "switch") else self.type | None
        complete = None if self.shape in ("flag", "switch") else completion_of(self.argument, self.name, self.choices)
        if self.flag is None:
            metavar = self.name and self.name.upper()
            info: Any = typer.Argument(help=self.help, show_default=False, metavar=metavar, autocompletion=complete)
        else:
            info = typer.Option(self.flag, help=self.help, show_default=False, autocompletion=complete)
        default: Any = inspect.Parameter.empty if self.required else None
        if self.shape in ("flag", "switch"):
            default = self.shape == "switch"
        return inspect.Parameter(
            self.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[parsed, info]
        )

    def is_set(self, value: Any) -> bool:
        """Whether the command line names it."""
        return (
            value is not (self.shape == "switch") if self.shape in ("flag", "switch") else value not in (None, [], ())
        )

    def decode(self, value: Any) -> Any:
        """Return the value as the tool takes it.

        Raises:
            InvalidInput: the text has another form.
        """
        name = self.flag or self.argument.upper()
        if self.shape == "settings":
            return read_settings(value)
        if self.shape == "columns":
            return _columns(value, name)
        if self.shape == "mix":
            return _structure(value, name) if value.startswith("{") else _mix(value)
        if self.shape == "document" and not value.lower().endswith(_DOCUMENTS) and not value.startswith("{"):
            return value
        return _structure(value, name) if self.shape in ("document", "yaml") else value


def options_of(command: Command, spec: ToolSpec) -> list[Option]:
    """Return the options of a command, positional ones first; members of filters and settings come as options too."""
    found: dict[str, Option] = {}
    taken = {one.flag for one in command.own} | {"--json", "--home", "--help", "--all"}
    fields = {name: field for name, field in arguments_model(spec).model_fields.items() if name not in command.hidden}
    for name, field in fields.items():
        option = _option(command, name, None, field)
        found[option.key] = option
        taken.add(option.flag or "")
    for name, field in fields.items():
        model = next((one for one in _branches(field.annotation) if _is_model(one)), None)
        for member, inner in model.model_fields.items() if model is not None else ():
            option = _option(command, name, member, inner)
            if option.flag not in taken and command.names.get(f"{name}.{member}", member):
                found[option.key] = option
                taken.add(option.flag or "")
    first = [found[name] for name in command.positional]
    return [*first, *(option for option in found.values() if option not in first)]


def arguments_of(command: Command, options: Iterable[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the tool that the command line names.

    Raises:
        InvalidInput: a text of the wrong form, or no runs are selected where the tool needs some.
    """
    arguments: dict[str, Any] = {**command.defaults, **command.fixed}
    for option in options:
        if option.is_set(values[option.key]):
            value = option.decode(values[option.key])
            if option.member is None:
                arguments[option.argument] = value
            else:
                arguments[option.argument] = {**arguments.get(option.argument, {}), option.member: value}
    if command.selects:
        arguments = _selected(arguments, everything=values["everything"], instead=command.selects_instead)
    return arguments


def _selected(arguments: dict[str, Any], *, everything: bool, instead: Sequence[str]) -> dict[str, Any]:
    if everything and not arguments.get("filter"):
        return {**arguments, "filter": EVERY_RUN}
    if not arguments.get("filter") and not any(arguments.get(name) for name in ("trajectory_ids", *instead)):
        names = "--agent, --environment, --task-type, --tag or --text"
        rows = ", or give ready-made rows with --rows" if instead else ""
        raise InvalidInput(
            f"expected a choice of runs, got none; name them with {names}, take every stored run with --all{rows}",
            code="empty_filter",
        )
    return arguments


def own_parameters(owned: Iterable[CommandOption]) -> Iterator[inspect.Parameter]:
    """Return the parameters that belong to the command alone."""
    for one in owned:
        info: Any = typer.Option(one.flag, help=one.help) if one.flag else typer.Argument(help=one.help)
        yield inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=Annotated[one.type, info]
        )


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE pairs as a mapping: values are YAML, a dot in a key leads into a group.

    Raises:
        InvalidInput: a pair has no `=`, a key comes twice, or a value is not YAML.
    """
    values: dict[str, Any] = {}
    for pair in settings:
        key, equals, text = pair.partition("=")
        group, _, member = key.strip().partition(".")
        try:
            value = parse_yaml(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"--set {clip(pair)}: the value cannot be read: {error}") from None
        target = values.setdefault(group, {}) if member else values
        if not equals or not group or not isinstance(target, dict) or (member or group) in target:
            raise InvalidInput(
                f"--set {clip(pair)}: give KEY=VALUE, such as epochs=2 or lora.rank=8, and each key once"
            )
        target[member or group] = value
    return values


def _option(command: Command, name: str, member: str | None, field: FieldInfo) -> Option:
    shape: Shape
    dotted = name if member is None else f"{name}.{member}"
    shape, parsed = ("settings", list[str]) if name == _SETTINGS else _shape(field, is_mix=dotted in command.mixes)
    choices = _choices(field.annotation)
    one = member or name
    word = (command.names.get(dotted) or (one.removesuffix("s") if shape == "list" else one)).replace("_", "-")
    if shape == "switch":
        word = command.names.get(dotted) or f"{word}/--no-{word}"
    default = command.defaults.get(dotted, None if field.is_required() else field.default)
    default = default.value if isinstance(default, Enum) else default
    flag = word if shape == "switch" else f"--{word}"
    return Option(
        argument=name,
        member=member,
        flag=None if dotted in command.positional else flag,
        shape=shape,
        tool_default=_tool_default(field, default) if dotted in command.defaults else None,
        type=parsed,
        default=default,
        required=field.is_required() and dotted not in command.defaults and dotted not in command.optional,
        help=command.helps.get(dotted) or _help(command, field, shape, command.listed.get(dotted), default, choices),
        choices=choices,
        name=command.names.get(dotted),
    )


def _tool_default(field: FieldInfo, default: Any) -> Any:
    return None if field.is_required() or field.default == default else field.default


def _shape(field: FieldInfo, *, is_mix: bool) -> tuple[Shape, Any]:
    """Return how an argument is written at the terminal, and the type that typer parses."""
    branches = _branches(field.annotation)
    if branches == [bool]:
        return ("switch" if field.default is True else "flag"), bool
    if is_mix:
        return "mix", str
    if len(branches) == 1:
        (one,) = branches
        if one in _PLAIN:
            return "value", one
        if get_origin(one) in (list, tuple) and (inner := get_args(one)[0]) is not Any:
            inner = _branches(inner)[0]
            return ("list", list[str]) if inner is str or get_origin(inner) is Literal else ("yaml", str)
        if one == dict[str, str]:
            return "columns", list[str]
        return "yaml" if _is_model(one) or get_origin(one) in (dict, list, tuple) else "value", str
    if str in branches:
        return ("document" if any(get_args(one)[1:] == (Any,) for one in branches) else "value"), str
    return "yaml", str


def _branches(annotation: Any) -> list[Any]:
    """Return the types of a union without null, each without its metadata."""
    if get_origin(annotation) is Annotated:
        return _branches(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for one in get_args(annotation) if one is not type(None) for part in _branches(one)]
    return [annotation]


def _choices(annotation: Any) -> tuple[str, ...]:
    """Return the values of a closed set, or of a list of them."""
    branches = _branches(annotation)
    if len(branches) == 1 and get_origin(branches[0]) in (list, tuple):
        branches = _branches(get_args(branches[0])[0])
    (one, *more) = branches
    if not more and get_origin(one) is Literal:
        return get_args(one)
    is_enum = not more and isinstance(one, type) and issubclass(one, Enum)
    return tuple(member.value for member in one) if is_enum else ()


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Record)


def _help(
    command: Command, field: FieldInfo, shape: Shape, listed: str | None, default: Any, choices: Sequence[str]
) -> str:
    name = next(name for name, one in COMMANDS.items() if one is command)
    text = explain_for_terminal(field.description or "", name).replace("`", "")
    text = text.replace("Null:", "Left out:").replace("null:", "left out:")
    text = text if text.endswith("...") else text.removesuffix(".")
    parts = [text] if text else []
    if listed:
        module, _, name = listed.partition(":")
        parts.append(", ".join(getattr(import_module(module), name)()))
    if choices:
        parts.append(f"one of {', '.join(choices)}")
    bounds = {type(one): one for one in field.metadata if isinstance(one, Ge | Le)}
    if Ge in bounds:
        low, high = bounds[Ge].ge, bounds[Le].le if Le in bounds else None  # type: ignore[union-attr]
        parts.append(f"at least {low}" if high is None else f"{low}..{high}")
    parts += {"settings": ["KEY=VALUE, repeat"], "list": ["repeat"], "columns": ["NAME=COLUMN, repeat"]}.get(shape, [])
    parts += ["NAME=WEIGHT,NAME=WEIGHT for a mix, or YAML in braces"] if shape == "mix" else []
    parts += ["YAML, or a file of it"] if shape in ("yaml", "document") else []
    if default not in (None, (), "", False, True):
        parts.append(f"default {default}")
    return "; ".join(parts)


def _mix(written: str) -> str | dict[str, float]:
    """Return `rules` as it is, and `outcome=0.6,rules=0.4` as weights."""
    if "=" not in written:
        return written
    pairs = [part.strip().rpartition("=") for part in written.split(",")]
    try:
        mix = {name.strip(): float(weight) for name, _, weight in pairs}
    except ValueError:
        mix = {}
    if not mix or "" in mix or len(mix) < len(pairs):
        raise InvalidInput(
            f"the mix {written!r:.80} must be NAME=WEIGHT,NAME=WEIGHT, each name once, such as outcome=0.6,rules=0.4"
        )
    return mix


def _columns(pairs: Sequence[str], flag: str) -> dict[str, str]:
    parts = [pair.partition("=") for pair in pairs]
    if wrong := [name for name, sign, theirs in parts if not (name and sign and theirs)]:
        raise InvalidInput(f"{flag} {wrong[0]!r} must be NAME=COLUMN, such as prompt=question")
    return {name: theirs for name, _, theirs in parts}


def _structure(text: str, name: str) -> Any:
    if text.lower().endswith(_DOCUMENTS):
        return read_value(Path(text))
    try:
        return parse_yaml(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} {clip(text)}: expected YAML, or a file of it: {error}") from None
