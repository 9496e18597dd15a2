"""Conversations of a person with an agent: the spec of their job, and the two line files in its folder.

`inputs/messages.jsonl` has what the person sends, written by tools. `conversation.jsonl` has the steps and the turns of the
person, written by the worker.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from quintain.records.agent import Agent, Sampling
from quintain.records.labels.judging import Endpoint
from quintain.records.record import Record
from quintain.records.trajectory import Step

MESSAGES, CONVERSATION = "inputs/messages.jsonl", "conversation.jsonl"
"""Line files of `TalkMessage` and `TalkLine` in the job's folder."""

TalkEnd = Literal["keep", "discard"]
"""End of a conversation: keep stores it as a run."""


class TalkSpec(Record):
    """Let a person talk to an agent."""

    kind: Literal["talk"] = "talk"
    agent: Agent
    endpoint: Endpoint | None = Field(default=None, description="Profile of an agent that acts through an endpoint.")
    sampling: Sampling = Sampling()
    environment: str | None = Field(
        default=None, description="Provides the system prompt and the tools, on its first training task. Null: none."
    )
    message: str = Field(description="The first message of the person.")
    seed: int = 0
    idle_s: float = Field(default=300.0, gt=0, description="Seconds without a message after which it ends.")


class TalkMessage(Record):
    """One message of the person, or the end of the conversation."""

    text: str = ""
    end: TalkEnd | None = None


class TalkLine(Record):
    """A step of the conversation, the report that the agent waits for the person, or what can be asked."""

    step: Step | None = None
    read: int | None = Field(default=None, description="Messages read so far, where the agent waits for the next one.")

    example: str | None = Field(default=None, description="A task of the environment as it would ask it.")

    @model_validator(mode="after")
    def _one_of_three(self) -> Self:
        if sum(part is not None for part in (self.step, self.read, self.example)) != 1:
            raise ValueError("expected one of a step, a count of messages and an example, got several or none")
        return self
