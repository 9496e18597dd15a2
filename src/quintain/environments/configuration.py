"""Configuration of this process: MCP servers, endpoints, how variables of the environment are read, and trained retrievers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from quintain.errors import Unavailable
from quintain.records.protocols import TextRetriever


class Configuration(NamedTuple):
    """Settings of environments by the operator of this program."""

    servers: Path | None = None
    """Path of `environments.toml`, which need not exist."""
    variable: Callable[[str], str | None] = lambda name: None
    """Returns the value of an environment variable in a server's `pass_env`; only processes that start servers need it."""
    endpoints: Path | None = None
    """Path of `endpoints.toml`, which need not exist: models that play users."""


_current = Configuration()


def configure(
    servers: Path | None,
    variable: Callable[[str], str | None] = lambda name: None,
    endpoints: Path | None = None,
) -> None:
    """Set the configuration of this process, by the fields of `Configuration`; composition roots call it once."""
    global _current
    _current = Configuration(servers, variable, endpoints)


def configuration() -> Configuration:
    """Return the configuration of this process."""
    return _current


BM25 = "bm25"
"""Name of the lexical retriever."""

AGENT_OPTIONS = {"quintain/tools-1k": ("retriever",)}
"""Environment -> options that name an agent; callers that accept references from clients replace it by the folder of its model."""

Open = Callable[[Path, Sequence[str]], TextRetriever]

_open: Open | None = None


def configure_retrieval(open_retriever: Open) -> None:
    """Set how this process opens trained retrievers: by folder, over texts; composition roots call it once."""
    global _open
    _open = open_retriever


def trained_retriever(folder: Path, texts: Sequence[str]) -> TextRetriever:
    """Return the search over texts by the retriever in a folder.

    Raises:
        Unavailable: This process computes no models.
    """
    if _open is None:
        raise Unavailable(
            f"expected a process that computes models for the retriever in {folder}, got one that does not; play in a job "
            "(collect_rollouts, evaluate_agent), or take retriever=bm25",
            code="no_retriever",
        )
    return _open(folder, texts)
