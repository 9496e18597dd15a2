"""Training over two real processes: as one would have trained, bit-equal when resumed, and with no process left behind."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from quintain.errors import InvalidInput, NotFound, TrainingFailed
from quintain.records.hyperparameters import LoraConfig, SFTConfig
from quintain.threads import GOMP_SPINCOUNT
from quintain.trainers.data.streams import Example, token_row
from quintain.trainers.distributed import ranks
from quintain.trainers.distributed.member import serve
from quintain.trainers.distributed.rendezvous import address, connect, key_file
from quintain.trainers.loop.report import TrainingReport
from tiny_models import save_tiny_model
from trainers.runs import Killed, KillsARank, Recorder, others, rows_for, run, same, spec, weights

# peft 0.21 asks transformers 5.23 by the name that it had before.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

LORA = LoraConfig(rank=4, alpha=8.0, dropout=0.1)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", hidden=16)


Train = Callable[[str, int], tuple[Path, TrainingReport, Recorder]]


@pytest.fixture(scope="module")
def trained(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """A whole run over 5 rows by method and number of processes, made once: 6 steps, the last of each epoch of one row."""
    made: dict[tuple[str, int], tuple[Path, TrainingReport, Recorder]] = {}

    def train(method: str, processes: int) -> tuple[Path, TrainingReport, Recorder]:
        if (method, processes) not in made:
            folder = tmp_path_factory.mktemp(f"{method}-{processes}")
            job = spec(model_folder, folder / "out", method, processes=processes)
            made[method, processes] = (
                folder / "out",
                *run(job, folder / "job", rows_for(method, 5), None, HELD_OUT[method]),
            )
        return made[method, processes]

    return train


HELD_OUT: dict[str, list[Any]] = {"sft": rows_for("sft", 3), "dpo": [], "grpo": []}


class HidesTheModel(Recorder):
    """Takes the model's folder away when this process has read it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def phase(self, name: str) -> None:
        super().phase(name)
        if name == "rendering":
            self.folder.rename(self.folder.with_name("elsewhere"))


@pytest.mark.parametrize(
    "method", ["sft", pytest.param("dpo", marks=pytest.mark.soak), pytest.param("grpo", marks=pytest.mark.soak)]
)
def test_two_processes_train_as_one_does(trained: Train, method: str) -> None:
    """Sums over ranks differ from those over passes in their float32 rounding alone."""
    (alone, one, heard_one), (together, two, heard_two) = trained(method, 1), trained(method, 2)
    figures = {"loss", "grad_norm", "tokens", "entropy", "observation_share", "validation_loss", "validation_entropy"}
    for (_, _, a), (_, _, b) in zip(heard_one.steps, heard_two.steps, strict=True):
        assert a.keys() == b.keys()
        assert [b[name] for name in a.keys() & figures] == pytest.approx(
            [a[name] for name in a.keys() & figures], rel=1e-5
        )
    left, right = weights(alone), weights(together)
    assert all(float((left[k] - right[k]).norm()) <= 1e-6 * float(left[k].norm()) for k in left)
    assert one.validation_loss == pytest.approx(two.validation_loss)
    assert (one.best_step, one.supervised_tokens) == (two.best_step, two.supervised_tokens)
    assert heard_one.checkpoints == heard_two.checkpoints
    assert others() == []


@pytest.mark.soak
def test_a_run_killed_and_then_cancelled_goes_on_to_bit_equal_weights(
    model_folder: Path, tmp_path: Path, trained: Train
) -> None:
    """A checkpoint stands after steps 2 and 4; the kill comes at step 3, the cancel after step 5."""
    whole, _, heard = trained("dpo", 2)
    job, rows = spec(model_folder, tmp_path / "out", "dpo", processes=2), rows_for("dpo", 5)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, Recorder(kill_at=3))
    assert others() == []
    cancelled, before = run(job, tmp_path / "job", rows, Recorder(stop_at=5))
    assert (cancelled.stopped, cancelled.resumed_from_step, before.checkpoints) == (True, 2, [4, 5])
    assert not (tmp_path / "out").exists()
    assert others() == []
    report, after = run(job, tmp_path / "job", rows)
    assert report.resumed_from_step == 5
    assert [m["loss"] for _, _, m in before.steps + after.steps] == [m["loss"] for _, _, m in heard.steps[2:]]
    assert same(whole, tmp_path / "out")
    assert [path.name for path in (tmp_path / "job").glob(".*")] == []


