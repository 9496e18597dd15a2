from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from quintain.cli.layout import Column, fact_lines, table_lines

WORD = st.sampled_from(["a", "tool-call", "quintain/inventory", "[+41.9%,", "漢字漢字漢字"])
CELL = st.lists(WORD, max_size=10).map(" ".join)
IDS = "traj-0123456789abcdef"


@settings(max_examples=30)
@given(rows=st.lists(st.tuples(st.just(IDS), CELL, CELL, CELL), min_size=1, max_size=5), width=st.integers(60, 160))
def test_a_table_fits_every_width_and_keeps_every_word_whole(rows: list[tuple[str, ...]], width: int) -> None:
    lines = table_lines(("run", "first", "second", Column("cut", cut=True)), rows, width)
    assert max(map(cell_len, lines)) <= width
    words = " ".join(lines).split()
    assert words.count(IDS) == len(rows)
    for row in rows:
        assert set(row[1].split()) | set(row[2].split()) <= set(words)


def test_a_row_that_needs_many_lines_becomes_a_block_of_named_lines() -> None:
    rows = [("quintain/math", "Word problems. " * 20, 2)]
    first, second, *_, last = table_lines(("environment", "about", "tools"), rows, 60)
    assert (first, second[:16], last) == ("quintain/math", "  about: Word pr", "  tools: 2")


def test_facts_leave_out_what_is_unknown_and_show_lists_of_objects_as_tables() -> None:
    facts = {"job": "job-1", "error": None, "files": [{"name": "a", "bytes": 1}, {"name": "b", "bytes": 20}], "n": 0}
    assert list(fact_lines(facts, 80)) == ["job: job-1", "files:", "  name  bytes", "  a     1", "  b     20", "n: 0"]


def test_text_of_others_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in "".join(table_lines(("a",), [("\x1b[2Jgone",)], 80))
    assert "\x1b" not in "".join(fact_lines({"a": {"b": "\x1b[2Jgone"}, "c": ["\x1b"]}, 80))
