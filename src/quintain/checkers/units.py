"""Parse units of measurement into dimension and scale, so that 18 km/h equals 5 m/s."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple


class Unit(NamedTuple):
    """A unit: a value v in it is (v + offset) * size in the basic unit of its kind."""

    kind: str
    """The basic units with their powers, such as `m1 s-1`."""
    size: Fraction
    offset: Fraction = Fraction(0)


_PREFIXES = {
    "": 0,
    "p": -12,
    "n": -9,
    "µ": -6,
    "μ": -6,
    "u": -6,
    "m": -3,
    "c": -2,
    "d": -1,
    "h": 2,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
}
_LONG = {
    "": 0,
    "pico": -12,
    "nano": -9,
    "micro": -6,
    "milli": -3,
    "centi": -2,
    "deci": -1,
    "hecto": 2,
    "kilo": 3,
    "mega": 6,
    "giga": 9,
    "tera": 12,
}
_METRIC = (
    "m meter metre:m:1|g gram gramme:kg:.001|s sec second:s:1|A amp ampere:A:1|K kelvin:K:1|mol mole:mol:1|Hz hertz:s-1:1"
    "|N newton:kg m s-2:1|Pa pascal:kg m-1 s-2:1|J joule:kg m2 s-2:1|W watt:kg m2 s-3:1"
    "|V volt:kg m2 s-3 A-1:1|Ω ohm:kg m2 s-3 A-2:1|T tesla:kg s-2 A-1:1"
    "|Wb weber:kg m2 s-2 A-1:1|H henry:kg m2 s-2 A-2:1"
    "|L l liter litre:m3:.001|B byte:B:1|bit:B:.125|eV electronvolt:kg m2 s-2:1.602176634e-19"
    "|cal calorie:kg m2 s-2:4.184|bar:kg m-1 s-2:100000|Wh:kg m2 s-2:3600|coulomb:A s:1"
    "|farad:kg-1 m-2 s4 A2:1|pc parsec:m:30856775814913673"
)
_OTHER = (
    "in inch inches ″:m:.0254|ft foot feet:m:.3048|yd yard:m:.9144|mi mile:m:1609.344|lb lbs pound:kg:.45359237|oz ounce:kg:.028349523125"
    "|t tonne:kg:1000|min minute:s:60|h hr hour:s:3600|d day:s:86400|wk week:s:604800|month:month:1|yr year:month:12|decade:month:120"
    "|mph:m s-1:.44704|kph kmh:m s-1:1/3.6|knot:m s-1:1852/3600|rpm:s-1:1/60|psi:kg m-1 s-2:6894.757293168|atm atmosphere:kg m-1 s-2:101325"
    "|gal gallon:m3:.003785411784|acre:m2:4046.8564224|ha hectare:m2:10000|° deg degree:deg:1|rad radian:deg:57.29577951308232"
    "|celsius centigrade:K:1:273.15|fahrenheit:K:5/9:459.67|$ usd dollar:usd:1|¢ cent:usd:.01|€ eur euro:eur:1|£ gbp:gbp:1|jpy yen:jpy:1"
    "|cny rmb yuan:cny:1|₹ inr rupee:inr:1|KB:B:1000|KiB:B:1024|MiB:B:1048576|GiB:B:1073741824"
)
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

    for table, metric in ((_OTHER, False), (_METRIC, True)):
        for entry in table.split("|"):
            names, kinds, size, *offset = entry.split(":")
            powers = {found[1]: int(found[2] or 1) for found in re.finditer(r"([A-Za-z]+)(-?\d+)?", kinds)}
            for name in names.split():
                for prefix, power in (
                    (_LONG if len(name) > 3 else _PREFIXES if name != "bit" else _LONG).items() if metric else [("", 0)]
                ):
                    if prefix != "d" or name in {"m", "l", "L"}:
                        scale = _fraction(size) * Fraction(10) ** power
                        add(prefix + name, powers, scale, _fraction(offset[0]) if offset else Fraction(0))
    for prefix, power in _PREFIXES.items():
        if prefix not in {"", "d"}:
            known[f"{prefix}F"] = (known["farad"][0], Fraction(10) ** power, Fraction(0))
    return known


_KNOWN = _table()
_FOLDED = {name.lower(): name for name in reversed(_KNOWN)} | {name: name for name in _KNOWN if name.islower()}
"""Names by their lower-case form; of two names that differ only in case, the lower-case one wins."""


def unit_of(text: str) -> tuple[Unit, str] | None:
    """Return the unit at the start of a text and the rest; None if the text does not start with a unit.

    Args:
        text: The text after a number.
    """
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
