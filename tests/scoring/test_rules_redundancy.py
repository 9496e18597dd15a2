"""Redundancy and loops: what a repeated call is worth depends on what happened between."""

from __future__ import annotations

import time
from typing import Any

import pytest

from quintain.records.trajectory import Action, Actor, Observation, Step, Trajectory
from quintain.scoring.profiles import profile
from quintain.scoring.rules.redundancy import repetitive
from quintain.scoring.rules.scorer import RulesScorer
from trajectory_runs import answer, call, run, user

SOURCE = "def load(path):\n    return open(path).read()\n"


def read(path: str = "src/a.py", result: str = SOURCE, **args: Any) -> Step:
    return call("read_file", result, path=path, **args)


def bash(command: str, result: str = "ok") -> Step:
    return call("bash", result, command=command)


def edit(path: str = "src/a.py", old: str = "a", new: str = "b") -> Step:
    return call("edit_file", "ok", path=path, old_string=old, new_string=new)


def _run(*steps: Step) -> Trajectory:
    return run("t", user("Look after src/a.py."), *steps, tools=())


def _new(*steps: Step) -> list[float | None]:
    """Non-redundancy of each step by the coding profile."""
    score = RulesScorer(profile("coding")).score(_run(*steps))
    return [step.parts.get("non_redundancy") for step in score.steps]


def test_thirty_equal_reads_are_worth_one_in_one_turn_too() -> None:
    """Worked examples.

    - 29 of 30 calls bring nothing: each is worth 0, so the mean is 1/30. The published formula gave 0.75.
    - One turn of 30 parallel calls: the mean of its calls is 1/30, and they count as 30.
    """
    score = RulesScorer().score(_run(*[read()] * 30, answer()))
    assert score.value == pytest.approx(1 / 30)
    assert score.feedback.startswith("Weakest: non_redundancy. 29 of 30 calls")

    action = Action(tool="Read", args={"file_path": "a.py"})
    seen = Observation(content=SOURCE)
    score = RulesScorer().score(_run(Step(actor=Actor.AGENT, actions=(action,) * 30, observations=(seen,) * 30)))
    assert score.value == pytest.approx(1 / 30)


def test_a_read_is_new_by_its_question_and_not_by_its_words() -> None:
    """Three of the published formula's false alarms: each scored 0 there."""
    steps = (
        read("src/a.py"),
        call("Read", SOURCE, file_path="./src/a.py", description="again"),
        bash("cat src/a.py", SOURCE),
    )
    assert _new(*steps) == [1, 0, 0]

    assert _new(read(), read(nonce=1), read(nonce=2)) == [1, 0, 0]

    assert _new(call("Grep", "1", pattern="a", path="src"), call("Grep", "2", pattern="b", path="src")) == [1, 1]
    assert _new(call("Grep", "1", pattern="*.py"), call("Glob", "2", pattern="*.py")) == [1, 1]
    assert _new(read(offset=1, limit=50), read(offset=51, limit=50, result="more")) == [1, 1]


@pytest.mark.parametrize(
    "between",
    [
        edit(),
        call("Write", "ok", file_path="/repo/src/a.py", content="x"),
        bash("echo x | tee src/a.py"),
        bash("rm -r src"),
        bash("git checkout -- src/a.py"),
        bash("git pull"),
        bash("python scripts/generate.py"),
        call("shell", "ok", command=["bash", "-lc", "perl -pi -e s/a/b/ src/a.py"]),
        call("apply_patch", "ok", input="*** Begin Patch\n*** Update File: src/a.py\n@@\n-a\n+b\n*** End Patch"),
        call("mcp__unknown__do_something", "ok"),
        user("I changed it, look again."),
    ],
    ids=str,
)
def test_what_may_have_changed_the_file_makes_another_read_new(between: Step) -> None:
    assert _new(read(), between, read(result=SOURCE + "# changed"))[-1] == 1


@pytest.mark.parametrize(
    "between",
    [
        bash("ls -la src; find . -name '*.py'; git status"),
        bash("git diff HEAD~1 2>/dev/null"),
        bash("grep -rn load src | head -5"),
        bash("sed -n 1,20p src/b.py"),
        bash("cd src && python -m pytest -x", "1 failed"),
        read("src/b.py", "other"),
        edit("src/b.py"),
        call("Grep", "src/b.py:1", pattern="load"),
        call("think", "", thought="hm"),
        call("mcp__github__get_issue", "Issue 7", number=7),
    ],
    ids=str,
)
def test_what_cannot_have_changed_the_file_leaves_another_read_redundant(between: Step) -> None:
    assert _new(read(), between, read())[-1] == 0


def test_tests_are_run_again_after_an_edit_and_not_for_nothing() -> None:
    """The times in the output are no difference: the third run says nothing new, the second says that the edit worked."""
    runs = (
        bash("pytest -q", "1 failed in 0.12s"),
        edit(),
        bash("pytest -q", "1 passed in 0.34s"),
        bash("pytest -q", "1 passed in 0.29s"),
    )
    assert _new(*runs) == [1, 1, 1, 0]


