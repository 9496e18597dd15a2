"""Convert ATIF (Agent Trajectory Interchange Format, Harbor's RFC 0001, 1.0 to 1.8) to a trajectory and back, lossless.

Fields that only one side defines are kept as an overlay (`json_overlay.py`): ATIF's under `extra.atif`, ours under
`extra.quintain`. A document that was read is written as an equal document, and the other way round.

Two things are normalized first. A null value equals a missing key, except inside arguments, tool definitions and
`extra`. Embedded subagents become runs of their own (`runs_of_document`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.importers.transcripts.atif_steps import (
    RESERVED,
    OnFault,
    ignore_fault,
    raise_fault,
    step_from_atif,
    step_to_atif,
    without_nulls,
)
from quintain.next_step import Hint, call
from quintain.records.trajectory import Trajectory, read_trajectory

VERSION = "ATIF-v1.7"
"""Version that is written; every ATIF-v1 version is read."""
MAX_DEPTH = 20
"""Levels of nested subagents."""

_VERSION = re.compile(r"ATIF-v1\.\d{1,3}")
_ID = re.compile(r"traj-[A-Za-z0-9_-]{1,60}")
_APART = ("steps", "subagent_trajectories")
Json = dict[str, Any]


class DocumentRun(NamedTuple):
    """One run of a document."""

    trajectory: Trajectory | InvalidInput
    """The run, or the error why it cannot be read."""
    name: str | None
    """Its `trajectory_id`."""
    parent: str | None
    """Name of the run that embeds it; None for the document's own run or an unnamed parent."""


def is_atif(document: Any) -> bool:
    """Whether a value declares itself an ATIF document."""
    version = document.get("schema_version") if isinstance(document, Mapping) else None
    return isinstance(version, str) and version.startswith("ATIF")


def read_atif(document: Any) -> Trajectory:
    """Parse the run of a document strictly.

    Raises:
        InvalidInput: no ATIF of version 1, a step that is malformed (named by its index), or embedded subagents.
    """
    if not is_atif(document) or not _VERSION.fullmatch(document["schema_version"]):
        found = document.get("schema_version") if isinstance(document, Mapping) else type(document).__name__
        raise InvalidInput(f"expected an ATIF document with `schema_version` ATIF-v1.0 to ATIF-v1.8, got {found!r:.40}")
    if document.get("subagent_trajectories"):
        raise InvalidInput(
            Hint(
                "expected one run, got a document with `subagent_trajectories`; save it as a file and import it with ",
                call("import_trajectories", path=..., format="atif"),
                ", which stores each of them and links them",
            )
        )
    return _read(document, raise_fault)


def runs_of_document(document: Mapping[str, Any]) -> Iterator[DocumentRun]:
    """Yield all runs of a document leniently, parents before embedded runs."""
    stack: list[tuple[Mapping[str, Any], str | None, int]] = [(document, None, 0)]
    while stack:
        held, parent, depth = stack.pop()
        name = held.get("trajectory_id")
        name = name if isinstance(name, str) and name else None
        run: Trajectory | InvalidInput
        try:
            run = _read(held, ignore_fault)
        except InvalidInput as error:
            run = error
        yield DocumentRun(run, name, parent)
        embedded = held.get("subagent_trajectories")
        if isinstance(embedded, list) and depth < MAX_DEPTH:
            inner = [(each, name, depth + 1) for each in embedded if isinstance(each, Mapping)]
            stack.extend(reversed(inner))


def write_atif(run: Trajectory) -> Json:
    """Return the ATIF document of a run; reading it restores the run."""
    ours: Json = run.model_dump(mode="json", exclude_defaults=True)
    steps = [
        _written(step, partial(step_to_atif, index=i), partial(step_from_atif, index=i, fault=ignore_fault))
        for i, step in enumerate(ours.pop("steps"))
    ]
    head = _written(ours, _head_to_atif, partial(_head_from_atif, prompt=_prompt(steps)))
    extra = {"extra": head.pop("extra")} if "extra" in head else {}
    return {**head, "steps": steps, **extra}


def _read(document: Mapping[str, Any], fault: OnFault) -> Trajectory:
    written_steps = document.get("steps")
    if not isinstance(written_steps, list) or not written_steps:
        raise InvalidInput("expected `steps`, a list of at least one step")
    steps = []
    for i, step in enumerate(written_steps):
        if not isinstance(step, Mapping):
            raise InvalidInput(f"steps[{i}]: expected an object, got {type(step).__name__}")
        steps.append(_found(step, partial(step_to_atif, index=i), partial(step_from_atif, index=i, fault=fault)))
    head = {key: value for key, value in document.items() if key not in _APART}
    run = _found(head, _head_to_atif, partial(_head_from_atif, prompt=_prompt(written_steps)))
    return read_trajectory({**run, "steps": steps})


def _found(document: Mapping[str, Any], to_atif: Callable[[Json], Json], from_atif: Callable[[Json], Json]) -> Json:
    """Map ATIF's object to ours: the common fields, with ATIF-only fields in `extra.atif`, then our own overlay."""
    cleaned: Json = without_nulls(document)
    extra = cleaned.get("extra")
    only_ours = extra.get("quintain") if isinstance(extra, dict) else None
    if isinstance(only_ours, dict):
        rest = {key: value for key, value in cleaned.pop("extra").items() if key != "quintain"}
        cleaned |= {"extra": rest} if rest else {}
    found = from_atif(cleaned)
    if beyond := make_overlay(cleaned, to_atif(found)):
        found["extra"] = {**found.get("extra", {}), "atif": beyond}
    return apply_overlay(found, only_ours) if isinstance(only_ours, dict) else found


