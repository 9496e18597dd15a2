"""Names of other trainers' settings, from `foreign_settings.toml`: other names, or accepted at one value, or without any effect."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class FixedSetting(NamedTuple):
    """A setting that is accepted at one value."""

    remedy: str
    """For any other value."""
    only: Any = None
    """The value; None: none."""
    among: Sequence[Any] = ()
    """Further values; of a list, any member."""

    def accepts(self, value: Any) -> bool:
        """Whether a value changes nothing; a block changes nothing by names that never do."""
        if isinstance(value, Mapping):
            return value.keys() <= WITHOUT_EFFECT
        members = value if isinstance(value, list) else [value]
        return value in (None, "", self.only) or all(member in self.among for member in members)


class Switch(NamedTuple):
    """A setting of another trainer at a value, which decides about others beside it."""

    name: str
    value: Any
    without_effect: Sequence[str] = ()
    """Settings that then have no effect."""
    defaults: Mapping[str, Any] = {}
    """Settings that are at these values where they are not given."""


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

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

RENAMED: Mapping[str, tuple[str, ...]] = {
    alias: (names,) if isinstance(names, str) else tuple(names) for alias, names in _TABLES["renamed"].items()
}
"""Alias -> settings here; a dot separates a group from its member."""

FIXED = {
    alias: FixedSetting(group["remedy"], group.get("only", {}).get(alias), group.get("among", {}).get(alias, ()))
    for group in _TABLES["fixed"]
    for alias in (*group.get("names", ()), *group.get("only", ()), *group.get("among", ()))
}
DATASETS = frozenset(name for name, one in FIXED.items() if one.remedy == FIXED["datasets"].remedy)
"""Names under which other trainers' files have their data."""

SWITCHES = tuple(Switch(**fields) for fields in _TABLES["switches"])
COMPONENTS = {block: ComponentBlock(**fields) for block, fields in _TABLES["components"].items()}
"""Block of torchtune -> what it means here."""

WITHOUT_EFFECT = frozenset(_TABLES["without_effect"])
"""Names that change no result here."""


_OF_LLAMA_FACTORY = "finetuning_type"
"""Name of its files, which take twice the rank where they state no `lora_alpha`."""


def with_switches(values: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Return settings without those that a switch beside them robs of their effect, and with the defaults of what is on.

    A default is left out where the setting has a value by another name, or the method does not have it.
    """
    result = dict(values)
    for switch in SWITCHES:
        if switch.name in values and values[switch.name] == switch.value:
            kept = {name: value for name, value in result.items() if name not in switch.without_effect}
            others = {name: value for name, value in kept.items() if name != switch.name and value is not None}
            stated = {RENAMED.get(name, (name,)) for name in others}
            defaults = {
                name: value
                for name, value in switch.defaults.items()
                if RENAMED[name] not in stated and RENAMED[name][0].partition(".")[0] in fields
            }
            result = {**defaults, **kept}
    rank = result.get("lora_rank")
    if _OF_LLAMA_FACTORY in result and result.get("lora_alpha") is None and isinstance(rank, int):
        result["lora_alpha"] = 2 * rank
    return result
