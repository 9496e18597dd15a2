"""The job kind `score`: a local model scores runs, as a judge by a rubric, or with the head that it was trained to score with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from quintain.endpoints.spending import Spent
from quintain.errors import InvalidInput, QuintainError
from quintain.records.agent import Agent, Sampling
from quintain.records.job import JobResult
from quintain.records.protocols import Message, Policy, Reporter, Stop, Turn
from quintain.records.reward import JudgePart
from quintain.records.run_jobs import ScoreSpec
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.judging_items import Rater
from quintain.scoring.judges.questions import Question
from quintain.worker.judging.answer_cache import AnswerCache
from quintain.worker.judging.asking import Judging, Verdicts
from quintain.worker.judging.judgements import run_judging
from quintain.worker.run_inputs import open_run_inputs, score_each

BATCH = 8
"""Items that a local judge reads at a time."""
ANSWER_TOKENS = 2048


def run(spec: ScoreSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Score the runs that are left, and write scores or preferences."""
    reporter.phase("preparing")
    return _by_head(spec, directory, reporter) if spec.rubric is None else _by_rubric(spec, directory, reporter)


def _by_head(spec: ScoreSpec, directory: Path, reporter: Reporter) -> JobResult:
    runs = open_run_inputs(spec.runs)
    reporter.phase("loading_model")
    from quintain.trainers.reward_model_scores import score_runs

    reporter.phase("scoring")
    n, valued, is_whole = score_each(runs, directory, reporter, partial(score_runs, spec.agent))
    if not is_whole:
        return JobResult(report={"scored": valued, "planned": runs.n})
    return JobResult(n=valued, n_error=n - valued, report={"runs": runs.n, "scored": valued, "unscored": n - valued})


def local_judging(agent: Agent, asked: ScoreSpec | JudgePart, seed: int) -> Judging:
    """Load a local model as a judge of what is asked."""
    assert asked.rubric is not None
    from quintain.worker.policies import open_policy

    policy = open_policy(agent, Sampling(temperature=0.0, max_new_tokens=ANSWER_TOKENS), seed=seed)
    return Judging(
        mode=asked.mode,
        rubric=asked.rubric,
        rater=Rater(agent.id or f"agent:{agent.name}", "agent"),
        model=_identity(agent),
        ask=lambda questions: _ask(policy, agent, questions),
        cache=AnswerCache(Path(asked.cache_dir)),
        control=asked.control,
    )


def _by_rubric(spec: ScoreSpec, directory: Path, reporter: Reporter) -> JobResult:
    reporter.phase("loading_model")
    judging = local_judging(spec.agent, spec, spec.seed)

    def verdicts(items: Iterator[tuple[Trajectory, ...]]) -> Iterator[Verdicts]:
        while not reporter.should_stop() and (batch := list(islice(items, BATCH))):
            yield from judging.judge(batch)

    return run_judging(spec, directory, reporter, verdicts, Spent, lambda _: None)


def _ask(policy: Policy, agent: Agent, questions: Sequence[Question]) -> list[str | QuintainError]:
    turns = [
        Turn(
            episode_id=f"q{n}",
            messages=(Message(role="system", content=q.system), Message(role="user", content=q.user)),
        )
        for n, q in enumerate(questions)
    ]
    replies = policy.act(turns)
    for turn in turns:
        policy.close(turn.episode_id)
    too_long = InvalidInput(f"the run does not fit the context of {agent.id or agent.name}", code="too_long")
    return [too_long if reply.stop is Stop.CONTEXT else reply.text for reply in replies]


def _identity(agent: Agent) -> dict[str, object]:
    chosen = agent.model_dump(mode="json", include={"id", "model", "template"})
    return chosen | {"temperature": 0, "max_tokens": ANSWER_TOKENS}
