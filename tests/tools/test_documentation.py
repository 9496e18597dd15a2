"""The surface is a contract: every tool and argument is in docs/tools.md, and every named result key exists."""

from __future__ import annotations

from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from scripts import server_settings, training_settings
from scripts.make_tool_reference import PAGE, forms, listings, page

from quintain.cli import option_forms
from quintain.records.jobs.job import JobSpec
from quintain.server.listings import FILE
from quintain.tools.catalog import CATALOG
from quintain.tools.invocation import arguments_model
from quintain.tools.jobs.jobs import list_jobs
from quintain.tools.spec import ToolSpec

DOCS = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")

# Tool -> required arguments and result keys that clients outside this repository rely on.
CONTRACT: dict[str, tuple[str, str]] = {
    "record_trajectory": ("", "trajectory_id created steps outcome"),
    "import_trajectories": ("path", "format confidence imported duplicates rejected redactions files job_id next_step"),
    "search_trajectories": ("", "items next_cursor"),
    "get_trajectory": ("trajectory_id", "trajectory truncated"),
    "score_trajectories": ("scorer", "scored unscored summary components"),
    "fit_calibration": (
        "scorer",
        "calibration_id n_labels error_before error_after spearman domains warnings resource_uri",
    ),
    "record_preferences": ("source", "created ties skipped findings examples next_step"),
    "export_dataset": ("kind name", "dataset_id rows dropped splits path"),
    "preview_dataset": (
        "dataset_id model",
        "rows trained_tokens total_tokens truncated_rows warnings verdict job_id next_step",
    ),
    "get_judging_batch": ("limit", "batch_id items rubric instructions rater submitted agreement next_step"),
    "submit_scores": (
        "batch_id scores",
        "accepted rejected remaining replaced corrections warnings agreement next_step",
    ),
    "plan_training": ("", "method hyperparameters estimate blockers why notes fields resource_uri next_step"),
    "start_training": ("method model", "job_id status resource_uri deduplicated"),
    "collect_rollouts": ("agent environment", "job_id status resource_uri"),
    "evaluate_agent": ("agent", "job_id status resource_uri"),
    "compare_agents": ("agents", "comparisons leaderboard flips notes resource_uri"),
    "register_agent": ("name model", "agent"),
    "talk_to_agent": ("", "job_id turn status steps ended kept next_step"),
    "export_agent": ("agent format", "job_id status resource_uri deduplicated"),
    "get_job": ("job_id", "job_id kind status phase step total_steps metrics eta_s error result next_step"),
    "list_jobs": ("", "items next_cursor"),
    "cancel_job": ("job_id", "job_id status"),
    "resume_job": ("job_id", "job_id status"),
    "plot_job": ("job_id", ""),
    "show_training_dashboard": ("", ""),
    "get_lineage": ("id", "ancestors descendants edges counts next_step resource_uri"),
    "forget": ("", "dry_run runs before touched removed copies twins next_step"),
    "list_library": ("kind", "items next_cursor"),
}


def section(name: str) -> str:
    return DOCS.split(f"### `{name}`\n", 1)[1].split("\n#", 1)[0]


def test_generated_files_and_pages_are_those_of_catalog_records_and_settings() -> None:
    for file, content, script in (
        (FILE, listings(), "make_tool_reference"),
        (option_forms.FILE, forms(), "make_tool_reference"),
        (PAGE, page(), "make_tool_reference"),
        (training_settings.PAGE, training_settings.page(), "training_settings"),
        (server_settings.PAGE, server_settings.page(), "server_settings"),
    ):
        assert file.read_text(encoding="utf-8") == content, f"run python -m scripts.{script}"
    assert "| `QUINTAIN_RAY_ADDRESS`, `RAY_ADDRESS` | none |" in server_settings.page()


def test_the_catalog_and_the_contract_name_the_same_tools() -> None:
    assert {spec.name for spec in CATALOG} == set(CONTRACT)


@pytest.mark.parametrize("spec", CATALOG, ids=lambda spec: spec.name)
def test_a_tool_keeps_its_arguments_and_result_keys_and_is_documented(spec: ToolSpec) -> None:
    required, keys = (set(names.split()) for names in CONTRACT[spec.name])
    fields = arguments_model(spec).model_fields
    assert {name for name, field in fields.items() if field.is_required()} == required
    if not spec.picture:
        assert keys <= set(get_type_hints(spec.function)["return"].model_fields)
    words = section(spec.name)
    assert [name for name, field in fields.items() if name not in words or not field.description] == []
    assert len(spec.function.__doc__ or "") > 60


def test_jobs_of_every_kind_can_be_listed_alone() -> None:
    specs = get_args(get_args(JobSpec)[0])
    asked = get_args(get_args(get_type_hints(list_jobs)["kind"])[0])
    assert set(asked) == {spec.model_fields["kind"].default for spec in specs}
