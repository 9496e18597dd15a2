"""Wording of messages: values, numbers and names as they are shown, and what pydantic found, in one sentence."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Container, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from quintain.errors import QuintainError

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""Pattern of names given by users, which `explain` puts into words."""


def clip(text: str, most: int = 60) -> str:
    """Truncate text to `most` characters, ending in `...`."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shown(value: object) -> str:
    """Return the `repr` of a value, truncated to 60 characters."""
    try:
        return clip(repr(value))
    except ValueError:  # Python refuses to format integers of more than 4300 digits
        return f"a very large {type(value).__name__}"


def exact(value: float) -> str:
    """Return a number as short as it can be without being another one."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def number_text(value: float) -> str:
    """Return a number with four significant digits; from 1000 on all digits before the point, without an exponent."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def size_text(size: float) -> str:
    """Return a number of bytes in a binary unit, such as `643 MiB` or `1.5 GiB`."""
    units = iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while abs(size) >= 1024 and (larger := next(units, None)):
        size, unit = size / 1024, larger
    return f"{size:,.1f}".removesuffix(".0") + f" {unit}" if abs(size) < 100 else f"{size:,.0f} {unit}"


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, such as `1 run` or `2,000 runs`."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


_NEAR = 3 / 4
"""Similarity (2 x common letters / letters of both) from which a name is a misspelling of another."""
_NEAR_SHORT = 2 / 3
"""The same for names of three letters, of which a wrong or swapped one leaves two."""


def nearest(name: object, known: Iterable[str]) -> str:
    """Return ` (did you mean 'NAME'?)` for the known name that it begins with, else the most similar one, or an empty string.

    A name that is known elsewhere, such as to another method, has none.
    """
    text, names = clip(str(name)), list(known)
    if text in names:
        return ""
    longer = [one for one in names if text.startswith(f"{one}_")]
    cutoff = _NEAR if len(text) > 3 else _NEAR_SHORT
    near = [max(longer, key=len)] if longer else get_close_matches(text, names, n=1, cutoff=cutoff)
    return f" (did you mean {near[0]!r}?)" if near else ""


CHOICES = frozenset({"literal_error", "enum"})
"""Types of errors that `explain` answers with all valid values."""


_EXPLAINED = 3


def list_names(names: Sequence[str], most: int = 40) -> str:
    """Return names with commas, at most so many of them and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def explain(
    error: ValidationError,
    root: str,
    known: Iterable[str] = (),
    *,
    verbatim: bool = False,
    without: Container[tuple[int | str, ...]] = (),
) -> str:
    """Format a pydantic `ValidationError` in one sentence: the first three errors with path, value and remedy.

    Further errors are named by their path, at most 40 of them.

    Args:
        error: The validation error.
        root: Name of the whole value in the message.
        known: Field names, nested ones with dots. The most similar is suggested for an unknown field.
        verbatim: Keep pydantic's words about a value: observations of an environment stay as its version had them.
        without: Paths of errors to leave out.
    """
    found = error.errors(include_url=False)
    found = found if verbatim else _of_unions(found)
    # pydantic counts only valid members of a list, so `too_short` next to an invalid member is not a second error.
    faults = [
        fault
        for fault in found
        if fault["loc"] not in without
        and (fault["type"] != "too_short" or not any(_lies_in(other["loc"], fault["loc"]) for other in found))
    ]
    parts = []
    for fault in faults[:_EXPLAINED]:
        path = _path(root, fault["loc"])
        if fault["type"] == "extra_forbidden":
            elsewhere = " or put it under `extra`" if root == "trajectory" else ""
            near = _near_field(fault["loc"], list(known))
            parts.append(f"{path} is not a known field{near}; {'rename' if near else 'remove'} it{elsewhere}")
        elif fault["type"] == "missing":
            parts.append(f"{path} is required")
        elif fault["type"] == "model_type":  # pydantic names the class
            parts.append(f"{path}: expected an object, got {shown(fault.get('input'))}")
        elif verbatim:
            parts.append(f"{path}: {fault['msg']} (got {shown(fault.get('input'))})")
        elif isinstance(cause := fault.get("ctx", {}).get("error"), QuintainError):
            named = f"{fault['loc'][-1]}: " if fault["loc"] else ""
            parts.append(f"{path}: {cause.message.removeprefix(named)}")
        elif fault["type"] in CHOICES:
            valid = literal_eval(f"[{fault['ctx']['expected'].replace(' or ', ', ')}]")  # pydantic joins their reprs
            near = nearest(fault["input"], map(str, valid)) if isinstance(fault["input"], str) else ""
            parts.append(f"{path}: expected one of {', '.join(map(str, valid))}, got {shown(fault['input'])}{near}")
        elif fault.get("ctx", {}).get("pattern") == NAME_PATTERN:
            form = (
                "a name of 1 to 100 letters from a to z, digits, dots, dashes and underscores, a letter or digit first"
            )
            parts.append(f"{path}: expected {form}, got {shown(fault['input'])}")
        else:
            parts.append(f"{path}: {_expectation(fault['msg'], shown(fault.get('input')))}")
    if more := [_path(root, fault["loc"]) for fault in faults[_EXPLAINED:]]:
        parts.append(f"and {len(more):,} more: {list_names(more)}")
    return "; ".join(parts)


