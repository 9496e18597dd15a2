"""Runs that are stored already: what a second recording or import adds, and how an outcome is stated later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quintain.tools import RLTrainingTool

KEY = "ghp_" + "a1B2c3D4e5" * 4
MESSAGES = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "3"}]


class Caller:
    def __init__(self, home: Path) -> None:
        self.tool = RLTrainingTool(home)

    def __call__(self, **parameters: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.tool.run(parameters))
        return answer

    def record(self, **parameters: Any) -> dict[str, Any]:
        return self(action="record", **parameters)

    def found(self, **filter: Any) -> list[str]:
        return [item["id"] for item in self(action="search", filter=filter)["items"]]


@pytest.fixture
def run(home: Path) -> Iterator[Caller]:
    caller = Caller(home)
    yield caller
    caller.tool.close()


def log(folder: Path, *answers: str, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    rows = [
        {"messages": [{"role": "user", "content": "Say."}, {"role": "assistant", "content": a}], **more}
        for a in answers
    ]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_a_repeated_record_adds_the_outcome_that_was_missing_and_its_tags(run: Caller) -> None:
    first = run.record(messages=MESSAGES, task="Count.", tags=["one"])
    again = run.record(messages=MESSAGES, task="Count.", outcome={"status": "success", "reward": 1}, tags=["two"])
    assert (again["created"], again["outcome"]) == (False, "success")
    assert "added" in again["next_step"]
    assert run.found(outcome="success", tags=["one", "two"]) == [first["trajectory_id"]]
    other = run.record(messages=MESSAGES, task="Count.", outcome="failure")
    assert (other["created"], other["outcome"]) == (False, "success"), "a known outcome stays, and the answer says it"
    assert "did not change" in other["next_step"]


def test_the_outcome_of_a_stored_run_is_stated_once(run: Caller) -> None:
    name = run.record(messages=MESSAGES, task="Count.")["trajectory_id"]
    said = run.record(trajectory_id=name, outcome={"status": "failure", "exit_status": KEY}, tags=["seen"])
    assert (said["trajectory_id"], said["created"], said["outcome"]) == (name, False, "failure")
    assert run.found(outcome="failure", tags=["seen"]) == [name]
    assert KEY not in json.dumps(run(action="get", trajectory_id=name))
    refused = run.record(trajectory_id=name, outcome="success")
    assert (refused["code"], "'failure'" in refused["message"]) == ("outcome_known", True)
    again = run.record(messages=MESSAGES, task="Count.", outcome="success")
    assert (again["trajectory_id"], again["outcome"]) == (name, "failure"), "its identity is the same"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "no `outcome`"),
        ({"outcome": "unknown"}, "`outcome` is unknown"),
        ({"outcome": "success", "agent": "me"}, "got agent"),
        ({"outcome": "success", "trajectory_id": "traj-none"}, "traj-none"),
        ({"outcome": "success", "live": "open", "messages": MESSAGES}, "got messages, live"),
    ],
)
def test_what_a_stated_outcome_does_not_take_is_refused(run: Caller, arguments: dict[str, Any], words: str) -> None:
    name = run.record(messages=MESSAGES, task="Count.")["trajectory_id"]
    answer = run.record(**{"trajectory_id": name, **arguments})
    assert answer["status"] == "error"
    assert words in answer["message"]


def test_an_open_recording_gets_its_outcome_by_closing(run: Caller) -> None:
    name = run.record(live="open", messages=MESSAGES, task="Count.")["trajectory_id"]
    assert 'live="close"' in run.record(trajectory_id=name, outcome="success")["message"]


def test_what_closes_a_live_recording_is_redacted(run: Caller, home: Path) -> None:
    name = run.record(live="open", messages=MESSAGES, task="Count.")["trajectory_id"]
    run.record(live="append", trajectory_id=name, messages=MESSAGES[1:], tags=[f"a {KEY}"])
    outcome = {"status": "error", "exit_status": KEY, "scores": {KEY: 1.0}}
    closed = run.record(live="close", trajectory_id=name, outcome=outcome, tags=[KEY])
    assert closed["outcome"] == "error"
    run.tool.close()
    assert KEY.encode() not in b"".join(path.read_bytes() for path in home.glob("quintain.db*"))


@pytest.mark.parametrize("tag", ["", " ", "a\0b", "\x1b[31m", "x" * 101, "live", "two\nlines"])
def test_one_rule_for_tags_wherever_they_are_given(run: Caller, tmp_path: Path, tag: str) -> None:
    folder = log(tmp_path / "logs", "1")
    inner = {"steps": [{"actor": "agent", "message": "3"}], "tags": [tag]}
    answers = [
        run.record(messages=MESSAGES, task="Count.", tags=[tag]),
        run.record(trajectory=inner),
        run(action="import", path=str(folder), tags=[tag]),
        run(action="collect", agent="starter", environment="quintain/inventory", tags=[tag]),
    ]
    assert [answer.get("code") for answer in answers] == ["bad_tag"] * 4
    assert run.found(since="2000-01-01") == []


def test_tags_that_a_log_holds_are_left_out_where_they_break_the_rule(run: Caller, tmp_path: Path) -> None:
    trajectory = {
        "source": {"format": "quintain"},
        "steps": [{"actor": "agent", "message": "3"}],
        "tags": ["good", "live", ""],
    }
    (tmp_path / "run.json").write_text(json.dumps(trajectory))
    assert run(action="import", path=str(tmp_path / "run.json"), format="quintain")["imported"] == 1
    (item,) = run(action="search", filter={"tags": ["good"]})["items"]
    assert item["tags"] == ["good"]


def test_tags_of_an_import_are_redacted_and_reach_runs_that_are_known(run: Caller, tmp_path: Path) -> None:
    folder = log(tmp_path / "logs", "1", "2")
    assert run(action="import", path=str(folder))["imported"] == 2
    told = run(action="import", path=str(folder), tags=["mine", KEY])
    assert (told["imported"], told["updated"], told["duplicates"], told["unchanged_files"]) == (0, 2, 0, 0)
    assert len(run.found(tags=["mine"])) == 2
    assert KEY not in json.dumps(run(action="search", filter={"tags": ["mine"]}))
    again = run(action="import", path=str(folder), tags=["mine"])
    assert (again["updated"], again["duplicates"]) == (0, 2)


def test_a_session_that_has_grown_keeps_its_tags(run: Caller) -> None:
    trajectory = {"session_id": "s", "steps": [{"actor": "user", "message": "Go"}, {"actor": "agent", "message": "1"}]}
    more = {**trajectory, "steps": [*trajectory["steps"], {"actor": "agent", "message": "2"}]}
    name = run.record(trajectory=trajectory, tags=["one"])["trajectory_id"]
    grown = run.record(trajectory=more, tags=["two"])
    assert (grown["trajectory_id"], grown["steps"]) == (name, 2)
    assert run.found(tags=["one", "two"]) == [name]


def test_what_was_forgotten_is_called_so_when_it_comes_again(run: Caller, tmp_path: Path) -> None:
    folder = log(tmp_path / "logs", "1")
    run(action="import", path=str(folder))
    (imported,) = run.found(since="2000-01-01")
    recorded = run.record(messages=MESSAGES, task="Count.", outcome="success", tags=["gone"])["trajectory_id"]
    dataset = run(action="export", kind="sft", name="held", trajectory_ids=[recorded])["dataset_id"]
    run(action="lineage", id=imported, trajectory_ids=[recorded], forget=True)
    told = run(action="import", path=str(folder), again=True)
    assert (told["imported"], told["duplicates"], told["forgotten"]) == (0, 0, 1)
    assert "forgotten" in told["next_step"]
    again = run.record(messages=MESSAGES, task="Count.", outcome="success", tags=["gone"])
    assert (again["created"], again["forgotten"], again["steps"]) == (False, True, 0)
    assert run.found(tags=["gone"]) == []
    library = run(action="library", kind="datasets")
    assert (library["items"][0]["id"], library["items"][0]["forgotten"]) == (dataset, 1)
    assert "Train on one" not in library["next_step"]


def test_forgetting_takes_no_word_for_yes(run: Caller) -> None:
    name = run.record(messages=MESSAGES, task="Count.")["trajectory_id"]
    for word in ("yes", "false", 1):
        assert run(action="lineage", id=name, forget=word)["status"] == "error"
    assert run.found(since="2000-01-01") == [name]


@pytest.mark.parametrize(
    ("kind", "more", "words", "never"),
    [
        ("sft", {}, ["outcomes=['unknown']", "--keep unknown", "min_score"], []),
        ("dpo", {}, ["scorer='rules'"], ["outcomes=['unknown']", "sft"]),
        ("dpo", {"outcomes": ["unknown"]}, ["scorer='rules'"], ["outcomes=['unknown']"]),
        ("kto", {}, ["scorer='rules'"], ["sft"]),
        ("reward", {}, ["scorer='rules'"], ["sft"]),
        ("grpo", {}, ["scorer='rules'"], ["sft", "min_score"]),
        ("prm", {"curation": {"step_labels": "outcome"}}, ["record rewards for the steps"], ["scorer"]),
    ],
)
def test_unknown_outcomes_are_told_with_what_helps_this_kind(
    run: Caller, kind: str, more: dict[str, Any], words: list[str], never: list[str]
) -> None:
    names = [
        run.record(messages=[MESSAGES[0], {"role": "assistant", "content": text}], task="Count.")["trajectory_id"]
        for text in ("3", "4")
    ]
    refused = run(action="export", kind=kind, name="none", trajectory_ids=names, **more)
    assert refused["code"] == "empty_dataset"
    advice = refused["message"].split("For outcome_unknown: ")[1]
    for word in [*words, "record_trajectory(trajectory_id=..., outcome='success')"]:
        assert word in advice
    assert not [word for word in never if word in advice]


def test_the_advice_for_unknown_outcomes_works(run: Caller) -> None:
    names = [
        run.record(messages=[MESSAGES[0], {"role": "assistant", "content": text}], task="Count.")["trajectory_id"]
        for text in ("3", "4")
    ]
    for name, outcome in zip(names, ("success", "failure"), strict=True):
        run.record(trajectory_id=name, outcome=outcome)
    assert run(action="export", kind="dpo", name="pairs", trajectory_ids=names)["rows"] == 1


def test_step_labels_by_outcome_are_not_offered_for_runs_of_unknown_outcome_alone(run: Caller) -> None:
    name = run.record(messages=MESSAGES, task="Count.")["trajectory_id"]
    refused = run(action="export", kind="prm", name="none", trajectory_ids=[name])
    assert "labels runs of known outcome" in refused["message"]


def test_every_finished_answer_says_success(run: Caller, tmp_path: Path) -> None:
    folder = log(tmp_path / "logs", "1")
    assert run(action="import", path=str(folder))["status"] == "success"
    assert run(action="import", path=str(folder), wait=True)["status"] == "success"
    assert run(action="library", kind="scorers")["status"] == "success"
