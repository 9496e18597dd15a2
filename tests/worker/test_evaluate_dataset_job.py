"""Agents next to the turns of a dataset: the embedded model on runs of the expert, a random one, and plain text."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.errors import InvalidInput
from quintain.evaluation.comparison import compare
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import BenchmarkRow, DatasetRow, LabelledRow, Row, TextRow
from quintain.records.evaluation import Evaluation
from quintain.records.jobs.job import EvaluateDatasetSpec, JobResult
from quintain.records.trajectory import Action, Actor, Step, Task
from quintain.trainers.models.loading import load_model
from quintain.trainers.rendering.renderer import Renderer
from quintain.worker.job_kinds import evaluate_dataset
from tiny_models import save_tiny_model, tiny_tokenizer
from trainers.templates import GEMMA, GEMMA_SPECIAL
from trajectory_runs import answer as say
from trajectory_runs import run, user
from worker.job_folder import STARTER, Stopping, evaluation, events, expert_runs, outputs


def measured(
    folder: Path, rows: Sequence[Row], agent: Agent = STARTER, kind: str = "sft", after: int | None = None, **more: Any
) -> tuple[JobResult, Evaluation | None]:
    data = folder.parent / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "validation.jsonl").write_text("".join(row.model_dump_json() + "\n" for row in rows), encoding="utf-8")
    spec = EvaluateDatasetSpec.model_validate(
        {
            "agent": agent,
            "dataset_id": "ds-1",
            "dataset_path": str(data),
            "dataset_files": {"validation.jsonl": hashlib.sha256((data / "validation.jsonl").read_bytes()).hexdigest()},
            "dataset_kind": kind,
            "split": "validation",
            "n_rows": 100,
            **more,
        }
    )
    result = evaluate_dataset.run(spec, folder, Stopping(folder, stop_at=after))
    return result, evaluation(folder) if outputs(folder, "evaluation") else None


def test_loss_and_next_action_distinguish_models_and_evaluations_pair_by_row(tmp_path: Path, tiny_agent: Agent) -> None:
    """The embedded model has learnt the expert's ways, a random one has not: it writes no call at all."""
    rows = [DatasetRow(trajectory=run) for run in expert_runs(3, "held_out")]
    result, trained = measured(tmp_path / "a" / "job-1", rows)
    _, random = measured(tmp_path / "b" / "job-2", rows, tiny_agent, max_new_tokens=8)
    known, unknown = trained.held_out, random.held_out
    steps = sum(len(row.trajectory.agent_steps) for row in rows)
    assert known.n_steps == unknown.n_steps == steps
    assert known.loss < 0.5 < 4 < unknown.loss < math.log(512) + 1
    assert known.perplexity == pytest.approx(math.exp(known.loss))
    assert (known.token_accuracy or 0) > 0.8 > 0.1 > (unknown.token_accuracy or 0)
    assert unknown.tool_match.successes == 0
    assert known.tool_match.n == steps
    assert 0.5 < (known.action_match.value or 0) <= (known.tool_match.value or 0)
    assert [r.task_id for r in trained.results] == [row.trajectory.id for row in rows]
    assert len({len(row.trajectory.agent_steps) for row in rows}) > 1, "means over rows would be other numbers"
    totals = [event.totals for event in events(tmp_path / "a" / "job-1") if event.type == "progress"][-1]
    assert totals == {name: result.report[name] for name in ("loss", "tool_match", "action_match")}
    assert result.report["loss"] == known.loss
    assert (result.dataset_id, trained.environment, trained.split) == ("ds-1", "dataset:ds-1", "validation")
    pair = compare([random, trained], ["random", "trained"], "cmp-1", None).comparisons[0]
    assert pair.n_tasks == 3
    assert pair.reward.difference > 0.5


