"""Training over several real processes, replicated or sharded: as one process trains, and bit-equal when resumed."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from pydantic import ValidationError
from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from transformers import StableLmConfig, StableLmForCausalLM

from network_path import NetworkPath
from quintain.errors import InvalidInput, QuintainError, TrainingFailed
from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import LoraConfig, SFTConfig
from quintain.records.jobs.job import TrainSpec
from quintain.trainers.data.streams import Example, token_row
from quintain.trainers.distributed.launcher import RankExit, launch
from quintain.trainers.distributed.passes import deal
from quintain.trainers.distributed.peer_watch import PeerWatch, break_remote_connections
from quintain.trainers.distributed.process_group import ProcessGroup
from quintain.trainers.distributed.sharding import is_sharded
from quintain.trainers.models.loading import LoadedModel
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.run_setup import Data
from quintain.trainers.train import train
from tiny_models import save_tiny_model
from trainers.process_groups import KillsARank, on_processes, run_on
from trainers.runs import (
    Killed,
    Recorder,
    Trained,
    alike,
    assert_as_one,
    assert_same_figures,
    rows_for,
    run,
    run_of,
    same,
    spec,
    weights,
)

TWO: dict[str, Any] = {"processes": 2}
SHARDED: dict[str, Any] = {"processes": 2, "sharding": "full"}


class Case(NamedTuple):
    """A run over 5 rows: 6 steps, the last of each epoch of one row."""

    method: str
    processes: dict[str, Any]
    settings: Mapping[str, Any] = MappingProxyType({})
    n_held_out: int = 0

    def train(self, model: Path, folder: Path, *, alone: bool) -> Trained:
        job = spec(model, folder / "out", self.method, **self.settings, **({} if alone else self.processes))
        rows, held_out = rows_for(self.method, 5), rows_for(self.method, self.n_held_out)
        if alone:
            return Trained(folder / "out", *run(job, folder / "job", rows, None, held_out))
        return Trained(folder / "out", *run_on(2, job, folder / "job", rows, None, held_out))


CASES = {
    "sft": Case("sft", TWO, n_held_out=3),
    "dpo": Case("dpo", TWO),
    "sharded sft": Case("sft", SHARDED, n_held_out=3),
    "sharded sft recomputed": Case("sft", SHARDED, {"gradient_checkpointing": True}),
    "sharded dpo": Case("dpo", SHARDED),
    "sharded dpo adapters": Case("dpo", SHARDED, {"lora": LoraConfig(rank=4, alpha=8.0)}),
    "sharded kto": Case("kto", SHARDED, n_held_out=3),
    "sharded reward": Case("reward", SHARDED, n_held_out=1),
}

Train = Callable[[str, bool], Trained]


class Playing(Recorder):
    """Brings home what the playing process noted."""

    def __init__(self, played: list[float]) -> None:
        super().__init__()
        self.played = played


@pytest.fixture(scope="module")
def trained(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """The run of a case, alone or with two processes, trained once."""
    known: dict[tuple[str, bool], Trained] = {}

    def train(name: str, alone: bool) -> Trained:
        if (name, alone) not in known:
            folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
            known[name, alone] = CASES[name].train(model_folder, folder, alone=alone)
        return known[name, alone]

    return train


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
def test_two_processes_train_as_one_does(trained: Train, name: str) -> None:
    assert_as_one(trained(name, True), trained(name, False))


@pytest.mark.parametrize("name", ["sft", "sharded sft"])
def test_two_processes_train_as_one_does_until_one_is_killed(
    model_folder: Path, tmp_path: Path, trained: Train, name: str
) -> None:
    """The last validation and checkpoint before the kill come after steps 3 and 4; one process goes on from there."""
    alone, killed = trained("sft", True), KillsARank(at=5)
    job = spec(model_folder, tmp_path / "out", **CASES[name].processes)
    rows, held_out = rows_for("sft", 5), rows_for("sft", 3)
    with pytest.raises(
        TrainingFailed, match=r"\[process_lost\] the 2 processes lost their connection.*; if memory ran out"
    ):
        run_on(2, job, tmp_path / "job", rows, killed, held_out)
    assert (len(killed.steps), killed.checkpoints) == (6, [2, 4]), "the start and five steps"
    assert_same_figures(alone.heard.steps[:6], killed.steps)
    checkpoint = "job/checkpoints/step-00000004"
    assert alike(alone.output.parent / checkpoint, tmp_path / checkpoint)
    assert not (tmp_path / "out").exists()
    report, heard = run(spec(model_folder, tmp_path / "out"), tmp_path / "job", rows, None, held_out)
    assert report.resumed_from_step == 4
    assert_same_figures(alone.heard.steps[5:], heard.steps)
    assert alike(alone.output, tmp_path / "out")


@pytest.mark.soak
@pytest.mark.parametrize("name", ["dpo", "sharded dpo"])
def test_a_run_killed_and_then_cancelled_resumes_to_bit_equal_weights(
    model_folder: Path, tmp_path: Path, trained: Train, name: str
) -> None:
    """Checkpoints follow steps 2 and 4; the kill comes at step 3, the cancel after step 5; 2, 1 and 3 processes go on."""
    whole = trained(name, False)
    job, rows = spec(model_folder, tmp_path / "out", "dpo", **CASES[name].processes), rows_for("dpo", 5)
    with pytest.raises(Killed):
        run_on(2, job, tmp_path / "job", rows, Recorder(kill_at=3))
    cancelled, before = run_on(2, job, tmp_path / "job", rows, Recorder(stop_at=5))
    assert (cancelled.stopped, cancelled.resumed_from_step, before.checkpoints) == (True, 2, [4, 5])
    assert not (tmp_path / "out").exists()
    for copy in ("job-1", "job-3"):
        shutil.copytree(tmp_path / "job", tmp_path / copy)
    report, after = run_on(2, job, tmp_path / "job", rows)
    assert report.resumed_from_step == 5
    assert [m["loss"] for _, _, m in before.steps + after.steps] == [m["loss"] for _, _, m in whole.heard.steps[2:]]
    assert same(whole.output, tmp_path / "out")
    assert [path.name for path in (tmp_path / "job").glob(".*")] == []
    run(spec(model_folder, tmp_path / "out-1", "dpo"), tmp_path / "job-1", rows)
    three = CASES[name].processes | {"processes": 3}
    run_on(3, spec(model_folder, tmp_path / "out-3", "dpo", **three), tmp_path / "job-3", rows)
    for output in ("out-1", "out-3"):
        assert alike(trained(name, True).output, tmp_path / output)


@pytest.mark.soak
def test_a_killed_adapter_run_with_dropout_resumes_to_bit_equal_weights(model_folder: Path, tmp_path: Path) -> None:
    rows, settings = rows_for("sft", 4), {"lora": LoraConfig(rank=4, alpha=8.0, dropout=0.1), **TWO}
    run_on(2, spec(model_folder, tmp_path / "whole", **settings), tmp_path / "job-whole", rows)
    job = spec(model_folder, tmp_path / "out", **settings)
    with pytest.raises(Killed):
        run_on(2, job, tmp_path / "job", rows, Recorder(kill_at=3))
    run_on(2, job, tmp_path / "job", rows)
    assert same(tmp_path / "whole", tmp_path / "out")


@pytest.mark.soak
def test_a_whole_runs_checkpoint_goes_on_sharded_and_has_the_same_weights(
    model_folder: Path, tmp_path: Path, trained: Train
) -> None:
    alone, together = trained("sharded sft", True).output, trained("sharded sft", False).output
    rows, held_out = rows_for("sft", 5), rows_for("sft", 3)
    with pytest.raises(Killed):
        run(spec(model_folder, tmp_path / "out"), tmp_path / "job", rows, Recorder(kill_at=3), held_out)
    report, _ = run_on(2, spec(model_folder, tmp_path / "out", **SHARDED), tmp_path / "job", rows, None, held_out)
    assert report.resumed_from_step == 2
    assert alike(alone, tmp_path / "out")
    ours, theirs = (folder.parent / "job" / "checkpoints" / "step-00000004" for folder in (together, alone))
    shards = {"__0_0.distcp", "__1_0.distcp", "moments.metadata"}
    assert [*ours.rglob(".*")] == [], (
        "what is hidden counts as half-written, and is swept, not copied and not backed up"
    )
    assert {path.name for path in ours.iterdir()} - shards == {path.name for path in theirs.iterdir()}
    assert alike(ours, theirs)
    sizes = [(ours / name).stat().st_size for name in sorted(shards)[:2]]
    assert max(sizes) < 0.6 * sum(sizes), "each process writes its half"


@pytest.mark.parametrize("settings", [{}, {"lora": LoraConfig(rank=4, alpha=8.0)}], ids=["full", "adapters"])
def test_a_sharded_model_acts_with_its_whole_weights_and_learns_as_one_process_does(
    model_folder: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """The reference of the KL term is that of the start, at every rollout; the log-probs of the playing model are recorded."""
    played: list[float] = []

    def collect(loaded: LoadedModel, renderer: Renderer, iteration: int) -> list[GroupRow]:
        assert not is_sharded(loaded.model)
        with torch.no_grad():
            logits = loaded.model.eval()(torch.tensor([[1, 2, 3]])).logits
        played.append(float(logits.logsumexp(-1).sum()))
        good, bad = run_of(iteration, "It costs 40."), run_of(iteration, "No idea.", success=False)
        return [GroupRow(key=f"{iteration}", trajectories=(good, bad), rewards=(1.0, 0.0))]

    def online(name: str, **processes: Any) -> TrainSpec:
        asked = {"rollouts": 2, "kl_coefficient": 0.1, **settings, **processes}
        job = spec(model_folder, tmp_path / name, "grpo", **asked)
        return job.model_copy(update={"dataset_id": None, "dataset_path": None, "environment": "x"})

    alone = Recorder()
    train(online("alone"), Data(), tmp_path / "job-alone", alone, collect)
    chosen = shutil.copytree(
        tmp_path / "job-alone/checkpoints", tmp_path / "job-both/checkpoints", ignore=shutil.ignore_patterns("step-*")
    )
    assert [path.name for path in chosen.iterdir()] == ["machine.json"], "both choose the same back end"
    heard = Playing(played)
    played_alone, played[:] = list(played), []
    _, both = run_on(2, online("both", **SHARDED), tmp_path / "job-both", [], heard, collect=collect)
    assert_same_figures(alone.steps, both.steps)
    assert [m["kl"] for _, _, m in both.steps] == pytest.approx(
        [m["kl"] for _, _, m in alone.steps], rel=1e-3, abs=1e-7
    )
    assert heard.played == pytest.approx(played_alone, rel=1e-5)
    assert len(set(heard.played)) == 2, "each rollout is played by newer weights"
    if not settings:  # B of new adapters is 0, so the first steps of Adam have the size of rounding
        # By one step a weight moves by a hundredth; rounding differs by about 1e-6, by the back end of products.
        assert alike(tmp_path / "alone", tmp_path / "both", rel=1e-5)


@pytest.mark.soak
def test_models_on_the_padded_path_are_sharded_too(tmp_path: Path) -> None:
    """All rows of a pass are padded together, so that ranks make as many passes as each other."""
    model = save_tiny_model(tmp_path / "model", hidden=16)
    settings = json.loads((model / "config.json").read_text())
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    config = StableLmConfig(**{name: settings[name] for name in sizes}, num_attention_heads=4, num_key_value_heads=2)
    StableLmForCausalLM(config).save_pretrained(model)
    case = Case("sft", SHARDED)
    alone = case.train(model, tmp_path / "alone", alone=True)
    assert any("padded" in message for _, message in alone.heard.warnings)
    assert alike(alone.output, case.train(model, tmp_path / "sharded", alone=False).output)


@pytest.mark.soak
def test_bf16_passes_agree_as_far_as_bf16_does(model_folder: Path, tmp_path: Path) -> None:
    """It has 8 bits: a loss of about 6 nats is known to 2%."""
    case = Case("sft", SHARDED, {"precision": "bf16"})
    alone, both = (case.train(model_folder, tmp_path / str(alone), alone=alone) for alone in (True, False))
    for (_, _, a), (_, _, b) in zip(alone.heard.steps, both.heard.steps, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=2e-3)
        assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=2e-2)
    assert {p.dtype for p in weights(both.output).values()} == {torch.float32}


class Diverges(Recorder):
    """Fails in the first process after a step."""

    def progress(self, step: int, total_steps: int, metrics: dict[str, float | None]) -> None:
        super().progress(step, total_steps, metrics)
        if step == 2:
            raise QuintainError("the disk is on fire", code="fire")


def test_a_failure_of_a_process_is_reported_as_it_happened_and_ends_the_others(
    model_folder: Path, tmp_path: Path
) -> None:
    """The first one fails after a step; then the other fails while the first one waits for its gradients."""
    job = spec(model_folder, tmp_path / "out", **TWO)
    with pytest.raises(QuintainError, match=r"\[fire\] the disk is on fire"):
        run_on(2, job, tmp_path / "job", rows_for("sft", 4), Diverges())

    def lead(group: ProcessGroup) -> str | None:
        with pytest.raises(TrainingFailed, match=r"\[process_lost\] the 2 processes lost their connection"):
            group.any(False)
        return group.reported_failure()

    first, other = on_processes([lead, lambda group: group.report_failure("out of memory")])
    assert (first.value, other.error) == ("out of memory", None)


_ENDS = """
import os, signal
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
signal.pause()
"""


def test_the_launcher_ends_the_others_when_a_process_dies_and_reports_which_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # torch reads the source of each function on the stack for the events that it records: seconds under pytest.
    monkeypatch.setattr(dynamic_rendezvous, "get_method_name", lambda: "event")
    handler = signal.getsignal(signal.SIGTERM)
    (exit,) = launch(["-c", _ENDS], 2)
    assert (exit.rank, exit.was_killed, str(exit)) == (1, True, "was killed by SIGKILL")
    assert launch(["-c", "import os; assert os.environ['WORLD_SIZE'] == '2'"], 2) == []
    assert str(RankExit(0, 3)) == "ended with status 3"
    assert signal.getsignal(signal.SIGTERM) is handler


def test_settings_that_cannot_be_are_refused_before_any_process_starts(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (0, -1, 1025, 1.5):
        with pytest.raises(ValidationError, match="processes"):
            SFTConfig(processes=value)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="set processes to 2 or more, or sharding to 'none'"):
        SFTConfig(sharding="full")
    with pytest.raises(ValidationError, match=r"sample_every_steps is 5 and .* set sample_every_steps to null"):
        SFTConfig(sample_every_steps=5, **SHARDED)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(
        InvalidInput, match=r"\[too_many_processes\] .* 3 processes, got 2 of cuda .* 2 a machine or less"
    ):
        launch(["-c", ""], 3)
    monkeypatch.undo()
    with pytest.raises(InvalidInput, match=r"\[no_process_group\] expected 3 processes of a launcher, got one alone"):
        run(spec(model_folder, tmp_path / "out", processes=3), tmp_path / "job", rows_for("sft", 2))
    with pytest.raises(ValidationError, match=r"rendezvous is null: .* set rendezvous to host:port"):
        SFTConfig(processes=2, machines=2)
    with pytest.raises(ValidationError, match="processes is 3, which 2 machines cannot share equally"):
        SFTConfig(processes=3, machines=2)


def example(length: int, first: int) -> Example:
    row = token_row(list(range(first, first + length + 1)), [False] + [True] * length)
    return Example(key=f"{first}", rows=(row,), member=(0,), value=(0.0,), weight=1.0)


def test_a_step_is_dealt_out_by_size_and_nothing_is_lost() -> None:
    """Sizes 8, 5, 4, 3 by two: a budget of 10 makes passes 8, 5+4, 3; 9 goes first, then 8, and 3 to the lighter one."""
    examples = [example(n, 100 * n) for n in (3, 8, 4, 5)]
    dealt = deal(examples, 8192, 2, share=True)
    assert [[[e.key for e in batch] for batch in mine] for mine in dealt] == [[["400", "500"]], [["300"], ["800"]]]
    assert [len(mine) for mine in deal([example(8, 1)], 8192, 3, share=True)] == [1, 0, 0]


@pytest.mark.parametrize("is_silent_from_the_start", [True, False])
def test_both_sides_of_a_network_path_that_forwards_nothing_any_more_notice_it(
    is_silent_from_the_start: bool,
) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    noticed = [threading.Event(), threading.Event()]
    with closing(NetworkPath(("127.0.0.1", store.port))) as path:
        watches = [PeerWatch(rank, 2, 0.3, noticed[rank].set) for rank in (0, 1)]
        try:
            watches[0].start("127.0.0.1", store.port)
            if is_silent_from_the_start:
                path.hold()
            watches[1].start("127.0.0.1", path.port)
            while not is_silent_from_the_start and store.add("quintain/beats/1", 0) == 0:
                pass
            path.hold()
            assert all(event.wait(100) for event in noticed)
        finally:
            for watch in watches:
                watch.stop()
    assert watches[0].fault is not None
    assert watches[0].fault.startswith("expected a heartbeat of process 2 of 2 within 0.3 s, got none: its machine")
    assert (watches[1].fault or "").startswith("expected a heartbeat of process 1 of 2")


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is an address of its own on Linux alone")
def test_connections_to_other_addresses_break_and_those_within_the_machine_stay() -> None:
    pairs = []
    for host in ("127.0.0.2", "127.0.0.1"):
        with socket.create_server((host, 0)) as server:
            client = socket.create_connection(server.getsockname(), source_address=("127.0.0.1", 0))
            pairs.append((client, server.accept()[0]))
    break_remote_connections()
    (far, far_end), (near, near_end) = pairs
    assert (far.recv(1), far_end.recv(1)) == (b"", b"")
    near.sendall(b"x")
    assert near_end.recv(1) == b"x"
    for connection in (far, far_end, near, near_end):
        connection.close()
