"""Examples of rollouts: the model acts in an environment, and each rollout is used for several optimizer steps.

Iteration i covers the steps i u .. i u + u - 1, with u = `updates_per_rollout`. At its first step the live model acts, and its groups
become examples (a group for GRPO and PPO, pairs of runs for DPO); all u steps use all of them, or one minibatch after the other. Old
log-probs are those of the rollout, so the first update is on-policy, and clipping limits the later ones. DPO compares with the start
model.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from quintain.records.dataset import GroupRow
from quintain.trainers.data.example_files import packed, unpacked
from quintain.trainers.data.streams import Example
from quintain.trainers.distributed.process_group import ONE_PROCESS, ProcessGroup
from quintain.trainers.rollouts.reward_model_term import RewardModelTerm, mean_of


class RolloutStage(Protocol):
    """Completes the examples of a rollout together, with their own state."""

    def __call__(
        self, examples: Sequence[Example], groups: Sequence[GroupRow]
    ) -> tuple[list[Example], dict[str, float | None]]:
        """Return the completed examples, and figures of the rollout; `groups` are all that were played."""

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""


class RolloutSource:
    """`schedule.ExampleSource` over rollouts."""

    def __init__(
        self,
        collect: Callable[[int], list[GroupRow]],
        make: Callable[[GroupRow], list[Example] | str],
        *,
        rollouts: int,
        updates_per_rollout: int,
        minibatches: int = 1,
        seed: int = 0,
        max_steps: int | None = None,
        stage: RolloutStage | None = None,
        reward_model: RewardModelTerm | None = None,
        figures_of: Callable[[Sequence[str]], dict[str, float | None]] = lambda keys: {},
        clock: Callable[[], float] = time.perf_counter,
        group: ProcessGroup = ONE_PROCESS,
        before: Callable[[], None] = lambda: None,
        all_collect: bool = False,
    ) -> None:
        """Plan the run; no episode is played yet.

        Args:
            collect: Plays iteration i with the current model and returns its groups; none if it was stopped, and then the
                iteration counts as not played.
            make: Returns the examples of a group, or the reason why there are none (`no_variance`, ...).
            rollouts: Number of iterations.
            updates_per_rollout: Optimizer steps on each.
            minibatches: Parts of a rollout, one for each optimizer step, shuffled anew each time that all were used.
            seed: Seed of that order.
            max_steps: Maximum number of steps; None: no limit.
            stage: Completes the examples of a rollout; None: they are complete.
            reward_model: Adds a reward model to the rewards of groups; None: no reward model.
            figures_of: Returns figures of the groups with these keys, such as means of the parts of their reward.
            clock: Seconds, for the rate of tokens.
            group: The processes of the run; the first one plays, and has the reward model.
            before: Is called in every process before the first one plays.
            all_collect: Whether `collect` is called in every process; its result is that of the first one.
        """
        self._before, self._all_collect = before, all_collect
        self._group = group
        self._collect, self._make, self._clock, self._reward_model = collect, make, clock, reward_model
        self._updates, self._figures_of, self._stage = updates_per_rollout, figures_of, stage
        self._minibatches, self._seed = minibatches, seed
        self.total_steps = min(rollouts * updates_per_rollout, max_steps or sys.maxsize)
        self.skipped: Counter[str] = Counter()
        """Skipped groups of the whole run, by reason."""
        self.counts = Counter[str]()
        """Of the whole run: examples, token rows, rollouts, those whose runs all earned the same reward, and those with a cost."""
        self._iteration = -1
        self._examples: list[Example] = []
        self._metrics: dict[str, float | None] = {}
        self._next = 0

    def step(self, step: int) -> Sequence[Example]:
        """Return the examples of a step's iteration; play it first, if necessary.

        Returns:
            No examples if no group gives any, or if the rollout was stopped. A stopped iteration is played again at the next call.
        """
        iteration = step // self._updates
        if iteration != self._iteration and not self._play(iteration):
            return []
        self._next = step + 1
        return self._minibatch(iteration, step % self._updates)

    def _minibatch(self, iteration: int, update: int) -> Sequence[Example]:
        epoch, part = divmod(update, self._minibatches)
        if self._minibatches == 1:
            return self._examples
        order = list(range(len(self._examples)))
        random.Random(f"minibatches/{self._seed}/{iteration}/{epoch}").shuffle(order)
        return [self._examples[i] for i in sorted(order[part :: self._minibatches])]

    def played(self) -> Sequence[Example]:
        """Return the examples of the current rollout."""
        return self._examples

    def ends_epoch(self, step: int) -> bool:
        """Whether `step` is the last one on its rollout."""
        return (step + 1) % self._updates == 0

    def metrics(self) -> dict[str, float | None]:
        """Return the figures of the latest rollout.

        Success rate and turns are means over its episodes; episodes without a verdict are not in the rate. `new_tokens_per_s` is
        sampled tokens divided by the seconds of collecting. Skipped groups are counted in total and by each reason there was so
        far; `examples` counts the groups, or pairs, of the others.
        """
        return dict(self._metrics)

    def state(self) -> dict[str, Any]:
        """Return the current iteration with its examples; without them once all its steps are taken."""
        used_up = self._next % self._updates == 0
        return {
            "next": self._next,
            "iteration": -1 if used_up else self._iteration,
            "examples": None if used_up else torch.frombuffer(bytearray(packed(self._examples)), dtype=torch.uint8),
            "metrics": dict(self._metrics),
            "skipped": dict(self.skipped),
            "made": dict(self.counts),
            "mix": self._reward_model.state() if self._reward_model else {},
            "stage": self._stage.state() if self._stage else {},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state of a checkpoint; the current iteration is not played again."""
        self._next, self._iteration = state["next"], state["iteration"]
        kept = state["examples"]
        self._examples = [] if kept is None else unpacked(kept.numpy().tobytes()).examples
        self._metrics = dict(state["metrics"])
        self.skipped = Counter(state["skipped"])
        self.counts = Counter(state["made"])
        if self._reward_model:
            self._reward_model.restore(state["mix"])
        if self._stage:
            self._stage.restore(state["stage"])

    def _play(self, iteration: int) -> bool:
        """Let the model act; return False if it was stopped."""
        self._before()
        began = self._clock()
        played = self._collect(iteration) if self._all_collect else None
        groups, terms, seconds = self._group.from_first(lambda: self._valued(played, iteration, began))
        if not groups:
            return False
        results = [self._make(group) for group in groups]
        self._iteration = iteration
        used = [examples for examples in results if not isinstance(examples, str)]
        self._examples = [example for examples in used for example in examples]
        if self._stage:
            self._examples, figures = self._stage(self._examples, groups)
            terms |= figures
        self.counts += Counter(examples=len(self._examples), rows=sum(len(example.rows) for example in self._examples))
        is_level = len({reward for group in groups for reward in group.rewards}) == 1
        self.counts += Counter(
            rollouts=1, level_rollouts=int(is_level), costly_rollouts=int(bool(terms.get("mean_cost")))
        )
        skipped = Counter(reason for reason in results if isinstance(reason, str))
        self.skipped += skipped
        self._metrics = (
            _figures(groups, seconds)
            | terms
            | {
                "groups_used": float(len(used)),
                "examples": float(len(self._examples)),
                "groups_skipped": float(skipped.total()),
                **{f"groups_skipped_{reason}": float(skipped[reason]) for reason in sorted(self.skipped)},
            }
        )
        return True

    def _valued(
        self, played: list[GroupRow] | None, iteration: int, began: float
    ) -> tuple[list[GroupRow], dict[str, float | None], float]:
        """Return the groups with the rewards of the reward model added, figures of their reward, and the seconds of acting."""
        groups = self._collect(iteration) if played is None else played
        seconds = self._clock() - began
        terms = self._figures_of([group.key for group in groups])
        if self._reward_model and groups:
            groups = self._reward_model.rollout(groups, iteration * self._updates)
            terms |= self._reward_model.means([group.key for group in groups])
        return groups, terms, seconds


def _figures(groups: Sequence[GroupRow], seconds: float) -> dict[str, float | None]:
    runs = [run for group in groups for run in group.trajectories]
    verdicts = [verdict for run in runs if (verdict := run.outcome.status.verdict) is not None]
    turns = [sum(step.sampled is not None for step in run.agent_steps) for run in runs]
    new_tokens = sum(len(step.sampled.token_ids) for run in runs for step in run.agent_steps if step.sampled)
    return {
        "success_rate": mean_of(verdicts),
        "mean_reward": mean_of([reward for group in groups for reward in group.rewards]),
        "episodes": float(len(runs)),
        "mean_turns": mean_of(turns),
        "new_tokens_per_s": new_tokens / seconds if seconds > 0 else None,
    }
