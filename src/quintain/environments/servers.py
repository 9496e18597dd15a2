"""MCP servers on which agents may act, from the operator's `environments.toml`; each is the environment `mcp:NAME`.

    [mcp.calculator]
    command = "venvs/calculator/bin/mcp-server-calculator"
    tasks = "calculator-tasks.jsonl"          # optional; default: generated from the schemas of the tools

Commands come from this file alone, so that no conversation and no task can choose what is started. This module only reads the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from quintain.errors import InvalidInput, NotFound, Refused
from quintain.records.documents import read_toml
from quintain.records.record import Name, Record, require_number
from quintain.records.wording import explain, nearest, shown
from quintain.redaction.credentials import secret_kind

PREFIX = "mcp:"

TABLES = ("mcp.NAME", "openenv.NAME", "agentgym.NAME", "verifiers.NAME", "gymnasium", "python")
"""Tables of the file; `foreign.profiles` reads the others."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

Seconds = Annotated[float, Field(gt=0, le=3600), BeforeValidator(require_number)]


class Call(Record):
    """A call of one of the server's tools."""

    tool: str = Field(min_length=1)
    args: dict[str, Any] = Field(default_factory=dict)


class ToolResult(NamedTuple):
    """Result of a call, without the protocol's envelope."""

    text: str
    """Text for the agent."""
    value: Any = None
    """Structured content; without it, the text as JSON, else the text itself."""
    is_error: bool = False


class Profile(Record):
    """A table `[KIND.NAME]` of the file: the environment `KIND:NAME`."""

    kind: ClassVar[str]
    name: Name
    system_prompt: str | None = None

    @property
    def id(self) -> str:
        """Id of its environment."""
        return f"{self.kind}:{self.name}"


P = TypeVar("P", bound=Profile)


class ServerProfile(Profile):
    """One server: how to start it, which of its tools form the action space, and which tasks an agent gets."""

    kind = "mcp"
    command: str = Field(min_length=1, description="Program; a path with a slash is relative to the file's folder.")
    args: tuple[str, ...] = Field(default=(), max_length=200)
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables without keys.")
    pass_env: tuple[str, ...] = Field(default=(), description="Names of variables to pass on, such as keys.")
    cwd: str | None = Field(
        default=None, description="Working directory; null: an empty folder that is removed afterwards."
    )
    tools: tuple[str, ...] | Literal["all"] = Field(default="all", description="Names or globs of allowed tools.")
    deny: tuple[str, ...] = Field(default=(), description="Names or globs of excluded tools.")
    tasks: str | None = Field(default=None, description="JSONL file; null: generate tasks from the schemas.")
    generate_from: tuple[str, ...] = Field(
        default=(),
        description="Names or globs of tools that generated tasks call, besides those with the read-only hint: they change nothing.",
    )
    values: dict[str, tuple[str | int | float | bool, ...]] = Field(
        default_factory=dict, description="Argument or tool.argument -> values for generated tasks."
    )
    max_turns: Annotated[int, Field(ge=1, le=1000), BeforeValidator(require_number)] = 10
    timeout_s: Seconds = Field(default=30.0, description="Seconds for one call.")
    start_timeout_s: Seconds = Field(default=30.0, description="Seconds from the start to the list of tools.")
    setup: tuple[Call, ...] = Field(default=(), description="Calls right after each start of the server.")
    reset: tuple[Call, ...] = Field(default=(), description="Calls before each episode.")
    fresh: Literal["episode", "session"] = Field(
        default="episode", description="A new process for each episode, or one that later episodes reuse."
    )


def read_table(path: Path | None, name: str) -> Mapping[str, Any]:
    """Return a table of an `environments.toml`; empty if there is no such file or table.

    Raises:
        InvalidInput: the file cannot be read, is not TOML, or has an unknown table.
    """
    table = (_read_document(path) if path else {}).get(name, {})
    if not isinstance(table, Mapping):
        raise bad_file(f"expected a table [{name}], got {name} = {shown(table)}; write [{name}] above its fields")
    return table


