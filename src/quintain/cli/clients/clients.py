"""The MCP clients that `quintain install` knows, and the change of a client's file."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from platformdirs import user_config_path

from quintain.cli.clients import jsonc, toml
from quintain.errors import Conflict, InvalidInput, Unavailable, disk_remedy
from quintain.files import write_file
from quintain.settings import default_home, folder_of, read_settings

SERVER = "quintain"
BACKUP = ".before-quintain"
"""Ending of the backup beside a client's file; an empty backup: there was no file."""


class _Format(Protocol):
    """Functions of `jsonc` and `toml`."""

    def loads(self, text: str) -> Any: ...
    def with_entry(self, text: str, path: Sequence[str], value: Mapping[str, Any]) -> str: ...
    def without_entry(self, text: str, path: Sequence[str]) -> str: ...


@dataclass(frozen=True)
class Client:
    """An MCP client with a configuration file of its user."""

    name: str
    title: str
    config: Callable[[Path], Path]
    """Home folder of the user -> the file."""
    path: tuple[str, ...] = ("mcpServers", SERVER)
    """Names from the outermost object of the file to the server's entry."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Members of the entry beside command and arguments."""
    format: Literal["json", "toml"] = "json"
    skills: Callable[[Path], Path] | None = None
    """Home folder of the user -> the folder of the user's skills; None: the client takes them another way."""
    restart: str = "Restart it."

    @property
    def editing(self) -> _Format:
        """The functions that edit its file."""
        return toml if self.format == "toml" else jsonc


def _application_data(name: str) -> Path:
    """Return the folder with the data of a desktop application, by platform."""
    return user_config_path(name, appauthor=False, roaming=True)


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            "claude-code",
            "Claude Code",
            lambda home: folder_of("CLAUDE_CONFIG_DIR", home) / ".claude.json",
            extra={"type": "stdio"},
            skills=lambda home: folder_of("CLAUDE_CONFIG_DIR", home / ".claude") / "skills",
            restart="Start a new session; /mcp shows it.",
        ),
        Client(
            "claude-desktop",
            "Claude Desktop",
            lambda home: _application_data("Claude") / "claude_desktop_config.json",
            restart="Quit and start it again.",
        ),
        Client(
            "cursor",
            "Cursor",
            lambda home: home / ".cursor" / "mcp.json",
            skills=lambda home: home / ".cursor" / "skills",
        ),
        Client(
            "vscode",
            "VS Code",
            lambda home: _application_data("Code") / "User" / "mcp.json",
            path=("servers", SERVER),
            extra={"type": "stdio"},
            skills=lambda home: home / ".copilot" / "skills",
            restart="Run `MCP: List Servers` to start it.",
        ),
        Client(
            "codex",
            "Codex",
            lambda home: folder_of("CODEX_HOME", home / ".codex") / "config.toml",
            path=("mcp_servers", SERVER),
            format="toml",
            skills=lambda home: folder_of("CODEX_HOME", home / ".codex") / "skills",
            restart="Start a new session; /mcp shows it.",
        ),
        Client(
            "gemini",
            "Gemini CLI",
            lambda home: home / ".gemini" / "settings.json",
            skills=lambda home: home / ".gemini" / "skills",
            restart="Start it again; /mcp shows it.",
        ),
    )
}


@dataclass(frozen=True)
class Change:
    """A change of one file that has not been made yet."""

    file: Path
    before: str
    after: str
    keep_backup: bool
    """Whether a backup of the file stays beside it."""

    @property
    def is_empty(self) -> bool:
        """Whether the file stays as it is."""
        return self.before == self.after


def entry_of(client: Client, command: Sequence[str]) -> dict[str, Any]:
    """Return the entry of the server in a client's file."""
    return {**client.extra, "command": command[0], "args": list(command[1:])}


def planned_install(client: Client, home: Path, command: Sequence[str]) -> Change:
    """Return the change that adds the server to a client, or replaces the command of its entry: variables and limits stay.

    Raises:
        InvalidInput: The file cannot be read; with the line.
        Conflict: The server is installed under another name.
    """
    file = client.config(home).resolve()  # some people keep their settings elsewhere and link to them
    before, entry = _read(file), entry_of(client, command)
    try:
        found = client.editing.loads(before)
        servers = found.get(client.path[0], {}) if isinstance(found, dict) else {}
        for name, other in servers.items() if isinstance(servers, dict) else ():
            same = isinstance(other, dict) and (other.get("command"), other.get("args")) == (
                entry["command"],
                entry["args"],
            )
            if same and name != SERVER:
                raise Conflict(
                    f"expected no entry for {command[0]} in {file}, got one named {name}; it is installed already: keep that entry, "
                    "or remove it and call again"
                )
        installed = _value_at(found, client.path)
        if isinstance(installed, dict) and "command" in installed:
            entry = {**installed, **entry}
        after = _edited(before, lambda text: client.editing.with_entry(text, client.path, entry))
        _require_entry(client, file, after, _with(found, client.path, entry))
    except jsonc.Unreadable as error:
        raise _unreadable(client, file, error) from None
    return Change(file, before, after, keep_backup=True)


