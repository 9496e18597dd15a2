"""Labels in a file of their own: matched with stored runs, stored once, and read like labels that were given by hand."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from mcp_client import ToolCaller
from quintain.records.filters import EVERY_RUN, TrajectoryFilter
from quintain.records.trajectory import OutcomeStatus
from quintain.tools.services import Services
from tools.stored_records import write_rows
from trace_logs import genai, otlp

KEY = "sk-ant-api03-" + "Zk3" * 28
RUNS = range(6)
TRACES = [f"5f0c2a9e{n:024x}" for n in RUNS]


def chat(n: int) -> dict[str, Any]:
    """A chat of two answers, of one of three tasks, with the names that its log gives it."""
    asked = [{"role": "user", "content": f"Task {n % 3}."}, {"role": "assistant", "content": f"First {n}."}]
    answered = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": f"Then {n}."}]
    names = {"session_id": f"sess-{n}", "trace_id": TRACES[n], "metadata": {"ticket": f"T-{n}", "shift": f"s{n % 2}"}}
    return {"messages": [*asked, *answered], "task_id": f"task-{n % 3}", **names}


def table(path: Path, columns: str, *rows: Sequence[object]) -> None:
    """Write a table as a spreadsheet does."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns.split(","), *rows])


@pytest.fixture
def ids(inbox: Path, ask: ToolCaller, services: Services) -> list[str]:
    """The ids of six stored chats."""
    write_rows(inbox / "chats.jsonl", *map(chat, RUNS))
    assert ask("import_trajectories", path="chats.jsonl")["imported"] == len(RUNS)
    return [run.id or "" for run in services.store.trajectories.iterate(TrajectoryFilter())]


def test_labels_are_stored_once_for_each_rater_and_count_like_those_given_by_hand(
    inbox: Path, ask: ToolCaller, ids: list[str], services: Services
) -> None:
    votes = [("ann", "up"), ("ben", "down")]
    rows = [(f"T-{n}", vote if n else "up", name, f"row {n}") for n in RUNS for name, vote in votes]
    table(inbox / "thumbs.csv", "ticket,thumbs,annotator,comment", *rows)
    (why,) = ask.refused("import_trajectories", {"path": "thumbs.csv"})
    assert why.startswith("[no_labels]")
    assert "got 'up' (7), 'down' (5); state which values are good" in why
    marks = {"good": "up", "bad": "down"}
    dry = ask("import_trajectories", path="thumbs.csv", columns=marks, dry_run=True)
    assert (dry["format"], dry["imported"], dry["labels"][1]["rater"]) == ("labels", 12, "person:ben")
    assert dry["notes"][0] == (
        "Columns: run 'ticket'; label 'thumbs'; rater 'annotator'; comment 'comment'. The run is named by its "
        "extra.row.metadata.ticket."
    )
    assert services.store.scores.scorers() == []
    done = ask("import_trajectories", path="thumbs.csv", columns=marks)
    assert (done["imported"], done["updated"], done["duplicates"]) == (12, 0, 0)
    assert "person:ann and person:ben on 6 runs" in done["notes"][1]
    again = ask("import_trajectories", path="thumbs.csv", columns=marks)
    assert (again["imported"], again["updated"], again["duplicates"]) == (0, 0, 12)
    table(
        inbox / "thumbs.csv",
        "ticket,thumbs,annotator,comment",
        ("T-0", "up", "ben", "row 0"),
        ("T-1", "up", "ben", "now good"),
    )
    newer = ask("import_trajectories", path="thumbs.csv", columns=marks)
    assert (newer["imported"], newer["updated"], newer["duplicates"]) == (0, 1, 1)
    scored = ask("score_trajectories", scorer="people:thumbs", trajectory_ids=ids)
    assert (scored["scored"], scored["summary"]["mean"]) == (6, pytest.approx(4 / 6))
    assert "raters disagree on 4 of 6 runs" in scored["warnings"][0]
    good = ask("export_dataset", kind="sft", name="ben", scorer="people@ben", min_score=0.5, trajectory_ids=ids)
    assert good["rows"] == 2
    batch = ask("get_judging_batch", limit=2, judge="person", rater="ann", rubric="thumbs")
    assert "'person:ann' has judged all runs" in batch["next_step"]
    assert batch["agreement"]["shared_runs"] == 6


