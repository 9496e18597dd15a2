"""Exported files in the hands of those that read them: `datasets`, pandas' Parquet, and two steps of each TRL trainer.

Skipped where the consumer is not installed (`pip install 'quintain[data,benchmarks]'`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from exported_runs import (
    SHORT,
    TOOLS,
    acts,
    arguments_in,
    asks,
    exported,
    lines_in,
    plain_pairs,
    rows_of,
    says,
    trajectory,
)
from quintain.exporters.registry import EXPORTERS
from quintain.records.dataset import DatasetKind, DatasetRow

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the consumers are theirs

needs_datasets = pytest.mark.skipif(find_spec("datasets") is None, reason="datasets is not installed")
needs_trl = pytest.mark.skipif(
    find_spec("trl") is None or find_spec("datasets") is None, reason="trl or datasets is not installed"
)
needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")

JSON_FORMATS = [(known.name, kind) for known in EXPORTERS for kind in sorted(known.kinds)]
JSON_FORMATS = [(name, kind) for name, kind in JSON_FORMATS if name in {"trl", "openai", "llamafactory", "axolotl"}]


def mixed() -> list[DatasetRow]:
    """Two rows whose tools and arguments have other keys and types: together they tempt Arrow to mix them."""
    other = ({"type": "function", "function": {"name": "buy", "parameters": {"type": "object", "required": ["n"]}}},)
    second = trajectory(
        asks(), acts(("buy", {"n": 2, "to": {"zip": "x"}}, "ok")), says("Done."), tools=other, task_id="b"
    )
    return [DatasetRow(trajectory=trajectory(*SHORT)), DatasetRow(trajectory=second)]


def loaded(path: Path | str, cache: Path, **files: Any) -> Any:
    import datasets

    return datasets.load_dataset(str(path), cache_dir=str(cache), **files)["train"]


def without_nulls(value: Any) -> Any:
    """The value without null keys of objects outside of arguments and schemas, which no template looks at."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


@needs_datasets
@pytest.mark.parametrize(("format", "kind"), JSON_FORMATS)
def test_datasets_loads_every_file_of_json_lines(format: str, kind: DatasetKind, tmp_path: Path) -> None:
    rows = plain_pairs(4) if (format, kind) == ("axolotl", "dpo") else rows_of(kind)
    _, folder = exported(format, rows, kind, tmp_path)
    name = "test" if kind == "benchmark" else "train"
    path = folder / f"{name}.jsonl"
    table = loaded("json", tmp_path / "cache", data_files={"train": str(path)})
    assert [without_nulls(row) for row in table] == [without_nulls(row) for row in lines_in(path)]


@needs_datasets
@pytest.mark.parametrize("format", ["trl", "trl_prompt_completion", "openai", "llamafactory", "axolotl"])
def test_no_key_of_another_row_comes_into_arguments_or_schemas(format: str, tmp_path: Path) -> None:
    _, folder = exported(format, mixed(), "sft", tmp_path)
    table = loaded("json", tmp_path / "cache", data_files={"train": str(folder / "train.jsonl")})
    said = [json.loads(a) if isinstance(a, str) else a for row in table for a in arguments_in(row)]
    if format != "llamafactory":  # there a call is text as a whole
        assert {json.dumps(arguments) for arguments in said} == {'{"id": 12}', '{"n": 2, "to": {"zip": "x"}}'}
    for row, names, required in ((table[0], ["search", "open"], ["query"]), (table[-1], ["buy"], ["n"])):
        tools = json.loads(row["tools"]) if isinstance(row["tools"], str) else row["tools"]
        functions = [tool.get("function", tool) for tool in tools]
        assert [function["name"] for function in functions] == names
        parameters = functions[0]["parameters"]
        parameters = json.loads(parameters) if isinstance(parameters, str) else parameters
        assert parameters["required"] == required
        if format != "openai":  # read as a file of chats by OpenAI itself, not through Arrow
            assert None not in parameters.values()


