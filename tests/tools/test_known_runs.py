"""Runs that are stored already or while they happen: what another recording or import adds, and how an outcome is stated."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.dict_calls import Caller
from tools.stored_records import write_rows

KEY = "ghp_" + "a1B2c3D4e5" * 4
MESSAGES = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "3"}]


def log(folder: Path, *answers: str) -> Path:
    asked = {"role": "user", "content": "Say."}
    rows = [{"messages": [asked, {"role": "assistant", "content": text}]} for text in answers]
    return write_rows(folder / "log.jsonl", *rows).parent


def test_a_repeated_record_adds_the_outcome_that_was_missing_and_its_tags(tool: Caller) -> None:
    first = tool.record(messages=MESSAGES, task="Count.", tags=["one"])
    again = tool.record(messages=MESSAGES, task="Count.", outcome={"status": "success", "reward": 1}, tags=["two"])
    assert (again["created"], again["outcome"]) == (False, "success")
    assert "added" in again["next_step"]
    assert tool.found(outcome="success", tags=["one", "two"]) == [first["trajectory_id"]]
    other = tool.record(messages=MESSAGES, task="Count.", outcome="failure")
    assert (other["created"], other["outcome"]) == (False, "success"), "a known outcome stays, and the answer says it"
    assert "did not change" in other["next_step"]


def test_the_outcome_of_a_stored_run_is_stated_once(tool: Caller) -> None:
    name = tool.record(messages=MESSAGES, task="Count.")["trajectory_id"]
    said = tool.record(trajectory_id=name, outcome={"status": "failure", "exit_status": KEY}, tags=["seen"])
    assert (said["trajectory_id"], said["created"], said["outcome"]) == (name, False, "failure")
    assert tool.found(outcome="failure", tags=["seen"]) == [name]
    assert KEY not in json.dumps(tool(action="get", trajectory_id=name))
    refused = tool.record(trajectory_id=name, outcome="success")
    assert (refused["code"], "'failure'" in refused["message"]) == ("outcome_known", True)
    again = tool.record(messages=MESSAGES, task="Count.", outcome="success")
    assert (again["trajectory_id"], again["outcome"]) == (name, "failure"), "its identity is the same"


def test_what_a_stated_outcome_does_not_take_is_refused(tool: Caller) -> None:
    name = tool.record(messages=MESSAGES, task="Count.")["trajectory_id"]
    opened = tool.record(live="open", messages=MESSAGES, task="Count on.")["trajectory_id"]
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "no `outcome`"),
        ({"outcome": "unknown"}, "`outcome` is unknown"),
        ({"outcome": "success", "agent": "me"}, "got agent"),
        ({"outcome": "success", "trajectory_id": "traj-none"}, "traj-none"),
        ({"outcome": "success", "live": "open", "messages": MESSAGES}, "got messages, live"),
        ({"outcome": "success", "trajectory_id": opened}, 'live="close"'),
    ]
    for arguments, words in cases:
        answer = tool.record(**{"trajectory_id": name, **arguments})
        assert (answer["status"], words in answer["message"]) == ("error", True), answer


def test_a_live_recording_is_redacted_before_it_is_stored(tool: Caller, home: Path) -> None:
    said = [{"role": "assistant", "content": f"key {KEY}"}]
    name = tool.record(live="open", messages=[*MESSAGES, *said], task="Count.")["trajectory_id"]
    tool.record(live="append", trajectory_id=name, messages=said, tags=[f"a {KEY}"])
    outcome = {"status": "error", "exit_status": KEY, "scores": {KEY: 1.0}}
    closed = tool.record(live="close", trajectory_id=name, outcome=outcome, tags=[KEY])
    assert closed["outcome"] == "error"
    assert sum(closed["redactions"].values()) >= 4
    tool.close()
    assert KEY.encode() not in b"".join(path.read_bytes() for path in home.glob("quintain.db*"))


def test_one_rule_for_tags_wherever_they_are_given(tool: Caller, tmp_path: Path) -> None:
    folder = log(tmp_path / "logs", "1")
    for tag in ("", " ", "a\0b", "\x1b[31m", "x" * 101, "live", "two\nlines"):
        answers = [
            tool.record(messages=MESSAGES, task="Count.", tags=[tag]),
            tool.record(trajectory={"steps": [{"actor": "agent", "message": "3"}], "tags": [tag]}),
            tool(action="import", path=str(folder), tags=[tag]),
            tool(action="collect", agent="starter", environment="quintain/inventory", tags=[tag]),
        ]
        assert [answer.get("code") for answer in answers] == ["bad_tag"] * 4, tag
    assert tool.found(since="2000-01-01") == []


def test_tags_that_a_log_holds_are_left_out_where_they_break_the_rule(tool: Caller, tmp_path: Path) -> None:
    steps = [{"actor": "agent", "message": "3"}]
    trajectory = {"source": {"format": "quintain"}, "steps": steps, "tags": ["good", "live", ""]}
    (tmp_path / "run.json").write_text(json.dumps(trajectory))
    assert tool(action="import", path=str(tmp_path / "run.json"), format="quintain")["imported"] == 1
    (item,) = tool(action="search", filter={"tags": ["good"]})["items"]
    assert item["tags"] == ["good"]


def test_tags_of_an_import_are_redacted_and_reach_runs_that_are_known(tool: Caller, tmp_path: Path) -> None:
    folder = log(tmp_path / "logs", "1", "2")
    assert tool(action="import", path=str(folder))["imported"] == 2
    result = tool(action="import", path=str(folder), tags=["mine", KEY])
    assert (result["imported"], result["updated"], result["duplicates"], result["unchanged_files"]) == (0, 2, 0, 0)
    assert len(tool.found(tags=["mine"])) == 2
    assert KEY not in json.dumps(tool(action="search", filter={"tags": ["mine"]}))
    again = tool(action="import", path=str(folder), tags=["mine"])
    assert (again["updated"], again["duplicates"]) == (0, 2)


def test_a_log_that_names_nobody_takes_the_name_of_the_import_now_or_later(tool: Caller, tmp_path: Path) -> None:
    """Two folders of results whose logs name no model can then be compared by agent."""
    folder = log(tmp_path, "Yes.")
    assert tool(action="import", path=str(folder))["imported"] == 1
    again = tool(action="import", path=str(folder), agent=f"sonnet {KEY}")
    assert (again["imported"], again["updated"]) == (0, 1)
    (run_id,) = tool.found(agent="sonnet [REDACTED:github_token]")
    tool(action="import", path=str(folder), agent="other")
    assert tool.found(agent="sonnet [REDACTED:github_token]") == [run_id], "a name that is known stays"


def test_a_session_that_has_grown_keeps_its_tags(tool: Caller) -> None:
    trajectory = {"session_id": "s", "steps": [{"actor": "user", "message": "Go"}, {"actor": "agent", "message": "1"}]}
    more = {**trajectory, "steps": [*trajectory["steps"], {"actor": "agent", "message": "2"}]}
    name = tool.record(trajectory=trajectory, tags=["one"])["trajectory_id"]
    grown = tool.record(trajectory=more, tags=["two"])
    assert (grown["trajectory_id"], grown["steps"]) == (name, 2)
    assert tool.found(tags=["one", "two"]) == [name]


def test_what_was_forgotten_is_called_so_when_it_comes_again(tool: Caller, tmp_path: Path) -> None:
    folder = log(tmp_path / "logs", "1")
    tool(action="import", path=str(folder))
    (imported,) = tool.found(since="2000-01-01")
    recorded = tool.record(messages=MESSAGES, task="Count.", outcome="success", tags=["gone"])["trajectory_id"]
    dataset = tool(action="export", kind="sft", name="held", trajectory_ids=[recorded])["dataset_id"]
    tool(action="forget", id=imported, trajectory_ids=[recorded], dry_run=False)
    result = tool(action="import", path=str(folder), again=True)
    assert (result["imported"], result["duplicates"], result["forgotten"]) == (0, 0, 1)
    assert "forgotten" in result["next_step"]
    again = tool.record(messages=MESSAGES, task="Count.", outcome="success", tags=["gone"])
    assert (again["created"], again["forgotten"], again["steps"]) == (False, True, 0)
    assert tool.found(tags=["gone"]) == []
    library = tool(action="library", kind="datasets")
    assert (library["items"][0]["id"], library["items"][0]["forgotten"]) == (dataset, 1)
    assert "Train on one" not in library["next_step"]


def test_forgetting_takes_no_word_for_yes(tool: Caller) -> None:
    name = tool.record(messages=MESSAGES, task="Count.")["trajectory_id"]
    for word in ("yes", "false", 1):
        assert tool(action="forget", id=name, dry_run=word)["status"] == "error"
    assert tool.found(since="2000-01-01") == [name]


ADVICE: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("sft", {}, ["outcomes=['unknown']", "min_score"], []),
    ("dpo", {}, ["scorer='rules'"], ["outcomes=['unknown']", "sft"]),
    ("dpo", {"outcomes": ["unknown"]}, ["scorer='rules'"], ["outcomes=['unknown']"]),
    ("kto", {}, ["scorer='rules'"], ["sft"]),
    ("reward", {}, ["scorer='rules'"], ["sft"]),
    ("grpo", {}, ["scorer='rules'"], ["sft", "min_score"]),
    ("prm", {"curation": {"step_labels": "outcome"}}, ["record rewards for the steps"], ["scorer"]),
]
"""Kind, further arguments, what the advice for runs of unknown outcome names, and what it never names."""


def test_unknown_outcomes_are_refused_with_what_helps_the_kind_and_the_advice_works(tool: Caller) -> None:
    names = [
        tool.record(messages=[MESSAGES[0], {"role": "assistant", "content": text}], task="Count.")["trajectory_id"]
        for text in ("3", "4")
    ]
    for kind, more, words, never in ADVICE:
        refused = tool(action="export", kind=kind, name="none", trajectory_ids=names, **more)
        assert refused["code"] == "empty_dataset"
        advice = refused["message"].split("For outcome_unknown: ")[1]
        for word in [*words, "record_trajectory(trajectory_id=..., outcome='success')"]:
            assert word in advice, kind
        assert not [word for word in never if word in advice], kind
    refused = tool(action="export", kind="prm", name="none", trajectory_ids=names[:1])
    assert "labels runs of known outcome" in refused["message"]
    for name, outcome in zip(names, ("success", "failure"), strict=True):
        tool.record(trajectory_id=name, outcome=outcome)
    assert tool(action="export", kind="dpo", name="pairs", trajectory_ids=names)["rows"] == 1


ASKED = {"role": "user", "content": "Count the apples."}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_appends_at_the_same_time_lose_nothing(tool: Caller, home: Path) -> None:
    name = tool.record(live="open", messages=[ASKED], task="apples")["trajectory_id"]

    def append(n: int) -> str:
        other = Caller(home)
        try:
            return str(other.record(live="append", trajectory_id=name, messages=[said(f"turn {n}")])["status"])
        finally:
            other.close()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(append, range(24))) == {"success"}
    assert tool.record(live="close", trajectory_id=name, outcome="success")["steps"] == 24


def test_a_run_can_be_opened_before_the_agent_acts(tool: Caller) -> None:
    opened = tool.record(live="open", messages=[ASKED], task="apples")
    assert (opened["steps"], opened["live"]) == (0, True)
    name = opened["trajectory_id"]
    assert (
        tool.record(live="append", trajectory_id=name, messages=[{"role": "user", "content": "Please."}])["steps"] == 0
    )
    closed = tool.record(live="close", trajectory_id=name, messages=[said("3")], tags=["done"])
    assert (closed["steps"], closed["outcome"]) == (1, "unknown")
    found = tool(action="search", filter={"tags": ["done"]})["items"]
    assert [item["id"] for item in found] == [name]


def test_closing_without_an_outcome_keeps_the_one_that_was_stated(tool: Caller) -> None:
    name = tool.record(live="open", messages=[ASKED, said("2")], task="apples", outcome="failure")["trajectory_id"]
    assert tool.record(live="close", trajectory_id=name)["outcome"] == "failure"


NOT_TAKEN: list[tuple[dict[str, Any], str]] = [
    ({"messages": [said("3")], "tags": ["live"]}, "reserved for open recordings"),
    (
        {"trajectory": {"tags": ["live"], "steps": [{"actor": "agent", "message": "3"}]}},
        "reserved for open recordings",
    ),
    ({"messages": [said("3")], "trajectory_id": "traj-1"}, "open recording"),
    ({"live": "append", "messages": [said("3")]}, "needs the `trajectory_id`"),
    (
        {"live": "append", "trajectory_id": "traj-1", "messages": [said("3")], "outcome": "success"},
        "does not take outcome",
    ),
    ({"live": "close", "trajectory_id": "traj-1", "agent": "me"}, "does not take agent"),
    ({"live": "append", "trajectory_id": "traj-1"}, "new `messages`"),
    ({"messages": []}, "messages is empty"),
    ({"trajectory": {"id": "../../etc", "steps": [{"actor": "agent", "message": "3"}]}}, "trajectory.id"),
]


def test_what_a_recording_does_not_take_is_refused(tool: Caller) -> None:
    for arguments, words in NOT_TAKEN:
        answer = tool.record(**arguments)
        assert answer["status"] == "error"
        assert words in answer["message"]


def test_an_atif_document_is_recorded_as_what_it_is(tool: Caller) -> None:
    document = {
        "schema_version": "ATIF-v1.7",
        "session_id": "s1",
        "agent": {"name": "mine", "version": "1", "model_name": "tiny"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "Count the apples."},
            {
                "step_id": 2,
                "source": "agent",
                "message": "I look.",
                "tool_calls": [{"tool_call_id": "c1", "function_name": "look", "arguments": {"at": "tree"}}],
                "observation": {"results": [{"source_call_id": "c1", "content": "3 apples"}]},
            },
        ],
    }
    recorded = tool.record(trajectory=document)
    assert (recorded["steps"], recorded["outcome"]) == (1, "unknown")
    shown = tool(action="get", trajectory_id=recorded["trajectory_id"])["trajectory"]
    assert shown["steps"][1]["observations"][0]["content"] == "3 apples"


def test_an_open_recording_is_in_no_dataset_before_it_is_closed(tool: Caller) -> None:
    tool.record(messages=[ASKED, said("2")], task="apples", outcome="success", tags=["k"])
    name = tool.record(live="open", messages=[ASKED, said("3")], task="apples", outcome="success", tags=["k"])
    asked = {"action": "export", "kind": "sft", "name": "apples", "filter": {"tags": ["k"]}}
    result = json.loads(tool.run(asked))
    assert (result["trajectories"], result["dropped"]) == (1, {"still_open": 1})
    alone = {"action": "export", "kind": "sft", "name": "open", "trajectory_ids": [name["trajectory_id"]]}
    assert "close each with" in tool.run(alone)
    tool.record(live="close", trajectory_id=name["trajectory_id"])
    assert tool(**{**asked, "name": "both"})["trajectories"] == 2