def test_the_loss_is_that_of_a_plain_forward_pass_over_the_trained_tokens(tmp_path: Path, tiny_agent: Agent) -> None:
    """Mean of -log softmax at the places that training learns, and how often the most likely token stands there."""
    run = expert_runs(1, "held_out")[0]
    _, evaluation = measured(tmp_path / "job-1", [DatasetRow(trajectory=run)], tiny_agent, max_new_tokens=1)
    loaded = load_model(tiny_agent.model)
    (row,) = Renderer.of(loaded.tokenizer, "auto").render(run, loaded.context_tokens).rows
    with torch.no_grad():
        logs = loaded.model(torch.tensor(row.token_ids[None].astype("int64"))).logits[0].log_softmax(-1)
    places = torch.from_numpy(row.places)
    targets = torch.from_numpy(row.token_ids.astype("int64"))[places]
    expected = -logs[places - 1, targets].mean()
    assert evaluation.held_out.loss == pytest.approx(float(expected), abs=1e-4)
    assert evaluation.held_out.n_tokens == row.n_supervised
    right = (logs[places - 1].argmax(-1) == targets).float().mean()
    assert evaluation.held_out.token_accuracy == pytest.approx(float(right))


def test_turns_in_a_row_are_asked_for_as_one_where_the_template_writes_them_as_one(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(GEMMA, special=GEMMA_SPECIAL, eos="<eos>", bos="<bos>")
    folder = save_tiny_model(tmp_path / "gemma", tokenizer=tokenizer, hidden=16)
    agent = Agent(name="gemma", model=ModelRef(source="folder", path=str(folder)))
    said = Step(actor=Actor.AGENT, message="Let me look.")
    run = expert_runs(1, "held_out")[0]
    first = next(i for i, step in enumerate(run.steps) if step.actions)
    twice = run.model_copy(update={"steps": (*run.steps[:first], said, *run.steps[first:]), "id": "traj-x"})
    _, evaluation = measured(
        tmp_path / "a" / "job-1", [DatasetRow(trajectory=one) for one in (run, twice)], agent, max_new_tokens=1
    )
    plain, joined = (result.metrics for result in evaluation.results)
    assert joined["steps"] == plain["steps"] == len(run.agent_steps)


def test_equal_arguments_in_another_order_match_and_other_values_do_not(tmp_path: Path) -> None:
    """The first step of a run, recorded as the model acts: it matches; with another argument only the tool does."""
    run = expert_runs(1, "held_out")[0]
    first = next(i for i, step in enumerate(run.steps) if step.actions)
    call = run.steps[first].actions[0]
    changed = run.steps[first].model_copy(update={"actions": (Action(tool=call.tool, args={"query": "zebra"}),)})
    other = run.model_copy(update={"steps": (*run.steps[:first], changed, *run.steps[first + 1 :]), "id": "traj-x"})
    _, evaluation = measured(tmp_path / "job-1", [DatasetRow(trajectory=one) for one in (run, other)])
    as_is, metrics = (result.metrics for result in evaluation.results)
    assert as_is["tool_match"] == 1.0, "the embedded model must know this run"
    assert metrics["tool_match"] >= metrics["action_match"] + 1 / metrics["steps"]


def test_a_stopped_job_continues_after_its_finished_rows_and_ends_the_same(
    tmp_path: Path, tiny_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate_dataset, "_BATCH", 2)
    rows = [DatasetRow(trajectory=run) for run in expert_runs(4, "held_out")]
    _, whole = measured(tmp_path / "whole" / "job-1", rows, tiny_agent, max_new_tokens=2)
    partial, nothing = measured(tmp_path / "parts" / "job-1", rows, tiny_agent, after=2, max_new_tokens=2)
    assert nothing is None
    assert partial == JobResult(report={"rows": 2, "planned": 4})
    _, resumed = measured(tmp_path / "parts" / "job-1", rows, tiny_agent, max_new_tokens=2)
    assert resumed.suite_hash == whole.suite_hash
    found = [(r.task_id, r.status, r.reward, r.metrics) for r in resumed.results]
    for (task, status, reward, metrics), other in zip(found, whole.results, strict=True):
        assert (task, status, reward) == (other.task_id, other.status, other.reward)
        assert metrics == pytest.approx(other.metrics, rel=1e-5)


def test_rows_beyond_the_number_asked_for_are_a_seeded_sample(tmp_path: Path, tiny_agent: Agent) -> None:
    rows = [TextRow(text=f"text number {n}") for n in range(12)]
    chosen = []
    for place, seed in enumerate((0, 0, 1)):
        _, evaluation = measured(tmp_path / str(place) / "job-1", rows, tiny_agent, "text", n_rows=5, seed=seed)
        chosen.append([result.task_id for result in evaluation.results])
    assert chosen[0] == chosen[1] != chosen[2]
    assert len(set(chosen[0])) == 5


def test_text_has_a_loss_and_no_verdict_and_what_is_not_to_be_repeated_is_counted(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    _, text = measured(tmp_path / "a" / "job-1", [TextRow(text="the quick brown fox")] * 2, tiny_agent, "text")
    assert (text.rate.n, text.n_unknown) == (0, 2)
    assert text.held_out.tool_match is None
    assert text.held_out.loss is not None
    assert len({result.task_id for result in text.results}) == 2
    labelled = [LabelledRow(trajectory=run, desirable=n == 0) for n, run in enumerate(expert_runs(2, "held_out"))]
    _, thumbs = measured(tmp_path / "b" / "job-1", labelled, tiny_agent, "kto", max_new_tokens=4)
    assert thumbs.held_out.dropped == {"not_to_repeat": 1}
    assert (thumbs.rate.n, thumbs.n_error) == (1, 1)


def test_a_question_is_judged_by_its_stated_answer_and_without_one_there_is_no_verdict(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    """The random model never says 72, any text meets the pattern, and no call on either side is no match of tools."""
    metadata: list[dict[str, Any]] = [{"answer": "72"}, {"checker": {"type": "regex", "pattern": "(?s).*"}}, {}]
    rows = [
        DatasetRow(trajectory=run(f"q{n}", user(), say("24 + 48 = 72.")).model_copy(update={"task": task}).identified())
        for n, known in enumerate(metadata)
        for task in [Task(id=f"q{n}", prompt="How many clips?", metadata=known)]
    ]
    _, evaluation = measured(tmp_path / "job-1", rows, tiny_agent, max_new_tokens=4)
    assert [result.success for result in evaluation.results] == [False, True, None]
    assert (evaluation.held_out.answer_match.value, evaluation.held_out.tool_match) == (0.5, None)
    assert (evaluation.rate.value, evaluation.rate.n, evaluation.n_unknown) == (0.5, 2, 1)


def test_a_benchmark_task_judges_the_first_tool_only(tmp_path: Path) -> None:
    run = expert_runs(1, "held_out")[0]
    plan = tuple(action.tool for step in run.agent_steps for action in step.actions)
    known = BenchmarkRow(task=run.task, tools=run.tools, plan=plan)
    other = known.model_copy(update={"plan": ("fly",), "task": run.task.model_copy(update={"id": "other"})})
    without = known.model_copy(update={"plan": (), "task": Task(id="none", prompt="?")})
    _, evaluation = measured(tmp_path / "job-1", [known, other, without], kind="benchmark")
    assert [result.reward for result in evaluation.results] == [1.0, 0.0, None]
    assert (evaluation.held_out.action_match, evaluation.held_out.dropped) == (None, {"no_plan": 1})
    with pytest.raises(InvalidInput, match=r"got 1 that cannot \(no_plan 1\)"):
        measured(tmp_path / "job-2", [without], kind="benchmark")


def test_files_that_were_changed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="expected the manifest's SHA-256"):
        measured(tmp_path / "job-1", [TextRow(text="a b c")], kind="text", dataset_files={"validation.jsonl": "0" * 64})
