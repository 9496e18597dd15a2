"""Every method end to end on tiny models: it moves in the right direction, resumes bit-equal, and reports what it leaves out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import TrainingFailed
from quintain.records.agent import ModelRef
from quintain.records.dataset import DatasetRow, GroupRow, LabelledRow, PairRow, TextRow
from quintain.records.hyperparameters import CONFIGS, LoraConfig
from quintain.records.trajectory import SampledTokens
from quintain.trainers.data.examples import ExampleMaker
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop.report import TrainingReport
from quintain.trainers.models import load_model
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.train import Data, train
from tiny_models import save_tiny_model, tiny_tokenizer
from trainers.episodes import episode
from trainers.runs import Killed, Recorder, rows_for, run, run_of, same, spec

# peft 0.21 asks transformers 5.23 by the name that it had before.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

ON_DATA = ("sft", "bc", "dpo", "orpo", "simpo", "kto", "ranking", "reward", "prm", "grpo")
LORA = LoraConfig(rank=4, alpha=8.0, dropout=0.1)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", hidden=16)


def metric(heard: Recorder, name: str) -> list[float]:
    return [value for _, _, metrics in heard.steps if (value := metrics.get(name)) is not None]


Train = Callable[[str, LoraConfig | None], tuple[Path, TrainingReport, Recorder]]


@pytest.fixture(scope="module")
def trained(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """A whole run by method and adapters, made once: 4 rows in steps of 2 over 2 epochs, so 4 steps."""

    @cache
    def train(method: str, lora: LoraConfig | None) -> tuple[Path, TrainingReport, Recorder]:
        folder = tmp_path_factory.mktemp(method)
        job = spec(model_folder, folder / "out", method, lora=lora)
        return folder / "out", *run(job, folder / "job", rows_for(method, 4))

    return train


# test_training kills runs of sft; other methods differ in what they keep beside the weights.
@pytest.mark.parametrize(("method", "lora"), [("kto", None), *((method, LORA) for method in ("dpo", "prm", "grpo"))])
def test_a_killed_run_resumes_to_bit_equal_weights(
    model_folder: Path, tmp_path: Path, trained: Train, method: str, lora: LoraConfig | None
) -> None:
    """A checkpoint stands after 2 steps; the kill comes after 3."""
    rows = rows_for(method, 4)
    whole, report, heard = trained(method, lora)
    assert report.steps == 4
    job = spec(model_folder, tmp_path / "out", method, lora=lora)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows, Recorder(kill_at=3))
    resumed, again = run(job, tmp_path / "job", rows)
    assert resumed.resumed_from_step == 2
    assert metric(again, "loss") == metric(heard, "loss")[2:]
    assert same(whole, tmp_path / "out")


@pytest.mark.parametrize(("method", "lora"), [("orpo", None), ("dpo", LORA.model_copy(update={"dropout": 0.0}))])
def test_preference_methods_learn_to_prefer_the_chosen_run(
    model_folder: Path, tmp_path: Path, method: str, lora: LoraConfig | None
) -> None:
    job = spec(
        model_folder, tmp_path / "out", method, epochs=8, learning_rate=1e-2, lora=lora, checkpoint_every_steps=100
    )
    _, heard = run(job, tmp_path / "job", rows_for(method, 4))
    margins = metric(heard, "reward_margin")
    assert margins[-1] > margins[0]
    assert metric(heard, "reward_accuracy")[-1] == 1.0
    assert metric(heard, "loss")[-1] < metric(heard, "loss")[0]


def test_the_first_dpo_loss_is_log_two_because_model_and_reference_are_one(trained: Train) -> None:
    _, _, heard = trained("dpo", None)
    assert metric(heard, "loss")[0] == pytest.approx(0.6931472, abs=1e-6)


def margin_of(model: Path, folder: Path) -> float:
    """How much likelier a model finds the rewarded answers than the others, as a DPO pair of the same runs measures it."""
    pairs = [
        PairRow(chosen=run_of(i, "It costs 40.", turns=1 + i % 3), rejected=run_of(i, "No idea.", turns=1 + i % 2))
        for i in range(4)
    ]
    probe = spec(model, folder / "out", "dpo", epochs=1, batch_size=4, reference_free=True)
    return metric(run(probe, folder / "job", pairs)[1], "reward_margin")[0]


def test_grpo_on_stored_groups_raises_what_was_rewarded(model_folder: Path, tmp_path: Path) -> None:
    """Every kind of loss; the losses' own tests compare their numbers."""
    before = margin_of(model_folder, tmp_path / "before")
    for loss in ("grpo", "dapo", "dr_grpo", "gspo", "cispo"):
        job = spec(
            model_folder, tmp_path / loss, "grpo", epochs=2, learning_rate=1e-2, loss=loss, checkpoint_every_steps=100
        )
        run(job, tmp_path / f"job-{loss}", rows_for("grpo", 4))
        assert margin_of(tmp_path / loss, tmp_path / f"margin-{loss}") > before, loss