@needs_datasets
def test_rows_that_change_their_keys_after_ten_megabytes_load_as_they_are(tmp_path: Path) -> None:
    """`datasets` takes the types from the first 10 MB of a file, unless the folder's README declares them."""
    filler = DatasetRow(
        trajectory=trajectory(asks("x" * 400_000), acts(("open", {"id": 1}, "x")), says("Done."), tools=())
    )
    rows = [*[filler] * 30, mixed()[1]]
    for format in ("trl", "trl_prompt_completion"):
        _, folder = exported(format, rows, "sft", tmp_path / format)
        assert (folder / "train.jsonl").stat().st_size > 10_000_000
        table = loaded(folder, tmp_path / "cache" / format)
        assert list(arguments_in(table[len(table) - 1]))[-1] == {"n": 2, "to": {"zip": "x"}}
        assert list(arguments_in(table[0]))[:1] == [{"id": 1}]
        assert (table[0]["tools"], json.loads(table[len(table) - 1]["tools"])[0]["function"]["name"]) == (None, "buy")


@needs_datasets
@needs_pyarrow
@pytest.mark.parametrize("kind", ["sft", "dpo", "reward", "kto", "grpo", "prm", "text", "benchmark"])
def test_datasets_loads_the_hub_folder_by_its_card(kind: DatasetKind, tmp_path: Path) -> None:
    import datasets

    rows = mixed() if kind == "sft" else rows_of(kind)
    _, hub = exported("hub", rows, kind, tmp_path / "a")
    _, trl = exported("trl", rows, kind, tmp_path / "b")
    name = "test" if kind == "benchmark" else "train"
    table = datasets.load_dataset(str(hub), cache_dir=str(tmp_path / "cache"))[name]
    assert [without_nulls(row) for row in table] == lines_in(trl / f"{name}.jsonl")


