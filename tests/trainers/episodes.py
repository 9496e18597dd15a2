"""A short episode and the pieces that tests look for in it."""

from __future__ import annotations

from typing import Any

from quintain.records.trajectory import Action, Actor, Observation, Step, Task, Trajectory

TOOLS: tuple[dict[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Find an item",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
        },
    },
)


def episode(n_turns: int = 3, *, question: str = "price of the mango?", **changes: Any) -> Trajectory:
    """System, user, then `n_turns` agent turns: all but the last call a tool."""
    asked = [Step(actor=Actor.SYSTEM, message="You are an agent."), Step(actor=Actor.USER, message=question)]
    looked_up = [
        Step(
            actor=Actor.AGENT,
            thought=f"look it up {turn}",
            actions=(Action(tool="search", args={"query": f"mango {turn}"}),),
            observations=(Observation(content=f"result {turn}: id 12"),),
        )
        for turn in range(n_turns - 1)
    ]
    answered = Step(actor=Actor.AGENT, message="It costs 40.")
    return Trajectory(tools=TOOLS, task=Task(prompt=question), steps=(*asked, *looked_up, answered), **changes)
