"""Dialogues as environments: a user to talk to, a knowledge base or records, and a verdict at the end.

A dialogue is a success if four conditions hold. The state is as expected (records or submission). The agent looked up its sources. It
then stated to the user, unambiguously, what it had to state. It asked for what only the user knows. The user's answers are messages,
not observations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from quintain.endpoints.client import read_key
from quintain.environments.configuration import configuration
from quintain.environments.conversation import advisory, discussion, engineering
from quintain.environments.conversation import support_desk as desk
from quintain.environments.conversation.scenario import Scenario, Statement, SuccessConditions
from quintain.environments.conversation.user import ParsedMessage, ScriptedUser, User, numbers_in, parse_message
from quintain.environments.conversation.world import (
    FindRecords,
    GetPolicy,
    GetRecord,
    KnowledgeBase,
    ReadFile,
    Respond,
    Submission,
    SubmitAgreed,
    SubmitOption,
    SubmitPlan,
    Transfer,
    UpdateRecord,
    World,
)
from quintain.environments.registry import operator_endpoint
from quintain.environments.tasks.families import Difficulty, Family, FamilySource, Names, TaskKey
from quintain.environments.tool_calls import read_call, refusal, tool_schemas
from quintain.errors import InvalidInput
from quintain.records.protocols import Environment, Policy, TimeStep
from quintain.records.record import Record, require_number
from quintain.records.trajectory import Action, Observation, Task
from quintain.records.wording import shown

MAX_TURNS = 24
MOST_GUESSES = 5
"""Numbers without a source that an agent may name in a dialogue, apart from the expected ones."""


@dataclass(frozen=True)
class Subject:
    """The parts that distinguish one of the four environments."""

    family: Family
    system_prompt: str
    arguments: Mapping[str, type[Record]]
    """Tool -> record of its arguments."""
    build: Callable[[TaskKey], Scenario]

    @cached_property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """Schemas of its tools."""
        return tool_schemas(self.arguments)


class Dialogue:
    """One episode: a dialogue with one user."""

    max_turns = MAX_TURNS

    def __init__(self, about: Subject, user: Callable[[Scenario], User]) -> None:
        self.id = about.family.environment
        self.system_prompt, self.tools = about.system_prompt, about.tools
        self._about, self._make_user = about, user
        self._scenario: Scenario | None = None
        self._user: User
        self._world: World
        self._stated: set[Statement] = set()
        self._guesses: set[float] = set()
        self._numbers_shown: set[float] = set()

    def reset(self, task: Task) -> TimeStep:
        """Return the user's first message."""
        scenario = self._about.build(self._about.family.parse(task.id))
        self._world, self._user = World(scenario), self._make_user(scenario)
        self._scenario = scenario
        self._stated, self._guesses, self._numbers_shown = set(), set(), set(numbers_in(scenario.opening))
        return TimeStep(message=scenario.opening)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Carry out the call of one turn."""
        assert self._scenario is not None, "reset comes before step"
        arguments = read_call(actions, self._about.arguments)
        if isinstance(arguments, TimeStep):
            return arguments
        if isinstance(arguments, Respond):
            return self._respond(arguments.message)
        if isinstance(arguments, Submission):
            return self._submit(arguments)
        observation = self._world.carry_out(arguments)
        if not (observation.is_error or isinstance(arguments, UpdateRecord)):  # both repeat what the agent wrote
            self._numbers_shown |= numbers_in(str(observation.content))
        if isinstance(arguments, Transfer):
            return self._ended(observation)
        return TimeStep(observations=(observation,), info={"metrics": self._metrics()})

    def close(self) -> None:
        """Release the user's resources."""
        if self._scenario is not None:
            self._user.close()

    @property
    def _expected(self) -> SuccessConditions:
        """Conditions of a success, given what the user wants by now."""
        assert self._scenario is not None
        changed = self._scenario.changed
        return changed if changed is not None and self._user.corrected else self._scenario.expected

    def _respond(self, message: str) -> TimeStep:
        parsed = parse_message(message)
        reply = self._user.answer(message, parsed, self._note_statements(parsed))
        self._numbers_shown |= numbers_in(reply.text)
        sent = Observation(content="Sent.")
        if reply.leaves:
            return self._ended(sent, reply.text)
        return TimeStep(observations=(sent,), message=reply.text, info={"metrics": self._metrics()})

    def _note_statements(self, parsed: ParsedMessage) -> bool:
        """Record which expected statements a message makes, and return whether one of them is new.

        A statement counts if its sources were read before and the message names no rival. Naming a rival of an option or a status
        later retracts it; naming another number does not. After `MOST_GUESSES` guessed numbers no statement counts any more.
        """
        assert self._scenario is not None
        changed = self._scenario.changed
        expected = {*self._scenario.expected.statements, *(changed.statements if changed else ())}
        self._guesses |= parsed.numbers - self._numbers_shown - {statement.value for statement in expected}
        if len(self._guesses) > MOST_GUESSES:
            return False
        new = {one for one in expected if one.sources <= self._world.sources_read and _states(parsed, one)}
        is_new = bool(new - self._stated)
        self._stated = {one for one in self._stated if not _retracts(parsed, one)} | new
        return is_new

    def _submit(self, result: Submission) -> TimeStep:
        if (fault := self._world.submission_fault(result.values)) is not None:
            return TimeStep(observations=(refusal(fault),))
        self._world.submission = result.values
        return self._ended(None)

    def _ended(self, observation: Observation | None, message: str | None = None) -> TimeStep:
        state = self._world.meets(self._expected)
        shares = self._shares()
        asked = shares["asked"] == 1 or not self._user.is_certain
        success = state and asked and shares["told"] == shares["read"] == 1 and not self._user.misled
        return TimeStep(
            observations=(observation or Observation(content="Right." if success else "Wrong."),),
            message=message,
            reward=float(success),
            terminated=True,
            info={"metrics": {**self._metrics(), "state": float(state), "misled": float(self._user.misled)}},
        )

    def _metrics(self) -> dict[str, float]:
        return {**self._shares(), **self._user.costs()}

    def _shares(self) -> dict[str, float]:
        """Return the shares of the required questions, sources and statements that the agent has completed."""
        assert self._scenario is not None
        needed, statements, sources = self._scenario.needed, self._expected.statements, self._expected.sources
        return {
            "asked": len(needed & set(self._user.known)) / len(needed) if needed else 1.0,
            "read": len(sources & self._world.sources_read) / len(sources) if sources else 1.0,
            "told": sum(one in self._stated for one in statements) / len(statements) if statements else 1.0,
        }


