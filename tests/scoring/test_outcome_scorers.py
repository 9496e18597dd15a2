"""What became of a run: outcome, JSON, patterns, unit tests, and the task's own checker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from quintain.checkers.json_equality import difference
from quintain.errors import Unavailable
from quintain.records.score import Score
from quintain.records.trajectory import Action, Actor, Observation, OutcomeStatus, Step, Task, Trajectory
from quintain.sandbox.sandbox import Sandbox, open_sandbox
from quintain.scoring.outcomes.answer_scorers import CheckerScorer, OutcomeScorer, TextScorer
from quintain.scoring.outcomes.unit_tests import UnitTestScorer
from quintain.scoring.outcomes.written_files import written_files
from quintain.scoring.published import HelloAgentsScorer
from trajectory_runs import answer, run, user


def checked(checker: Any, *steps: Step, text: str | None = None, **fields: Any) -> Trajectory:
    said = (answer(text),) if text is not None else ()
    return Trajectory(
        task=Task(prompt="Do it.", metadata={"checker": checker}), steps=(user(), *steps, *said), **fields
    )


def did(tool: str, *, failed: bool = False, **args: Any) -> Step:
    seen = Observation(content="ok", is_error=failed)
    return Step(actor=Actor.AGENT, actions=(Action(tool=tool, args=args),), observations=(seen,))


@pytest.mark.parametrize(
    ("status", "value"),
    [
        (OutcomeStatus.SUCCESS, 1.0),
        (OutcomeStatus.FAILURE, 0.0),
        (OutcomeStatus.TRUNCATED, 0.0),
        (OutcomeStatus.UNKNOWN, None),
        (OutcomeStatus.ERROR, None),
    ],
)
def test_an_outcome_without_a_verdict_is_unscored_and_never_zero(status: OutcomeStatus, value: float | None) -> None:
    trajectory = run(status=status)
    score = OutcomeScorer().score(trajectory)
    assert score.value == value
    assert score.status == ("unscored" if value is None else "scored")
    assert score.trajectory_id == trajectory.identified().id
    assert value is not None or status.value in (score.reason or "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"b": [1, 2.0], "a": null}', 1.0),
        ('So it is {"a": null, "b": [1, 2]}.', 1.0),
        ('```json\n{"a": 0}\n```\nNo, rather:\n```json\n{"b": [1, 2], "a": null}\n```', 1.0),
        ('First {"b": [1, 2], "a": null}, no: {"a": 0}', 0.0),
        ('{"b": [2, 1], "a": null}', 0.0),
        ('{"b": [1, 2], "a": null, "c": 1}', 0.0),
        ('{"a": 0, "a": null, "b": [1, 2]}', 0.0),
        ('{"b": [1, 2], "a": nul', 0.0),
        ("[" * 5_000, 0.0),
        ("no JSON", 0.0),
    ],
)
def test_json_is_compared_as_data(text: str, value: float) -> None:
    score = TextScorer("json").score(checked({"type": "json", "expected": {"a": None, "b": [1, 2]}}, text=text))
    assert score.value == value


def test_json_is_compared_exactly_to_any_depth_or_unscored() -> None:
    assert difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == "$.a[1].b: 3 in place of 2"
    assert difference({"value": [1, 2.0, {"a": None}]}, {"value": [1.0, 2, {"a": None}]}) is None
    for given, expected in ((True, 1), (1, True), ("1", 1), ([1], [1, 2]), ({"a": 1}, {"b": 1}), (None, 0)):
        assert difference(expected, given) is not None
    assert difference(0.1 + 0.2, 0.3) is None
    assert difference(1e9, 1e9 + 100, tolerance=1e-6) is None
    assert difference(10**400, 1.0) is not None

    scorer = TextScorer("json")
    assert "the task states no expected JSON" in (scorer.score(checked({"type": "json"}, text="{}")).reason or "")

    def score(expected: Any, text: str) -> float | None:
        return scorer.score(checked({"type": "json", "expected": expected}, text=text)).value

    assert score(4e9, "4000000003") == 0.0
    assert score({"a": 5}, 'So {"a": 1e999}') == 0.0
    assert score(3, "3.0") == 1.0
    for depth, value in ((101, 1.0), (900, 1.0), (100_000, None)):
        nested: Any = "[" * depth + "]" * depth
        score = scorer.score(checked({"type": "json", "expected": nested}, text=nested))
        assert score.value == value
    other = scorer.score(checked({"type": "json", "expected": 1}, text="[" * 100_000 + "]" * 100_000))
    assert "nested too deeply" in (other.reason or "")


@pytest.mark.parametrize(
    ("checker", "value"),
    [
        ({"pattern": r"\b42\b"}, 1.0),
        ({"pattern": r"^42$"}, 0.0),
        ({"pattern": "IT IS", "flags": "i"}, 1.0),
        ({"pattern": "it", "full": True}, 0.0),
        ({"pattern": "("}, None),
        ({"pattern": "x", "flags": "q"}, None),
        ({"pattern": 4}, None),
        ({"pattern": "a" * 20_000}, None),
    ],
)
def test_a_pattern_is_searched_in_the_last_message_and_a_bad_one_decides_nothing(
    checker: dict[str, Any], value: float | None
) -> None:
    score = TextScorer("regex").score(checked({"type": "regex", **checker}, text="It is 42, I think."))
    assert score.value == value


def test_a_pattern_that_takes_too_long_is_stopped_and_decides_nothing() -> None:
    score = TextScorer("regex").score(checked({"type": "regex", "pattern": r"^(a|aa)+$"}, text="a" * 5_000 + "b"))
    assert score.value is None
    assert "took more than 1 s" in (score.reason or "")


GOOD = "def add(a, b):\n    return a + b\n"
TESTS = (
    "import unittest\nfrom solution import add\n\nclass Adds(unittest.TestCase):\n"
    "    def test_adds(self):\n        self.assertEqual(add(2, 3), 5)\n"
)
CHECKER = {
    "type": "unit_tests",
    "files": ["solution.py"],
    "tests": {"test_it.py": TESTS},
    "command": "python3 -m unittest -q",
}


@pytest.fixture(scope="module")
def scorer() -> UnitTestScorer:
    try:
        sandbox = open_sandbox("auto")
    except Unavailable as error:
        pytest.skip(f"no sandbox works on this machine: {error.message}")
    return UnitTestScorer(lambda: sandbox)


@pytest.mark.parametrize(
    ("steps", "text", "value", "words"),
    [
        ((), f"Here:\n```python\n{GOOD}```", 1.0, "pass"),
        ((), "```python\ndef add(a, b):\n    return a - b\n```", 0.0, "exit code 1"),
        (
            (
                did("write_file", path="solution.py", content="def add(a, b): return 0"),
                did("write_file", path="test_it.py", content=""),
                did("write_file", path="traceback.py", content="import os; os._exit(0)"),
                did("write_file", path="iniconfig/__init__.py", content=""),
                did("write_file", path="queue.js", content="// no module"),
            ),
            "Done.",
            0.0,
            "left out: iniconfig/__init__.py, test_it.py, traceback.py.",
        ),
        (
            (
                did("write_file", path="sums.py", content=GOOD),
                did("write_file", path="solution.py", content="from sums import add"),
            ),
            "Done.",
            1.0,
            "pass",
        ),
    ],
)
def test_the_tests_of_the_task_run_on_the_files_of_the_run(
    scorer: UnitTestScorer, steps: tuple[Step, ...], text: str, value: float, words: str
) -> None:
    score = scorer.score(checked(CHECKER, *steps, text=text))
    assert score.value == value
    assert words in score.feedback


def test_tests_that_do_not_end_fail_and_tests_that_cannot_run_decide_nothing(scorer: UnitTestScorer) -> None:
    looping = scorer.score(checked({**CHECKER, "timeout_s": 0.7}, text="```python\nwhile True: pass\n```"))
    assert (looping.value, looping.feedback) == (0.0, "The tests did not end in 0.7 s.")
    absent = scorer.score(checked({**CHECKER, "command": "no-such-runner"}, text=f"```\n{GOOD}```"))
    assert absent.value is None
    assert "no-such-runner" in (absent.reason or "")


def _refused() -> Sandbox:
    raise Unavailable("no sandbox works here, so no command is run (bubblewrap: not found; install it)")


@pytest.mark.parametrize(
    ("checker", "open_it", "text", "words"),
    [
        (CHECKER, None, f"```\n{GOOD}```", "no sandbox was opened"),
        (CHECKER, _refused, f"```\n{GOOD}```", "install it"),
        (CHECKER, None, "I refuse.", "no call writes it"),
        ({**CHECKER, "command": None}, None, "", "no test command"),
        ({**CHECKER, "tests": {"../x": ""}}, None, "x", "'../x'"),
        ({**CHECKER, "files": [{}]}, None, "x", "expected checker.files to be"),
        ({**CHECKER, "timeout_s": 1e9}, None, f"```\n{GOOD}```", "0.1..30"),
    ],
)
def test_without_a_sandbox_files_or_tests_nothing_is_run_and_the_reason_is_told(
    checker: dict[str, Any], open_it: Callable[[], Sandbox] | None, text: str, words: str
) -> None:
    score = UnitTestScorer(open_it).score(checked(checker, text=text or "x"))
    assert (score.status, score.value) == ("unscored", None)
    assert words in (score.reason or "")


def test_files_are_replayed_and_changes_that_cannot_be_are_told() -> None:
    steps = (
        did("write_file", path="a.py", content="one\n"),
        did("write_file", path="b.py", content="lost", failed=True),
        did("str_replace_editor", command="insert", path="/testbed/a.py", insert_line=1, new_str="two"),
        did("Edit", file_path="a.py", old_string="one", new_string="1"),
        did("bash", command="python a.py 2>&1 | head > /dev/null"),
        did("write_file", path="/etc/passwd", content="x"),
    )
    replayed = written_files(checked(None, *steps), {"c.py": "kept"})
    assert replayed.files == {"a.py": "1\ntwo\n", "c.py": "kept"}
    assert replayed.unseen is None
    unseen = written_files(checked(None, *steps, did("bash", command="sed -i s/1/2/ a.py")), {})
    assert "sed -i" in (unseen.unseen or "")
    result = written_files(checked(None, *steps, extra={"files": {"a.py": "3"}}), {})
    assert (result.files, result.unseen) == ({"a.py": "3"}, None)


BROKEN, FIXED = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
PATCH = (
    "*** Begin Patch\n*** Update File: sol.py\n@@ def add(a, b):\n-    return a - b\n+    return a + b\n*** End Patch"
)
DIFF = "--- a/sol.py\n+++ b/sol.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
OLD_NEW = {"old_str": "a - b", "new_str": "a + b"}


@pytest.mark.parametrize(
    "steps",
    [
        (did("apply_patch", input=PATCH),),
        (did("apply_patch", patch=DIFF),),
        (did("shell", command=["apply_patch", PATCH]),),
        (did("bash", command=f"apply_patch <<'EOF'\n{PATCH}\nEOF"),),
        (did("shell", command=["bash", "-lc", f"cat > sol.py <<'EOF'\n{FIXED}EOF\n"]),),
        (did("bash", command=f"cd /testbed && cat <<'EOF' > sol.py\n{FIXED}EOF\npython -m pytest 2>&1 | tail -3"),),
        (did("bash", command=f"tee sol.py <<EOF\n{FIXED}EOF"),),
        (did("write_file", path="new.py", content=FIXED), did("move_file", source="new.py", destination="sol.py")),
        (did("write_file", path="new.py", content=FIXED), did("bash", command="mv new.py sol.py && ls")),
        (did("Edit", file_path="/home/u/project/sol.py", old_string="a - b", new_string="a + b"),),
        (did("edit_file", path="sol.py", edits=[{"oldText": "a - b", "newText": "a + b"}]),),
        (
            did("str_replace_editor", command="create", path="sol.py", file_text="x"),
            did("str_replace_editor", command="undo_edit", path="sol.py"),
            did("str_replace_editor", command="str_replace", path="sol.py", **OLD_NEW),
        ),
    ],
)
def test_a_change_that_says_all_is_replayed_exactly(steps: tuple[Step, ...]) -> None:
    replayed = written_files(checked(None, *steps), {"sol.py": BROKEN})
    assert (replayed.unseen, replayed.files["sol.py"]) == (None, FIXED)
    assert "sol.py" in replayed.changed


@pytest.mark.parametrize(
    "step",
    [
        did("shell", command=["bash", "-lc", "sed -i 's/a - b/a + b/' sol.py"]),
        did("bash", command="sed --in-place 's/a - b/a + b/' sol.py"),
        did("bash", command="perl -pi -e 's/a - b/a + b/' sol.py"),
        did("bash", command="node -e \"require('fs').writeFileSync('sol.py', '')\""),
        did("bash", command="python fix.py"),
        did("bash", command="python3 - <<'EOF'\nopen('sol.py', 'w').write('')\nEOF"),
        did("bash", command="echo 'def add(a, b): return 0' > sol.py"),
        did("bash", command="test -f x || cat > sol.py <<'EOF'\nx\nEOF"),
        did("bash", command="cat > sol.py <<EOF\nreturn a$X\nEOF"),
        did("bash", command="git checkout sol.py"),
        did("bash", failed=True, command=f"cat > sol.py <<'EOF'\n{FIXED}EOF\nfalse"),
        did("execute_ipython_cell", code="edit_file_by_replace('sol.py', 'a-b', 'a+b')"),
        did("apply_diff", path="sol.py", diff="- return a-b\n+ return a+b"),
        did("apply_patch", input=PATCH.replace("a - b", "a * b")),
        did("edit", path="sol.py", start_line=2, end_line=2, text="    return a + b"),
        did("Edit", file_path="sol.py", old_string="a", new_string="c"),
        did("str_replace_editor", command="undo_edit", path="sol.py"),
        did("copy_file", source="other.py", destination="sol.py"),
        answer("sol.py\n<<<<<<< SEARCH\n    return a - b\n=======\n    return a + b\n>>>>>>> REPLACE"),
    ],
)
def test_any_other_change_leaves_the_run_unscored(step: Step) -> None:
    steps = (did("write_file", path="notes.md", content="x"), step)
    score = UnitTestScorer().score(checked({**CHECKER, "files": {"sol.py": BROKEN}}, *steps, text="Done."))
    assert (score.status, score.value) == ("unscored", None)
    assert "the files that the run left are not known" in (score.reason or "")


@pytest.mark.parametrize(
    "step",
    [
        did("bash", command="cd src && grep -rn 'a > b' . | head -5; git diff --stat; python -m pytest -q 2>&1"),
        did("bash", command="python -c 'print(1)' && sed -n 1,5p sol.py && timeout 10 python sol.py > /dev/null"),
        did("python", code="import math\nprint(open('sol.py').read(), math.pi)"),
        did("str_replace_editor", command="view", path="sol.py"),
        did("web_search", query="how to edit a file"),
    ],
)
def test_what_only_looks_changes_nothing(step: Step) -> None:
    replayed = written_files(checked(None, step), {"sol.py": BROKEN})
    assert (replayed.unseen, replayed.changed) == (None, set())


REPORTS = {
    "unittest": 'import os\nos.write(2, b"Ran 1 test in 0.000s\\n\\nOK\\n")\n',
    "pytest": 'import os\nos.write(1, b"1 passed in 0.01s\\n")\n',
}


@pytest.mark.parametrize(
    ("runner", "end"),
    [
        ("unittest -q", "raise SystemExit"),
        ("unittest -q", "import ctypes; ctypes.CDLL(None).exit(0)"),
        ("pytest -q -s --disable-plugin-autoload", "os._exit(0)"),
    ],
)
def test_a_printed_report_and_an_early_end_do_not_pass(scorer: UnitTestScorer, runner: str, end: str) -> None:
    name = runner.partition(" ")[0]
    checker = {**CHECKER, "command": f"python3 -m {runner}"}
    score = scorer.score(checked(checker, text=f"```python\n{REPORTS[name]}{end}\n```"))
    assert score.value in (0.0, None)  # None: this machine's sandbox sees no pytest
    assert name == "pytest" or score.value == 0.0


def test_tests_that_are_taken_away_while_they_are_loaded_are_missed(scorer: UnitTestScorer) -> None:
    emptied = "import unittest\nunittest.TestCase.run = lambda self, result=None: None\n"
    score = scorer.score(checked(CHECKER, text=f"```python\n{emptied}{GOOD}```"))
    assert (score.value, score.feedback) == (0.0, "Of 1 tests 0 passed.")


@pytest.mark.parametrize("mark", [" ", "# ", "1. ", "Step 1\n"])
def test_no_text_makes_the_search_for_steps_slow(mark: str) -> None:
    text = (mark * 200_000)[:200_000] + "42"
    start = time.process_time()
    HelloAgentsScorer().score(checked({"type": "answer", "answer": "42"}, text=text))
    assert time.process_time() - start < 5


def _by(checker: Any, text: str = "42", **fields: Any) -> Score:
    return CheckerScorer().score(checked(checker, text=text, **fields))


def test_the_checker_of_the_task_decides_and_a_task_without_one_is_unscored() -> None:
    assert _by({"type": "answer", "answer": "42"}).value == 1.0
    assert _by({"type": "numeric", "value": 42}).value == 1.0
    assert _by({"type": "json", "expected": 42}).value == 1.0
    assert _by({"pattern": "^4"}).value == 1.0
    assert _by('{"type": "regex", "pattern": "5"}').value == 0.0
    assert _by("environment").reason == "the outcome is unknown, which is not a verdict"
    assert _by(CHECKER).scorer == "checker"

    def by(metadata: dict[str, Any], text: str) -> float | None:
        return CheckerScorer().score(Trajectory(task=Task(metadata=metadata), steps=(user(), answer(text)))).value

    assert by({"checker": "regex", "pattern": "4"}, "42") == 1.0
    assert by({"checker": "answer", "answer": "42"}, "41") == 0.0
    assert by({"answer": "42"}, "#### 42") == 1.0
    assert by({"answer": {"a": 1}}, '{"a": 1.0}') == 1.0

    for checker, words in (
        (None, "no checker"),
        ("vibes", "'vibes'; valid types: answer, json"),
        ({"type": 3}, "no checker"),
    ):
        score = _by(checker)
        assert score.value is None
        assert words in (score.reason or "")
