from __future__ import annotations

import gc
import importlib
import json
import mmap
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from quintain.trainers.engine import machine
from quintain.trainers.models import libraries
from quintain.trainers.models.libraries import import_libraries

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def test_the_fast_product_is_on_only_where_it_is_exact() -> None:
    """Checked with a product of another shape than the probe's; float32 rounding stays below 1e-6, bfloat16 does not."""
    torch.set_float32_matmul_precision("highest")
    on = machine.enable_fast_matmul(CPU)
    assert torch.get_float32_matmul_precision() == ("medium" if on else "highest")
    a, b = torch.randn(300, 200), torch.randn(200, 100)
    exact = a.double() @ b.double()
    assert float(((a @ b).double() - exact).norm() / exact.norm()) < 1e-6


def test_a_back_end_that_rounds_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """No product has an error of zero, so under that bound every back end counts as rounding."""
    torch.set_float32_matmul_precision("high")
    monkeypatch.setattr(machine, "_EXACT", 0.0)
    monkeypatch.setattr(machine, "medium_is_exact", machine.medium_is_exact.__wrapped__)  # measured under that bound
    monkeypatch.setattr(machine, "medium_is_faster", lambda device_type: True)
    assert not machine.enable_fast_matmul(CPU)
    assert torch.get_float32_matmul_precision() == "high"


def test_the_measured_rate_is_that_of_a_product_timed_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 * 512 * 512 * 1408 operations in 10 ms are 73.8 GFLOP/s of one thread; the first, cold round does not count."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    seconds = iter([9.0, 0.02, 0.01, 0.001, 0.01, 5.0])
    monkeypatch.setattr(machine, "_seconds", lambda a, b: next(seconds))
    assert machine.matmul_flops(CPU) == pytest.approx(2 * 512 * 512 * 1408 / 0.01)


def test_prepare_measures_the_machine_and_finds_nothing_to_warn_of() -> None:
    found = machine.prepare("cpu")
    assert found.matmul_flops is not None
    assert 1e8 < found.matmul_flops < 1e14
    assert found.fast_matmul == (torch.get_float32_matmul_precision() == "medium")
    assert found.notes == ()


def test_each_training_of_a_process_takes_the_back_end_that_was_chosen_for_it(tmp_path: Path) -> None:
    """A stage of a recipe would else round by the choice of the stage before, and otherwise alone or resumed."""
    found = []
    for fast in (True, False, True):
        (kept := tmp_path / "machine.json").write_text(json.dumps({"fast_matmul": fast}))
        found.append((machine.prepare("cpu", remembered=kept).fast_matmul, torch.get_float32_matmul_precision()))
    on = (True, "medium") if machine.medium_is_exact("cpu") else (False, "highest")
    assert found == [on, (False, "highest"), on]


def test_a_rate_that_cannot_be_measured_is_unknown_with_a_warning() -> None:
    """PyTorch has no matrix product of booleans."""
    found = machine.prepare("cpu", torch.bool)
    assert found.matmul_flops is None
    assert "could not be measured" in found.notes[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_rises_with_what_was_allocated_and_does_not_fall() -> None:
    before = machine.peak_memory_mb("cpu")
    resident = psutil.Process().memory_info().rss / 2**20
    size = (int(before - resident) + 64) * 2**20
    with mmap.mmap(-1, size) as pages:  # a tensor could reuse memory that malloc kept
        for offset in range(0, size, mmap.PAGESIZE):
            pages[offset] = 1
        after = machine.peak_memory_mb(CPU)
    assert after >= before + 32
    assert machine.peak_memory_mb("cpu") >= after - 8  # the kernel counts pages per processor, with a little lag


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_tuned_process_keeps_freed_memory() -> None:
    """64 MiB are freed and taken again; untuned, each of their 16384 pages would be a fault again."""
    import resource  # not on Windows

    def faults(n: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.empty(n).fill_(1.0)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    machine.tune_allocator()
    faults(2**25)
    assert faults(2**24) < 100


def test_no_garbage_is_collected_while_the_libraries_are_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    collecting = []
    monkeypatch.setattr(gc, "freeze", lambda: collecting.append("frozen"))
    monkeypatch.setattr(libraries, "import_module", lambda name: collecting.append(gc.isenabled()))
    import_libraries()
    assert collecting == [], "they are imported"
    monkeypatch.setattr(libraries, "LIBRARIES", ("new",))
    import_libraries()
    assert collecting == [False, "frozen"]
    monkeypatch.setattr(libraries, "import_module", importlib.import_module)
    with pytest.raises(ModuleNotFoundError):
        import_libraries()
    assert gc.isenabled()
