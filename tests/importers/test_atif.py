"""ATIF documents become trajectories and the same documents again, and trajectories become ATIF and the same again."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_logs import tokens
from quintain.errors import InvalidInput
from quintain.exporters.registry import exporter
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.registry import importer
from quintain.importers.transcripts.atif_documents import (
    apply_overlay,
    make_overlay,
    read_atif,
    runs_of_document,
    write_atif,
)
from quintain.importers.transcripts.atif_steps import without_nulls
from quintain.records.dataset import Dataset, DatasetRow, LabelledRow, PairRow
from quintain.records.trajectory import OutcomeStatus, Trajectory, read_trajectory
from small_logs import small_log


def read(folder: Path, name: str) -> tuple[list[Run], Report]:
    report = Report()
    return list(importer("atif").read(LogFile(folder / name, folder), report)), report


def write(folder: Path, name: str, value: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


KITCHEN_SINK = small_log("atif")


def test_every_field_of_a_document_is_read_to_its_place() -> None:
    run = read_atif(KITCHEN_SINK)
    assert (run.session_id, run.agent.name, run.agent.version, run.agent.model) == ("s-1", "sink", "2.1", "m-1")
    assert run.tools == tuple(KITCHEN_SINK["agent"]["tool_definitions"])
    assert (run.task.prompt, run.outcome.status, run.source.format) == ("Look:", OutcomeStatus.UNKNOWN, "atif")
    assert [step.actor for step in run.steps] == ["system", "user", "agent", "agent", "agent", "system"]
    assert [step.copied_context for step in run.steps] == [False, False, False, True, False, False]
    acted = run.steps[2]
    assert (acted.model, acted.thought, acted.message) == ("m-2", "Both at once.", "")
    assert [(a.call_id, a.tool, a.args) for a in acted.actions] == [("c1", "look", {"at": None}), ("c2", "ask", {})]
    assert [(o.call_id, o.content, o.is_error) for o in acted.observations] == [("c2", "", False), ("c1", "boom", True)]
    assert tokens(acted) == (10, 4)
    assert acted.sampled is None, "ids of an unknown tokenizer are never learned from"
    assert acted.extra["atif"]["metrics"]["completion_token_ids"] == [3, 4]
    assert run.steps[5].observations == (), "a mere reference to a run is no text that the model saw"
    assert run.steps[1].timestamp is not None
    assert run.steps[1].timestamp.isoformat() == "2025-10-16T14:30:00.250000+00:00"


def test_a_document_is_equal_after_the_round_trip() -> None:
    assert write_atif(read_atif(KITCHEN_SINK)) == KITCHEN_SINK


def test_the_samples_are_equal_after_the_round_trip(samples: Path) -> None:
    files = sorted((samples / "atif").glob("*.json"))
    assert len(files) == 4
    for file in files:
        document = json.loads(file.read_bytes())
        runs, report = read(file.parent, file.name)
        (run,) = (made.trajectory for made in runs)
        assert write_atif(read_atif(document)) == without_nulls(document)
        results = [r for s in document["steps"] for r in s.get("observation", {}).get("results", []) if "content" in r]
        assert [step.message for step in run.steps] == [step["message"] for step in document["steps"]]
        assert [o.content for s in run.steps for o in s.observations] == [r["content"] for r in results]
        assert (report.n_rejected, report.unknown) == (0, {})


NATIVE: dict[str, Any] = {
    "id": "traj-1",
    "episode_key": "job-1/2",
    "agent": {"name": "me"},
    "task": {"id": "t", "prompt": "not what the user says", "metadata": {"answer": None}},
    "outcome": {"status": "failure", "reward": 0.5, "scores": {"s": 1.0}, "exit_status": "limit"},
    "tags": ["a"],
    "group_id": "g",
    "subagents": ["traj-2"],
    "continues": "traj-0",
    "extra": {"atif": 3, "quintain": {"steps": []}, "x": {"y": None}},
    "steps": [
        {"actor": "user", "message": "go", "thought": "users think", "observations": [{"content": "?"}], "usage": {"input_tokens": 1}},
        {
            "actor": "agent",
            "message": [{"type": "text", "text": "a"}, {"type": "image", "uri": "u", "media_type": "image/png"}],
            "actions": [{"tool": "t", "args": None, "raw_args": "{oops"}, {"tool": "t", "args": {"a": 1}, "raw_args": "{\"a\":1}"}],
            "observations": [{"content": "no", "is_error": True, "call_id": "elsewhere"}, {"content": ""}],
            "reward": -1.0,
            "train": False,
            "sampled": {"token_ids": [5, 6], "logprobs": [-0.5, -1.0], "tokenizer": "fp"},
            "extra": {"atif": {"source": "user", "message": 4}},
        },
    ],
}  # fmt: skip


def test_a_trajectory_of_ours_is_equal_after_the_round_trip() -> None:
    run = read_trajectory(NATIVE)
    document = write_atif(run)
    assert read_atif(json.loads(json.dumps(document))) == run
    assert document["schema_version"] == "ATIF-v1.7"


def test_a_plain_run_is_written_without_a_trace_of_ours_but_where_it_is_needed() -> None:
    run = read_trajectory(
        {
            "source": {"format": "atif"},
            "agent": {"name": "a", "version": "1"},
            "task": {"prompt": "1+1?"},
            "steps": [
                {"actor": "user", "message": "1+1?"},
                {
                    "actor": "agent",
                    "actions": [{"tool": "add", "args": {"a": 1}, "call_id": "c"}],
                    "observations": [{"content": "2", "call_id": "c"}],
                    "sampled": {"token_ids": [7], "tokenizer": "fp"},
                },
            ],
        }
    )
    assert write_atif(run) == {
        "schema_version": "ATIF-v1.7",
        "agent": {"name": "a", "version": "1"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "1+1?"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "",
                "tool_calls": [{"tool_call_id": "c", "function_name": "add", "arguments": {"a": 1}}],
                "observation": {"results": [{"source_call_id": "c", "content": "2"}]},
                "metrics": {"completion_token_ids": [7], "extra": {"tokenizer": "fp"}},
            },
        ],
    }
    assert read_atif(write_atif(run)) == run


_TEXT = st.text(max_size=6).filter(lambda text: text.isprintable())
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT | st.sampled_from(["atif", "quintain", "="]), inner, max_size=2),
    max_leaves=5,
)  # fmt: skip
_EXTRA = st.dictionaries(_TEXT | st.sampled_from(["atif", "quintain", "="]), _JSON, max_size=2)
_CONTENT = _TEXT | st.lists(
    st.fixed_dictionaries({"text": _TEXT}) | st.fixed_dictionaries({"uri": _TEXT}, optional={"media_type": _TEXT}), max_size=2
)  # fmt: skip
_STEP = st.fixed_dictionaries(
    {"actor": st.sampled_from(["system", "user", "agent"])},
    optional={
        "message": _CONTENT,
        "thought": st.none() | _TEXT,
        "actions": st.lists(
            st.fixed_dictionaries(
                {"tool": st.text("abc", min_size=1, max_size=3)},
                optional={"args": st.none() | _EXTRA, "raw_args": st.none() | _TEXT, "call_id": st.none() | _TEXT},
            ),
            max_size=2,
        ),
        "observations": st.lists(
            st.fixed_dictionaries({}, optional={"content": _CONTENT, "call_id": st.none() | _TEXT, "is_error": st.booleans()}),
            max_size=2,
        ),
        "reward": st.none() | st.floats(-1, 1),
        "train": st.none() | st.booleans(),
        "timestamp": st.none() | st.datetimes().map(lambda when: when.isoformat()),
        "model": st.none() | _TEXT,
        "usage": st.none() | st.fixed_dictionaries({}, optional={"input_tokens": st.integers(0, 9)}),
        "sampled": st.none()
        | st.fixed_dictionaries(
            {"token_ids": st.lists(st.integers(0, 9), max_size=2), "tokenizer": _TEXT},
            optional={"logprobs": st.lists(st.floats(-9, 0), max_size=2)},
        ),
        "copied_context": st.booleans(),
        "extra": _EXTRA,
    },
)  # fmt: skip
_RUN = st.fixed_dictionaries(
    {"steps": st.lists(_STEP, max_size=3).map(lambda steps: [*steps, {"actor": "agent"}])},
    optional={
        "id": st.none() | _TEXT,
        "session_id": st.none() | _TEXT,
        "agent": st.fixed_dictionaries({}, optional={"name": _TEXT, "version": _TEXT, "model": st.none() | _TEXT}),
        "task": st.fixed_dictionaries({}, optional={"prompt": _TEXT, "id": _TEXT, "metadata": _EXTRA}),
        "tools": st.lists(_EXTRA, max_size=2),
        "tags": st.lists(_TEXT, max_size=2),
        "extra": _EXTRA,
    },
)


@given(_RUN)
def test_any_trajectory_is_equal_after_the_round_trip(value: dict[str, Any]) -> None:
    run = read_trajectory(value)
    assert next(runs_of_document(write_atif(run))).trajectory == run


@given(_EXTRA, _EXTRA)
def test_an_overlay_makes_one_value_of_the_other(target: dict[str, Any], base: dict[str, Any]) -> None:
    before = copy.deepcopy(base)
    made = apply_overlay(base, make_overlay(target, base))
    assert json.dumps(made, sort_keys=True) == json.dumps(target, sort_keys=True)
    assert base == before


def _damaged(value: Any, path: list[int], junk: Any) -> Any:
    """A copy with one value somewhere in it replaced."""
    if not path or not isinstance(value, dict | list) or not value:
        return junk
    if isinstance(value, dict):
        key = list(value)[path[0] % len(value)]
        return {**value, key: _damaged(value[key], path[1:], junk)}
    place = path[0] % len(value)
    return [*value[:place], _damaged(value[place], path[1:], junk), *value[place + 1 :]]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), _JSON)
def test_a_damaged_document_is_read_and_written_the_same_or_refused(path: list[int], junk: Any) -> None:
    document = _damaged(KITCHEN_SINK, path, junk)
    if not isinstance(document, dict):
        return
    (held, *_) = runs_of_document(document)
    if isinstance(held.trajectory, Trajectory):
        assert write_atif(held.trajectory) == without_nulls(
            {k: v for k, v in document.items() if k != "subagent_trajectories"}
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": "ATIF-v2.0"}, "ATIF-v1.0 to ATIF-v1.8, got 'ATIF-v2.0'"),
        ({"steps": []}, "a list of at least one step"),
        ({"steps": ["x"]}, r"steps\[0\]: expected an object, got str"),
        (
            {"steps": [{"source": "critic", "message": ""}]},
            r"steps\[0\]\.source is 'critic'; valid: system, user, agent",
        ),
        (
            {"steps": [{"source": "agent", "message": 4}]},
            r"expected steps\[0\]\.message to be text or a list of parts, got int",
        ),
        ({"steps": [{"source": "agent", "tool_calls": [{}]}]}, r"steps\[0\]\.tool_calls\[0\] must be an object with"),
        ({"steps": [{"source": "agent", "model_name": 4}]}, r"expected steps\[0\]\.model_name to be text, got int"),
        ({"steps": [{"source": "agent", "tool_calls": {}}]}, r"steps\[0\]\.tool_calls to be a list, got dict"),
        ({"subagent_trajectories": [{}]}, "import_trajectories"),
        ({"steps": [{"source": "user", "message": "x"}]}, "at least one step with actor 'agent'"),
    ],
)
def test_a_malformed_document_is_refused_with_the_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_atif(KITCHEN_SINK | change)
    with pytest.raises(InvalidInput):
        read_atif([])


def _small(name: str | None = None, **fields: Any) -> dict[str, Any]:
    steps = [
        {"step_id": 1, "source": "user", "message": "go"},
        {"step_id": 2, "source": "agent", "message": name or "did"},
    ]
    named = {"trajectory_id": name} if name else {}
    return {"schema_version": "ATIF-v1.7", **named, "agent": {"name": "a", "version": "1"}, "steps": steps, **fields}


def test_embedded_subagents_are_runs_that_name_their_parents(tmp_path: Path) -> None:
    inner = _small("sub", subagent_trajectories=[_small("deep"), {"trajectory_id": "torn", "steps": []}])
    write(tmp_path, "t.json", _small("main", subagent_trajectories=[inner]))
    runs, report = read(tmp_path, "t.json")
    assert [(r.trajectory.steps[1].message, r.key, r.parent) for r in runs] == [
        ("main", "atif:t.json", None),
        ("sub", "atif:t.json#sub", "atif:t.json"),
        ("deep", "atif:t.json#deep", "atif:t.json#sub"),
    ]
    assert report.rejected == [(1, "torn: expected `steps`, a list of at least one step")]


def test_files_of_continuations_and_subagents_find_the_document_that_names_them(tmp_path: Path) -> None:
    first = _small(continued_trajectory_ref="trajectory.cont-1.json")
    called = {"results": [{"subagent_trajectory_ref": [{"trajectory_path": "agent/trajectory.sum.json"}]}]}
    second = _small(continued_trajectory_ref="trajectory.cont-2.json")
    second["steps"][1]["observation"] = called
    write(tmp_path, "a/trajectory.json", first)
    write(tmp_path, "a/trajectory.cont-1.json", second)
    write(tmp_path, "a/trajectory.cont-2.json", _small())
    write(tmp_path, "a/trajectory.sum.json", _small())
    write(tmp_path, "a/trajectory.other.json", _small())
    links = {}
    for name in ("trajectory", "trajectory.cont-1", "trajectory.cont-2", "trajectory.sum", "trajectory.other"):
        ((run,), _) = read(tmp_path, f"a/{name}.json")
        links[name] = (run.key, run.parent, run.continues)
    assert links == {
        "trajectory": ("atif:a/trajectory.json", None, None),
        "trajectory.cont-1": ("atif:a/trajectory.cont-1.json", None, "atif:a/trajectory.json"),
        "trajectory.cont-2": ("atif:a/trajectory.cont-2.json", None, "atif:a/trajectory.cont-1.json"),
        "trajectory.sum": ("atif:a/trajectory.sum.json", "atif:a/trajectory.cont-1.json", None),
        "trajectory.other": ("atif:a/trajectory.other.json", None, None),
    }


@pytest.mark.parametrize(
    ("result", "status", "reward"),
    [
        ({"task_name": "t1", "verifier_result": {"rewards": {"reward": 1.0}}}, "success", 1.0),
        ({"verifier_result": {"rewards": {"reward": 0}}}, "failure", 0.0),
        ({"verifier_result": {"rewards": {"a": 0.2, "b": 1}}}, "unknown", None),
        ({"verifier_result": {"reward": 0.5}}, "unknown", 0.5),
        ({"verifier_result": None, "exception_info": {"exception_type": "AgentTimeoutError"}}, "error", None),
        ({"something": "else"}, "unknown", None),
    ],
)
def test_the_verdict_on_a_trial_comes_from_its_result(
    tmp_path: Path, result: dict[str, Any], status: str, reward: float | None
) -> None:
    write(tmp_path, "trial/result.json", result)
    write(tmp_path, "trial/agent/trajectory.json", _small())
    ((run,), _) = read(tmp_path, "trial/agent/trajectory.json")
    assert (run.trajectory.outcome.status, run.trajectory.outcome.reward) == (status, reward)
    assert run.trajectory.task.id == result.get("task_name")


def test_a_file_of_many_documents_keeps_the_good_ones(tmp_path: Path) -> None:
    write(tmp_path, "many.json", [_small("a"), {"steps": 4}, _small("b"), KITCHEN_SINK])
    (tmp_path / "many.jsonl").write_text(
        "\n".join(json.dumps(document) for document in json.loads((tmp_path / "many.json").read_bytes())),
        encoding="utf-8",
    )
    for name in ("many.json", "many.jsonl"):
        runs, report = read(tmp_path, name)
        assert [run.key for run in runs] == [f"atif:{name}", f"atif:{name}:b", f"atif:{name}:main"]
        assert [line for line, _ in report.rejected] == [2]
        assert any("tokenizer" in note for note in report.notes)


def test_ids_of_another_home_are_not_taken_over(tmp_path: Path) -> None:
    write(tmp_path, "t.json", write_atif(read_trajectory(NATIVE)))
    ((run,), _) = read(tmp_path, "t.json")
    assert (run.trajectory.id, run.trajectory.subagents, run.trajectory.continues) == (None, (), None)
    assert run.trajectory.outcome.reward == 0.5


def test_sources_of_another_name_and_fields_of_another_type_are_read_leniently_and_kept_as_written() -> None:
    odd = {"model_name": 4, "tool_calls": {}}
    document = _small(
        steps=[{"source": "[REDACTED]", "message": "go"}, {"source": "[REDACTED]", "message": "", "metrics": {}, **odd}]
    )
    (held,) = runs_of_document(document)
    assert isinstance(held.trajectory, Trajectory)
    assert [step.actor for step in held.trajectory.steps] == ["user", "agent"]
    assert write_atif(held.trajectory) == document


def test_detection_looks_at_the_version_and_then_at_the_steps() -> None:
    assert importer("atif").detect(Probe(("t.json",), "object", KITCHEN_SINK)) == 0.99
    nameless = {key: value for key, value in KITCHEN_SINK.items() if key != "schema_version"}
    assert importer("atif").detect(Probe(("t.json",), "object", nameless)) == 0.7
    assert importer("atif").detect(Probe(("t.json",), "array", None, (KITCHEN_SINK, 4))) == pytest.approx(0.495)
    assert importer("atif").detect(Probe(("t.json",), "object", {"steps": [{"actor": "user"}]})) == 0


def test_a_dataset_is_written_as_documents_that_read_back_equal(tmp_path: Path) -> None:
    run = read_trajectory(NATIVE)
    rows = {
        "train": [DatasetRow(trajectory=run), DatasetRow(trajectory=run, weight=2.0)],
        "test": [PairRow(chosen=run, rejected=run)],
    }
    dataset = Dataset(id="ds-1", name="d", kind="sft", path="p", rows=3, splits={"train": 2, "test": 1})
    export = exporter("atif").write(dataset, lambda split: iter(rows[split]), tmp_path)  # type: ignore[index]
    assert export.rows == {"train.jsonl": 2, "test.jsonl": 2}
    documents = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    assert read_atif(documents[0]) == run
    assert documents[1]["extra"]["row"] == {"weight": 2.0}
    with pytest.raises(InvalidInput, match="expected runs"):
        exporter("atif").write(dataset, lambda split: iter(()), tmp_path)


def test_what_a_run_says_of_the_table_that_it_was_read_from_stays_beside_what_its_row_says(tmp_path: Path) -> None:
    run = read_trajectory({**NATIVE, "extra": {"row": {"subset": "easy"}}})
    dataset = Dataset(id="ds-1", name="d", kind="kto", path="p", rows=1, splits={"train": 1})
    exporter("atif").write(dataset, lambda split: iter([LabelledRow(trajectory=run, desirable=True)]), tmp_path)
    document = json.loads((tmp_path / "train.jsonl").read_text(encoding="utf-8"))
    result = {"desirable": True, "weight": 1.0}
    assert document["extra"].pop("row_") == result
    assert read_atif(document) == run
