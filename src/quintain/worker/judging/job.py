"""The job kind `judge`: a model behind an endpoint judges runs, several requests at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from quintain.endpoints.client import EndpointClient, identity
from quintain.endpoints.completion import Ask
from quintain.endpoints.parallel import in_parallel
from quintain.errors import InvalidInput
from quintain.records.jobs.job import JobResult
from quintain.records.jobs.run_jobs import JudgeSpec
from quintain.records.labels.judging import Endpoint
from quintain.records.labels.reward import JudgePart
from quintain.records.protocols import Message, Reporter, Stop
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.judging_items import Rater
from quintain.scoring.judges.questions import Question
from quintain.worker.judging.answer_cache import AnswerCache
from quintain.worker.judging.asking import Judging, Verdicts, ask_through
from quintain.worker.judging.judgements import run_judging
from quintain.worker.policies.request_ledger import Ledger, open_client


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
            asked: What the judge is asked.
            directory: Folder in which requests are noted.
            seed: Seed of the requests.

        Raises:
            InvalidInput: The key's variable is not set.
        """
        client, ledger = open_client(endpoint, directory, seed=seed)

        def complete(question: Question) -> str:
            messages = (Message(role="system", content=question.system), Message(role="user", content=question.user))
            answer = client.complete(Ask(messages=messages))
            if answer.stop is Stop.LENGTH and not answer.text.strip():
                raise InvalidInput(
                    f"endpoint {endpoint.name!r} wrote {endpoint.max_tokens} tokens and no answer; raise max_tokens in its profile",
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

    def judge(
        self, items: Iterable[tuple[Trajectory, ...]], should_stop: Callable[[], bool]
    ) -> Iterator[tuple[tuple[Trajectory, ...], Verdicts]]:
        """Judge items, several at a time, and yield each with its verdicts as they come; a stop ends open requests."""

        def stop() -> bool:
            if stopping := should_stop():
                self.client.stop()
            return stopping

        return in_parallel(items, lambda runs: self.judging.judge([runs])[0], self.endpoint.concurrency, stop)

    def close(self) -> None:
        """Close connections and ledger."""
        self.client.close()
        self.ledger.close()


def run(spec: JudgeSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Judge the remaining items, and write scores or preferences."""
    reporter.phase("preparing")
    judge = EndpointJudge.open(spec.endpoint, spec, directory, spec.seed)

    def verdicts(items: Iterator[tuple[Trajectory, ...]]) -> Iterator[Verdicts]:
        return (verdict for _, verdict in judge.judge(items, reporter.should_stop))

    try:
        return run_judging(
            spec,
            directory,
            reporter,
            verdicts,
            lambda: judge.ledger.spent,
            lambda spent: spent.usd(spec.endpoint),
        )
    finally:
        judge.close()
