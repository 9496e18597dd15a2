"""Rows of task files: users' own tasks, and those of SWE-bench, GSM8K, verl and exported benchmarks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from string import ascii_uppercase
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from quintain.checkers.quantities import quantity
from quintain.errors import InvalidInput
from quintain.importers.files.tables import with_small_names
from quintain.records.trajectory import Task
from quintain.records.wording import clip, shown

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("held_out", "held-out", "test", "validation", "valid", "val", "dev", "eval"), "held_out"),
}
_CHECKED_BY = ("repo", "base_commit", "test_command", "checker", "answer")
_SOLUTION_COLUMNS = frozenset({"patch", "hints_text"})
"""Columns of SWE-bench that give the solution away; tasks do not keep them."""
_EASY_LINES, _MEDIUM_LINES = 10, 50
ASKED = ("question", "problem", "query")
"""Columns of questions, beside `prompt`."""


class _Row(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    id: Annotated[str, Field(min_length=1, max_length=500)]
    prompt: str = ""
    type: str | None = None
    difficulty: str | None = None
    repo: str | None = None
    base_commit: str | None = None
    test_command: str | list[str] | None = None
    checker: dict[str, JsonValue] | str | None = None
    answer: JsonValue = None
    split: str | None = None
    environment: str | None = None
    metadata: dict[str, JsonValue] = {}


def task_of(value: Any) -> Task:
    """Return the task of a row, or of a prompt alone; unknown columns become metadata.

    Raises:
        InvalidInput: not an object, an unknown split, or neither id nor prompt.
        ValidationError: a field of a wrong type.
    """
    value = {"prompt": value} if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise InvalidInput(f"expected a JSON object, got {shown(value)}")
    row = _Row.model_validate(_native(with_small_names(value)))
    split = row.split if row.split is not None else row.metadata.get("split")
    if split is not None and _SPLITS.get(str(split).strip().lower()) is None:
        raise InvalidInput(f"expected split to be train or held_out (or test, validation), got {shown(split)}")
    checked_by = {name: value for name in _CHECKED_BY if (value := getattr(row, name)) is not None}
    metadata = {**(row.model_extra or {}), **row.metadata, **checked_by}
    metadata.pop("split", None)
    return Task(
        id=row.id,
        prompt=row.prompt,
        type=row.type,
        difficulty=row.difficulty,
        environment=row.environment,
        metadata=metadata if split is None else {**metadata, "split": _SPLITS[str(split).strip().lower()]},
    )


def _native(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with Quintain's field names."""
    if isinstance(row.get("task"), dict) and "prompt" not in row:  # an exported benchmark
        row = _benchmark(row)
    if "instance_id" in row and "problem_statement" in row:
        return _swe_bench(row)
    fields = dict(row)
    if isinstance(row.get("reward_model"), dict):  # of verl
        fields["ground_truth"] = fields.pop("reward_model").get("ground_truth")
    for name in ("ground_truth", "answerKey"):
        if name in fields:
            fields.setdefault("answer", fields.pop(name))
    asked = next((name for name in ASKED if name in row), None)
    if asked is not None and ("prompt" not in row or "ground_truth" in row):  # there `prompt` is the templated question
        return _question(fields, asked)
    if isinstance(row.get("prompt"), list):
        fields["prompt"] = _asked_by_user(row["prompt"])
    for ours, theirs in (("id", "task_id"), ("prompt", "description"), ("prompt", "instruction")):
        if ours not in fields and theirs in fields:
            fields[ours] = fields.pop(theirs)
    return _identified(fields)


