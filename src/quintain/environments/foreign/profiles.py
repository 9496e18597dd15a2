"""Servers and tasksets of other libraries, from the operator's `environments.toml`; each is an environment `KIND:NAME`.

    [openenv.echo]
    url = "http://127.0.0.1:8000"

    [agentgym.textcraft]
    url = "http://127.0.0.1:36001"
    tasks = 100                                   # indices of the server's data

    [verifiers.reverse]
    taskset = "reverse-text"

    [python]                                      # interpreters of libraries that are not installed beside Quintain
    verifiers = "venvs/verifiers/bin/python"

    [gymnasium]
    modules = ["gym_sokoban"]                     # packages that register further environments of Gymnasium

URLs and interpreters come from this file alone, so that no conversation chooses what is contacted or started.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, ValidationError

from quintain.environments.servers import Seconds, bad_file, read_document, resolve_path
from quintain.errors import NotFound
from quintain.records.record import Name, Record, explain, nearest, require_number, shown

LIBRARIES = {
    "gymnasium": "Any environment of Gymnasium with discrete or text actions, such as gymnasium/FrozenLake-v1.",
    "textarena": "Any text game of TextArena, such as textarena/FrozenLake-v0.",
}
"""Libraries whose environments have ids of their own, and a sentence on each."""


def _safe_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
        raise ValueError("expected a URL that begins with http://, https://, ws:// or wss://")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("expected a URL without user, password, query and fragment")
    return url


Url = Annotated[str, AfterValidator(_safe_url)]
Count = Annotated[int, Field(ge=1, le=100_000_000), BeforeValidator(require_number)]


class ForeignProfile(Record):
    """Fields of every profile."""

    kind: ClassVar[str]

    name: Name
    system_prompt: str | None = Field(default=None, description="Null: the one of the server or task.")
    max_turns: Annotated[int, Field(ge=1, le=1000), BeforeValidator(require_number)] = 20
    timeout_s: Seconds = Field(default=60.0, description="Seconds for one answer, and for the start.")
    success_at: FiniteFloat = Field(default=1.0, description="Return from which on an episode is a success.")

    @property
    def id(self) -> str:
        """Id of its environment."""
        return f"{self.kind}:{self.name}"


class OpenEnvProfile(ForeignProfile):
    """A server of OpenEnv; its tasks are seeds."""

    kind = "openenv"
    url: Url
    tasks: Count | None = Field(default=None, description="Number of seeds; null: a million.")
    reset: dict[str, Any] = Field(default_factory=dict, description="Further arguments of `reset`.")


class AgentGymProfile(ForeignProfile):
    """A server of AgentGym; its tasks are the indices of its data."""

    kind = "agentgym"
    url: Url
    tasks: Count
    id_field: Literal["id", "env_idx"] = Field(default="id", description="Field of the environment's id in requests.")
    index_field: Name = Field(default="data_idx", description="Field of the task's index in `reset`.")
    create: dict[str, Any] = Field(default_factory=dict, description="Arguments of `create`.")


class VerifiersProfile(ForeignProfile):
    """A taskset of verifiers."""

    kind = "verifiers"
    taskset: str = Field(min_length=1, max_length=200, description="Id of an installed taskset package.")
    tasks: Count | None = Field(default=None, description="Use its first tasks only.")
    config: dict[str, Any] = Field(default_factory=dict, description="Fields of its configuration.")


KINDS: Mapping[str, type[ForeignProfile]] = {
    profile.kind: profile for profile in (OpenEnvProfile, AgentGymProfile, VerifiersProfile)
}


def list_profiles(path: Path | None) -> list[ForeignProfile]:
    """Return the profiles of an `environments.toml`, sorted by id.

    Raises:
        InvalidInput: the file is not TOML, or a profile has a wrong or unknown field.
    """
    document = read_document(path) if path else {}
    return sorted(
        (_profile(kind, name, table) for kind in KINDS for name, table in _table(document, kind).items()),
        key=lambda profile: profile.id,
    )


def find_profile(path: Path | None, environment_id: str) -> ForeignProfile:
    """Return the profile of an id such as `openenv:echo`.

    Raises:
        NotFound: an unknown name; the message lists the known ones.
        InvalidInput: as for `list_profiles`.
    """
    profiles = {profile.id: profile for profile in list_profiles(path)}
    if environment_id not in profiles:
        kind, _, name = environment_id.partition(":")
        known = f"known: {', '.join(profiles)}" if profiles else "none is configured yet"
        raise NotFound(
            f"expected the name of a profile, got {shown(environment_id)}{nearest(environment_id, profiles)}; {known}. The operator "
            f"adds [{kind}.{name or 'NAME'}] to {path or 'environments.toml'}",
            code="environment_not_found",
        )
    return profiles[environment_id]


def find_interpreter(path: Path | None, library: str) -> str | None:
    """Return the Python that the operator names for a library; None: Quintain's own.

    Raises:
        InvalidInput: the table is not a mapping of names to paths.
    """
    interpreter = _table(read_document(path) if path else {}, "python").get(library)
    if interpreter is None:
        return None
    if not isinstance(interpreter, str) or path is None:
        raise bad_file(f"expected the path of an interpreter as python.{library}, got {shown(interpreter)}")
    return str(resolve_path(path.absolute().parent, interpreter))


def list_modules(path: Path | None) -> list[str]:
    """Return the modules that register further environments of Gymnasium.

    Raises:
        InvalidInput: the table does not contain a list of names.
    """
    modules = _table(read_document(path) if path else {}, "gymnasium").get("modules", [])
    if not isinstance(modules, list) or not all(isinstance(module, str) for module in modules):
        raise bad_file(f"expected a list of module names as gymnasium.modules, got {shown(modules)}")
    return modules


def outline_profile(profile: ForeignProfile) -> dict[str, Any]:
    """Return the entry of a profile in a list of environments, without contacting or starting anything."""
    fields = profile.model_dump(mode="json", exclude_defaults=True, exclude={"name", "system_prompt"})
    return {"id": profile.id, **fields, "max_turns": profile.max_turns}


def _profile(kind: str, name: str, table: Any) -> ForeignProfile:
    record = KINDS[kind]
    if not isinstance(table, Mapping):
        raise bad_file(f"expected a table [{kind}.{name}], got {shown(table)}")
    fields = tuple(field for field in record.model_fields if field != "name")
    try:
        return record.model_validate({"name": name, **table})
    except ValidationError as error:
        raise bad_file(f"{explain(error, f'[{kind}.{name}]', fields)}; the fields are {', '.join(fields)}") from None


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, Mapping):
        raise bad_file(f"expected a table [{name}], got {shown(table)}")
    return table