def _states(parsed: ParsedMessage, statement: Statement) -> bool:
    return parsed.names_only(statement.value, statement.rivals) and (parsed.refuses or not statement.refuses)


def _retracts(parsed: ParsedMessage, statement: Statement) -> bool:
    return isinstance(statement.value, str) and any(
        parsed.names_only(rival, {statement.value, *statement.rivals} - {rival}) for rival in statement.rivals
    )


SCRIPTED = "scripted"
ENDPOINT = "endpoint:"
RULES = 2
"""Version of the conditions of a success; the families' own versions cover the tasks only."""

Temperature = Annotated[float, Field(ge=0, le=2), BeforeValidator(require_number)]


class _Dialogues(FamilySource):
    """Task source of one subject."""

    about: ClassVar[Subject]

    def __init__(
        self,
        difficulty: Difficulty = "all",
        types: Names = ("all",),
        user: str = SCRIPTED,
        user_temperature: Temperature = 0.0,
    ) -> None:
        """Choose tasks and the user.

        Args:
            difficulty: One level, or `all`.
            types: Some task types, or `all`.
            user: `scripted`, or `endpoint:NAME` with the name of an endpoint profile: its model plays the user.
            user_temperature: Sampling temperature of that model; 0 takes the most likely answer.
        """
        super().__init__(difficulty, types)
        self.version += f".{RULES}"
        self._user: Callable[[Scenario], User] = ScriptedUser
        self.waits = user != SCRIPTED
        if user == SCRIPTED:
            return
        if not user.startswith(ENDPOINT):
            raise InvalidInput(
                f"expected user to be {SCRIPTED!r} or 'endpoint:NAME', got {shown(user)}", code="bad_option"
            )
        from quintain.environments.conversation.model_user import played_by

        endpoint = operator_endpoint(user.removeprefix(ENDPOINT))
        self.at_once = endpoint.concurrency
        self._user = played_by(endpoint, lambda: read_key(endpoint, configuration().variable), user_temperature)
        # Results against different users are not comparable.
        played = f"{endpoint.base_url} {endpoint.model} {endpoint.extra} {user_temperature:g}"
        self.version += f"-user-{hashlib.sha256(played.encode()).hexdigest()[:12]}"

    def prompt(self, key: TaskKey) -> str:
        """Return the user's first message."""
        return self.about.build(key).opening

    def make(self) -> Environment:
        """Return a fresh environment."""
        return Dialogue(self.about, self._user)

    def expert(self, tasks: Sequence[Task]) -> Policy:
        """Return the scripted expert."""
        from quintain.environments.conversation.scripted_policy import Expert

        return Expert()


class Conversation(_Dialogues):
    """The task family `quintain/conversation`: a support desk."""

    family = desk.FAMILY
    about = Subject(
        desk.FAMILY,
        desk.SYSTEM_PROMPT,
        {
            "respond": Respond,
            "get_policy": GetPolicy,
            "find_records": FindRecords,
            "get_record": GetRecord,
            "update_record": UpdateRecord,
            "transfer_to_human_agents": Transfer,
        },
        desk.build,
    )


class Engineering(_Dialogues):
    """The task family `quintain/engineering`: requirements and incidents."""

    family = engineering.FAMILY
    about = Subject(
        engineering.FAMILY,
        engineering.SYSTEM_PROMPT,
        {"respond": Respond, "knowledge_base": KnowledgeBase, "read_file": ReadFile, "submit": SubmitPlan},
        engineering.build,
    )


class Advisory(_Dialogues):
    """The task family `quintain/advisory`: recommend the option that fits."""

    family = advisory.FAMILY
    about = Subject(
        advisory.FAMILY,
        advisory.SYSTEM_PROMPT,
        {"respond": Respond, "knowledge_base": KnowledgeBase, "submit": SubmitOption},
        advisory.build,
    )


class Discussion(_Dialogues):
    """The task family `quintain/discussion`: agree with right claims, correct wrong ones."""

    family = discussion.FAMILY
    about = Subject(
        discussion.FAMILY,
        discussion.SYSTEM_PROMPT,
        {"respond": Respond, "knowledge_base": KnowledgeBase, "submit": SubmitAgreed},
        discussion.build,
    )
