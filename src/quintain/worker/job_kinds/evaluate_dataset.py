"""Job kind `evaluate_dataset`: compare an agent with the turns recorded in a dataset. Resumes after the finished rows."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quintain.datasets.rows import members_of, read_rows, task_of
from quintain.errors import InvalidInput
from quintain.evaluation.summary import (
    ACCURACY,
    ACTIONS,
    ANSWERS,
    LOSS,
    STEPS,
    TOKENS,
    TOOLS,
    TRUNCATED,
    held_out,
    summarize_rows,
)
from quintain.jobs.directory import run_name, write_atomically
from quintain.records.dataset import Row, TextRow
from quintain.records.evaluation import EpisodeResult, HeldOut
from quintain.records.jobs.job import EvaluateDatasetSpec, JobResult
from quintain.records.protocols import Reporter
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import OutcomeStatus
from quintain.worker.job_inputs import link_dataset

if TYPE_CHECKING:
    from quintain.trainers.dataset_evaluation import RowMeasurement

_BATCH = 16
"""Rows evaluated together. They are lost if the process dies."""


class _KeyedRow(NamedTuple):
    key: str
    row: Row


def run(spec: EvaluateDatasetSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Evaluate the remaining rows and output the evaluation.

    Raises:
        InvalidInput: No row could be measured (`nothing_measured`).
    """
    reporter.phase("preparing")
    inputs = link_dataset(spec, directory / "inputs")
    chosen = _select_rows(spec, inputs)
    progress = directory / "checkpoints" / "measured.jsonl"
    progress.parent.mkdir(exist_ok=True)
    results = [EpisodeResult.model_validate_json(line) for line in _lines(progress)]
    done = {result.task_id for result in results}
    left = [one for one in chosen if one.key not in done]
    if left:
        reporter.phase("loading_model")
        from quintain.trainers.dataset_evaluation import HeldOutModel

        model = HeldOutModel.of(spec.agent, spec.max_new_tokens)
        reporter.phase("measuring")
        for start in range(0, len(left), _BATCH):
            if reporter.should_stop():
                return JobResult(report={"rows": len(results), "planned": len(chosen)})
            part = left[start : start + _BATCH]
            began = time.monotonic()
            found = model.measure([one.row for one in part])
            each_s = (time.monotonic() - began) / len(part)
            results += [_result(one, measured, each_s) for one, measured in zip(part, found, strict=True)]
            write_atomically(progress, b"".join(result.model_dump_json().encode() + b"\n" for result in results))
            reporter.progress(len(results), len(chosen), {}, _figures(results))
    _require_measured(results)
    place = {one.key: n for n, one in enumerate(chosen)}
    results.sort(key=lambda result: place[result.task_id])
    evaluation = summarize_rows(spec, results, job_id=run_name(directory))
    reporter.output("evaluation", evaluation)
    assert evaluation.held_out is not None
    return JobResult(
        evaluation_id=evaluation.id,
        dataset_id=spec.dataset_id,
        success_rate=evaluation.rate.value,
        n=evaluation.rate.n,
        n_error=evaluation.n_error,
        report=_report(evaluation.held_out),
    )


def _require_measured(results: Sequence[EpisodeResult]) -> None:
    reasons = Counter(result.error for result in results)
    if results and None not in reasons:
        causes = ", ".join(f"{reason} {n}" for reason, n in reasons.most_common())
        raise InvalidInput(
            f"expected rows that can be measured, got {len(results)} that cannot ({causes}); a task needs a plan, an answer or an "
            "environment, and a dataset of kind sft compares recorded turns",
            code="nothing_measured",
        )


def _select_rows(spec: EvaluateDatasetSpec, inputs: Path) -> list[_KeyedRow]:
    """Return the rows to evaluate in file order. If there are too many, a seeded sample."""
    rows = list(_with_keys(read_rows(inputs, spec.split, kind=spec.dataset_kind)))
    if len(rows) <= spec.n_rows:
        return rows
    kept = {one.key for one in sorted(rows, key=lambda one: stable_seed(spec.seed, one.key))[: spec.n_rows]}
    return [one for one in rows if one.key in kept]


def _with_keys(rows: Iterator[Row]) -> Iterator[_KeyedRow]:
    """Yield rows with a key from their content. Duplicates get a number."""
    seen = Counter[str]()
    for row in rows:
        name = (members_of(row) or (f"text-{hashlib.sha256(row.model_dump_json().encode()).hexdigest()[:16]}",))[0]
        seen[name] += 1
        yield _KeyedRow(name if seen[name] == 1 else f"{name}/{seen[name]}", row)


def _result(one: _KeyedRow, measured: RowMeasurement, duration_s: float) -> EpisodeResult:
    task, members = task_of(one.row), members_of(one.row)
    about = EpisodeResult(
        task_id=one.key,
        status=OutcomeStatus.UNKNOWN,
        duration_s=duration_s,
        task_type=task and task.type,
        difficulty=task and task.difficulty,
        trajectory_id=members[0] if members else None,
    )
    if measured.dropped is not None:
        return about.model_copy(update={"status": OutcomeStatus.ERROR, "error": measured.dropped})
    metrics = {TRUNCATED: float(measured.truncated_turns)}
    if n := measured.n_tokens:
        metrics |= {LOSS: measured.nll / n, ACCURACY: measured.n_first / n, TOKENS: float(n)}
    if measured.answer is not None:
        metrics[ANSWERS] = measured.answer
        status = OutcomeStatus.SUCCESS if measured.answer >= 1 else OutcomeStatus.FAILURE
        return about.model_copy(update={"status": status, "reward": measured.answer, "turns": 1, "metrics": metrics})
    if not measured.n_steps or isinstance(one.row, TextRow):
        return about.model_copy(update={"metrics": metrics, "turns": measured.n_steps})
    metrics |= {TOOLS: measured.same_tools / measured.n_steps, STEPS: float(measured.n_steps)}
    if measured.n_tokens:  # for a benchmark task, only the first tool is known
        metrics[ACTIONS] = measured.same_actions / measured.n_steps
    share = metrics.get(ACTIONS, metrics[TOOLS])
    status = OutcomeStatus.SUCCESS if share == 1 else OutcomeStatus.FAILURE
    return about.model_copy(update={"status": status, "reward": share, "turns": measured.n_steps, "metrics": metrics})


def _rates(found: HeldOut) -> dict[str, float | None]:
    """Return the shares of matches, without their intervals."""
    matches = {TOOLS: found.tool_match, ACTIONS: found.action_match, ANSWERS: found.answer_match}
    return {name: None if rate is None else rate.value for name, rate in matches.items()}


def _figures(results: Sequence[EpisodeResult]) -> dict[str, float | None]:
    """Return the figures of the rows so far, as the evaluation has them at the end."""
    found = held_out(results)
    return {name: value for name, value in ({LOSS: found.loss} | _rates(found)).items() if value is not None}


def _report(found: HeldOut) -> dict[str, object]:
    return found.model_dump(mode="json", exclude={TOOLS, ACTIONS, ANSWERS}) | _rates(found)


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []
