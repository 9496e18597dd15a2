"""Convert a run to chat messages."""

from __future__ import annotations

from typing import Literal

from quintain.records.protocols import Message
from quintain.records.trajectory import Actor, Trajectory, text_of


def messages_of(trajectory: Trajectory) -> list[tuple[Message, int]]:
    """Return the chat messages of a run, each with its step index (-1 for the task prompt, if no step contains it).

    A chat that the agent opens keeps its order: its task prompt is what the user answered.
    """
    messages: list[tuple[Message, int]] = []
    prompt = trajectory.task.prompt
    asked = {text_of(step.message).strip() for step in trajectory.steps if step.actor is Actor.USER}
    for index, step in enumerate(trajectory.steps):
        if step.actor is Actor.AGENT:
            if prompt and prompt.strip() not in asked and all(m.role == "system" for m, _ in messages):
                messages.append((Message(role="user", content=prompt), -1))
            message = Message(role="assistant", content=step.message, thought=step.thought, actions=step.actions)
            messages.append((message, index))
        else:
            role: Literal["system", "user"] = "system" if step.actor is Actor.SYSTEM else "user"
            messages.append((Message(role=role, content=step.message), index))
        messages += [(Message(role="tool", content=o.content, call_id=o.call_id), index) for o in step.observations]
    return messages
