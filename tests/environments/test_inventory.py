"""`quintain/inventory`: its items and splits, searches, and answers. What all families share is in `test_families`."""

from __future__ import annotations

from typing import Any

import pytest

from playing import act, play, start, text_of
from quintain.environments.inventory import Inventory
from quintain.environments.inventory.environment import normalise
from quintain.environments.inventory.tasks import FAMILY, build_case, names, vocabulary
from quintain.environments.registry import task_source
from quintain.errors import InvalidInput
from quintain.records.trajectory import COST, Task


def test_train_and_held_out_share_words_but_no_item() -> None:
    """20 adjectives x 40 nouns; one pair in five is held out, and every word stands in both splits."""
    train, held_out = set(names("train")), set(names("held_out"))
    assert (len(train), len(held_out)) == (640, 160)
    assert not train & held_out
    assert {n.noun for n in train} == {n.noun for n in held_out}
    assert {n.adjective for n in train} == {n.adjective for n in held_out} == set(vocabulary().adjectives)
    for split, allowed in (("train", train), ("held_out", held_out)):
        for task in Inventory().tasks(split, 120, seed=1):
            assert {item.name for item in build_case(FAMILY.parse(task.id)).items} <= allowed


def test_calls_of_forbidden_tools_are_carried_out_and_counted_as_cost() -> None:
    source = task_source("quintain/inventory?types=lookup&forbidden=open,compare")
    (task,) = source.tasks("held_out", 1, seed=0)
    assert task.metadata["forbidden"] == ["open", "compare"]
    (episode,) = play(source, source.expert([task]), [task])  # type: ignore[attr-defined]
    assert (episode.trajectory.outcome.status, episode.trajectory.extra[COST]) == ("success", 1)
    assert (episode.result.forbidden, episode.result.metrics["cost"]) == (1, 1)
    (free,) = play(Inventory(), source.expert([task]), [Task(id=task.id, prompt=task.prompt)])  # type: ignore[attr-defined]
    assert COST not in free.trajectory.extra
    tempting = task_source("quintain/inventory?forbidden=key").make()
    assert [tool["function"]["name"] for tool in tempting.tools][-1] == "key"
    tempting.reset(task)
    shown = act(tempting, "key")
    assert (text_of(shown), shown.info) == (str(build_case(FAMILY.parse(task.id)).answer), {"metrics": {"cost": 1}})
    assert act(start(task.id), "key").observations[0].is_error
    with pytest.raises(InvalidInput, match=r"bad_option.*expected forbidden .*got 'fly'"):
        task_source("quintain/inventory?forbidden=fly")


@pytest.mark.parametrize(("change", "reward"), [(lambda answer: f" {answer}. ", 1.0), (lambda answer: answer + 1, 0.0)])
def test_a_submit_ends_the_episode_with_the_verdict(change: Any, reward: float) -> None:
    task_id = "inventory/held_out/total/hard/00042"
    step = act(start(task_id), "submit", answer=change(build_case(FAMILY.parse(task_id)).answer))
    assert (step.terminated, step.reward) == (True, reward)


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (42, "42", True),
        (42, "42.0", True),
        ("1,042", 1042, True),
        ("The Brass  Lamp.", "brass lamp", True),
        ("'oak chair'", "oak chair", True),
        ("brass lamp", "lamp", False),
        (42, "$42", False),
        (0.1 + 0.2, 0.3, False),
    ],
)
def test_answers_agree_by_value_and_by_words(a: object, b: object, equal: bool) -> None:
    assert (normalise(a) == normalise(b)) is equal
