"""Job kind `train`: train an agent on a dataset or in an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quintain.datasets.rows import read_rows
from quintain.endpoints.completion import Ask
from quintain.endpoints.parallel import map_in_parallel
from quintain.errors import InvalidInput
from quintain.evaluation.statistics.success_rates import clopper_pearson
from quintain.records.agent import Agent, Agreement, ModelRef
from quintain.records.dataset import Row
from quintain.records.hyperparameters.methods import DATASET_KINDS, ROLES
from quintain.records.jobs.job import JobResult, TrainSpec
from quintain.records.labels.judging import Endpoint
from quintain.records.protocols import Reporter
from quintain.records.wording import clip
from quintain.trainers.models.libraries import import_libraries
from quintain.worker.job_inputs import link_dataset
from quintain.worker.policies.request_ledger import close_after, open_client

if TYPE_CHECKING:
    from quintain.trainers.data.streams import Example, TokenRow
    from quintain.trainers.loop.report import TrainingReport
    from quintain.trainers.teachers import RowScores, Teacher
    from quintain.worker.rollouts.job_rewards import Rewards


def run(spec: TrainSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Link the dataset (or collect rollouts), train, and output the agent."""
    reporter.phase("preparing")
    if spec.mirror is None:
        return _run(spec, directory, reporter)
    from quintain.worker.checkpoint_mirror import with_mirrored_checkpoints

    return with_mirrored_checkpoints(spec, directory, reporter, lambda mirrored: _run(spec, directory, mirrored))


def _run(spec: TrainSpec, directory: Path, reporter: Reporter) -> JobResult:
    inputs = link_dataset(spec, directory / "inputs")
    rewards = None
    if spec.reward is not None:
        from quintain.worker.rollouts.job_rewards import Rewards

        rewards = Rewards(spec.reward, directory, reporter.should_stop, spec.seed)
    try:
        report = _train(spec, inputs, directory, reporter, rewards, _earlier_rows(spec, directory))
    finally:
        if rewards is not None:
            for warning in rewards.constant_parts():
                reporter.warn("constant_reward_part", warning)
            rewards.close()
    if report is None:
        return JobResult(report={"reward": rewards and rewards.report()})
    details = report.model_dump(mode="json", exclude={"held_out"})
    if rewards is not None:
        details["reward"] = rewards.report()
    if report.stopped:
        return JobResult(report=details)
    agreement = None
    if spec.method in _AGREES:
        agreement = held_out_agreement(spec.method, report.held_out)
        details["held_out_agreement"] = agreement and agreement.model_dump(mode="json", exclude_none=True)
    if spec.method in ROLES and agreement is None:
        reporter.warn(
            "no_held_out", f"{_UNMEASURED}; export with `validation_share` and train again before you rely on it"
        )
    reporter.output("agent", _agent(spec, directory.name, agreement))
    return JobResult(dataset_id=spec.dataset_id, final_loss=report.final_loss, report=details)


def _earlier_rows(spec: TrainSpec, directory: Path) -> list[Row]:
    """Return the training rows of the earlier skill that EWC keeps; none where it is off."""
    if spec.earlier is None:
        return []
    inputs = link_dataset(spec.earlier, directory / "inputs" / "earlier")
    return list(read_rows(inputs, "train", kind=spec.earlier.dataset_kind))


def _train(
    spec: TrainSpec,
    inputs: Path,
    directory: Path,
    reporter: Reporter,
    rewards: Rewards | None,
    earlier: list[Row],
) -> TrainingReport | None:
    """Train on rows or rollouts, valued by the reward if one is named; None if stopped before the first step."""
    reporter.phase("importing")
    import_libraries()
    from quintain.trainers.run_setup import Data
    from quintain.trainers.train import train

    data = Data(earlier=earlier) if rewards is None else Data(earlier=earlier, figures=rewards.figures)
    data = replace(data, teacher=open_teacher(spec, directory))
    if spec.config.evaluate_every_steps is not None:
        from quintain.worker.rollouts.held_out_tasks import HeldOutTasks

        data = replace(data, evaluate=HeldOutTasks.of(spec, directory, reporter))
    if spec.environment is not None:
        from quintain.worker.rollouts.online_rollouts import rollout_collector

        collect = rollout_collector(spec, directory, reporter, rewards)
        figures = data.figures
        with closing(collect):
            data = replace(data, figures=lambda keys: figures(keys) | collect.figures())
            return train(spec, data, directory, reporter, collect, all_collect=collect.is_shared)
    kind = DATASET_KINDS[spec.method]
    assert kind is not None, "a spec without an environment has a method that learns from a dataset"
    splits: dict[str, list[Row]] = {}
    for split in ("train", "validation"):
        rows = list(read_rows(inputs, split, kind=kind)) if f"{split}.jsonl" in spec.dataset_files else []
        valued = rows if rewards is None else _valued(rewards, rows, split, reporter)
        if valued is None:
            return None
        splits[split] = valued
    return train(spec, replace(data, train=splits["train"], validation=splits["validation"]), directory, reporter)


