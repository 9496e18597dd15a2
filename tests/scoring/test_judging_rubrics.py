from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import InvalidInput, NotFound
from quintain.records.labels.profiles import DomainProfile
from quintain.scoring.judges.rubrics import RUBRICS, read_rubric_file, rubric


def test_there_is_a_rubric_for_each_domain_with_three_anchors_for_each_criterion() -> None:
    wanted = {"coding", "conversation", "engineering", "advisory", "discussion", "browser", "crew", "generic"}
    assert wanted | {"default", "steps"} == set(RUBRICS)
    for found in RUBRICS.values():
        assert all(list(criterion.anchors) == ["0", "0.5", "1"] for criterion in found.criteria)
    assert [criterion.name for criterion in RUBRICS["steps"].criteria] == ["relevance", "correctness", "progress"]


def test_a_rubric_is_named_or_that_of_the_profile() -> None:
    assert rubric().name == "default"
    assert rubric(None, DomainProfile(name="browser")).name == "browser"
    assert rubric(None, DomainProfile(name="mine", rubric="advisory")).name == "advisory"
    assert rubric(None, DomainProfile(name="mine")).name == "default"
    with pytest.raises(NotFound, match="advisory"):
        rubric(None, DomainProfile(name="mine", rubric="advisry"))

    with pytest.raises(NotFound, match=r"did you mean 'coding'.*default, steps"):
        rubric("codng")


def test_a_rubric_of_the_users_is_long_or_short_and_known_by_its_content() -> None:
    long = rubric({"name": "mine", "criteria": [{"name": "depth", "description": "How deep?", "weight": 2}]})
    assert (long.name, long.criteria[0].weight) == ("mine", 2)
    short = rubric({"criteria": {"depth": "How deep?", "tone": {"description": "Kind?", "weight": 3}}})
    assert [(c.name, c.description, c.weight) for c in short.criteria] == [
        ("depth", "How deep?", 1),
        ("tone", "Kind?", 3),
    ]

    deep, kind = ({"criteria": {"depth": "How deep?"}}, {"criteria": {"depth": "How kind?"}})
    assert rubric(deep).name == rubric({"criteria": [{"name": "depth", "description": "How deep?"}]}).name
    assert rubric(deep).name != rubric(kind).name
    assert rubric(deep).name.startswith("custom-")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "criteria is required"),
        ({"criteria": []}, "criteria"),
        ({"criteria": [{"name": "a", "description": "?", "weight": 0}]}, "weight"),
        ({"criteria": [{"name": "a", "description": "?", "weight": float("nan")}]}, "finite"),
        ({"criteria": [{"name": "a", "description": "?"}] * 2}, "distinct names"),
        ({"criteria": [{"name": "a", "description": "?", "wieght": 1}]}, "did you mean 'criteria.weight'|wieght"),
        ({"criteria": {"a b": "?"}}, "name"),
        ({"criteria": {"a": 3}}, "description"),
        ([1], "to be a name or an object"),
    ],
)
def test_a_rubric_that_is_none_is_told_with_the_field(given: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        rubric(given)


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_rubric_file_is_json_or_yaml(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"mine{suffix}"
    path.write_text(json.dumps({"name": "mine", "criteria": {"depth": "How deep?"}}), encoding="utf-8")
    assert read_rubric_file(path).name == "mine"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(InvalidInput, match="cannot read"):
        read_rubric_file(path)
