"""Distillation on recorded runs: losses by hand, a divergence that falls, recorded log-probs, and a bit-equal resume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import DatasetRow
from quintain.records.jobs.job import TrainSpec
from quintain.trainers.data.streams import Example, TokenStreams, streams_of, token_row
from quintain.trainers.data.teacher_tokens import top_arrays, with_top
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.other_tokens import candidate_logprobs, top_tokens
from quintain.trainers.losses.advantages import divergence_advantages
from quintain.trainers.losses.distill import distill_loss
from quintain.trainers.losses.loss_output import StepTotals
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.run_setup import Data
from quintain.trainers.teachers import LocalTeacher
from quintain.trainers.train import train
from tiny_models import save_tiny_model, tiny_model, tiny_tokenizer
from trainers.own_forward import make, row
from trainers.playing import save_sharp_teacher
from trainers.runs import Killed, Recorder, as_sampled, metric, rows_for, same, spec

CLIP = {"clip_low": 0.2, "clip_high": 0.2}


def logs(*chances: float) -> list[float]:
    return [math.log(p) if p else -math.inf for p in chances]


def streams(*rows: Any) -> tuple[TokenStreams, StepTotals]:
    example = Example(rows, (0,) * len(rows))
    return streams_of([example]), StepTotals(sum(r.weight.sum() for r in rows), 1, 1.0)


def test_the_forward_divergence_by_hand() -> None:
    """Teacher (0.5, 0.3, rest 0.2) against (0.25, 0.25, rest 0.5): 0.5 ln 2 + 0.3 ln 1.2 + 0.2 ln 0.4 = 0.218012.

    The second token, of weight 3, is named alone, 0.8 against 0.4: 0.8 ln 2 + 0.2 ln (0.2 / 0.6) = 0.334795. The gradient by
    a log-prob is -q_v + q_rest p_v / p_rest, here -0.5 + 0.2 * 0.25 / 0.5 = -0.4, times its weight's share 1/4.
    """
    one = with_top(
        token_row([5, 6, 7], [False, True, True], weight=[0, 1, 3]),
        np.asarray([[1, 2], [3, 0]], np.int32),
        np.asarray([logs(0.5, 0.3), logs(0.8, 0.0)], np.float32),
    )
    found, totals = streams(one)
    logprobs = torch.tensor([logs(0.25, 0.25), logs(0.4, 0.9)], requires_grad=True)
    output = distill_loss(logprobs, found, totals, **CLIP)
    assert output.loss.item() == pytest.approx((0.218012 + 3 * 0.334795) / 4, abs=1e-6)
    output.loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad[0].tolist() == pytest.approx([-0.4 / 4, (-0.3 + 0.2 * 0.25 / 0.5) / 4])
    assert logprobs.grad[1].tolist() == pytest.approx([3 * (-0.8 + 0.2 * 0.4 / 0.6) / 4, 0.0])
    total, count = output.metrics["forward_kl"]
    assert total / count == pytest.approx((0.218012 + 0.334795) / 2, abs=1e-6)


def test_the_reverse_divergence_by_hand() -> None:
    """Differences ln(0.4/0.2) = 0.693147 and ln(0.1/0.5) = -1.609438 with mean -0.458145: advantages 1.151293 and -1.151293.

    The first token has moved from 0.2 to 0.21, ratio 1.05. Loss -(1.05 - 1) * 1.151293 / 2 = -0.028782; gradients -rho A / 2.
    The third token's sampling policy is unknown: it has no advantage and no part in the mean.
    """
    teacher, old = np.asarray(logs(0.4, 0.1, 0.3), np.float32), np.asarray([*logs(0.2, 0.5), math.nan], np.float32)
    (advantages,) = divergence_advantages([teacher], [old])
    assert advantages.tolist() == pytest.approx([1.151293, -1.151293, 0.0], abs=1e-6)
    row = token_row([5, 6, 7], [False, True, True], old_logprob=[0.0, *old[:2]], advantage=[0.0, *advantages[:2]])
    found, totals = streams(row.with_supervised("teacher_logprobs", teacher[:2, None]))
    logprobs = torch.tensor(logs(0.21, 0.5), requires_grad=True)
    output = distill_loss(logprobs, found, totals, **CLIP)
    assert output.loss.item() == pytest.approx(-0.028782, abs=1e-5)
    output.loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-1.05 * 1.151293 / 2, 1.151293 / 2], abs=1e-5)
    total, count = output.metrics["reverse_kl"]
    assert total / count == pytest.approx((math.log(0.21 / 0.4) + math.log(0.5 / 0.1)) / 2, abs=1e-6)


def test_a_policy_that_learns_from_its_own_samples_comes_to_its_teacher() -> None:
    """A policy of six tokens, uniform at first, and a teacher with chances 0.5 to 0.02: the exact KL(p || q) falls below 0.03."""
    generator = torch.Generator().manual_seed(0)
    teacher = torch.tensor([0.5, 0.25, 0.13, 0.07, 0.03, 0.02]).log()
    policy = torch.zeros(6, requires_grad=True)

    def divergence() -> float:
        logs = policy.detach().log_softmax(-1)
        return float((logs.exp() * (logs - teacher)).sum())

    before = divergence()
    for _ in range(80):
        old = policy.detach().log_softmax(-1)
        tokens = torch.multinomial(old.exp(), 64, replacement=True, generator=generator)
        (advantages,) = divergence_advantages([teacher[tokens].numpy()], [old[tokens].numpy()])
        row = token_row(range(65), [False] + [True] * 64, advantage=[0, *advantages], old_logprob=[0, *old[tokens]])
        found, totals = streams(row.with_supervised("teacher_logprobs", teacher[tokens, None].numpy()))
        (gradient,) = torch.autograd.grad(
            distill_loss(policy.log_softmax(-1)[tokens], found, totals, **CLIP).loss, policy
        )
        with torch.no_grad():
            policy -= 0.5 * gradient
    assert before > 0.5
    assert divergence() < 0.03


def test_the_engine_gives_the_likeliest_tokens_and_the_log_probs_of_any() -> None:
    model = make(Qwen3Config, Qwen3ForCausalLM, head_dim=8, tie_word_embeddings=True)
    engine, rows = Engine.of(model), [row(range(3, 20)), row(range(3, 12))]
    own = torch.cat(
        [
            model(torch.from_numpy(r.token_ids).long()[None], use_cache=False).logits[0].log_softmax(-1)[r.places - 1]
            for r in rows
        ]
    )
    ids, logprobs = top_tokens(engine, rows, 3)
    expected = own.topk(3)
    assert torch.equal(ids, expected.indices)
    torch.testing.assert_close(logprobs, expected.values, rtol=1e-4, atol=1e-5)
    asked = [with_top(r, *top_arrays([[(4, -1.0), (9, -2.0)]] * r.n_supervised, 2)) for r in rows]
    found = candidate_logprobs(engine, asked)
    torch.testing.assert_close(found, own[:, [4, 9]], rtol=1e-4, atol=1e-5)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(0))
    name, parameter = next(iter(model.named_parameters()))
    (ours,) = torch.autograd.grad((weights * found).sum(), parameter)
    (theirs,) = torch.autograd.grad((weights * own[:, [4, 9]]).sum(), parameter)
    assert float((ours - theirs).norm()) < 1e-4 * float(theirs.norm()), name


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    return save_sharp_teacher(tmp_path_factory.mktemp("models") / "teacher")


def distilling(student: Path, output: Path, teacher: Agent | None, **config: Any) -> TrainSpec:
    job = spec(student, output, "distill", teacher_top_k=6, learning_rate=1e-2, epochs=4, **config)
    named = job.config.model_copy(update={"teacher": teacher and teacher.name})
    return job.model_copy(update={"config": named, "teacher_agent": teacher})


class Counting(LocalTeacher):
    """A teacher that counts how often it is asked."""

    asked = 0

    def scores(self, examples: Sequence[Example], top_k: int | None) -> Any:
        self.asked += 1
        return super().scores(examples, top_k)


def test_the_divergence_falls_and_a_killed_run_resumes_to_bit_equal_weights_without_asking_again(
    model_folder: Path, tmp_path: Path, teacher: Agent
) -> None:
    rows, validation = rows_for("sft", 4), rows_for("sft", 2)
    model, recorder = Counting(teacher, 300), Recorder()
    job = distilling(model_folder, tmp_path / "out", teacher)
    report = train(job, Data(rows, validation, teacher=model), tmp_path / "job", recorder)
    divergences = metric(recorder, "forward_kl")
    assert divergences[-1] < 0.92 * divergences[0]
    held_out = metric(recorder, "validation_loss")
    assert held_out[-1] < held_out[0]

    again = job.model_copy(update={"output_dir": str(tmp_path / "again")})
    with pytest.raises(Killed):
        train(again, Data(rows, validation, teacher=model), tmp_path / "job-killed", Recorder(kill_at=3))
    before = model.asked
    resumed = train(again, Data(rows, validation, teacher=model), tmp_path / "job-killed", Recorder())
    assert model.asked == before
    assert (resumed.resumed_from_step, resumed.final_loss) == (2, report.final_loss)
    assert same(tmp_path / "out", tmp_path / "again")


def test_recorded_log_probs_teach_like_the_model_that_gave_them(
    model_folder: Path, tmp_path: Path, teacher: Agent
) -> None:
    model, renderer = LocalTeacher(teacher, 300), Renderer.of(tiny_tokenizer())

    def top_of(rendered: Any) -> list[Any]:
        scores = model.scores([Example((rendered,), (0,))], 6)[rendered]
        assert scores.ids is not None
        return [
            tuple(zip(i, p, strict=True)) for i, p in zip(scores.ids.tolist(), scores.logprobs.tolist(), strict=True)
        ]

    rows = rows_for("sft", 2)
    few: dict[str, Any] = {"max_steps": 1}
    asked, recorded = Recorder(), Recorder()
    train(
        distilling(model_folder, tmp_path / "a", teacher, **few), Data(rows, teacher=model), tmp_path / "job-a", asked
    )

    def recorded_of(row: Any, top_of: Any) -> DatasetRow:
        return DatasetRow(trajectory=as_sampled(row.trajectory, renderer, -0.1, top_of))

    stored = [*(recorded_of(row, top_of) for row in rows), *rows_for("sft", 3)[2:]]
    report = train(distilling(model_folder, tmp_path / "b", None, **few), Data(stored), tmp_path / "job-b", recorded)
    assert metric(recorded, "loss") == pytest.approx(metric(asked, "loss"), rel=1e-5)
    assert report.dropped == {"no_recorded_logprobs": 1}

    # Of log-probs alone, each token is the only one that is named, with the rest as the other outcome.
    plain = [recorded_of(rows[0], None)]
    alone = Recorder()
    train(distilling(model_folder, tmp_path / "c", None, **few), Data(plain), tmp_path / "job-c", alone)
    assert metric(alone, "loss")[0] > 0


def test_a_teacher_of_another_vocabulary_is_refused(tmp_path: Path, teacher: Agent) -> None:
    student = save_tiny_model(tmp_path / "student", hidden=16)
    tokenizer = tiny_tokenizer(vocab=400)
    tiny_model(tokenizer, hidden=16).save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    other = Agent(name="other", model=ModelRef(source="folder", path=str(tmp_path / "other")))
    data = Data(rows_for("sft", 1), teacher=LocalTeacher(other, 300))
    with pytest.raises(InvalidInput, match="another vocabulary") as refused:
        train(distilling(student, tmp_path / "out", other), data, tmp_path / "job", Recorder())
    assert refused.value.code == "tokenizer_mismatch"


def test_alternatives_are_sorted_cut_and_filled() -> None:
    ids, logprobs = top_arrays([[(3, -2.0), (7, -0.5), (9, -3.0)], [(4, -0.1)]], 2)
    assert ids.tolist() == [[7, 3], [4, 0]]
    assert logprobs.tolist() == [[-0.5, -2.0], [pytest.approx(-0.1), -math.inf]]