def test_rows_of_no_run_of_several_or_without_a_readable_label_are_listed_and_the_rest_is_stored(
    inbox: Path, ask: ToolCaller, ids: list[str]
) -> None:
    rows = [
        (ids[0], 1),
        ("traj-none", 1),
        ("task-1", 0),
        (ids[1], ""),
        (ids[2], "n/a"),
        ("", 1),
        (ids[3], 0.25),
        (ids[3], 0.5),
    ]
    table(inbox / "scores.csv", "id,score", *rows)
    done = ask("import_trajectories", path="scores.csv")
    assert (done["imported"], done["rejected_count"]) == (2, 4)
    assert [(one["line"], one["reason"].partition(";")[0]) for one in done["rejected"]] == [
        (2, "no stored run has 'traj-none' as its id"),
        (3, "no stored run has 'task-1' as its id"),
        (5, "expected a number in 0..1, true or false in 'score', the label, got 'n/a'"),
        (6, "expected the name of a run in 'id', got none"),
    ]
    assert done["notes"][1].startswith("1 row without a label")
    assert done["notes"][2].startswith("1 answer of one rater on the same run changed by a later row")
    assert [one["value"] for one in done["labels"]] == [1.0, 0.5]
    table(inbox / "tasks.csv", "task,label", *((f"task-{n}", "true") for n in range(3)))
    several = ask("import_trajectories", path="tasks.csv")
    assert (several["imported"], several["rejected_count"]) == (0, 3)
    assert several["rejected"][0]["reason"].startswith("2 runs have 'task-0' as their task_id (traj-")


def langfuse(path: Path) -> None:
    rows = [
        {"id": f"s{n}", "traceId": TRACES[n], "name": "helpful", "value": n / 10, "stringValue": None, "comment": "c"}
        | {"source": "ANNOTATION" if n < 4 else "EVAL", "dataType": "NUMERIC", "authorUserId": "u1"}
        for n in RUNS
    ]
    path.write_text(json.dumps({"data": rows, "meta": {"page": 1}}), encoding="utf-8")


def langsmith(path: Path) -> None:
    columns = "id,session_id,run_id,key,score,value,comment,feedback_source.type,feedback_source.user_id"
    table(
        path, columns, *((f"f{n}", "project", f"sess-{n}", "tone", n % 2, "", "why", "app", f"u{n % 2}") for n in RUNS)
    )


def phoenix(path: Path) -> None:
    kinds = ["HUMAN"] * 5 + ["CODE"]
    rows = [
        {
            "span_id": f"{n:016x}",
            "trace_id": TRACES[n],
            "name": "correctness",
            "annotator_kind": kinds[n],
            "identifier": "eve",
        }
        | {"result": {"label": "right", "score": n % 2, "explanation": "so"}}
        for n in RUNS
    ]
    write_rows(path, *rows)


def argilla(path: Path) -> None:
    rows = [
        {"id": f"sess-{n}", "prompt": "Task.", "q.responses": [1, 5], "q.responses.users": ["a", "b"]} for n in RUNS
    ]
    write_rows(path, *rows)


def label_studio(path: Path) -> None:
    said = [[{"completed_by": by, "result": [{"value": {"choices": [word]}, "from_name": "v"}]} for by, word in pair]
            for pair in ([(1, "Good")], [(1, "Bad"), (2, "Good")])]  # fmt: skip
    path.write_text(
        json.dumps([{"id": n, "data": {"run": f"sess-{n}"}, "annotations": said[n % 2]} for n in RUNS]), "utf-8"
    )


def database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE users (id INTEGER, name TEXT)")
        connection.execute(
            "CREATE TABLE feedback (id INTEGER, session_id TEXT, rating INTEGER, comment TEXT, user_id TEXT)"
        )
        rows = [(n, f"sess-{n}", 1 if n % 2 else -1, "ok", "zoe") for n in RUNS]
        connection.executemany("INSERT INTO feedback VALUES (?, ?, ?, ?, ?)", rows)
    connection.close()


def columnar(path: Path) -> None:
    columns = {
        "session_id": [f"sess-{n}" for n in RUNS],
        "quality": [0.0, 0.5, 1.0] * 2,
        "empty": [float("nan")] * 6,
        "tone": [1.0] * 6,
    }
    parquet.write_table(pyarrow.table(columns), path)


