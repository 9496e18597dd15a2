"""The teacher of a distillation job: a model on this machine, or one behind an endpoint that gives log-probs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quintain.endpoints.completion import Ask
from quintain.endpoints.parallel import in_parallel
from quintain.errors import InvalidInput
from quintain.records.job import TrainSpec
from quintain.records.judging import Endpoint
from quintain.worker.request_ledger import close_after, open_client

if TYPE_CHECKING:
    from quintain.trainers.data.streams import Example, TokenRow
    from quintain.trainers.teachers import RowScores, Teacher


def open_teacher(spec: TrainSpec, directory: Path) -> Teacher | None:
    """Return the teacher of a job; None where it has none.

    Raises:
        InvalidInput: The model's files are damaged, or the variable of the endpoint's key is not set.
        NotFound: The model does not exist.
        Refused: The endpoint's URL is not safe.
    """
    if spec.teacher_agent is None:
        return None
    if spec.teacher_endpoint is not None:
        return EndpointTeacher(spec.teacher_endpoint, directory)
    from quintain.trainers.teachers import LocalTeacher

    return LocalTeacher(spec.teacher_agent, spec.config.batch_tokens)


class EndpointTeacher:
    """`trainers.teachers.Teacher` behind an endpoint; it scores token ids, so that nothing is tokenised again."""

    def __init__(self, endpoint: Endpoint, directory: Path) -> None:
        """Read the API key and open the connections.

        Args:
            endpoint: Target of the requests.
            directory: The job's folder, for the ledger of requests.
        """
        self._endpoint = endpoint
        self._client, ledger = open_client(endpoint, directory, asks_for="scores")
        close_after(self, self._client, ledger)

    def require_tokenizer(self, tokenizer: Any) -> None:
        """The tokenizers were compared before the job; the ids of each answer are compared with those that were sent."""

    def scores(self, examples: Sequence[Example], top_k: int | None) -> dict[TokenRow, RowScores]:
        """Return the scores of rows; see `Teacher`.

        Raises:
            InvalidInput: The answer has no log-prob of a token that was sent (`tokenizer_mismatch`).
            QuintainError: The endpoint does not answer, or does not give log-probs.
        """
        from quintain.trainers.data.teacher_tokens import top_arrays
        from quintain.trainers.teachers import RowScores

        def score(row: TokenRow) -> RowScores:
            ids = row.token_ids[: int(row.places[-1]) + 1].tolist()
            answer = self._client.complete(Ask(prompt_ids=tuple(ids), top=top_k or 0)).prompt_logprobs
            places = [self._place(answer, n, ids[n]) for n in row.places.tolist()]
            if top_k is not None:
                return RowScores(*top_arrays([list(place.items()) for place in places], top_k))
            own = [place[ids[n]] for place, n in zip(places, row.places.tolist(), strict=True)]
            return RowScores(None, np.asarray(own, np.float32)[:, None])

        rows = [row for example in examples for row in example.rows if row.n_supervised]
        return dict(in_parallel(rows, score, self._endpoint.concurrency))

    def _place(self, answer: Sequence[dict[int, float] | None], n: int, token: int) -> dict[int, float]:
        place = answer[n] if n < len(answer) else None
        if place is None or token not in place:
            raise InvalidInput(
                f"expected from endpoint {self._endpoint.name!r} the log-prob of token {token} at place {n}, which was sent, got "
                f"{'none' if place is None else f'those of {sorted(place)[:5]}'}; use a server that scores token ids "
                "(prompt_logprobs), with the student's tokenizer",
                code="tokenizer_mismatch",
            )
        return place
