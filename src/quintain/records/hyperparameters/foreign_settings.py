"""Names of other trainers' settings, from `foreign_settings.toml`: other names, or accepted at one value, or without any effect."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class FixedSetting(NamedTuple):
    """A setting that is accepted at one value."""

    remedy: str
    """For any other value."""
    only: Any = None
    """The value; None: none."""


class ComponentBlock(NamedTuple):
    """A block of torchtune's configs, which names a class and its arguments."""

    settings: Mapping[str, Mapping[str, Any]]
    """Component -> settings here, with the component's own defaults."""
    members: Mapping[str, str]
    """Argument -> setting here."""
    fixed: Mapping[str, Any]
    """Argument -> the only value accepted."""
    without_effect: tuple[str, ...]
    remedy: str
    """For other components."""


COMPONENT = "_component_"
DATASETS = (
    "dataset",
    "datasets",
    "dataset_config",
    "dataset_dir",
    "dataset_mixture",
    "dataset_name",
    "prompt_data",
    "train_file",
)
"""Names under which other trainers' files have their data."""

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

RENAMED: Mapping[str, tuple[str, ...]] = {
    alias: (names,) if isinstance(names, str) else tuple(names) for alias, names in _TABLES["renamed"].items()
}
"""Alias -> settings here; a dot separates a group from its member."""

FIXED = {alias: FixedSetting(**fields) for alias, fields in _TABLES["fixed"].items()}
COMPONENTS = {block: ComponentBlock(**fields) for block, fields in _TABLES["components"].items()}
"""Block of torchtune -> what it means here."""

WITHOUT_EFFECT = frozenset(_TABLES["without_effect"])
"""Names that change no result here."""
