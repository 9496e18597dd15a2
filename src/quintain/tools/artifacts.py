"""Artifacts at URLs for tools: read through the cache, and pushed by jobs, below the operator's prefixes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from quintain.artifacts.locations import HUB, allowed_destination, allowed_location, parse_location
from quintain.errors import InvalidInput, Unavailable
from quintain.next_step import Hint, call
from quintain.records.artifacts import FetchSpec
from quintain.records.record import shown
from quintain.tools.services import Services

IN_CALL_BYTES = 48 * 2**20
"""A larger artifact is downloaded by a job: a call should end within 20 s."""

PushTo = Annotated[str | None, Field(description="Also upload to a URL or hub:OWNER/NAME.")]


def local_copy(services: Services, url: str) -> Path:
    """Return the local copy of a file or folder at a URL, downloaded if it is small.

    Raises:
        InvalidInput, NotFound, Refused: As `allowed_location` and `transfers.fetch`.
        Unavailable: A job downloads it first (`fetching`); or as `transfers.fetch`.
    """
    from quintain.artifacts.transfers import TooLarge, fetch  # few calls name a URL

    location, cache = allowed_location(url, services.settings.artifacts), services.settings.artifacts_cache_dir
    try:
        return fetch(location.url, cache, limit_bytes=IN_CALL_BYTES)
    except TooLarge as large:
        job = services.jobs.start(FetchSpec(url=location.url, cache_dir=str(cache))).job
        raise Unavailable(
            Hint(
                f"expected at most {IN_CALL_BYTES // 2**20} MiB to download within a call, got {large.bytes / 2**20:,.0f} MiB at "
                f"{location.url}, which {job.id} downloads now; wait for it with ",
                call("get_job", job_id=job.id, until="done", wait_s=50),
                ", then make this call again",
            ),
            code="fetching",
        ) from None


def url_of(services: Services, reference: str) -> str:
    """Return an allowed URL in its normal form."""
    return allowed_location(reference, services.settings.artifacts).url


def mirror_of(services: Services, output_dir: str) -> str | None:
    """Return the URL of the copies of a training's checkpoints, by its unique output folder; None where the operator names none.

    Raises:
        InvalidInput: The operator's setting is not a URL.
    """
    url = services.settings.checkpoints
    if url is None:
        return None
    location = parse_location(url)
    if location is None or location.scheme == HUB:
        raise InvalidInput(
            f"expected a URL such as s3://bucket/checkpoints in QUINTAIN_CHECKPOINTS, got {shown(url)}; let the operator correct it",
            code="bad_setting",
        )
    return f"{location.url}/{Path(output_dir).name}"


def destination_of(services: Services, push_to: str | None) -> str | None:
    """Return where an export is pushed to; None where nowhere."""
    return None if push_to is None else allowed_destination(push_to, services.settings.artifacts).url
