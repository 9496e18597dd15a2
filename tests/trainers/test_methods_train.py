"""Every method end to end on tiny models: it moves in the right direction, resumes bit-equal, and reports what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import TrainingFailed
from quintain.records.agent import ModelRef
from quintain.records.dataset import DatasetRow, GroupRow, LabelledRow, PairRow, TextRow
from quintain.records.hyperparameters.methods import CONFIGS, LoraConfig
from quintain.trainers.data.examples import ExampleMaker
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop.report import TrainingReport
from quintain.trainers.models.loading import load_model
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.run_setup import Data
from quintain.trainers.train import train
from tiny_models import tiny_tokenizer, with_bos_first
from trainers.episodes import episode
from trainers.runs import LORA, Killed, Recorder, as_sampled, metric, resumed, rows_for, run, run_of, same, spec

FAST: dict[str, Any] = {"learning_rate": 1e-2}

Train = Callable[..., tuple[Path, TrainingReport, Recorder]]


@pytest.fixture(scope="module")
def trained(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """A whole run by method and adapters, cached: 4 rows in steps of 2 over 2 epochs, so 4 steps."""

    @cache
    def train(method: str, lora: LoraConfig | None = None) -> tuple[Path, TrainingReport, Recorder]:
        folder = tmp_path_factory.mktemp(method)
        job = spec(model_folder, folder / "out", method, lora=lora, **FAST)
        return folder / "out", *run(job, folder / "job", rows_for(method, 4))

    return train


# The methods differ for a resumed run in the reference (dpo), the mismatched runs (kto) and the value head (prm).
@pytest.mark.parametrize(("method", "lora"), [("kto", None), ("dpo", LORA), ("prm", LORA)])
def test_a_killed_run_of_any_method_resumes_to_bit_equal_weights(
    model_folder: Path, tmp_path: Path, trained: Train, method: str, lora: LoraConfig | None
) -> None:
    """A checkpoint exists after 2 steps; the kill comes after 3."""
    whole, report, recorder = trained(method, lora)
    assert report.steps == 4
    job = spec(model_folder, tmp_path / "out", method, lora=lora, **FAST)
    after, again = resumed(job, tmp_path / "job", rows_for(method, 4))
    assert after.resumed_from_step == 2
    assert metric(again, "loss") == metric(recorder, "loss")[2:]
    assert same(whole, tmp_path / "out")


def test_policy_weights_come_from_the_model_and_scale_the_pair(
    model_folder: Path, tmp_path: Path, trained: Train
) -> None:
    """An untrained model is almost uniform over 512 tokens, so a run is about as likely as its own samples: weights near 1."""
    job = spec(model_folder, tmp_path / "out", "dpo", policy_weighting=True, max_steps=1, **FAST)
    _, recorder = run(job, tmp_path / "job", rows_for("dpo", 4))
    (weight,) = metric(recorder, "policy_weight")
    assert weight == pytest.approx(1.0, abs=0.5)
    assert metric(recorder, "loss")[0] == pytest.approx(weight * metric(trained("dpo")[2], "loss")[0], rel=1e-4)


@pytest.mark.parametrize("lora", [None, LORA.model_copy(update={"dropout": 0.0})])
def test_a_reference_that_is_the_policy_of_the_step_leaves_no_margin(
    model_folder: Path, tmp_path: Path, lora: LoraConfig | None
) -> None:
    """Moved all the way before each step, the reference is the policy: every log-ratio is 0 and every loss log 2."""
    job = spec(model_folder, tmp_path / "out", "dpo", lora=lora, reference_sync_steps=1, reference_mixup=1.0, **FAST)
    _, recorder = run(job, tmp_path / "job", rows_for("dpo", 4))
    assert metric(recorder, "loss") == pytest.approx([0.6931472] * 4, abs=1e-6)
    assert metric(recorder, "drift") == pytest.approx([0.0] * 4, abs=1e-9)


def test_a_killed_run_whose_reference_follows_resumes_to_bit_equal_weights(
    model_folder: Path, tmp_path: Path, trained: Train
) -> None:
    """The reference moves before the third of four steps, so the first two are those of plain DPO."""
    rows, plain = rows_for("dpo", 4), metric(trained("dpo", None)[2], "loss")
    jobs = [spec(model_folder, tmp_path / name, "dpo", reference_sync_steps=2, **FAST) for name in ("whole", "resumed")]
    _, recorder = run(jobs[0], tmp_path / "job-0", rows)
    assert metric(recorder, "loss")[:2] == plain[:2]
    assert metric(recorder, "loss")[2] != plain[2]
    assert resumed(jobs[1], tmp_path / "job-1", rows)[0].resumed_from_step == 2
    assert same(tmp_path / "whole", tmp_path / "resumed")


@pytest.mark.parametrize(("method", "lora"), [("dpo", None), ("orpo", None), ("simpo", None), ("dpo", LORA)])
def test_preference_methods_learn_to_prefer_the_chosen_run(
    trained: Train, method: str, lora: LoraConfig | None
) -> None:
    _, _, recorder = trained(method, lora)
    margins, losses = metric(recorder, "reward_margin"), metric(recorder, "loss")
    assert margins[-1] > margins[0]
    assert metric(recorder, "reward_accuracy")[-1] == 1.0
    assert losses[-1] < losses[0]
    if method == "dpo":  # before the first step, model and reference are the same
        assert losses[0] == pytest.approx(0.6931472, abs=1e-6)


def margin_of(model: Path, folder: Path) -> float:
    """Return how much likelier a model finds the rewarded answers, measured by a DPO step on pairs of the same runs."""
    pairs = [
        PairRow(chosen=run_of(i, "It costs 40.", turns=1 + i % 3), rejected=run_of(i, "No idea.", turns=1 + i % 2))
        for i in range(4)
    ]
    probe = spec(model, folder / "out", "dpo", epochs=1, batch_size=4, reference_free=True)
    return metric(run(probe, folder / "job", pairs)[1], "reward_margin")[0]


def test_grpo_on_stored_groups_raises_what_was_rewarded(model_folder: Path, tmp_path: Path) -> None:
    """In the form that divides by the tokens of the longest run, which the job counts."""
    before = margin_of(model_folder, tmp_path / "before")
    job = spec(model_folder, tmp_path / "out", "grpo", epochs=1, loss="dr_grpo", **FAST)
    report, _ = run(job, tmp_path / "job", rows_for("grpo", 4), validation=rows_for("grpo", 5)[4:])
    assert margin_of(tmp_path / "out", tmp_path / "after") > before
    assert report.best_step == 2, "where no log-prob is recorded, validation takes those of the start model"


# A linear loss, mismatched runs, a value head, and members that may be apart; `test_losses` splits the losses of all.
@pytest.mark.parametrize("method", ["bc", "kto", "reward", "grpo"])
def test_how_a_step_is_split_changes_nothing(model_folder: Path, tmp_path: Path, trained: Train, method: str) -> None:
    """Passes of one example, or of one member where it is divisible, against passes of up to 300 tokens.

    The second loss is that of weights which the first step has moved.
    """
    job, recorder = spec(model_folder, tmp_path / "out", method, batch_tokens=64, **FAST), Recorder(kill_at=2)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows_for(method, 4), recorder)
    expected = metric(trained(method)[2], "loss")[:2]
    assert metric(recorder, "loss") == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_samples_on_probes_do_not_change_the_run(model_folder: Path, tmp_path: Path, trained: Train) -> None:
    job = spec(model_folder, tmp_path / "out", "dpo", lora=LORA, sample_every_steps=4, **FAST)
    _, recorder = run(job, tmp_path / "job", rows_for("dpo", 4))
    assert same(trained("dpo", LORA)[0], tmp_path / "out")
    assert (tmp_path / "job/samples.jsonl").read_text().count("\n") == 4
    assert len(metric(recorder, "sample_distinct_1")) == 1


def test_checkpointed_and_offloaded_activations_change_nothing_and_fp16_on_a_cpu_is_fp32_with_a_warning(
    model_folder: Path, tmp_path: Path, trained: Train
) -> None:
    recomputed = {"gradient_checkpointing": True, "offload_activations": True}
    job = spec(model_folder, tmp_path / "out", "bc", **recomputed, precision="fp16", **FAST)
    report, recorder = run(job, tmp_path / "job", rows_for("bc", 4))
    assert metric(recorder, "loss") == pytest.approx(metric(trained("bc")[2], "loss"), rel=1e-5)
    assert report.precision == "fp32"
    assert any("fp16 on a CPU" in message for _, message in recorder.warnings)


def test_plain_text_is_learnt_to_the_last_token_and_spelt_control_tokens_stay_text() -> None:
    """A text of n tokens and its end token has n targets: all but the first, in windows of any length."""
    tokenizer = tiny_tokenizer()
    spelt = "a log says <|im_end|>\n<|im_start|>system"
    long = "the quick brown fox jumps over the lazy dog. " * 12
    wide, narrow = (ExampleMaker.of(tokenizer, "auto", CONFIGS["pretrain"](), length) for length in (1024, 64))
    (whole, short), (cut, _) = (
        maker.make([TextRow(text=long), TextRow(text=spelt)]).examples for maker in (wide, narrow)
    )
    assert len(cut.rows) > 1
    assert cut.n_supervised == whole.n_supervised == len(whole.rows[0]) - 1
    ids = short.rows[0].token_ids.tolist()
    assert [i for i in ids if i in tokenizer.added_tokens_decoder] == [tokenizer.eos_token_id]
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids[:-1]) == spelt
    tokenizer = with_bos_first(tokenizer)
    wide, narrow = (ExampleMaker.of(tokenizer, "auto", CONFIGS["pretrain"](), length) for length in (1024, 64))
    (begun,), (parts,) = (maker.make([TextRow(text=long)]).examples for maker in (wide, narrow))
    assert begun.rows[0].token_ids.tolist() == [tokenizer.bos_token_id, *whole.rows[0].token_ids.tolist()]
    assert {int(row.token_ids[0]) for row in parts.rows} == {tokenizer.bos_token_id}
    assert parts.n_supervised == begun.n_supervised == whole.n_supervised + 1
    assert [row.supervised[1] for row in parts.rows] == [True] + [False] * (len(parts.rows) - 1)


def test_rows_without_an_example_are_counted_and_reported(model_folder: Path, tmp_path: Path) -> None:
    good, bad = run_of(0, "It costs 40."), run_of(0, "No idea.", success=False)
    long = episode(1, question="long " * 400)
    pairs = [
        PairRow(chosen=good, rejected=bad),
        PairRow(chosen=good, rejected=good),
        PairRow(chosen=long, rejected=bad),
        PairRow(chosen=good, rejected=bad, weight=0.0),
    ]
    few = {"max_length": 400, "max_steps": 1}
    report, recorder = run(spec(model_folder, tmp_path / "out", "dpo", **few), tmp_path / "job", pairs)
    assert report.dropped == {"equal_sides": 1, "chosen_too_long": 1, "zero_weight": 1}
    assert report.examples == 1
    assert any("3 of 4 dataset rows give no example" in message for _, message in recorder.warnings)

    groups = [
        GroupRow(key="a", trajectories=(good, bad), rewards=(1.0, 0.0)),
        GroupRow(key="b", trajectories=(good, bad), rewards=(1.0, 1.0)),
        GroupRow(key="c", trajectories=(good,), rewards=(1.0,)),
        GroupRow(key="d", trajectories=(good, bad, long), rewards=(1.0, 0.0, 0.0)),
    ]
    report, _ = run(spec(model_folder, tmp_path / "out-g", "grpo", **few), tmp_path / "job-g", groups)
    assert report.dropped == {"no_variance": 1, "group_of_one": 1}
    assert report.left_out_members == {"too_long": 1}


def with_logprobs(renderer: Renderer, rows: Sequence[Any], *, forget: bool) -> list[Any]:
    """Rows whose turns have sampled ids with log-prob -3; with `forget`, those of the first run are lost."""
    known = [[as_sampled(run, renderer, -3.0) for run in row.trajectories] for row in rows]
    if forget:
        known[0][0] = rows[0].trajectories[0]
    return [row.model_copy(update={"trajectories": tuple(runs)}) for row, runs in zip(rows, known, strict=True)]


def test_a_run_without_log_probs_leaves_the_ratios_of_the_others_alone_and_a_cap_begins_at_one(
    model_folder: Path, tmp_path: Path
) -> None:
    """Untrained, the model gives about 1/300 a token, log-prob -5.7: against -3 the ratio is exp(-2.7), far from 1.

    With an importance cap the ratio begins at 1, whoever sampled, and each token weighs about exp(-2.7) = 0.07.
    """
    renderer = Renderer.of(load_model(ModelRef(source="folder", path=str(model_folder))).tokenizer)

    def first_step(name: str, rows: Sequence[Any], **options: Any) -> tuple[TrainingReport, Recorder]:
        job = spec(model_folder, tmp_path / name, "grpo", max_steps=1, batch_size=2, **options)
        return run(job, tmp_path / f"job-{name}", rows)

    known, partly = (with_logprobs(renderer, rows_for("grpo", 2), forget=forget) for forget in (False, True))
    _, plain = first_step("known", known)
    _, split = first_step("split", partly, batch_tokens=64)
    _, whole = first_step("whole", partly, batch_tokens=100_000)
    assert metric(split, "loss") == pytest.approx(metric(whole, "loss"), rel=1e-5, abs=1e-6)
    assert metric(plain, "ratio_mean")[0] < metric(whole, "ratio_mean")[0] < 0.7

    report, capped = first_step("capped", known, importance_cap=2.0)
    assert not [note for note in report.warnings if "importance_cap" in note]
    assert metric(capped, "ratio_mean")[0] == pytest.approx(1.0, abs=1e-5)
    assert metric(capped, "clip_low_share") == [0.0]
    assert metric(capped, "grad_norm") != metric(plain, "grad_norm")
    report, _ = first_step("unknown", rows_for("grpo", 2), importance_cap=2.0)
    assert [note for note in report.warnings if "importance_cap has no effect" in note]
    report, _ = first_step("clipped", rows_for("grpo", 2), clip_low=0.1, delta=4.0)
    assert [note for note in report.warnings if "clip_low and delta have no effect; leave them out" in note]


def test_replayed_examples_that_are_too_long_are_left_out_with_a_warning(model_folder: Path, tmp_path: Path) -> None:
    def job(name: str, **options: Any) -> Any:
        buffered = spec(model_folder, tmp_path / name, replay={"ratio": 1.0}, max_steps=1, **options)
        return buffered.model_copy(update={"cache_dir": str(tmp_path / "cache")})

    def rows(name: str, *turns: int) -> list[DatasetRow]:
        return [DatasetRow(trajectory=episode(n, question=f"{name}{i}")) for i, n in enumerate(turns)]

    first, _ = run(job("one"), tmp_path / "job-1", rows("q", 1, 1, 6))
    assert first.replayed == 0
    assert any("has no examples to replay beside those of this job, which it keeps" in note for note in first.warnings)
    report, recorder = run(job("two", max_length=300), tmp_path / "job-2", rows("r", 1, 1, 1))
    assert (report.replayed, report.examples) == (2, 5)
    assert any("1 examples of the buffer are longer than 300 tokens" in message for _, message in recorder.warnings)


def test_the_kl_estimate_of_kto_is_reported_and_keeps_to_the_token_budget(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    def counted(engine: Engine, rows: Any, **figures: bool) -> Any:
        passes.append(sum(map(len, rows)))
        return logprobs(engine, rows, **figures)

    logprobs = Engine.logprobs
    monkeypatch.setattr(Engine, "logprobs", counted)
    options = {"batch_size": 8, "batch_tokens": 500, "share_prefixes": False, "epochs": 1}
    _, recorder = run(spec(model_folder, tmp_path / "out", "kto", **options), tmp_path / "job", rows_for("kto", 8))
    assert max(passes) <= 600
    assert len(metric(recorder, "kto_kl")) == len(recorder.steps)
    assert recorder.warnings == []
    good = [row for row in rows_for("kto", 8) if isinstance(row, LabelledRow) and row.desirable]
    job = spec(model_folder, tmp_path / "good", "kto", **options)
    _, recorder = run(job, tmp_path / "job-good", good, validation=good[:2])
    assert [message.split(",")[0] for _, message in recorder.warnings] == [
        "all 4 training examples are good",
        "all 2 validation examples are good",
    ]


def test_masking_the_shared_prefix_of_a_pair_changes_means_and_not_the_sigmoid_loss(
    model_folder: Path, tmp_path: Path
) -> None:
    pairs = [
        PairRow(chosen=run_of(i, "It costs 40.", turns=3), rejected=run_of(i, "No idea.", turns=3)) for i in range(2)
    ]
    for loss, equal in (("sigmoid", True), ("ipo", False)):
        losses = []
        for level in (False, True):
            name = f"{loss}-{level}"
            job = spec(model_folder, tmp_path / name, "dpo", loss=loss, step_level=level, learning_rate=2e-3)
            losses.append(metric(run(job, tmp_path / f"job-{name}", pairs)[1], "loss"))
        assert (losses[0] == pytest.approx(losses[1], rel=1e-4)) == equal


@pytest.mark.parametrize("method", ["grpo", "dpo"])
def test_an_online_run_that_learns_nothing_fails_with_the_reasons(
    model_folder: Path, tmp_path: Path, method: str
) -> None:
    good, bad = run_of(0, "It costs 40."), run_of(0, "No idea.", success=False)
    job, recorder = spec(model_folder, tmp_path / "out", method, rollouts=3, validate_every_steps=1), Recorder()
    online = job.model_copy(update={"dataset_id": None, "dataset_path": None, "environment": "x"})

    def collect(*_: Any) -> list[GroupRow]:
        return [GroupRow(key="a", trajectories=(good, bad), rewards=(1.0, 1.0))]

    with pytest.raises(TrainingFailed, match=r"\[nothing_supervised\].*no_variance 3.*raise the temp") as error:
        train(online, Data(), tmp_path / "job", recorder, collect)
    assert "train=true" not in str(error.value)
    ((_, message),) = recorder.warnings
    assert "validate_every_steps has no effect; evaluate the agent afterwards" in message
    assert not (tmp_path / "out").exists()
