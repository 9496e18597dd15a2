"""Completion in shells of ids, names and choices. Nothing here raises: a shell shows errors in the middle of a line."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from quintain.errors import QuintainError
from quintain.store.names import NamedKind, newest_names

_KINDS: dict[str, tuple[NamedKind | str, ...]] = {
    "trajectory_id": ("runs",),
    "trajectory_ids": ("runs",),
    "job_id": ("jobs",),
    "dataset_id": ("datasets",),
    "agent": ("agents",),
    "agents": ("agents", "evaluations"),
    "model": ("agents",),
    "judge": ("agents",),
    "opponent": ("agents",),
    "id": ("agents", "datasets", "jobs", "evaluations", "comparisons", "runs"),
    "environment": ("environments",),
    "scorer": ("scorers",),
}
"""Argument, or its name at the terminal, -> kinds of its values."""


def completion_of(argument: str, name: str | None, choices: Sequence[str] = ()) -> Callable[..., Any] | None:
    """Return a function that completes an argument, by its name at the terminal where that differs; None for free text."""
    kinds = kinds_of(argument, name)
    if not choices:
        return _completer(kinds) if kinds else None
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def argument_of(kinds: Sequence[str]) -> Any:
    """Return an argument of the parser that completes names of these kinds."""

    def command(name: Annotated[str, typer.Argument(autocompletion=_completer(kinds))]) -> None: ...

    app = typer.Typer(add_completion=False)
    app.command()(command)
    return typer.main.get_command(app).params[0]


def _completer(kinds: Sequence[str]) -> Callable[..., Any]:
    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        return list(found_names(kinds, ctx.params.get("home"), incomplete))

    return complete


def kinds_of(argument: str, name: str | None) -> tuple[str, ...]:
    """Return the kinds of things that an argument takes; empty where it takes none."""
    return _KINDS.get(name or argument, _KINDS.get(argument, ()))


def found_names(kinds: Sequence[str], home: object, start: str) -> Iterator[tuple[str, str]]:
    """Yield names of these kinds that begin with a text, each with a word about it."""
    try:
        if kinds == ("environments",):
            from quintain.environments.registry import environment_ids

            yield from ((name, "") for name in environment_ids() if name.startswith(start))
        elif kinds == ("scorers",):
            from quintain.scoring.registry import scorer_names

            yield from ((name, "") for name in scorer_names() if name.startswith(start))
        elif (database := _database(home)) is not None:
            for kind in kinds:
                yield from newest_names(database, kind, start)  # type: ignore[arg-type]
    except (QuintainError, OSError):
        return


def _database(home: object) -> Path | None:
    """Return the SQLite file of the home folder, or None with another database."""
    from quintain.settings import read_settings

    settings = read_settings(Path(str(home)) if home else None)
    return None if settings.database_url else settings.home / "quintain.db"
