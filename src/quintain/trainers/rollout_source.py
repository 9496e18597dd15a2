"""Examples that the model makes itself: rollouts in an environment, each learnt from for a few optimizer steps.

Iteration i covers the steps i u .. i u + u - 1, u being `updates_per_rollout`. At the first of them the live model acts,
and its groups become examples (a group for GRPO, pairs of its runs for DPO); all u steps then see all of these. Old
log-probs are those of the rollout, so the first update is on-policy and the later ones are held near it by GRPO's clipping;
DPO compares with the model that the run began with.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch

from quintain.records.dataset import GroupRow
from quintain.records.trajectory import OutcomeStatus
from quintain.trainers.data.streams import Example, TokenRow
from quintain.trainers.reward_mix import RewardMix

_VERDICTS = {OutcomeStatus.SUCCESS: 1.0, OutcomeStatus.FAILURE: 0.0, OutcomeStatus.TRUNCATED: 0.0}
_STREAMS = tuple(field.name for field in fields(TokenRow))


class RolloutSource:
    """`schedule.ExampleSource` over rollouts."""

    def __init__(
        self,
        collect: Callable[[int], list[GroupRow]],
        make: Callable[[GroupRow], list[Example] | str],
        *,
        rollouts: int,
        updates_per_rollout: int,
        max_steps: int | None = None,
        mix: RewardMix | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Plan the run; nothing is played yet.

        Args:
            collect: Plays iteration i with the model as it is and returns its groups; none: it was asked to stop, and
                the iteration counts as not played.
            make: Turns a group into examples, or says in a word why it cannot be learnt from (`no_variance`, ...).
            rollouts: Iterations of the run.
            updates_per_rollout: Optimizer steps on each.
            max_steps: Bound of the steps; None: off.
            mix: What a reward model adds to the rewards of groups; None: they stay as they are.
            clock: Seconds, for the rate of tokens.
        """
        self._collect, self._make, self._clock, self._mix = collect, make, clock, mix
        self._updates = updates_per_rollout
        self.total_steps = min(rollouts * updates_per_rollout, max_steps or sys.maxsize)
        self.skipped: Counter[str] = Counter()
        """Groups that could not be learnt from, over the whole run, by reason."""
        self._iteration = -1
        self._examples: list[Example] = []
        self._metrics: dict[str, float | None] = {}
        self._next = 0

    def step(self, step: int) -> Sequence[Example]:
        """The examples of a step's iteration, which is played if it has not been.

        Returns:
            None where no group can be learnt from, or where the rollout was stopped; the second leaves no trace, and the
            iteration is played when the step is asked for again.
        """
        iteration = step // self._updates
        if iteration != self._iteration and not self._play(iteration):
            return []
        self._next = step + 1
        return self._examples

    def ends_epoch(self, step: int) -> bool:
        """Is `step` the last that sees its rollout?"""
        return (step + 1) % self._updates == 0

    def metrics(self) -> dict[str, float | None]:
        """Figures of the newest rollout.

        Success rate and turns are means over its episodes (no verdict, no part in the rate); `new_tokens_per_s` counts
        sampled tokens by the seconds that gathering took. Skipped groups are counted in all, and by reason; `examples` is
        what the others gave, as many as there are groups, or pairs.
        """
        return dict(self._metrics)

    def state(self) -> dict[str, Any]:
        """The iteration under way after the step that was asked for last: its examples, as tensors.

        An iteration whose steps are all taken is not held: nothing needs it any more.
        """
        used_up = self._next % self._updates == 0
        return {
            "next": self._next,
            "iteration": -1 if used_up else self._iteration,
            "examples": [] if used_up else [_packed(example) for example in self._examples],
            "metrics": dict(self._metrics),
            "skipped": dict(self.skipped),
            "mix": self._mix.state() if self._mix else {},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state, without playing the iteration under way again."""
        self._next, self._iteration = state["next"], state["iteration"]
        self._examples = [_unpacked(example) for example in state["examples"]]
        self._metrics = dict(state["metrics"])
        self.skipped = Counter(state["skipped"])
        if self._mix:
            self._mix.restore(state["mix"])

    def _play(self, iteration: int) -> bool:
        """Let the model act; False: it was stopped."""
        began = self._clock()
        groups = self._collect(iteration)
        seconds = self._clock() - began
        if not groups:
            return False
        terms: dict[str, float | None] = {}
        if self._mix:
            groups = self._mix.rollout(groups, iteration * self._updates)
            terms = self._mix.means([group.key for group in groups])
        made = [self._make(group) for group in groups]
        self._iteration = iteration
        used = [examples for examples in made if not isinstance(examples, str)]
        self._examples = [example for examples in used for example in examples]
        skipped = Counter(reason for reason in made if isinstance(reason, str))
        self.skipped += skipped
        self._metrics = (
            _figures(groups, seconds)
            | terms
            | {
                "groups_used": float(len(used)),
                "examples": float(len(self._examples)),
                "groups_skipped": float(skipped.total()),
                **{f"groups_skipped_{reason}": float(count) for reason, count in sorted(skipped.items())},
            }
        )
        return True


def _figures(groups: Sequence[GroupRow], seconds: float) -> dict[str, float | None]:
    runs = [run for group in groups for run in group.trajectories]
    verdicts = [_VERDICTS[run.outcome.status] for run in runs if run.outcome.status in _VERDICTS]
    turns = [sum(step.sampled is not None for step in run.agent_steps) for run in runs]
    new_tokens = sum(len(step.sampled.token_ids) for run in runs for step in run.agent_steps if step.sampled)
    return {
        "success_rate": _mean(verdicts),
        "mean_reward": _mean([reward for group in groups for reward in group.rewards]),
        "episodes": float(len(runs)),
        "mean_turns": _mean(turns),
        "new_tokens_per_s": new_tokens / seconds if seconds > 0 else None,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _packed(example: Example) -> dict[str, Any]:
    """An example as `torch.load(weights_only=True)` reads it; a stream that is not used is left out."""
    rows = [
        {name: torch.from_numpy(stream) for name in _STREAMS if (stream := getattr(row, name)) is not None}
        for row in example.rows
    ]
    return vars(example) | {"rows": rows, "member": list(example.member), "value": list(example.value)}


def _unpacked(state: dict[str, Any]) -> Example:
    rows = tuple(TokenRow(**{name: stream.numpy() for name, stream in row.items()}) for row in state["rows"])
    return Example(**state | {"rows": rows, "member": tuple(state["member"]), "value": tuple(state["value"])})
