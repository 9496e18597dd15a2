"""What `require_clean` lets in, at its bounds, and what it counts."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.errors import InvalidInput
from quintain.records.text import MAX_DEPTH, require_clean
from quintain.records.wording import size_text


def _nested(levels: int, leaf: Any, *, in_objects: bool) -> Any:
    for _ in range(levels):
        leaf = {"k": leaf} if in_objects else [leaf]
    return leaf


@pytest.mark.parametrize("in_objects", [False, True])
@pytest.mark.parametrize("leaf", ["x", 1, [], {}])
def test_a_value_may_lie_a_hundred_levels_deep_and_no_deeper(leaf: Any, in_objects: bool) -> None:
    require_clean(_nested(MAX_DEPTH, leaf, in_objects=in_objects), "run")
    with pytest.raises(InvalidInput) as refused:
        require_clean(_nested(MAX_DEPTH + 1, leaf, in_objects=in_objects), "run")
    assert refused.value.code == "too_deep"


def test_a_structure_that_holds_itself_twice_is_refused_at_once() -> None:
    ring: list[Any] = []
    ring += [ring, ring]
    with pytest.raises(InvalidInput, match="nested deeper"):
        require_clean(ring, "run")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {"b": float("nan")}]}, "run.a[1].b"),
        ({"a": ("é", "\ud800")}, "run.a[1]"),
        ({"é": {"\udfff": 1}}, "a key of run.é"),
        (float("inf"), "run"),
    ],
)
def test_a_fault_is_named_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        require_clean(value, "run")
    assert refused.value.message.startswith(path + " ")


def test_characters_of_text_are_counted_without_names() -> None:
    assert require_clean({"name": ["four", ("é", 12, None, True, 1.5)], "x": {"y": "z"}}, "run") == 6


def test_a_size_is_shown_in_one_binary_unit() -> None:
    sizes = (0, 1023, 4991, 64 * 2**20, 643.4 * 2**20, 22_300 * 2**20, 2_000 * 2**30)
    expected = ["0 B", "1,023 B", "4.9 KiB", "64 MiB", "643 MiB", "21.8 GiB", "2,000 GiB"]
    assert [size_text(size) for size in sizes] == expected
