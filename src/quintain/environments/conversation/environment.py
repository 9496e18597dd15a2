"""Talks as environments: a user to talk to, things to look up, and a verdict on what holds at the end.

A talk is a success where three things hold: the state is as expected (records, or what was handed in), the user was told what they
had to be told, and what only the user knows was asked for. What a user says is a message, not an observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quintain.environments.calls import arguments_of, only_call, refusal, tool_schemas
from quintain.environments.conversation.hearing import understand
from quintain.environments.conversation.scenario import Expected, Scenario
from quintain.environments.conversation.user import User
from quintain.environments.conversation.world import Respond, Submission, Transfer, World
from quintain.environments.families import Family, TaskKey
from quintain.records.record import Record
from quintain.records.seams import TimeStep
from quintain.records.trajectory import Action, Observation, Task

MAX_TURNS = 24


@dataclass(frozen=True)
class Subject:
    """What one of the four environments is made of."""

    family: Family
    system_prompt: str
    arguments: Mapping[str, type[Record]]
    """Tool -> the record of its arguments."""
    tools: tuple[dict[str, Any], ...]
    build: Callable[[TaskKey], Scenario]


def subject(
    family: Family, system_prompt: str, arguments: Mapping[str, type[Record]], build: Callable[[TaskKey], Scenario]
) -> Subject:
    """A subject with the schemas of its tools."""
    return Subject(family, system_prompt, arguments, tool_schemas(arguments), build)


class Talk:
    """One episode: a talk with one user."""

    max_turns = MAX_TURNS

    def __init__(self, about: Subject, user: Callable[[Scenario], User]) -> None:
        self.id = about.family.environment
        self.system_prompt, self.tools = about.system_prompt, about.tools
        self._about, self._make_user = about, user
        self._scenario: Scenario | None = None
        self._user: User
        self._world: World
        self._untold: list[str | int] = []

    def reset(self, task: Task) -> TimeStep:
        """Let the user say what they want.

        Raises:
            InvalidInput: the task is none of this environment.
        """
        scenario = self._about.build(self._about.family.parse(task.id))
        self._world, self._user = World(scenario), self._make_user(scenario)
        self._scenario = scenario
        later = scenario.changed.told if scenario.changed else ()
        self._untold = list(dict.fromkeys((*scenario.expected.told, *later)))
        return TimeStep(message=scenario.opening)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Talk, look up, change, or hand in.

        Raises:
            QuintainError: the user is played by a model, and its endpoint gives no answer.
        """
        assert self._scenario is not None, "reset comes before step"
        call = only_call(actions, list(self._about.arguments))
        if isinstance(call, TimeStep):
            return call
        arguments = arguments_of(call, self._about.arguments)
        if isinstance(arguments, str):
            return TimeStep(observations=(refusal(arguments),))
        if isinstance(arguments, Respond):
            return self._respond(arguments.message)
        if isinstance(arguments, Submission):
            return self._hand_in(arguments)
        seen = self._world.carry_out(arguments)
        if isinstance(arguments, Transfer):
            return self._ended(seen)
        return TimeStep(observations=(seen,), info={"metrics": self._metrics()})

    def close(self) -> None:
        """Let the user go."""
        if self._scenario is not None:
            self._user.close()

    @property
    def _expected(self) -> Expected:
        """What must hold, as the user wants it by now."""
        assert self._scenario is not None
        changed = self._scenario.changed
        return changed if changed is not None and self._user.corrected else self._scenario.expected

    def _respond(self, message: str) -> TimeStep:
        heard = understand(message)
        told = [value for value in self._untold if heard.names(value)]
        self._untold = [value for value in self._untold if value not in told]
        said = self._user.hear(message, heard, bool(told))
        sent = Observation(content="Sent.")
        if said.left:
            return self._ended(sent, said.text)
        return TimeStep(observations=(sent,), message=said.text, info={"metrics": self._metrics()})

    def _hand_in(self, result: Submission) -> TimeStep:
        if (fault := self._world.missing(result.handed_in)) is not None:
            return TimeStep(observations=(refusal(fault),))
        self._world.handed_in = result.handed_in
        return self._ended(None)

    def _ended(self, seen: Observation | None, message: str | None = None) -> TimeStep:
        state = self._world.holds(self._expected)
        shares = self._shares()
        asked = shares["asked"] == 1 or not self._user.is_certain
        right = state and asked and shares["told"] == 1 and not self._user.misled
        return TimeStep(
            observations=(seen or Observation(content="Right." if right else "Wrong."),),
            message=message,
            reward=float(right),
            terminated=True,
            info={"metrics": {**self._metrics(), "state": float(state), "misled": float(self._user.misled)}},
        )

    def _metrics(self) -> dict[str, float]:
        return {**self._shares(), **self._user.costs()}

    def _shares(self) -> dict[str, float]:
        """Of what had to be asked and told, how much was."""
        assert self._scenario is not None
        needed, due = self._scenario.needed, self._expected.told
        return {
            "asked": len(needed & set(self._user.known)) / len(needed) if needed else 1.0,
            "told": sum(value not in self._untold for value in due) / len(due) if due else 1.0,
        }
