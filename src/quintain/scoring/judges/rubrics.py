"""Rubrics: one a domain, two short ones, and those of users.

Names, criteria and weights of the domain rubrics are those of knowlyr-reward. Three differences: `non_redundancy` and
`info_utilization`, which knowlyr's rules measure, are left to our `rules` scorer, so that one thing is not counted twice;
every criterion has anchors of its own; and no criterion has a value where the judge gave none (knowlyr fills 0.5).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from quintain.errors import InvalidInput, NotFound
from quintain.records.documents import read_document
from quintain.records.judging import Criterion, Rubric
from quintain.records.profiles import DomainProfile
from quintain.records.record import explain, nearest, shown
from quintain.records.text import require_clean


def _criterion(name: str, weight: float, description: str, none: str, half: str, full: str) -> Criterion:
    return Criterion(name=name, weight=weight, description=description, anchors={"0": none, "0.5": half, "1": full})


_PROGRESS = _criterion(
    "goal_progress",
    0.30,
    "Do the steps bring the task closer to its goal, and does the run reach it?",
    "no progress, or away from the goal",
    "real progress, the goal not reached or not checked",
    "the goal is reached and the run shows that it is",
)
_CHOICE = _criterion(
    "tool_choice",
    0.20,
    "Is each tool the right one for what the step is for?",
    "mostly wrong, needless or unknown tools",
    "right tools with clear detours",
    "the right tool at nearly every step",
)
_PARAMETERS = _criterion(
    "param_correctness",
    0.20,
    "Are the arguments of the calls right and complete?",
    "mostly wrong, missing or made up",
    "usable, with corrections on the way",
    "right at once, taken from what the run had seen",
)
_ACTIONABLE = _criterion(
    "actionability",
    0.15,
    "Can the reader act on it?",
    "nothing to act on",
    "a direction, the steps left open",
    "clear next steps that can be carried out",
)


def _tool_work(name: str, description: str) -> Rubric:
    return Rubric(name=name, description=description, criteria=(_PROGRESS, _CHOICE, _PARAMETERS))


_CODING = _tool_work("coding", "Work on code with tools: reading, searching, editing, running.")
_CONVERSATION = Rubric(
    name="conversation",
    description="A talk with a user.",
    criteria=(
        _criterion(
            "relevance",
            0.25,
            "Do the answers meet what was asked?",
            "beside the question",
            "partly, or with much else",
            "exactly what was asked",
        ),
        _criterion(
            "completeness",
            0.20,
            "Is everything answered that was asked?",
            "most is left open",
            "the main point, not the rest",
            "every part",
        ),
        _criterion(
            "clarity",
            0.20,
            "Is it easy to follow?",
            "cannot be followed",
            "with effort",
            "at first reading",
        ),
        _ACTIONABLE,
        _criterion(
            "tone_fit",
            0.10,
            "Does the tone fit user and occasion?",
            "rude, or out of place",
            "stiff or uneven",
            "fits throughout",
        ),
    ),
)
_ENGINEERING = Rubric(
    name="engineering",
    description="Technical work: analysis, design, operation.",
    criteria=(
        _criterion(
            "technical_accuracy",
            0.30,
            "Is what is said and done technically right?",
            "wrong in what matters",
            "right with gaps or slips",
            "right, and supported by what the run saw",
        ),
        _criterion(
            "tool_usage",
            0.20,
            "Are tools used well?",
            "wrong or needless calls",
            "useful calls with detours",
            "each call serves the work",
        ),
        _criterion(
            "thoroughness",
            0.20,
            "Is the matter gone into far enough, and the result checked?",
            "a surface look",
            "the main path only",
            "edge cases and a check too",
        ),
    ),
)
_ADVISORY = Rubric(
    name="advisory",
    description="Advice on a decision.",
    criteria=(
        _criterion(
            "analysis_depth",
            0.25,
            "How deep is the analysis?",
            "restates the question",
            "names the factors",
            "weighs causes, options and trade-offs",
        ),
        _criterion(
            "recommendation_quality",
            0.25,
            "How good is the recommendation?",
            "none, or harmful",
            "sensible and general",
            "specific, reasoned, fits the case",
        ),
        _criterion(
            "evidence_based",
            0.20,
            "Does it rest on evidence?",
            "bare claims",
            "some evidence",
            "each claim that matters is supported",
        ),
        _criterion(
            "risk_awareness",
            0.15,
            "Are risks and limits seen?",
            "ignored",
            "named",
            "named, weighed, with a way to handle them",
        ),
        _criterion(
            "stakeholder_consideration",
            0.15,
            "Are those who are affected considered?",
            "no one",
            "some",
            "all who matter, with their interests",
        ),
    ),
)
_DISCUSSION = Rubric(
    name="discussion",
    description="A discussion among several.",
    criteria=(
        _criterion(
            "substantive_contribution",
            0.25,
            "Do the contributions add substance?",
            "filler",
            "known points",
            "new facts, reasons or views",
        ),
        _criterion(
            "engagement_quality",
            0.25,
            "Do they take up what others said?",
            "past the others",
            "in passing",
            "closely and fairly",
        ),
        _criterion(
            "professional_depth",
            0.20,
            "How much command of the subject shows?",
            "none",
            "general knowledge",
            "expert command",
        ),
        _criterion(
            "constructive_challenge",
            0.15,
            "Are weak points questioned in a helpful way?",
            "never, or hostile",
            "questions without alternatives",
            "questions that move the matter on",
        ),
        _ACTIONABLE,
    ),
)
_DEFAULT = Rubric(
    name="default",
    description="Short, for any work: was the task done, and was it done well?",
    criteria=(
        _criterion(
            "task_completion",
            0.6,
            "Is what the task asked for done?",
            "not done, or something else was done",
            "done in part, or claimed but not shown",
            "done, and the run itself shows it",
        ),
        _criterion(
            "process",
            0.4,
            "Was the way there sound?",
            "aimless, repeated or harmful steps",
            "workable, with detours or luck",
            "each step useful, errors noticed and mended",
        ),
    ),
)
_STEPS = Rubric(
    name="steps",
    description="For single steps: what a process reward model learns.",
    criteria=(
        _criterion(
            "relevance",
            1.0,
            "Does the step serve the task?",
            "unrelated to it",
            "loosely related",
            "needed for it",
        ),
        _criterion(
            "correctness",
            1.0,
            "Is the step right: tool, arguments, reasoning?",
            "wrong",
            "right in part",
            "right",
        ),
        _criterion(
            "progress",
            1.0,
            "Is the task nearer to its goal after the step?",
            "further away, or nothing gained",
            "a little nearer",
            "clearly nearer, or done",
        ),
    ),
)

RUBRICS: dict[str, Rubric] = {
    rubric.name: rubric
    for rubric in (
        _DEFAULT,
        _STEPS,
        _CODING,
        _CONVERSATION,
        _ENGINEERING,
        _ADVISORY,
        _DISCUSSION,
        _tool_work("browser", "Work in a web browser."),
        _tool_work("crew", "Several agents at work together."),
        _tool_work("generic", "Any work with tools."),
    )
}
"""Name -> rubric: `default` and `steps`, and one for each domain profile."""


_UNNAMED = "custom"
"""Name of a rubric without one, before the start of its content's hash: it keeps verdicts by two such rubrics apart."""