def read_profiles(path: Path | None, record: type[P]) -> dict[str, P]:
    """Return the profiles of a kind by name.

    Raises:
        InvalidInput: as `read_table`, or a profile has a wrong or unknown field.
    """
    kind, fields = record.kind, tuple(field for field in record.model_fields if field != "name")
    found: dict[str, P] = {}
    for name, table in read_table(path, kind).items():
        where = f"{path.name if path else ''} [{kind}.{name}]"
        if not isinstance(table, Mapping):
            raise bad_file(f"expected a table, got {shown(table)}; write [{kind}.{name}] above its fields")
        try:
            found[name] = record.model_validate({"name": name, **table})
        except ValidationError as error:
            raise bad_file(f"{explain(error, where, fields)}; the fields are {', '.join(fields)}") from None
    return found


def find_profile(profiles: Mapping[str, P], name: str, table: str, path: Path | None) -> P:
    """Return the profile of a name.

    Raises:
        NotFound: an unknown name; the message lists the known ones, and the table that the operator may add.
    """
    if name not in profiles:
        known = f"known: {', '.join(sorted(profiles))}" if profiles else "none is configured yet"
        raise NotFound(
            f"expected the name of a profile, got {shown(name)}{nearest(name, profiles)}; {known}. The operator adds [{table}] to "
            f"{path or 'environments.toml'}",
            code="environment_not_found",
        )
    return profiles[name]


def _read_document(path: Path) -> dict[str, Any]:
    document = read_toml(path, "bad_environments")
    if unknown := sorted(document.keys() - {table.partition(".")[0] for table in TABLES}):
        raise bad_file(f"expected only tables [{'], ['.join(TABLES)}] in {path.name}, got {shown(unknown[0])}")
    return document


def read_servers(path: Path | None) -> dict[str, ServerProfile]:
    """Return the servers of an `environments.toml` by name, their paths relative to its folder."""
    profiles = read_profiles(path, ServerProfile)
    return {name: _placed(profile, path) for name, profile in profiles.items() if path}


def find_server(path: Path | None, name: str) -> ServerProfile:
    """Return the server of this name; errors as of `read_servers` and `find_profile`."""
    return find_profile(read_servers(path), name, "mcp.NAME", path)


def outline(profile: ServerProfile) -> dict[str, Any]:
    """Return the entry of a server in a list of environments, without starting it."""
    return {
        "id": profile.id,
        "about": f"The tools of the MCP server {profile.name}. A run there (get_trajectory) has their schemas.",
        "tools": "all of the server" if profile.tools == "all" else list(profile.tools),
        **({"not": list(profile.deny)} if profile.deny else {}),
        "tasks": Path(profile.tasks).name if profile.tasks else "generated from its schemas",
        "max_turns": profile.max_turns,
    }


def _placed(profile: ServerProfile, path: Path) -> ServerProfile:
    _refuse_keys(profile, f"{path.name} [mcp.{profile.name}]")
    folder = path.absolute().parent
    return profile.model_copy(
        update={
            "command": str(resolve_path(folder, profile.command)) if "/" in profile.command else profile.command,
            "cwd": profile.cwd and str(resolve_path(folder, profile.cwd)),
            "tasks": profile.tasks and str(resolve_path(folder, profile.tasks)),
        }
    )


def resolve_path(folder: Path, written: str) -> Path:
    """Return a path relative to the file's folder; links are not resolved, because a virtual environment's Python is one."""
    return folder / Path(written).expanduser()


def _refuse_keys(profile: ServerProfile, where: str) -> None:
    for variable, value in profile.env.items():
        if secret_kind(variable[-80:]) and value:
            raise Refused(
                f"expected no keys in {where}, got a value for {shown(variable)}; name the variable in pass_env and set it where "
                "Quintain's server runs",
                code="key_in_file",
            )
    for variable in (*profile.pass_env, *profile.env):
        if not _VARIABLE.fullmatch(variable):
            raise Refused(
                f"expected names of environment variables in env and pass_env of {where}, got something else (not shown, it may be "
                "a key); pass_env takes names only",
                code="key_in_file",
            )


def bad_file(message: str) -> InvalidInput:
    """Return the error of an `environments.toml` that cannot be used."""
    return InvalidInput(message, code="bad_environments")
