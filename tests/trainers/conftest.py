from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tiny_models import save_tiny_model


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tiny models gain nothing from a second thread, and lose much when the machine is busy.

    A training run may turn on another back end of matrix products for its process; no test inherits that of another.
    """
    threads, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(products)


@pytest.fixture(scope="module", autouse=True)
def _models_of_a_module() -> Iterator[None]:
    """Models that the tests of a module share are trained before the fixtures of any test."""
    with _one_thread():
        yield


@pytest.fixture(autouse=True)
def _models_of_a_test() -> Iterator[None]:
    with _one_thread():
        yield


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", hidden=16)
