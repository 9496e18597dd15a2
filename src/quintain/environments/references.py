"""Texts of references: an id with options, or several environments with weights.

`quintain/inventory?difficulty=hard` is an id with options; `mix(acme/shop=1,quintain/inventory=2)` is a mixture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from quintain.errors import InvalidInput
from quintain.records.wording import clip, shown

MAX_PARTS = 50

_FROM_FILE = frozenset({"file", "tasks"})

_FOLDERS = re.compile(r"((?:file|tasks|repos)=)[^&,()]*/")

_WEIGHTS = (1e-6, 1e9)
"""Minimum and maximum weight of a part; only ratios matter."""

_PARTS_OF_WHOLE = 10**6
"""Largest denominator by which weights are approximated."""

_MIXTURE = re.compile(r"\s*mix\((.*)\)\s*", re.DOTALL)


class Reference(NamedTuple):
    """An environment id with its options as text."""

    id: str
    options: dict[str, str]


def parse_reference(reference: str) -> Reference:
    """Split a reference into id and options.

    Raises:
        InvalidInput: the part after `?` is not `option=value&option=value`, or repeats an option.
    """
    name, question, query = reference.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=50) if query else []
    except ValueError:
        raise InvalidInput(
            f"cannot read the options of {clip(reference)!r}; write ID?option=value&option=value"
        ) from None
    options = dict(pairs)
    if (question and not pairs) or len(options) < len(pairs):
        raise InvalidInput(f"expected each option once after `?`, got {clip(reference)!r}; write ID?option=value")
    return Reference(unquote(name), options)


def write_reference(reference: Reference) -> str:
    """Return the text of a reference, which `parse_reference` reads."""
    name = quote(reference.id, safe="/:")
    return f"{name}?{urlencode(reference.options, safe='/:,')}" if reference.options else name


def parts_of(reference: str | Mapping[str, float]) -> dict[str, int] | None:
    """Return the parts of a mixture in canonical form: sorted, as `write_reference` writes them, weights in lowest terms.

    Returns:
        Reference -> weight; None if the reference names one environment.

    Raises:
        InvalidInput: no part or more than `MAX_PARTS`; a part that is a mixture, a duplicate or unreadable; or a weight that is
            not a number from 1e-06 to 1e+09.
    """
    if isinstance(reference, str):
        if (found := _MIXTURE.fullmatch(reference)) is None:
            return None
        split = (part.rpartition("=")[::2] for part in found[1].split(",")) if found[1].strip() else ()
        pairs = [(part.strip(), weight.strip()) for part, weight in split]
    else:
        pairs = list(reference.items())
    if not 1 <= len(pairs) <= MAX_PARTS:
        raise InvalidInput(
            f"expected a mixture of 1 to {MAX_PARTS} environments, got {len(pairs)}; write it like "
            "{'quintain/inventory': 2, 'quintain/math': 1}"
        )
    weights = dict[str, Fraction]()
    for part, weight in pairs:
        name = _written_part(part)
        if name in weights:
            raise InvalidInput(
                f"expected each environment once in a mixture, got {clip(name)!r} twice; add up its weights"
            )
        weights[name] = _weight(name, weight)
    whole = lcm(*(weight.denominator for weight in weights.values()))
    counts = {name: int(weights[name] * whole) for name in sorted(weights)}
    if max(counts.values()) > _WEIGHTS[1]:
        total = sum(counts.values())
        counts = {name: max(1, count * _PARTS_OF_WHOLE // total) for name, count in counts.items()}
    shared = gcd(*counts.values())
    return {name: count // shared for name, count in counts.items()}


def short_reference(reference: str) -> str:
    """Return a reference as people read it: names of files in place of their paths."""
    return _FOLDERS.sub(r"\1", reference)


def reads_tasks(reference: str) -> bool:
    """Whether an environment, or one of a mixture, takes its tasks from a file."""
    parts = parts_of(reference) or (reference,)
    return any(_FROM_FILE & parse_reference(part).options.keys() for part in parts)


def write_mixture(weights: Mapping[str, float]) -> str:
    """Return the canonical text of a mixture: `mix(quintain/inventory=2,quintain/math?difficulty=easy=1)`.

    A comma in a part is written `%2C`. A mixture of one part becomes the reference of that part.
    """
    return mixture_text(parts_of(weights) or {})


def mixture_text(parts: Mapping[str, int]) -> str:
    """Return the canonical text of parts as `parts_of` returns them."""
    if len(parts) == 1:
        return next(iter(parts))
    return "mix(" + ",".join(f"{part.replace(',', '%2C')}={weight}" for part, weight in parts.items()) + ")"


def _written_part(part: object) -> str:
    if not isinstance(part, str):
        raise InvalidInput(f"expected the reference of an environment as a part of a mixture, got {shown(part)}")
    if _MIXTURE.fullmatch(part):
        raise InvalidInput(
            f"expected an environment as a part of a mixture, got the mixture {clip(part)!r}; name its parts"
        )
    name, options = parse_reference(part)
    return write_reference(Reference(name, dict(sorted(options.items()))))


def _weight(part: str, weight: object) -> Fraction:
    low, high = _WEIGHTS
    try:
        if isinstance(weight, int | float | str) and not isinstance(weight, bool) and low <= float(weight) <= high:
            return Fraction(float(weight)).limit_denominator(_PARTS_OF_WHOLE)
    except (ValueError, OverflowError):  # text that is not a number, or a number beyond the range of floats
        pass
    raise InvalidInput(
        f"expected a number from {low:g} to {high:g} as the weight of {clip(part)!r}, got {shown(weight)}"
    )
