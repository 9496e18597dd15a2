from __future__ import annotations

import random

import pytest
from rich.cells import cell_len
from rich.console import Console

from quintain.cli.commands.library import show_library
from quintain.cli.commands.plan import show_plan
from quintain.cli.layout import Column, fact_lines, table_lines
from quintain.next_step import Hint
from quintain.records.jobs.plan import Branch, Estimate, TrainingPlan
from quintain.tools.results import LibraryResult

WORDS = ["a", "tool-call", "quintain/inventory", "[+41.9%,", "漢字漢字漢字"]
ID = "traj-0123456789abcdef"


@pytest.mark.parametrize("width", [60, 80, 97, 160])
def test_a_table_fits_every_width_and_keeps_every_word_whole(width: int) -> None:
    draw = random.Random(width)
    for _ in range(20):
        cells = [
            [" ".join(draw.choices(WORDS, k=draw.randrange(10))) for _ in range(3)] for _ in range(draw.randrange(1, 5))
        ]
        lines = table_lines(("run", "first", "second", Column("cut", cut=True)), [(ID, *row) for row in cells], width)
        assert max(map(cell_len, lines)) <= width
        words = " ".join(lines).split()
        assert words.count(ID) == len(cells)
        assert {word for row in cells for cell in row[:2] for word in cell.split()} <= set(words)


def test_a_row_that_needs_many_lines_becomes_a_block_of_named_lines() -> None:
    rows = [("quintain/math", "Word problems. " * 20, 2)]
    first, second, *_, last = table_lines(("environment", "about", "tools"), rows, 60)
    assert (first, second[:16], last) == ("quintain/math", "  about: Word pr", "  tools: 2")


def test_facts_leave_out_what_is_unknown_and_show_lists_of_objects_as_tables() -> None:
    facts = {"job": "job-1", "error": None, "files": [{"name": "a", "bytes": 1}, {"name": "b", "bytes": 20}], "n": 0}
    assert list(fact_lines(facts, 80)) == ["job: job-1", "files:", "  name  bytes", "  a     1", "  b     20", "n: 0"]


def test_text_of_others_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in "".join(table_lines(("a",), [("\x1b[2Jgone",)], 80))
    assert "".join(table_lines(("a",), [("ok\U000e0041\U000e0042",)], 80)).isprintable(), (
        "tags are read by models alone"
    )
    assert "\x1b" not in "".join(fact_lines({"a": {"b": "\x1b[2Jgone"}, "c": ["\x1b"]}, 80))


def test_lines_that_end_as_in_windows_are_lines_and_one_space_in_a_cell() -> None:
    text = "line three\r\nline four"
    assert table_lines((Column("task", cut=True),), [(text,)], 80)[1] == "line three line four"
    assert list(fact_lines({"prompt": text}, 80)) == ["prompt:", "  line three", "  line four"]
    assert "\r" not in "".join(table_lines(("a",), [("over\rwritten",)], 80))


def test_an_agent_is_one_line_of_80_columns_and_its_tasks_are_a_file_by_its_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    when = "2026-11-30T09:43:00Z"
    result = {"success_rate": 0.94, "n": 100, "environment": "quintain/tasks?file=/home/ann/q.csv"}
    item = {"id": "agent:evolved-2@1", "parent": "agent:clerk@1", "results": [result], "created_at": when}
    show_library(Console(), LibraryResult(kind="agents", items=(item,), next_cursor=None, next_step=Hint("Go on.")))
    line = "evolved-2@1  clerk@1  94.0% of 100  quintain/tasks?file=q.csv  2026-11-30 09:43"
    assert line in capsys.readouterr().out.splitlines()


def test_a_plan_says_each_reason_once_and_what_would_change_it(capsys: pytest.CaptureFixture[str]) -> None:
    branch = Branch(question="Adapters?", answer="The model is small.", otherwise="a larger one: adapters")
    step = Hint("Go on.")
    show_plan(
        Console(),
        TrainingPlan(
            method="sft",
            model="starter",
            hyperparameters={},
            reward={"outcome": 1},
            estimate=Estimate(device="cpu"),
            why=Hint("The model is small."),
            branches=(branch,),
            fields={},
            blockers=(),
            resource_uri="guide://methods/sft",
            next_step=step,
        ),
    )
    shown = capsys.readouterr().out
    assert shown.count("The model is small.") == 1
    assert 'reward: {"outcome": 1}' in shown.splitlines()
    assert shown.splitlines()[-3:] == ["What would change the plan:", "- a larger one: adapters", "Go on."]
