"""Rubrics: one a domain and two short ones (`data/rubrics.yaml`), and those of users.

Names, criteria and weights of the domain rubrics are those of knowlyr-reward. Three differences: `non_redundancy` and
`info_utilization`, which knowlyr's rules measure, are left to our `rules` scorer, so that one thing is not counted twice;
every criterion has its own anchors; and no criterion has a value where the judge gave none (knowlyr fills 0.5).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from quintain.errors import InvalidInput, NotFound
from quintain.records.documents import read_document
from quintain.records.labels.judging import Criterion, Rubric
from quintain.records.labels.profiles import DomainProfile
from quintain.records.record import Name
from quintain.records.text import require_clean
from quintain.records.wording import explain, nearest, shown

_NAME: TypeAdapter[str] = TypeAdapter(Name)
_DEFAULT, _UNNAMED = "default", "custom"
"""The rubric where none is named; the name of a rubric without one, before the start of its content's hash."""


def rubric(spec: str | Mapping[str, Any] | Rubric | None = None, profile: DomainProfile | None = None) -> Rubric:
    """The rubric that is meant.

    Args:
        spec: A name of `RUBRICS`; a mapping with `name` and `criteria` (each `name`, `description`, and if wanted `weight`
            and `anchors`; or shorter, a text, or criterion -> description); or None.
        profile: Its rubric is the one of None; without a profile that is `default`.

    Raises:
        NotFound: there is no rubric of this name; lists those that are.
        InvalidInput: a mapping that is not a rubric; names the field, what is valid, and what to write.
    """
    if isinstance(spec, Rubric):
        return spec
    if spec is None:
        spec = (profile.rubric or profile.name) if profile is not None else _DEFAULT
        if profile is not None and profile.rubric is None and spec not in RUBRICS:
            spec = _DEFAULT
    if isinstance(spec, str):
        if spec not in RUBRICS:
            raise unknown_rubric(spec, RUBRICS)
        return RUBRICS[spec]
    return _read(spec, "rubric")


def unknown_rubric(name: str, known: Collection[str]) -> NotFound:
    """Return the error of a name that no rubric has; it lists the known ones."""
    return NotFound(
        f"no rubric {shown(name)}{nearest(name, known)}; there are {', '.join(known)}, or give your own as "
        '{"name": ..., "criteria": [{"name": ..., "description": ..., "weight": 1}]}'
    )


def read_rubric_file(path: Path) -> Rubric:
    """A rubric of the user's, from a JSON or YAML file; free paths are the caller's to permit.

    Raises:
        NotFound: there is no such file.
        InvalidInput: the file cannot be read, or is not a rubric.
    """
    return _read(read_document(path), path.name)


def _read(value: object, where: str) -> Rubric:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"expected {where} to be a name or an object with `name` and `criteria`, got {shown(value)}")
    document = dict(value)
    require_clean(document, where)
    criteria = document.get("criteria")
    if isinstance(criteria, Mapping):  # criterion -> description, or -> its fields
        document["criteria"] = [
            {"name": name, **(criterion if isinstance(criterion, Mapping) else {"description": criterion})}
            for name, criterion in criteria.items()
        ]
    elif isinstance(criteria, list):
        document["criteria"] = [_criterion(criterion, place) for place, criterion in enumerate(criteria, 1)]
    try:
        if "name" in document:
            return Rubric.model_validate(document)
        own = Rubric.model_validate({**document, "name": _UNNAMED})
        content = hashlib.sha256(own.model_dump_json().encode()).hexdigest()
        return own.model_copy(update={"name": f"{_UNNAMED}-{content[:8]}"})
    except ValidationError as error:
        raise InvalidInput(
            f"{explain(error, where, (*Rubric.model_fields, *(f'criteria.{f}' for f in Criterion.model_fields)))}; a rubric is "
            '{"name": ..., "criteria": [{"name": ..., "description": ..., "weight": 1, "anchors": {"0": ..., "1": ...}}]}; '
            "a criterion can be a text alone"
        ) from None


def _criterion(criterion: object, place: int) -> object:
    """Return a criterion that is given as a text alone as its fields: named by the text if it can be a name, else by its place."""
    if not isinstance(criterion, str):
        return criterion
    try:
        return {"name": _NAME.validate_python(criterion.strip().replace(" ", "_")), "description": criterion}
    except ValidationError:
        return {"name": f"criterion_{place}", "description": criterion}


def _built_in() -> Iterator[Rubric]:
    document = read_document(Path(__file__).parent / "data" / "rubrics.yaml")
    for name, rubric in document.items():
        criteria = document[rubric["same_as"]]["criteria"] if "same_as" in rubric else rubric["criteria"]
        yield _read({"name": name, "description": rubric["description"], "criteria": criteria}, name)


RUBRICS: dict[str, Rubric] = {rubric.name: rubric for rubric in _built_in()}
"""Name -> rubric: `default` and `steps`, and one for each domain profile."""
