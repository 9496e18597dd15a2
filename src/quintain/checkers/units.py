"""Parse units of measurement into dimension and scale, so that 18 km/h equals 5 m/s."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple


class Unit(NamedTuple):
    """A unit: a value v in it is (v + offset) * size in the basic unit of its kind."""

    kind: str
    """The basic units with their powers, such as `m1 s-1`."""
    size: Fraction
    offset: Fraction = Fraction(0)


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_DEGREES = re.compile(r"(?:°|\bdegrees?\b|\bdeg\b)\s*(C|F|K|celsius|fahrenheit|centigrade|kelvin)\b", re.IGNORECASE)
_ALONE = {"C": "celsius", "F": "fahrenheit"}
_SCALES = {"c": "celsius", "f": "fahrenheit", "k": "kelvin"}
_TOKEN = re.compile(
    r"\s*(?:(?P<over>/|\bper\b)|(?P<times>[*·])|(?P<power>square|sq\.?|cubic|cu\.?)(?=\s)|(?P<name>[A-Za-zµμ]+|[°Ω€£$¢₹″])"
    r"(?:\s*\^\s*\(?(?P<raised>-?[1-9])\)?|(?P<plain>[23])(?!\d))?)"
)


def _fraction(text: str) -> Fraction:
    above, _, below = text.partition("/")
    return Fraction(above) / Fraction(below or "1")


def _table() -> dict[str, tuple[dict[str, int], Fraction, Fraction]]:
    known: dict[str, tuple[dict[str, int], Fraction, Fraction]] = {}

    def add(name: str, powers: dict[str, int], size: Fraction, offset: Fraction = Fraction(0)) -> None:
        known.setdefault(name, (powers, size, offset))
        if len(name) > 2:
            known.setdefault(f"{name}s", (powers, size, offset))

    short, long = _TABLES["prefixes"], _TABLES["long_prefixes"]
    for table in ("other", "metric"):
        for names, unit in _TABLES[table].items():
            powers = {found[1]: int(found[2] or 1) for found in re.finditer(r"([A-Za-z]+)(-?\d+)?", unit["of"])}
            size, offset = _fraction(unit["size"]), _fraction(unit.get("offset", "0"))
            for name in names.split():
                prefixes = {"": 0} if table == "other" else long if len(name) > 3 or name == "bit" else short
                for prefix, power in prefixes.items():
                    if prefix != "d" or name in {"m", "l", "L"}:
                        add(prefix + name, powers, size * Fraction(10) ** power, offset)
    for prefix, power in short.items():
        if prefix not in {"", "d"}:
            known[f"{prefix}F"] = (known["farad"][0], Fraction(10) ** power, Fraction(0))
    return known


_KNOWN = _table()
_FOLDED = {name.lower(): name for name in reversed(_KNOWN)} | {name: name for name in _KNOWN if name.islower()}
"""Names by their lower-case form; of two names that differ only in case, the lower-case one wins."""


def unit_of(text: str) -> tuple[Unit, str] | None:
    """Return the unit at the start of a text after a number, and the rest; None if there is no unit."""
    text = _DEGREES.sub(lambda found: f"{_SCALES[found[1][0].lower()]}", text.strip())
    powers: dict[str, int] = {}
    size, offset = Fraction(1), Fraction(0)
    place, over, power, names = 0, False, 1, 0
    while found := _TOKEN.match(text, place):
        if found["over"] or found["times"]:
            over, end = bool(found["over"]), found.end()
            if not names or not (following := _TOKEN.match(text, end)) or not _known(following["name"]):
                break
            place = end
            continue
        if found["power"]:
            power, place = (2 if found["power"].startswith("s") else 3), found.end()
            continue
        name = _known(found["name"], alone=not names)
        if name is None or (names and not over and found["name"].lower() in {"in", "a", "c"}):
            break
        raised = int(found["raised"] or found["plain"] or power) * (-1 if over else 1)
        kinds, scale, shift = _KNOWN[name]
        for kind, count in kinds.items():
            powers[kind] = powers.get(kind, 0) + count * raised
        size *= scale**raised
        offset = shift if not names and raised == 1 else Fraction(0)
        place, over, power, names = found.end(), False, 1, names + 1
    if not names:
        return None
    kind = _kind(powers)
    return Unit(kind, size, offset if names == 1 else Fraction(0)), text[place:]


def _kind(powers: Mapping[str, int]) -> str:
    return " ".join(f"{name}{power}" for name, power in sorted(powers.items()) if power) or "1"


def _known(name: str | None, *, alone: bool = False) -> str | None:
    if name is None:
        return None
    if alone and name in _ALONE:
        return _ALONE[name]
    if name in _KNOWN:
        return name
    folded = _FOLDED.get(name.lower())
    return (
        folded
        if folded is not None and (len(name) > 2 or name.lower() in {"km", "kg", "cm", "mm", "ml", "hr", "ft", "lb"})
        else None
    )
