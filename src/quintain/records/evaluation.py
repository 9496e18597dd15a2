"""Evaluations and comparisons. Unknown and errored episodes are counted separately, never as failures."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quintain.records.agent import Sampling
from quintain.records.record import Instant, Record
from quintain.records.trajectory import OutcomeStatus

Correction = Literal["holm", "benjamini_hochberg", "bonferroni"]
"""holm, bonferroni: control the family-wise error rate; benjamini_hochberg: controls the false discovery rate."""


EvaluationPurpose = Literal["measurement", "selection", "sequential"]
"""selection: by which an evolution chose among its rounds, so the chosen one's result is biased upward. sequential: played until
a comparison was decided, so its rate is biased away from the other agent's."""

SequentialDecision = Literal["undecided", "difference", "equivalent", "hopeless", "exhausted"]
"""State of a sequential comparison; the rules are in `evaluation.statistics.sequential`. All but `undecided` end it."""

Measure = Literal["success", "loss"]
"""Values that a comparison pairs: verdicts or, of dataset rows without verdicts, losses in nats a token (lower is better)."""

FailureKind = Literal[
    "endpoint_error",
    "environment_error",
    "loop",
    "format",
    "wrong_tool",
    "bad_arguments",
    "gave_up",
    "timeout",
    "wrong_answer",
]
"""Reason for an unsolved episode; the rules are in `evaluation.failures`."""


class EpisodeResult(Record):
    """One episode of an evaluation, or one evaluated row of a dataset."""

    task_id: str
    repeat: int = Field(default=0, ge=0)
    status: OutcomeStatus
    reward: float | None = None
    turns: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    duration_s: float = Field(default=0.0, ge=0)
    task_type: str | None = None
    difficulty: str | None = None
    trajectory_id: str | None = None
    error: str | None = None
    failure: FailureKind | None = Field(default=None, description="Null: solved, or unknown.")
    calls: int = Field(default=0, ge=0, description="Tool calls of the agent.")
    forbidden: int | None = Field(default=None, description="Number of forbidden calls. Null: nothing is forbidden.")
    metrics: dict[str, float] = Field(
        default_factory=dict, description="Metrics of the environment, and metrics relative to the task's references."
    )
    digest: str | None = Field(
        default=None, description="Hash of all that was written in a greedy run. Null: it was sampled."
    )

    @property
    def success(self) -> bool | None:
        """Whether the episode succeeded, or None if unknown or errored.

        A truncated episode did not solve its task and counts as a failure.
        """
        verdict = self.status.verdict
        return None if verdict is None else verdict == 1.0


class Rate(Record):
    """A success rate with its exact 95 % interval (Clopper & Pearson 1934), with tasks as the unit if there are repeats.

    Tasks whose greedy runs are equal word for word are one unit.
    """

    successes: int = Field(ge=0)
    n: int = Field(ge=0, description="Episodes with a verdict.")
    value: float | None = Field(description="successes / n. Null if n is 0.")
    ci_low: float | None
    ci_high: float | None
    n_distinct: int | None = Field(
        default=None, description="Tasks with different runs, where greedy runs of some tasks are equal. Null: no such."
    )


class Estimate(Record):
    """A mean over tasks with its 95 % interval. Null bounds where one task, or tasks of one value, show no spread."""

    value: float
    ci_low: float | None
    ci_high: float | None
    n: int = Field(description="Tasks.")


class AtK(Estimate):
    """pass@k or pass^k, averaged over the tasks with all repeats."""

    k: int


class Means(Record):
    """Means over a group of episodes. Null if no episode has the value."""

    reward: float | None
    turns: float | None
    output_tokens: float | None
    duration_s: float | None
    cost_usd: float | None
    n_unknown: int = 0
    n_error: int = 0


class Failures(Record):
    """Episodes with the same kind of failure."""

    n: int
    examples: tuple[str, ...] = Field(default=(), description="Trajectories, at most three.")


class Forbidden(Record):
    """Frequency of forbidden calls."""

    forbidden_calls: int
    calls: int = Field(description="All tool calls.")
    episodes: Rate = Field(description="`successes` counts the episodes with a forbidden call.")


