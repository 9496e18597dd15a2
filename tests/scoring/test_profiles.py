"""Domain profiles: which there are, which one fits a run, and files of the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quintain.environments.sandbox.coding_tools import ARGUMENTS
from quintain.errors import InvalidInput, NotFound, QuintainError
from quintain.records.trajectory import Task
from quintain.scoring.profiles import PROFILES, bare_name, domain_of, profile, profile_for
from quintain.scoring.rules.scorer import RulesScorer
from quintain.scoring.rules.view import index_of
from trajectory_runs import answer, call, run, user


def test_the_eight_kinds_of_work_and_the_built_in_environment_are_there() -> None:
    assert set(PROFILES) == {
        *("coding", "browser", "conversation", "engineering", "advisory", "discussion", "crew", "generic"),
        "inventory",
    }
    assert all(profile(name).name == name for name in PROFILES)


@pytest.mark.parametrize(
    ("name", "category"),
    [
        *(("file_read", "read"), ("file_write", "write")),  # knowlyr's own sandbox, which its profile did not know
        *(("Read", "read"), ("Edit", "write"), ("Write", "write"), ("MultiEdit", "write"), ("Bash", "execute")),
        *(("Grep", "search"), ("Glob", "search"), ("TodoWrite", "think")),
        *(("shell", "execute"), ("apply_patch", "write"), ("exec_command", "execute"), ("update_plan", "think")),
        *(("str_replace_editor", "write"), ("execute_bash", "execute"), ("finish", "submit"), ("think", "think")),
        *(("open", "read"), ("find_file", "search"), ("search_dir", "search"), ("submit", "submit")),
        *(("replace", "write"), ("run_shell_command", "execute"), ("search_file_content", "search")),
        *(("write_todos", "think"), ("mcp__filesystem__read_text_file", "read"), ("functions.shell", "execute")),
        *(("github__get_file_contents", "read"),),
    ],
)
def test_the_tools_of_todays_agents_are_known_in_coding(name: str, category: str) -> None:
    tool = index_of(profile("coding")).find(name)
    assert tool is not None
    assert tool.category == category


def test_tools_are_known_by_name_whatever_their_namespace() -> None:
    index = index_of(profile("coding"))
    assert {name for name in ARGUMENTS if index.find(name) is None} == set()

    index = index_of(profile("coding"))
    for name in ("book_flight", "frobnicate", "update_record", "mcp__x__delete_all", "", "__", "工具"):
        assert index.find(name) is None, name

    names = ("mcp__github__get_issue", "github__get_issue", "functions.get_issue", "get_issue")
    assert {bare_name(name) for name in names} == {"get_issue"}
    assert bare_name("__") == "__"


@pytest.mark.parametrize(
    ("task", "tools", "domain"),
    [
        ({"environment": "quintain/inventory"}, ["search"], "inventory"),
        ({"environment": "quintain/sandbox"}, [], "coding"),
        ({"environment": "knowlyr/discussion"}, [], "discussion"),
        ({"type": "bug_fix"}, [], "coding"),
        ({"type": "coding"}, ["click"], "coding"),
        ({"environment": "airline"}, ["get_user_details"], "conversation"),
        ({"metadata": {"domain": "advisory"}}, ["bash"], "advisory"),
        ({}, ["Read", "Edit", "Bash", "mcp__x__y"], "coding"),
        ({}, ["bash"], "coding"),
        ({}, ["click", "type_text", "submit"], "browser"),
        ({}, ["respond", "query_stats"], "conversation"),
        ({}, ["read_notes", "write_notes"], "crew"),
        ({}, ["get_weather", "book_flight"], "generic"),
        ({}, ["Read", "get_weather", "book_flight", "pay"], "generic"),
        ({}, ["submit"], "generic"),
        ({"type": 'weird / "type"'}, [], "generic"),
        ({}, [], "generic"),
    ],
)
def test_the_profile_of_a_run_is_told_by_its_task_else_by_its_tools(
    task: dict[str, Any], tools: list[str], domain: str
) -> None:
    made = run("t", user(), *map(call, tools), answer(), tools=(), task=Task(**task))
    assert domain_of(made) == domain
    assert profile_for(made) is PROFILES[domain]


def _file(folder: Path, **fields: Any) -> str:
    path = folder / "mine.json"
    path.write_text(json.dumps(fields), encoding="utf-8")
    return str(path)


def test_a_profile_of_ones_own_stands_alone_or_extends_a_built_in_one(tmp_path: Path) -> None:
    """Worked examples.

    - `peek` is a read of `what`: with the profile an equal peek after a peek elsewhere is redundant (1/3 lost),
      without it not.
    - Its tools go first, its rules join the others, the rest stays.
    """
    tools = [{"name": "peek", "category": "read", "target": ["what"], "aliases": ["Blick"]}]
    mine = profile(_file(tmp_path, name="mine", tools=tools))
    steps = (call("peek", "a", what=1), call("Blick", "b", what=2), call("peek", "a", what=1))
    made = run("t", user(), *steps, tools=())
    assert RulesScorer(mine).score(made).value == pytest.approx(2 / 3)
    assert RulesScorer().score(made).value == 1.0

    tools = [{"name": "submit", "category": "execute"}, {"name": "peek", "category": "read"}]
    mine = profile(_file(tmp_path, extends="inventory", name="mine", tools=tools, rules={"timing": 0.1}))
    index = index_of(mine)
    categories = {name: tool.category for name in ("submit", "peek", "open") if (tool := index.find(name))}
    assert categories == {"submit": "execute", "peek": "read", "open": "read"}
    assert (mine.name, mine.calls, mine.rules) == ("mine", "due", {"timing": 0.1})


READ = {"name": "a", "category": "read"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "profile.name is required"),
        ({"name": "a b"}, "profile.name"),
        ({"name": "x", "tool": []}, "profile.tool is not a known field (did you mean 'tools'?)"),
        ({"name": "x", "tools": [{"name": "a", "category": "reed"}]}, "profile.tools[0].category"),
        ({"name": "x", "rules": {"redundancy": 1}}, "profile.rules.redundancy"),
        ({"name": "x", "rules": {"errors": 1.5}}, "profile.rules.errors"),
        ({"name": "x", "rules": {"errors": True}}, "expected a number, got a boolean"),
        ({"name": "x", "mix": {"outcome": 0, "process": 0}}, "expected a weight above 0 in mix"),
        ({"name": "x", "mix": {"outcome": 0.4, "process": 0.6}}, "at least half of the mix for the outcome, got 0.4"),
        ({"name": "x", "mix": {"result": 1}}, "profile.mix.result"),
        ({"name": "x", "tools": [{**READ, "aliases": ["B"]}, {"name": "b", "category": "write"}]}, "for two tools"),
        ({"name": "x", "extends": "codeing"}, "expected profile.extends to be one of advisory, browser"),
        ({"name": "x", "extends": "coding", "rules": [1]}, "profile.rules"),
    ],
)
def test_a_file_that_is_no_profile_is_told_by_its_field(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        profile(_file(tmp_path, **fields))
    assert said in raised.value.message


def test_names_and_files_that_do_not_exist_are_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no profile 'codin' \(did you mean 'coding'\?\); built in: advisory, browser"):
        profile("codin")
    with pytest.raises(NotFound, match="cannot find"):
        profile(str(tmp_path / "none.json"))
    for text in ('{"name": "a", "name": "b"}', "[]", "{", "\x00"):
        (tmp_path / "bad.json").write_text(text, encoding="utf-8")
        with pytest.raises(QuintainError):
            profile(str(tmp_path / "bad.json"))
