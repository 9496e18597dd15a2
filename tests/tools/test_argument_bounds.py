"""The surface is a contract: every tool and argument is documented and bounded, and every named resource exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import pytest
from pydantic import Field, TypeAdapter, ValidationError
from scripts import server_settings, training_settings
from scripts.make_tool_reference import PAGE, forms, listings, page

from mcp_client import ToolCaller
from quintain.cli import command_lines
from quintain.errors import InvalidInput
from quintain.records.agent import Sampling
from quintain.records.dataset import Curation
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import JobSpec
from quintain.records.labels.judging import Rubric
from quintain.records.record import Record
from quintain.server.calls.bindings import LISTINGS_FILE
from quintain.tools.catalog import CATALOG, ToolSpec, tool
from quintain.tools.invocation import MAX_ENTRIES, MAX_FIELDS, arguments_model, check, with_length_bounds
from quintain.tools.jobs.jobs import list_jobs
from quintain.tools.labels.judging.results import Submission
from quintain.tools.labels.preferences import StatedPair
from quintain.tools.training.methods import read_hyperparameters


def unbounded(schema: Any, records: dict[str, Any], path: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Paths of the lists and objects without a greatest length. An object with named fields only is bounded by them."""
    if isinstance(schema, list):
        for branch in schema:
            yield from unbounded(branch, records, path, seen)
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from unbounded(records[name], records, path, seen | {name})
        return
    if schema.get("type") == "array" and "maxItems" not in schema:
        yield f"{path} (array)"
    closed = schema.get("properties") and schema.get("additionalProperties") is False
    if schema.get("type") == "object" and not closed and "maxProperties" not in schema:
        yield f"{path} (object)"
    for key in ("anyOf", "oneOf", "allOf", "prefixItems", "items", "additionalProperties"):
        yield from unbounded(schema.get(key), records, path, seen)
    for name, part in schema.get("properties", {}).items():
        yield from unbounded(part, records, f"{path}.{name}", seen)


@pytest.mark.parametrize("spec", CATALOG, ids=lambda spec: spec.name)
def test_every_list_and_object_argument_has_a_greatest_length(spec: ToolSpec) -> None:
    schema = arguments_model(spec).model_json_schema()
    assert list(unbounded(schema, schema.get("$defs", {}), spec.name)) == []


@pytest.mark.parametrize("record", [TrajectoryFilter, Curation, StatedPair, Submission, Rubric, Sampling])
def test_records_whose_fields_the_list_of_tools_leaves_out_are_bounded_too(record: type[Record]) -> None:
    schema = record.model_json_schema()
    assert list(unbounded(schema, schema.get("$defs", {}), record.__name__)) == []


def test_a_type_without_a_bound_gets_one_and_keeps_its_own() -> None:
    kinds: list[tuple[Any, Any, int]] = [
        (list[int], [0], MAX_ENTRIES),
        (dict[str, float] | None, {}, MAX_FIELDS),
        (Annotated[list[str] | None, Field(description="Names.")], ["a"], MAX_ENTRIES),
        (Annotated[list[int], Field(max_length=MAX_ENTRIES + 5)], [0], MAX_ENTRIES + 5),
        (Annotated[list[int] | None, Field(max_length=MAX_ENTRIES + 5)], [0], MAX_ENTRIES + 5),
    ]
    for hint, entry, most in kinds:
        adapter = TypeAdapter(with_length_bounds(hint))
        whole = entry * most if entry else {str(i): 1.0 for i in range(most)}
        assert adapter.validate_python(whole) == whole
        more = entry * (most + 1) if entry else whole | {"one more": 1.0}
        with pytest.raises(ValidationError, match=f"at most {most} items"):
            adapter.validate_python(more)
    inner = TypeAdapter(with_length_bounds(dict[str, list[int] | str]))
    with pytest.raises(ValidationError, match=f"at most {MAX_ENTRIES} items"):
        inner.validate_python({"a": [0] * (MAX_ENTRIES + 1)})


def test_too_many_entries_are_refused_with_the_bound_before_anything_runs() -> None:
    tags = [f"tag-{i}" for i in range(100_000)]
    with pytest.raises(InvalidInput, match=r"arguments\.filter\.tags: .*at most 50 items.*100000"):
        check(tool("search_trajectories"), {"filter": {"tags": tags}})
    pairs = [{"chosen": "traj-a", "rejected": "traj-b"}] * 10_001
    with pytest.raises(InvalidInput, match="at most 10000 items"):
        check(tool("record_preferences"), {"source": "person", "pairs": pairs})


def test_a_wrong_setting_is_answered_without_the_names_of_all_settings() -> None:
    """They are of use where a name is wrong, and cost 150 tokens."""
    with pytest.raises(InvalidInput, match=r"hyperparameters.epochs: .*0.001, got 0$"):
        read_hyperparameters("sft", {"epochs": 0})
    everything = r"; list_library\(kind='methods', text='sft'\) explains all settings$"
    for name, settings in (
        ("epoch", "epochs, "),
        ("patience", "early_stopping_patience"),
        ("dropout", "lora.dropout"),
        ("fit_memory", "gradient_checkpointing, offload_activations"),
    ):
        with pytest.raises(InvalidInput, match=rf"{name} is not .*; nearest in words: {settings}.*{everything}"):
            read_hyperparameters("sft", {name: 1})
    with pytest.raises(InvalidInput, match=r"; fields of sft: epochs, "):
        read_hyperparameters("sft", {"xyz": 1})


def test_an_unknown_field_of_an_object_is_refused_with_the_valid_ones(ask: ToolCaller) -> None:
    given = {"kind": "sft", "name": "x", "filter": {"tags": ["a"]}}
    (curation, filter) = ask.refused(
        "export_dataset",
        given | {"curation": {"keep_best": 0.5}},
        given | {"filter": {"tag": "a"}},
    )
    assert "arguments.curation.keep_best is not a known field" in curation
    assert (
        "valid `curation`: min_reward, max_reward, min_steps, max_steps, began_since, began_until, top_share,"
        in curation
    )
    assert "valid `filter`: job_id, agent," in filter
    assert "arguments.filter.tag is not a known field (did you mean 'tags'?); rename it" in filter
    with pytest.raises(
        InvalidInput, match=r"curation.max_row is not a known field \(did you mean 'max_rows'\?\); rename it"
    ):
        check(tool("export_dataset"), given | {"curation": {"max_row": 3}})


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
    "tag_trajectories": ("", "matched changed next_step"),
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
    "annotate_job": ("job_id", "job_id label name note status next_step"),
    "talk_to_agent": ("", "job_id turn status steps ended kept next_step"),
    "export_agent": ("agent format", "job_id status resource_uri deduplicated"),
    "get_job": ("job_id", "job_id kind status phase step total_steps metrics eta_s error result next_step"),
    "list_jobs": ("", "items next_cursor"),
    "cancel_job": ("job_id", "job_id status"),
    "resume_job": ("job_id", "job_id status"),
    "plot_job": ("job_id", ""),
    "show_training_dashboard": ("", ""),
    "get_lineage": ("id", "ancestors descendants edges counts next_step resource_uri"),
    "back_up_home": ("name", "action path created_at files bytes left_out home interrupted_jobs next_step"),
    "forget": ("", "dry_run runs before touched removed copies twins next_step"),
    "list_library": ("kind", "items next_cursor"),
}


CONVENTIONS = (Path(__file__).parents[2] / "docs" / "reference" / "tool-conventions.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    return DOCS.split(f"### `{name}`\n", 1)[1].split("\n#", 1)[0]


def code_words(text: str) -> set[str]:
    """The words of a page between backticks, and those that every tool shares."""
    return {"next_step", "resource_uri"}.union(*map(re.compile(r"\w+").findall, re.findall(r"`([^`]+)`", text)))


def test_generated_files_and_pages_are_those_of_catalog_records_and_settings() -> None:
    for file, content, script in (
        (LISTINGS_FILE, listings(), "make_tool_reference"),
        (command_lines.FORMS_FILE, forms(), "make_tool_reference"),
        (PAGE, page(), "make_tool_reference"),
        (training_settings.PAGE, training_settings.page(), "training_settings"),
        (server_settings.PAGE, server_settings.page(), "server_settings"),
    ):
        assert file.read_text(encoding="utf-8") == content, f"run python -m scripts.{script}"
    assert "| `QUINTAIN_RAY_ADDRESS`, `RAY_ADDRESS` | none |" in server_settings.page()


def test_the_catalog_and_the_contract_name_the_same_tools_and_the_conventions_every_filter() -> None:
    assert {spec.name for spec in CATALOG} == set(CONTRACT)
    assert set(TrajectoryFilter.model_fields) - code_words(CONVENTIONS) == set()


@pytest.mark.parametrize("spec", CATALOG, ids=lambda spec: spec.name)
def test_a_tool_keeps_its_arguments_and_result_keys_and_is_documented(spec: ToolSpec) -> None:
    required, keys = (set(names.split()) for names in CONTRACT[spec.name])
    fields = arguments_model(spec).model_fields
    assert {name for name, field in fields.items() if field.is_required()} == required
    if not spec.picture:
        assert keys <= set(get_type_hints(spec.function)["return"].model_fields)
    words = code_words(section(spec.name))
    assert [name for name, field in fields.items() if name not in words or not field.description] == []
    if not spec.picture and spec.answers_as != "get_job":  # whose section describes the result
        assert set(get_type_hints(spec.function)["return"].model_fields) - words == set()
    assert len(spec.function.__doc__ or "") > 60


def test_jobs_of_every_kind_can_be_listed_alone() -> None:
    specs = get_args(get_args(JobSpec)[0])
    asked = get_args(get_args(get_type_hints(list_jobs)["kind"])[0])
    assert set(asked) == {spec.model_fields["kind"].default for spec in specs}


def test_a_list_of_values_and_a_number_are_cells_too() -> None:
    spec = next(spec for spec in CATALOG if spec.name == "export_dataset")
    given = {"kind": "kto", "name": "a", "columns": {"label": "mark", "good": ["great", 5], "bad": 1}}
    assert check(spec, given)["columns"] == {"label": "mark", "good": "great|5", "bad": "1"}


def test_an_argument_of_the_wrong_type_or_choice_is_answered_with_what_it_is_for() -> None:
    spec = next(spec for spec in CATALOG if spec.name == "export_agent")
    match = "got 'mlx'; `format`: .*all weights .for MLX too.*; correct it and call export_agent"
    with pytest.raises(InvalidInput, match=match):
        check(spec, {"agent": "a", "format": "mlx"})


@pytest.mark.parametrize("value", [{"a": 1}, [{}], 1, None, '[{"a": []}]'], ids=str)
def test_a_value_of_any_kind_is_taken_or_refused_as_invalid_input(value: Any) -> None:
    for spec in CATALOG:
        for name in arguments_model(spec).model_fields:
            with suppress(InvalidInput):
                check(spec, {name: value})
