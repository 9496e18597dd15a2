"""Task files of `quintain/sandbox`: real git repositories, rows of SWE-bench, tests that an agent cannot change, refusals."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from playing import act, text_of
from quintain.environments.registry import task_source
from quintain.environments.sandbox import Sandboxed
from quintain.environments.sandbox.environment import Coding
from quintain.environments.sandbox.judging import patched_paths
from quintain.environments.sandbox.rows import find_repository
from quintain.errors import InvalidInput, QuintainError, Refused, Unavailable
from quintain.records.trajectory import Task
from quintain.settings import Settings
from quintain.tools.evaluation.environment_references import usable_reference
from quintain.tools.services import Services, open_services

WRONG = "def area(a, b):\n    return a + b\n"
RIGHT = "def area(a, b):\n    return a * b\n"
OLD_TEST = "from shapes import area\n\n\ndef test_square():\n    assert area(2, 2) == 4\n"
NEW_TEST = OLD_TEST + "\n\ndef test_side():\n    assert area(2, 3) == 6\n"
FILES_ROW = {
    "id": "shapes-files",
    "prompt": "area(2, 3) is 5 and should be 6.",
    "test_command": "python3 -m unittest -q tests.test_area",
    "checker": {
        "type": "unit_tests",
        "files": {"shapes.py": WRONG, "tests/__init__.py": ""},
        "tests": {
            "tests/test_area.py": "import unittest, shapes\nclass T(unittest.TestCase):\n    def test_a(self):\n"
            "        self.assertEqual(shapes.area(2, 3), 6)\n    def test_b(self):\n        self.assertEqual(shapes.area(2, 2), 4)\n"
        },
    },
}


def git(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    named = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    done = subprocess.run(
        ["git", *named, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def repos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`acme/shapes` with a bug, and a later commit that mends it, whose settings would run a program of theirs."""
    folder = tmp_path_factory.mktemp("repos")
    shapes = folder / "acme" / "shapes"
    shapes.mkdir(parents=True)
    git(shapes, "init", "-q")
    (shapes / "shapes.py").write_text(WRONG)
    (shapes / "test_shapes.py").write_text(OLD_TEST)
    git(shapes, "add", "-A")
    git(shapes, "commit", "-q", "-m", "A bug")
    (shapes / "shapes.py").write_text(RIGHT)
    (shapes / "test_shapes.py").write_text(NEW_TEST)
    git(shapes, "commit", "-q", "-a", "-m", "Mended")
    with (shapes / ".git" / "config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = touch {folder}/owned\n")
    return folder


@pytest.fixture(scope="module")
def row(repos: Path) -> dict[str, Any]:
    """As SWE-bench has it."""
    shapes = repos / "acme" / "shapes"
    base = git(shapes, "rev-parse", "HEAD~1").strip()
    diff = ["-c", "core.fsmonitor=", "diff", "HEAD~1", "HEAD", "--"]
    return {
        "instance_id": "acme__shapes-1",
        "repo": "acme/shapes",
        "base_commit": base,
        "problem_statement": "area(2, 3) gives 5.",
        "patch": git(shapes, *diff, "shapes.py"),
        "test_patch": git(shapes, *diff, "test_shapes.py"),
        "FAIL_TO_PASS": '["test_shapes.py::test_side"]',
        "PASS_TO_PASS": '["test_shapes.py::test_square"]',
        # Without one it is pytest on the files of these tests; the plugins of this installation take seconds to load.
        "test_command": "python3 -m pytest -q --disable-plugin-autoload test_shapes.py",
    }


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps({"split": "train", **row}) + "\n" for row in rows))
    return path


@pytest.fixture
def begin(tmp_path: Path, repos: Path) -> Iterator[Any]:
    """Begins the task of a row."""
    begun: list[Coding] = []

    def start(row: dict[str, Any]) -> Coding:
        source = Sandboxed(tasks=write(tmp_path / "tasks.jsonl", row), repos=repos)
        try:
            (task,) = source.tasks("train", 1, 0)
        except QuintainError as error:
            pytest.skip(error.message)
        begun.append(Coding(source))
        begun[-1].reset(task)
        return begun[-1]

    yield start
    for coding in begun:
        coding.close()


def test_a_row_of_swe_bench_is_played_on_its_commit_alone(
    begin: Any, row: dict[str, Any], repos: Path, tmp_path: Path
) -> None:
    coding = begin(row)
    (task,) = coding._source.tasks("train", 1, 0)
    assert task.metadata == {"split": "train", "repo": "acme/shapes", "base_commit": row["base_commit"]}
    assert "A bug" not in (history := text_of(act(coding, "git", arguments="log --all --stat")))
    assert history.count("commit ") == 1
    assert "bad object" in text_of(act(coding, "git", arguments=f"show {row['base_commit']}"))
    assert "test_side" not in text_of(act(coding, "bash", command="cat *.py"))
    assert act(coding, "write_file", path="shapes.py", content=RIGHT).observations[0].is_error is False
    assert "1 passed in some time" in text_of(act(coding, "run_tests"))
    done = act(coding, "submit")
    assert (done.reward, text_of(done).partition("\n")[0]) == (1.0, "Of 2 tests that the task names 2 passed.")
    assert done.info["patch"] == row["patch"]
    assert not (repos / "owned").exists()  # what the repository's own settings would have run


