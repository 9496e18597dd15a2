"""Collect turns into the steps of a trajectory, and match results with their calls.

Reading a log is tolerant: a result without a call stays with the turn before it, and is counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from quintain.importers.files.spooled_list import SpooledList
from quintain.importers.values import refuse_constant, text_chars
from quintain.records.record import share_field_sets
from quintain.records.text import MAX_DEPTH, require_clean
from quintain.records.trajectory import AgentInfo, Outcome, Source, Step, Task, Trajectory, read_trajectory

Parts = str | Sequence[Mapping[str, Any]]
"""Text, or parts shaped as `TextPart` and `ImagePart` in JSON."""


MEMORY_CHARS = 1_000_000
"""Characters of text that a transcript keeps in memory before it moves finished steps to a file."""

PIECE_BYTES = 2**19
"""Size of a piece of a run that is built piece by piece."""


@dataclass
class Transcript:
    """Steps so far as JSON objects, and the calls that still wait for a result.

    Of a long session, only steps that can change are in memory: the last turn of the agent with what follows it, and
    turns with calls that wait.
    """

    steps: SpooledList[dict[str, Any]] = field(default_factory=SpooledList)
    orphans: int = 0
    """Results without a matching call."""
    model: str | None = None
    """Model of the first turn that names one."""
    has_system: bool = False
    """Whether there is a system turn."""
    called: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Tool -> names of the arguments in its calls, each with an empty schema."""
    text_tools: set[str] = field(default_factory=set)
    """Tools whose arguments are free text by design, according to the log."""
    memory_chars: float = field(default_factory=lambda: MEMORY_CHARS)
    """Characters above which steps go to a file."""
    _chars: int = 0
    """Characters added since steps went to the file."""
    _open: dict[str | tuple[int, int], int] = field(default_factory=dict)
    """Call id -> step index; calls without an id use the key (step index, index of the call)."""
    _places: dict[int, list[int]] = field(default_factory=dict)
    """Step index -> indices of its answered calls without an id, in the order of the answers."""

    @classmethod
    def resumed(cls, steps: Sequence[dict[str, Any]]) -> Transcript:
        """Create a transcript that continues these steps; their unanswered calls wait for results."""
        transcript = cls(SpooledList(steps))
        for index, step in enumerate(transcript.steps):
            answered = [observation.get("call_id") for observation in step.get("observations", ())]
            calls = list(enumerate(call.get("call_id") for call in step.get("actions", ())))
            nameless = [n for n, call_id in calls if call_id is None]
            transcript._open |= {(index, n): index for n in nameless[answered.count(None) :]}
            transcript._open |= {call_id: index for _, call_id in calls if call_id and call_id not in answered}
        return transcript

    def cut(self, length: int) -> None:
        """Drop all steps but the first `length`, and their open calls."""
        del self.steps[length:]
        self.has_system = any(step["actor"] == "system" for step in self.steps)
        self.model = next((step["model"] for step in self.steps if step.get("model")), None)
        self.called = {}
        for call in (call for step in self.steps for call in step.get("actions", ())):
            self._note_tool(call)
        self._open = {key: index for key, index in self._open.items() if index < length}

    @property
    def waiting(self) -> tuple[str | None, ...]:
        """Ids of the calls that wait for a result; None for a call without an id."""
        return tuple(key if isinstance(key, str) else None for key in self._open)

    def add_message(self, actor: str, message: Parts, **fields: Any) -> None:
        """Add a `system` or `user` turn; `fields` are further fields of `Step` (timestamp, extra, ...)."""
        self._count(len(message) if type(message) is str else text_chars(message))
        self.has_system |= actor == "system"
        self.steps.append({"actor": actor, "message": message, **_known(fields)})

    def prepend_system(self, message: Parts) -> None:
        """Insert a system turn before all others, of which none is the agent's."""
        self.has_system = True
        self.steps.insert(0, {"actor": "system", "message": message})

    def _count(self, chars: int) -> None:
        """Count new text; if that is much, move the steps that can no longer change to a file."""
        self._chars += chars
        if self._chars > self.memory_chars and (last := self._last_agent_step()) is not None:
            self.steps.store(last, frozenset(self._open.values()))
            self._chars = 0

    def add_agent_turn(
        self,
        message: Parts = "",
        *,
        thought: str | None = None,
        actions: Sequence[Mapping[str, Any]] = (),
        **fields: Any,
    ) -> None:
        """Add an agent turn; `actions` come from `make_call`, `fields` are further fields of `Step`."""
        size = len(message) if type(message) is str else text_chars(message)
        self._count(size + len(thought or "") + sum(map(_call_chars, actions)))
        self.model = self.model or fields.get("model")
        index = len(self.steps)
        for n, call in enumerate(actions):
            self._open[call["call_id"] or (index, n)] = index
            self._note_tool(call)
        self.steps.append(
            {
                "actor": "agent",
                "message": message,
                "thought": thought or None,
                "actions": list(actions),
                "observations": [],
                **_known(fields),
            }
        )

    def add_call(self, call: Mapping[str, Any]) -> None:
        """Add a call to the last agent turn, for logs that list the calls of a turn one by one."""
        index = self._last_agent_step()
        if index is None:
            self.add_agent_turn(actions=[call])
            return
        self._note_tool(call)
        calls = self.steps[index]["actions"]
        self._open[call["call_id"] or (index, len(calls))] = index
        calls.append(call)

    def _note_tool(self, call: Mapping[str, Any]) -> None:
        self.called.setdefault(call["tool"], {}).update({name: {} for name in call["args"] or ()})

    def add_result(
        self, content: Parts, *, call_id: str | None = None, is_error: bool = False, tool: str | None = None
    ) -> bool:
        """Add a result; return False if no call waits for it.

        Without a call it goes to the last agent turn or, before any, to the user.
        A result with a known id answers that call. Else it answers the first waiting call without an id, preferring the
        last agent turn and the same `tool`. A result without an id may also answer a named call of the last agent turn.
        """
        key: str | tuple[int, int] | None = call_id if call_id in self._open else None
        if key is None and (key := self._nameless(tool, is_named=call_id is not None)) is not None:
            call_id = None
        if key is None and call_id is None:
            key = call_id = self._named(tool)
        self._count(len(content) if type(content) is str else text_chars(content))
        index = self._open.pop(key) if key is not None else self._last_agent_step()
        observation = {"content": content, "call_id": call_id, "is_error": is_error}
        if index is None:
            self.add_message("user", content)
        elif key is None and observation in self.steps[index]["observations"]:
            return True  # it stood in the call already
        else:
            self.steps[index]["observations"].insert(self._place(index, key), observation)
        self.orphans += key is None
        return key is not None

    def _place(self, index: int, key: str | tuple[int, int] | None) -> int:
        """Return the index for a result; results without an id follow the order of their calls."""
        observations = self.steps[index]["observations"]
        if not isinstance(key, tuple):
            return len(observations)
        places = self._places.setdefault(index, [])
        later = sum(place > key[1] for place in places)
        places.insert(len(places) - later, key[1])
        nameless = [n for n, result in enumerate(observations) if result.get("call_id") is None]
        return nameless[-later] if 0 < later <= len(nameless) else len(observations)

    def _nameless(self, tool: str | None, *, is_named: bool) -> tuple[int, int] | None:
        keys = [key for key in self._open if isinstance(key, tuple)]
        last = self._last_agent_step()
        recent = [key for key in keys if key[0] == last] or keys
        same = [key for key in recent if tool and self.steps[key[0]]["actions"][key[1]]["tool"] == tool]
        return next(iter(same or ([] if is_named else recent)), None)

    def _named(self, tool: str | None) -> str | None:
        """Return the id of the first waiting call of the last agent turn, preferring calls of the same tool."""
        last = self._last_agent_step()
        calls = self.steps[last]["actions"] if last is not None else []
        waiting = [call for call in calls if self._open.get(call["call_id"]) == last and call["call_id"]]
        same = [call for call in waiting if call["tool"] == tool]
        return next((str(call["call_id"]) for call in same or waiting), None)

    def _last_agent_step(self) -> int | None:
        return next((i for i in reversed(range(len(self.steps))) if self.steps[i]["actor"] == "agent"), None)

    @property
    def has_acted(self) -> bool:
        """Whether there is an agent turn."""
        return self._last_agent_step() is not None

    def trajectory(self, **fields: Any) -> Trajectory:
        """Build the run; a task without a prompt takes the first user text as its prompt that is not added context."""
        return read_trajectory(self._about(**fields) | {"steps": list(self.steps)})

    def pieces(self, **fields: Any) -> Iterator[Trajectory]:
        """Build the run like `trajectory` and empty the transcript. If steps are in a file, the run comes in pieces.

        A piece has the fields of the run and some of its steps, in order, with at least one turn of the agent. The first
        piece ends with the first turn.

        Args:
            **fields: Of `Trajectory`: `format`, the name of the reader; `task`; `agent`; `tools`, schemas in OpenAI function
                style (`function_tool`); `outcome` as the log states it; `session_id`, `tags`, `extra`, ...; and `prompt`,
                the task as given, even where that is empty (None: that of `task`, or the first text of the user
                other than added context).
        """
        about, last, is_spooled = self._about(**fields), self._last_agent_step(), self.steps.is_spooled
        piece: list[Any] = []
        size = PIECE_BYTES
        for place, (step, n_bytes) in enumerate(self.steps.drain()):
            size += n_bytes
            is_end = is_spooled and place != last and size >= PIECE_BYTES and step["actor"] == "agent"
            piece.append(_validated(step))
            if is_end:
                yield read_trajectory(about | {"steps": piece})
                piece, size = [], 0
        yield read_trajectory(about | {"steps": piece})

    def _about(
        self,
        *,
        format: str,
        task: Task | None = None,
        prompt: str | None = None,
        agent: AgentInfo | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        outcome: Outcome | None = None,
        session_id: str | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Return the fields of the run other than its steps."""
        task = task or Task()
        if prompt is None and not task.prompt:
            asked = (
                step for step in self.steps if step["actor"] == "user" and not step.get("extra", {}).get("context")
            )
            prompt = next((text for step in asked if (text := _plain(step["message"])).strip()), "")
        return {
            "session_id": session_id,
            "source": Source(format=format),
            "agent": agent or AgentInfo(),
            "task": task if prompt is None else task.model_copy(update={"prompt": prompt}),
            "outcome": outcome or Outcome(),
            "tools": [dict(tool) for tool in tools],
            **_known(fields),
        }


def _validated(step: dict[str, Any]) -> Any:
    """Return the step as a record, which is smaller; an invalid one stays, to be reported with its place in the run."""
    with suppress(ValidationError):
        valid = Step.model_validate(step)
        share_field_sets((valid, *valid.actions, *valid.observations))
        return valid
    return step


def _call_chars(call: Mapping[str, Any]) -> int:
    return len(call["raw_args"]) if call["raw_args"] else text_chars(call["args"])


def make_call(tool: str, arguments: Any, call_id: str | None = None) -> dict[str, Any]:
    """Build an agent's call from arguments as logs store them.

    Args:
        tool: Its name; an empty one becomes `unknown`.
        arguments: A JSON text (also kept as `raw_args`), an object, None, or any other value (kept as its JSON).
        call_id: Of the log.
    """
    call_id = call_id if isinstance(call_id, str) and call_id else None
    name = tool if isinstance(tool, str) and tool else "unknown"
    if (
        arguments is None
        or isinstance(arguments, dict)
        or (type(arguments) is not str and isinstance(arguments, Mapping))
    ):
        return {"tool": name, "args": dict(arguments or {}), "raw_args": None, "call_id": call_id}
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"tool": name, "args": parsed_arguments(raw), "raw_args": raw, "call_id": call_id}


def parsed_arguments(raw: str) -> dict[str, Any] | None:
    """Parse the arguments that a model wrote; None if they are not a valid JSON object, {} if they are empty."""
    if not raw.strip():
        return {}
    try:
        value = _ARGUMENTS.decode(raw)
        if "\\u" in raw or not raw.isascii() or raw.count("{") + raw.count("[") > MAX_DEPTH:
            require_clean(value, "arguments")  # an escape can spell half a character
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def function_tool(name: str, description: str | None = None, parameters: Any = None) -> dict[str, Any]:
    """Return a tool schema in OpenAI's function style; unknown parameters become an object of anything."""
    known = parameters if isinstance(parameters, Mapping) else {"type": "object", "properties": {}}
    function = {"name": name, **({"description": description} if description else {}), "parameters": dict(known)}
    return {"type": "function", "function": function}


def _finite(digits: str) -> float:
    return number if math.isfinite(number := float(digits)) else refuse_constant(digits)


_ARGUMENTS = json.JSONDecoder(parse_constant=refuse_constant, parse_float=_finite)


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _plain(content: Parts) -> str:
    return content if isinstance(content, str) else "".join(p.get("text", "") for p in content)