def test_a_range_is_redundant_as_far_as_it_was_shown() -> None:
    """Lines 1-100; 51-150 are half new; 20-60 are all known; after an edit all are new. 201-300 is new, and 100-300 then has
    lines 151-200 left of 201: 50/201.
    """
    steps = (
        call("view", "1", path="a", view_range=[1, 100]),
        call("view", "2", path="a", view_range=[51, 150]),
        call("view", "3", path="a", view_range=[20, 60]),
        call("view", "4", path="a", view_range=[201, 300]),
        call("view", "5", path="a", view_range=[100, 300]),
        edit("a"),
        call("view", "6", path="a", view_range=[20, 60]),
    )
    assert _new(*steps) == pytest.approx([1, 0.5, 0, 1, 50 / 201, 1, 1])


def test_polling_and_scrolling_are_new_as_long_as_they_bring_news() -> None:
    poll = [call("get_job_status", f"{share} percent", job="j") for share in (10, 40, 90)]
    assert _new(*poll) == [1, 1, 1]
    assert _new(*[call("get_job_status", "waiting", job="j")] * 3) == [1, 1, 1], "the job goes on by itself"

    browser = RulesScorer(profile("browser"))
    scroll = [call("scroll", page, direction="down") for page in ("page 2 " * 40, "page 3 " * 40, "page 3 " * 40)]
    assert [step.parts["non_redundancy"] for step in browser.score(_run(*scroll)).steps] == [1, 1, 0]


def test_one_more_try_after_a_passing_failure_is_fair() -> None:
    """A failure has passed if the next call succeeds, whatever either says; a file that is not there will not appear."""
    for text in ("page", "timed out"):
        failed = call("WebFetch", "timed out", is_error=True, url="https://x")
        assert _new(failed, call("WebFetch", text, url="https://x")) == [1, 1]
    gone = call("Read", "no such file", is_error=True, file_path="b.py")
    assert _new(gone, gone) == [1, 0]


def test_unknown_tools_are_redundant_only_if_they_failed_alike_with_nothing_between() -> None:
    book, other = call("book", "ok", seat=1), call("cancel", "ok", seat=2)
    assert _new(book, call("book", "ok", seat=2), book) == [1, 1, 1]
    assert _new(book, other, book) == [1, 1, 1]
    assert _new(book, book) == [1, 1], "two seats may be wanted"
    refused = call("book", "no such seat", is_error=True, seat=9)
    assert _new(refused, refused) == [1, 0]


def test_loops_are_found_where_single_calls_are_not_redundant_and_results_are_the_same() -> None:
    """Worked examples.

    - `a b a b a b` of two commands that may write: from the fourth call on a whole loop is repeated: 3 of 6.
    - The first 20 may be a way to go; the other ten of 30 cost: 20/30.
    """
    a, b = bash("./build.sh", "no"), bash("./install.sh", "no")
    score = RulesScorer(profile("coding")).score(_run(a, b, a, b, a, b))
    assert [step.parts["non_redundancy"] for step in score.steps] == [1] * 6
    assert [step.parts["repetition"] for step in score.steps] == [1, 1, 1, 0, 0, 0]
    assert score.value == pytest.approx(0.5)

    steps = [step for i in range(4) for step in (bash("./build.sh", f"error {i}"), edit(old=f"x{i}", new=f"x{i + 1}"))]
    assert all(step.parts["repetition"] == 1 for step in RulesScorer().score(_run(*steps)).steps)

    assert CODING.score(_run(*[call("frob", "ok", x=1)] * 30)).value == pytest.approx(20 / 30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The findings are sound and the method is valid. " * 12, True),
        ("好的我明白了" * 60, True),
        ("short " * 20, False),
        (
            "Cells convert nutrients into energy mainly through oxidative phosphorylation, which happens across the inner membrane of a "
            "dedicated organelle; because respiration and synthase activity are localised there, textbooks call it the powerhouse. "
            "Its number varies with demand: muscle has thousands, and red blood cells have none at all. Defects of it are inherited "
            "from the mother, and they show first in tissues that burn most, such as nerve and heart.",
            False,
        ),
    ],
)
def test_text_that_says_one_thing_over_and_over(text: str, expected: bool) -> None:
    assert repetitive(text) is expected


