"""`quintain`: the commands of the terminal, built when they are used."""

from __future__ import annotations

import inspect
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from quintain.cli.table import ALIASES, COMMANDS, FUNCTIONS, GROUPS, SECTIONS

_HELP_OPTIONS = ["--help", "-h"]

_UsageError: Any = typer.BadParameter.__base__
"""Exceptions of the parser for a command line that it cannot read."""

HomeOption = Annotated[
    Path | None, typer.Option(help="Home folder; default: QUINTAIN_HOME, else the platform's data folder.")
]


def command_names(group: str = "") -> list[str]:
    """Return the names of the commands, or of those of a group."""
    start = f"{group} " if group else ""
    names = (name.removeprefix(start) for name in (*COMMANDS, *FUNCTIONS) if name.startswith(start))
    return list(dict.fromkeys(name.split()[0] for name in names))


def command(name: str) -> TyperCommand:
    """Return a command with its options; this imports its tool."""
    if name in FUNCTIONS:
        app = typer.Typer(add_completion=False)
        app.command(name.split()[-1])(_loaded(FUNCTIONS[name][0]))
        return typer.main.get_command(app)  # type: ignore[return-value]
    return _tool_command(name)


@contextmanager
def _usage_errors(name: str, command_name: str | None = None) -> Iterator[None]:
    """End a wrong command line of a command or group as every other error ends: with one line on stderr and status 2.

    Where a command of the group is expected, one that is similar to `command_name` is suggested.
    """
    try:
        yield
    except _UsageError as error:
        from quintain.cli.session import REFUSED, print_error
        from quintain.errors import InvalidInput
        from quintain.records.wording import nearest

        place = f"quintain {name}".strip()
        fault = error.format_message().rstrip(".")
        if command_name is not None:
            commands = command_names(name)
            fault += nearest(command_name, commands) or (
                f" (did you mean '{place} show {command_name}'?)" if name and "show" in commands else ""
            )
        elif argument := _positional_name(name, error):
            fault = f"{argument.upper()} is given without an option's name: {place} {argument.upper()}"
        elif hasattr(error, "possibilities") and _takes_settings(name):  # an unknown option
            setting = error.option_name.lstrip("-").replace("-", "_")
            fault += f"; a setting of the method is --set {setting}=VALUE"
        text = f"expected arguments and options of {place}, got a wrong command line: {fault}; see {place} --help"
        print_error(InvalidInput(text))
        raise typer.Exit(REFUSED) from None


def _positional_name(path: str, error: Any) -> str | None:
    """Return the positional argument of a command that the unknown option of an error names; None if it names none."""
    name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    about = COMMANDS.get(path)
    if about is None:
        return None
    return next((one for one in about.positional if name in {one, about.names.get(one)}), None)


def _takes_settings(path: str) -> bool:
    from quintain.cli.command_lines import stored_forms

    return any(form.shape == "settings" for form in stored_forms().get(path, ()))


class _Deferred(TyperCommand):
    """A command that is built when it runs; its line of help is known before."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        path = self._path(parent)
        if extra.get("resilient_parsing") and (kinds := _kinds_at(path, args)):
            self._kinds = kinds
            return super().make_context(info_name, [], parent, **extra)
        with _usage_errors(path):
            return command(path).make_context(info_name, args, parent, **extra)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete a name without building the command, which takes most of a second; build it for its options."""
        if incomplete.startswith("-"):
            return command(self._path(ctx.parent)).shell_complete(ctx, incomplete)
        from quintain.cli.completion import argument_of

        return argument_of(self._kinds).shell_complete(ctx, incomplete)

    def _path(self, parent: Any) -> str:
        group = getattr(parent.command, "group", "")
        path = f"{group} {self.name}".strip()
        return ALIASES.get(path, path)


def _kinds_at(path: str, words: list[str]) -> tuple[str, ...]:
    """Return the kinds of the positional argument after these words; empty: unknown without building the command."""
    from quintain.cli.completion import kinds_of

    about = COMMANDS.get(path)
    if about is None or not about.positional or any(word.startswith("-") for word in words):
        return ()
    argument = about.positional[min(len(words), len(about.positional) - 1)]
    return kinds_of(argument, about.names.get(argument))


