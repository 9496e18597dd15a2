"""Every data file of the built-in environments fits its shape, belongs to the task types, and is part of the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from pydantic import ValidationError

from quintain.environments import registry
from quintain.environments.data_files import read_data


def test_each_built_in_environment_has_a_sentence() -> None:
    built_in = {name for name in registry.environment_ids() if name.startswith("quintain/")}
    assert set(read_data("data/descriptions.yaml", dict[str, str])) == built_in
    assert all(registry.describe(name).endswith(".") for name in built_in)


def test_a_file_of_another_shape_is_refused() -> None:
    with pytest.raises(ValidationError):
        read_data("math/data/stories.yaml", dict[str, int])


def test_the_data_files_lie_in_the_package() -> None:
    """hatchling packages `src/quintain` wholly, so a file below the package is a file of the wheel."""
    root = Path(str(files("quintain.environments")))
    assert {path.parent.parent.name for path in root.glob("*/data/*.yaml")} >= {
        "conversation",
        "inventory",
        "math",
        "sandbox",
    }
