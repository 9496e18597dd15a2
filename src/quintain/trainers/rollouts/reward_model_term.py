"""GRPO's reward with a reward model: alpha times the task's reward plus beta times the model's value of the run.

The value is sigma(r) of a reward model, or the mean over the steps of a step model: a sum would reward the number of steps. Both are in
0..1, which limits the gain of exploiting the model. The KL term of the loss (`kl_coefficient`) keeps the policy near its start, where
the model was trained. A run that the model cannot read leaves its group and is counted.

With `refresh_every_steps` the model's head, not its body, is fitted further on the latest rollouts after they have been valued: a step
model to the outcome of the run at each step, a reward model to the order of successes and failures of a group. The body is fixed, so
its hidden states of a rollout can be reused, and a checkpoint contains the head alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from quintain.records.dataset import GroupRow, Row, StepValues
from quintain.records.hyperparameters.methods import GRPOConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.trajectory import Trajectory
from quintain.trainers.reward_models import RewardModel, RunValue

UNREAD = "unread_by_reward_model"
"""Why a run is left out of its group."""

_REFRESH_UPDATES = 20
_REFRESH_RATE = 1e-3
"""AdamW updates and learning rate of a refresh, each on the whole rollout: a small correction of the head."""


@dataclass
class RewardModelTerm:
    """A reward model as part of GRPO's reward."""

    model: RewardModel
    config: GRPOConfig
    left_out: Counter[str] = field(default_factory=Counter)
    """Runs that the model could not read."""
    terms: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """Key of a group -> means of its terms."""
    refreshed_at: int = 0
    """Optimizer step of the latest refresh."""

    @staticmethod
    def of(spec: TrainSpec) -> RewardModelTerm | None:
        """Load the reward model of a job; None without a reward model."""
        if not isinstance(spec.config, GRPOConfig) or spec.reward_agent is None:
            return None
        return RewardModelTerm(RewardModel.of(spec.reward_agent), spec.config)

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Return the groups of a dataset with mixed rewards, without groups of which no run can be read."""
        groups = [self._mixed(row) for row in rows if isinstance(row, GroupRow)]
        return [mixed for mixed, _ in groups if mixed is not None]

    def rollout(self, groups: Sequence[GroupRow], step: int) -> list[GroupRow]:
        """Return the groups of a rollout with mixed rewards; then refresh the head on their outcomes, if due."""
        self.terms.clear()
        pairs = [self._mixed(group) for group in groups]
        every = self.config.refresh_every_steps
        if every is not None and step - self.refreshed_at >= every:
            self._refresh([values for _, values in pairs])
            self.refreshed_at = step
        return [mixed for mixed, _ in pairs if mixed is not None]

    def means(self, keys: Sequence[str]) -> dict[str, float | None]:
        """Return `reward_task` and `reward_model`, means over the groups of these keys, before alpha and beta."""
        found = [self.terms[key] for key in keys if key in self.terms]
        return {name: mean_of([v for terms in found if (v := terms[name]) is not None]) for name in _TERMS}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: the counts, and a refreshed head."""
        head = {name: tensor.detach().cpu().clone() for name, tensor in self.model.head.state_dict().items()}
        refreshed = {"head": head, "refreshed_at": self.refreshed_at} if self.config.refresh_every_steps else {}
        return {"left_out": dict(self.left_out), **refreshed}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.left_out = Counter(state["left_out"])
        if "head" in state:
            self.model.head.load_state_dict(state["head"])
            self.refreshed_at = state["refreshed_at"]

    def _mixed(self, group: GroupRow) -> tuple[GroupRow | None, list[tuple[Trajectory, RunValue]]]:
        valued = self.model.read(group.trajectories)
        kept = [
            (run, reward, value)
            for run, reward, value in zip(group.trajectories, group.rewards, valued, strict=True)
            if isinstance(value, RunValue)
        ]
        if unread := len(valued) - len(kept):
            self.left_out[UNREAD] += unread
        if not kept:
            return None, []
        tasks, values = [reward for _, reward, _ in kept], [value.value for *_, value in kept]
        alpha, beta = self.config.alpha, self.config.beta
        # With alpha 0 a run needs no verdict, and one without has a task reward of 0 that means nothing.
        known = [reward for run, reward, _ in kept if alpha or run.outcome.status.verdict is not None]
        self.terms[group.key] = {"reward_task": mean_of(known), "reward_model": mean_of(values)}
        steps = tuple(_step_values(run, value) for run, _, value in kept)
        rewards = tuple(alpha * task + beta * value for task, value in zip(tasks, values, strict=True))
        update: dict[str, Any] = {"trajectories": tuple(run for run, *_ in kept), "rewards": rewards}
        # A reward model of whole runs values no steps: those of the dataset stay, of the runs that stay.
        places = [place for place, value in enumerate(valued) if isinstance(value, RunValue)]
        update["step_values"] = (
            steps if any(steps) else tuple(group.step_values[i] for i in places if group.step_values)
        )
        mixed = group.model_copy(update=update)
        return mixed, [(run, value) for run, _, value in kept]

    def _refresh(self, groups: Sequence[Sequence[tuple[Trajectory, RunValue]]]) -> None:
        """Fit the head to outcomes: -log sigma(r_i - r_j) over success i and failure j of a group, or -log p(outcome)."""
        loss = self._step_loss(groups) if self.model.values_steps else self._pair_loss(groups)
        if loss is None:
            return
        head = self.model.head
        optimizer = torch.optim.AdamW(head.parameters(), lr=_REFRESH_RATE, weight_decay=0.0)
        for _ in range(_REFRESH_UPDATES):
            optimizer.zero_grad()
            with torch.enable_grad():
                value: torch.Tensor = loss()
            value.backward()
            optimizer.step()
        head.zero_grad(set_to_none=True)

    def _step_loss(self, groups: Sequence[Sequence[tuple[Trajectory, RunValue]]]) -> Any:
        known = [
            (verdict, value.states)
            for group in groups
            for run, value in group
            if (verdict := run.outcome.status.verdict) is not None
        ]
        if not known:
            return None
        states = torch.cat([states for _, states in known])
        labels = torch.cat(
            [states.new_full((len(states), 1), verdict, dtype=torch.float32) for verdict, states in known]
        )
        names = self.model.head.names
        place = names.index("value") if "value" in names else 0
        return lambda: F.binary_cross_entropy_with_logits(self.model.head(states)[:, place : place + 1], labels)

    def _pair_loss(self, groups: Sequence[Sequence[tuple[Trajectory, RunValue]]]) -> Any:
        better, worse = list[torch.Tensor](), list[torch.Tensor]()
        for group in groups:
            good = [value.states for run, value in group if run.outcome.status.verdict == 1.0]
            bad = [value.states for run, value in group if run.outcome.status.verdict == 0.0]
            better += [states for states in good for _ in bad]
            worse += [states for _ in good for states in bad]
        if not better:
            return None
        left, right = torch.cat(better), torch.cat(worse)
        return lambda: -F.logsigmoid((self.model.head(left) - self.model.head(right))[:, 0]).mean()


_TERMS = ("reward_task", "reward_model")


def _step_values(run: Trajectory, value: RunValue) -> StepValues:
    """Return the model's value of each agent step, for step-level advantages; empty of a model of whole runs."""
    of_step = {step.step: step.value for step in value.steps}
    return tuple(of_step.get(n) for n in range(len(run.agent_steps))) if of_step else ()


def mean_of(values: Sequence[float]) -> float | None:
    """Return the mean of some values; None of none."""
    return sum(values) / len(values) if values else None
