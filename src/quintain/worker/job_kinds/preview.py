"""Job kind `preview`: a dataset as training would see it. The tool reads the report from the cache."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from quintain.jobs.directory import write_atomically
from quintain.records.jobs.job import JobResult, PreviewSpec
from quintain.records.protocols import Reporter
from quintain.worker.job_inputs import link_dataset

KEPT = 200


def run(spec: PreviewSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Check the dataset's files, analyze its rows and write the report."""
    reporter.phase("preparing")
    inputs = link_dataset(spec, directory / "inputs")
    reporter.phase("importing")
    from quintain.trainers.preview.dataset import preview

    report = preview(spec, inputs, reporter)
    shutil.rmtree(inputs, ignore_errors=True)
    if report is None:
        return JobResult(report={"rows": 0, "planned": spec.dataset_rows})
    report = report.model_copy(update={"job_id": directory.name})
    statistics = report.statistics
    spec.answer.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(spec.answer.with_name(f"{spec.key}.json"), statistics.model_dump_json().encode())
    write_atomically(spec.answer, report.model_dump_json().encode())
    _forget_oldest(spec.answer.parent)
    train = statistics.splits["train"]
    facts = {
        "verdict": statistics.verdict,
        "rows": train.rows,
        "trained_tokens": train.trained_tokens,
        "total_tokens": train.total_tokens,
        "truncated_rows": train.truncated_rows,
        "warnings": list(statistics.warnings),
    }
    return JobResult(dataset_id=spec.dataset_id, n=train.rows, report=facts)


def _forget_oldest(folder: Path) -> None:
    with suppress(FileNotFoundError):  # a concurrent preview may delete the same files
        newest_first = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in newest_first[KEPT:]:
            path.unlink(missing_ok=True)
