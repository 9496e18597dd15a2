"""Ready-made rows become datasets: files, tables and saved data sets, checked row by row, with a manifest."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quintain.datasets.manifest import manifest_entries
from quintain.datasets.row_files import HUB_NAME, row_files, rows_of, write_lines
from quintain.datasets.rows import read_rows
from quintain.errors import InvalidInput, NotFound, QuintainError, Refused
from quintain.files import sha256_of
from quintain.importers.protocol import Report
from quintain.records.dataset import Curation
from quintain.records.filters import TrajectoryFilter
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.results import ExportResult
from quintain.tools.services import Services
from quintain.tools.training.planning.plan import plan_training

TRUSTED = False  # the services are a client's

SUMS = [{"prompt": "2+2?", "response": "4"}, {"prompt": "3+3?", "response": "6"}]
CHATS = [
    {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text * 2}]} for text in ("a", "b")
]
KEY = "sk-proj-" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7dE9fG1hJ3"


def _write(services: Services, name: str, rows: Sequence[Any]) -> Path:
    path = services.settings.inbox_dir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _export(services: Services, kind: str, path: str | Path, **arguments: Any) -> ExportResult:
    return export_dataset(services, kind, "made", path=str(path), **arguments)  # type: ignore[arg-type]


def _rows(result: ExportResult) -> list[Any]:
    return list(read_rows(Path(result.path), "train", kind=result.kind))


def _said(result: ExportResult) -> list[tuple[str, str]]:
    return [(row.trajectory.task.prompt, row.trajectory.agent_steps[-1].message) for row in _rows(result)]


def test_prompts_and_responses_become_runs_that_the_store_and_the_dataset_know(services: Services) -> None:
    path = _write(services, "sums.jsonl", SUMS)
    result = _export(services, "sft", "sums.jsonl", seed=7)
    assert _said(result) == [("2+2?", "4"), ("3+3?", "6")]
    members = services.store.datasets.member_ids(result.dataset_id)
    runs = list(services.store.trajectories.iterate(ids=members))
    assert [run.id for run in runs] == [row.trajectory.id for row in _rows(result)]
    assert {(run.source.uri, run.source.sha256, run.outcome.status) for run in runs} == {
        (str(path), sha256_of(path), "unknown")
    }
    manifest = json.loads((Path(result.path) / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["source"] == {"files": [{"name": str(path), "sha256": sha256_of(path)}], "columns": {}}
    assert manifest["dataset"]["seed"] == 7


def test_bad_rows_are_listed_with_their_line_and_the_rest_comes_in(services: Services) -> None:
    """Six lines: two good, one blank, one torn, one of another shape, one repeated."""
    _write(services, "sums.jsonl", [SUMS[0], "", "{torn", {"prompt": "no answer"}, SUMS[1], SUMS[0]])
    result = _export(services, "sft", "sums.jsonl")
    assert (result.rows, result.dropped) == (2, {"unreadable_row": 2, "duplicate": 1})
    assert [(row.file, row.line) for row in result.rejected] == [("sums.jsonl", 3), ("sums.jsonl", 4)]
    assert "not JSON" in result.rejected[0].reason
    manifest = json.loads((Path(result.path) / "manifest.json").read_text(encoding="utf-8"))
    assert [row["line"] for row in manifest["rejected"]] == [3, 4]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"expected rows in odd\.jsonl, got none"),
        (b"\x00\x01\x02", r"odd\.jsonl: "),
        (
            b'{"ask": "2+2?", "say": "4"}',
            r"no_rows.*ask, say.*name their fields, such as `columns=.*quintain/tasks\?file=PATH",
        ),
        (
            b'{"prompt": "2+2?", "ground_truth": "4"}',
            r"no_rows.*without an agent turn; rows that only ask are tasks, which an agent plays as `environment='quintain/tasks",
        ),
    ],
    ids=["empty", "unreadable as a whole", "other fields", "tasks"],
)
def test_a_file_without_a_good_row_is_refused_by_its_cause_and_leaves_nothing(
    services: Services, content: bytes, said: str
) -> None:
    (services.settings.inbox_dir / "odd.jsonl").write_bytes(content)
    with pytest.raises(InvalidInput, match=said) as raised:
        _export(services, "sft", "odd.jsonl")
    assert "None" not in raised.value.message, "a fault of the whole file has no line"
    assert services.store.datasets.page().items == ()
    assert [path.name for path in services.settings.home.glob("rows-*")] == []


def test_columns_give_fields_their_known_names_and_lines_keep_their_numbers(services: Services) -> None:
    """`prompt` is a column of another meaning: it goes."""
    rows = [{"ask": "2+2?", "say": "4", "prompt": "template 7"}, "", "{torn", {"ask": "3+3?", "say": "6"}]
    _write(services, "odd.jsonl", rows)
    result = _export(services, "sft", "odd.jsonl", columns={"prompt": "ask", "response": "say"})
    assert _said(result) == [("2+2?", "4"), ("3+3?", "6")]
    assert [row.line for row in result.rejected] == [3]
    with pytest.raises(InvalidInput, match="no column 'question'; they have 'ask', 'say', 'prompt'"):
        _export(services, "sft", "odd.jsonl", columns={"prompt": "question"})


def test_the_column_named_as_the_split_places_rows_and_a_task_stands_in_one_split(services: Services) -> None:
    """Of 7 rows one is of a split that is not learned from, one without a name, and one asks what a row of train asks."""
    sides = ["train", "dev", "Validation", "test", None, "train", "val"]
    rows = [{"prompt": f"Q{n % 6}", "response": f"A{n}", "part": side} for n, side in enumerate(sides)]
    _write(services, "parts.jsonl", rows)
    made = _export(services, "sft", "parts.jsonl", columns={"split": "part"})
    assert made.splits == {"train": 4, "validation": 2}
    assert made.dropped == {"other_split": 1}
    stored = services.store.datasets.get(made.dataset_id)
    held = {
        split: [row.trajectory.task.prompt for row in read_rows(Path(stored.path), split, kind="sft")]
        for split in ("train", "validation")
    }
    assert held == {"train": ["Q0", "Q4", "Q5", "Q0"], "validation": ["Q1", "Q2"]}
    for share, words in (
        ({"validation_share": 0.2}, "either 'split'"),
        ({"kind": "text"}, "no 'split' with kind 'text'"),
    ):
        asked = {"kind": "sft", "path": "parts.jsonl", "columns": {"split": "part"}, **share}
        with pytest.raises(InvalidInput, match=words):
            _export(services, **asked)


def test_rows_of_other_splits_that_train_because_their_column_is_not_named_are_noted(services: Services) -> None:
    rows = [
        {"prompt": f"Q{n}", "response": "A", "split": side} for n, side in enumerate(("train", "test", "test", "dev"))
    ]
    _write(services, "parts.jsonl", rows)
    (note,) = _export(services, "sft", "parts.jsonl").warnings
    assert "so 2 rows of test, 1 row of validation are like all others" in note
    made = _export(services, "sft", "parts.jsonl", columns={"split": "split"})
    assert (made.splits, made.dropped, made.warnings) == ({"train": 1, "validation": 1}, {"other_split": 2}, ())


@pytest.mark.parametrize("kind", ["sft", "kto"])
def test_a_name_of_a_column_that_no_reader_knows_is_refused_with_the_nearest(services: Services, kind: str) -> None:
    """The right names are read: a system prompt, a label and a task; a reward is none of a labelled row."""
    rows = [
        {
            "ask": f"{n}+{n}?",
            "say": str(2 * n),
            "sys": "" if n < 3 else "Be brief.",
            "thumb": n % 2,
            "worth": n / 10,
            "at": n,
        }
        for n in range(9)
    ]
    _write(services, "odd.jsonl", rows)
    named = {"prompt": "ask", "response": "say", "label": "thumb"}
    for wrong, near, column in (
        ("sytem", "system", "sys"),
        ("lable", "label", "worth"),
        ("rewards", "reward", "worth"),
    ):
        with pytest.raises(InvalidInput, match=rf"got '{wrong}' \(did you mean '{near}'\?\), which changes nothing"):
            _export(services, kind, "odd.jsonl", columns={**named, wrong: column})
    with pytest.raises(InvalidInput, match="got 'reward', which changes nothing"):
        _export(services, kind, "odd.jsonl", columns={**named, "reward": "worth"})
    made = _export(services, kind, "odd.jsonl", columns={**named, "system": "sys", "task_id": "at"})
    runs = [row.trajectory for row in _rows(made)]
    assert {run.task.id for run in runs} <= set("012345678")
    twice = _export(services, kind, "odd.jsonl", columns={**named, "task_id": "ask"})
    assert all(run.task.id == run.task.prompt for run in (row.trajectory for row in _rows(twice)))
    assert any(run.steps[0].message == "Be brief." for run in runs)


@pytest.mark.parametrize(("name", "mark"), [("t.csv", ","), ("t.csv", ";"), ("t.TSV", "\t")])
def test_tables_of_a_spreadsheet_are_rows(services: Services, name: str, mark: str) -> None:
    """RFC 4180: quoted cells hold delimiters, quotes and line breaks; an answer that is a number stays a text."""
    rows = (
        ("ask", "say", "good", "reward"),
        ('"2+2,\n\tor ""4""?"', "4", "1", "0.5"),
        ("3;3?" if mark == "," else "3?", "6", "-1", ""),
    )
    text = "\ufeff" + "".join(mark.join(row) + "\r\n" for row in rows) + mark.join("abc") + "\r\n"
    path = _write(services, name, [])
    path.write_text(text, encoding="utf-8", newline="")
    named = {"prompt": "ask", "response": "say"}
    made = _export(services, "sft", name, columns=named)
    assert _said(made) == [('2+2,\n\tor "4"?', "4"), (rows[2][0], "6")]
    assert [row.trajectory.outcome.reward for row in _rows(made)] == [0.5, None]
    assert [(row.line, row.reason) for row in made.rejected] == [(3, "expected 4 cells, as in the first row, got 3")]
    marked = _export(services, "kto", name, columns={**named, "label": "good"})
    assert [row.desirable for row in _rows(marked)] == [True, False]


def test_columns_whose_names_all_begin_with_a_capital_are_known(services: Services) -> None:
    """As people write the header of a spreadsheet; in `columns` and `where` they are named as written."""
    table = "Prompt,Response,Label\n" + "".join(f"{n}?,{n},{bool(n % 2)}\n" for n in range(4))
    _write(services, "t.csv", []).write_text(table, encoding="utf-8")
    assert [row.desirable for row in _rows(_export(services, "kto", "t.csv"))] == [False, True, False, True]
    odd = _export(services, "sft", "t.csv", curation=Curation(where={"Label": "True"}))
    assert _said(odd) == [("1?", "1"), ("3?", "3")]
    swapped = _export(services, "sft", "t.csv", columns={"prompt": "Response", "response": "Prompt"})
    assert _said(swapped)[0] == ("0", "0?")


MESSAGES = [("9", "Ms. Miller", "Where is it?", "2026-03-01 10:00"), ("9", "Support", "In Rome.", "2026-03-01 10:05")]
MESSAGES += [("8", "Mr. Ode", "Hello?", "2026-02-01 09:00"), ("8", "Support", "Good morning.", "2026-02-01 09:01")]


def _write_table(services: Services, name: str, rows: Sequence[Sequence[str]]) -> None:
    services.settings.inbox_dir.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(row) + "\n" for row in rows)
    (services.settings.inbox_dir / name).write_text(text, encoding="utf-16")


def test_a_table_of_messages_is_a_chat_of_each_conversation_in_the_order_of_its_times(services: Services) -> None:
    """The newest message first and two conversations mixed, as databases export them; in UTF-16, as Excel writes text."""
    rows = [MESSAGES[n] for n in (1, 3, 0, 2)]
    _write_table(services, "desk.csv", [("ticket", "sender", "text", "created_at"), *rows])
    columns = {"session_id": "ticket", "role": "sender", "content": "text"}
    with pytest.raises(InvalidInput, match=r'state the role of the agent to train, such as `columns=\{"assistant"'):
        _export(services, "sft", "desk.csv", columns=columns)
    made = _export(services, "sft", "desk.csv", columns={**columns, "assistant": "Support"})
    assert set(_said(made)) == {("Where is it?", "In Rome."), ("Hello?", "Good morning.")}
    assert {row.trajectory.session_id for row in _rows(made)} == {"8", "9"}


def test_an_outcome_in_the_last_row_of_a_chat_is_that_of_the_run(services: Services) -> None:
    """A value beside an earlier message is of that message: it says nothing of the run."""
    rows = [("s1", "user", "Hi", ""), ("s1", "assistant", "Hello.", "true"), ("s2", "user", "Bye", "")]
    rows += [("s2", "assistant", "No.", "false"), ("s3", "user", "Why", "true"), ("s3", "assistant", "So.", "")]
    _write_table(services, "desk.csv", [("session_id", "role", "content", "success"), *rows])
    made = _export(services, "sft", "desk.csv")
    assert [row.trajectory.task.prompt for row in read_rows(Path(made.path), "train", kind="sft")] == ["Hi", "Why"]
    assert made.dropped == {"outcome_failure": 1}


def test_messages_of_unnamed_conversations_are_one_chat_with_a_warning_that_names_the_column(
    services: Services,
) -> None:
    rows = [(ticket, "assistant" if who == "Support" else "user", text) for ticket, who, text, _ in MESSAGES]
    _write_table(services, "desk.csv", [("ticket", "role", "content"), *rows])
    made = _export(services, "sft", "desk.csv")
    assert made.rows == 1
    assert "rename the column that names the conversation to session_id (of 'ticket'?)" in made.warnings[0]


def test_rows_are_chosen_by_the_values_of_their_columns(services: Services) -> None:
    pairs = [{"prompt": f"{n}?", "chosen": "4", "rejected": "5", "by": "AB"[n % 2], "votes": str(n)} for n in range(6)]
    _write(services, "pairs.jsonl", pairs)
    made = _export(services, "dpo", "pairs.jsonl", curation=Curation(where={"by": "a", "votes": ">=2"}))
    assert {row.chosen.extra["row"]["votes"] for row in _rows(made)} == {"2", "4"}
    assert made.dropped == {"not_where": 4}
    for but in ("!A|0", "!a|!0", ["!A", "!0"]):  # 0 stands in no cell of this column
        made = _export(services, "dpo", "pairs.jsonl", curation=Curation(where={"by": but, "votes": "!>=4"}))
        assert {row.chosen.extra["row"]["votes"] for row in _rows(made)} == {"1", "3"}
    with pytest.raises(InvalidInput, match=r"expected rows of pairs.jsonl with .*got none of 6; widen it"):
        _export(services, "dpo", "pairs.jsonl", curation=Curation(where={"votes": ">9"}))
    with pytest.raises(InvalidInput, match=r"expected columns of the rows .*'by', 'votes'.*got 'voter'"):
        _export(services, "dpo", "pairs.jsonl", curation=Curation(where={"voter": "a"}))
    with pytest.raises(InvalidInput, match=r"`curation.where` names the fields of a file; give its `path`"):
        export_dataset(services, "sft", "x", TrajectoryFilter(tags=("x",)), curation=Curation(where={"by": "a"}))


def test_columns_inside_of_others_are_named_by_both_and_what_rows_do_not_have_is_told(services: Services) -> None:
    marks = [None, {"rating": 1, "by": "ann"}, {"rating": -1, "by": "ann"}, {"rating": 1, "by": "ben"}, {"by": "ben"}]
    _write(services, "app.jsonl", [{"prompt": f"{n}?", "response": "4", "mark": mark} for n, mark in enumerate(marks)])
    label = {"label": "mark.rating", "good": "1", "bad": "-1"}
    made = _export(services, "kto", "app.jsonl", columns=label, curation=Curation(where={"mark.by": "!ben"}))
    assert [(row.trajectory.first_user_text, row.desirable) for row in _rows(made)] == [("1?", True), ("2?", False)]
    assert made.dropped == {"not_where": 2, "no_label": 1}
    with pytest.raises(InvalidInput, match=r"of the rows \('mark', 'prompt', 'response'\), got 'rating' for the label"):
        _export(services, "kto", "app.jsonl", columns=label | {"label": "rating"})
    with pytest.raises(InvalidInput, match=r"rows in app.jsonl, got none; left out: no_label 5; correct `columns`"):
        _export(services, "kto", "app.jsonl", columns=label | {"label": "mark.stars"})


def test_raters_who_disagree_on_a_pair_are_counted_and_the_majority_decides(services: Services) -> None:
    """2 to 1, 1 to 1 and 1 to 0 for the first answer, in any order of the rows."""
    votes = [(1, "a"), (0, "b"), (2, "a"), (1, "b"), (0, "a"), (0, "a")]
    rows = [
        {"prompt": f"{n}?", "answer_a": f"yes {n}", "answer_b": f"no {n}", "preferred": better, "rater": str(place)}
        for place, (n, better) in enumerate(votes)
    ]
    _write(services, "pairs.jsonl", rows)
    made = _export(services, "dpo", "pairs.jsonl")
    assert [row.chosen.steps[-1].message for row in _rows(made)] == ["yes 2", "yes 0"]
    assert made.dropped == {"raters_disagree": 4, "duplicate": 4}
    assert "1 pair in two directions: the one that more rows state is taken" in made.warnings
    _write(services, "tied.jsonl", [row for row in rows if row["prompt"] == "1?"])
    with pytest.raises(InvalidInput, match="none of 4 trajectories is left for training; dropped: raters_disagree 4"):
        _export(services, "dpo", "tied.jsonl")


def test_a_margin_holds_for_the_scores_that_rows_of_pairs_state(services: Services) -> None:
    """As in UltraFeedback. Pairs without scores are left out by any margin: unknown is not zero."""
    scores = [(0.9, 0.1), (0.9, 0.4), (0.6, 0.6), (0.2, 0.7), (None, None)]
    rows = [
        {"prompt": f"{n}?", "chosen": "yes", "rejected": "no", "score_chosen": better, "score_rejected": worse}
        for n, (better, worse) in enumerate(scores)
    ]
    _write(services, "rated.jsonl", [{k: v for k, v in row.items() if v is not None} for row in rows])

    def kept(margin: float | None) -> tuple[list[str], dict[str, int]]:
        made = _export(services, "dpo", "rated.jsonl", margin=margin)
        return [row.chosen.first_user_text for row in _rows(made)], dict(made.dropped)

    assert kept(None) == (["0?", "1?", "2?", "3?", "4?"], {})
    assert kept(0.4) == (["0?", "1?"], {"below_margin": 4, "no_margin": 2})
    assert kept(0.5) == (["0?"], {"below_margin": 6, "no_margin": 2})
    with pytest.raises(InvalidInput, match=r"dropped: below_margin 8, no_margin 2. For below_margin: lower `margin`"):
        kept(0.9)
    with pytest.raises(InvalidInput, match="`max_pairs_per_task` is 1, and the rows state their pairs"):
        _export(services, "dpo", "rated.jsonl", max_pairs_per_task=1)


def test_decimal_commas_are_numbers_and_a_bound_names_what_is_no_number(services: Services) -> None:
    """`1,234` may be a thousand or a fraction, so it is neither."""
    cells = ("4,5", "3,9", "5", "4.25", "n/a", "1,234", "")
    table = "ticket;asked;reply;csat\n" + "".join(
        f"{n};Where is {n}?;Here {n}.;{cell}\n" for n, cell in enumerate(cells)
    )
    (services.settings.inbox_dir / "desk.csv").write_text(table)
    columns = {"prompt": "asked", "response": "reply"}
    for bound in (">4", ">4,0", ">= 4.25"):
        made = _export(services, "sft", "desk.csv", columns=columns, curation=Curation(where={"csat": bound}))
        assert [row.trajectory.first_user_text for row in _rows(made)] == ["Where is 0?", "Where is 2?", "Where is 3?"]
        assert made.dropped == {"not_where": 2, "not_a_number": 2}
        assert made.warnings == (
            f"curation.where: 'csat' has values without a number, such as 'n/a': {bound} leaves them out",
        )
    rated = _export(
        services, "sft", "desk.csv", columns=columns | {"reward": "csat"}, curation=Curation(min_reward=4.25)
    )
    assert {row.trajectory.outcome.reward for row in _rows(rated)} == {4.5, 5.0, 4.25}
    assert "columns: 2 rows without a number in 'csat', such as 'n/a', so that the reward is unknown" in rated.warnings
    with pytest.raises(
        InvalidInput, match=r"such as `columns={'label': 'csat', 'good': '>=4'}` in place of the `reward`"
    ):
        _export(services, "kto", "desk.csv", columns=columns | {"reward": "csat"})
    with pytest.raises(
        InvalidInput, match=r"got none of 7; curation.where: 'csat' has values without a number, such as 'n/a'"
    ):
        _export(services, "sft", "desk.csv", columns=columns, curation=Curation(where={"csat": ">9"}))


def test_rows_are_chosen_by_a_bound_on_their_date(services: Services) -> None:
    times = ["2026-10-31T23:59:59Z", "2026-11-01T02:00:00+03:00", "2026-11-01", 1793491200, "soon", ""]
    _write(services, "dated.jsonl", [{"prompt": f"{n}?", "response": "yes", "at": at} for n, at in enumerate(times)])
    made = _export(services, "sft", "dated.jsonl", curation=Curation(where={"at": ">=2026-11-01"}))
    assert ([ask for ask, _ in _said(made)], made.dropped) == (["2?", "3?"], {"not_where": 3, "not_a_number": 1})
    assert "'at' has values without a date, such as 'soon': >=2026-11-01 leaves them out" in str(made.warnings)


def test_answers_of_one_prompt_are_paired_by_their_ratings(services: Services) -> None:
    rows = [{"prompt": "2+2?", "response": str(n), "stars": n} for n in (2, 5, 4)]
    _write(services, "stars.jsonl", [*rows, {"prompt": "3+3?", "response": "6", "stars": 3}])
    made = _export(services, "dpo", "stars.jsonl", columns={"reward": "stars"})
    assert {(row.chosen.outcome.reward, row.rejected.outcome.reward) for row in _rows(made)} == {(5, 2), (5, 4), (4, 2)}


def test_joined_datasets_have_each_row_once_and_a_task_in_one_split(services: Services) -> None:
    both = [{"prompt": f"{n}+1?", "response": str(n + 1)} for n in range(8)]
    for name, rows, seed in (("a", both[:5], 1), ("b", both[3:], 2)):
        path = str(_write(services, f"{name}.jsonl", rows))
        export_dataset(services, "sft", name, path=path, validation_share=0.4, seed=seed)
    made = _export(services, "sft", "a+b")
    parts = {split: list(read_rows(Path(made.path), split)) for split in ("train", "validation")}  # type: ignore[call-overload]
    asked = {split: {row.trajectory.task.prompt for row in rows} for split, rows in parts.items()}
    assert (sum(map(len, parts.values())), made.dropped) == (8, {"duplicate": 2})
    assert asked["train"] | asked["validation"] == {row["prompt"] for row in both}
    assert not asked["train"] & asked["validation"]
    assert len(asked["validation"]) == made.splits["validation"] > 0
    with pytest.raises(NotFound, match=r"join them first: export_dataset\(kind='sft', name='joined', path='a\+b'\)"):
        services.store.datasets.get("a and b")
    with pytest.raises(InvalidInput, match="got settings that choose or read rows"):
        _export(services, "sft", "a+b", curation=Curation(max_rows=2))
    _write(services, "pairs.jsonl", [{"prompt": "2+2?", "chosen": "4", "rejected": "5"}])
    export_dataset(services, "dpo", "pairs", path=str(services.settings.inbox_dir / "pairs.jsonl"))
    with pytest.raises(InvalidInput, match="got pairs of kind 'dpo'; join"):
        _export(services, "sft", "a+pairs")


def test_a_dataset_exported_again_by_its_name_keeps_its_splits_and_leaves_forgotten_runs_out(
    services: Services,
) -> None:
    rows = [{"prompt": f"{n}+1?", "chosen": str(n + 1), "rejected": "0"} for n in range(20)]
    _write(services, "pairs.jsonl", rows)
    first = _export(services, "dpo", "pairs.jsonl", test_share=0.3)
    test = {row.chosen.task.prompt: row.chosen.id for row in read_rows(Path(first.path), "test", kind="dpo")}
    advice = plan_training(services, dataset_id=first.dataset_id).notes
    again = f"export_dataset(kind='dpo', name='made', path='{first.dataset_id}', validation_share=0.1)"
    assert any(again in str(note) for note in advice)
    (mixed,) = export_dataset(services, "sft", "mixed", TrajectoryFilter(dataset_id=first.dataset_id)).warnings
    assert f"the filter also takes test ({len(test)} rows) of made" in mixed
    assert f"path='{first.dataset_id}'` keeps every row in its split" in mixed
    train = TrajectoryFilter(dataset_id=first.dataset_id, split="train")
    assert export_dataset(services, "sft", "pure", train).warnings == ()
    made = _export(services, "dpo", first.dataset_id, validation_share=0.3)
    assert {row.chosen.task.prompt for row in read_rows(Path(made.path), "test", kind="dpo")} == set(test)
    assert sum(made.splits.values()) == 20
    assert made.splits["validation"] > 0
    gone = next(iter(test.values()))
    done = forget(services, id=gone, dry_run=False)
    remedies = {thing.id: str(thing.remedy) for thing in done.touched}
    assert f"export_dataset(kind='dpo', name='made', path='{made.dataset_id}')" in remedies[made.dataset_id]
    last = _export(services, "dpo", made.dataset_id)
    assert (last.splits, last.dropped) == ({**made.splits, "test": len(test) - 1}, {"forgotten": 1})


def test_a_table_without_names_or_in_another_encoding_is_refused(services: Services) -> None:
    path = _write(services, "t.csv", [])
    for content, words in (
        (b"ask,,say\n", "names of the columns"),
        (b"ask,ask\na,b\n", "names of"),
        (b"a,b\n\xe4,c\n", "byte 0xe4 after row 0, as Windows-1252 and Latin-1 have; save"),
    ):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=words):
            _export(services, "sft", "t.csv", columns={"prompt": "a", "response": "b"})


def test_a_misspelt_file_is_answered_with_the_one_beside_it(services: Services) -> None:
    _write(services, "shop/orders.jsonl", SUMS)
    for wrong in ("shop/ordres.jsonl", "shop/../shop/ordres.jsonl"):
        with pytest.raises(NotFound, match=r"got nothing at .* \(did you mean 'orders.jsonl'\?\); name one under"):
            _export(services, "sft", wrong)


def test_given_pairs_are_frozen_as_they_are(services: Services) -> None:
    """The second pair is of the same prompt, the third has equal sides, the fourth is the first again."""
    pairs = [
        {"prompt": "2+2?", "chosen": "4", "rejected": "5", "margin": 2.5},
        {"prompt": "2+2?", "chosen": "4", "rejected": "6"},
        {"prompt": "3+3?", "chosen": "6", "rejected": "6"},
        {"prompt": "2+2?", "chosen": "4", "rejected": "5", "margin": 2.5},
    ]
    _write(services, "pairs.jsonl", pairs)
    for kind in ("dpo", "reward"):
        result = _export(services, kind, "pairs.jsonl")
        sides = [(row.chosen.steps[-1].message, row.rejected.steps[-1].message, row.margin) for row in _rows(result)]
        assert sides == [("4", "5", 2.5), ("4", "6", None)]
        assert (result.trajectories, result.dropped["equal_sides"]) == (3, 1)
        assert len(services.store.datasets.member_ids(result.dataset_id)) == 3


def test_only_what_was_preferred_is_an_example_to_follow(services: Services) -> None:
    _write(services, "pairs.jsonl", [{"prompt": "2+2?", "chosen": "4", "rejected": "5"}])
    result = _export(services, "sft", "pairs.jsonl")
    assert (_said(result), result.dropped) == ([("2+2?", "4")], {"undesirable": 1})


def test_a_label_or_a_bound_on_one_message_chooses_its_whole_conversation(services: Services) -> None:
    """Ratings are given once a conversation: the messages around the rated one were left out, and counted one by one."""
    said = [
        "c1,user,How?,",
        "c1,bot,So.,5",
        "c2,user,Where?,",
        "c2,bot,Dunno.,",
        "c2,user,Bad!,1",
        "c3,user,Hi,",
        "c3,bot,Hi,",
    ]
    said += ["c4,user,Open?,", "c4,bot,Yes.,4", "c4,bot,No.,1"]
    _write(services, "chat.csv", ["conversation,who,body,rating", *said])
    columns = {"session_id": "conversation", "role": "who", "content": "body", "assistant": "bot"}
    marks = {"label": "rating", "good": ">=4", "bad": "<=2"}
    made = _export(services, "kto", "chat.csv", columns={**columns, **marks})
    spoken = {tuple(step.message for step in row.trajectory.steps): row.desirable for row in _rows(made)}
    assert spoken == {("How?", "So."): True, ("Where?", "Dunno.", "Bad!"): False}
    assert made.dropped == {"no_label": 1, "labels_disagree": 1}
    made = _export(services, "sft", "chat.csv", columns=columns, curation=Curation(where={"rating": ">=4"}))
    assert [[step.message for step in row.trajectory.steps] for row in _rows(made)] == [
        ["How?", "So."],
        ["Open?", "Yes.", "No."],
    ]
    assert made.dropped == {"not_where": 2}


def test_runs_with_images_are_told_of_because_no_training_sees_them(services: Services) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    asked = [{"type": "text", "text": "What is this?"}, picture]
    seen = {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": "A cat."}]}
    _write(services, "seen.jsonl", [seen, *CHATS])
    made = _export(services, "sft", "seen.jsonl")
    (warning,) = made.warnings
    assert warning.startswith("1 of 3 runs with images, which no training here sees")
    assert manifest_entries(Path(made.path))["notes"] == [warning], "a preview reads these"


def test_a_chat_in_one_cell_is_read_by_its_speakers(services: Services) -> None:
    chat = ["Ticket 1", "Customer: Hi", "I am lost: help", "BOT : Sure.", "Customer: thanks"]
    rows = [{"transcript": "\n".join(chat), "csat": "up"}, {"transcript": "a note", "csat": "up"}]
    _write(services, "tickets.jsonl", rows)
    columns = {"messages": "transcript", "label": "csat", "good": "up"}
    with pytest.raises(InvalidInput, match=r'state how the lines of its speakers begin, such as `columns={"user"'):
        _export(services, "kto", "tickets.jsonl", columns=columns)
    with pytest.raises(InvalidInput, match="expected both speakers of 'transcript', got no user"):
        _export(services, "kto", "tickets.jsonl", columns={**columns, "assistant": "Bot"})
    made = _export(services, "kto", "tickets.jsonl", columns={**columns, "user": "Customer", "assistant": "Bot"})
    (row,) = _rows(made)
    assert [(step.actor, step.message) for step in row.trajectory.steps] == [
        ("user", "Hi\nI am lost: help"),
        ("agent", "Sure."),
        ("user", "thanks"),
    ]
    assert [one.reason for one in made.rejected] == [
        "expected lines that begin with Customer: and Bot:, got none of the agent in 'a note'"
    ]


def test_a_label_beside_two_answers_states_which_one_is_better(services: Services) -> None:
    """As an A/B test has it: the first answer is not always the better one."""
    _write(
        services,
        "ab.csv",
        ["ask,A,B,winner", *(f"{n}+1?,yes {n},no {n},{who}" for n, who in enumerate(["A", "B", "A", "tie"]))],
    )
    columns = {"prompt": "ask", "chosen": "A", "rejected": "B"}
    first = _export(services, "dpo", "ab.csv", columns=columns)
    (warning,) = first.warnings
    assert "columns={'label': 'winner', 'good': VALUE, 'bad': VALUE}` too" in warning
    rated = [f"{n}+1?,yes {n},no {n},{'AB'[n % 2]},anna,{n}" for n in range(10)]
    _write(services, "besser.csv", ["ask,A,B,besser,rater,row", *rated])
    (warning,) = _export(services, "dpo", "besser.csv", columns=columns).warnings
    assert "and the column 'besser' was not read; if it names the better one: `columns={'label': 'besser'" in warning
    with pytest.raises(InvalidInput, match="state both, so that ties are left out"):
        _export(services, "dpo", "ab.csv", columns={**columns, "label": "winner", "good": "A"})
    made = _export(services, "dpo", "ab.csv", columns={**columns, "label": "winner", "good": "A", "bad": "B"})
    assert [row.chosen.steps[-1].message for row in _rows(made)] == ["yes 0", "no 1", "yes 2"]
    assert (made.warnings, made.dropped) == ((), {"unreadable_row": 1})


@pytest.mark.parametrize("kind", ["sft", "benchmark"])
def test_what_another_file_calls_an_answer_does_not_count_for_a_row(services: Services, kind: str) -> None:
    """A column named the wrong way round, or the word of an older file, would leave a hole in every later dataset."""
    _write(services, "ab.jsonl", [{"prompt": "2+2?", "chosen": "5", "rejected": "4"}])
    _export(services, "dpo", "ab.jsonl")
    _write(services, "sums.jsonl", SUMS)
    assert (_export(services, kind, "sums.jsonl").rows, _export(services, kind, "sums.jsonl").dropped) == (2, {})


@pytest.mark.parametrize(("good", "bad"), [(1, -1), (1, 0), (True, False), ("pass", "fail")])
def test_the_column_named_as_the_label_marks_rows_good_or_bad(services: Services, good: object, bad: object) -> None:
    rows = [{"prompt": "2+2?", "response": answer, "mark": mark} for answer, mark in (("4", good), ("5", bad))]
    _write(services, "marked.jsonl", rows)
    result = _export(services, "kto", "marked.jsonl", columns={"label": "mark"})
    assert {row.trajectory.steps[-1].message: row.desirable for row in _rows(result)} == {"4": True, "5": False}


def test_a_label_that_is_no_mark_and_a_file_without_marks_are_refused_by_their_cause(services: Services) -> None:
    """The rows are not of unknown outcome: their label cannot be read, or nobody named it."""
    _write(services, "thumbs.jsonl", [{**row, "mark": "up"} for row in SUMS])
    with pytest.raises(InvalidInput, match=r"no_labels.*true, false, 1, 0 or -1 in 'mark', the label, got 'up' \(2\)"):
        _export(services, "kto", "thumbs.jsonl", columns={"label": "mark"})
    with pytest.raises(InvalidInput, match=r"no_labels.*got 2 rows of thumbs.jsonl without a label.*columns="):
        _export(services, "kto", "thumbs.jsonl")
    _write(services, "mixed.jsonl", [{**SUMS[0], "mark": "up"}, {**SUMS[1], "mark": True}])
    result = _export(services, "kto", "mixed.jsonl", columns={"label": "mark"})
    assert (result.rows, [row.line for row in result.rejected]) == (1, [1])


THUMBS = ("id,ask,say,thumb", "1,2+2?,4,up", "2,2+2?,5,down", "3,3+3?,6,up", "4,3+3?,7,", "5,3+3?,8,down")
OF_THUMBS = {"prompt": "ask", "response": "say", "label": "thumb"}


@pytest.mark.parametrize("stated", [{"good": "up"}, {"bad": "down"}, {"good": "up", "bad": "down"}])
def test_thumbs_become_marks_and_pairs_by_the_values_that_the_columns_state(
    services: Services, stated: dict[str, str]
) -> None:
    """Each row has an id of its own, which does not keep answers to one prompt apart; a row without a thumb is unknown."""
    _write(services, "thumbs.csv", THUMBS)
    marked = _export(services, "kto", "thumbs.csv", columns=OF_THUMBS | stated)
    assert {row.trajectory.steps[-1].message: row.desirable for row in _rows(marked)} == {
        **{"4": True, "5": False},
        **{"6": True, "8": False},
    }
    paired = _export(services, "dpo", "thumbs.csv", columns=OF_THUMBS | stated)
    sides = {(row.chosen.steps[-1].message, row.rejected.steps[-1].message) for row in _rows(paired)}
    assert sides == {("4", "5"), ("6", "8")}


def test_values_of_a_label_that_are_not_stated_are_refused_with_the_way_to_state_them(services: Services) -> None:
    _write(services, "thumbs.csv", THUMBS)
    with pytest.raises(
        InvalidInput, match=r"no_labels.*got 'up' \(2\), 'down' \(2\); state in `columns` .*\"good\": \.\.\."
    ):
        _export(services, "kto", "thumbs.csv", columns=OF_THUMBS)
    with pytest.raises(InvalidInput, match=r"no_labels.*got .*yes.*; it has 'up' \(2\), 'down' \(2\)"):
        _export(services, "kto", "thumbs.csv", columns=OF_THUMBS | {"good": "yes", "bad": "no"})
    result = _export(services, "kto", "thumbs.csv", columns=OF_THUMBS | {"good": "up", "bad": "no"})
    assert [row.line for row in result.rejected if "expected 'up' or 'no'" in row.reason] == [2, 5]
    with pytest.raises(InvalidInput, match="expected the column of the label beside"):
        _export(services, "kto", "thumbs.csv", columns={"prompt": "ask", "response": "say", "good": "up"})


def test_a_row_without_a_thumb_is_counted_by_its_cause(services: Services) -> None:
    _write(services, "thumbs.csv", THUMBS)
    result = _export(services, "kto", "thumbs.csv", columns=OF_THUMBS | {"good": "up", "bad": "down"})
    assert (result.rows, result.dropped, result.rejected) == (4, {"no_label": 1}, ())


@pytest.mark.parametrize(
    ("bounds", "good", "bad", "dropped"),
    [
        ({"good": ">=4", "bad": "<=2"}, {"4", "5"}, {"1", "2"}, {"between_marks": 1}),
        ({"good": ">3.5"}, {"4", "5"}, {"1", "2", "3"}, {}),
        ({"bad": "<2"}, {"2", "3", "4", "5"}, {"1"}, {}),
        ({"good": "5", "bad": "1"}, {"5"}, {"1"}, {"unreadable_row": 3}),
        ({"good": "5|4", "bad": "2 | 1"}, {"4", "5"}, {"1", "2"}, {"unreadable_row": 1}),
    ],
)
def test_ratings_become_marks_by_bounds(
    services: Services, bounds: dict[str, str], good: set[str], bad: set[str], dropped: dict[str, int]
) -> None:
    _write(services, "stars.jsonl", [{"prompt": "Say it", "response": str(n), "stars": n} for n in range(1, 6)])
    result = _export(services, "kto", "stars.jsonl", columns={"label": "stars", **bounds})
    marked = {row.trajectory.steps[-1].message: row.desirable for row in _rows(result)}
    assert ({text for text, mark in marked.items() if mark}, {text for text, mark in marked.items() if not mark}) == (
        good,
        bad,
    )
    assert result.dropped == dropped


@pytest.mark.parametrize(
    ("bounds", "fault"),
    [
        ({}, r"no_labels.*got '1' \(1\), '2' \(1\).*\"good\": \">=5\", \"bad\": \"<=1\".*\{\"reward\": \"stars\"\}"),
        ({"good": ">=3", "bad": "<=3"}, "expected `good` and `bad` apart, got '3' in both"),
    ],
)
def test_ratings_without_bounds_that_tell_them_apart_are_refused(
    services: Services, bounds: dict[str, str], fault: str
) -> None:
    """The 1 of a scale from 1 to 5 is the worst rating, and 1 as a mark is good."""
    _write(services, "stars.jsonl", [{"prompt": "Say it", "response": str(n), "stars": n} for n in range(1, 6)])
    with pytest.raises(InvalidInput, match=fault):
        _export(services, "kto", "stars.jsonl", columns={"label": "stars", **bounds})
    assert not list(services.store.trajectories.iterate())
    with pytest.raises(
        InvalidInput, match=r"kind grpo goes by what each answer is worth: .*columns=\{'reward': \.\.\.\}"
    ):
        _export(services, "grpo", "stars.jsonl")


def test_preference_rows_keep_their_other_columns(services: Services) -> None:
    row = {"prompt": "2+2?", "chosen": "4", "rejected": "5", "annotator": "anna", "lang": "de"}
    _write(services, "pairs.jsonl", [row])
    (pair,) = _rows(_export(services, "dpo", "pairs.jsonl"))
    kept = {"annotator": "anna", "lang": "de"}
    assert (pair.chosen.extra["row"], pair.rejected.extra["row"]) == (kept, kept)


def test_the_lowest_place_on_a_scale_is_no_success(services: Services) -> None:
    """A reward of 1 is a success where rewards end at 1, and the worst rating of stars from 1 to 5."""
    rows = [("2+2?", "5", 1), ("3+3?", "6", 5), ("4+4?", "8", 4)]
    _write(services, "stars.jsonl", [dict(zip(("ask", "say", "stars"), row, strict=True)) for row in rows])
    columns = {"prompt": "ask", "response": "say", "reward": "stars"}
    with pytest.raises(InvalidInput, match="no_labels"):
        _export(services, "kto", "stars.jsonl", columns=columns)
    best = _export(services, "sft", "stars.jsonl", columns=columns, curation=Curation(min_reward=4))
    assert [said for _, said in _said(best)] == ["6", "8"]
    stored = services.store.trajectories.iterate()
    assert {(run.outcome.status.value, run.outcome.reward) for run in stored} == {("unknown", n) for n in (1, 4, 5)}


@pytest.mark.parametrize(
    ("column", "low", "high"), [("reward", 1, 5), ("reward", 0, 2), ("reward", 0.25, 0.75), ("score", 0, 10)]
)
def test_ratings_that_leave_no_row_out_are_told_to_whoever_imitates_all(
    services: Services, column: str, low: float, high: float
) -> None:
    """Whatever stands first in the file: the worst of 1..5 is no success."""
    rows = [{"prompt": f"{n}+2?", "response": f"it is {n + 2}", column: low if n < 250 else high} for n in range(251)]
    _write(services, "rated.jsonl", rows)
    made = _export(services, "sft", "rated.jsonl")
    assert (made.rows, made.dropped) == (251, {})
    assert f"the ratings of these rows go from {low:g} to {high:g}, and the worst" in made.warnings[-1]
    if column == "reward":
        with pytest.raises(
            InvalidInput, match=r"runs with rewards on a scale, by `outcomes=\['unknown'\]` and `curation="
        ):
            export_dataset(
                services, "sft", "all", trajectory_ids=[run.id for run in services.store.trajectories.iterate()]
            )
        best = _export(services, "sft", "rated.jsonl", curation=Curation(min_reward=high))
        assert (best.rows, [note for note in best.warnings if "ratings" in note]) == (1, [])


def test_a_column_that_may_say_which_answers_are_good_is_named_where_all_are_imitated(services: Services) -> None:
    thumbs = ["up", "down"]
    cells = [(f"{n}+2?", f"it is {n + 2}", thumbs[n % 2], f"T-{n}") for n in range(24)]
    _write_table(services, "tickets.csv", [("question", "answer", "thumbs", "ticket"), *cells])
    columns = {"prompt": "question", "response": "answer"}
    (note,) = _export(services, "sft", "tickets.csv", columns=columns).warnings
    assert note.startswith("the examples are of a few kinds by 'thumbs', and all are taken; ")
    for more in (
        {"columns": {**columns, "label": "thumbs", "good": "up"}},
        {"curation": Curation(where={"thumbs": "up"})},
    ):
        made = _export(services, "sft", "tickets.csv", **{"columns": columns} | more)
        assert (made.rows, made.warnings) == (12, ())


def test_a_reward_that_is_named_later_reaches_the_rows_that_are_stored(services: Services) -> None:
    _write(services, "stars.jsonl", [{"ask": "3+3?", "say": "6", "stars": 5}, {"ask": "2+2?", "say": "5", "stars": 2}])
    columns = {"prompt": "ask", "response": "say"}
    assert _export(services, "sft", "stars.jsonl", columns=columns).rows == 2
    rated = _export(
        services, "sft", "stars.jsonl", columns=columns | {"reward": "stars"}, curation=Curation(min_reward=4)
    )
    assert (_said(rated), rated.dropped) == ([("3+3?", "6")], {"below_min_reward": 1})


def test_labels_stay_unpaired_and_one_that_contradicts_another_is_none(services: Services) -> None:
    rows = [("2+2?", "4", True), ("2+2?", "5", False), ("3+3?", "6", True), ("9?", "9", True), ("9?", "9", False)]
    _write(services, "kto.jsonl", [dict(zip(("prompt", "completion", "label"), row, strict=True)) for row in rows])
    result = _export(services, "kto", "kto.jsonl")
    assert {row.trajectory.steps[-1].message: row.desirable for row in _rows(result)} == {
        "4": True,
        "5": False,
        "6": True,
    }
    assert result.dropped == {"labels_disagree": 2}
    examples = _export(services, "sft", "kto.jsonl")
    assert (_said(examples), examples.dropped) == (
        [("2+2?", "4"), ("3+3?", "6")],
        {"labels_disagree": 2, "undesirable": 1},
    )
    _write(services, "kto.jsonl", [{"prompt": "9?", "completion": "9", "label": True}])
    assert _said(_export(services, "sft", "kto.jsonl")) == [("9?", "9")]


@pytest.mark.parametrize(
    ("column", "good", "bad"), [("success", "ja", "nein"), ("outcome", "gelöst", "offen"), ("resolved", "y", "n")]
)
def test_an_outcome_in_other_words_is_named_and_its_rows_are_no_examples_until_it_is_stated(
    services: Services, column: str, good: str, bad: str
) -> None:
    """Rows of one message each, as a support tool exports them: nobody knows that `ja` is good but their author."""
    cells = [("1", "user", "Moin", good), ("1", "assistant", "Tag", good)]
    cells += [("2", "user", "Hallo", bad), ("2", "assistant", "Keine Ahnung", bad)]
    _write_table(services, "chats.csv", [("session_id", "role", "content", column), *cells])
    with pytest.raises(
        InvalidInput, match=rf"outcome_unknown 2\. '{column}' has values .*'{good}' \(1\), '{bad}' \(1\)"
    ):
        _export(services, "sft", "chats.csv")
    asked = _export(services, "sft", "chats.csv", outcomes=["unknown"])
    (note,) = asked.warnings
    assert (asked.rows, f"columns={{'label': '{column}', 'good': ...}})" in note) == (2, True)
    stated = _export(services, "sft", "chats.csv", columns={"label": column, "good": good})
    assert (_said(stated), stated.dropped) == ([("Moin", "Tag")], {"outcome_failure": 1})


def test_a_status_in_a_column_is_the_outcome_and_an_unknown_one_needs_no_note(services: Services) -> None:
    _write(services, "rows.jsonl", [{**CHATS[0], "outcome": "unknown"}, {**CHATS[1], "outcome": "truncated"}])
    result = _export(services, "sft", "rows.jsonl")
    assert (result.rows, result.dropped, result.warnings) == (1, {"outcome_truncated": 1}, ())


def test_steps_with_labels_train_a_process_reward_model(services: Services) -> None:
    _write(services, "prm.jsonl", [{"prompt": "2+2?", "completions": ["two", "four"], "labels": [True, False]}])
    (row,) = _rows(_export(services, "prm", "prm.jsonl"))
    assert row.labels == (1.0, 0.0)


def test_texts_come_from_files_of_a_folder_or_a_column(services: Services) -> None:
    _write(services, "notes/one.txt", ["first"])
    _write(services, "notes/two.jsonl", [{"text": "second"}])
    assert [row.text for row in _rows(_export(services, "text", "notes"))] == ["first\n", "second"]
    _write(services, "pages.jsonl", [{"body": "third"}])
    assert [row.text for row in _rows(_export(services, "text", "pages.jsonl", columns={"text": "body"}))] == ["third"]
    with pytest.raises(
        InvalidInput, match=r"such as text, got 'texts' \(did you mean 'text'\?\), which changes nothing"
    ):
        _export(services, "text", "pages.jsonl", columns={"texts": "body"})


def test_secrets_of_plain_text_never_reach_the_dataset(services: Services) -> None:
    _write(services, "notes.txt", [f"my key is {KEY}"])
    _write(services, "lines.jsonl", [{"text": f"his is {KEY}"}, f'{{"text": "{KEY}'])
    exports = [_export(services, "text", name) for name in ("notes.txt", "lines.jsonl")]
    assert [sum(result.redactions.values()) for result in exports] == [1, 1]
    assert [row.place for row in exports[1].rejected] == ["lines.jsonl:2"]
    held = [file.read_text(encoding="utf-8") for result in exports for file in Path(result.path).iterdir()]
    assert KEY not in "".join([*held, *(result.model_dump_json() for result in exports)])


def test_a_torn_table_in_a_folder_is_listed_and_the_other_files_come_in(services: Services) -> None:
    pytest.importorskip("pyarrow")
    _write(services, "set/good.jsonl", SUMS)
    (services.settings.inbox_dir / "set" / "torn.parquet").write_bytes(b"PAR1 and nothing more")
    result = _export(services, "sft", "set")
    assert (result.rows, result.dropped) == (2, {"unreadable_row": 1})
    assert [(row.place, "cannot be read as parquet" in row.reason) for row in result.rejected] == [
        ("torn.parquet", True)
    ]


def test_files_beside_the_training_split_are_named_where_they_are_left_out(services: Services) -> None:
    for name in ("train.jsonl", "test.jsonl", "more.jsonl"):
        _write(services, f"set/{name}", SUMS)
    result = _export(services, "sft", "set")
    assert result.rows == 2
    (note,) = result.warnings
    assert "these were left out: more.jsonl, test.jsonl; name a file" in note
    manifest = json.loads((Path(result.path) / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["notes"] == [note]


def test_secrets_of_ready_made_rows_never_reach_the_store(services: Services) -> None:
    _write(services, "sums.jsonl", [{"prompt": "my key?", "response": f"it is {KEY}"}, {"prompt": KEY, "x": 1}])
    result = _export(services, "sft", "sums.jsonl")
    manifest = (Path(result.path) / "manifest.json").read_text(encoding="utf-8")
    assert json.loads(manifest)["redactions"]
    stored = [run.model_dump_json() for run in services.store.trajectories.iterate()]
    assert KEY not in "".join([*stored, manifest, result.model_dump_json()])


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("nothing.jsonl", NotFound, "got nothing at"),
        ("/etc/passwd", Refused, "outside_roots"),
        ("../quintain.db", Refused, "outside_roots"),
        ("openai/gsm8k:main", Refused, "hub_not_allowed.*QUINTAIN_ALLOW_HUB=1"),
    ],
)
def test_what_may_not_be_read_is_refused(services: Services, path: str, error: type[QuintainError], said: str) -> None:
    with pytest.raises(error, match=said):
        _export(services, "sft", path)


def test_rows_and_chosen_runs_do_not_mix(services: Services) -> None:
    _write(services, "sums.jsonl", SUMS)
    with pytest.raises(InvalidInput, match="leave `filter` and `trajectory_ids` out"):
        _export(services, "sft", "sums.jsonl", trajectory_ids=["traj-1"])
    with pytest.raises(InvalidInput, match="give its `path` too"):
        export_dataset(services, "sft", "n", trajectory_ids=["traj-1"], columns={"prompt": "x"})
    with pytest.raises(InvalidInput, match="expected files for kind 'text'"):
        export_dataset(services, "text", "n", trajectory_ids=["traj-1"])


def test_filters_and_samples_hold_for_ready_made_rows_too(services: Services) -> None:
    _write(services, "sums.jsonl", [{"prompt": f"{i}?", "response": str(i)} for i in range(20)])
    result = _export(services, "sft", "sums.jsonl", curation=Curation(max_rows=5))
    assert (result.rows, result.dropped) == (5, {"not_sampled": 15})


def test_the_files_of_the_training_split_are_taken_and_links_that_lead_out_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for name in ("data/train-0.jsonl", "data/train-1.jsonl", "data/test-0.jsonl", ".cache/train-2.jsonl", "README.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}", encoding="utf-8")
    (tmp_path / "outside.jsonl").write_text("{}", encoding="utf-8")
    (folder / "train-link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    assert [file.name for file in row_files(folder).taken] == ["train-0.jsonl", "train-1.jsonl"]
    (folder / "data/train-0.jsonl").rename(folder / "data/dev.jsonl")
    (folder / "data/train-1.jsonl").unlink()
    with pytest.raises(InvalidInput, match="contains dev, test and no train; name one file"):
        row_files(folder)
    (folder / "data/dev.jsonl").unlink()
    assert [file.name for file in row_files(folder).taken] == ["test-0.jsonl"], "the only split there is"
    with pytest.raises(NotFound, match="has no file of rows"):
        row_files(folder / ".cache" / "nothing") if (folder / ".cache" / "nothing").mkdir() is None else None


def test_names_on_the_hub_may_name_a_configuration_and_a_split() -> None:
    match = HUB_NAME.fullmatch("openai/gsm8k:main:test")
    assert match.group("name", "config", "split") == ("openai/gsm8k", "main", "test")
    assert HUB_NAME.fullmatch("openai/gsm8k::test") is not None
    assert HUB_NAME.fullmatch("/openai/gsm8k") is None
    assert HUB_NAME.fullmatch("gsm8k") is None


# ---- tables -----------------------------------------------------------------------------------------------------------


def test_parquet_files_are_read_batch_by_batch_and_damaged_ones_refused(services: Services) -> None:
    """450 rows are three batches; NaN, which JSON does not have, is a missing number."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = services.settings.inbox_dir / "sums.parquet"
    rows = [{"question": f"{i}?", "answer": f"#### {i}", "score": float("nan")} for i in range(450)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    result = _export(services, "sft", "sums.parquet")
    assert (result.rows, result.dropped) == (450, {})
    assert [row.trajectory.task.metadata["answer"] for row in _rows(result)] == [str(i) for i in range(450)]
    assert _rows(result)[0].trajectory.source.uri == str(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(InvalidInput, match=r"sums\.parquet cannot be read as parquet"):
        _export(services, "sft", "sums.parquet")


def test_folders_that_the_datasets_library_saved_are_read_without_it(services: Services) -> None:
    """Arrow files with the list of their names, and a dictionary of two splits of which train is taken."""
    pyarrow = pytest.importorskip("pyarrow")
    for folder in ("saved", "both/train", "both/test"):
        place = services.settings.inbox_dir / folder
        place.mkdir(parents=True)
        table = pyarrow.Table.from_pylist(CHATS)
        with pyarrow.ipc.new_stream(str(place / "data-00000-of-00001.arrow"), table.schema) as stream:
            stream.write_table(table)
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": None}
        (place / "state.json").write_text(json.dumps(state), encoding="utf-8")
    (services.settings.inbox_dir / "both" / "dataset_dict.json").write_text(
        '{"splits": ["train", "test"]}', encoding="utf-8"
    )
    for name in ("saved", "both"):
        assert _said(_export(services, "sft", name)) == [("a", "aa"), ("b", "bb")]
    escaping = {"_data_files": [{"filename": "../both/train/data-00000-of-00001.arrow"}]}
    (services.settings.inbox_dir / "saved" / "state.json").write_text(json.dumps(escaping), encoding="utf-8")
    with pytest.raises(InvalidInput, match="not in its folder"):
        _export(services, "sft", "saved")


def test_what_the_datasets_library_saves_is_what_we_read(services: Services) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    table = datasets.Dataset.from_list(CHATS)
    table.save_to_disk(str(services.settings.inbox_dir / "saved"))
    assert _said(_export(services, "sft", "saved")) == [("a", "aa"), ("b", "bb")]


def test_a_hub_folder_of_ours_comes_back_as_the_rows_that_went_in(services: Services) -> None:
    """Its columns are Arrow's JSON, which pyarrow gives as text; inside of structures too, as `datasets.Json` may stand."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    _write(services, "pairs.jsonl", [{"prompt": "p", "chosen": "good", "rejected": "bad"}])
    shutil.copytree(_export(services, "dpo", "pairs.jsonl", format="hub").path, services.settings.inbox_dir / "hub")
    (row,) = _rows(_export(services, "dpo", "hub"))
    assert [side.agent_steps[-1].message for side in (row.chosen, row.rejected)] == ["good", "bad"]

    plain = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())])
    typed = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.json_())])
    chat = [{"role": "user", "content": '"a"'}, {"role": "assistant", "content": "no JSON"}]
    column = pyarrow.array([chat, None], pyarrow.list_(plain)).cast(pyarrow.list_(typed))
    parquet.write_table(pyarrow.table({"messages": column}), services.settings.inbox_dir / "nested.parquet")
    result = _export(services, "sft", "nested.parquet")
    assert (_said(result), result.dropped) == ([("a", "no JSON")], {"unreadable_row": 1})


def test_packed_files_of_a_folder_are_its_rows_and_its_training_split(services: Services) -> None:
    folder = services.settings.inbox_dir / "packed"
    folder.mkdir()
    (folder / "train.jsonl.gz").write_bytes(gzip.compress(b"".join(json.dumps(row).encode() + b"\n" for row in SUMS)))
    _write(services, "packed/test.jsonl", [{"prompt": "held out", "response": "x"}])
    assert _said(_export(services, "sft", "packed")) == [("2+2?", "4"), ("3+3?", "6")]
    texts = _export(services, "text", "packed/train.jsonl.gz", columns={"text": "prompt"})
    assert [row.text for row in _rows(texts)] == ["2+2?", "3+3?"]
    (folder / "train.jsonl.gz").write_bytes(gzip.compress(b'{"text": "once"}\n{"text": "more"}\n'))
    assert [row.text for row in _rows(_export(services, "text", "packed/train.jsonl.gz"))] == ["once", "more"]


def test_numbers_of_rows_are_numbers_of_lines(tmp_path: Path) -> None:
    source = tmp_path / "rows.json"
    source.write_text('[{"a": 1}, {"a": NaN}, 3]', encoding="utf-8")
    target = tmp_path / "rows.jsonl"
    write_lines(rows_of(source, Report()), {"b": "a"}, target)
    assert target.read_text(encoding="utf-8").splitlines() == ['{"b": 1}', '{"b": null}', "3"]