def test_step_level_grpo_differs_from_the_runs_own_advantage(model_folder: Path, tmp_path: Path) -> None:
    rows = rows_for("grpo", 2)
    stepped = [
        GroupRow(
            key=row.key,
            rewards=row.rewards,
            trajectories=tuple(
                t.model_copy(
                    update={"steps": tuple(s.model_copy(update={"reward": float(i)}) for i, s in enumerate(t.steps))}
                )
                for t in row.trajectories
            ),
        )
        for row in rows
        if isinstance(row, GroupRow)
    ]
    for name, options in (("plain", {}), ("steps", {"step_level": True})):
        run(spec(model_folder, tmp_path / name, "grpo", **options), tmp_path / f"job-{name}", stepped)
    assert not same(tmp_path / "plain", tmp_path / "steps")


@pytest.mark.parametrize("method", [method for method in ON_DATA if method != "sft"])  # test_training has it
def test_how_a_step_is_split_changes_nothing(model_folder: Path, tmp_path: Path, trained: Train, method: str) -> None:
    """Passes of one example, or of one member where it is divisible, against passes of up to 300 tokens."""
    _, heard = run(spec(model_folder, tmp_path / "out", method, batch_tokens=64), tmp_path / "job", rows_for(method, 4))
    assert metric(heard, "loss") == pytest.approx(metric(trained(method, None)[2], "loss"), rel=1e-5, abs=1e-6)


def test_early_stopping_ends_the_run_and_keeps_the_best_weights(model_folder: Path, tmp_path: Path) -> None:
    """The validation run says the opposite of what is learnt, so the first validation stays the best."""
    rows = [DatasetRow(trajectory=run_of(i, "It costs 40.")) for i in range(2)]
    held_out = [DatasetRow(trajectory=run_of(i, "No idea at all, sorry.")) for i in range(2)]
    options: dict[str, Any] = {
        "epochs": 30,
        "learning_rate": 2e-2,
        "schedule": "constant",
        "warmup_ratio": 0,
        "early_stopping_patience": 2,
        "checkpoint_every_steps": 100,
    }
    report, heard = run(spec(model_folder, tmp_path / "out", **options), tmp_path / "job", rows, validation=held_out)
    assert report.steps < 30
    assert report.ended_early
    assert "2 validations" in report.ended_early
    assert report.best_step is not None
    best = min(metric(heard, "validation_loss"))
    assert report.best_validation_loss == best
    assert any(code == "ended_early" for code, _ in heard.warnings)
    probe, _ = run(
        spec(tmp_path / "out", tmp_path / "probe", epochs=1, learning_rate=1e-12), tmp_path / "job-probe", held_out
    )
    assert probe.first_loss == pytest.approx(best, rel=1e-4)


class KilledWhileSaving(Recorder):
    def phase(self, name: str) -> None:
        super().phase(name)
        if name == "saving":
            raise Killed


def test_a_kl_bound_ends_the_run_which_does_not_go_on_when_it_is_resumed(model_folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 50, "learning_rate": 2e-2, "kl_stop": 0.05}
    whole, heard = run(spec(model_folder, tmp_path / "whole", **options), tmp_path / "job-whole", rows_for("sft", 2))
    assert "kl_stop is 0.05" in str(whole.ended_early)
    assert metric(heard, "kl")[0] == pytest.approx(0, abs=1e-6)
    assert metric(heard, "kl")[-1] > 0.05
    job = spec(model_folder, tmp_path / "out", **options)
    with pytest.raises(Killed):
        run(job, tmp_path / "job", rows_for("sft", 2), KilledWhileSaving())
    report, _ = run(job, tmp_path / "job", rows_for("sft", 2))
    assert (report.steps, report.ended_early) == (whole.steps, whole.ended_early)
    assert same(tmp_path / "whole", tmp_path / "out")


