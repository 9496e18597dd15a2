"""What calls, shell scripts, patches and Python code do to files, read once for rules, audit and replays."""

from __future__ import annotations

import time
from typing import Any

import pytest

from quintain.records.trajectory import Action, Observation
from quintain.scoring.file_activity.calls import read_call
from quintain.scoring.file_activity.operations import Operation
from quintain.scoring.file_activity.programs import Purpose, purpose_of
from quintain.scoring.file_activity.script_operations import script_operations
from quintain.scoring.file_activity.shell import parse_script


def words(script: str) -> list[tuple[str, ...]]:
    return [command.words for command in parse_script(script)]


def brief(operation: Operation) -> tuple[str, ...]:
    return tuple(text for text in (operation.kind, operation.path, operation.target) if text)


def test_a_script_is_its_simple_commands() -> None:
    script = "cd /r && cat > a.py <<'EOF' && python a.py 2>&1 | head -5\nx = 'it'\nEOF\nrm -f 'b c.py' # don't\nls"
    assert words(script) == [
        ("cd", "/r"),
        ("cat",),
        ("python", "a.py"),
        ("head", "-5"),
        ("rm", "-f", "b c.py"),
        ("ls",),
    ]
    cat = parse_script(script)[1]
    assert cat.here_document is not None
    assert (cat.here_document.text, cat.here_document.is_literal) == ("x = 'it'\n", True)
    assert [one.target for one in cat.outputs] == ["a.py"]
    assert [command.operator for command in parse_script(script)] == [";", "&&", "&&", "|", ";", ";"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("sudo timeout 5 rm -rf tests/", [("rm", "-rf", "tests/")]),
        ("A=1 B='x y' env C=2 pytest -q", [("pytest", "-q")]),
        ("bash -lc 'rm a; ls'", [("bash", "-lc", "rm a; ls"), ("rm", "a"), ("ls",)]),
        ("echo $(rm a) b", [("echo", "$"), ("rm", "a"), ("b",)]),
        ("echo 'never closed", [("echo", "'never closed")]),
        ("", []),
    ],
)
def test_wrappers_substitutions_and_broken_scripts_are_read(script: str, expected: list[tuple[str, ...]]) -> None:
    assert words(script) == expected


def test_commands_in_conditions_and_loops_may_not_have_run() -> None:
    script = "if a; then b; fi; for x in y; do c; done; d"
    nested = {command.program: command.is_nested for command in parse_script(script)}
    assert (nested["b"], nested["c"], nested["d"]) == (True, True, False)


@pytest.mark.parametrize(
    ("script", "purpose"),
    [
        ("git -C x status", Purpose.LOOK),
        ("git checkout -- a.py", Purpose.UNDO),
        ("python -m pytest -q tests/a.py", Purpose.CHECK),
        ("pytest --snapshot-update", Purpose.OTHER),
        ("find . -name a -delete", Purpose.OTHER),
        ("find . -name a", Purpose.LOOK),
        ("sed -n 1,5p a", Purpose.LOOK),
        ("sed -i s/a/b/ a", Purpose.OTHER),
        ("mkdir -p a", Purpose.SETTING),
        ("frobnicate a", Purpose.OTHER),
    ],
)
def test_the_purpose_of_a_command(script: str, purpose: Purpose) -> None:
    assert purpose_of(parse_script(script)[0]) is purpose


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cat a.py b.py", [("read", "a.py"), ("read", "b.py")]),
        ("cd src && rm a.py", [("delete", "src/a.py")]),
        ("git mv a.py b.py", [("move", "a.py", "b.py")]),
        ("cp /dev/null a.py", [("write", "a.py")]),
        ("echo 1 > a.txt; ls >> b.txt", [("write", "a.txt"), ("append", "b.txt")]),
        ("find t -name '*.py' | xargs rm", [("search", "t/*.py"), ("delete", "t/*.py")]),
        ("find t -exec cat {} +", [("read", "t/*")]),
        ("perl -ni -e 'print unless /x/' a.py", [("edit", "a.py")]),
        ("python -c \"open('a.py', 'w').write('')\"", [("write", "a.py"), ("run",)]),
        (
            "python - <<'EOF'\np = 'a.py'\ns = open(p).read()\nopen(p, 'w').write(s.replace('a', 'b'))\nEOF",
            [("edit", "a.py"), ("read", "a.py"), ("run",)],
        ),
        ("python fix.py", [("run", "fix.py")]),
        ("apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a.py\n*** End Patch\nEOF", [("patch", "a.py")]),
        ("ls -la; grep x a.py; pytest -q", []),
    ],
)  # fmt: skip
def test_the_operations_of_a_script(script: str, expected: list[tuple[str, ...]]) -> None:
    assert sorted(map(brief, script_operations(script))) == sorted(expected)


def test_an_edit_in_place_shows_what_it_takes_out_and_is_not_exact() -> None:
    (operation,) = script_operations("sed -i 's/assert x/pass/; /skip/d' a.py")
    assert (operation.old, operation.new, operation.is_exact) == ("assert x\nskip", "pass", False)


@pytest.mark.parametrize(
    ("tool", "args", "expected"),
    [
        ("Read", {"file_path": "a.py"}, [("read", "a.py")]),
        ("write_file", {"path": "a.py", "content": "x"}, [("write", "a.py")]),
        ("str_replace_editor", {"command": "view", "path": "a.py"}, [("read", "a.py")]),
        ("str_replace_editor", {"command": "undo_edit", "path": "a.py"}, [("undo", "a.py")]),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "a", "new_string": "b"}] * 2}, [("edit", "a")] * 2),
        ("delete_file", {"path": "a.py"}, [("delete", "a.py")]),
        ("move_file", {"source": "a", "destination": "b"}, [("move", "a", "b")]),
        ("shell", {"command": ["bash", "-lc", "rm a"]}, [("delete", "a")]),
        ("run_sql", {"query": "select * from answers"}, [("read", "answers")]),
        ("web_search", {"query": "x"}, []),
        ("shell", {"command": 7}, []),
        ("edit", {"path": None, "edits": ["x", {}]}, [("unknown",)]),
    ],
)
def test_the_operations_of_a_call(tool: str, args: dict[str, Any], expected: list[tuple[str, ...]]) -> None:
    assert [brief(one) for one in read_call(Action(tool=tool, args=args)).operations] == expected


def test_a_call_that_failed_did_nothing_and_a_script_that_failed_may_have() -> None:
    failed = Observation(content="no", is_error=True)
    assert read_call(Action(tool="delete_file", args={"path": "a"}), failed).operations == ()
    script = read_call(Action(tool="bash", args={"command": "rm a; false"}), failed)
    assert [brief(one) for one in script.operations] == [("delete", "a")]


@pytest.mark.parametrize("text", ["'", '"', "\\", "(", "<", "<<a\n", "bash -c ", "a", "$(", "\n"])
def test_no_script_keeps_the_reader_busy(text: str) -> None:
    began = time.process_time()
    list(script_operations(text * (20_000 // len(text))))
    assert time.process_time() - began < 5
