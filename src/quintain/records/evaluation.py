"""Evaluations and comparisons. Unknown and errored episodes are reported apart, never counted as failures."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quintain.records.agent import Sampling
from quintain.records.record import Instant, Record
from quintain.records.trajectory import OutcomeStatus

Correction = Literal["holm", "benjamini_hochberg", "bonferroni"]
"""holm, bonferroni: of the chance of any false finding; benjamini_hochberg: of the share of false ones among those found."""


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
"""Why an episode was not solved; `evaluation.failures` has the rules."""


class EpisodeResult(Record):
    """One episode of an evaluation, or one row of a dataset that an agent was measured on."""

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
    failure: FailureKind | None = Field(default=None, description="Null: solved, or nobody knows.")
    calls: int = Field(default=0, ge=0, description="Tool calls of the agent.")
    forbidden: int | None = Field(default=None, description="Calls that it must not make; null: nothing is forbidden.")
    metrics: dict[str, float] = Field(
        default_factory=dict, description="What the environment measured, and what the task's references say."
    )

    @property
    def success(self) -> bool | None:
        """True or False where the episode has a verdict; None for unknown, errored episodes.

        An episode cut off by its turn limit did not solve its task: truncated counts as a failure.
        """
        if self.status in {OutcomeStatus.UNKNOWN, OutcomeStatus.ERROR}:
            return None
        return self.status is OutcomeStatus.SUCCESS


class Rate(Record):
    """A success rate with its exact 95 % interval (Clopper & Pearson 1934); with repeats, for tasks as the unit."""

    successes: int = Field(ge=0)
    n: int = Field(ge=0, description="Episodes with a verdict.")
    value: float | None = Field(description="successes / n; null where n is 0.")
    ci_low: float | None
    ci_high: float | None


class Estimate(Record):
    """A mean over tasks with its 95 % interval; null bounds where one task cannot give one."""

    value: float
    ci_low: float | None
    ci_high: float | None
    n: int = Field(description="Tasks.")


class AtK(Estimate):
    """pass@k or pass^k of the repeats of a task, averaged over the tasks that have all of them."""

    k: int


class Means(Record):
    """What a group of episodes took on average; null where no episode says."""

    reward: float | None
    turns: float | None
    output_tokens: float | None
    duration_s: float | None
    cost_usd: float | None
    n_unknown: int = 0
    n_error: int = 0


class Failures(Record):
    """Episodes that failed alike."""

    n: int
    examples: tuple[str, ...] = Field(default=(), description="Trajectories, at most three.")


class Forbidden(Record):
    """How often an agent did what it must not do."""

    forbidden_calls: int
    calls: int = Field(description="All tool calls.")
    episodes: Rate = Field(description="`successes` counts the episodes with a forbidden call.")


class HeldOut(Record):
    """A model against the turns that a dataset recorded."""

    loss: float | None = Field(description="Mean negative log-likelihood of a token, in nats, by teacher forcing.")
    perplexity: float | None = Field(description="exp(loss); null where it is too large for a number.")
    token_accuracy: float | None = Field(description="Share of the tokens that are the model's most likely ones.")
    n_tokens: int
    tool_match: Rate | None = Field(description="Steps in which the model, decoding greedily, calls the same tools.")
    action_match: Rate | None = Field(description="The same with equal arguments.")
    n_steps: int
    dropped: dict[str, int] = Field(default_factory=dict, description="Reason -> rows that could not be read.")
    truncated_turns: int = Field(default=0, description="Turns that the model's context is too short for.")


class Evaluation(Record):
    """One agent on one task suite, or on one split of a dataset."""

    id: str
    agent_id: str
    environment: str
    suite_hash: str = Field(description="Same hash, same tasks in the same environment: results can be paired.")
    split: str
    seed: int
    repeats: int = Field(default=1, ge=1)
    sampling: Sampling
    job_id: str | None = None
    results: tuple[EpisodeResult, ...]
    rate: Rate
    by_type: dict[str, Rate] = Field(default_factory=dict)
    by_difficulty: dict[str, Rate] = Field(default_factory=dict)
    n_unknown: int = Field(default=0, ge=0)
    n_error: int = Field(default=0, ge=0)
    mean_reward: float | None = None
    mean_turns: float | None = None
    mean_output_tokens: float | None = None
    mean_duration_s: float | None = None
    cost_usd: float | None = Field(
        default=None, description="What endpoints charged, where each episode says; null: not known, or no endpoint."
    )
    means_by_type: dict[str, Means] = Field(default_factory=dict)
    means_by_difficulty: dict[str, Means] = Field(default_factory=dict)
    pass_at_k: tuple[AtK, ...] = Field(default=(), description="At least one of k attempts; from two repeats on.")
    pass_hat_k: tuple[AtK, ...] = Field(default=(), description="All of k attempts; from two repeats on.")
    failures: dict[FailureKind, Failures] = Field(default_factory=dict)
    forbidden: Forbidden | None = None
    metrics: dict[str, Estimate] = Field(default_factory=dict)
    max_turns: int | None = Field(default=None, description="As asked; null: the environment's own limit.")
    dataset_id: str | None = Field(default=None, description="Of an evaluation on a dataset.")
    held_out: HeldOut | None = Field(default=None, description="Of an evaluation on a dataset.")
    created_at: Instant | None = None


class RewardDifference(Record):
    """Mean rewards of two agents over the tasks for which both have one, each task's repeats averaged; b - a."""

    difference: float
    ci_low: float
    ci_high: float
    ci_method: str
    n_tasks: int
    p_t: float = Field(description="Paired t test; not corrected.")
    p_wilcoxon: float = Field(description="Wilcoxon's signed-rank test; not corrected.")
    effect: float | None = Field(description="Cohen's d_z, the mean over the standard deviation; null: no variance.")


