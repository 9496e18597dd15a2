"""Rubrics by name: the built-in ones, and those that earlier batches and judging jobs used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from quintain.records.labels.judging import Rubric
from quintain.records.labels.profiles import DomainProfile
from quintain.scoring.judges.rubrics import RUBRICS, rubric, unknown_rubric
from quintain.tools.services import Services

_LOOKED_AT = 200
"""Newest batches, and newest jobs of each kind, in which a name is looked up."""


def find_rubric(
    services: Services, spec: str | Mapping[str, Any] | Rubric | None, profile: DomainProfile | None = None
) -> Rubric:
    """Return the rubric that is meant; a name is that of a built-in rubric, or of the newest one used under it.

    Raises:
        NotFound: No rubric of this name is built in or was used.
        InvalidInput: A mapping that is no rubric.
    """
    if not isinstance(spec, str) or spec in RUBRICS:
        return rubric(spec, profile)
    own: dict[str, Rubric] = {}
    for used in used_rubrics(services):
        own.setdefault(used.name, used)
    if spec in own:
        return own[spec]
    raise unknown_rubric(spec, [*RUBRICS, *(name for name in own if name not in RUBRICS)])


def name_shared(services: Services, chosen: Rubric) -> str:
    """Return a sentence where the newest rubric used under this name had other criteria; else an empty text."""
    earlier = next((used for used in used_rubrics(services) if used.name == chosen.name), chosen)
    if earlier.criteria == chosen.criteria:
        return ""
    return (
        f"The rubric {chosen.name} was used with other criteria ({', '.join(one.name for one in earlier.criteria)}), and both kinds "
        "of answers count as values of this name; give it another name to keep them apart."
    )


def used_rubrics(services: Services) -> Iterator[Rubric]:
    """Yield the rubrics of batches, then those of jobs, the newest first."""
    yield from (batch.rubric for batch in services.store.judging.newest(_LOOKED_AT))
    pages = (services.store.jobs.page(kind=kind, limit=_LOOKED_AT) for kind in ("judge", "score"))
    for job in chain.from_iterable(page.items for page in pages):
        if (used := getattr(job.spec, "rubric", None)) is not None:
            yield used
