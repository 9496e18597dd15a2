"""The audit on real logs: the labelled ones are told apart, and no ordinary log is flagged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from benchmarks.judges import Collected
from mcp import Client

from audit_cases import audit
from mcp_client import call
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.records.trajectory import Trajectory
from quintain.server.app import create_server
from quintain.settings import Settings


def imported(path: Path) -> list[Trajectory]:
    intake = Collected()
    import_logs(path, ImportOptions(), intake)
    return [run.identified() for run in intake.runs]


def test_every_hacked_sample_is_flagged_for_what_it_is_and_no_clean_one(samples: Path) -> None:
    names = {
        "answer_leakage_echo": "answer_echo",
        "degenerate_repetition": "repetition",
        "length_inflation": "length_inflation",
    }
    for name, check in names.items():
        runs = imported(samples / "reward_hacking" / f"{name}_hacked.jsonl")
        hacked = audit(*runs)
        assert hacked.verdict == "suspicious", name
        assert {found.check for found in hacked.findings if found.severity == "flag"} == {check}
        if check != "length_inflation":  # of single runs
            assert set(hacked.findings[0].trajectory_ids) == {run.id for run in runs}, name
        clean = audit(*imported(samples / "reward_hacking" / f"{name}_clean.jsonl"))
        assert (clean.verdict, clean.findings) == ("clean", ()), name


def test_no_ordinary_log_is_flagged(samples: Path) -> None:
    """Not as recorded, and not by the checks of single runs where every run is taken as fully rewarded."""
    folders = [path for path in sorted(samples.iterdir()) if path.is_dir() and path.name != "reward_hacking"]
    seen = 0
    for folder in folders:
        runs = imported(folder)
        seen += len(runs)
        assert [found for found in audit(*runs).findings if found.severity == "flag"] == [], folder.name
        forced = [found for found in audit(*runs, value=1.0).findings if found.severity == "flag"]
        # Runs that their own environment calls wrong, or pairs to choose from, would be badly rewarded with 1.
        assert {found.check for found in forced} <= {"format_only", "group_collapse"}, (folder.name, forced)
    if not seen:
        pytest.skip("the folder of logs is empty")


def test_a_client_gets_the_audit_whichever_scorer_it_asks(settings: Settings, samples: Path) -> None:
    """Through the real tool: imported, scored and audited, whatever the scorer can say of the runs."""
    settings = settings.model_copy(update={"roots": (samples,)})
    path = samples / "reward_hacking" / "answer_leakage_echo_hacked.jsonl"

    async def main() -> dict[str, Any]:
        with anyio.fail_after(100):
            async with Client(create_server(settings)) as client:
                assert (await call(client, "import_trajectories", path=str(path)))["imported"]
                return {
                    scorer: await call(
                        client, "score_trajectories", scorer=scorer, filter={"since": "2000-01-01"}, audit=True
                    )
                    for scorer in ("outcome", "rules", "answer", "composite")
                }

    for scorer, result in anyio.run(main).items():
        audit = result["audit"]
        flags = {found["check"] for found in audit["findings"] if found["severity"] == "flag"}
        assert (audit["verdict"], flags) == ("suspicious", {"answer_echo"}), scorer
        assert all("recorded" in found["rewards"] for found in audit["findings"]), scorer