class HeldOut(Record):
    """A model compared with the turns recorded in a dataset."""

    loss: float | None = Field(description="Mean negative log-likelihood per token, in nats, with teacher forcing.")
    perplexity: float | None = Field(description="exp(loss). Null on overflow.")
    token_accuracy: float | None = Field(description="Share of tokens that are the model's most likely ones.")
    n_tokens: int
    tool_match: Rate | None = Field(description="Steps in which greedy decoding calls the same tools.")
    action_match: Rate | None = Field(description="The same with equal arguments.")
    answer_match: Rate | None = Field(
        default=None, description="Runs in words alone: questions whose greedy answer is the stated one."
    )
    n_steps: int
    dropped: dict[str, int] = Field(default_factory=dict, description="Reason -> number of unreadable rows.")
    truncated_turns: int = Field(default=0, description="Turns that exceed the model's context.")


class Evaluation(Record):
    """One agent on one task suite, or on one split of a dataset."""

    id: str
    agent_id: str
    environment: str
    suite_hash: str = Field(description="Equal hashes mean equal tasks and environment, so results can be paired.")
    split: str
    seed: int
    repeats: int = Field(default=1, ge=1)
    sampling: Sampling
    job_id: str | None = None
    results: tuple[EpisodeResult, ...]
    rate: Rate
    by_type: dict[str, Rate] = Field(default_factory=dict)
    by_difficulty: dict[str, Rate] = Field(default_factory=dict)
    by_environment: dict[str, Rate] = Field(
        default_factory=dict, description="Of a mixture or a benchmark of several environments."
    )
    n_unknown: int = Field(default=0, ge=0)
    n_error: int = Field(default=0, ge=0)
    mean_reward: float | None = None
    mean_turns: float | None = None
    mean_output_tokens: float | None = None
    mean_duration_s: float | None = None
    cost_usd: float | None = Field(
        default=None, description="Endpoint charges, if every episode reports them. Null: unknown, or no endpoint."
    )
    means_by_type: dict[str, Means] = Field(default_factory=dict)
    means_by_difficulty: dict[str, Means] = Field(default_factory=dict)
    pass_at_k: tuple[AtK, ...] = Field(default=(), description="At least one of k attempts; from two repeats.")
    pass_hat_k: tuple[AtK, ...] = Field(default=(), description="All of k attempts; from two repeats.")
    failures: dict[FailureKind, Failures] = Field(default_factory=dict)
    forbidden: Forbidden | None = None
    metrics: dict[str, Estimate] = Field(default_factory=dict)
    max_turns: int | None = Field(default=None, description="As requested. Null: the environment's limit.")
    opponent_id: str | None = Field(default=None, description="Who played the other role of a game.")
    purpose: EvaluationPurpose = Field(
        default="measurement",
        description="selection: chose among an evolution's rounds; sequential: stopped early. Neither is on leaderboards.",
    )
    dataset_id: str | None = Field(
        default=None, description="Set for an evaluation on a dataset, and for a benchmark whose tasks were played."
    )
    held_out: HeldOut | None = Field(default=None, description="Set for an evaluation on a dataset.")
    created_at: Instant | None = None

    @property
    def n_tasks(self) -> int:
        """Number of different tasks."""
        return len({result.task_id for result in self.results})


class RewardDifference(Record):
    """Difference of mean rewards, b - a, over tasks with rewards from both agents, averaged over repeats."""

    difference: float
    ci_low: float
    ci_high: float
    ci_method: str
    n_tasks: int
    p_t: float = Field(description="Paired t test, not corrected.")
    p_wilcoxon: float = Field(description="Wilcoxon's signed-rank test, not corrected.")
    effect: float | None = Field(description="Cohen's d_z (mean / standard deviation). Null without variance.")


class PairedComparison(Record):
    """Two agents on the same tasks. `difference` is b - a."""

    a: str
    b: str
    evaluation_a: str
    evaluation_b: str
    measure: Measure = Field(
        default="success", description="loss: by nats a token, of rows without verdicts or of which none is solved."
    )
    difference: float
    ci_low: float
    ci_high: float
    ci_method: str
    ci_correction: str = Field(
        default="none", description="Of ci_low and ci_high, which have 95 % for this pair alone."
    )
    simultaneous_low: float | None = Field(
        default=None, description="Bounds that have 95 % for all pairs together (Bonferroni); wider with more pairs."
    )
    simultaneous_high: float | None = None
    p: float
    p_method: str
    p_mid: float | None = Field(
        default=None,
        description="McNemar's mid-p, not corrected: less conservative than the exact test on few tasks. Null: not that test.",
    )
    p_corrected: float
    significant: bool = Field(description="p_corrected < 0.05")
    n_tasks: int
    only_a: int = Field(description="Tasks solved by a only; loss: rows on which a has the lower one.")
    only_b: int = Field(description="Tasks solved by b only.")
    n_excluded: int = Field(default=0, description="Tasks without verdicts, or losses, from both sides.")
    n_distinct: int | None = Field(
        default=None,
        description="Tasks with different pairs of runs, the unit of interval and test, where greedy runs of some are equal.",
    )
    reward: RewardDifference | None = Field(
        default=None, description="Null: fewer than two tasks with both rewards, equal runs, or sequential."
    )
    p_equivalent: float | None = Field(
        default=None,
        description="Test that the rates differ by less than 5 points; small means equivalent (Tango 1998).",
    )
    tasks_for_5_points: int | None = Field(
        default=None,
        description="Tasks needed to detect a difference of 5 points with 80 % power, at this disagreement.",
    )