@pytest.mark.soak
def test_a_killed_adapter_run_with_dropout_resumes_to_bit_equal_weights(model_folder: Path, tmp_path: Path) -> None:
    rows = rows_for("sft", 4)
    run(spec(model_folder, tmp_path / "whole", lora=LORA, processes=2), tmp_path / "job-whole", rows)
    job = spec(model_folder, tmp_path / "out", lora=LORA, processes=2)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, Recorder(kill_at=3))
    run(job, tmp_path / "job", rows)
    assert same(tmp_path / "whole", tmp_path / "out")


def test_a_killed_process_ends_the_run_with_what_happened_and_what_to_do(model_folder: Path, tmp_path: Path) -> None:
    job = spec(model_folder, tmp_path / "out", processes=2)
    heard = KillsARank()
    with pytest.raises(TrainingFailed, match=r"\[process_lost\] process 2 of 2 was killed by SIGKILL; resume the job"):
        run(job, tmp_path / "job", rows_for("sft", 6), heard)
    assert len(heard.steps) == 2
    assert heard.checkpoints == [2]
    assert others() == []
    assert not (tmp_path / "out").exists()


def test_what_fails_in_another_process_is_reported_as_it_happened(tmp_path: Path) -> None:
    """The rank of another machine is a thread here: it fails before anything that a process has only once."""
    own = save_tiny_model(tmp_path / "model", hidden=16)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    rank = threading.Thread(target=lambda: serve(connect(address(place, key_file(tmp_path / "job")), 0)))
    rank.start()
    job = spec(own, tmp_path / "out", processes=2, machines=2, rendezvous=place)
    with pytest.raises(NotFound, match="no model folder at"):
        run(job, tmp_path / "job", rows_for("sft", 2), HidesTheModel(own))
    rank.join(60)
    assert not rank.is_alive()


def test_a_rank_limits_spinning_threads_and_ends_when_rank_0_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its stdin ends with the last process that holds the other side; the pipe of its orders is still open here."""
    monkeypatch.setenv("OMP_DISPLAY_ENV", "VERBOSE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    process, pipe = ranks._start(tmp_path)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 1
    pipe.close()
    if sys.platform == "linux":
        assert f"GOMP_SPINCOUNT = '{GOMP_SPINCOUNT}'" in capfd.readouterr().err


@pytest.mark.parametrize("value", [0, -1, 1025, 1.5])
def test_a_number_of_processes_out_of_range_is_refused(value: float) -> None:
    with pytest.raises(ValidationError, match="processes"):
        SFTConfig(processes=value)  # type: ignore[arg-type]


def test_more_processes_than_gpus_are_refused_before_any_starts(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "pick_device", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(
        InvalidInput, match=r"\[too_many_processes\] processes is 3, .* has 2 of cuda; set processes to 2"
    ):
        run(spec(model_folder, tmp_path / "out", processes=3), tmp_path / "job", rows_for("sft", 2))
    assert others() == []


def example(length: int, first: int) -> Example:
    row = token_row(list(range(first, first + length + 1)), [False] + [True] * length)
    return Example(key=f"{first}", rows=(row,), member=(0,), value=(0.0,), weight=1.0)


def test_a_step_is_dealt_out_by_size_and_nothing_is_lost() -> None:
    """Sizes 8, 5, 4, 3 by two: a budget of 10 makes passes 8, 5+4, 3; 9 goes first, then 8, and 3 to the lighter one."""
    examples = [example(n, 100 * n) for n in (3, 8, 4, 5)]
    dealt = ranks.deal(examples, 8192, 2, share=True)
    assert [[[e.key for e in batch] for batch in mine] for mine in dealt] == [[["400", "500"]], [["300"], ["800"]]]


def test_a_step_of_one_example_leaves_the_other_ranks_idle() -> None:
    assert [len(mine) for mine in ranks.deal([example(8, 1)], 8192, 3, share=True)] == [1, 0, 0]