@needs_pyarrow
def test_verl_rows_have_one_shape_and_text_arguments(tmp_path: Path) -> None:
    from pyarrow import parquet

    _, folder = exported("verl", mixed(), "sft", tmp_path / "a")
    rows = parquet.read_table(folder / "train.parquet").to_pylist()
    assert [json.loads(a) for row in rows for a in arguments_in(row)] == [{"id": 12}, {"n": 2, "to": {"zip": "x"}}]
    assert json.loads(rows[1]["tools"][0]["function"]["parameters"]) == {"type": "object", "required": ["n"]}
    assert [message["role"] for message in rows[0]["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert [row["enable_thinking"] for row in rows] == [False, False]


@needs_pyarrow
@pytest.mark.parametrize("kind", ["grpo", "benchmark"])
def test_verl_tasks_name_source_answer_and_tools(kind: DatasetKind, tmp_path: Path) -> None:
    from pyarrow import parquet

    _, folder = exported("verl", rows_of(kind, 2), kind, tmp_path)
    name = "test" if kind == "benchmark" else "train"
    rows = parquet.read_table(folder / f"{name}.parquet").to_pylist()
    assert [row["extra_info"]["index"] for row in rows] == [0, 1]
    row = rows[0]
    assert (row["data_source"], row["ability"]) == ("shop", "agent")
    assert row["reward_model"] == {"style": "rule", "ground_truth": "7"}
    assert row["prompt"][-1] == {"role": "user", "content": "What does the mango cost?"}
    assert row["extra_info"]["split"] == name
    created = {"create_kwargs": {"task_id": "t0", "ground_truth": "7"}}
    assert row["extra_info"]["tools_kwargs"] == {tool["function"]["name"]: created for tool in TOOLS}


# -- two steps of each trainer of TRL


def settings_of(kind: Any, folder: Path, **more: Any) -> Any:
    return kind(
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=2,
        learning_rate=1e-3,
        report_to="none",
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        **more,
    )


def losses_of(trainer: Any) -> list[float]:
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.fixture
def table(tmp_path: Path) -> Callable[[str, DatasetKind], Any]:
    """The exported folder of a kind, loaded."""

    def load(format: str, kind: DatasetKind) -> Any:
        rows = [*rows_of("sft", 3), *mixed()] if kind == "sft" else rows_of(kind)
        return loaded(exported(format, rows, kind, tmp_path)[1], tmp_path / "cache")

    return load


@needs_trl
@pytest.mark.parametrize("format", ["trl", "trl_prompt_completion", "hub"])
def test_trl_takes_two_steps_of_sft(format: str, table: Callable[[str, DatasetKind], Any], tmp_path: Path) -> None:
    from trl import SFTConfig, SFTTrainer

    from tiny_models import tiny_model, tiny_tokenizer

    tokenizer = tiny_tokenizer()
    trainer = SFTTrainer(
        tiny_model(tokenizer),
        settings_of(SFTConfig, tmp_path / "out", max_length=900),
        train_dataset=table(format, "sft"),
        processing_class=tokenizer,
    )
    read = tokenizer.decode(trainer.train_dataset[0]["input_ids"])
    assert '{"name": "open", "arguments": {"id": 12}}' in read
    assert '"name": "search"' in read.split("<tools>")[1].split("</tools>")[0]
    assert "null" not in "".join(tokenizer.decode(row["input_ids"]) for row in trainer.train_dataset)
    losses = losses_of(trainer)
    assert len(losses) == 2
    assert all(math.isfinite(loss) and loss > 0 for loss in losses)


@needs_trl
@pytest.mark.parametrize("kind", ["dpo", "kto", "reward"])
def test_trl_takes_two_steps_on_preferences(
    kind: DatasetKind, table: Callable[[str, DatasetKind], Any], tmp_path: Path
) -> None:
    import trl
    from transformers import Qwen3Config, Qwen3ForSequenceClassification

    from tiny_models import save_tiny_model, tiny_tokenizer

    named = {"dpo": "DPO", "kto": "KTO", "reward": "Reward"}[kind]
    tokenizer = tiny_tokenizer()
    # The reference model is loaded from where the model came from.
    model: Any = str(save_tiny_model(tmp_path / "model"))
    if kind == "reward":
        model = Qwen3ForSequenceClassification(Qwen3Config.from_pretrained(model, num_labels=1))
    trainer = getattr(trl, f"{named}Trainer")(
        model=model,
        args=settings_of(getattr(trl, f"{named}Config"), tmp_path / "out", max_length=900),
        train_dataset=table("trl", kind),
        processing_class=tokenizer,
    )
    losses = losses_of(trainer)
    assert len(losses) == 2
    assert all(map(math.isfinite, losses))


@needs_trl
def test_trl_takes_two_steps_of_grpo_with_the_columns_in_the_reward(
    table: Callable[[str, DatasetKind], Any], tmp_path: Path
) -> None:
    from trl import GRPOConfig, GRPOTrainer

    from tiny_models import tiny_model, tiny_tokenizer

    seen: list[tuple[str, str, Any]] = []

    def right(
        completions: list[Any], answer: list[str], task_id: list[str], metadata: list[str], **_: Any
    ) -> list[float]:
        seen.extend(zip(answer, task_id, map(json.loads, metadata), strict=True))
        return [float(len(completion[0]["content"]) % 3) for completion in completions]

    tokenizer = tiny_tokenizer()
    trainer = GRPOTrainer(
        tiny_model(tokenizer),
        right,
        args=settings_of(GRPOConfig, tmp_path / "out", num_generations=2, max_completion_length=8),
        train_dataset=table("trl", "grpo"),
        processing_class=tokenizer,
    )
    assert len(losses_of(trainer)) == 2
    assert {task for _, task, _ in seen} <= {"t0", "t1", "t2", "t3"}
    assert {answer for answer, _, _ in seen} == {"7"}
    assert all(metadata == {"answer": "7"} for _, _, metadata in seen)