def _benchmark(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task of an exported benchmark, with the references of its best run as metadata."""
    task = dict(row["task"])
    known = {name: row[name] for name in ("target_tools", "plan") if row.get(name)}
    best = row["references"][0] if isinstance(row.get("references"), list) and row["references"] else None
    if isinstance(best, dict) and best.get("success") is True and best.get("steps"):
        known["reference_steps"] = best["steps"]
    metadata = task.get("metadata")
    task["metadata"] = known | metadata if isinstance(metadata, dict) else known
    return task


def _swe_bench(row: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in row.items() if name not in _SOLUTION_COLUMNS}
    for name in ("FAIL_TO_PASS", "PASS_TO_PASS"):
        if name in fields:
            fields[name] = _tests(name, fields[name])
    fields["id"], fields["prompt"] = fields.pop("instance_id"), fields.pop("problem_statement")
    if "version" in fields:
        fields["repo_version"] = fields.pop("version")
    fields.setdefault("type", "bug_fix")
    if "difficulty" in fields:  # SWE-bench Verified: estimated time for a person
        fields["time_estimate"] = fields.pop("difficulty")
    if isinstance(row.get("patch"), str):
        fields["difficulty"] = _patch_difficulty(row["patch"])
    return _identified(fields)


def _tests(name: str, value: Any) -> list[str]:
    """Return test names; SWE-bench stores the list as JSON text."""
    try:
        tests = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        tests = None
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise InvalidInput(f"expected {name} to be a list of test names, or that list as JSON text, got {shown(value)}")
    return tests


def _patch_difficulty(patch: str) -> str:
    """Return a difficulty by the number of lines of the reference patch."""
    lines = len(patch.splitlines())
    return "easy" if lines < _EASY_LINES else "medium" if lines < _MEDIUM_LINES else "hard"


def _question(fields: dict[str, Any], asked: str) -> dict[str, Any]:
    """Return the fields of a question; in GSM8K its answer follows `####` at the end of a worked solution."""
    fields["prompt"] = fields.pop(asked)
    if isinstance(answer := fields.get("answer"), str) and "####" in answer:
        solution, _, final = answer.rpartition("####")
        if not final.strip():
            raise InvalidInput("expected a final answer after `####`, got nothing")
        fields["answer"] = final.strip()
        if steps := solution.count("<<"):
            fields["n_steps"] = steps
    return _identified(fields)


def _with_choices(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with `choices` in the prompt, and the right one by its letter or its text.

    MMLU has a list and the index of the right one, ARC `{text, label}` and the label.
    """
    choices, prompt, answer = fields.get("choices"), fields.get("prompt"), fields.get("answer")
    texts, labels = (choices.get("text"), choices.get("label")) if isinstance(choices, dict) else (choices, None)
    if not isinstance(texts, list) or not isinstance(prompt, str) or len(texts) > len(ascii_uppercase):
        return fields
    named = dict(zip(labels if isinstance(labels, list) else ascii_uppercase, texts, strict=False))
    right = next((label for label, text in named.items() if answer in (label, text)), None)
    if right is None and isinstance(answer, int) and 0 <= answer < len(named):
        right = list(named)[answer]
    fields["prompt"] = "\n".join([prompt, *(f"{label}: {text}" for label, text in named.items())])
    if right is not None:  # beside a number, words and letters are not compared
        either = [right, named[right]]
        fields["answer"] = either if all(quantity(str(one)) is None for one in either) else right
    return fields


def _asked_by_user(messages: list[Any]) -> str:
    """Return the messages of a prompt of TRL or verl as one text, with the system's instructions before the question."""
    chat = [(str(one.get("role")), str(one.get("content", ""))) for one in messages if isinstance(one, dict)]
    roles = [role for role, _ in chat]
    if not {"user"} <= set(roles) <= {"system", "user"}:
        raise InvalidInput(f"expected prompt to be text or a user's messages, got those of {clip(', '.join(roles))}")
    return "\n\n".join(text for _, text in chat)


def _identified(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the choices in the prompt, and with an id: the row's own, or one derived from its prompt."""
    fields = _with_choices(fields)
    task_id, prompt = fields.get("id"), fields.get("prompt", "")
    if isinstance(task_id, int) and not isinstance(task_id, bool):
        fields["id"] = str(task_id)
    elif task_id is None:
        if not isinstance(prompt, str) or not prompt.strip():
            raise InvalidInput(
                f"expected an id or a prompt, got the fields {clip(', '.join(map(str, fields)) or 'none')}"
            )
        fields["id"] = _id_of(prompt)
    return {name: value for name, value in fields.items() if value is not None}


def _id_of(prompt: str) -> str:
    return f"task-{hashlib.sha256(prompt.encode()).hexdigest()[:16]}"


def repeats(task: Task, first: Task) -> bool:
    """Return whether a row of the same id is the same task: equal, or asked and checked alike where its question is its id.

    Lists of questions number their rows, so that one repeated has another index beside it.
    """
    if task == first or task.id != _id_of(task.prompt):
        return task == first
    checked, checked_first = (
        {name: one.metadata[name] for name in (*_CHECKED_BY, "split") if name in one.metadata} for one in (task, first)
    )
    return checked == checked_first and not checked.keys() <= {"split"} and task.prompt == first.prompt
