"""The checksums of a model folder name the file that is damaged, the list itself too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.artifacts.checksums import FILE_NAME, require_unchanged, write_checksums
from quintain.errors import InvalidInput


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda p: (p / "model.safetensors").write_bytes(b"x"), "model.safetensors has changed since"),
        (lambda p: (p / "config.json").unlink(), "config.json is missing"),
        (lambda p: os.truncate(p / FILE_NAME, 90), f"{FILE_NAME} cannot be read"),
        (lambda p: os.truncate(p / FILE_NAME, 78), f"{FILE_NAME} is cut before model.safetensors"),
        (lambda p: os.truncate(p / FILE_NAME, (p / FILE_NAME).stat().st_size - 1), f"{FILE_NAME} is cut;"),
        (lambda p: (p / FILE_NAME).write_bytes(b""), f"{FILE_NAME} is cut before model.safetensors"),
        (lambda p: (p / FILE_NAME).write_bytes(b"\xff"), f"{FILE_NAME} cannot be read"),
    ],
)
def test_a_folder_that_differs_from_its_checksums_is_refused_with_the_file(
    tmp_path: Path, damage: Callable[[Path], Any], problem: str
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    write_checksums(tmp_path)
    require_unchanged(tmp_path)
    damage(tmp_path)
    with pytest.raises(InvalidInput, match=r"\[model_damaged\]") as refused:
        require_unchanged(tmp_path)
    assert f"but {problem}" in refused.value.message
