"""Settings, models and datasets that are wrong are told at once, in words that help."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mcp_client import ToolCaller
from quintain.cli.main import app
from quintain.datasets.provenance import allowed_models
from quintain.errors import InvalidInput
from quintain.records.trajectory import Actor, Step, Trajectory, read_trajectory
from quintain.settings import Settings
from quintain.tools import RLTrainingTool
from quintain.tools.training.sources import require_intact
from tools.dict_calls import Caller
from tools.stored_records import write_rows

RUN = {"task": {"prompt": "Go"}, "outcome": {"status": "success"}}


def with_models(*models: str) -> dict[str, object]:
    return RUN | {"steps": [{"actor": "agent", "message": "m", "model": model} for model in models]}


def test_a_bad_setting_is_one_line_and_status_2(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUINTAIN_MODEL_TERMS", "zzz")
    for command in (["jobs"], ["serve"], ["doctor"], ["lineage", "x"]):
        done = CliRunner().invoke(app, [*command, "--home", str(home)])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
        assert "QUINTAIN_MODEL_TERMS is 'zzz'" in done.stderr
        assert "'allow'" in done.stderr
    with pytest.raises(InvalidInput, match="bad_setting"):
        RLTrainingTool(home)


def test_blocked_terms_are_refused_with_their_globs_and_without_advice_on_disks(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUINTAIN_MODEL_TERMS", "block")
    tool = Caller(home)
    names = [
        tool(action="record", trajectory=with_models(model))["trajectory_id"]
        for model in ("us.anthropic.claude-3-5-sonnet-v2", "qwen3")
    ]
    asked = {"action": "export", "kind": "sft", "trajectory_ids": names}
    refused = tool(**asked, name="a")
    assert refused["code"] == "model_terms"
    assert '"!restricted"' in refused["message"]
    assert '"!claude-3-5-sonnet-v2"' in refused["message"]
    assert "disk" not in refused["message"]
    kept = tool(**asked, name="b", curation={"source_models": ["!restricted"]})
    assert (kept["rows"], kept["dropped"]) == (1, {"source_model": 1})


def test_the_shorthand_covers_a_restricted_model_under_another_name_of_it() -> None:
    for model, restricted in (("us-gov.anthropic.claude-3", True), ("qwen3", False)):
        run = Trajectory(steps=(Step(actor=Actor.AGENT, message="m", model=model),))
        assert allowed_models(run, ["restricted"]) is restricted
        assert allowed_models(run, ["!restricted"]) is not restricted


def test_training_on_a_dataset_that_was_changed_or_lost_is_refused_at_once(tool: Caller) -> None:
    name = tool(action="record", trajectory=with_models("qwen3"))["trajectory_id"]
    made = tool(action="export", kind="sft", name="d", trajectory_ids=[name])
    assert made["next_step"].endswith("Methods that learn from it too: bc, distill, retriever.")
    rows = Path(made["path"]) / "train.jsonl"
    asked = {"action": "start_training", "method": "sft", "model": "starter", "dataset_id": "d"}
    later = (Path(made["path"]) / "manifest.json").stat().st_mtime_ns + 10**9
    os.utime(rows, ns=(later, later))  # touched, and not changed: another fault is found
    assert tool(**asked | {"method": "dpo"})["code"] == "wrong_dataset_kind"
    require_intact(tool._open().store.datasets.get("d"))
    before = rows.read_bytes()
    rows.write_bytes(before.replace(b'"m"', b'"n"'))
    changed = tool(**asked)
    assert (changed["code"], "changed on disk" in changed["message"]) == ("dataset_damaged", True)
    rows.unlink()
    lost = tool(**asked)
    assert (lost["code"], "train.jsonl" in lost["message"]) == ("dataset_damaged", True)
    assert tool(action="jobs")["items"] == []


def test_relative_models_of_an_untrusted_caller_lie_below_the_inbox(
    settings: Settings, tmp_path: Path, ask: ToolCaller
) -> None:
    outside = tmp_path / "x"
    outside.mkdir()
    (outside / "config.json").write_text("{}")
    inside = settings.inbox_dir / "mine"
    inside.mkdir(parents=True)
    (inside / "config.json").write_text("{}")

    assert ask("register_agent", name="a", model="mine")["agent"]["model"]["path"] == str(inside.resolve())
    for model, code in (("../../x", "outside_roots"), ("", "invalid_input"), ("./none", "model_not_found")):
        (error,) = ask.refused("register_agent", {"name": "b", "model": model})
        assert f"[{code}]" in error
        assert str(Path.cwd()) not in error


def test_a_bad_member_is_one_fault_not_two() -> None:
    with pytest.raises(InvalidInput) as raised:
        read_trajectory({"steps": [{"actor": "robot", "message": "m"}]})
    assert "robot" in raised.value.message
    assert "at least 1 item" not in raised.value.message
    with pytest.raises(InvalidInput, match="at least 1 item"):
        read_trajectory({"steps": []})


def test_single_labelled_answers_are_no_pairs_and_the_advice_fits_rows(tool: Caller, home: Path) -> None:
    rows = [{"prompt": f"p{n}", "completion": "c", "label": bool(n % 2)} for n in range(4)]
    path = write_rows(home / "inbox" / "rows.jsonl", *rows)
    refused = tool(action="export", kind="dpo", name="d", path=str(path))
    assert "pairs need fields chosen and rejected" in refused["message"]
    assert "collect_rollouts" not in refused["message"]