HOOKS = """\
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    out = yield
    out.get_result().outcome = 'passed'
"""
NAME = "Metadata-Version: 2.1\nName: x\nVersion: 1\n"
PLUGIN = "[pytest11]\nx = evil\n"
STEERING = {
    "test_shapes.py": "def test_square(): pass\ndef test_side(): pass\n",
    "conftest.py": HOOKS,
    "pytest.ini": "[pytest]\naddopts = --collect-only\n",
    ".pytest.ini": "[pytest]\naddopts = -p evil\n",
    "pytest.toml": "[pytest]\naddopts = ['-p', 'evil']\n",
    ".pytest.toml": "[pytest]\naddopts = ['-p', 'evil']\n",
    "evil.py": "def pytest_pyfunc_call(pyfuncitem): return True\n",
    "x-1.dist-info/METADATA": NAME,
    "x-1.dist-info/entry_points.txt": PLUGIN,
    "x.Egg-Info/PKG-INFO": NAME,
    "x.Egg-Info/entry_points.txt": PLUGIN,
    "pytest.py": "def main(*a, **o): return 0\n",
    "pluggy.py": "raise SystemExit(0)",
    "argparse.py": "raise SystemExit(0)",
    "iniconfig.py": "import os; os._exit(3)\n",
    "packaging/__init__.py": "",
    "packaging/version.py": "import os; os._exit(3)\n",
    "sitecustomize.py": "import os; os._exit(0)",
}
"""Files that pass all tests, or end the run, where the test runner reads any one of them."""


def test_nothing_that_an_agent_adds_steers_the_test_runner(begin: Any, row: dict[str, Any]) -> None:
    """Tests come from the row and settings from its commit: one of two tests passes with the bug.

    Installed plugins are loaded, so that one which the agent adds would be.
    """
    coding = begin({**row, "test_command": "python3 -m pytest -q test_shapes.py"})
    for path, text in STEERING.items():
        assert not act(coding, "write_file", path=path, content=text).observations[0].is_error
    act(coding, "bash", command="mkdir -p .quintain-secret/x; touch .quintain-secret/x/y")
    done = act(coding, "submit")
    assert (done.reward, done.info["metrics"]["tests_passed"]) == (0.0, 0.5), text_of(done)
    assert "conftest.py" in done.info["patch"]  # what it did is shown


def test_modules_of_other_names_are_the_agents_own(begin: Any, row: dict[str, Any]) -> None:
    coding = begin(row)
    act(coding, "write_file", path="measures.py", content=RIGHT)
    act(coding, "write_file", path="shapes.py", content="from measures import area\n")
    assert act(coding, "submit").reward == 1.0


def test_printed_results_and_an_early_end_are_no_pass(begin: Any) -> None:
    coding = begin(FILES_ROW)
    fake = "import os\nos.write(2, b'Ran 2 tests in 0.1s\\n\\nOK\\n')\nos.write(2, b'\\n0 2 2 0 -\\n')\nos._exit(0)\n"
    act(coding, "write_file", path="shapes.py", content=fake)
    act(coding, "bash", command="rm -r tests; ln -s /tmp tests")
    done = act(coding, "submit")
    assert (done.reward, done.terminated) == (0.0, True)
    assert "ended with 0 before its test runner reported passing tests" in text_of(done)


def test_files_and_tests_can_stand_in_the_row(begin: Any) -> None:
    coding = begin(FILES_ROW)
    assert "test_area" not in text_of(act(coding, "list_files"))
    changes = "sed -i 's/a + b/a * b/' shapes.py; chmod +x shapes.py; echo '* -diff' > .gitattributes"
    act(coding, "bash", command=f"{changes}; mkdir -p deep; ln -s ../shapes.py deep/link")
    done = act(coding, "submit")
    assert (done.reward, done.info["metrics"]["tests_passed"]) == (1.0, 1.0), text_of(done)
    assert "diff --git a/deep/link b/deep/link\nnew file mode 120000" in done.info["patch"]
    assert "new mode 100755" in done.info["patch"]
    assert "+    return a * b" in done.info["patch"]


