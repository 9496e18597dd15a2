"""Scripted policies: they need no model, give demonstrations of an environment, and show that its tasks can be solved.

Each task source that has one returns its expert; there is one policy for the parts of several sources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from string import Formatter
from typing import Any, NamedTuple

from quintain.checkers.answers import expected_answers
from quintain.errors import InvalidInput
from quintain.records.protocols import Message, Policy, Reply, Stop, TaskSource, Turn
from quintain.records.trajectory import Action, Task, text_of
from quintain.records.wording import clip

_WORD = r"\w+"


class Move(NamedTuple):
    """A thought and the one call that follows from it."""

    thought: str
    tool: str
    args: dict[str, Any]


Script = Generator[Move, str, None]
"""Yields moves, and receives the observation of each or the user's answer to it."""


class ScriptedPolicy:
    """A `Policy` that follows a script for each episode."""

    def __init__(self, script: Callable[[str], Script]) -> None:
        """Keep the function that makes a script from a prompt."""
        self._begin = script
        self._scripts: dict[str, Script] = {}

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """Return the next move of each episode."""
        return [self._move(turn) for turn in turns]

    def close(self, episode_id: str) -> None:
        """Drop the script of an episode."""
        self._scripts.pop(episode_id, None)

    def _move(self, turn: Turn) -> Reply:
        script = self._scripts.get(turn.episode_id)
        try:
            if script is None:
                script = self._scripts[turn.episode_id] = self._begin(last_text(turn.messages, "user"))
                move = next(script)
            else:
                # If a user answers, that message matters more than the observation of the call.
                move = script.send(last_text(turn.messages, "user") or last_text(turn.messages, "tool"))
        except StopIteration:  # the script has ended, but the episode has not
            return Reply(text="I know no more.")
        call = json.dumps({"name": move.tool, "arguments": move.args})
        return Reply(
            text=f"{move.thought}\n<tool_call>\n{call}\n</tool_call>",
            thought=move.thought,
            actions=(Action(tool=move.tool, args=move.args),),
        )


def policy_by_prompt(scripts: Mapping[str, Callable[[], Script]]) -> ScriptedPolicy:
    """Return a policy that follows the script of each prompt; other prompts raise `InvalidInput`."""

    def begin(prompt: str) -> Script:
        if prompt not in scripts:
            raise InvalidInput(f"expected the prompt of a task to be played, got {clip(prompt)!r}")
        return scripts[prompt]()

    return ScriptedPolicy(begin)


def pattern_of(template: str, **values: str) -> str:
    """Return the pattern of a template's texts: a named group per field, of one word unless `values` has its pattern."""
    parts: list[str] = []
    named: set[str] = set()
    for text, field, _, _ in Formatter().parse(template):
        parts.append(re.escape(text))
        if field:
            parts.append(f"(?P={field})" if field in named else f"(?P<{field}>{values.get(field, _WORD)})")
            named.add(field)
    return "".join(parts)


def last_text(messages: Sequence[Message], role: str) -> str:
    """Return the text of the last message of a role; empty without one."""
    return next((text_of(message.content) for message in reversed(messages) if message.role == role), "")


def expert_of(source: TaskSource, tasks: Sequence[Task]) -> Policy:
    """Return the scripted expert of a source. An episode that its script cannot play ends with an error.

    Args:
        source: With the optional method `expert`.
        tasks: Tasks that will be played.

    Raises:
        InvalidInput: the source has no expert.
    """
    make = getattr(source, "expert", None)
    if make is None:
        raise InvalidInput(
            f"expected an environment with a scripted expert, got {clip(source.id)!r}; name another agent, or add the method "
            "`expert(tasks)`, which returns a policy, to its task source",
            code="no_expert",
        )
    return _Contained(make(tasks))


def expert_of_parts(parts: Mapping[str, TaskSource], tasks: Sequence[Task]) -> Policy:
    """Return a policy that leaves each task to the expert of the part in its `environment`."""
    policies = dict[str, Policy]()
    for reference, source in parts.items():
        own = [task for task in tasks if task.environment == reference]
        policies |= dict.fromkeys((task.prompt for task in own), expert_of(source, own))
    return _ByTask(policies)


class _Contained:
    """A policy whose exceptions end the episode concerned, not the run."""

    def __init__(self, inside: Policy) -> None:
        self._inside = inside

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        return [self._reply(turn) for turn in turns]

    def close(self, episode_id: str) -> None:
        self._inside.close(episode_id)

    def _reply(self, turn: Turn) -> Reply:
        try:
            return self._inside.act([turn])[0]
        except Exception as error:  # a script knows its own environment only
            reason = error.message if isinstance(error, InvalidInput) else f"{type(error).__name__}: {error}"
            return Reply(text="", stop=Stop.FAILED, error=f"the scripted expert failed: {reason}"[:500])


class _ByTask:
    """A policy that leaves each episode to the policy of its task, found by the prompt."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self._policies = policies
        self._playing: dict[str, Policy] = {}

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        return [self._policy_of(turn).act([turn])[0] for turn in turns]

    def close(self, episode_id: str) -> None:
        if (policy := self._playing.pop(episode_id, None)) is not None:
            policy.close(episode_id)

    def _policy_of(self, turn: Turn) -> Policy:
        if turn.episode_id not in self._playing:
            prompt = last_text(turn.messages, "user")
            if prompt not in self._policies:
                raise InvalidInput(f"expected the prompt of a task to be played, got {clip(prompt)!r}")
            self._playing[turn.episode_id] = self._policies[prompt]
        return self._playing[turn.episode_id]


def submitted_answer(task: Task) -> Script:
    """Submit the stated answer of a task."""
    answer = stated_answer(task)
    if answer is None:
        raise InvalidInput(f"expected a task that states its answer, got {clip(task.prompt)!r}")
    yield Move(f"The answer is {answer}.", "submit", {"answer": answer})


def stated_answer(task: Task) -> Any:
    """Return the answer that a task states, as it is compared; None if it states none, as with a pattern."""
    checker = task.metadata.get("checker")
    if isinstance(checker, Mapping) and checker.get("type") == "json" and "expected" in checker:
        return json.dumps(checker["expected"])
    return next(iter(expected_answers(task)), None)