class Commands(TyperGroup):
    """The commands of the program, or of one group."""

    group = ""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table; those of the program section by section."""
        names = command_names(self.group)
        if self.group:
            return names
        places = {title: place for place, title in enumerate(SECTIONS.values())}
        return sorted(names, key=lambda name: places[getattr(self.get_command(ctx, name), "rich_help_panel", "")])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command that is built when it runs, or a group."""
        if not self.group and cmd_name in GROUPS:
            return _group(cmd_name)
        path = f"{self.group} {cmd_name}".strip()
        if path in ALIASES:
            return _Deferred(cmd_name, hidden=True)
        if cmd_name not in command_names(self.group):
            return None
        panel = None if self.group else _section(path)
        return _Deferred(cmd_name, help=_summary(path), rich_help_panel=panel, hidden=path == "sage-dev")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the command that runs where a group's call names none."""
        default = GROUPS[self.group][1] if self.group and not ctx.resilient_parsing else None  # not while completing
        if default and (not args or (args[0].startswith("-") and args[0] not in _HELP_OPTIONS)):
            args = [default, *args]
        if not args:
            return super().parse_args(ctx, args)  # shows the help
        with _usage_errors(self.group):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names."""
        with _usage_errors(self.group, args[0]):
            return super().resolve_command(ctx, args)


def _group(name: str) -> Commands:
    kind = type(f"{name.title()}Commands", (Commands,), {"group": name})
    hidden = name.startswith("knowlyr-")
    first = f"{name} {command_names(name)[0]}"
    group = kind(name=name, help=GROUPS[name][0], no_args_is_help=True, hidden=hidden, rich_help_panel=_section(first))
    return group  # type: ignore[no-any-return]


def _section(name: str) -> str:
    """Return the heading under which the help of the program lists a command: that of its tool's set."""
    from quintain.tools.catalog import tool

    return SECTIONS[tool(COMMANDS[name].tool).toolset if name in COMMANDS else ""]


def _summary(name: str) -> str:
    if name in FUNCTIONS:
        return FUNCTIONS[name][1]
    from quintain.tools.catalog import tool

    about = COMMANDS[name]
    return about.title or (about.summary if " " in name else "") or f"{tool(about.tool).title}."


def _tool_command(name: str) -> TyperCommand:
    from quintain.cli.session import CommandRun, Session
    from quintain.cli.tool_options import arguments_of, options_of, own_parameters
    from quintain.tools.catalog import tool

    about = COMMANDS[name]
    spec = tool(about.tool).for_operator
    options = options_of(about, spec)

    def run(**values: Any) -> None:
        own = {one.name: values[one.name] for one in about.own}
        with Session(values["home"], command=name) as session:
            arguments = arguments_of(about, options, values)
            printer, detach = _loaded(about.show), values.get("detach", False)
            use = CommandRun(spec, arguments, own, values["json_out"], session, printer, detach)
            try:
                status = _loaded(about.run)(use)
            except typer.Exit as left:
                status = left.exit_code
            if session.page is not None and not use.json_out:
                typer.echo(f"Page: {session.page}")
        raise typer.Exit(status)

    parameters = [*(option.parameter() for option in options), *own_parameters(about.own), *_common(name)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command(name.split()[-1], help=_help(name))(run)
    return typer.main.get_command(app)  # type: ignore[return-value]


def _common(name: str) -> Iterator[inspect.Parameter]:
    """Yield the parameters that all commands of tools have."""

    def flag(key: str, word: str, help: str) -> inspect.Parameter:
        annotation = Annotated[bool, typer.Option(word, help=help)]
        return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)

    if COMMANDS[name].selects:
        yield flag("everything", "--all", "Take every stored run.")
    if COMMANDS[name].waits:
        yield flag("detach", "--detach", "Start the job, print its id and return at once.")
    yield flag("json_out", "--json", "Print the whole result as JSON.")
    yield inspect.Parameter("home", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=HomeOption)


def _help(name: str) -> str:
    """Return the help of a command: that of its tool, with what the terminal adds, or its own where it does one part of it."""
    from quintain.cli.command_lines import explain_for_terminal
    from quintain.tools.catalog import tool

    command = COMMANDS[name]
    if command.fixed:
        return command.summary or command.title
    about = inspect.getdoc(tool(command.tool).function) or ""
    paragraphs = f"{explain_for_terminal(about, name)}\n\n{command.summary}".strip().split("\n\n")
    return "\n\n".join(" ".join(one.split()) for one in paragraphs)  # the terminal wraps them anew


def _loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"quintain.cli.{module}"), name)


app = typer.Typer(
    cls=Commands,
    help="Train agents by conversation: an MCP server and its tools. Begin with `quintain demo` or `quintain import PATH`."
    "\n\nWhat is stored lies in the home folder: that of --home after a command, else of the variable QUINTAIN_HOME, else the "
    "platform's data folder; `quintain doctor` names it.",
    no_args_is_help=True,
    context_settings={"help_option_names": _HELP_OPTIONS},
)


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def check_settings(
    asked_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Stop before any work where a variable of the environment is wrong; print what the terminal cannot show as escapes."""
    from quintain.errors import InvalidInput
    from quintain.settings import read_settings

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        read_settings()
    except InvalidInput as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from None


def version(
    json_out: Annotated[bool, typer.Option("--json", help="Print it as JSON, with the version of Python.")] = False,
) -> None:
    """Print the version."""
    from quintain import __version__

    found = {"quintain": __version__, "python": sys.version.split()[0]}
    typer.echo(json.dumps(found) if json_out else __version__)


if __name__ == "__main__":
    app()
