"""Parsing of an agent's text: its thought, and its calls in the model's own form.

`call_forms` is a table of the forms, and `TurnReader` parses all of them. `template_probe` finds the form of a model by parsing
its template's own turn, so parsing is the inverse of rendering.

Model output is hostile: every pattern is anchored at a literal or bounded, so that work is linear in the text; `require_clean`
limits nesting; parsing never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from quintain.records.text import require_clean
from quintain.records.trajectory import Action
from quintain.trainers.rendering.call_forms import FORMS
from quintain.trainers.rendering.values import decode, decode_at, decode_quoted, parse_untyped, python_calls

MAX_CALLS = 200
"""Maximum number of calls in a turn."""

_EMPTY_THINKING = re.compile(r"\A\s*<think>\s*</think>")
_BETWEEN = re.compile(r"[\s;]*")
_UNREADABLE = (ValueError, RecursionError, MemoryError)


class ParsedTurn(NamedTuple):
    """Thought and actions of a turn; with an `error`, why the text could not be parsed, there are no actions."""

    thought: str | None
    actions: tuple[Action, ...]
    error: str | None = None


class _Patterns(NamedTuple):
    """Compiled patterns of a call form."""

    begin: re.Pattern[str]
    """A section or a call."""
    section: re.Pattern[str]
    mark: re.Pattern[str]
    head: re.Pattern[str]
    tail: re.Pattern[str]
    key: re.Pattern[str]


_PATTERNS = {
    name: _Patterns(
        begin=re.compile(f"(?:{form.section})|(?:{form.mark})", re.MULTILINE),
        section=re.compile(rf"\s*(?:{form.section})"),
        mark=re.compile(form.mark, re.MULTILINE),
        head=re.compile(form.head),
        tail=re.compile(form.tail),
        key=re.compile(rf"\s*{form.key}"),
    )
    for name, form in FORMS.items()
}


@dataclass(frozen=True)
class TurnReader:
    """Parser for the turns of one template."""

    form: str
    """A name in `FORMS`."""
    around: tuple[str, str] = ("", "")
    """Text that the template adds before and after an agent's text, such as the channel of gpt-oss; it is stripped."""
    around_thought: tuple[str, str] = ("", "")
    """Further text around the thought before a call."""
    one_call: bool = False
    """Whether a turn can have one call only."""
    closing: str = ""
    """Text that closes an empty thinking; it is stripped."""
    after_calls: str = ""
    """Text that the template adds after the last call of a turn, such as the end of a section."""

    def read(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        """Parse an agent's text, without its end token; never raises."""
        text = _within(text.strip().removeprefix(self.closing), self.around)
        form = FORMS[self.form]
        found = _PATTERNS[self.form].begin.search(text)
        thought = text if found is None else _within(text[: found.start()], self.around_thought)
        thought = _EMPTY_THINKING.sub("", thought).strip().removeprefix(form.label).strip()
        if found is None:
            return ParsedTurn(thought or None, ())
        try:
            calls, _ = _calls(text, found.start(), self.form, tools)
            actions = tuple(calls)
            if self.one_call and len(actions) > 1:
                raise ValueError(f"expected one call a turn, got {len(actions)}; make one call and wait for its result")
        except _UNREADABLE as error:
            return ParsedTurn(text or None, (), f"the tool call could not be read: {error}")
        return ParsedTurn(thought or None, actions)

    def end_of_calls(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> int | None:
        """Return the end position of a turn's calls if other text follows them, which `read` ignores.

        Returns:
            None if there is no call, or if the text so far can continue with another call or the template's own text.
        """
        patterns = _PATTERNS[self.form]
        found = patterns.begin.search(text)
        if found is None or (first := patterns.mark.search(text, found.start())) is None:
            return None
        try:
            _, end = _calls(text, found.start(), self.form, tools)
        except _UNREADABLE:
            return None
        place = _after(_BETWEEN, text, end)
        if self.after_calls and text.startswith(self.after_calls, place):
            end = place + len(self.after_calls)
            place = _after(_BETWEEN, text, end)
        rest, opening = text[place:], first[0].strip() or text[first.end() : first.end() + 1]
        possible = (opening, self.after_calls)
        return None if any(it.startswith(rest) or (it and rest.startswith(it)) for it in possible) else end


def _within(text: str, around: tuple[str, str]) -> str:
    return text.strip().removeprefix(around[0]).removesuffix(around[1]).strip()


def _calls(text: str, place: int, name: str, tools: Sequence[dict[str, Any]]) -> tuple[list[Action], int]:
    """Return the calls that begin at a position, and the position after the last one; further text is ignored."""
    form, patterns = FORMS[name], _PATTERNS[name]
    if opened := patterns.section.match(text, place):
        place = opened.end()
    actions: list[Action] = []
    while found := patterns.mark.match(text, _after(_BETWEEN, text, place)):
        if form.python:
            body, close, _ = text[found.end() :].partition(form.close)
            calls = [_action(tool, arguments) for tool, arguments in python_calls(body, MAX_CALLS)]
            return calls, found.end() + len(body) + len(close)
        if (opened := patterns.head.match(text, found.end())) is None:
            raise ValueError(f"a call must be written as `{form.shape}`")
        new, place = _call(text, opened, name, tools)
        actions += new
        if (closed := patterns.tail.match(text, place)) is None:
            raise ValueError(f"a call is not closed; it must be written as `{form.shape}`")
        place = closed.end()
        if len(actions) > MAX_CALLS:
            raise ValueError(f"expected at most {MAX_CALLS} calls in a turn, got more; make fewer at a time")
    if not actions:
        raise ValueError(f"a call must be written as `{form.shape}`")
    return actions, place


def _call(text: str, opened: re.Match[str], form: str, tools: Sequence[dict[str, Any]]) -> tuple[list[Action], int]:
    """Return the calls after a call's head, several if they are a JSON list with names, and the position after them."""
    name, place = opened.groupdict().get("name"), opened.end()
    if name is None:
        value, place = decode_at(text, place)
        calls = value if isinstance(value, list) else [value]
        return [_read_call(call) for call in calls[: MAX_CALLS + 1]], place
    if FORMS[form].key:
        arguments, place = _tagged(text, place, name, form, tools)
    elif FORMS[form].quote:
        arguments, place = decode_quoted(text, place, FORMS[form].quote, FORMS[form].close)
    elif FORMS[form].may_be_bare and text[place : place + 1] in {"", "\n"}:
        arguments = {}
    else:
        arguments, place = decode_at(text, place)
    return [_action(name, arguments)], place


def _tagged(text: str, place: int, tool: str, name: str, tools: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """Return arguments written as tagged text, typed by the tool's schema."""
    form, key = FORMS[name], _PATTERNS[name].key
    properties = _properties(tools, tool)
    arguments: dict[str, Any] = {}
    while found := key.match(text, place):
        end = text.find(form.close, found.end())
        if end < 0:
            raise ValueError(f"the argument {found['key']!r} is not closed; end it with {form.close}")
        value = text[found.end() : end]
        if form.own_lines:
            value = value.removesuffix("\n")
        kind = found.groupdict().get("kind")
        schema = properties.get(found["key"]) if kind is None else {"type": "string"} if kind == "true" else {}
        arguments[found["key"]] = parse_untyped(value, schema)
        place = end + len(form.close)
    return arguments, place


def _properties(tools: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the schemas of a tool's arguments; empty if unknown."""
    for tool in tools:
        function = tool.get("function", tool)
        if isinstance(function, dict) and function.get("name") == name:
            parameters = function.get("parameters")
            properties = parameters.get("properties") if isinstance(parameters, dict) else None
            return properties if isinstance(properties, dict) else {}
    return {}


_NAMES, _VALUES = ("name", "tool_name"), ("arguments", "parameters")


def _read_call(call: Any) -> Action:
    """Return a call whose name is in the JSON."""
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        call = call["function"]
    if isinstance(call, dict):
        name = next((call[key] for key in _NAMES if key in call), None)
        arguments: Any = next((call[key] for key in _VALUES if key in call), {})
        if name is None and len(call) == 1 and not {*call} & {*_NAMES, *_VALUES}:
            ((name, arguments),) = call.items()  # Apertus: {tool: {...}}
        if isinstance(name, str) and name:
            return _action(name, decode(arguments) if isinstance(arguments, str) else arguments)
    raise ValueError('a call must be an object {"name": tool, "arguments": {...}}')


def _action(tool: str, arguments: Any) -> Action:
    if not isinstance(arguments, dict):
        raise ValueError(f"expected a JSON object as arguments of {tool!r}, got {type(arguments).__name__}")
    require_clean(arguments, "arguments")
    require_clean(tool, "tool")
    return Action(tool=tool, args=arguments)


def _after(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found else place
