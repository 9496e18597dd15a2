"""Base class and shared types of records: frozen, unknown fields forbidden, finite numbers only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from quintain.errors import Conflict
from quintain.records.wording import NAME_PATTERN, explain, list_names


class Record(BaseModel):
    """A frozen model that rejects unknown fields and numbers that JSON cannot represent."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="null", defer_build=True
    )

    @classmethod
    def from_stored(cls, document: str | bytes, name: str | None = None) -> Self:
        """Read the JSON of a stored record, which an error calls by its name.

        Raises:
            Conflict: It is damaged, or a newer version wrote it (`record_unreadable`).
        """
        try:
            return cls.model_validate_json(document)
        except ValidationError as error:
            raise unreadable(name or cls.__name__.lower(), error) from error


def unreadable(what: str, error: ValueError) -> Conflict:
    """Return the error of a stored record that this version cannot read."""
    reason = explain(error, what) if isinstance(error, ValidationError) else str(error)
    return Conflict(
        f"expected a stored {what} that this version can read, got another: {reason}; upgrade this installation if a newer one "
        "wrote it, else restore a backup",
        code="record_unreadable",
    )


def unreadable_records(ids: Sequence[str]) -> Conflict:
    """Return the error of stored records that this version cannot read."""
    return Conflict(f"expected readable records, got {left_out(ids)}", code="record_unreadable")


def left_out(ids: Sequence[str]) -> str:
    """Name stored records that this version cannot read, with the remedy."""
    named = f"{list_names(ids, 10)}, which this version cannot read"
    return f"{named}; upgrade this installation if a newer one wrote them, else restore a backup"


STORED = {"stored": True}
"""Validation context of what an earlier version may have stored: settings that are refused together now are read all the same."""

_FIELD_SETS: dict[frozenset[str], set[str]] = {}


def share_field_sets(records: Iterable[Record]) -> None:
    """Let records with the same given fields share the set of their names, a third of the memory of a small record.

    Records are frozen, so pydantic adds to such a set only in a copy, which gets its own.
    """
    for record in records:
        names = record.model_fields_set
        object.__setattr__(record, "__pydantic_fields_set__", _FIELD_SETS.setdefault(frozenset(names), names))


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is UTC:
        return value
    try:
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:  # pydantic would not catch it
        raise ValueError("expected a time in the years 1 to 9999 UTC") from None


Instant = Annotated[datetime, AfterValidator(_in_utc)]
"""A time in UTC, ISO 8601 in JSON. A time without a zone is interpreted as UTC."""

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
"""A name given by users. It can become part of a file name, hence letters, digits, `.`, `_` and `-` only."""


def require_number(value: Any) -> Any:
    """Reject booleans as numbers, which Python and pydantic accept as 0 and 1.

    Raises:
        PydanticCustomError: The value is a boolean.
    """
    if isinstance(value, bool):
        raise PydanticCustomError("switch", "expected a number, got a boolean")
    return value


Seed = Annotated[int, Field(ge=0, le=2**31 - 1), BeforeValidator(require_number)]
"""A seed within the range of every random generator in use."""
