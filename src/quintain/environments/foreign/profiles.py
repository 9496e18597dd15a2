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
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat

from quintain.environments.isolation.isolated import AT_ONCE
from quintain.environments.servers import (
    Profile,
    Seconds,
    bad_file,
    find_profile,
    read_profiles,
    read_table,
    resolve_path,
)
from quintain.records.record import Name, require_number
from quintain.records.wording import shown

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
AtOnce = Annotated[int, Field(ge=1, le=AT_ONCE), BeforeValidator(require_number)]
Count = Annotated[int, Field(ge=1, le=100_000_000), BeforeValidator(require_number)]


class ForeignProfile(Profile):
    """Fields of every profile; without a `system_prompt` the server's or the task's is used."""

    max_turns: Annotated[int, Field(ge=1, le=1000), BeforeValidator(require_number)] = 20
    timeout_s: Seconds = Field(default=60.0, description="Seconds for one answer, and for the start.")
    success_at: FiniteFloat = Field(default=1.0, description="Return from which on an episode is a success.")
    at_once: AtOnce = Field(default=AT_ONCE, description="Episodes that play at once.")


class OpenEnvProfile(ForeignProfile):
    """A server of OpenEnv; its tasks are seeds."""

    kind = "openenv"
    url: Url
    tasks: Count | None = Field(default=None, description="Number of seeds; null: a million.")
    reset: dict[str, Any] = Field(default_factory=dict, description="Further arguments of `reset`.")
    at_once: AtOnce = Field(default=1, description="The server's `max_concurrent_envs`, whose default is 1.")


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
    """Return the profiles of an `environments.toml`, sorted by id."""
    profiles = [profile for record in KINDS.values() for profile in read_profiles(path, record).values()]
    return sorted(profiles, key=lambda profile: profile.id)


def is_foreign(environment_id: str) -> bool:
    """Whether an id belongs to another library or server."""
    library, slash, rest = environment_id.partition("/")
    return bool(slash and rest and library in LIBRARIES) or environment_id.partition(":")[0] in KINDS


def find_foreign(path: Path | None, environment_id: str) -> ForeignProfile:
    """Return the profile of an id such as `openenv:echo`; errors as of `list_profiles` and `servers.find_profile`."""
    kind, _, name = environment_id.partition(":")
    profiles = {profile.id: profile for profile in list_profiles(path)}
    return find_profile(profiles, environment_id, f"{kind}.{name or 'NAME'}", path)


def find_interpreter(path: Path | None, library: str) -> str | None:
    """Return the Python that the operator names for a library; None: Quintain's own.

    Raises:
        InvalidInput: the table is not a mapping of names to paths.
    """
    interpreter = read_table(path, "python").get(library)
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
    modules = read_table(path, "gymnasium").get("modules", [])
    if not isinstance(modules, list) or not all(isinstance(module, str) for module in modules):
        raise bad_file(f"expected a list of module names as gymnasium.modules, got {shown(modules)}")
    return modules


def outline_profile(profile: ForeignProfile) -> dict[str, Any]:
    """Return the entry of a profile in a list of environments, without contacting or starting anything."""
    fields = profile.model_dump(mode="json", exclude_defaults=True, exclude={"name", "system_prompt"})
    return {"id": profile.id, **fields, "max_turns": profile.max_turns}
