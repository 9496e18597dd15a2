"""The job kind `judge`: a model behind an endpoint judges runs, several requests at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from quintain.endpoints.client import Clock, EndpointClient, identity, read_key
from quintain.endpoints.parallel import in_parallel
from quintain.errors import InvalidInput
from quintain.records.job import JobResult, JudgeSpec
from quintain.records.protocols import Message, Reporter, Stop
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.plans import Rater
from quintain.scoring.judges.questions import Question
from quintain.settings import secret
from quintain.worker.judging.answer_cache import AnswerCache
from quintain.worker.judging.asking import Judging, Verdicts, ask_through
from quintain.worker.judging.judgements import run_judging
from quintain.worker.request_ledger import Ledger


def run(spec: JudgeSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Ask about the items that are left, and write scores or preferences.

    Raises:
        InvalidInput: the key's variable is not set, or the endpoint takes no such request.
        Refused: the endpoint does not accept the key.
        Unavailable: it answers nothing any more.
    """
    reporter.phase("preparing")
    endpoint = spec.endpoint
    key = read_key(endpoint, secret)
    ledger = Ledger(directory)
    client = EndpointClient(endpoint, Clock(now=lambda: datetime.now(UTC)), key, seed=spec.seed, note=ledger.note)

    def complete(question: Question) -> str:
        messages = (Message(role="system", content=question.system), Message(role="user", content=question.user))
        answer = client.complete(messages, temperature=0.0)
        if answer.stop is Stop.LENGTH and not answer.text.strip():
            raise InvalidInput(
                f"endpoint {endpoint.name!r} wrote {endpoint.max_tokens} tokens and no answer; raise max_tokens in its profile",
                code="endpoint_answer",
            )
        return answer.text

    judging = Judging(
        mode=spec.mode,
        rubric=spec.rubric,
        rater=Rater(f"endpoint:{endpoint.name}", "endpoint"),
        model=identity(endpoint),
        ask=ask_through(complete),
        cache=AnswerCache(Path(spec.cache_dir)),
        control=spec.control,
    )

    def should_stop() -> bool:
        if stopping := reporter.should_stop():
            client.stop()
        return stopping

    def verdicts(items: Iterator[tuple[Trajectory, ...]]) -> Iterator[Verdicts]:
        found = in_parallel(items, lambda runs: judging.judge([runs])[0], endpoint.concurrency, should_stop)
        return (verdict for _, verdict in found)

    try:
        return run_judging(spec, directory, reporter, verdicts, lambda: ledger.spent, lambda spent: spent.usd(endpoint))
    finally:
        client.close()
        ledger.close()
