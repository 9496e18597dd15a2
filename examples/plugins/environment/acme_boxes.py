"""Find the coin: an environment as in the tutorial "Write your own environment"."""

from __future__ import annotations

from collections.abc import Sequence

from quintain.records.protocols import TimeStep
from quintain.records.trajectory import Action, Observation, Task

BOX = {"type": "object", "properties": {"box": {"type": "integer"}}, "required": ["box"]}
LOOK = {"type": "function", "function": {"name": "look", "description": "Look into a box.", "parameters": BOX}}


class Boxes:
    """Find the box with the coin."""

    id, version = "acme/boxes", "1"
    may_hang = False  # without this line its episodes run in a child process, which can be killed

    def __init__(self, boxes: int = 4) -> None:  # an option: acme/boxes?boxes=9
        self.boxes = boxes

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """Return distinct tasks; the splits share none."""
        prompt = f"One of {self.boxes} boxes holds a coin. Find it."
        return [Task(id=f"boxes/{split}/{seed}/{i}", prompt=prompt) for i in range(n)]

    def make(self) -> Room:
        """Return an environment for one episode."""
        return Room(self.boxes)


class Room:
    """One episode."""

    id, system_prompt, tools, max_turns = "acme/boxes", "Look until you see the coin.", (LOOK,), 6

    def __init__(self, boxes: int) -> None:
        self.boxes = boxes

    def reset(self, task: Task) -> TimeStep:
        """Begin a task; everything follows from it."""
        self.coin = sum((task.id or "").encode()) % self.boxes
        return TimeStep(message=task.prompt)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Carry out the calls; a bad one is an observation, never an exception."""
        found = [(action.args or {}).get("box") == self.coin for action in actions]
        results = tuple(Observation(content="coin" if hit else "empty") for hit in found)
        return TimeStep(observations=results, reward=1.0 if any(found) else None, terminated=any(found))

    def close(self) -> None:
        """End the episode."""
