"""The examples of some rows, counts of rows that give none, and what to do about each reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from quintain.trainers.data.streams import Example


@dataclass
class ExampleBatch:
    """Examples, and counts of what was left out."""

    examples: list[Example] = field(default_factory=list)
    rewards: list[float | None] = field(default_factory=list)
    """Reward of each example's run; None if unknown, or without a single run."""
    dropped: Counter[str] = field(default_factory=Counter)
    truncated_turns: int = 0
    left_out_members: Counter[str] = field(default_factory=Counter)
    """Runs of groups that could not be rendered, by reason; their groups stay."""
    left_out_calls: Counter[str] = field(default_factory=Counter)
    """Calls from which a retriever cannot learn, by reason."""
    unweighted: Counter[str] = field(default_factory=Counter)
    """Runs whose steps all weigh alike although step weights are on, by reason."""
    penalised: int = 0
    """Runs whose reward was lowered for their length."""

    def add(self, example: Example | str, reward: float | None = None) -> None:
        """Add an example, or count the reason why there is none."""
        if isinstance(example, str):
            self.dropped[example] += 1
        else:
            self.examples.append(example)
            self.rewards.append(reward)


REMEDIES = {
    "nothing_supervised": "mark the steps to learn from with train=true",
    "template_refused": "the chat template does not write the messages of these runs, such as a call without a result before another "
    "turn; train what register_agent(name=..., model=..., template='react') gives, or use another model",
    "too_short": "give longer texts",
    "equal_sides": "export pairs whose agent text differs",
    "no_branch": "set step_level to false",
    "no_variance": "export groups whose rewards differ, or choose a `reward` that ranks their runs",
    "group_of_one": "collect several runs of each task",
    "all_truncated": "every run of these groups was cut off: set mask_truncated to false, or raise max_new_tokens and max_turns",
    "below_min_reward": "lower min_reward",
    "reward_unknown": "score the runs and export again, or set min_reward and temperature to null",
    "no_calls": "export runs that call tools and contain their definitions (`tools`)",
    "zero_weight": "export rows with a weight above 0",
}
"""Reason of `ExampleBatch.dropped` -> what to do."""

ONLINE = {
    "no_variance": "all runs of a task earned the same reward: raise the temperature or group_size, choose tasks that the "
    "agent solves sometimes or a `reward` that ranks their runs, or begin with sft on good runs",
    "group_of_one": "raise group_size, or choose an environment that gives a verdict to every episode",
}
"""The same where the model acts while it learns."""


def reasons(counts: Mapping[str, int]) -> str:
    """Return reasons with their numbers, as text."""
    return ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))


def remedies_for(dropped: Mapping[str, int], *, online: bool) -> list[str]:
    """Return the remedies of the reasons, the most frequent first; a reason without one is left out."""
    known = REMEDIES | (ONLINE if online else {})
    return [known[reason] for reason, _ in Counter(dropped).most_common() if reason in known]
