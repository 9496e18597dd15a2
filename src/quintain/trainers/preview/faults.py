"""Faults in the content of runs, for any method: tools, arguments, observations, lost text."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quintain.records.protocols import tool_function
from quintain.records.trajectory import Action, Step, Trajectory, text_of
from quintain.records.wording import shown
from quintain.trainers.preview.row import Member, turns_of
from quintain.trainers.rendering.renderer import Renderer

_EXAMPLES = 3
"""Maximum number of rows in a finding."""

_NULL_IS_A_VALUE = frozenset({"default", "const", "example"})
"""Keywords of JSON schema whose value may be null."""

_THINK = re.compile(r"</?think(?:ing)?>")
_ENDS = 40
"""Characters at each end of a text by which it is looked for in what was written."""


@dataclass
class Finding:
    """Count of a fault, with its number of rows and the first of them."""

    times: int = 0
    rows: int = 0
    first_rows: list[int] = field(default_factory=list)
    example: str = ""
    last_row: int = 0

    def add(self, line: int, times: int = 1, example: str = "") -> None:
        """Count a fault in a row; `line` is its place, from 1, and never decreases."""
        self.times += times
        self.example = self.example or example
        if line != self.last_row:
            self.rows += 1
            self.last_row = line
            self.first_rows += [line] if len(self.first_rows) < _EXAMPLES else []

    def where(self) -> str:
        """`2 rows (line 3, 5)`."""
        more = ", ..." if self.rows > len(self.first_rows) else ""
        return f"{self.rows} row{'s' * (self.rows != 1)} (line {', '.join(map(str, self.first_rows))}{more})"


@dataclass
class Faults:
    """Findings over many runs."""

    renderer: Renderer
    found: defaultdict[str, Finding] = field(default_factory=lambda: defaultdict(Finding))
    defined: Counter[str] = field(default_factory=Counter)
    """Tool -> runs that have its schema."""
    called: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    observations: int = 0
    _null: dict[tuple[str, str], Finding] = field(default_factory=dict)
    """(tool without a schema, key that was null) -> where."""
    _filled: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Key -> tools that were called with a value for it."""

    def look(self, member: Member, line: int) -> None:
        """Take in a run of the row on this line."""
        self._unknown_tokens(member, line)
        run = member.trajectory
        if run is None:
            return
        schemas = {str(name): tool for tool in map(tool_function, run.tools) if (name := tool.get("name"))}
        self.defined.update(schemas.keys())
        for tool in run.tools:
            if nulls := sum(1 for _ in _null_keys(tool)):
                self.found["null_schema"].add(line, nulls, shown(str(tool_function(tool).get("name"))))
        for step in run.steps:
            for action in step.actions:
                self._look_at_call(action, schemas, line)
            for observation in step.observations:
                self.observations += 1
                if isinstance(observation.content, str) and not observation.content.strip():
                    self.found["empty_observations"].add(line)
        self._control_tokens(run, line)
        self._lost_text(member, run, line)

    def conclude(self) -> None:
        """Count what shows only over all runs: null keys that belong to other tools' calls."""
        for (tool, key), finding in self._null.items():
            others = self._filled[key]
            if tool not in others and others:
                whole = self.found["null_keys"]
                whole.times += finding.times
                whole.rows += finding.rows
                whole.first_rows = sorted({*whole.first_rows, *finding.first_rows})[:_EXAMPLES]
                whole.example = whole.example or f"{shown(tool)}: {shown(key)}"

    def _look_at_call(self, action: Action, schemas: Mapping[str, Mapping[str, Any]], line: int) -> None:
        self.calls += 1
        self.called[action.tool] += 1
        schema = schemas.get(action.tool)
        if schema is None:
            self.found["missing_schema" if schemas else "no_schemas"].add(line, 1, shown(action.tool))
        if _takes_text(schema):
            return
        if action.args is None or not _are_read(action):
            self.found["unreadable_arguments"].add(line, 1, shown(action.tool))
            return
        for argument in _arguments(action.args, (schema or {}).get("parameters")):
            about = f"{shown(action.tool)}: {shown(argument.path)}"
            if argument.is_null and argument.may_be_null is False:
                self.found["null_keys"].add(line, 1, about)
            elif argument.is_null and argument.may_be_null is None:
                self._null.setdefault((action.tool, argument.path), Finding()).add(line)
            elif not argument.is_null:
                self._filled[argument.path].add(action.tool)
                if argument.is_declared is False:
                    self.found["unknown_arguments"].add(line, 1, about)

    def _control_tokens(self, run: Trajectory, line: int) -> None:
        spellings = self.renderer.writer.spellings
        texts = [
            (text, False)
            for text in (run.task.prompt, *(text_of(o.content) for s in run.steps for o in s.observations))
        ]
        texts += [
            (text, step.actor == "agent") for step in run.steps for text in (text_of(step.message), step.thought or "")
        ]
        for text, own in texts:
            if found := (spellings.own if own else spellings.foreign).search(text):
                self.found["control_tokens"].add(line, 1, shown(text[found.start() : found.start() + 16]))

    def _lost_text(self, member: Member, run: Trajectory, line: int) -> None:
        """Find thoughts and messages that the template omits from the turn, or removes later."""
        for row in member.rows:
            for turn in turns_of(row):
                step = run.steps[turn.step]
                if not row.supervised[turn.start : turn.end].any() or _was_sampled(step, self.renderer):
                    continue
                written = self.renderer.decode(row.token_ids[row.step_index == turn.step])  # it can be several turns
                if any(not self._contains(written, text) for text in (step.thought, text_of(step.message)) if text):
                    self.found["thoughts_lost"].add(line)
        for before, after in zip(member.uncut, member.uncut[1:], strict=False):
            # The template has rewritten earlier text: only thoughts may be missing.
            past = [turn.step for turn in turns_of(before) if run.steps[turn.step].thought]
            following = next(turns_of(after), None)
            if past and following:
                opening = self.renderer.decode(after.token_ids[: following.start])
                if not self._contains(opening, run.steps[past[-1]].thought or ""):
                    self.found["thoughts_stripped"].add(line)

    def _contains(self, written: str, text: str) -> bool:
        core, written = _plain(text), _plain(written)
        for part in (core[:_ENDS].strip(), core[-_ENDS:].strip()):
            if part not in written:
                plain = _plain(self.renderer.decode(self.renderer.writer.encode(part)))
                if plain not in written:  # a tokenizer can normalise letters: then both are normalised
                    return False
        return True

    def _unknown_tokens(self, member: Member, line: int) -> None:
        unknown = self.renderer.tokenizer.unk_token_id
        if unknown is None or unknown in self.renderer.end_ids or unknown == self.renderer.tokenizer.pad_token_id:
            return
        if n := sum(int((row.token_ids == unknown).sum()) for row in member.rows):
            self.found["unknown_tokens"].add(line, n)