class PairedComparison(Record):
    """Two agents on the same tasks; `difference` is b - a."""

    a: str
    b: str
    evaluation_a: str
    evaluation_b: str
    difference: float
    ci_low: float
    ci_high: float
    ci_method: str
    p: float
    p_method: str
    p_corrected: float
    significant: bool = Field(description="p_corrected < 0.05")
    n_tasks: int
    only_a: int = Field(description="Tasks that a alone solved.")
    only_b: int = Field(description="Tasks that b alone solved.")
    n_excluded: int = Field(default=0, description="Tasks left out because one side has no verdict.")
    reward: RewardDifference | None = Field(default=None, description="Null: fewer than two tasks with two rewards.")
    p_equivalent: float | None = Field(
        default=None,
        description="That the rates differ by less than 5 points; small means equivalent (Tango 1998).",
    )
    tasks_for_5_points: int | None = Field(
        default=None,
        description="Tasks that would show a difference of 5 points with 80 % power, at this disagreement.",
    )


class LeaderboardRow(Record):
    """One agent's place: by success rate, then mean reward."""

    rank: int
    agent: str
    evaluation_id: str
    success_rate: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    mean_reward: float | None
    group: str = Field(default="", description="Letters; agents that share one do not differ significantly.")


class Flip(Record):
    """A task that one agent solved and the other did not."""

    task_id: str
    solved_by: str
    failed_by: str
    trajectory_solved: str | None = None
    trajectory_failed: str | None = None


class Origin(Record):
    """Where a compared agent comes from."""

    agent: str = Field(description="As it is called in the comparison.")
    agent_id: str
    evaluation_id: str
    ancestors: tuple[str, ...] = Field(default=(), description="Agents that it was trained from, the nearest first.")
    dataset_id: str | None = None
    job_id: str | None = None


class CurvePoint(Record):
    """An agent on the way of a training: what it could do then."""

    place: int = Field(ge=0, description="On the way: 0 is where it began.")
    agent_id: str
    evaluation_id: str
    success_rate: float
    ci_low: float
    ci_high: float
    n: int = Field(description="Episodes with a verdict.")


class LearningCurve(Record):
    """Success along the way that led to an agent: its ancestors, the stages or rounds of its job, itself."""

    agent: str = Field(description="As it is called in the comparison.")
    suite_hash: str = Field(description="Of the suite that most agents on the way have run.")
    n_tasks: int
    points: tuple[CurvePoint, ...]


class Comparison(Record):
    """A corrected comparison of two or more agents."""

    id: str
    environment: str
    suite_hash: str
    comparisons: tuple[PairedComparison, ...]
    leaderboard: tuple[LeaderboardRow, ...]
    flips: tuple[Flip, ...] = ()
    correction: Correction = "holm"
    notes: tuple[str, ...] = Field(default=(), description="What else differs between the evaluations.")
    lineage: tuple[Origin, ...] = ()
    curves: tuple[LearningCurve, ...] = ()
    created_at: Instant | None = None


class Leaderboard(Record):
    """The best evaluation of each agent on one suite of an environment."""

    environment: str
    suite_hash: str
    split: str
    seed: int
    repeats: int
    n_tasks: int
    rows: tuple[LeaderboardRow, ...]
    n_evaluations: int = Field(description="On this suite; the best of several of one agent flatters it a little.")
    notes: tuple[str, ...] = ()
    other_suites: tuple[str, ...] = Field(default=(), description="Hashes of suites that fewer agents have run.")
