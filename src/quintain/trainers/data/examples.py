"""Dataset rows to examples, by method: runs, pairs, groups, labels or texts.

A row that gives no example is counted with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quintain.datasets.selection import agent_digest
from quintain.datasets.step_labels import labels_of, step_values_of, unweighted_reason
from quintain.records.dataset import DatasetRow, GroupRow, LabelledRow, PairRow, Row, StepLabelRow, TextRow
from quintain.records.hyperparameters.methods import (
    BCConfig,
    DistillConfig,
    DPOConfig,
    GRPOConfig,
    PPOConfig,
    RetrieverConfig,
    RewardConfig,
    SFTConfig,
    TrainingConfig,
)
from quintain.records.trajectory import Trajectory
from quintain.scoring.preferences.mining import Candidate, mine_pairs
from quintain.trainers.data.chunking import chunk
from quintain.trainers.data.example_batch import ExampleBatch as ExampleBatch
from quintain.trainers.data.retrieval_examples import add_calls, leave_out_without_negatives
from quintain.trainers.data.run_lengths import cut_off, penalised_rewards
from quintain.trainers.data.streams import Example, TokenRow, common_prefix, token_row
from quintain.trainers.data.teacher_tokens import with_recorded
from quintain.trainers.data.value_positions import read_run, read_steps, with_labels, with_parts
from quintain.trainers.losses.advantages import group_advantages, step_advantages
from quintain.trainers.losses.step_weights import cloning_weights, step_weights
from quintain.trainers.models.value_head import heads_of
from quintain.trainers.rendering.renderer import Renderer, Rendering
from quintain.trainers.rendering.styles import begins_with_bos
from quintain.trainers.rollouts.constraint import constraint_of, cost_of


@dataclass(frozen=True)
class ExampleMaker:
    """Creates examples for one model and one method."""

    renderer: Renderer
    config: TrainingConfig
    max_length: int
    texts: dict[str, int] = field(default_factory=dict)
    """Text of a need or a tool -> its number, for retrievers."""

    @staticmethod
    def of(
        tokenizer: Any, style: Literal["auto", "tools", "react"], config: TrainingConfig, context: int
    ) -> ExampleMaker:
        """Create a maker for a tokenizer and a style; rows have at most `max_length` and at most `context` tokens."""
        return ExampleMaker(Renderer.of(tokenizer, style), config, min(config.max_length or context, context))

    def make(self, rows: Sequence[Row]) -> ExampleBatch:
        """Return the examples of all rows, in their order."""
        batch = ExampleBatch()
        for row, factor in zip(rows, self.factors(rows), strict=False):
            self.take(row, batch, factor)
        if isinstance(self.config, RetrieverConfig):
            leave_out_without_negatives(batch)
        return batch

    def factors(self, rows: Iterable[Row]) -> Iterable[float | str]:
        """Yield each row's weight factor, or why it is left out; endless unless the method needs factors."""
        return _cloning_factors(rows, self.config) if isinstance(self.config, BCConfig) else repeat(1.0)

    def take(self, row: Row, batch: ExampleBatch, factor: float | str = 1.0) -> None:
        """Add the example of a row to `batch`, or count why there is none; `factor` comes from `factors`."""
        match row:
            case PairRow() | LabelledRow() | TextRow() if row.weight <= 0:
                batch.add("zero_weight")
            case DatasetRow() if isinstance(self.config, RetrieverConfig):
                tokenizer, n = self.renderer.tokenizer, self.config.hard_negatives
                add_calls(row, batch, tokenizer, self.max_length, n, self.texts)
            case DatasetRow():
                batch.add(factor if isinstance(factor, str) else self.run(row, batch, factor), _reward(row))
            case PairRow() if isinstance(self.config, RewardConfig):
                batch.add(self.valued_pair(row))
            case PairRow():
                batch.add(self.pair(row, batch))
            case StepLabelRow():
                batch.add(self.valued_steps(row))
            case LabelledRow():
                batch.add(self.labelled(row, batch))
            case GroupRow():
                batch.add(self.group(row, batch))
            case TextRow():
                batch.add(self.text(row))

    def run(self, row: DatasetRow, batch: ExampleBatch, factor: float = 1.0) -> Example | str:
        """Return the example of a run: SFT and behaviour cloning.

        With `step_weighting` the tokens of a step weigh r / mean(r) of the run's step rewards; see `step_weights`.
        """
        rendering = self._rendered(row.trajectory, row.weight * factor)
        if rendering.dropped:
            return rendering.dropped
        batch.truncated_turns += rendering.truncated_turns
        rows = rendering.rows
        if isinstance(self.config, DistillConfig) and self.config.teacher is None:
            rows = with_recorded(rows, row.trajectory, self.renderer.fingerprint, self.config.teacher_top_k)
            if not rows:
                return "no_recorded_logprobs"
        if isinstance(self.config, SFTConfig) and self.config.step_weighting == "reward":
            values = step_values_of(row.trajectory, row.step_values)
            batch.unweighted.update(filter(None, [unweighted_reason(values, positive=True)]))
            by_step = dict(zip(row.trajectory.agent_places, step_weights(values), strict=True))
            rows = [replace(r, weight=r.weight * r.at_steps(by_step, 1.0)) for r in rows]
        return Example(tuple(rows), (0,) * len(rows), (_reward(row) or 0.0,), 1.0, _key(row.trajectory))

    def pair(self, row: PairRow, batch: ExampleBatch) -> Example | str:
        """Return the example of a pair: member 0 is the chosen run, member 1 the rejected one.

        With `step_level` the common prefix of the two runs is masked in both. In the sigmoid and hinge losses it cancels anyway, and
        masking saves its cost; means over a run (IPO) and the SFT term change.
        """
        sides = []
        for name, trajectory in (("chosen", row.chosen), ("rejected", row.rejected)):
            rendering = self._rendered(trajectory, 1.0)
            if rendering.dropped:
                return f"{name}_{rendering.dropped}"
            batch.truncated_turns += rendering.truncated_turns
            sides.append(rendering.rows)
        return self._paired(sides, row.weight, f"{_key(row.chosen)}/{_key(row.rejected)}")

    def _paired(self, sides: list[list[TokenRow]], weight: float, key: str) -> Example | str:
        """Return a pair from the rows of a chosen and a rejected run."""
        if _agent_text(sides[0]) == _agent_text(sides[1]):
            return "equal_sides"
        if isinstance(self.config, DPOConfig) and self.config.step_level:
            sides = _from_the_branch_on(*sides)
            if not all(any(r.n_supervised for r in rows) for rows in sides):
                return "no_branch"
        member = (*(0 for _ in sides[0]), *(1 for _ in sides[1]))
        return Example((*sides[0], *sides[1]), member, (1.0, 0.0), weight, key, divisible=False)

    def valued_pair(self, row: PairRow) -> Example | str:
        """Return a pair for a reward model, each run read at its end; the chosen member's value is the pair's margin."""
        sides, names = list[TokenRow](), heads_of(self.config)
        for name, trajectory, parts in (
            ("chosen", row.chosen, row.chosen_parts),
            ("rejected", row.rejected, row.rejected_parts),
        ):
            reading = read_run(self.renderer, trajectory, self.max_length)
            if reading.dropped:
                return f"{name}_{reading.dropped}"
            sides += [with_parts(one, parts, names) for one in reading.rows] if len(names) > 1 else reading.rows
        if np.array_equal(sides[0].token_ids, sides[1].token_ids):
            return "equal_sides"
        key = f"{_key(row.chosen)}/{_key(row.rejected)}"
        return Example(tuple(sides), (0, 1), (row.margin or 0.0, 0.0), row.weight, key, divisible=False)

    def valued_steps(self, row: StepLabelRow) -> Example | str:
        """Return a run for a process reward model, read at the end of each labelled step."""
        heads = heads_of(self.config)
        reading = read_steps(self.renderer, row.trajectory, self.max_length)
        if reading.dropped:
            return reading.dropped
        known = [
            [np.nan if (label := labels.get(head)) is None else label for head in heads] for labels in labels_of(row)
        ]
        labels = dict(zip(row.trajectory.agent_places, known, strict=True))
        rows = tuple(r for r in (with_labels(r, labels, len(heads)) for r in reading.rows) if r.n_supervised)
        if not rows:
            return "no_step_labels"
        return Example(rows, (0,) * len(rows), key=_key(row.trajectory))

    def labelled(self, row: LabelledRow, batch: ExampleBatch) -> Example | str:
        """Return a run with a thumb up (value 1) or down (value -1)."""
        rendering = self._rendered(row.trajectory, 1.0)
        if rendering.dropped:
            return rendering.dropped
        batch.truncated_turns += rendering.truncated_turns
        label = 1.0 if row.desirable else -1.0
        rows = tuple(rendering.rows)
        return Example(rows, (0,) * len(rows), (label,), row.weight, _key(row.trajectory), divisible=False)

    def group(self, row: GroupRow, batch: ExampleBatch) -> Example | str:
        """Return a group of runs of one task: advantages for GRPO, rewards for trajectory ranking and PPO.

        Every reward counts in the group's mean, also of a run that cannot be rendered, or is left out because it was cut off.
        """
        config = self.config
        whole = _takes_whole_rollouts(config)
        if len(row.rewards) < 2 and (not whole or (isinstance(config, PPOConfig) and config.compares)):
            return "group_of_one"
        members: Iterable[tuple[int, list[TokenRow]]] = self._members(row, batch)
        if isinstance(config, GRPOConfig) and config.overlong_tokens is not None:
            members = list(members)  # lengths are needed before advantages
            rewards = penalised_rewards(row, dict(members), config)
            batch.penalised += sum(less < full for less, full in zip(rewards, row.rewards, strict=True))
            row = row.model_copy(update={"rewards": rewards})
        constraint = constraint_of(config)
        costs = [cost_of(run, constraint) if constraint else 0.0 for run in row.trajectories]
        advantages = _advantages(row.rewards, costs, config)
        if advantages is None:
            return "no_variance"
        kept, left_out = list[tuple[int, list[TokenRow]]](), Counter[str]()
        for place, run in members:
            if reason := self._left_out(row.trajectories[place], costs[place]):
                left_out[reason] += 1
            else:
                kept.append((place, self._with_advantage(run, row, place, float(advantages[place]), batch)))
        batch.left_out_members.update(left_out)
        if not kept:
            return "all_truncated" if left_out["truncated"] else "no_member_rendered"
        rows = tuple(one for _, run in kept for one in run)
        member = tuple(n for n, (_, run) in enumerate(kept) for _ in run)
        values = tuple(row.rewards[place] for place, _ in kept)
        if whole or isinstance(config, GRPOConfig):
            known = tuple(cost for place, _ in kept if constraint and (cost := costs[place]) is not None)
            return Example(rows, member, values, 1.0, row.key, cost=known)
        n_pairs = sum(a > b for a in values for b in values)
        return Example(rows, member, values, float(n_pairs), row.key, divisible=False) if n_pairs else "no_variance"

    def _left_out(self, run: Trajectory, cost: float | None) -> str | None:
        """Return why a run of a group has no part in the loss; None if it has."""
        if isinstance(self.config, GRPOConfig) and self.config.mask_truncated and cut_off(run):
            return "truncated"
        return "no_cost" if cost is None else None

    def of_rollout(self, row: GroupRow, batch: ExampleBatch) -> list[Example] | str:
        """Return the examples of a group of rollouts, or why there are none.

        GRPO and PPO take the whole group, distillation each run. DPO takes pairs of its runs (Guo et al. 2024, arXiv
        2402.04792, with the environment's rewards as the judge): the best and the worst, or all of unequal reward, at most
        `max_pairs_per_task`. Runs with equal text, or that cannot be rendered, are in no pair.
        """
        config = self.config
        if isinstance(config, DistillConfig):
            return [
                Example(tuple(rows), (0,) * len(rows), (row.rewards[place],), key=f"{row.key}/{place}")
                for place, rows in self._members(row, batch)
            ] or "no_member_rendered"
        if not isinstance(config, DPOConfig):
            example = self.group(row, batch)
            return example if isinstance(example, str) else [example]
        if len(row.rewards) > 1 and len(set(row.rewards)) == 1:
            return "no_variance"  # before anything is rendered: late in a run most groups are like this
        runs = dict(self._members(row, batch))
        # Named by place: run ids contain the job's id, on which the random choice must not depend.
        candidates = [
            Candidate(row.key, str(i), row.rewards[i], agent_digest(row.trajectories[i])) for i in sorted(runs)
        ]
        mined = mine_pairs(candidates, mode=config.pairs, max_pairs_per_task=config.max_pairs_per_task)
        # Mining has another name for the reason of equal rewards.
        reasons = ["no_variance" if reason == "no_contrast" else reason for reason in mined.tasks_left_out]
        examples = list[Example]()
        for chosen, rejected in ((int(pair.chosen), int(pair.rejected)) for pair in mined.pairs):
            key = f"{row.key}/{chosen}/{rejected}"
            pair = self._paired([runs[chosen], runs[rejected]], 1.0, key)
            if isinstance(pair, str):
                reasons.append(pair)
            else:
                examples.append(pair)
        return examples or (reasons[0] if reasons else "no_member_rendered")

    def _members(self, row: GroupRow, batch: ExampleBatch) -> Iterator[tuple[int, list[TokenRow]]]:
        """Yield place and rows of each run of a group that can be rendered; count the others."""
        for place, trajectory in enumerate(row.trajectories):
            rendering = self._rendered(trajectory, 1.0)
            if rendering.dropped:
                batch.left_out_members[rendering.dropped] += 1
                continue
            batch.truncated_turns += rendering.truncated_turns
            yield place, rendering.rows

    def text(self, row: TextRow) -> Example | str:
        """Return plain text in windows that start with the masked last token of the previous one; control tokens are text.

        Each window begins with the bos token where the tokenizer begins texts with it.
        """
        tokenizer = self.renderer.tokenizer
        bos = [tokenizer.bos_token_id] if begins_with_bos(tokenizer) else []
        ids = self.renderer.writer.encode(self.renderer.writer.spellings.defuse(row.text, own=True))
        if tokenizer.eos_token_id is not None:
            ids.append(tokenizer.eos_token_id)
        if len(ids) < 2:
            return "too_short"
        size, rows = self.max_length - len(bos), list[TokenRow]()
        for start in range(0, len(ids) - 1, size - 1):
            window = bos + ids[start : start + size]
            trained = [place > (len(bos) if start else 0) for place in range(len(window))]
            rows.append(token_row(window, trained, weight=[row.weight * is_trained for is_trained in trained]))
        return Example(tuple(rows), (0,) * len(rows))

    def fits(self, trajectory: Trajectory) -> bool:
        """Whether a run has any token in the loss."""
        return self._rendered(trajectory, 1.0).dropped is None

    def _rendered(self, trajectory: Trajectory, weight: float) -> Rendering:
        if isinstance(self.config, SFTConfig) and self.config.chunk:
            overlap = self.config.chunk_overlap
            return chunk(self.renderer, trajectory, self.max_length, overlap=overlap, weight=weight)
        return self.renderer.render(trajectory, self.max_length, weight)

    def _with_advantage(
        self, rows: Sequence[TokenRow], group: GroupRow, place: int, advantage: float, batch: ExampleBatch
    ) -> list[TokenRow]:
        """Return the rows of a run with its advantage in GRPO, spread over its steps where `step_level` is on."""
        if not isinstance(self.config, GRPOConfig) or _takes_whole_rollouts(self.config):
            return list(rows)
        if not self.config.step_level:
            return [replace(row, advantage=np.full(len(row), advantage, np.float32)) for row in rows]
        trajectory = group.trajectories[place]
        values = step_values_of(trajectory, group.step_values[place] if group.step_values else ())
        batch.unweighted.update(filter(None, [unweighted_reason(values)]))
        by_step = dict(zip(trajectory.agent_places, step_advantages(advantage, values), strict=True))
        return [replace(row, advantage=row.at_steps(by_step, advantage)) for row in rows]


