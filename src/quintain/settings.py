"""Operator settings, read from the environment (`QUINTAIN_*`) only here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from platformdirs import user_data_path
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from quintain.errors import InvalidInput

_LONGEST_BYTES = 500
"""SQLite opens files of at most 512 bytes, also the journals, whose names are longer."""


def sqlite_url(path: Path) -> str:
    """Return the SQLAlchemy URL of a SQLite file, whatever characters its path has: `?` and `%` mean something in a URL.

    Raises:
        InvalidInput: SQLite opens no such path: it is too long, or not UTF-8.
    """
    encoded = os.fsencode(path)
    if len(encoded) > _LONGEST_BYTES or encoded.decode(errors="ignore") != str(path):
        raise InvalidInput(
            f"expected the path of a database in at most {_LONGEST_BYTES} bytes of UTF-8, got {len(encoded)} bytes: "
            f"{encoded.decode(errors='replace')[:100]}; set QUINTAIN_HOME to another folder",
            code="bad_setting",
        )
    return f"sqlite:///{quote(str(path))}"


def default_home() -> Path:
    """Return the platform's folder for the home of a user who names none."""
    return user_data_path("quintain", appauthor=False)


def _expanded(path: Path) -> Path:
    """Return the path with the user's folder for `~`, which no shell replaces in a client's settings or after `--home=`.

    Raises:
        ValueError: no such user.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(str(error)) from None


_PREFIX = "QUINTAIN_"

_FLAGS = {"off": False} | dict.fromkeys(("0", "false", "no", "n", "f"), False)
_FLAGS |= dict.fromkeys(("1", "true", "yes", "on", "y", "t"), True)
"""Words that pydantic takes for a boolean."""


class Settings(BaseModel):
    """Operator settings. Every field can be set as `QUINTAIN_<NAME>`."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, validate_default=True)

    home: Path = Field(default_factory=default_home, description="Folder for the database, datasets, jobs and agents.")
    database_url: str | None = Field(
        default=None, description="SQLAlchemy URL; default: quintain.db in the home folder."
    )
    roots: tuple[Path, ...] = Field(
        default=(),
        description="Further folders for reading models and files and for agent exports, separated by the path separator.",
    )
    artifacts: tuple[str, ...] = Field(
        default=(),
        description="URL prefixes that tools may read and write, such as s3://bucket/folder, and hub:owner to push to; separated "
        "by commas.",
    )
    checkpoints: str | None = Field(
        default=None,
        description="URL below which the checkpoints of trainings, and of stages that train, are mirrored; default: none.",
    )
    allow_hub: bool = Field(default=False, description="Allow models to be named by a Hub name and downloaded.")
    slots: int = Field(default=1, ge=1, le=64, description="Maximum number of concurrent jobs that need a device.")
    devices: tuple[str, ...] | None = Field(
        default=None,
        validation_alias=AliasChoices("QUINTAIN_DEVICES", "CUDA_VISIBLE_DEVICES"),
        description="GPUs that jobs get, as CUDA_VISIBLE_DEVICES names them, separated by commas; -1: none; default: that "
        "variable, else all that are found.",
    )
    launcher: str = Field(
        default="local",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$",
        description="Where jobs run: local, ray, slurm, or a launcher of another package.",
    )
    ray_address: str | None = Field(
        default=None,
        validation_alias=AliasChoices("QUINTAIN_RAY_ADDRESS", "RAY_ADDRESS"),
        description="Address of the Ray cluster's dashboard, such as http://10.0.0.1:8265.",
    )
    slurm_options: str = Field(
        default="", description="Further options of sbatch, such as --partition=gpu --time=12:00:00."
    )
    cluster_cpus: int | None = Field(
        default=None, ge=1, description="CPU cores of a job on a cluster; default: the cluster's."
    )
    cluster_gpus: int = Field(default=0, ge=0, description="GPUs of each process of a job on a cluster.")
    cluster_env: tuple[str, ...] = Field(
        default=("GOMP_SPINCOUNT", "HF_HOME", "HF_HUB_OFFLINE", "KMP_BLOCKTIME"),
        description="Names of environment variables that workers on a cluster get from the server, separated by commas.",
    )
    lease_s: float = Field(
        default=60.0,
        ge=2,
        le=3600,
        description="Seconds of silence after which a job on a cluster is dead, or a home has moved.",
    )
    max_attempts: int = Field(default=5, ge=1, le=100, description="Attempts before a job is interrupted.")
    auto_resume: bool = Field(default=True, description="Start a job's next attempt when its process died.")
    grace_s: float = Field(default=20.0, gt=0, le=600, description="Seconds between SIGTERM and SIGKILL on cancel.")
    stall_minutes: float | None = Field(
        default=None,
        gt=0,
        description="Minutes without a report after which a job is ended and goes on from its newest checkpoint; default: never.",
    )
    max_minutes: float | None = Field(
        default=None, gt=0, description="Minutes after which an attempt of a job is interrupted; default: never."
    )
    job_memory_mb: float | None = Field(
        default=None,
        ge=64,
        description="Memory of a job's processes above which it fails; default: 0.9 of the machine's or container's.",
    )
    job_disk_mb: float | None = Field(
        default=None, ge=1, description="Size of a job's folder above which it is interrupted; default: no limit."
    )
    redact: tuple[Literal["secrets", "personal"], ...] = Field(
        default=("secrets", "personal"),
        description="What is removed from runs, separated by commas: secrets, personal; or off. 1 and 0 mean all and off.",
    )
    model_terms: Literal["warn", "allow", "block"] = Field(
        default="warn",
        description="Exports of model output whose terms restrict training: warn, allow silently, or block.",
    )
    sandbox: Literal["auto", "bubblewrap", "unshare", "docker", "off"] = Field(
        default="auto",
        description="Sandbox for commands of agents and their tests. auto: the first that works here; off: run no commands.",
    )
    sandbox_image: str = Field(
        default="python:3.11-slim",
        description="Image of the docker sandbox. It must exist on this machine; nothing is pulled.",
    )
    judge_control: Literal["task", "run", "off"] = Field(
        default="task",
        description="Control runs without the agent's text for judges: one per task, one per run, or none.",
    )
    actor_backend: Literal["local", "ray"] = Field(
        default="local",
        description="Where jobs with several actors play: child processes of the job, or the Ray cluster of RAY_ADDRESS.",
    )
    http_public_url: str | None = Field(
        default=None,
        description="URL under which a proxy publishes the HTTP server, such as https://example.org/quintain.",
    )
    http_hosts: tuple[str, ...] = Field(
        default=(),
        description="Further values of the Host header that the HTTP server accepts, with ports, separated by commas.",
    )
    http_trusted_proxies: tuple[str, ...] = Field(
        default=(),
        description="Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, separated by "
        "commas.",
    )
    http_issuer: str | None = Field(
        default=None, description="URL of the OAuth issuer whose JWT access tokens the HTTP server accepts too."
    )
    http_audience: str | None = Field(
        default=None, description="Audience that a JWT must have; default: the public URL of the protocol."
    )
    http_scopes: tuple[str, ...] = Field(default=(), description="Scopes that a JWT must have, separated by commas.")
    http_body_mib: float = Field(default=4.0, gt=0, le=1024, description="Largest body of an HTTP request, in MiB.")
    http_calls_per_s: float = Field(
        default=300.0, gt=0, le=1e6, description="Calls a second of one HTTP client; twice as many may come at once."
    )
    http_calls_at_once: int = Field(default=64, ge=1, le=10_000, description="HTTP calls that are served at once.")
    http_connections: int = Field(
        default=64, ge=1, le=10_000, description="Connections of one HTTP client, counted by its address."
    )
    http_grace_s: float = Field(
        default=8.0, ge=0, le=600, description="Seconds that HTTP calls get to finish after SIGTERM."
    )
    telemetry_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="URL of an OpenTelemetry collector (OTLP over HTTP) that gets a span of each request and job; default: none.",
    )
    poll_s: float = Field(default=0.3, gt=0, le=60, description="Seconds between job checks of the server.")

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Add the variables of the environment, in upper or lower case, for the fields that are not given."""
        variables = {name.upper(): value for name, value in os.environ.items()}
        given = dict(values)
        for name in cls.model_fields:
            if name not in given and (known := next((one for one in cls._variables(name) if one in variables), None)):
                given[name] = variables[known]
        return given

    @classmethod
    def _variables(cls, field: str) -> list[str]:
        alias = cls.model_fields[field].validation_alias
        return list(map(str, alias.choices)) if isinstance(alias, AliasChoices) else [f"{_PREFIX}{field.upper()}"]

    @classmethod
    def misspelt(cls) -> list[str]:
        """Return the variables of the environment that are no settings, with the setting that each is like; others may be anyone's."""
        known = [one.removeprefix(_PREFIX) for field in cls.model_fields for one in cls._variables(field)]
        names = [name.upper().removeprefix(_PREFIX) for name in os.environ if name.upper().startswith(_PREFIX)]
        likeness = [
            (name, get_close_matches(name, known, n=1, cutoff=0.75)) for name in sorted(names) if name not in known
        ]
        return [f"{_PREFIX}{name} (did you mean {_PREFIX}{like[0]}?)" for name, like in likeness if like]

    @field_validator("roots", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(_expanded(Path(part)) for part in value.split(os.pathsep) if part)
        return value

    @field_validator(
        "artifacts", "devices", "cluster_env", "http_hosts", "http_trusted_proxies", "http_scopes", mode="before"
    )
    @classmethod
    def _names(cls, value: object) -> object:
        """Split at commas. CUDA ignores what follows a device of -1."""
        if not isinstance(value, str):
            return value
        names = [name.strip() for name in value.split(",")]
        return tuple(name for name in names[: names.index("-1") if "-1" in names else None] if name)

    @field_validator("redact", mode="before")
    @classmethod
    def _levels(cls, value: object) -> object:
        """Accept a list, and the flags that were valid before there were levels."""
        both = ("secrets", "personal")
        if not isinstance(value, str):
            return (both if value else ()) if isinstance(value, bool) else value
        if (flag := value.strip().lower()) in _FLAGS:
            return both if _FLAGS[flag] else ()
        return tuple(dict.fromkeys(name.strip().lower() for name in value.split(",")))

    @field_validator("home", mode="before")
    @classmethod
    def _named(cls, home: object) -> object:
        """Count an empty variable as unset: an empty path is the current folder."""
        return default_home() if home == "" else home

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        """Return the folder independent of the current one: a worker starts in another."""
        return _expanded(home).absolute()

    @property
    def url(self) -> str:
        """Effective SQLAlchemy URL."""
        return self.database_url or sqlite_url(self.home / "quintain.db")

    @property
    def jobs_dir(self) -> Path:
        """Parent of the job folders."""
        return self.home / "jobs"

    @property
    def datasets_dir(self) -> Path:
        """Parent of the immutable dataset folders."""
        return self.home / "datasets"

    @property
    def exports_dir(self) -> Path:
        """Parent of the exports in other trainers' formats."""
        return self.home / "exports"

    @property
    def agents_dir(self) -> Path:
        """Parent of the trained models."""
        return self.home / "agents"

    @property
    def reports_dir(self) -> Path:
        """Saved pictures and reports."""
        return self.home / "reports"

    @property
    def cache_dir(self) -> Path:
        """Caches shared by jobs: reference log-probabilities and replay buffers."""
        return self.home / "cache"

    @property
    def artifacts_cache_dir(self) -> Path:
        """Local copies of artifacts at URLs."""
        return self.cache_dir / "artifacts"

    @property
    def inbox_dir(self) -> Path:
        """Folder whose files tools may always read."""
        return self.home / "inbox"

    @property
    def environments_file(self) -> Path:
        """Operator's MCP servers that agents may act on (`environments.servers`)."""
        return self.home / "environments.toml"

    @property
    def endpoints_file(self) -> Path:
        """Operator's profiles of models behind HTTP (`endpoints.profiles`)."""
        return self.home / "endpoints.toml"


def read_settings(home: Path | None = None) -> Settings:
    """Read the operator settings, optionally for a given home folder.

    Raises:
        InvalidInput: An environment variable has an invalid value.
    """
    try:
        return Settings(home=home) if home is not None else Settings()
    except ValidationError as error:
        faults = [
            f"QUINTAIN_{str(fault['loc'][0]).upper().removeprefix('QUINTAIN_')} is {fault['input']!r:.60}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_context=False)
        ]
        raise InvalidInput(
            f"{'; '.join(faults)}; correct it, or unset it for the default", code="bad_setting"
        ) from None


def secret(name: str) -> str | None:
    """Return the value of an environment variable that an endpoint profile names for its key, or None.

    Only the worker calls this, when it sends a request: the value is never logged, stored or part of a message.
    """
    return os.environ.get(name, "").strip() or None


def has_secret(name: str) -> bool:
    """Whether an environment variable that an endpoint profile names for its key has a value."""
    return secret(name) is not None


def folder_of(name: str, default: Path) -> Path:
    """Return the folder that a variable of another program names, such as CODEX_HOME, or the default."""
    return Path(found).expanduser() if (found := secret(name)) else default