def test_tests_that_cannot_run_are_an_error_and_no_verdict(begin: Any, row: dict[str, Any]) -> None:
    coding = begin({**FILES_ROW, "test_command": "no-such-runner tests"})
    with pytest.raises(Unavailable, match=r"\[tests_cannot_run\].*no-such-runner"):
        act(coding, "submit")
    broken = begin({**row, "test_patch": row["test_patch"].replace("area(2, 2)", "area(9, 9)")})
    with pytest.raises(Unavailable, match="test_patch does not apply to base_commit"):
        act(broken, "submit")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"repo": "acme/nowhere"},
            "expected a git repository below .*, got 'acme/nowhere'.*repos=FOLDER .nothing is fetched",
        ),
        ({"repo": "../../etc"}, "expected a git repository below"),
        ({"base_commit": "--help0"}, "expected base_commit to be a commit hash .*, got '--help0'"),
        ({"base_commit": "0" * 40}, "lacks the commit 0000"),
        ({"problem_statement": " "}, "its prompt is empty"),
        (
            {"FAIL_TO_PASS": ["test_a (m.T)"], "PASS_TO_PASS": [], "test_command": None},
            "test_command, or FAIL_TO_PASS with files",
        ),
        ({"test_command": "make test | tail"}, "without shell syntax"),
        ({"checker": {"type": "regex", "pattern": "x"}}, "expected a checker of type unit_tests .*, got 'regex'"),
        ({"timeout_s": -1}, "expected timeout_s from 0.1 to 3600 seconds, got -1"),
        ({"repo": None, "checker": {"files": {"../x": "y"}, "command": "make"}}, "a relative path below the workspace"),
        (
            {"repo": None, "checker": {"files": {"x": "y"}, "command": "make"}, "FAIL_TO_PASS": [], "PASS_TO_PASS": []},
            "tests, got none",
        ),
        ({"repo": None}, "expected `repo` or `checker.files`, got neither"),
    ],
)
def test_a_row_that_cannot_be_played_is_refused_with_the_remedy(
    tmp_path: Path, repos: Path, row: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "tasks.jsonl", {**row, **change})
    with pytest.raises(InvalidInput, match=rf"\[bad_task_rows\] 'tasks.jsonl' has 1 bad row: line 1: .*{message}"):
        Sandboxed(tasks=path, repos=repos)


def test_repositories_are_found_under_their_usual_names_and_never_elsewhere(tmp_path: Path, repos: Path) -> None:
    bare = tmp_path / "there" / "acme__shapes.git"
    subprocess.run(
        ["git", "clone", "-q", "--bare", str(repos / "acme" / "shapes"), str(bare)], check=True, capture_output=True
    )
    assert find_repository("acme/shapes", [tmp_path / "there"]).objects == bare / "objects"
    assert find_repository(str(bare), [tmp_path / "there"]).objects == bare / "objects"
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "shapes").symlink_to(repos / "acme" / "shapes")
    for name in ("acme/shapes", str(repos / "acme" / "shapes"), "shapes", "", ".", "\0"):
        with pytest.raises(InvalidInput, match="clone it there"):
            find_repository(name, [tmp_path / "here"])
    assert patched_paths("--- a/x y.py\n+++ b/x y.py\n@@\n--- a/old\n+++ /dev/null\n") == {"x y.py", "old"}


def test_rows_of_swe_bench_without_a_command_run_the_files_of_their_tests(
    tmp_path: Path, repos: Path, row: dict[str, Any]
) -> None:
    path = write(tmp_path / "tasks.jsonl", {name: value for name, value in row.items() if name != "test_command"})
    source = Sandboxed(tasks=path, repos=repos)
    assert source.assignment(Task(id="acme__shapes-1")).test_command == "python3 -m pytest -q test_shapes.py"
    with pytest.raises(InvalidInput, match=r"a task of quintain/sandbox, .* got 'acme__shapes-2'"):
        source.assignment(Task(id="acme__shapes-2"))


def test_a_file_of_tasks_goes_by_its_content_and_may_name_generated_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", {"id": "sandbox/train/fix/easy/00007", "prompt": "x"}, FILES_ROW)
    source = task_source(f"quintain/sandbox?tasks={path}")
    assert source.version.startswith("1+")
    with pytest.raises(InvalidInput, match="choose among generated tasks"):
        task_source(f"quintain/sandbox?tasks={path}&types=fix")


def test_tools_hold_paths_within_the_roots_and_sandboxes_to_the_operators_choice(
    tmp_path: Path, repos: Path, settings: Settings
) -> None:
    opened = open_services(settings)
    opened.close()  # only what it was set up with is looked at

    def services(**said: Any) -> Services:
        return replace(opened, settings=settings.model_copy(update={"roots": (repos,), **said}))

    path = write(tmp_path / "mine.jsonl", FILES_ROW)
    inbox = settings.inbox_dir
    write(inbox / "mine.jsonl", FILES_ROW)
    usable = usable_reference(services(sandbox="unshare"), f"quintain/sandbox?tasks=mine.jsonl&repos={repos}")
    assert usable == f"quintain/sandbox?tasks={inbox.resolve()}/mine.jsonl&repos={repos.resolve()}&backend=unshare"
    for reference, said, message in (
        (f"quintain/sandbox?tasks={path}", {}, "outside the allowed roots"),
        ("quintain/sandbox?tasks=mine.jsonl&repos=/etc", {}, "outside the allowed roots"),
        ("quintain/sandbox", {"sandbox": "off"}, "QUINTAIN_SANDBOX is off"),
        ("quintain/sandbox?backend=docker", {"sandbox": "unshare"}, "not what the operator has set"),
        ("quintain/sandbox?image=mine", {}, "QUINTAIN_SANDBOX_IMAGE"),
    ):
        with pytest.raises(Refused, match=message):
            usable_reference(services(**said), reference)
    assert usable_reference(services(), "quintain/sandbox?types=fix") == "quintain/sandbox?types=fix"