def rubric(spec: str | Mapping[str, Any] | Rubric | None = None, profile: DomainProfile | None = None) -> Rubric:
    """The rubric that is meant.

    Args:
        spec: A name of `RUBRICS`; a mapping with `name` and `criteria` (each `name`, `description`, and if wanted `weight`
            and `anchors`; or shorter, criterion -> description); or None.
        profile: Its rubric is the one of None; without a profile that is `default`.

    Raises:
        NotFound: there is no rubric of this name; lists those that are.
        InvalidInput: a mapping that is no rubric; names the field, what is valid, and what to write.
    """
    if isinstance(spec, Rubric):
        return spec
    if spec is None:
        spec = (profile.rubric or profile.name) if profile is not None else _DEFAULT.name
        if profile is not None and profile.rubric is None and spec not in RUBRICS:
            spec = _DEFAULT.name
    if isinstance(spec, str):
        if spec not in RUBRICS:
            raise NotFound(
                f"no rubric {shown(spec)}{nearest(spec, RUBRICS)}; there are {', '.join(RUBRICS)}, or give your own as "
                '{"name": ..., "criteria": [{"name": ..., "description": ..., "weight": 1}]}'
            )
        return RUBRICS[spec]
    return _read(spec, "rubric")


def read_rubric_file(path: Path) -> Rubric:
    """A rubric of the user's, from a JSON or YAML file; free paths are the caller's to permit.

    Raises:
        NotFound: there is no such file.
        InvalidInput: the file cannot be read, or is not a rubric.
    """
    return _read(read_document(path), path.name)


def _read(value: object, where: str) -> Rubric:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{where} is {shown(value)}; it must be a name or an object with `name` and `criteria`")
    document = dict(value)
    require_clean(document, where)
    criteria = document.get("criteria")
    if isinstance(criteria, Mapping):  # criterion -> description, or -> its fields
        document["criteria"] = [
            {"name": name, **(given if isinstance(given, Mapping) else {"description": given})}
            for name, given in criteria.items()
        ]
    try:
        if "name" in document:
            return Rubric.model_validate(document)
        own = Rubric.model_validate({**document, "name": _UNNAMED})
        content = hashlib.sha256(own.model_dump_json().encode()).hexdigest()
        return own.model_copy(update={"name": f"{_UNNAMED}-{content[:8]}"})
    except ValidationError as error:
        raise InvalidInput(
            f"{explain(error, where, (*Rubric.model_fields, *(f'criteria.{f}' for f in Criterion.model_fields)))}; a rubric is "
            '{"name": ..., "criteria": [{"name": ..., "description": ..., "weight": 1, "anchors": {"0": ..., "1": ...}}]}'
        ) from None