def _valued(rewards: Rewards, rows: list[Row], split: str, reporter: Reporter) -> list[Row] | None:
    """Return the rows with the named reward, with a warning about rows that are left out."""
    reporter.phase("scoring")
    valued = rewards.rows(rows)
    if valued is not None and len(valued) < len(rows):
        reasons = ", ".join(f"{clip(why, 200)}: {n}" for why, n in rewards.report()["unscored"].items())
        reporter.warn(
            "rows_without_reward",
            f"{len(rows) - len(valued)} of {len(rows)} rows of split {split} are left out by the reward ({reasons})",
        )
    return valued


_UNMEASURED = "its accuracy is unknown, because there are no held-out labels"

_AGREES = {
    **dict.fromkeys(("reward", "dpo", "orpo", "simpo", "ranking"), ("reward_accuracy", "pairs ordered as labelled")),
    "prm": ("step_accuracy", "steps on their label's side of 0.5"),
    "retriever": ("retrieval_accuracy", "calls whose tool ranks first among the tools of these calls"),
}
"""Method of `ROLES` or that learns from pairs -> its accuracy metric, and the unit that it counts."""


def held_out_agreement(method: str, figures: Mapping[str, tuple[float, float]]) -> Agreement | None:
    """Return how often a model agreed with the labels of the validation split; one that acts, by its implicit reward.

    The pairs of a task and the steps of a run are not independent, so the interval is too narrow. With keep_best, the same
    split also selected the weights.

    Args:
        method: One of `ROLES`, or one that learns from pairs.
        figures: Metric -> (sum, count) over the validation split.

    Returns:
        The agreement, or None without held-out labels.
    """
    name, of = _AGREES[method]
    right, n = figures.get(name, (0.0, 0.0))
    rate = clopper_pearson(round(right), round(n))
    if rate.value is None or rate.ci_low is None or rate.ci_high is None:
        return None
    brier, labels = figures.get("brier", (0.0, 0.0))
    return Agreement(
        of=of,
        right=rate.successes,
        n=rate.n,
        rate=rate.value,
        ci_low=rate.ci_low,
        ci_high=rate.ci_high,
        brier=brier / labels if labels else None,
    )


def _agent(spec: TrainSpec, job_id: str, agreement: Agreement | None) -> Agent:
    """Return the trained agent, with its parent's prompt, sampling settings and turn format.

    The description of an agent that does not act contains its held-out accuracy.
    """
    accuracy = f"; {agreement or _UNMEASURED}" if spec.method in ROLES else ""
    if spec.config.lora is None:
        model = ModelRef(source="folder", path=spec.output_dir)
    else:
        model = spec.start_model.model_copy(update={"adapter": spec.output_dir})
    return spec.agent.model_copy(
        update={
            "id": None,
            "version": None,
            "created_at": None,
            "name": spec.name,
            "model": model,
            "parent": spec.agent.id,
            "dataset_id": spec.dataset_id,
            "job_id": job_id,
            "role": ROLES.get(spec.method, "policy"),
            "held_out": agreement if spec.method in ROLES else None,
            "description": f"{spec.method} of {spec.agent.id} on {spec.dataset_id or spec.environment}{accuracy}",
        }
    )


def open_teacher(spec: TrainSpec, directory: Path) -> Teacher | None:
    """Return the teacher of a job; None where it has none."""
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
        """Return the scores of rows; see `Teacher`."""
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
        return dict(map_in_parallel(rows, score, self._endpoint.concurrency))

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
