"""Evaluation of a model on recorded turns: their likelihood, and the model's own next action.

Loss and token accuracy use teacher forcing, over exactly the tokens that training would supervise. The next action is decoded greedily
from each recorded prefix and parsed as in an episode. So another thought, or another order of arguments, still counts as the same
action. A run without any action is a question and its answer in words: the model's own answer is checked by the task's, and
without a stated answer there is no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from quintain.checkers.check import check, uncheckable
from quintain.records.agent import Agent, Sampling
from quintain.records.dataset import BenchmarkRow, DatasetRow, LabelledRow, PairRow, Row, TextRow
from quintain.records.hyperparameters.methods import SFTConfig
from quintain.records.protocols import Message, Reply, Stop, Turn
from quintain.records.trajectory import Step, Task, Trajectory
from quintain.trainers.acting.policy import LocalPolicy
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.data.streams import Example, rows_of
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.packing import micro_batches
from quintain.trainers.models.loading import eval_mode, load_model

_BATCH_TOKENS = 8192

AT_ONCE = 32
"""Prefixes that are decoded in one batch."""

NOT_TO_REPEAT = "not_to_repeat"
NO_PLAN = "no_plan"


class RowMeasurement(NamedTuple):
    """Sums over one row."""

    dropped: str | None = None
    """Why the row could not be measured; the other fields are then 0."""
    nll: float = 0.0
    """Negative log-likelihood summed over the tokens, in nats."""
    n_tokens: int = 0
    n_first: int = 0
    """Number of tokens that were the most likely ones."""
    n_steps: int = 0
    """Number of steps with a decoded action; of a benchmark row the first step alone."""
    same_tools: int = 0
    same_actions: int = 0
    truncated_turns: int = 0
    answer: float | None = None
    """Value of the answer in words, 0..1; None: not a question with a stated answer, or undecided."""


class _Prefix(NamedTuple):
    turn: Turn
    step: Step
    question: Task | None
    """Task whose stated answer decides, where the run has no actions."""


@dataclass(frozen=True)
class HeldOutModel:
    """A loaded agent to be measured on rows."""

    engine: Engine
    maker: ExampleMaker
    policy: LocalPolicy
    system_prompt: str | None

    @staticmethod
    def of(agent: Agent, max_new_tokens: int) -> HeldOutModel:
        """Load an agent."""
        loaded = load_model(agent.model)
        maker = ExampleMaker.of(loaded.tokenizer, agent.template, SFTConfig(), loaded.context_tokens)
        greedy = Sampling(temperature=0.0, max_new_tokens=max_new_tokens)
        policy = LocalPolicy(loaded, maker.renderer, greedy)
        return HeldOutModel(Engine.of(loaded.model), maker, policy, agent.system_prompt)

    def measure(self, rows: Sequence[Row]) -> list[RowMeasurement]:
        """Measure rows in batches; the result of a row does not depend on the others."""
        found = [self._first_call(row) if isinstance(row, BenchmarkRow) else self._likelihood(row) for row in rows]
        asked = [
            (place, prefix)
            for place, row in enumerate(rows)
            if found[place].dropped is None and (run := _run_of(row)) is not None
            for prefix in self._prefixes(run, f"row-{place}")
        ]
        for start in range(0, len(asked), AT_ONCE):
            part = asked[start : start + AT_ONCE]
            for (place, prefix), reply in zip(part, self._written([prefix.turn for _, prefix in part]), strict=True):
                found[place] = _with_step(found[place], reply, prefix)
        return found

    @torch.no_grad()
    def _likelihood(self, row: Row) -> RowMeasurement:
        run = _run_of(row)
        if run is None and not isinstance(row, TextRow):
            return RowMeasurement(NOT_TO_REPEAT)
        target = ExampleBatch()
        self.maker.take(DatasetRow(trajectory=run) if run is not None else row, target)
        if not target.examples:
            return RowMeasurement(next(iter(target.dropped)))
        nll, n, n_first = 0.0, 0, 0
        with eval_mode(self.engine.model):
            for batch in micro_batches(_divided(target.examples), _BATCH_TOKENS, share=self.engine.shares):
                predicted = self.engine.predicted(rows_of(batch))
                nll -= float(predicted.logprobs.double().sum())
                n, n_first = n + len(predicted.first), n_first + int(predicted.first.sum())
        return RowMeasurement(nll=nll, n_tokens=n, n_first=n_first, truncated_turns=target.truncated_turns)

    def _prefixes(self, run: Trajectory, name: str) -> list[_Prefix]:
        """Return the prefix of each turn that training would supervise, and the turn; without actions, of the answer alone."""
        messages = self.maker.renderer.messages(run)
        turns: list[tuple[int, Step]] = []
        last, keeps_apart = "", self.maker.renderer.writer.adjacent_turns
        for place, (message, index) in enumerate(messages):
            if message.role == "assistant":  # turns that the template writes as one are asked for as one
                start = place if keeps_apart or last != "assistant" else turns.pop()[0]
                turns.append((start, run.steps[index]))
            last = message.role
        acts = any(step.actions for _, step in turns)
        prefixes = [
            _Prefix(
                Turn(episode_id=f"{name}/{n}", messages=tuple(m for m, _ in messages[:place]), tools=run.tools),
                step,
                None if acts else run.task,
            )
            for n, (place, step) in enumerate(turns)
            if self.maker.renderer.trains(step)
        ]
        if acts:
            return prefixes
        return prefixes[-1:] if uncheckable(run.task) is None else []

    def _first_call(self, row: BenchmarkRow) -> RowMeasurement:
        """Measure whether the model starts a task with the first tool of its plan."""
        if not row.plan:
            return RowMeasurement(NO_PLAN)
        system = (Message(role="system", content=self.system_prompt),) if self.system_prompt else ()
        messages = (*system, Message(role="user", content=row.task.prompt))
        (reply,) = self._written([Turn(episode_id="first", messages=messages, tools=row.tools)])
        if reply.stop is Stop.CONTEXT:
            return RowMeasurement("too_long")
        return RowMeasurement(n_steps=1, same_tools=int([action.tool for action in reply.actions[:1]] == [row.plan[0]]))

    def _written(self, turns: Sequence[Turn]) -> list[Reply]:
        try:
            return self.policy.act(turns)
        finally:
            for turn in turns:
                self.policy.close(turn.episode_id)


def _run_of(row: Row) -> Trajectory | None:
    """Return the run that imitation would repeat; None if there is none."""
    match row:
        case DatasetRow():
            return row.trajectory
        case PairRow():
            return row.chosen
        case LabelledRow():
            return row.trajectory if row.desirable else None
    return None


def _with_step(found: RowMeasurement, reply: Reply, prefix: _Prefix) -> RowMeasurement:
    if reply.stop is Stop.CONTEXT:
        return found
    if (task := prefix.question) is not None:
        checked = check(task, [reply.thought or reply.text], task.prompt)
        return found._replace(answer=checked.value)
    actions = prefix.step.actions
    same_tools = not reply.error and [a.tool for a in reply.actions] == [a.tool for a in actions]
    return found._replace(
        n_steps=found.n_steps + 1,
        same_tools=found.same_tools + same_tools,
        same_actions=found.same_actions + (same_tools and [a.args for a in reply.actions] == [a.args for a in actions]),
    )


def _divided(examples: Sequence[Example]) -> list[Example]:
    """Return an example for each row, so that a long text takes several passes."""
    return [replace(example, rows=(row,), member=(0,)) for example in examples for row in example.rows]