def _written(ours: Json, to_atif: Callable[[Json], Json], from_atif: Callable[[Json], Json]) -> Json:
    """Map our object to ATIF's; checked against the inverse `_found` so that nothing is lost."""
    written = to_atif(ours)
    beyond = ours.get("extra", {}).get("atif")
    if isinstance(beyond, dict):
        full = apply_overlay(written, beyond)
        # Data that was not read from ATIF is ours, under any name: it must not make a document malformed.
        if _found(full, to_atif, from_atif).get("extra", {}).get("atif") == beyond:
            written = full
    for only_ours in (make_overlay(ours, _found(written, to_atif, from_atif)), {WHOLE: ours}):
        document = written
        if only_ours:
            extra = written.get("extra")
            document = {**written, "extra": {**(extra if isinstance(extra, dict) else {}), "quintain": only_ours}}
        if _found(document, to_atif, from_atif) == ours:
            break
    return document


def _head_to_atif(run: Json) -> Json:
    """Map the fields outside the steps to ATIF."""
    written: Json = {"schema_version": VERSION}
    for ours, theirs in (("session_id", "session_id"), ("id", "trajectory_id")):
        if run.get(ours):
            written[theirs] = run[ours]
    agent = run.get("agent", {})
    written["agent"] = {"name": agent.get("name", "unknown"), "version": agent.get("version") or "unknown"}
    if agent.get("model"):
        written["agent"]["model_name"] = agent["model"]
    if run.get("tools"):
        written["agent"]["tool_definitions"] = run["tools"]
    if extra := {key: value for key, value in run.get("extra", {}).items() if key not in RESERVED}:
        written["extra"] = extra
    return written


def _head_from_atif(document: Json, prompt: str) -> Json:
    """Map the fields outside the steps from ATIF; the prompt is the first user message."""
    agent = document.get("agent")
    agent = agent if isinstance(agent, dict) else {}
    names = {"name": agent.get("name"), "version": agent.get("version"), "model": agent.get("model_name")}
    found: Json = {"source": {"format": "atif"}}
    if kept := {key: value for key, value in names.items() if isinstance(value, str) and value}:
        found["agent"] = kept
    if prompt:
        found["task"] = {"prompt": prompt}
    session_id, name, tools = (document.get("session_id"), document.get("trajectory_id"), agent.get("tool_definitions"))
    if isinstance(session_id, str) and session_id:
        found["session_id"] = session_id
    if isinstance(name, str) and _ID.fullmatch(name):
        found["id"] = name
    if isinstance(tools, list) and tools and all(isinstance(tool, dict) for tool in tools):
        found["tools"] = tools
    extra = document.get("extra")
    if isinstance(extra, dict) and (mine := {key: value for key, value in extra.items() if key not in RESERVED}):
        found["extra"] = mine
    return found


def _prompt(steps: list[Any]) -> str:
    """Return the first non-blank user message."""
    for step in steps:
        if isinstance(step, Mapping) and step.get("source") == "user":
            message = step.get("message")
            parts = message if isinstance(message, list) else []
            texts = [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
            prompt = message if isinstance(message, str) else "".join(texts)
            if prompt.strip():
                return prompt
    return ""


WHOLE = "="


def make_overlay(target: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return the overlay that turns `base` into `target`; empty if they are equal."""
    found = _difference(target, base)
    return found if apply_overlay(base, found) == target else {WHOLE: target}


def apply_overlay(base: dict[str, Any], overlay: dict[str, Any]) -> dict[str, Any]:
    """Return the base with the overlay applied; neither is modified."""
    if overlay.keys() == {WHOLE}:
        return dict(overlay[WHOLE]) if isinstance(overlay[WHOLE], dict) else base
    return _merged(base, overlay)  # type: ignore[no-any-return]


def _difference(target: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(base.keys() - target.keys())
    for key, value in target.items():
        if key not in base:
            found[key] = value
        elif not _equal(value, base[key]):
            found[key] = _deeper(value, base[key])
    return found


def _deeper(target: Any, base: Any) -> Any:
    if isinstance(target, dict) and isinstance(base, dict):
        return _difference(target, base)
    if isinstance(target, list) and isinstance(base, list) and len(target) == len(base):
        pairs = [(str(i), one, other) for i, (one, other) in enumerate(zip(target, base, strict=True))]
        if all(isinstance(one, dict) and isinstance(other, dict) for _, one, other in pairs):
            return {place: _difference(one, other) for place, one, other in pairs if not _equal(one, other)}
    return target


def _merged(base: Any, overlay: Any) -> Any:
    if isinstance(base, dict) and isinstance(overlay, dict):
        merged = dict(base)
        for key, value in overlay.items():
            if key not in base:
                merged[key] = value
            elif value is None:
                del merged[key]
            else:
                merged[key] = _merged(base[key], value)
        return merged
    if isinstance(base, list) and isinstance(overlay, dict):
        return [_merged(item, overlay.get(str(i), {})) if str(i) in overlay else item for i, item in enumerate(base)]
    return overlay


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