class SequentialTest(Record):
    """A paired comparison that may be looked at, and stopped, at any time. `difference` is b - a."""

    decision: SequentialDecision
    e_value: float = Field(description="Evidence against no difference; it reaches 20 with probability 5 % at most.")
    difference: float
    ci_low: float = Field(description="95 % confidence sequence: valid at all times together.")
    ci_high: float
    n_tasks: int = Field(description="Tasks with verdicts from both.")
    n_planned: int = Field(description="Tasks at most.")


class LeaderboardRow(Record):
    """An agent's rank by success rate, then mean reward, then lower loss."""

    rank: int
    agent: str
    evaluation_id: str
    success_rate: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    mean_reward: float | None
    loss: float | None = Field(default=None, description="Nats a token, on a dataset.")
    group: str = Field(default="", description="Letters. Agents that share one do not differ significantly.")


class Flip(Record):
    """A task that one agent solved and the other failed."""

    task_id: str
    solved_by: str
    failed_by: str
    trajectory_solved: str | None = None
    trajectory_failed: str | None = None


class Origin(Record):
    """Provenance of a compared agent."""

    agent: str = Field(description="Display name in the comparison.")
    agent_id: str
    evaluation_id: str
    ancestors: tuple[str, ...] = Field(default=(), description="Agents from which it was trained, nearest first.")
    dataset_id: str | None = None
    job_id: str | None = None


class CurvePoint(Record):
    """An agent during a training, and its success rate."""

    place: int = Field(ge=0, description="Position in the training; 0 is the start.")
    agent_id: str
    evaluation_id: str
    success_rate: float
    ci_low: float
    ci_high: float
    n: int = Field(description="Episodes with a verdict.")


class LearningCurve(Record):
    """Success rates of an agent's ancestors, of its job's stages or rounds, and of itself."""

    agent: str = Field(description="Display name in the comparison.")
    suite_hash: str = Field(description="The suite that most of these agents have run.")
    n_tasks: int
    points: tuple[CurvePoint, ...]


class Comparison(Record):
    """A comparison of two or more agents, corrected for multiple tests."""

    id: str
    environment: str
    suite_hash: str
    comparisons: tuple[PairedComparison, ...]
    leaderboard: tuple[LeaderboardRow, ...]
    flips: tuple[Flip, ...] = ()
    correction: Correction = "holm"
    sequential: SequentialTest | None = Field(default=None, description="Null: the number of tasks was fixed.")
    notes: tuple[str, ...] = Field(default=(), description="Other differences between the evaluations.")
    lineage: tuple[Origin, ...] = ()
    curves: tuple[LearningCurve, ...] = ()
    created_at: Instant | None = None


class SuiteOutline(Record):
    """A suite of an environment, and who has run it."""

    name: str
    suite_hash: str
    agents: int = Field(description="Number of agents that have run it.")
    newest: str = Field(description="Its newest evaluation.")


class Rating(Record):
    """An agent's strength in a game, from all games against others (Bradley & Terry 1952)."""

    agent: str
    elo: float = Field(description="400 points are odds of 10 to 1; the mean of the rated agents is 1500.")
    ci_low: float
    ci_high: float
    games: int


class Leaderboard(Record):
    """Best evaluation of each agent on one suite of an environment."""

    environment: str
    suite_hash: str
    split: str
    seed: int
    repeats: int
    n_tasks: int
    rows: tuple[LeaderboardRow, ...]
    ratings: tuple[Rating, ...] = Field(default=(), description="Games: Elo over all suites and opponents.")
    n_evaluations: int = Field(description="Evaluations on this suite. The best of several is biased upward.")
    notes: tuple[str, ...] = ()
    name: str = Field(default="", description="Name of the suite.")
    other_suites: tuple[str, ...] = Field(default=(), description="Hashes of suites run by fewer agents.")
    others: tuple[SuiteOutline, ...] = Field(default=(), description="The same suites, named.")
