"""Judges: a model behind an endpoint, and a local one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from quintain.endpoints.client import EndpointClient, identity
from quintain.endpoints.completion import Ask, Spent
from quintain.endpoints.parallel import map_in_parallel
from quintain.errors import InvalidInput, QuintainError
from quintain.records.agent import Agent, Sampling
from quintain.records.jobs.run_jobs import JudgeSpec, ScoreSpec
from quintain.records.labels.judging import Endpoint
from quintain.records.labels.reward import JudgePart
from quintain.records.protocols import Message, Policy, Stop, Turn
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.judging_items import Rater
from quintain.scoring.judges.questions import Question
from quintain.worker.judging.asking import Judging, Verdicts, ask_through
from quintain.worker.policies.request_ledger import AnswerCache, Ledger, open_client

JudgedRuns = tuple[tuple[Trajectory, ...], Verdicts]


@dataclass
class EndpointJudge:
    """A judge behind an endpoint, with its connections and its ledger."""

    endpoint: Endpoint
    judging: Judging
    client: EndpointClient
    ledger: Ledger

    @staticmethod
    def open(endpoint: Endpoint, asked: JudgeSpec | JudgePart, directory: Path, seed: int) -> EndpointJudge:
        """Connect to the endpoint.

        Args:
            endpoint: The endpoint.
            asked: Questions for the judge.
            directory: Folder in which requests are noted.
            seed: Seed of the requests.

        Raises:
            InvalidInput: The key's variable is not set.
        """
        client, ledger = open_client(endpoint, directory, seed=seed)

        def complete(question: Question) -> str:
            messages = (Message(role="system", content=question.system), Message(role="user", content=question.user))
            answer = client.complete(Ask(messages=messages))
            if answer.stop is Stop.LENGTH:
                raise InvalidInput(
                    f"endpoint {endpoint.name!r} was cut off before the end of its answer, at {endpoint.max_tokens} tokens or where "
                    "its context ends; raise max_tokens in its profile",
                    code="endpoint_answer",
                )
            return answer.text

        judging = Judging(
            mode=asked.mode,
            rubric=asked.rubric,
            rater=Rater(f"endpoint:{endpoint.name}", "endpoint"),
            model=identity(endpoint),
            ask=ask_through(complete),
            cache=AnswerCache(Path(asked.cache_dir)),
            control=asked.control,
        )
        return EndpointJudge(endpoint, judging, client, ledger)

    def judge(self, items: Iterable[tuple[Trajectory, ...]], should_stop: Callable[[], bool]) -> Iterator[JudgedRuns]:
        """Judge items, several at a time, and yield each with its verdicts as they come; a stop ends open requests."""
        judge = self.judging.judge
        at_once = self.endpoint.concurrency
        return map_in_parallel(items, lambda runs: judge([runs])[0], at_once, should_stop, self.client.stop)

    @property
    def spent(self) -> Spent:
        """Usage over all attempts of the job."""
        return self.ledger.spent

    def usd(self, spent: Spent) -> float | None:
        """Return the cost of a usage in USD."""
        return spent.usd(self.endpoint)

    def close(self) -> None:
        """Close connections and ledger."""
        self.client.close()
        self.ledger.close()


_BATCH = 8
"""Items that a local judge reads at a time."""
_ANSWER_TOKENS = 2048


@dataclass
class LocalJudge:
    """A judge whose weights are in this process."""

    judging: Judging
    spent = Spent()

    @staticmethod
    def open(agent: Agent, asked: ScoreSpec | JudgePart, seed: int) -> LocalJudge:
        """Load a model as a judge of what is asked."""
        assert asked.rubric is not None
        from quintain.worker.policies.creation import open_policy

        policy = open_policy(agent, Sampling(temperature=0.0, max_new_tokens=_ANSWER_TOKENS), seed=seed)
        judging = Judging(
            mode=asked.mode,
            rubric=asked.rubric,
            rater=Rater(agent.id or f"agent:{agent.name}", "agent"),
            model=_identity(agent),
            ask=lambda questions: _ask(policy, agent, questions),
            cache=AnswerCache(Path(asked.cache_dir)),
            control=asked.control,
        )
        return LocalJudge(judging)

    def judge(self, items: Iterable[tuple[Trajectory, ...]], should_stop: Callable[[], bool]) -> Iterator[JudgedRuns]:
        """Judge items batch by batch, and yield each with its verdicts; after a stop no further batch begins."""
        waiting = iter(items)
        while not should_stop() and (batch := list(islice(waiting, _BATCH))):
            yield from zip(batch, self.judging.judge(batch), strict=True)

    def usd(self, spent: Spent) -> float | None:
        """Return None: nothing is charged."""
        return None

    def close(self) -> None:
        """Do nothing."""


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
    too_long = InvalidInput(f"the run does not fit the context of {agent.id_or_name}", code="too_long")
    return [too_long if reply.stop is Stop.CONTEXT else reply.text for reply in replies]


def _identity(agent: Agent) -> dict[str, object]:
    chosen = agent.model_dump(mode="json", include={"id", "model", "template"})
    return chosen | {"temperature": 0, "max_tokens": _ANSWER_TOKENS}