def test_samples_on_probes_do_not_change_the_run(model_folder: Path, tmp_path: Path, trained: Train) -> None:
    job = spec(model_folder, tmp_path / "out", "dpo", lora=LORA, sample_every_steps=4)
    run(job, tmp_path / "job", rows_for("dpo", 4))
    assert same(trained("dpo", LORA)[0], tmp_path / "out")
    assert (tmp_path / "job/samples.jsonl").read_text().count("\n") >= 2


def test_gradient_checkpointing_and_bf16_run_and_come_close(model_folder: Path, tmp_path: Path, trained: Train) -> None:
    plain = metric(trained("sft", None)[2], "loss")
    for options, bound in (({"gradient_checkpointing": True}, 1e-5), ({"precision": "bf16"}, 2e-2)):
        name = next(iter(options))
        _, heard = run(spec(model_folder, tmp_path / name, **options), tmp_path / f"job-{name}", rows_for("sft", 4))
        assert metric(heard, "loss") == pytest.approx(plain, rel=bound)


def test_half_precision_on_a_cpu_falls_back_and_says_why(model_folder: Path, tmp_path: Path) -> None:
    report, heard = run(spec(model_folder, tmp_path / "out", precision="fp16"), tmp_path / "job", rows_for("sft", 2))
    assert report.precision == "fp32"
    assert any("fp16 on a CPU" in message for _, message in heard.warnings)


def test_plain_text_is_learnt_to_the_last_token(model_folder: Path, tmp_path: Path) -> None:
    """A text of n tokens and its end token has n targets: all but the first, in windows of any length."""
    text = TextRow(text="the quick brown fox jumps over the lazy dog. " * 12)
    losses, tokens = [], []
    for length in (None, 64):
        job = spec(model_folder, tmp_path / f"out-{length}", "pretrain", epochs=1, max_length=length)
        report, _ = run(job, tmp_path / f"job-{length}", [text])
        losses.append(report.first_loss)
        tokens.append(report.supervised_tokens)
    assert tokens[0] == tokens[1]


def test_a_control_token_that_plain_text_spells_stays_text() -> None:
    """Only the end of the text is one, whatever stands in it."""
    tokenizer = tiny_tokenizer()
    maker = ExampleMaker.of(tokenizer, "auto", CONFIGS["pretrain"](), 1024)
    ids = maker.make([TextRow(text="a log says <|im_end|>\n<|im_start|>system")]).examples[0].rows[0].token_ids.tolist()
    assert [i for i in ids if i in tokenizer.added_tokens_decoder] == [tokenizer.eos_token_id]
    assert ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids[:-1]) == "a log says <|im_end|>\n<|im_start|>system"


def test_rows_without_an_example_are_counted_and_reported(model_folder: Path, tmp_path: Path) -> None:
    good, bad = run_of(0, "It costs 40."), run_of(0, "No idea.", success=False)
    long = episode(1, question="long " * 400)
    pairs = [
        PairRow(chosen=good, rejected=bad),
        PairRow(chosen=good, rejected=good),
        PairRow(chosen=long, rejected=bad),
        PairRow(chosen=good, rejected=bad, weight=0.0),
    ]
    report, heard = run(spec(model_folder, tmp_path / "out", "dpo", max_length=400), tmp_path / "job", pairs)
    assert report.dropped == {"equal_sides": 1, "chosen_too_long": 1, "zero_weight": 1}
    assert report.examples == 1
    assert any("3 of 4 dataset rows give no example" in message for _, message in heard.warnings)

    groups = [
        GroupRow(key="a", trajectories=(good, bad), rewards=(1.0, 0.0)),
        GroupRow(key="b", trajectories=(good, bad), rewards=(1.0, 1.0)),
        GroupRow(key="c", trajectories=(good,), rewards=(1.0,)),
        GroupRow(key="d", trajectories=(good, bad, long), rewards=(1.0, 0.0, 0.0)),
    ]
    report, _ = run(spec(model_folder, tmp_path / "out-g", "grpo", max_length=400), tmp_path / "job-g", groups)
    assert report.dropped == {"no_variance": 1, "group_of_one": 1}
    assert report.left_out_members == {"too_long": 1}


