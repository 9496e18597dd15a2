"""SAGE's reward of an answer, and the metrics of its evaluations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from quintain.errors import InvalidInput
from quintain.records.labels.profiles import OutcomeRule
from quintain.records.trajectory import Action, Actor, Observation, Outcome, Step, Task, Trajectory
from quintain.scoring.profiles import profile as find_profile
from quintain.scoring.published import SAGE_PENALTIES, SAGE_WEIGHTS, SageScorer
from quintain.tools.dict_calls.trainers import call, opened

_CALL = re.compile(r"<tool_call>\s*([\w.-]+)\s*</tool_call>")
_METRICS = {
    "tool_selection_accuracy": "tool_selection_f1",
    "plan_success_rate": "plan_success",
    "step_efficiency": "step_efficiency",
    "timing_precision": "timing",
    "end_to_end_success": "end_to_end",
}
"""SAGE's metric -> that of an evaluation."""
_METRIC_NAMES = {
    "tool_accuracy": "tool_selection_accuracy",
    "plan_success": "plan_success_rate",
    "efficiency": "step_efficiency",
}
"""Names of metrics in SAGE's command lines."""


class AgentRewardConfig:
    """Weights of the parts of SAGE's reward, and its penalties, which are negative."""

    def __init__(
        self, weights: Mapping[str, float] | None = None, penalties: Mapping[str, float] | None = None
    ) -> None:
        """Take what each part weighs and what each fault takes away; None: as published."""
        self.weights = dict(SAGE_WEIGHTS if weights is None else weights)
        published = {name: -value for name, value in SAGE_PENALTIES.items()}
        self.penalties = dict(published if penalties is None else penalties)
        if unknown := sorted((self.weights.keys() - SAGE_WEIGHTS) | (self.penalties.keys() - SAGE_PENALTIES)):
            raise InvalidInput(
                f"expected weights of {', '.join(SAGE_WEIGHTS)} and penalties of {', '.join(SAGE_PENALTIES)}, got {unknown[0]!r}"
            )


class AgentRewardModel:
    """SAGE's reward of one answer: the scorer `sage` on a query, a response and its calls."""

    def __init__(self, config: AgentRewardConfig | None = None) -> None:
        """Take weights and penalties; None: as published."""
        self.config = config or AgentRewardConfig()
        penalties = {name: abs(value) for name, value in self.config.penalties.items()}
        profile = find_profile("generic").model_copy(update={"outcome": OutcomeRule(partial_credit="completed")})
        self._scorer = SageScorer(profile, self.config.weights, penalties)

    def compute_reward(
        self,
        query: str,
        response: str,
        ground_truth: Mapping[str, Any],
        execution_trace: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Return `total` with its `breakdown` and `feedback`; what is not known is None and takes no part in the total.

        Args:
            query: Request of the user.
            response: The agent's answer; without a trace its calls are those between `<tool_call>` tags.
            ground_truth: `target_tools` and `optimal_steps`, as far as they are known.
            execution_trace: Calls with `tool_id`, `status` and `result`. The share with status `success` is the completion; without
                a trace it is not known, and neither is the total.
        """
        calls = list(execution_trace) or [{"tool_id": name} for name in _CALL.findall(response)]
        done = [step.get("status") == "success" for step in execution_trace]
        run = Trajectory(
            task=Task(prompt=query, metadata=dict(ground_truth)),
            steps=(*map(_call_step, calls), Step(actor=Actor.AGENT, message=_CALL.sub("", response))),
            outcome=Outcome(scores={"completed": fmean(done)} if done else {}),
        )
        score = self._scorer.score(run)
        breakdown = {part.name: part.value for part in score.components if part.name in SAGE_WEIGHTS}
        return {"total": score.value, "breakdown": breakdown, "feedback": score.feedback or str(score.reason)}


def _call_step(row: Mapping[str, Any]) -> Step:
    call = Action(tool=str(row.get("tool_id") or row.get("tool") or "unknown"), args=dict(row.get("arguments") or {}))
    result = Observation(content=str(row.get("result", "")), is_error=row.get("status", "success") != "success")
    return Step(actor=Actor.AGENT, actions=(call,), observations=(result,))


class AgentTrainingEvaluator:
    """Plays the tasks of a benchmark and summarises SAGE's metrics."""

    def __init__(self, benchmark_loader: str, home: str | Path | None = None) -> None:
        """Name a dataset of kind `benchmark`, or the environment whose held-out tasks are played."""
        self.benchmark, self.home = benchmark_loader, home

    def evaluate(
        self, model: str, split: str = "test", metrics: Sequence[str] | None = None, **options: Any
    ) -> dict[str, dict[str, float | int | None]]:
        """Return `mean`, `std` and `count` of each metric over the episodes that have it; without any, mean and std are None.

        Args:
            model: Agent, or model folder such as `trainer.model`.
            split: `test`, the held-out tasks; or `train`, in an environment.
            metrics: Names of SAGE, long or short; None: all.
            **options: Further arguments of the action `evaluate`, such as `max_samples`.
        """
        names = [_METRIC_NAMES.get(name, name) for name in (_METRICS if metrics is None else metrics)]
        if unknown := [name for name in names if name not in _METRICS]:
            raise InvalidInput(f"expected metrics of {', '.join(_METRICS)}, got {unknown[0]!r}; choose among them")
        where = "environment" if "/" in self.benchmark else "dataset_id"
        side = {} if split == "test" else {"split": split}
        asked = {"action": "evaluate", "agent": model, where: self.benchmark}
        answer = call({**asked, **side, **options}, self.home)
        with opened(self.home) as services:
            results = services.store.evaluations.get(answer["evaluation_id"]).results
        values = {
            name: [one.metrics[own] for one in results if (own := _METRICS[name]) in one.metrics] for name in names
        }
        return {
            name: {"mean": fmean(of) if of else None, "std": pstdev(of) if of else None, "count": len(of)}
            for name, of in values.items()
        }