def _are_read(action: Action) -> bool:
    """Whether the arguments are the model's: some programs record `{}` for unparsable ones."""
    raw = (action.raw_args or "").strip()
    if action.args or not raw:
        return True
    try:
        return isinstance(json.loads(raw), dict)
    except (ValueError, RecursionError):
        return False


class _Argument(NamedTuple):
    """One key of a call's arguments with its properties in the schema; None where the schema has no entry."""

    path: str
    is_null: bool
    is_declared: bool | None
    may_be_null: bool | None


def _arguments(values: Mapping[str, Any], schema: Any, path: str = "") -> Iterator[_Argument]:
    """Yield every key of an object and of the objects in it."""
    schema = schema if isinstance(schema, Mapping) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else None
    is_complete = properties is not None and not schema.get("additionalProperties")
    for key, value in values.items():
        known = (properties or {}).get(key)
        declared = True if known is not None else (False if is_complete else None)
        may_be_null = None if declared is None else _may_be_null(known)
        yield _Argument(f"{path}{key}", value is None, declared, may_be_null)
        if isinstance(value, Mapping):
            yield from _arguments(value, known, f"{path}{key}.")
        elif isinstance(value, list):
            items = known.get("items") if isinstance(known, Mapping) else None
            for item in value:
                if isinstance(item, Mapping):
                    yield from _arguments(item, items, f"{path}{key}[].")


def _takes_text(schema: Mapping[str, Any] | None) -> bool:
    """Whether the arguments of a tool are free text instead of an object."""
    parameters = (schema or {}).get("parameters")
    return isinstance(parameters, Mapping) and parameters.get("type") == "string"


def _null_keys(value: Any) -> Iterator[str]:
    """Yield keys of a schema, at any depth, whose value is null where a schema never allows it."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if inner is None and key not in _NULL_IS_A_VALUE:
                yield key
            elif key not in _NULL_IS_A_VALUE:
                yield from _null_keys(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for inner in value:
            yield from _null_keys(inner)


def _may_be_null(schema: Any) -> bool:
    """Whether the schema of an argument allows null; a missing or null schema does not."""
    if schema is True or schema == {}:
        return True
    if not isinstance(schema, Mapping):
        return False
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, list | tuple) and "null" in kind):
        return True
    if (
        schema.get("nullable") is True
        or None in (schema.get("enum") or ())
        or ("default" in schema and schema["default"] is None)
    ):
        return True
    branches = [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())]
    return any(_may_be_null(branch) for branch in branches) or (kind is None and not branches and "enum" not in schema)


def _was_sampled(step: Step, renderer: Renderer) -> bool:
    return step.sampled is not None and step.sampled.tokenizer == renderer.fingerprint


def _plain(text: str) -> str:
    """Return the words of a text, without thinking tags and line breaks that templates add."""
    return " ".join(_THINK.sub(" ", text).split())