_TYPES = {
    "string_type": ("str", "a string"),
    "dict_type": ("dict", "an object"),
    "list_type": ("list", "a list"),
    "int_type": ("int", "an integer"),
}
"""Type of a fault -> how pydantic names the branch of a union that asked for it, and what it asked for."""


def _of_unions(faults: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Return the faults with those of a value that has none of several types as one, at the place of the value."""
    asked: dict[tuple[int | str, ...], list[str]] = {}
    places = []
    for fault in faults:
        branch = str(fault["loc"][-1]).partition("[")[0] if fault["loc"] else ""
        name, noun = _TYPES.get(fault["type"], ("", ""))
        places.append(fault["loc"][:-1] if name and name == branch else fault["loc"])
        if name and name == branch:
            asked.setdefault(places[-1], []).append(noun)
    joined: dict[tuple[int | str, ...], ErrorDetails] = {}
    for place, fault in zip(places, faults, strict=True):
        if len(nouns := asked.get(place, ())) < 2 or place == fault["loc"]:
            joined[fault["loc"]] = fault
        else:
            text = f"expected {' or '.join(nouns)}, got {shown(fault['input'])}"
            joined[place] = {**fault, "loc": place, "type": "union", "msg": text}
    return list(joined.values())


def _near_field(place: tuple[int | str, ...], known: Sequence[str]) -> str:
    """Return the suggestion for an unknown field: the most similar of the fields beside it, else of all."""
    *parents, leaf = (str(part) for part in place if not isinstance(part, int))
    beside = [name.split(".")[-1] for name in known if name.split(".")[:-1] == parents]
    if near := nearest(leaf, beside):
        return near.replace("'", f"'{'.'.join([*parents, ''])}", 1)
    return nearest(leaf, known)


_VERBS = {"be": "", "have": "with", "match": "that matches"}
"""Verbs of pydantic's messages (`String should match pattern ...`) -> the same after a noun."""


def _expectation(message: str, got: str) -> str:
    """Return pydantic's message in the form of our errors, where it names an expectation."""
    message = message.removeprefix("Value error, ")
    listed = message.replace("Tuple", "List").replace("tuple", "list")  # callers write JSON
    subject, found, rest = listed.partition(" should ")
    bound, _, actual = rest.partition(" after validation, not ")
    verb, _, expected = bound.partition(" ")
    if not found or " " in subject or verb not in _VERBS:
        return message if message.startswith("expected ") else f"{message} (got {got})"
    if verb == "be":
        article, valid, noun = expected.partition("valid ")  # "a valid number, unable to parse string as a number"
        if valid and article == "a ":
            noun = noun.partition(",")[0].replace("datetime or date", "date, such as 2026-11-01, or time")
            return f"expected {'an' if noun[:1] in 'aeiou' else 'a'} {noun}, got {got}"
        value = "a value " if expected.startswith(("greater", "less")) else ""
        return f"expected {value}{expected}, got {got}"
    return f"expected a {subject.lower()} {_VERBS[verb]} {expected}, got {actual or got}"


def _path(root: str, place: tuple[int | str, ...]) -> str:
    return root + "".join(f"[{part}]" if isinstance(part, int) else f".{clip(part)}" for part in place)


def valid_fields(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the fields of the record in which the first unknown field was found, or an empty string."""
    found = error.errors(include_url=False, include_context=False)
    place = next((fault["loc"] for fault in found if fault["type"] == "extra_forbidden"), None)
    if place is None:
        return ""
    for name in place[:-1]:
        nested = _records_in(model.model_fields[name].annotation) if name in model.model_fields else []
        if len(nested) != 1:
            return ""
        model = nested[0]
    return ", ".join(model.model_fields)


def _records_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [record for part in get_args(annotation) for record in _records_in(part)]


def _lies_in(place: tuple[int | str, ...], outer: tuple[int | str, ...]) -> bool:
    return len(place) > len(outer) and place[: len(outer)] == outer
