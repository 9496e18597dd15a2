"""The generated tasks of `quintain/sandbox`, without any sandbox: functions, bugs, options, splits, prompts."""

from __future__ import annotations

import json
from random import Random

import pytest

from quintain.environments.registry import task_source
from quintain.environments.sandbox import Sandboxed
from quintain.environments.sandbox.functions import Function, domains, templates
from quintain.environments.sandbox.projects import (
    FAMILY,
    Call,
    build_project,
    occurs_as_word,
    outcome_of,
)
from quintain.environments.tasks.families import FamilySource
from quintain.errors import InvalidInput, Refused, Unavailable
from quintain.records.trajectory import Task
from quintain.sandbox import sandbox as room
from quintain.sandbox.backends import Bubblewrap, Unshare

SPLITS = ("train", "held_out")
OF_ONE_DOMAIN = [Function(template, domains("train")[0]) for template in templates()]


def _drawn(split: str, n: int, seed: int) -> list[Task]:
    return FamilySource.tasks(Sandboxed(), split, n, seed)  # without opening the sandbox


def calls_of(function: Function, n: int = 60) -> list[Call]:
    rng = Random(7)
    return [Call("m", function.name, function.draw_arguments(rng), {}) for _ in range(n)]


def test_each_bug_shows_and_each_function_has_some_in_both_splits() -> None:
    for function in OF_ONE_DOMAIN:
        calls = calls_of(function)
        right = [outcome_of(function.source, call) for call in calls]
        for split in SPLITS:
            assert len(function.bugs(split)) == 2
            for bug in function.bugs(split):
                wrong = sum(outcome_of(bug, call) != known for call, known in zip(calls, right, strict=True))
                assert wrong >= 3, (function.name, bug)
        assert set(function.bugs("train")).isdisjoint(function.bugs("held_out"))


def test_each_option_changes_something_and_nothing_by_its_default() -> None:
    for function in OF_ONE_DOMAIN:
        extension = function.template.extension
        option = extension.option.partition("=")[0]
        calls = calls_of(function)
        assert all(outcome_of(function.extended, call) == outcome_of(function.source, call) for call in calls)
        changed = {
            value
            for value in extension.values
            for call in calls
            if outcome_of(function.extended, call._replace(options={option: value}))
            != outcome_of(function.source, call)
        }
        assert changed, function.name
        assert outcome_of(function.stub, calls[0]) == {"error": "NotImplementedError"}


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_tasks_are_drawn_by_seed_without_their_hidden_tests(split: str) -> None:
    tasks = _drawn(split, 24, 3)
    assert tasks == _drawn(split, 24, 3)
    assert tasks[:9] == _drawn(split, 9, 3)
    assert len({task.id for task in tasks}) == 24
    assert {(task.type, task.difficulty) for task in tasks} == {
        (t, d) for t in FAMILY.types for d in FAMILY.difficulties
    }
    words = {domain.package for domain in domains(split)}
    for task in tasks:
        project = build_project(FAMILY.parse(task.id))
        assert task.metadata == {"split": split, "seed": 3}
        assert any(f"`{word}`" in task.prompt for word in words)
        visible = json.dumps([project.files, task.prompt])
        hidden = [
            case
            for case in project.cases
            if case.call.text not in visible and json.dumps(case.call.arguments) not in visible
        ]
        assert len(hidden) >= 4 or task.type == "rename"


def test_splits_share_no_domain_and_a_name_is_a_whole_word() -> None:
    prompts = {split: " ".join(task.prompt for task in _drawn(split, 12, 0)) for split in SPLITS}
    for split, other in (("train", "held_out"), ("held_out", "train")):
        assert not any(f"`{domain.package}`" in prompts[other] for domain in domains(split))
    assert occurs_as_word("call top_books(x)", "top_books")
    assert not occurs_as_word('the word "top-books", my_top_books', "top_books")


def test_options_are_checked() -> None:
    for wrong, message in (
        ("?types=fixx", "did you mean 'fix'"),
        ("?difficulty=harder", "difficulty"),
        ("?backend=chroot", "backend"),
        ("?timeout_s=0", "greater than or equal to 1"),
        ("?timeout_s=inf", "timeout_s"),
    ):
        with pytest.raises(InvalidInput, match=message):
            task_source(f"quintain/sandbox{wrong}")


def test_without_a_sandbox_nothing_is_drawn_or_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "Bubblewrap", lambda: Bubblewrap(program="no-such-bwrap"))
    monkeypatch.setattr(room, "Unshare", lambda: Unshare(program="no-such-unshare"))
    monkeypatch.setattr(room, "Docker", lambda image: Bubblewrap("docker", "no-such-docker"))
    source = Sandboxed()
    assert [tool["function"]["name"] for tool in source.make().tools][-1] == "submit"  # it can be shown all the same
    with pytest.raises(
        Unavailable, match=r"\[no_sandbox\] expected a working sandbox.*bubblewrap: no-such-bwrap not found; install"
    ):
        source.tasks("train", 1, 0)
    with pytest.raises(Unavailable, match="unshare: no-such-unshare not found"):
        source.make().reset(_drawn("train", 1, 0)[0])
    with pytest.raises(Refused, match="got QUINTAIN_SANDBOX=off"):
        Sandboxed(backend="off").tasks("train", 1, 0)
