"""What the operator decides, read from the environment (`QUINTAIN_*`) here and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from platformdirs import user_data_path
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from quintain.errors import InvalidInput


def _default_home() -> Path:
    return user_data_path("quintain", appauthor=False)


class Settings(BaseSettings):
    """Operator settings; every field can be set as `QUINTAIN_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix="QUINTAIN_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=_default_home, description="Folder for the database, datasets, jobs and agents.")
    database_url: str | None = Field(
        default=None, description="SQLAlchemy URL; default: quintain.db in the home folder."
    )
    roots: Annotated[tuple[Path, ...], NoDecode] = Field(
        default=(),
        description="Extra folders that tools may read models and files from, and export agents into; separated by the path separator.",
    )
    allow_hub: bool = Field(default=False, description="May models be named by a Hub name and downloaded?")
    slots: int = Field(default=1, ge=1, le=64, description="How many jobs that need a device may run at once.")
    max_attempts: int = Field(default=5, ge=1, le=100, description="Attempts that a job gets before it is interrupted.")
    auto_resume: bool = Field(default=True, description="Start a job's next attempt by itself when its process died?")
    grace_s: float = Field(default=20.0, gt=0, le=600, description="Seconds between SIGTERM and SIGKILL on cancel.")
    redact: bool = Field(default=True, description="Take keys, passwords and personal data out of what is imported?")
    model_terms: Literal["warn", "allow", "block"] = Field(
        default="warn",
        description="Exports of what models wrote whose terms restrict training: warn, allow in silence, or block.",
    )
    sandbox: Literal["auto", "bubblewrap", "unshare", "docker", "off"] = Field(
        default="auto",
        description="What walls commands of agents and their tests run behind; auto: the first whose walls hold here; off: none run.",
    )
    sandbox_image: str = Field(
        default="python:3.11-slim",
        description="Image of the docker sandbox; it must be on this machine, nothing is pulled.",
    )
    judge_control: Literal["task", "run", "off"] = Field(
        default="task",
        description="Which run without the agent's words a judge is asked about too: one a task, one for each run, or none.",
    )
    poll_s: float = Field(default=0.3, gt=0, le=60, description="Seconds between two looks of the server at its jobs.")

    @field_validator("roots", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(Path(part).expanduser() for part in value.split(os.pathsep) if part)
        return value

    @property
    def url(self) -> str:
        """The SQLAlchemy URL in force."""
        return self.database_url or f"sqlite:///{self.home / 'quintain.db'}"

    @property
    def jobs_dir(self) -> Path:
        """One folder a job: its mailbox."""
        return self.home / "jobs"

    @property
    def datasets_dir(self) -> Path:
        """One immutable folder a dataset."""
        return self.home / "datasets"

    @property
    def exports_dir(self) -> Path:
        """One folder an export in the format of another trainer."""
        return self.home / "exports"

    @property
    def agents_dir(self) -> Path:
        """One folder a trained model."""
        return self.home / "agents"

    @property
    def cache_dir(self) -> Path:
        """What later jobs can use again: reference log-probabilities, replay buffers."""
        return self.home / "cache"

    @property
    def inbox_dir(self) -> Path:
        """Files that tools may read without further permission."""
        return self.home / "inbox"

    @property
    def environments_file(self) -> Path:
        """The operator's MCP servers that agents may act on (`environments.servers`)."""
        return self.home / "environments.toml"

    @property
    def endpoints_file(self) -> Path:
        """The operator's profiles of models behind HTTP (`endpoints.profiles`)."""
        return self.home / "endpoints.toml"


def read_settings(home: Path | None = None) -> Settings:
    """The operator's settings, on this home folder where one is given.

    Raises:
        InvalidInput: a variable of the environment holds what its setting cannot be; names it and what is valid.
    """
    try:
        return Settings(home=home) if home is not None else Settings()
    except ValidationError as error:
        faults = [
            f"QUINTAIN_{str(fault['loc'][0]).upper()} is {fault['input']!r:.60}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_context=False)
        ]
        raise InvalidInput(
            f"{'; '.join(faults)}; set it right, or unset it for the default", code="bad_setting"
        ) from None


def secret(name: str) -> str | None:
    """The value of an environment variable that an endpoint profile names for its key; None where it is not set.

    Only the worker calls this, at the moment of use: the value is never logged, stored or part of a message.
    """
    return os.environ.get(name, "").strip() or None


def has_secret(name: str) -> bool:
    """Is there a value in an environment variable that an endpoint profile names for its key?"""
    return secret(name) is not None