@pytest.mark.parametrize(
    ("name", "write", "columns", "raters", "values"),
    [
        ("scores.json", langfuse, {}, {"person:u1", "assistant:u1"}, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("feedback.csv", langsmith, {}, {"person:u0", "person:u1"}, [0, 1] * 3),
        ("spans.jsonl", phoenix, {}, {"person:eve", "assistant:eve"}, [0, 1] * 3),
        ("records.jsonl", argilla, {"worst": "1", "best": "5"}, {"person:a", "person:b"}, [0, 1] * 6),
        (
            "tasks.json",
            label_studio,
            {"label": "annotations.result.value.choices", "good": "Good", "bad": "Bad"},
            {"person:1", "person:2"},
            [1, 0, 1] * 3,
        ),
        ("app.db", database, {}, {"person:zoe"}, [0, 1] * 3),
        ("rated.parquet", columnar, {"label": "quality,tone", "rater": "=zoe"}, {"person:zoe"}, [0.5, 0.75, 1.0] * 2),
    ],
)
def test_exports_of_others_are_read_by_the_names_of_their_columns(
    inbox: Path,
    ask: ToolCaller,
    ids: list[str],
    name: str,
    write: Callable[[Path], None],
    columns: dict[str, str],
    raters: set[str],
    values: list[float],
) -> None:
    write(inbox / name)
    done = ask("import_trajectories", path=name, **({"columns": columns} if columns else {}))
    assert (done["imported"], done["rejected_count"]) == (len(values), 0)
    assert {one["rater"] for one in done["labels"]} == raters
    assert [one["value"] for one in done["labels"]] == pytest.approx(values)


def test_pairs_and_steps_and_outcomes_of_a_table_are_those_of_its_runs(
    inbox: Path, ask: ToolCaller, ids: list[str], services: Services
) -> None:
    rows = [
        ("sess-0", "sess-3", "run_b", "Ann Lee"),
        ("sess-1", "sess-4", "sess-1", "Ben"),
        ("sess-2", "sess-5", "tie", "Ben"),
        ("sess-0", "sess-1", "A", "Ben"),
    ]
    table(inbox / "duels.csv", "run_a,run_b,winner,judge", *rows)
    columns = {"a": "run_a", "b": "run_b", "better": "winner", "rater": "judge"}
    done = ask("import_trajectories", path="duels.csv", columns=columns)
    assert (done["imported"], done["rejected_count"]) == (3, 1)
    assert "are of different tasks" in done["rejected"][0]["reason"]
    assert ask("import_trajectories", path="duels.csv", columns=columns)["duplicates"] == 3
    said = services.store.preferences.among(ids)
    assert {(one.chosen, one.rater) for one in said} == {
        (ids[3], "person:Ann Lee"),
        (ids[1], "person:Ben"),
        (None, "person:Ben"),
    }
    assert ask("export_dataset", kind="dpo", name="duels", pairs="recorded", filter=EVERY_RUN)["rows"] == 2

    table(
        inbox / "steps.csv", "run,step,score", ("sess-0", 0, 0.5), ("sess-0", 1, 1), ("sess-0", 2, 1), ("sess-1", "", 0)
    )
    steps = ask("import_trajectories", path="steps.csv")
    assert (steps["imported"], [one["line"] for one in steps["rejected"]]) == (2, [3])
    assert steps["rejected"][0]["reason"] == f"expected an agent step of {ids[0]} in 'step', 0..1, got '2'"
    (score,) = services.store.scores.by_scorers(["people"], ids[:1])[ids[0]]
    assert ([one.value for one in score.steps], score.value) == ([0.5, 1.0], 0.75)

    table(inbox / "ended.csv", "run,resolved", *((f"sess-{n}", ["true", "failure"][n % 2]) for n in RUNS))
    assert ask("import_trajectories", path="ended.csv", dry_run=True)["labels"][1]["outcome"] == "failure"
    assert ask("import_trajectories", path="ended.csv")["imported"] == 6
    assert ask("import_trajectories", path="ended.csv")["duplicates"] == 6
    table(inbox / "ended.csv", "run,resolved", ("sess-0", "error"))
    assert ask("import_trajectories", path="ended.csv")["updated"] == 1, "the same rater corrects their word"
    assert services.store.trajectories.get(ids[0]).outcome.status is OutcomeStatus.ERROR


def test_what_the_columns_do_not_say_is_asked_for_and_secrets_do_not_come_in(
    inbox: Path, ask: ToolCaller, ids: list[str], services: Services
) -> None:
    rows = [
        (f"sess-{n}", n % 5 + 1, "x", f"mail ada.lovelace@gmail.com, {KEY}", "ada.lovelace@gmail.com") for n in RUNS
    ]
    table(inbox / "stars.csv", "run,stars,grade,note,rater", *rows)
    ask_for = [
        ({}, "[no_scale] columns: expected values in 0..1, or -1 and 1, in 'stars'"),
        ({"label": "stars", "worst": "1"}, "expected two different numbers as `worst` and `best`"),
        ({"lable": "stars"}, "got 'lable'"),
        ({"label": "star"}, "got 'star' for label (did you mean 'stars'?)"),
        ({"label": "stars", "rater": "Ada"}, 'one for all rows is written "=NAME"'),
        ({"run": "note"}, "[no_runs_named] expected column 'note' with names of stored runs"),
        ({"table": "feedback"}, "`table` is for a database"),
    ]
    refused = ask.refused("import_trajectories", *({"path": "stars.csv", "columns": columns} for columns, _ in ask_for))
    for why, (_, said) in zip(refused, ask_for, strict=True):
        assert said in why
    table(inbox / "good.csv", "Run,Good?,Team,Reviewer", *((f"sess-{n}", "YN"[n % 2], "a", "Zoe") for n in RUNS))
    (unnamed,) = ask.refused("import_trajectories", {"path": "good.csv"})
    assert unnamed.startswith("[no_label_column] expected one column that may be the label, got 'Good?', 'Team'")
    said = ask("import_trajectories", path="good.csv", columns={"good": "Y", "bad": "N"}, dry_run=True)
    assert [one["value"] for one in said["labels"]] == [1, 0] * 3
    (inbox / "latin.csv").write_bytes("run,score,rater\nsess-0,1,Zo\u00eb\n".encode("latin-1"))
    (encoded,) = ask.refused("import_trajectories", {"path": "latin.csv", "format": "labels"})
    assert "expected rows in latin.csv, got none: expected a table in UTF-8" in encoded
    (tagged,) = ask.refused("import_trajectories", {"path": "stars.csv", "format": "labels", "tags": ["x"]})
    assert "expected neither another format nor tags or agent beside `columns`" in tagged
    table(inbox / "who.csv", "run,score,source", *((f"sess-{n}", 1, "API") for n in RUNS))
    (unclear,) = ask.refused("import_trajectories", {"path": "who.csv"})
    assert "columns={'person': 'API'}" in unclear
    assert ask("import_trajectories", path="who.csv", columns={"person": "app"})["labels"][0]["rater"] == "assistant"
    done = ask("import_trajectories", path="stars.csv", columns={"worst": "1", "best": "5"})
    assert [one["value"] for one in done["labels"]] == [0, 0.25, 0.5, 0.75, 1, 0]
    stored = b"".join(path.read_bytes() for path in services.settings.home.glob("quintain.db*"))
    assert KEY.encode() not in stored
    assert b"ada.lovelace" not in stored
    assert done["labels"][0]["rater"].startswith("person:rater-")


def test_an_annotation_of_a_span_labels_the_run_of_its_trace(inbox: Path, ask: ToolCaller, services: Services) -> None:
    write_rows(inbox / "spans.jsonl", otlp(*genai(as_text=True)))
    assert ask("import_trajectories", path="spans.jsonl")["imported"]
    runs = list(services.store.trajectories.iterate(TrajectoryFilter()))
    ((trace, root, *_),) = [run.extra["spans"] for run in runs if "spans" in run.extra]
    table(inbox / "annotations.csv", "span_id,name,annotator_kind,result.score", (root, "helpful", "HUMAN", 1))
    done = ask("import_trajectories", path="annotations.csv")
    assert [(one["rubric"], one["value"]) for one in done["labels"]] == [("helpful", 1.0)]
    table(inbox / "traces.csv", "trace,thumbs", (trace, "true"))
    assert (
        ask("import_trajectories", path="traces.csv")["labels"][0]["trajectory_id"]
        == done["labels"][0]["trajectory_id"]
    )
