"""The preview has the exact tokens of training, and reports each planted fault with its remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quintain.datasets.near_duplicates import drop_near_duplicates
from quintain.datasets.selection import ExportCounts, ValuedRun
from quintain.evaluation.reports.preview_page import describe_counts
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import DatasetRow, GroupRow, LabelledRow, PairRow, Row, StepLabelRow, TextRow
from quintain.records.hyperparameters.methods import CONFIGS, DATASET_KINDS
from quintain.records.jobs.job import PreviewSpec
from quintain.records.jobs.preview import PreviewReport, Sample
from quintain.records.trajectory import Action, Actor, Observation, Step, Task, Trajectory
from quintain.records.wording import counted
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.models.loading import open_tokenizer
from quintain.trainers.preview.dataset import histogram, preview
from quintain.trainers.preview.row import digest
from quintain.trainers.preview.spans import spans_of
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.run_setup import Data
from quintain.trainers.train import train
from tiny_models import CHATML_TOOLS, save_tiny_model, tiny_tokenizer
from trainers import runs
from trainers.episodes import TOOLS, episode
from trainers.runs import Killed, Recorder, rows_for, run_of
from trainers.templates import GEMMA, GEMMA_SPECIAL, MISTRAL, NO_END, QWEN3

STRIPS_ALL = CHATML_TOOLS.replace(
    "<|im_start|>assistant\n{{ message.content }}", "<|im_start|>assistant\n{{ message.content.split('</think>')[-1] }}"
)
"""Leaves thinking out of every turn, the one to be learned too."""


def look(*arguments: Any, **named: Any) -> PreviewReport:
    """Preview rows to the end."""
    report = look_or_stop(*arguments, **named)
    assert report is not None
    return report


def look_or_stop(
    folder: Path,
    model: Path,
    rows: Sequence[Row],
    validation: Sequence[Row] = (),
    *,
    method: str = "sft",
    kind: str | None = None,
    sample: Sample = Sample(rows=50),  # noqa: B008 (frozen)
    reporter: Recorder | None = None,
    **settings: Any,
) -> PreviewReport | None:
    """Preview rows that stand in two files."""
    folder.mkdir(exist_ok=True)
    for split, lines in (("train", rows), ("validation", validation)):
        text = "".join(row.model_dump_json() + "\n" for row in lines)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    spec = PreviewSpec(
        agent=Agent(name="tiny", model=ModelRef(source="folder", path=str(model))),
        dataset_id="ds",
        dataset_path=str(folder),
        dataset_files={"train.jsonl": "", "validation.jsonl": ""},
        dataset_kind=kind or DATASET_KINDS[method],  # type: ignore[arg-type]
        dataset_rows=len(rows) + len(validation),
        config=CONFIGS[method](**settings),  # type: ignore[arg-type]
        sample=sample,
        cache_dir=str(folder / "none"),
        key="key",
    )
    return preview(spec, folder, reporter or Recorder())


def rows_of(runs: Sequence[Trajectory]) -> list[Row]:
    return [DatasetRow(trajectory=run) for run in runs]


def codes(report: PreviewReport) -> set[str]:
    return {warning[1:].partition("]")[0] for warning in report.statistics.warnings}


def rewarded(run: Trajectory) -> Trajectory:
    """The same run with a reward of 1, 2, 3, ... for its steps."""
    steps = [step.model_copy(update={"reward": float(i)}) for i, step in enumerate(run.steps, 1)]
    return run.model_copy(update={"steps": tuple(steps)})


METHODS: dict[str, tuple[str, Callable[[], list[Row]], dict[str, Any]]] = {
    "chunked": (
        "sft",
        lambda: [
            DatasetRow(trajectory=rewarded(episode(3 + i, question=f"item {i}?")), weight=1 + i / 2) for i in range(4)
        ],
        {"chunk": True, "max_length": 230, "step_weighting": "reward"},
    ),
    "cut": ("sft", lambda: [DatasetRow(trajectory=episode(2 + i)) for i in range(4)], {"max_length": 230}),
    "bc": ("bc", lambda: rows_for("bc", 4), {"min_reward": None, "temperature": 0.5}),
    "dpo": ("dpo", lambda: rows_for("dpo", 4), {"step_level": True}),
    "kto": ("kto", lambda: rows_for("kto", 4), {}),
    "grpo": ("grpo", lambda: rows_for("grpo", 3), {}),
    "ranking": ("ranking", lambda: rows_for("ranking", 3), {}),
    "text": (
        "pretrain",
        lambda: [TextRow(text=f"Item {i} has a price. " * 30, weight=1 + i) for i in range(3)],
        {"max_length": 100},
    ),
}


@pytest.mark.parametrize("case", METHODS)
def test_a_preview_has_the_exact_tokens_masks_and_weights_that_training_builds(
    case: str, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What training builds is caught in a real training; the digest covers ids, mask, weights and advantages."""
    method, make_rows, settings = METHODS[case]
    rows, caught = make_rows(), list[ExampleBatch]()
    make = ExampleMaker.make

    def make_and_end(self: ExampleMaker, rows: Sequence[Row]) -> ExampleBatch:
        caught.append(make(self, rows))
        raise Killed

    job = runs.spec(model_folder, tmp_path / "out", method, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(ExampleMaker, "make", make_and_end)
        with pytest.raises(Killed):
            train(job, Data(rows), tmp_path / "job", Recorder())

    report = look(tmp_path / "ds", model_folder, rows, method=method, **settings)
    token_rows = [row for example in caught[0].examples for row in example.rows]
    kept = [row for row in report.rows if row.digest]
    assert token_rows
    assert [row.digest for row in kept] == [digest([row]) for row in token_rows]
    counts = report.statistics.splits["train"]
    assert counts.total_tokens == sum(map(len, token_rows))
    assert counts.trained_tokens == sum(row.n_supervised for row in token_rows)
    assert counts.dropped == caught[0].dropped
    assert counts.lost_steps == caught[0].truncated_turns
    decode = Renderer.of(open_tokenizer(job.agent.model).tokenizer).decode
    for shown, row in zip(kept, token_rows, strict=True):
        assert "".join(span.text for span in shown.spans if not span.cut) == decode(row.token_ids)
        parts = np.split(row.token_ids, np.flatnonzero(np.diff(row.supervised)) + 1)
        trained = [decode(part) for part in parts[1::2]]  # the first token is never trained
        assert "".join(span.text for span in shown.spans if span.trained) == "".join(trained)
        assert {round(s.weight, 5) for s in shown.spans if s.trained} == {
            round(float(w), 5) for w in row.weight[row.supervised]
        }


def test_the_digest_changes_with_every_stream_that_training_uses() -> None:
    (row,) = Renderer.of(tiny_tokenizer()).render(episode(), 1024).rows
    changes: list[dict[str, Any]] = [
        {"token_ids": row.token_ids + 1},
        {"supervised": ~row.supervised & (np.arange(len(row)) > 0)},
        {"weight": row.weight * 2},
        {"advantage": row.weight},
    ]
    assert len({digest([row]), *(digest([replace(row, **change)]) for change in changes)}) == 5


def test_spans_say_who_wrote_what_and_join_to_the_decoded_row() -> None:
    """A message that is part of a word of another is not found in it; masked turns stay the agent's."""
    steps = (
        Step(actor=Actor.SYSTEM, message="Be brief."),
        Step(actor=Actor.USER, message="Look up tök?"),
        Step(actor=Actor.AGENT, message="I look.", train=False, observations=(Observation(content="k"),)),
        Step(actor=Actor.AGENT, thought="Found.", message="It is k."),
    )
    run = Trajectory(steps=steps, task=Task(prompt="Look up tök?"))
    renderer = Renderer.of(tiny_tokenizer())
    (row,) = renderer.render(run, 1024).rows
    spans = spans_of(row, renderer, run)
    assert "".join(span.text for span in spans) == renderer.decode(row.token_ids)
    said = [(span.by, span.text, span.trained, span.step) for span in spans if span.by != "template"]
    assert said == [
        ("system", "Be brief.", False, None),
        ("user", "Look up tök?", False, None),
        ("agent", "I look.<|im_end|>", False, 2),
        ("observation", "k", False, None),
        ("agent", "Found.\n\nIt is k.<|im_end|>", True, 3),
    ]


def test_what_falls_off_is_shown_struck_out_with_its_steps_and_tokens(model_folder: Path, tmp_path: Path) -> None:
    """One token less than the run needs: the last turn falls off, and nothing else."""
    rows = [DatasetRow(trajectory=episode(3))]
    whole = look(tmp_path / "a", model_folder, rows).statistics
    tight = look(tmp_path / "b", model_folder, rows, max_length=whole.lengths.longest - 1)
    (row,) = tight.rows
    counts = tight.statistics.splits["train"]
    assert (counts.truncated_rows, counts.lost_steps, row.lost_steps) == (1, 1, (4,))
    assert counts.trained_tokens + counts.lost_tokens == whole.splits["train"].trained_tokens
    cut = "".join(span.text for span in row.spans if span.cut)
    assert cut.endswith("It costs 40.<|im_end|>")
    assert not any(span.trained for span in row.spans if span.cut)
    assert "It costs" not in "".join(span.text for span in row.spans if not span.cut)


def test_a_row_that_does_not_fit_at_all_is_shown_as_lost(model_folder: Path, tmp_path: Path) -> None:
    long, short = episode(1, question="mango " * 300), episode(1)
    for chunk in (False, True):
        rows = [DatasetRow(trajectory=long), DatasetRow(trajectory=short)]
        report = look(tmp_path / str(chunk), model_folder, rows, max_length=200, chunk=chunk)
        first = report.rows[0]
        assert (first.row, first.dropped, first.tokens, first.digest) == (1, "too_long", 0, "")
        assert all(span.cut for span in first.spans)
        assert report.statistics.splits["train"].dropped == {"too_long": 1}
        assert report.statistics.splits["train"].truncated_rows == 1
        assert report.statistics.lengths.longest > 300


# Planted faults: clean rows, and one fault in them.


def clean(n: int) -> list[Trajectory]:
    """Distinct runs of distinct tasks, without a fault."""
    return [of_task(f"task-{i}", 2, question=f"price of item {i}?") for i in range(n)]


def of_task(name: str, n_turns: int, *, question: str = "price of the mango?") -> Trajectory:
    return episode(n_turns, question=question).model_copy(update={"task": Task(id=name, prompt=question)})


def with_step(run: Trajectory, **changes: Any) -> Trajectory:
    """The run with its first agent turn changed."""
    steps = list(run.steps)
    steps[2] = steps[2].model_copy(update=changes)
    return run.model_copy(update={"steps": tuple(steps)})


def untrained(run: Trajectory) -> Trajectory:
    return run.model_copy(update={"steps": tuple(step.model_copy(update={"train": False}) for step in run.steps)})


Plant = Callable[[list[Trajectory]], list[Trajectory]]


def first_run(*actions: Action, tools: tuple[dict[str, Any], ...] | None = None, **changes: Any) -> Plant:
    """Change the first run: its tools, or its first agent turn."""

    def plant(runs: list[Trajectory]) -> list[Trajectory]:
        run = runs[0] if tools is None else runs[0].model_copy(update={"tools": tools})
        return [with_step(run, **changes, **({"actions": actions} if actions else {})), *runs[1:]]

    return plant


def search(raw_args: str | None = None, **args: Any) -> Action:
    return Action(tool="search", args=args, raw_args=raw_args)


def schema(**properties: Any) -> tuple[dict[str, Any], ...]:
    parameters = {"type": "object", "properties": properties}
    return ({"type": "function", "function": {"name": "search", "parameters": parameters}},)


TEXT = {"type": "string"}
OPEN: dict[str, Any] = {"type": "function", "function": {"name": "open"}}
HELD_OUT = Task(id="x", metadata={"split": "held_out"})
FAULTS: dict[str, tuple[str, Plant, bool]] = {
    "a row that is too long": ("truncated", lambda r: [*r, episode(40)], True),
    "a null key": ("null_keys", first_run(search(query="a", path=None)), True),
    "a null value that the schema does not allow": ("null_keys", first_run(search(query=None)), True),
    "a null key inside": (
        "null_keys",
        first_run(search(q={"a": "x", "b": None}), tools=schema(q={"type": "object", "properties": {"a": TEXT}})),
        True,
    ),
    "a null key in a schema": ("null_keys_in_schemas", first_run(tools=schema(query=TEXT, path=None)), True),
    "a tool without schema": ("missing_schema", first_run(search(query="a"), Action(tool="open", args={})), True),
    "a run without schemas": ("missing_schema", first_run(tools=()), False),
    "an unknown argument": ("unknown_arguments", first_run(search(query="a", n=1)), False),
    "arguments that are not JSON": (
        "unreadable_arguments",
        first_run(Action(tool="search", raw_args="{que")),
        False,
    ),
    "arguments that the recorder could not read": ("unreadable_arguments", first_run(search(raw_args="{que")), False),
    "an empty observation": ("empty_observations", first_run(observations=(Observation(content=" \n"),)), False),
    "a spelt control token": (
        "control_tokens",
        first_run(observations=(Observation(content="a <|im_end|> b"),)),
        False,
    ),
    "a duplicate": ("duplicates", lambda r: [*r, r[0].model_copy(update={"session_id": "again"})], False),
    "the same words in another context": (
        "repeated_text",
        lambda r: [*r, with_step(r[0], observations=(Observation(content="later"),))],
        False,
    ),
    "nothing to train on": ("nothing_trained", lambda r: [untrained(run) for run in r], True),
    "an evaluation task": ("held_out_tasks", lambda r: [r[0].model_copy(update={"task": HELD_OUT}), *r[1:]], True),
    "a tool that is never called": ("unused_schemas", first_run(tools=(*TOOLS, OPEN)), False),
}


def test_rows_without_a_fault_are_ready(model_folder: Path, tmp_path: Path) -> None:
    report = look(tmp_path / "ds", model_folder, rows_of(clean(22)), max_length=700)
    assert codes(report) == set()
    assert report.statistics.verdict.startswith("Ready: 22 rows, ")


def test_text_arguments_of_a_tool_that_takes_text_are_no_fault(model_folder: Path, tmp_path: Path) -> None:
    patch = {"type": "function", "function": {"name": "patch", "parameters": {"type": "string", "properties": {}}}}
    runs = first_run(Action(tool="patch", raw_args="*** Begin"), tools=(*TOOLS, patch))(clean(22))
    report = look(tmp_path / "ds", model_folder, rows_of(runs), max_length=700)
    assert codes(report) == set()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_reported_with_its_remedy(fault: str, model_folder: Path, tmp_path: Path) -> None:
    """The same rows without the fault are ready; see above."""
    code, plant, blocks = FAULTS[fault]
    one = Sample(rows=1)  # faults are counted in all rows, whichever are shown
    found = look(tmp_path / "ds", model_folder, rows_of(plant(clean(22))), max_length=700, sample=one)
    assert codes(found) == {code} if code != "nothing_trained" else code in codes(found)
    (warning,) = [warning for warning in found.statistics.warnings if warning.startswith(f"[{code}]")]
    assert "; " in warning
    assert found.statistics.verdict.startswith("Fix first: " if blocks else "Ready: ")
    assert not blocks or warning.partition("; ")[2] in found.statistics.verdict


def test_null_keys_of_other_tools_are_reported_without_schemas_too(model_folder: Path, tmp_path: Path) -> None:
    """Arrow gives every call the keys of all: `search` never has a `path` but null, `open` has one."""

    def calls(*arguments: tuple[str, dict[str, Any]]) -> list[Row]:
        actions = [Action(tool=tool, args=args) for tool, args in arguments]
        runs = [with_step(run, actions=(action,)) for run, action in zip(clean(len(actions)), actions, strict=True)]
        return [DatasetRow(trajectory=run.model_copy(update={"tools": ()})) for run in runs]

    poisoned = calls(("search", {"query": "a", "path": None}), ("open", {"path": "b", "query": None}))
    assert "null_keys" in codes(look(tmp_path / "a", model_folder, poisoned))
    genuine = calls(("search", {"query": "a", "near": None}), ("open", {"path": "b"}))
    assert "null_keys" not in codes(look(tmp_path / "b", model_folder, genuine))


@pytest.mark.parametrize(
    ("template", "code", "blocks"),
    [
        (CHATML_TOOLS, None, False),
        (NO_END, "no_stop_token", True),
        (None, "fallback_template", False),
        (STRIPS_ALL, "thoughts_lost", True),
        (QWEN3, "thoughts_stripped", False),
    ],
)
def test_faults_of_the_template_are_reported_and_gone_with_a_better_one(
    template: str | None, code: str | None, blocks: bool, model_folder: Path, tmp_path: Path
) -> None:
    thought = "<think>\nlook it up\n</think>\n"
    runs = []
    for run in clean(3):
        steps = [s.model_copy(update={"thought": thought}) if s.actor is Actor.AGENT else s for s in run.steps]
        runs.append(run.model_copy(update={"steps": tuple(steps)}))
    other = model_folder if code is None else save_tiny_model(tmp_path / "other", template=template, hidden=16)
    found = look(tmp_path / "ds", other, rows_of(runs))
    assert code in codes(found) if code else codes(found) == set()
    assert found.statistics.verdict.startswith("Fix first: " if blocks else "Ready: ")
    if code in {None, "thoughts_stripped"}:  # thinking before an answer, in one text
        mixed = [with_step(run, thought="<think>\n\nI doubt it\n</think>\n\nso I look it up") for run in clean(3)]
        assert "thoughts_lost" not in codes(look(tmp_path / "mixed", other, rows_of(mixed)))


def test_steps_that_a_template_writes_as_one_turn_need_one_stop_token(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(GEMMA, special=GEMMA_SPECIAL, eos="<eos>", bos="<bos>")
    folder = save_tiny_model(tmp_path / "gemma", tokenizer=tokenizer, hidden=16)
    said = Step(actor=Actor.AGENT, message="One moment.")
    runs = [run.model_copy(update={"steps": (*run.steps[:-1], said, run.steps[-1])}) for run in clean(3)]
    report = look(tmp_path / "ds", folder, rows_of(runs))
    assert "no_stop_token" not in codes(report)
    counts = report.statistics.splits["train"]
    assert counts.turns_with_stop == counts.trained_turns == sum(len(run.agent_steps) for run in runs) - 3


def test_leaks_between_splits_are_reported_by_task_and_by_tokens(model_folder: Path, tmp_path: Path) -> None:
    runs = clean(4)
    train, rest = rows_of(runs[:3]), rows_of(runs[3:])
    assert codes(look(tmp_path / "a", model_folder, train, rest)) == set()
    other = with_step(runs[0], thought="another way")
    same_task = look(tmp_path / "b", model_folder, train, [DatasetRow(trajectory=other)])
    renamed = runs[0].model_copy(update={"task": runs[0].task.model_copy(update={"id": "other"})})
    same_tokens = look(tmp_path / "c", model_folder, train, [DatasetRow(trajectory=renamed)])
    for report, word in ((same_task, "task that is trained on"), (same_tokens, "exact tokens")):
        assert codes(report) == {"leak"}
        assert word in report.statistics.verdict


def test_tasks_that_ask_in_the_same_words_on_both_sides_leak(model_folder: Path, tmp_path: Path) -> None:
    """Another task id and another answer, so neither task nor tokens are the same."""
    one, two = (of_task(name, 2, question="the same?") for name in ("a", "b"))
    two = with_step(two, message="Nothing is the same.")
    report = look(tmp_path / "ds", model_folder, [DatasetRow(trajectory=one)], [DatasetRow(trajectory=two)])
    assert report.statistics.verdict.startswith("Fix first: 1 task outside train asks in the same words")
    assert "export again with `curation.near_duplicates=1.0`" in report.statistics.verdict


def test_the_verdict_counts_every_warning_as_a_fault_or_as_a_note(model_folder: Path, tmp_path: Path) -> None:
    """A leak blocks; calls without any schema do not."""
    one = of_task("same", 2).model_copy(update={"tools": ()})
    two = with_step(one, message="Another answer.")
    report = look(tmp_path / "ds", model_folder, [DatasetRow(trajectory=one)], [DatasetRow(trajectory=two)])
    named = [warning[1:].partition("]")[0] for warning in report.statistics.warnings]
    assert named[0] == "leak"
    assert "missing_schema" in named
    assert report.statistics.verdict.endswith(f". {counted(len(named) - 1, 'note')}: {', '.join(named[1:])}.")
    counts = dict(describe_counts(report))
    assert counts["no schemas"] == "times 1; rows 1; lines 1"
    assert "(" not in counts["tools"], "no empty list, and names in plain text"


def test_equal_rows_of_two_tasks_are_mended_by_what_is_advised(model_folder: Path, tmp_path: Path) -> None:
    one, two = (of_task(name, 2) for name in ("a", "b"))
    warnings = look(tmp_path / "a", model_folder, rows_of([one, two])).statistics.warnings
    (warning,) = [warning for warning in warnings if warning.startswith("[duplicates]")]
    assert "1 row (line 2) repeats" in warning
    assert "curation.near_duplicates=1.0" in warning
    kept = list(drop_near_duplicates([ValuedRun(one, 1.0), ValuedRun(two, 1.0)], 1.0, ExportCounts(), by_value=False))
    assert [run.trajectory.task.id for run in kept] == ["a"]
    group = [GroupRow(key=run.task.id or "", trajectories=(run, run), rewards=(1, 0)) for run in (one, two)]
    warnings = look(tmp_path / "b", model_folder, group, method="grpo").statistics.warnings
    assert not [warning for warning in warnings if "near_duplicates" in warning], "this kind does not take it"


LONG_ASKED = "Which of these items is cheap? " * 200
"""Alone more than the 1024 tokens of the model."""


def test_a_run_that_does_not_fit_gets_only_advice_that_helps(model_folder: Path, tmp_path: Path) -> None:
    """The model holds 1024 tokens: of four turns of about 520 tokens each, chunks hold all; a longer prompt or turn, none."""
    turn = {"message": "An item is cheap. " * 40}
    steps = [Step(actor=Actor.USER, message="Which?"), *[Step(actor=Actor.AGENT, **turn) for _ in range(4)]]
    fits_in_chunks = Trajectory(task=Task(id="a"), steps=tuple(steps))
    long_prompt = episode(2, question=LONG_ASKED)
    long_answer = Trajectory(steps=(steps[0], Step(actor=Actor.AGENT, message=LONG_ASKED)))
    cases = {
        "chunks": (fits_in_chunks, {}, "set chunk=true"),
        "wider chunks": (fits_in_chunks, {"max_length": 300}, "set chunk=true and max_length=1024"),
        "long prompt": (long_prompt, {}, "the longest prompt alone has"),
        "long prompt in chunks": (long_prompt, {"chunk": True}, "the longest prompt alone has"),
        "long answer": (long_answer, {}, "the longest turn alone has"),
    }
    for name, (run, settings, advice) in cases.items():
        rows = [DatasetRow(trajectory=run)]
        report = look(tmp_path / name, model_folder, rows, **settings)
        warnings = " ".join(report.statistics.warnings)
        assert "truncated" in warnings, name
        assert advice in warnings, name
        assert "train=true" not in warnings, name
        if "long" in name:
            assert "chunk=true" not in warnings, name
            assert "max_length" not in warnings, name
            assert "nothing_trained" in warnings, name
    chunked = look(tmp_path / "mended", model_folder, [DatasetRow(trajectory=fits_in_chunks)], chunk=True).statistics
    assert chunked.splits["train"].lost_steps == 0
    assert f"the longest run of {chunked.lengths.longest} tokens in chunks of at most 1024, nothing is cut" in (
        chunked.verdict
    )


def test_pairs_and_groups_and_labels_are_checked_for_what_they_need(model_folder: Path, tmp_path: Path) -> None:
    """Two groups of three: one with all rewards equal. Two pairs: one with equal sides."""
    good, bad = run_of(1, "It costs 40."), run_of(1, "No idea.", success=False)
    pairs = [PairRow(chosen=good, rejected=bad), PairRow(chosen=good, rejected=good)]
    report = look(tmp_path / "a", model_folder, pairs, method="dpo")
    assert report.statistics.checks["pairs"]["equal_sides"] == 1
    assert 0.5 < report.statistics.checks["pairs"]["mean_shared_prefix"] < 1
    assert "dropped" in codes(report)
    groups = [
        GroupRow(key=f"g{i}", trajectories=(good, bad, good), rewards=rewards)
        for i, rewards in enumerate([(1, 0, 1), (1, 1, 1)])
    ]
    report = look(tmp_path / "b", model_folder, groups, method="grpo")
    assert report.statistics.checks["groups"] == {"sizes": {"3": 2}, "zero_variance": 1}
    assert [row.part for row in report.rows[:3]] == ["run 1", "run 2", "run 3"]
    assert {span.advantage > 0 for span in report.rows[1].spans if span.advantage is not None} == {False}
    report = look(tmp_path / "c", model_folder, [LabelledRow(trajectory=good, desirable=True)], method="kto")
    assert "one_label" in codes(report)


def test_rows_for_reward_models_are_shown_as_runs(model_folder: Path, tmp_path: Path) -> None:
    """A step without a label is not learned from: of two agent turns, only the one labelled 1.0 is trained."""
    good, bad = run_of(1, "It costs 40."), run_of(1, "No idea.", success=False)
    pair = look(tmp_path / "a", model_folder, [PairRow(chosen=good, rejected=bad)], method="dpo", kind="reward")
    assert [row.part for row in pair.rows] == ["chosen", "rejected"]
    steps = look(
        tmp_path / "b", model_folder, [StepLabelRow(trajectory=good, labels=(None, 1.0))], method="sft", kind="prm"
    )
    trained = [span.text for span in steps.rows[0].spans if span.trained]
    assert trained == ["It costs 40.<|im_end|>"]
    for report in (pair, steps):
        assert "foreign_kind" in codes(report)


def test_a_row_that_would_stop_the_training_is_reported_and_does_not_stop_the_preview(
    model_folder: Path, tmp_path: Path
) -> None:
    only_thoughts = [
        run.model_copy(update={"steps": (*run.steps[:2], Step(actor=Actor.AGENT, thought="<think>x</think>"))})
        for run in clean(2)
    ]
    strict = save_tiny_model(tmp_path / "strict", template=STRIPS_ALL, hidden=16)
    report = look(tmp_path / "a", strict, [DatasetRow(trajectory=run) for run in [*only_thoughts, *clean(4)[2:]]])
    assert "refused" in codes(report)
    assert "training would stop at 2 rows (line 1, 2)" in report.statistics.verdict
    assert report.rows[0].dropped == "empty_turn"


def test_rows_are_shown_in_the_requested_order(model_folder: Path, tmp_path: Path) -> None:
    """Runs of 1 to 5 turns in the order 3, 1, 5, 2, 4; with 230 tokens the longer ones lose more."""
    rows = [DatasetRow(trajectory=episode(n, question=f"run {n}?")) for n in (3, 1, 5, 2, 4)]

    def places(show: str, **sample: Any) -> list[int]:
        report = look(tmp_path / "ds", model_folder, rows, sample=Sample(rows=2, show=show, **sample), max_length=230)  # type: ignore[arg-type]
        return list(dict.fromkeys(row.row for row in report.rows))

    assert places("first") == [1, 2]
    assert places("longest") == [3, 5]
    assert places("shortest") == [2, 4]
    assert places("truncated") == [3, 5]
    drawn = [places("random", seed=seed) for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert drawn.count(drawn[0]) < 4


def test_a_stopped_preview_ends_without_a_report(model_folder: Path, tmp_path: Path) -> None:
    class Stopped(Recorder):
        def should_stop(self) -> bool:
            return True

    rows = [DatasetRow(trajectory=episode())]
    assert look_or_stop(tmp_path, model_folder, rows) is not None
    assert look_or_stop(tmp_path, model_folder, rows, reporter=Stopped()) is None


@pytest.mark.parametrize("template", [MISTRAL, QWEN3])
def test_templates_that_break_the_chain_show_each_row_whole(template: str, tmp_path: Path) -> None:
    broken = save_tiny_model(tmp_path / "model", template=template, hidden=16)
    report = look(tmp_path / "ds", broken, [DatasetRow(trajectory=episode(3))])
    counts = report.statistics.splits["train"]
    assert (counts.token_rows, counts.trained_turns) == (len(report.rows), 3)
    assert sum(row.trained_tokens for row in report.rows) == counts.trained_tokens


def test_the_histogram_has_round_bins_and_percentiles_that_occur() -> None:
    """100 lengths 1..100: bins of 10 would be 11, of 5 would be 21; so 10. Median 50, 90 % 90, 99 % 99."""
    found = histogram(Counter(range(1, 101)))
    assert (found.n, found.bin_tokens, found.longest) == (100, 10, 100)
    assert found.counts == (9, *[10] * 9, 1)
    assert (found.median, found.p90, found.p99) == (50, 90, 99)
    assert histogram(Counter()).n == 0
