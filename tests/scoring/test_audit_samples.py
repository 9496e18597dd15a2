"""The audit on real logs: the labelled ones are told apart, and no ordinary log is flagged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.run_sink import DryRun
from quintain.records.audit import AuditReport
from quintain.records.imports import IngestStatus
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.integrity.auditor import Auditor


class Kept(DryRun):
    """Keeps the runs that an import reads."""

    def __init__(self) -> None:
        super().__init__({})
        self.runs: list[Trajectory] = []

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        self.runs += runs
        return super().add(runs)


def imported(path: Path) -> list[Trajectory]:
    intake = Kept()
    import_logs(path, ImportOptions(), intake)
    return [run.identified() for run in intake.runs]


def audit(runs: list[Trajectory], value: float | None = None) -> AuditReport:
    auditor = Auditor()
    for run in runs:
        score = (
            value if value is None else Score(trajectory_id=run.id or "", scorer="judge", status="scored", value=value)
        )
        auditor.add(run, score)
    return auditor.report()


def test_every_hacked_sample_is_flagged_for_what_it_is_and_no_clean_one(samples: Path) -> None:
    names = {
        "answer_leakage_echo": "answer_echo",
        "degenerate_repetition": "repetition",
        "length_inflation": "length_inflation",
    }
    for name, check in names.items():
        hacked = audit(imported(samples / "reward_hacking" / f"{name}_hacked.jsonl"))
        assert hacked.verdict == "suspicious", name
        assert {found.check for found in hacked.findings if found.severity == "flag"} == {check}
        clean = audit(imported(samples / "reward_hacking" / f"{name}_clean.jsonl"))
        assert (clean.verdict, clean.findings) == ("clean", ()), name


def test_every_hacked_run_of_the_samples_is_named(samples: Path) -> None:
    for name in ("answer_leakage_echo", "degenerate_repetition"):
        runs = imported(samples / "reward_hacking" / f"{name}_hacked.jsonl")
        (found,) = audit(runs).findings
        assert set(found.trajectory_ids) == {run.id for run in runs}


def test_no_ordinary_log_is_flagged(samples: Path) -> None:
    """Not as recorded, and not by the checks of single runs where every run is taken as fully rewarded."""
    folders = [path for path in sorted(samples.iterdir()) if path.is_dir() and path.name != "reward_hacking"]
    seen = 0
    for folder in folders:
        runs = imported(folder)
        seen += len(runs)
        assert [found for found in audit(runs).findings if found.severity == "flag"] == [], folder.name
        forced = [found for found in audit(runs, 1.0).findings if found.severity == "flag"]
        # Runs that their own environment calls wrong, or pairs to choose from, would be badly rewarded with 1.
        assert {found.check for found in forced} <= {"format_only", "group_collapse"}, (folder.name, forced)
    if not seen:
        pytest.skip("the folder of logs is empty")
