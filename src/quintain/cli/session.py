"""One run of a command: the services it opens, its errors as a red line and an exit status, and Ctrl-C while it waits."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from quintain.cli.command_lines import explain_for_terminal
from quintain.errors import InvalidInput, QuintainError, explained
from quintain.records.record import Record
from quintain.records.text import printable
from quintain.records.wording import number_text
from quintain.settings import Settings, read_settings
from quintain.tools.catalog import ToolSpec
from quintain.tools.invocation import call
from quintain.tools.services import Services, open_services
from quintain.tools.web_address import page_url

if TYPE_CHECKING:
    from rich.console import Console

REFUSED = 2
"""Exit status of a command whose request was refused."""
INTERRUPTED = 130
"""Exit status that a shell expects of a command that Ctrl-C ended."""


@dataclass
class Session:
    """A block whose services close at its end. An error of ours ends the command with a line on stderr and `REFUSED`."""

    home: Path | None
    """The home folder; None: the one of the settings."""
    page: str | None = None
    """URL of the page of what the last call was about, while a web page shows the home."""
    command: str = ""
    """The command, whose options errors name; empty: none."""
    warned: set[str] = field(default_factory=set)
    """Warnings that were printed."""
    _opened: list[Services] = field(default_factory=list)

    def settings(self) -> Settings:
        """Return what the operator decided about the home folder."""
        return read_settings(self.home)

    def services(self, **changes: Any) -> Services:
        """Open the services until the block ends, with changes of settings. This creates the home, so check the request before."""
        settings = self.settings()
        note_new_home(settings.home)
        self._opened.append(open_services(settings.model_copy(update=changes), trusted=True))
        return self._opened[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for services in self._opened:
            services.close()
        error = explained(error) if isinstance(error, Exception) else error
        if isinstance(error, QuintainError):
            print_error(error, self.command)
            raise typer.Exit(REFUSED) from None


@dataclass(frozen=True)
class CommandRun:
    """One use of a command."""

    spec: ToolSpec
    arguments: dict[str, Any]
    """Arguments of the tool that the command line names."""
    own: dict[str, Any]
    """Values of the options that belong to the command."""
    json_out: bool
    session: Session
    printer: Callable[[Console, Any], None]
    """Prints the tool's result for people, unless the command does so itself."""
    detach: bool = False

    def services(self, **changes: Any) -> Services:
        """Open the services, as `Session.services`."""
        return self.session.services(**changes)

    def call(self, services: Services, **more: Any) -> Any:
        """Check the arguments, and those added here, and run the tool."""
        result = call(services, self.spec, {**self.arguments, **more})
        if isinstance(result, Record):
            self.session.page = page_url(services.settings.home, dict(result))
        return result

    def show(self, result: Any, printer: Callable[[Console, Any], None] | None = None) -> None:
        """Print a result: whole as JSON where that is asked for, else for people, by a function or the command's own."""
        self.print_json(result) if self.json_out else (printer or self.printer)(plain_console(), result)

    def print_json(self, result: Record, **more: Any) -> None:
        """Print a whole result as JSON with more members, and with `ui_url` of its page while a web page shows the home."""
        values = {**json.loads(result.model_dump_json()), **more}
        if (url := page_url(self.session.settings().home, values)) is not None:
            values["ui_url"] = url
        plain_console().print(json.dumps(values, ensure_ascii=False))


@contextmanager
def collected_interrupts() -> Iterator[list[int]]:
    """Yield a list that Ctrl-C fills, for a loop to check; the second Ctrl-C is a `KeyboardInterrupt`, as usual.

    An exception at any line may fall into a finaliser or into the reset of a database connection: there it is printed and
    lost, and the command waits on. A process that was started to ignore Ctrl-C goes on ignoring it, as a script's `&` and
    `nohup` ask for. Only the main thread may use this.
    """
    signals: list[int] = []

    def collect(number: int, frame: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield signals
        return
    signal.signal(signal.SIGINT, collect)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGINT, before)


def write_file(path: Path, content: str | bytes, what: str) -> None:
    """Write a file that an option names.

    Raises:
        InvalidInput: the file cannot be written.
    """
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise InvalidInput(
            f"{what} cannot be written to {str(path)!r}: {error}; name a file in a folder that exists"
        ) from None


def note_new_home(home: Path) -> None:
    """Print on stderr that a home folder is going to be created: a wrong path would look like an empty home."""
    if not home.exists():
        typer.echo(printable(f"New home folder: {home}"), err=True)


def plain_console(*, stderr: bool = False) -> Console:
    """Return a console that shows stored text as it is: no markup, no highlighting, no wrapping of ids."""
    from rich.console import Console  # a server has no use for it

    return Console(soft_wrap=True, highlight=False, markup=False, emoji=False, stderr=stderr)


def print_error(error: QuintainError, command: str = "") -> None:
    """Print an error as one line on stderr, with the names of the command line in place of those of arguments."""
    text = printable(f"[{error.code}] {explain_for_terminal(error.message, command)}")
    plain_console(stderr=True).print(text, style="red")


def show_next_step(console: Console, result: Any, command: str = "") -> None:
    """Print the next step of a result: calls as command lines, and arguments of the command itself as its options."""
    console.print(printable(explain_for_terminal(result.next_step, command)))


def one_line(value: Any) -> str:
    """Return a value of a result as text on one line."""
    if isinstance(value, dict):
        return "  ".join(f"{name}={one_line(one)}" for name, one in value.items() if one not in (None, [], {}))
    if isinstance(value, float):
        return number_text(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
