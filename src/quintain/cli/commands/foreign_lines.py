"""Command lines of another program as data: its flags, and the commands of this program that a line becomes."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from quintain.cli.main import HomeOption, app
from quintain.cli.session import Session
from quintain.errors import InvalidInput

Values = Mapping[str, Any]
Steps = Iterator[Sequence[str]]


@dataclass(frozen=True)
class Flag:
    """A flag or argument as it is documented, and the words that it becomes."""

    declared: tuple[str, ...]
    """`-o`, `--output`; a name in capitals is positional."""
    type: Any = str
    becomes: tuple[str, ...] = ()
    """Our words, with {} for the value; empty: the line's function reads it."""
    required: bool = False
    off: Any = None
    """Value that stands for the flag left out."""

    @property
    def key(self) -> str:
        """Its name among the values."""
        return self.declared[-1].split("/")[0].lstrip("-").lower().replace("-", "_")

    def parameter(self) -> inspect.Parameter:
        """Return the parameter that typer reads."""
        help = f"As {shlex.join(self.becomes).format(self.declared[-1].lstrip('-').upper())}." if self.becomes else None
        positional = self.declared[0].isupper()
        info: Any = typer.Argument(help=help) if positional else typer.Option(*self.declared, help=help)
        parsed: Any = self.type if self.required else self.type | None
        annotation: Any = Annotated[parsed, info]
        default = inspect.Parameter.empty if self.required else None
        return inspect.Parameter(self.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def words(self, value: Any) -> list[str]:
        """Return our words for a value."""
        text = json.dumps(value) if isinstance(value, bool) else str(value)
        return [] if value in (None, self.off) else [word.replace("{}", text) for word in self.becomes]


def command(*flags: Flag) -> Callable[[Callable[[Values], Steps | None]], Callable[..., None]]:
    """Return a decorator that makes a command with these flags of its steps, which are carried out until one fails.

    The values have also `words`: what all flags become.
    """

    def of_steps(steps: Callable[[Values], Steps | None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            words = [word for flag in flags for word in flag.words(values[flag.key])]
            with Session(None):
                try:
                    lines = steps({**values, "words": words}) or ()
                    status = next((failed for line in lines if (failed := _carry_out(line, values))), 0)
                except OSError as error:
                    raise InvalidInput(f"{error.filename}: {error.strerror}; name a file that can be written") from None
            raise typer.Exit(status)

        home = inspect.Parameter("home", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=HomeOption)
        parameters = [*(flag.parameter() for flag in flags), home]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__doc__ = steps.__doc__
        return run

    return of_steps


def _carry_out(words: Sequence[str], values: Values) -> int:
    """Run a command of this program and return its exit status; `--json` goes to the line's output file."""
    typer.echo(f"quintain {shlex.join(words)}", err=True)
    home = ["--home", str(values["home"])] if values["home"] is not None else []
    target: Path | None = values.get("output") if "--json" in words else None
    with ExitStack() as stack:
        if target is not None:
            stack.enter_context(redirect_stdout(stack.enter_context(target.open("w", encoding="utf-8"))))
        status = typer.main.get_command(app).main([*words, *home], "quintain", standalone_mode=False)
    return int(status or 0)
