"""The four task families of dialogues, with their tools and options."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from quintain.endpoints.client import read_key
from quintain.environments.conversation import advisory, discussion, engineering
from quintain.environments.conversation import support_desk as desk
from quintain.environments.conversation.environment import Dialogue, Subject
from quintain.environments.conversation.scenario import Scenario
from quintain.environments.conversation.user import ScriptedUser, User
from quintain.environments.conversation.world import (
    FindRecords,
    GetPolicy,
    GetRecord,
    KnowledgeBase,
    ReadFile,
    Respond,
    SubmitAgreed,
    SubmitOption,
    SubmitPlan,
    Transfer,
    UpdateRecord,
)
from quintain.environments.registry import operator_endpoint, operator_variable
from quintain.environments.tasks.families import Difficulty, FamilySource, Names, TaskKey
from quintain.errors import InvalidInput
from quintain.records.protocols import Environment, Policy
from quintain.records.record import require_number, shown
from quintain.records.trajectory import Task

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
        self._user = played_by(endpoint, lambda: read_key(endpoint, operator_variable), user_temperature)
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
