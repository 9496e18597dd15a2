"""The common shape of every record: frozen, strict about names, finite numbers only."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError


class Record(BaseModel):
    """A frozen model that refuses fields it does not know and numbers that JSON cannot hold."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="null")


def _in_utc(value: datetime) -> datetime:
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)


Instant = Annotated[datetime, AfterValidator(_in_utc)]
"""A moment in UTC, ISO 8601 in JSON; a moment without a zone is taken as UTC."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""A name that users give: it can become a file name, so letters, digits, dot, underscore and hyphen only."""


def explain(error: ValidationError, root: str) -> str:
    """A pydantic `ValidationError` as one sentence of ours: the first three faults with path, value and remedy."""
    parts = []
    for fault in error.errors(include_url=False, include_context=False)[:3]:
        path = root + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in fault["loc"])
        seen = repr(fault.get("input"))
        seen = seen if len(seen) <= 60 else f"{seen[:57]}..."
        if fault["type"] == "extra_forbidden":
            elsewhere = " or put it under `extra`" if root == "trajectory" else ""
            parts.append(f"{path} is not a known field; remove it{elsewhere}")
        elif fault["type"] == "missing":
            parts.append(f"{path} is required")
        else:
            parts.append(f"{path}: {fault['msg']} (got {seen})")
    more = error.error_count() - len(parts)
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")
