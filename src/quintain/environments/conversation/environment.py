"""Talks as environments: a user to talk to, things to look up, and a verdict on what holds at the end.

A talk is a success where four things hold: the state is as expected (records, or what was handed in), what it follows from was looked
up, the user was told what they had to be told, after that and unmistakably, and what only the user knows was asked for. What a user
says is a message, not an observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quintain.environments.calls import arguments_of, only_call, refusal, tool_schemas
from quintain.environments.conversation.hearing import Heard, numbers_in, understand
from quintain.environments.conversation.scenario import Due, Expected, Scenario
from quintain.environments.conversation.user import User
from quintain.environments.conversation.world import Respond, Submission, Transfer, UpdateRecord, World
from quintain.environments.families import Family, TaskKey
from quintain.records.record import Record
from quintain.records.seams import TimeStep
from quintain.records.trajectory import Action, Observation, Task

MAX_TURNS = 24
MOST_GUESSES = 5
"""Numbers that an agent may name in a talk though it was neither told nor shown them, besides those that are due."""


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
        self._said: set[Due] = set()
        self._guesses: set[float] = set()
        self._shown: set[float] = set()

    def reset(self, task: Task) -> TimeStep:
        """Let the user say what they want.

        Raises:
            InvalidInput: the task is none of this environment.
        """
        scenario = self._about.build(self._about.family.parse(task.id))
        self._world, self._user = World(scenario), self._make_user(scenario)
        self._scenario = scenario
        self._said, self._guesses, self._shown = set(), set(), set(numbers_in(scenario.opening))
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
        if not (seen.is_error or isinstance(arguments, UpdateRecord)):  # both repeat what the agent wrote
            self._shown |= numbers_in(str(seen.content))
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
        said = self._user.hear(message, heard, self._tell(heard))
        self._shown |= numbers_in(said.text)
        sent = Observation(content="Sent.")
        if said.left:
            return self._ended(sent, said.text)
        return TimeStep(observations=(sent,), message=said.text, info={"metrics": self._metrics()})

    def _tell(self, heard: Heard) -> bool:
        """Note what the user is told by this; true where it is something that was due.

        It counts where it was looked up before and is named without a rival; an option or a status, unlike a number, is taken back by
        naming a rival later. Who has named more than `MOST_GUESSES` numbers that nobody gave is not heard any more.
        """
        assert self._scenario is not None
        all_due = {*self._scenario.expected.told, *(self._scenario.changed.told if self._scenario.changed else ())}
        self._guesses |= heard.numbers - self._shown - {due.value for due in all_due}
        if len(self._guesses) > MOST_GUESSES:
            return False
        told = {due for due in all_due if due.sources <= self._world.seen and _tells(heard, due)}
        now = bool(told - self._said)
        self._said = {due for due in self._said if not _taken_back(due, heard)} | told
        return now

    def _hand_in(self, result: Submission) -> TimeStep:
        if (fault := self._world.missing(result.handed_in)) is not None:
            return TimeStep(observations=(refusal(fault),))
        self._world.handed_in = result.handed_in
        return self._ended(None)

    def _ended(self, seen: Observation | None, message: str | None = None) -> TimeStep:
        state = self._world.holds(self._expected)
        shares = self._shares()
        asked = shares["asked"] == 1 or not self._user.is_certain
        right = state and asked and shares["told"] == shares["read"] == 1 and not self._user.misled
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
        """Of what had to be asked, looked up and told, how much was."""
        assert self._scenario is not None
        needed, due, sources = self._scenario.needed, self._expected.told, self._expected.sources
        return {
            "asked": len(needed & set(self._user.known)) / len(needed) if needed else 1.0,
            "read": len(sources & self._world.seen) / len(sources) if sources else 1.0,
            "told": sum(one in self._said for one in due) / len(due) if due else 1.0,
        }


def _tells(heard: Heard, due: Due) -> bool:
    return heard.names_only(due.value, due.rivals) and (heard.refuses or not due.refuses)


def _taken_back(due: Due, heard: Heard) -> bool:
    return isinstance(due.value, str) and any(
        heard.names_only(rival, {due.value, *due.rivals} - {rival}) for rival in due.rivals
    )
