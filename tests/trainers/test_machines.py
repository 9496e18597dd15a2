"""Processes that a launcher starts elsewhere join a run by address and key; here "elsewhere" is another process group."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from quintain.errors import InvalidInput, NotFound, TrainingFailed, Unavailable
from quintain.records.hyperparameters import LoraConfig, SFTConfig
from quintain.trainers import train as training
from quintain.trainers.distributed import rendezvous
from quintain.trainers.distributed.rendezvous import Address, Listener, address, connect, key_file
from tiny_models import save_tiny_model
from trainers.runs import Recorder, Trained, assert_as_one, rows_for, run, spec, weights

LAUNCH = [
    "-m",
    "accelerate.commands.launch",
    "--cpu",
    "--num_processes",
    "1",
    "-m",
    "quintain.trainers.distributed",
]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Address:
    """A free port of this machine, and a key in the job's folder."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    return address(f"127.0.0.1:{port}", key_file(tmp_path / "job"))


@contextmanager
def other_machine(there: Address, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, *LAUNCH, f"{there.host}:{there.port}", str(folder / "job" / "ranks.key")]
    launcher = subprocess.Popen(command, start_new_session=True)
    try:
        yield launcher
    finally:
        with suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()


def two(there: Address) -> dict[str, Any]:
    return {"processes": 2, "machines": 2, "rendezvous": f"{there.host}:{there.port}"}


class KillsTheOtherMachine(Recorder):
    """After the second step all of its processes are gone."""

    def __init__(self, launcher: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self.launcher = launcher

    def progress(self, step: int, total_steps: int, metrics: dict[str, float | None]) -> None:
        super().progress(step, total_steps, metrics)
        if step == 2:
            os.killpg(self.launcher.pid, signal.SIGKILL)


def local_shares(optimizer: torch.optim.Optimizer) -> list[float]:
    """This rank's shares of the parameters, their gradients and both moments."""
    parameters: list[Any] = [p for group in optimizer.param_groups for p in group["params"]]
    moments = [[optimizer.state[p][name] for p in parameters] for name in ("exp_avg", "exp_avg_sq")]
    whole = sum(p.numel() for p in parameters)
    return [
        sum(tensor.to_local().numel() for tensor in tensors) / whole
        for tensors in (parameters, [p.grad for p in parameters], *moments)
    ]


def test_a_process_of_another_machine_shares_a_sharded_run_and_each_rank_holds_half(
    tmp_path: Path, there: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adapters and a value head, of 5 pairs; the validation, of one pair, leaves one of the ranks idle."""
    model, rows, held_out = save_tiny_model(tmp_path / "model", hidden=16), rows_for("reward", 5), rows_for("reward", 1)
    lora = LoraConfig(rank=4, alpha=8.0)
    alone = spec(model, tmp_path / "alone", "reward", lora=lora)
    one = Trained(tmp_path / "alone", *run(alone, tmp_path / "job-alone", rows, None, held_out))
    shares: list[list[float]] = []

    def watched(model: Any, config: Any) -> Any:
        optimizer = adamw(model, config)
        optimizer.register_step_post_hook(lambda *_: shares.append(local_shares(optimizer)))
        return optimizer

    adamw = training.adamw
    monkeypatch.setattr(training, "adamw", watched)
    shared = spec(model, tmp_path / "out", "reward", lora=lora, sharding="full", **two(there))
    with other_machine(there, tmp_path) as launcher:
        both = Trained(tmp_path / "out", *run(shared, tmp_path / "job", rows, None, held_out))
        assert launcher.wait(60) == 0
    assert_as_one(one, both)
    assert weights(both.output).keys() >= {"weight", "bias"}
    assert (len(both.heard.steps), len(shares)) == (7, 6), "the start and six steps"
    assert all(0.49 <= share <= 0.51 for share in shares[-1])


@pytest.mark.soak
def test_a_run_that_loses_its_other_machine_reports_it(tmp_path: Path, there: Address) -> None:
    job = spec(save_tiny_model(tmp_path / "model", hidden=16), tmp_path / "out", **two(there))
    with other_machine(there, tmp_path) as launcher:
        heard = KillsTheOtherMachine(launcher)
        with pytest.raises(
            TrainingFailed, match=r"\[process_lost\] process 2 of 2 has closed its connection; resume the job"
        ):
            run(job, tmp_path / "job", rows_for("sft", 6), heard)
    assert (len(heard.steps), heard.checkpoints) == (2, [2])


def test_a_process_without_the_key_is_refused(there: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_COMING_S", 10.0)
    refused: list[Exception] = []

    def wrong_key_then_right_key() -> None:
        try:
            connect(there._replace(key=b"guess"), 0)
        except InvalidInput as error:
            refused.append(error)
        connect(there, 3).send("hello")

    with closing(Listener(there)) as listener:
        thread = threading.Thread(target=wrong_key_then_right_key)
        thread.start()
        (pipe,) = listener.accept(1)
        thread.join()
        assert pipe.recv() == "hello"
        pipe.close()
    assert "expected the key of the machine" in str(refused[0])


def test_a_run_does_not_wait_for_ever(there: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_COMING_S", 0.01)
    with closing(Listener(there)) as listener:
        with pytest.raises(TrainingFailed, match=r"\[machines_missing\] 0 of 2 processes .* `accelerate launch"):
            listener.accept(2)
        with pytest.raises(Unavailable, match=r"cannot listen on 127\.0\.0\.1"):
            Listener(there)
    with pytest.raises(Unavailable, match=r"\[no_run\] no run listens on 127\.0\.0\.1"):
        connect(there, 0)


def test_several_machines_need_an_address_a_key_and_equal_parts(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"rendezvous is null: .* set rendezvous to host:port"):
        SFTConfig(processes=2, machines=2)
    with pytest.raises(ValidationError, match="processes is 3, which 2 machines cannot share equally"):
        SFTConfig(processes=3, machines=2)
    with pytest.raises(NotFound, match=r"no key file at .*ranks\.key; copy it"):
        address("10.0.0.1:29600", tmp_path / "ranks.key")
    key = key_file(tmp_path)
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text() == key_file(tmp_path).read_text()
