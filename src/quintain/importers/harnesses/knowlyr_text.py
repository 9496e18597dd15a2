"""Parse knowlyr's flat text of a run: `Step N:` with `Thought:`, `Action: tool({json})` and `Observation:`.

The content of an observation is never split, even where it looks like such a text itself.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

_HEADER = re.compile(
    r"(?:\A|\n\n|^Observation: )Step (\d{1,6}):(?=\n(?:Thought|Action|Observation): |\s*\Z|\n\nStep \d)", re.MULTILINE
)
_CALL = re.compile(r"([^\s()]+)\((.*)\)", re.DOTALL)


class WrittenStep(NamedTuple):
    """One step of the text."""

    thought: str
    message: str
    """The agent's action if it is not a call."""
    tool: str | None
    arguments: Any
    observation: str | None


def parse_steps(text: str, total: int | None = None) -> list[WrittenStep]:
    """Return the steps of a flat text; empty if it has another form.

    Args:
        text: Begins with `Step 1:`.
        total: Number of steps of the run, if the row states it; decides which headers are inside an observation.
    """
    text = text.strip()
    headers = [(int(found[1]), found.start(), found.end()) for found in _HEADER.finditer(text)]
    if not headers or headers[0][:2] != (1, 0):
        return []
    chosen = _outermost(headers)
    if total is not None and len(chosen) != total:
        chosen = max(chosen, _counted(headers), key=lambda chain: (len(chain) == total, -abs(len(chain) - total)))
    ends = [start for _, start, _ in chosen[1:]] + [len(text)]
    return [_step(text[begin:end].strip("\n")) for (_, _, begin), end in zip(chosen, ends, strict=True)]


def _outermost(headers: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the headers of the run itself: `Step 1` inside an observation starts a nested text with its own numbers."""
    levels = [0]
    chosen: list[tuple[int, int, int]] = []
    for header in headers:
        number = header[0]
        if number == 1:
            levels.append(1) if chosen else levels.__setitem__(0, 1)
        else:
            while len(levels) > 1 and levels[-1] + 1 != number:
                levels.pop()
            if levels[-1] + 1 != number:
                continue
            levels[-1] = number
        if len(levels) == 1:
            chosen.append(header)
    return chosen


def _counted(headers: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return headers that count up from 1, each the first of its number."""
    chosen: list[tuple[int, int, int]] = []
    for header in headers:
        if header[0] == len(chosen) + 1:
            chosen.append(header)
    return chosen


def _step(block: str) -> WrittenStep:
    before, marked, observation = _split(block, "Observation: ")
    thought, acted, action = _split(before, "Action: ")
    thought = thought.removeprefix("Thought: ").strip("\n")
    tool, arguments = parse_call(action.strip()) if acted else (None, None)
    return WrittenStep(thought, "" if tool else action.strip(), tool, arguments, observation if marked else None)


def _split(block: str, mark: str) -> tuple[str, bool, str]:
    """Split at the first line that begins with the mark."""
    at = 0 if block.startswith(mark) else block.find("\n" + mark) + 1
    if not at and not block.startswith(mark):
        return block, False, ""
    return block[:at], True, block[at + len(mark) :]


def parse_call(action: str) -> tuple[str | None, Any]:
    """Return tool and raw arguments of `tool({json})` or of a bare tool; (None, None) for other text."""
    if re.fullmatch(r"[\w.\-/]+", action):
        return action, None
    found = _CALL.fullmatch(action)
    if found is None:
        return None, None
    try:
        arguments = json.loads(found[2])
    except (ValueError, RecursionError):
        return None, None
    return (found[1], found[2]) if isinstance(arguments, dict) else (None, None)