@pytest.mark.parametrize(
    ("method", "row"),
    [
        ("grpo", GroupRow(key="a", trajectories=(episode(1), episode(2)), rewards=(1.0, 1.0))),
        ("dpo", PairRow(chosen=episode(1), rejected=episode(1))),
        ("kto", LabelledRow(trajectory=episode(1), desirable=True, weight=0.0)),
        ("bc", DatasetRow(trajectory=episode(1))),
    ],
)
def test_data_without_anything_to_learn_is_refused_with_the_reason(
    model_folder: Path, tmp_path: Path, method: str, row: Any
) -> None:
    with pytest.raises(TrainingFailed, match=r"\[nothing_supervised\].*(no_variance|equal_sides|zero_weight|reward_)"):
        run(spec(model_folder, tmp_path / "out", method), tmp_path / "job", [row])


def test_an_agent_with_an_adapter_can_be_trained_whole(model_folder: Path, tmp_path: Path) -> None:
    rows = rows_for("sft", 2)
    run(spec(model_folder, tmp_path / "adapter", lora=LORA), tmp_path / "job-1", rows)
    job = spec(model_folder, tmp_path / "out")
    ref = job.agent.model.model_copy(update={"adapter": str(tmp_path / "adapter")})
    job = job.model_copy(update={"agent": job.agent.model_copy(update={"model": ref})})
    report, _ = run(job, tmp_path / "job-2", rows)
    assert report.steps
    assert not same(model_folder, tmp_path / "out")


def with_logprobs(model_folder: Path, rows: list[Any], *, forget: bool) -> list[Any]:
    """Rows whose turns carry sampled ids with log-prob -3; with `forget` those of the first run are lost."""
    tokenizer = load_model(ModelRef(source="folder", path=str(model_folder))).tokenizer
    renderer = Renderer.of(tokenizer)
    changed = []
    for place, row in enumerate(rows):
        trajectories = []
        for member, trajectory in enumerate(row.trajectories):
            (rendered,) = renderer.rows(trajectory, 10_000)
            steps = list(trajectory.steps)
            for index in sorted({int(i) for i in rendered.step_index[rendered.supervised]}):
                ids = rendered.token_ids[rendered.supervised & (rendered.step_index == index)].tolist()
                sampled = SampledTokens(
                    token_ids=tuple(ids), logprobs=(-3.0,) * len(ids), tokenizer=renderer.fingerprint
                )
                steps[index] = steps[index].model_copy(update={"sampled": sampled})
            kept = (
                trajectory if forget and place == member == 0 else trajectory.model_copy(update={"steps": tuple(steps)})
            )
            trajectories.append(kept)
        changed.append(row.model_copy(update={"trajectories": tuple(trajectories)}))
    return changed


def test_a_run_without_log_probs_leaves_the_ratios_of_the_others_alone(model_folder: Path, tmp_path: Path) -> None:
    """Untrained, the model gives about 1/300 a token, log-prob -5.7: against -3 the ratio is exp(-2.7), far from 1."""
    losses, ratios = [], []
    for forget, tokens in ((False, 100_000), (True, 100_000), (True, 64)):
        rows = with_logprobs(model_folder, rows_for("grpo", 2), forget=forget)
        name = f"{forget}-{tokens}"
        job = spec(model_folder, tmp_path / name, "grpo", max_steps=1, batch_size=2, batch_tokens=tokens)
        _, heard = run(job, tmp_path / f"job-{name}", rows)
        losses.append(metric(heard, "loss"))
        ratios += metric(heard, "ratio_mean")
    assert losses[1] == pytest.approx(losses[2], rel=1e-5, abs=1e-6)
    assert ratios[0] < ratios[1] < 0.7


def test_replayed_examples_that_are_too_long_are_left_out_and_reported(model_folder: Path, tmp_path: Path) -> None:
    def job(name: str, **options: Any) -> Any:
        made = spec(model_folder, tmp_path / name, replay={"ratio": 1.0}, **options)
        return made.model_copy(update={"cache_dir": str(tmp_path / "cache")})

    first, _ = run(
        job("one"), tmp_path / "job-1", [DatasetRow(trajectory=episode(3, question=f"q{i}")) for i in range(3)]
    )
    assert first.replayed == 0
    short = [DatasetRow(trajectory=episode(1, question=f"r{i}")) for i in range(3)]
    again, _ = run(job("two"), tmp_path / "job-2", short)
    assert again.replayed == 3
    assert again.examples == 6
    limited, heard = run(
        job("three", max_length=200), tmp_path / "job-3", [DatasetRow(trajectory=episode(1, question="s"))]
    )
    assert limited.replayed <= 1
    assert any("longer than 200 tokens" in message or limited.replayed == 1 for _, message in heard.warnings)