def test_hostile_text_costs_no_more_than_its_length() -> None:
    """Whitespace, digits and words without end: each pattern goes over them once."""
    long = 60_000
    began = time.process_time()
    for part in (" ", "1", "w", "rm ", "\n", "> ", "a/"):
        text = part * (long // len(part))
        steps = (
            bash(f"sed {text}", text),
            bash(f"sed {text}", text + "x"),
            call("edit_file", text, path=text[:100], old_string=text, new_string="y"),
        )
        RulesScorer().score(_run(*steps))
    assert time.process_time() - began < 10


CODING = RulesScorer(profile("coding"))
LICENCE = '"""This package is licensed under the MIT License."""'


def test_equal_texts_of_different_files_and_of_different_lines_are_all_new() -> None:
    """`a.py` is the end of one path alone, so that it is that file; a mere `__init__.py` may be either of two, so it is none."""
    assert _new(*[read(f"{folder}/__init__.py", LICENCE) for folder in "abc"]) == [1, 1, 1]
    doubtful = [read(f"{folder}__init__.py", LICENCE) for folder in ("a/", "b/", "")]
    assert _new(*doubtful) == [1, 1, 1]
    assert _new(read("a.py"), read("/repo/src/a.py")) == [1, 0]
    zeros = "0," * 50
    assert _new(read("a.csv", zeros, offset=1, limit=10), read("a.csv", zeros, offset=11, limit=10)) == [1, 1]
    assert _new(bash("sed -n 1,9p a.csv", zeros), bash("sed -n 10,18p a.csv", zeros)) == [1, 1]


@pytest.mark.parametrize(
    "command",
    [
        "cat src/a.py; true # {}",
        "head -n {} src/a.py",
        "timeout {} cat src/a.py",
        "cat 'src/a.py' | head -{} 2>/dev/null",
    ],
)
def test_reads_that_vary_in_trifles_and_bring_the_same_text_are_worth_one(command: str) -> None:
    steps = [bash(command.format(100 + i), SOURCE) for i in range(30)]
    assert CODING.score(_run(*steps)).value == pytest.approx(1 / 30)


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("browser_press_key", {"key": "Tab"}, "Pressed Tab"),
        ("browser_click", {"element": "Add one more", "ref": "e3"}, "Clicked"),
        ("BashOutput", {"bash_id": "1"}, "still running, nothing was written to the log since the last time"),
        ("transfer_money", {"to": "x", "amount": 5}, "ok"),
        ("bash", {"command": "sleep 60"}, ""),
    ],
)
def test_acting_and_waiting_once_more_is_no_repetition_for_its_short_answer(
    name: str, args: dict[str, Any], result: str
) -> None:
    domain = profile("browser" if name.startswith("browser") else "coding")
    score = RulesScorer(domain).score(_run(*[call(name, result, **args)] * 4))
    assert score.value == 1.0, score.feedback


TABLE = "order 7: two tickets, paid; order 8: one ticket, open"


def test_a_tool_that_no_profile_knows_is_measured_by_its_answers() -> None:
    """An equal text at once brings nothing new; a short answer, another call between and a different answer may all bring something."""
    ask, add = call("query", TABLE, sql="SELECT * FROM t"), call("query", "ok", sql="INSERT INTO t VALUES (9)")
    assert _new(ask, ask) == [1, 0]
    assert _new(ask, add, ask) == [1, 1, 1]
    assert _new(add, add) == [1, 1]
    book = call("get_total", "5"), call("check_out_cart", "ok", id=1), call("get_total", "5")
    assert _new(*book) == [1, 1, 1]


def test_what_only_looks_by_its_description_is_redundant_however_short_its_answer() -> None:
    look, act = call("total", "5"), call("take", "ok", item="box")
    described = {"name": "total", "annotations": {"readOnlyHint": True}}
    for tools, values in (((described,), [1, 0, 1, 1]), ((), [1, 1, 1, 1])):
        score = CODING.score(run("t", user("What is due?"), look, look, act, look, tools=tools))
        assert [step.parts["non_redundancy"] for step in score.steps] == values


def test_an_answer_that_changed_by_itself_may_be_asked_for_again() -> None:
    """Nothing between could have changed the page; a text that never changed is not worth a third look."""
    texts = ["queued behind the builds of twelve others", "running step 3 of 9, which takes the longest"]
    page = [call("WebFetch", text, url="https://ci/7") for text in (*texts, texts[1])]
    assert _new(*page) == [1, 1, 1]
    assert _new(page[1], page[1]) == [1, 0]
    tests = bash("pytest -q", "1 failed"), edit(), bash("pytest -q", "1 passed"), bash("pytest -q", "1 passed")
    assert _new(*tests) == [1, 1, 1, 0], "an edit changed this answer"


def test_what_a_user_asks_for_once_more_is_no_repetition() -> None:
    look = call("get_order", "late", id=5)
    again = run("t", user("Is order 5 late?"), look, answer("Yes."), user("And now?"), look, answer("Still."), tools=())
    assert CODING.score(again).value == 1.0


@pytest.mark.parametrize("wish", ["Run test_net three times, is it flaky?", "运行 test_net 三次"])
def test_runs_that_were_asked_for_more_than_once_are_no_repetition(wish: str) -> None:
    steps = [bash("pytest tests/test_net.py", "1 passed in 0.1s")] * 3
    assert CODING.score(run("t", user(wish), *steps, tools=())).value == 1.0
    assert CODING.score(run("t", user("Mend it."), *steps, tools=())).value == pytest.approx(1 / 3)
    reads = [read()] * 3
    assert CODING.score(run("t", user(wish), *reads, tools=())).value == pytest.approx(1 / 3), (
        "a read was not asked for"
    )