def _edited(text: str, edit: Callable[[str], str]) -> str:
    """Return an edited text; one whose lines all end in CR LF keeps them, in new lines too."""
    if not 0 < text.count("\n") == text.count("\r\n"):
        return edit(text)
    return edit(text.replace("\r\n", "\n")).replace("\n", "\r\n")


def _require_entry(client: Client, file: Path, text: str, expected: Any) -> None:
    """Refuse an edit that does not read as the old content with the entry, because the entry is there in another notation."""
    try:
        fits = client.editing.loads(text) == expected
    except jsonc.Unreadable:
        fits = False
    if not fits:
        place = ".".join(client.path)
        raise InvalidInput(
            f"expected {place} in {file} as a separate table, [{place}], or not at all, got another notation; nothing was "
            "changed: write it as a table, then call again",
            code="bad_client_file",
        )


def planned_undo(client: Client, home: Path) -> Change:
    """Return the change that takes the server out of a client's file, or puts back the entry that was there before.

    Raises:
        InvalidInput: The file cannot be read; with the line.
    """
    file = client.config(home).resolve()
    before, backup = _read(file), _read(_backup(file))
    try:
        found, old = client.editing.loads(before), client.editing.loads(backup)
        installed, earlier = _value_at(found, client.path), _value_at(old, client.path)
        if installed is not None and _backup(file).exists() and _with(old, client.path, installed) == found:
            after = backup  # nothing else has changed since
        elif earlier is not None:
            after = _edited(before, lambda text: client.editing.with_entry(text, client.path, earlier))
        else:
            after = _edited(before, lambda text: client.editing.without_entry(text, client.path))
    except jsonc.Unreadable as error:
        raise _unreadable(client, file, error) from None
    return Change(file, before, after, keep_backup=False)


def apply(change: Change) -> None:
    """Make a change: the file appears whole, with its permissions.

    A file that was not there before the install goes, with its folder if nothing else is in it.

    Raises:
        Conflict: The file has changed since it was read.
        Unavailable: It cannot be written.
    """
    file, backup = change.file, _backup(change.file)
    if _read(file) != change.before:
        raise Conflict(
            f"expected {file} unchanged since it was read, got another content; close the client, then call again"
        )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if change.keep_backup and not backup.exists():
            _write(backup, change.before, file)
        if change.after:
            _write(file, change.after, file)
        else:
            file.unlink(missing_ok=True)
        if not change.keep_backup:
            backup.unlink(missing_ok=True)
        if not any(file.parent.iterdir()):
            file.parent.rmdir()
    except OSError as error:
        raise Unavailable(f"cannot write {file} ({error.strerror}); {disk_remedy(error)}") from error


def skill_file() -> Path:
    """Return the skill of this installation."""
    return Path(__file__).with_name("plugin") / "skills" / SERVER / "SKILL.md"


def planned_skill(client: Client, home: Path) -> Change:
    """Return the change that writes the skill where a client looks for those of its user.

    Raises:
        InvalidInput: The client takes skills another way.
    """
    if client.skills is None:
        raise InvalidInput(
            f"expected a client that reads skills from a folder, got {client.title}; upload {skill_file().parent} in its settings"
        )
    file = (client.skills(home) / SERVER / "SKILL.md").resolve()
    return Change(file, _read(file), skill_file().read_text(encoding="utf-8"), keep_backup=False)


def _backup(file: Path) -> Path:
    return file.with_name(file.name + BACKUP)


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise InvalidInput(f"expected UTF-8 in {file}, got other bytes; save it as UTF-8") from None
    except OSError as error:
        raise Unavailable(f"cannot read {file} ({error.strerror}); check its permissions") from error


def _write(file: Path, text: str, like: Path) -> None:
    """Write a file with the permissions of another one where that exists."""
    write_file(file, text.encode(), stat.S_IMODE(like.stat().st_mode) if like.exists() else 0o600)


def _with(document: Any, path: Sequence[str], value: Any) -> Any:
    outer, rest = document if isinstance(document, dict) else {}, path[1:]
    return {**outer, path[0]: _with(outer.get(path[0]), rest, value) if rest else value}


def _value_at(document: Any, path: Sequence[str]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _unreadable(client: Client, file: Path, error: jsonc.Unreadable) -> InvalidInput:
    kind = client.format.upper()
    return InvalidInput(
        f"expected {kind} in {file}, got a fault in {error}; nothing was changed: correct that line, then call again",
        code="bad_client_file",
    )


def server_command(home: Path | None) -> list[str]:
    """Return the command line with which a client starts the server of this installation.

    It names the home folder, unless that is the platform's own: a client does not inherit the variables of this shell.
    """
    script = Path(sys.executable).with_name("quintain")
    if script.is_file():
        command = [str(script)]
    elif found := shutil.which("quintain"):
        command = [found]
    else:
        command = [sys.executable, "-P", "-m", "quintain"]
    chosen = read_settings(home).home
    return [*command, "serve", *(["--home", str(chosen)] if chosen != default_home() else [])]