def test_the_kl_estimate_of_kto_is_reported_and_keeps_to_the_token_budget(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    def noting(engine: Engine, rows: Any, *, entropy: bool = False) -> Any:
        passes.append(sum(map(len, rows)))
        return logprobs(engine, rows, entropy=entropy)

    logprobs = Engine.logprobs
    monkeypatch.setattr(Engine, "logprobs", noting)
    job = spec(model_folder, tmp_path / "out", "kto", batch_size=8, batch_tokens=500, share_prefixes=False)
    _, heard = run(job, tmp_path / "job", rows_for("kto", 8))
    assert max(passes) <= 600
    assert len(metric(heard, "kto_kl")) == len(heard.steps)


def test_validation_that_cannot_be_is_reported(model_folder: Path, tmp_path: Path) -> None:
    held_out = [DatasetRow(trajectory=episode(1), weight=0.0)]
    job = spec(model_folder, tmp_path / "out", early_stopping_patience=1)
    _, heard = run(job, tmp_path / "job", rows_for("sft", 2), validation=held_out)
    messages = [message for _, message in heard.warnings]
    assert "1 of 1 dataset rows of the validation split give no example: zero_weight 1" in messages
    assert any("early_stopping_patience have no effect" in message for message in messages)


def test_a_finite_loss_that_diverges_is_reported(model_folder: Path, tmp_path: Path) -> None:
    """A model that has learnt its data by heart is thrown off it by steps of size 1: logits of that size, losses too."""
    rows = rows_for("sft", 2)
    able = spec(model_folder, tmp_path / "able", epochs=30, learning_rate=2e-2, checkpoint_every_steps=100)
    run(able, tmp_path / "job-able", rows)
    options: dict[str, Any] = {
        "learning_rate": 1.0,
        "grad_clip": 0,
        "schedule": "constant",
        "warmup_ratio": 0,
        "epochs": 6,
    }
    report, heard = run(spec(tmp_path / "able", tmp_path / "out", **options), tmp_path / "job", rows)
    assert report.first_loss is not None
    assert report.first_loss < 2
    assert any(code == "diverged" and "the loss rose from" in message for code, message in heard.warnings)


def test_masking_what_a_pair_shares_changes_means_and_not_the_sigmoid_loss(model_folder: Path, tmp_path: Path) -> None:
    pairs = [
        PairRow(chosen=run_of(i, "It costs 40.", turns=3), rejected=run_of(i, "No idea.", turns=3)) for i in range(2)
    ]
    for loss, equal in (("sigmoid", True), ("ipo", False)):
        losses = []
        for level in (False, True):
            job = spec(
                model_folder, tmp_path / f"{loss}-{level}", "dpo", loss=loss, step_level=level, learning_rate=2e-3
            )
            _, heard = run(job, tmp_path / f"job-{loss}-{level}", pairs)
            losses.append(metric(heard, "loss"))
        assert (losses[0] == pytest.approx(losses[1], rel=1e-4)) == equal


@pytest.mark.parametrize("method", ["grpo", "dpo"])
def test_an_online_run_that_learns_nothing_fails_with_the_reasons(
    model_folder: Path, tmp_path: Path, method: str
) -> None:
    good, bad = run_of(0, "It costs 40."), run_of(0, "No idea.", success=False)
    job, heard = spec(model_folder, tmp_path / "out", method, rollouts=3, validate_every_steps=1), Recorder()
    online = job.model_copy(update={"dataset_id": None, "dataset_path": None, "environment": "x"})

    def collect(*_: Any) -> list[GroupRow]:
        return [GroupRow(key="a", trajectories=(good, bad), rewards=(1.0, 1.0))]

    with pytest.raises(TrainingFailed, match=r"\[nothing_supervised\].*no_variance 3"):
        train(online, Data(), tmp_path / "job", heard, collect)
    ((_, warning),) = heard.warnings
    assert "validate_every_steps have no effect; measure with evaluate_agent" in warning
    assert not (tmp_path / "out").exists()