def _takes_whole_rollouts(config: TrainingConfig) -> bool:
    """Whether advantages are those of a whole rollout (`trainers.rollouts`), so that groups of equal rewards teach too."""
    return isinstance(config, PPOConfig) or (isinstance(config, GRPOConfig) and config.by_role)


def _advantages(
    rewards: Sequence[float], costs: Sequence[float | None], config: TrainingConfig
) -> NDArray[np.float64] | None:
    """Return the advantages of a group's runs: 0 where only their costs or the whole rollout teach, None where nothing does."""
    if _takes_whole_rollouts(config):
        return np.zeros(len(rewards))
    if not isinstance(config, GRPOConfig):
        return group_advantages(rewards, scale=False)
    advantages = group_advantages(rewards, scale=config.scales)
    costs_differ = group_advantages(costs, scale=False) is not None
    return np.zeros(len(rewards)) if advantages is None and costs_differ else advantages


def _cloning_factors(rows: Iterable[Row], config: BCConfig) -> list[float | str]:
    """Return the weight of each run, or why it is left out: n softmax(reward / temperature) over the kept runs."""
    rewards = [_reward(row) if isinstance(row, DatasetRow) else None for row in rows]
    if config.min_reward is None and config.temperature is None:
        return [1.0] * len(rewards)
    reasons: list[str | None] = [
        "reward_unknown"
        if reward is None
        else "below_min_reward"
        if config.min_reward is not None and reward < config.min_reward
        else None
        for reward in rewards
    ]
    kept = [reward for reward, reason in zip(rewards, reasons, strict=True) if reason is None and reward is not None]
    weights: Iterable[Any] = (
        cloning_weights(kept, config.temperature) if config.temperature and kept else [1.0] * len(kept)
    )
    following = iter(weights)
    return [
        # float32 as in rows, where tiny weights are 0
        reason or float(np.float32(next(following)))
        for reason in reasons
    ]


def _from_the_branch_on(chosen: list[TokenRow], rejected: list[TokenRow]) -> list[list[TokenRow]]:
    """Mask the tokens before the first difference in both sides."""
    sides = [list(chosen), list(rejected)]
    for place, (left, right) in enumerate(zip(chosen, rejected, strict=False)):
        shared = common_prefix(left.token_ids, right.token_ids)
        for side in sides:
            side[place] = side[place].masked_before(shared)
        if shared < max(len(left), len(right)):
            break
    return sides


def _agent_text(rows: Sequence[TokenRow]) -> list[bytes]:
    return [row.token_ids[row.supervised].tobytes() for row in rows]


def _reward(row: DatasetRow) -> float | None:
    """Return the reward of a run: as exported, else of its outcome; None if unknown."""
    outcome = row.trajectory.outcome
    known = (row.reward, outcome.reward, outcome.status.verdict)
    return next((reward for reward in known if reward is not None), None)


def _key(trajectory: Trajectory) -> str:
    return trajectory.id or trajectory.identity
