"""Datasets in the formats of other trainers: what is written, what is refused with its reason, and what comes back."""

from __future__ import annotations

import hashlib
import json
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from agent_logs import read
from exported_runs import (
    DEFAULT,
    SHORT,
    TOOLS,
    acts,
    arguments_in,
    asks,
    exported,
    frozen,
    lines_in,
    plain_pairs,
    rows_of,
    says,
    system,
    trajectory,
)
from quintain.errors import InvalidInput
from quintain.exporters.dataset_conversion import convert_dataset
from quintain.exporters.registry import EXPORTERS, exporter
from quintain.records.dataset import DatasetKind, DatasetRow, PairRow, Row, StepLabelRow
from quintain.records.trajectory import Action, Actor, ImagePart, Observation, Step, Task, TextPart, Trajectory, text_of

CASES = [(known.name, kind) for known in EXPORTERS for kind in sorted(known.kinds)]


def sft(*steps: Step, **fields: Any) -> list[DatasetRow]:
    return [DatasetRow(trajectory=trajectory(*steps, **fields))]


def done(run: Trajectory) -> list[Any]:
    """What a run says, calls and gets back, turn by turn; ids of calls are chance, and so is where thinking stands."""
    return [
        (
            step.actor,
            "\n\n".join(filter(None, [step.thought, text_of(step.message)])),
            [(call.tool, call.args) for call in step.actions],
            [text_of(observation.content) for observation in step.observations],
        )
        for step in run.steps
    ]


# -- all formats


@pytest.mark.parametrize(("format", "kind"), CASES)
def test_every_format_writes_its_kinds_with_hashes_and_equal_bytes_each_time(
    format: str, kind: DatasetKind, tmp_path: Path
) -> None:
    rows = plain_pairs(4) if (format, kind) == ("axolotl", "dpo") else rows_of(kind, 4)
    share = 0.0 if kind == "benchmark" else 0.5
    dataset, writer = frozen(rows, kind, tmp_path, validation=share), exporter(format)
    folder, again = tmp_path / "a", tmp_path / "b"
    first, second = (convert_dataset(dataset, writer, target) for target in (folder, again))
    assert first.rows == second.rows
    assert sum(first.rows.values()) > 0
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == {path.relative_to(again): path.read_bytes() for path in again.rglob("*") if path.is_file()}
    sums = dict(line.split("  ")[::-1] for line in files.pop(Path("SHA256SUMS")).decode().splitlines())
    assert sums == {str(name): hashlib.sha256(data).hexdigest() for name, data in files.items()}


def test_all_kinds_of_dataset_can_go_to_some_trainer() -> None:
    assert {kind for _, kind in CASES} == set(get_args(DatasetKind))


@pytest.mark.parametrize("format", [known.name for known in EXPORTERS if "sft" in known.kinds and known.name != "atif"])
def test_a_split_without_rows_leaves_no_file(format: str, tmp_path: Path) -> None:
    export, folder = exported(format, rows_of("sft", 1), "sft", tmp_path, validation=0.01)
    assert len(export.rows) == 1
    assert not list(folder.rglob("validation*"))


def test_an_export_of_which_nothing_is_left_says_why(tmp_path: Path) -> None:
    rows = sft(asks(), acts(("a b", {}, "x")), says("Done."))
    with pytest.raises(InvalidInput, match=r"tool name must .*: 1 rows.*atif"):
        exported("openai", rows, "sft", tmp_path)
    assert not (tmp_path / "openai").exists()


@pytest.mark.parametrize("format", ["trl", "openai", "axolotl", "llamafactory"])
def test_a_row_that_does_not_fit_is_dropped_with_its_reason_and_the_others_stay(format: str, tmp_path: Path) -> None:
    rows = [*rows_of("sft", 2), *[DatasetRow(trajectory=trajectory(task_id="w"), weight=0)]]
    export, folder = exported(format, rows, "sft", tmp_path)
    assert export.dropped == {"the row has weight 0": 1}
    assert len(lines_in(folder / "train.jsonl")) == 2


UNANSWERED = Step(actor=Actor.AGENT, actions=(Action(tool="open", args={}),))
NO_OBJECT = Step(actor=Actor.AGENT, actions=(Action(tool="open", raw_args='{"id": '),))
NAMELESS = trajectory(asks(), says("7."), tools=({"description": "x"},))
DROPPED: list[tuple[str, Row, str]] = [
    ("trl", *sft(asks(), NO_OBJECT), "expected a JSON object as the arguments of a call"),
    ("openai", *sft(asks(), UNANSWERED, says("Done.")), "a call inside the run"),
    ("openai", *sft(asks(), Step(actor=Actor.AGENT, thought="Hm.")), "with only a thought"),
    ("openai", *sft(asks(), acts(("no schema!", {}, "x")), says("Done.")), "a tool name"),
    ("openai", DatasetRow(trajectory=NAMELESS), "a tool name"),
    ("llamafactory", *sft(asks(), says("a"), says("b")), "do not alternate"),
    ("llamafactory", *sft(asks(), says("a"), system("New."), asks(), says("b")), "a system message inside the run"),
    ("knowlyr", *sft(asks(), says("a"), asks("b"), says("c")), "a user or system message inside the run"),
    ("knowlyr", *sft(asks(), says("a", thought="x\nAction: open({})")), "contains the marks of this format"),
    (
        "trl",
        PairRow(chosen=trajectory(), rejected=trajectory(system("You sell cars."), *SHORT[1:])),
        "the two runs of a pair begin with different messages",
    ),
]


@pytest.mark.parametrize(("format", "row", "reason"), DROPPED, ids=[f"{name}: {why}" for name, _, why in DROPPED])
def test_a_run_that_a_format_cannot_hold_is_dropped(format: str, row: Row, reason: str, tmp_path: Path) -> None:
    kind: DatasetKind = "dpo" if isinstance(row, PairRow) else "sft"
    export, _ = exported(format, [*rows_of(kind, 1), row], kind, tmp_path)
    assert [n for why, n in export.dropped.items() if reason in why] == [1]


def test_ids_of_calls_are_made_where_a_log_had_none_and_results_find_their_calls_in_order(tmp_path: Path) -> None:
    step = Step(
        actor=Actor.AGENT,
        actions=(Action(tool="search", args={"query": "a"}), Action(tool="open", args={"id": 1})),
        observations=(Observation(content="A"), Observation(content="B"), Observation(content="loose")),
    )
    export, folder = exported("trl", sft(asks(), step, step, says("Done.")), "sft", tmp_path)
    messages = lines_in(folder / "train.jsonl")[0]["messages"]
    ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert len(set(ids)) == 4
    results = [(m["tool_call_id"], m["name"], m["content"]) for m in messages if m["role"] == "tool"]
    assert results[:2] == [(ids[0], "search", "A"), (ids[1], "open", "B")]
    assert "results without a call become user turns (2)" in export.notes


def test_pictures_are_left_out_and_told(tmp_path: Path) -> None:
    seen = Step(actor=Actor.USER, message=(TextPart(text="Look."), ImagePart(uri="https://x.test/a.png")))
    export, folder = exported("openai", sft(seen, says("A cat.")), "sft", tmp_path)
    # The run's task has a prompt, but the user has spoken: it is not said twice.
    assert lines_in(folder / "train.jsonl")[0]["messages"][0] == {"role": "user", "content": "Look."}
    assert "images are left out (1)" in export.notes


def test_rows_stream_through_a_writer_in_constant_memory(tmp_path: Path) -> None:
    """Each run holds 100 kB; 60 of them are 6 MB, and no writer may hold more than a batch of Parquet's 100 small rows."""
    run = trajectory(asks("x" * 100_000), says("Done."))
    dataset = frozen([DatasetRow(trajectory=run)], "sft", tmp_path)
    for name in ("trl", "openai", "llamafactory", "axolotl", "knowlyr"):
        (tmp_path / name).mkdir()

        def rows(_: str) -> Iterator[DatasetRow]:
            return (DatasetRow(trajectory=run.model_copy()) for _ in range(60))

        tracemalloc.start()
        exporter(name).write(dataset, rows, tmp_path / name)  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3_000_000, name


# -- round trips through our own readers


@pytest.mark.parametrize("steps", [SHORT, DEFAULT], ids=["short", "thoughts, remarks, parallel calls"])
@pytest.mark.parametrize(
    ("format", "reader"), [("trl", "openai_chat"), ("openai", "openai_chat"), ("llamafactory", "sharegpt")]
)
def test_a_chat_export_comes_back_with_the_same_turns(
    format: str, reader: str, steps: tuple[Step, ...], tmp_path: Path
) -> None:
    run = trajectory(*steps)
    _, folder = exported(format, [DatasetRow(trajectory=run)], "sft", tmp_path)
    back = read(folder / "train.jsonl", folder)
    assert back.format == reader
    expected = run
    if format == "openai":
        expected = run.model_copy(update={"steps": tuple(s.model_copy(update={"thought": None}) for s in run.steps)})
    assert done(back.only) == done(expected)
    assert json.loads(json.dumps(back.only.tools)) == json.loads(json.dumps(TOOLS))


def test_a_knowlyr_export_comes_back_with_the_same_steps(tmp_path: Path) -> None:
    run = trajectory(
        asks(),
        acts(("search", {"query": "a (b) {c}"}, "Step 1:\nThought: not mine\n\nStep 2:\nThought: nor this")),
        acts(("open", {"id": 12}, "price 7\n\nand more"), thought="Now open it."),
        says("It costs 7."),
    )
    _, folder = exported("knowlyr", [DatasetRow(trajectory=run, reward=0.5)], "sft", tmp_path)
    back = read(folder / "train.jsonl", folder)
    assert back.format == "knowlyr"
    assert done(back.only) == done(run)
    assert (back.only.outcome.reward, back.only.agent, back.only.task.id) == (0.5, run.agent, "mango")


@pytest.mark.parametrize("format", ["trl", "openai", "llamafactory", "knowlyr"])
def test_a_pair_comes_back_as_the_same_two_runs(format: str, tmp_path: Path) -> None:
    rows = rows_of("dpo", 1)
    _, folder = exported(format, rows, "dpo", tmp_path)
    chosen, rejected = read(folder / "train.jsonl", folder).all
    pair = rows[0]
    assert isinstance(pair, PairRow)
    skip = 1 if format == "knowlyr" else 0  # it has no system prompts
    assert done(chosen) == done(pair.chosen)[skip:]
    assert done(rejected) == done(pair.rejected)[skip:]
    assert [run.extra["preference"]["side"] for run in (chosen, rejected)] == ["chosen", "rejected"]


@pytest.mark.parametrize("format", ["trl", "llamafactory"])
def test_labels_come_back(format: str, tmp_path: Path) -> None:
    _, folder = exported(format, rows_of("kto", 2), "kto", tmp_path)
    back = read(folder / "train.jsonl", folder)
    assert [run.extra["desirable"] for run in back.all] == [False, True]


def test_a_session_trace_comes_back_with_the_same_turns(tmp_path: Path) -> None:
    run = trajectory()
    export, folder = exported("hf_sts", [DatasetRow(trajectory=run)], "sft", tmp_path)
    assert export.rows == {"train": 1}
    back = read(folder / "train" / f"{run.id}.jsonl", folder)
    assert back.format == "hf_sts"
    assert done(back.only) == done(run)
    assert (back.only.agent.name, back.only.agent.model) == ("clerk", "qwen3-4b")


# -- TRL


def test_trl_messages_hold_arguments_as_objects_and_tools_as_text(tmp_path: Path) -> None:
    export, folder = exported("trl", sft(), "sft", tmp_path)
    row = lines_in(folder / "train.jsonl")[0]
    assert list(arguments_in(row["messages"])) == [{"query": "mango"}, {"id": 12}, {"query": "offers"}]
    assert json.loads(row["tools"]) == json.loads(json.dumps(TOOLS))
    assert row["messages"][2]["reasoning_content"] == "First I look it up."
    assert any("max_length" in note for note in export.notes)


def test_trl_completions_are_the_turns_that_may_be_trained_on_each_after_all_that_came_before(tmp_path: Path) -> None:
    steps = (asks(), says("Old.", train=False), asks("And now?"), acts(("open", {"id": 1}, "x")), says("New."))
    export, folder = exported("trl_prompt_completion", sft(*steps), "sft", tmp_path)
    rows = lines_in(folder / "train.jsonl")
    assert [[m["role"] for m in row["prompt"]] for row in rows] == [
        ["user", "assistant", "user"],
        ["user", "assistant", "user", "assistant", "tool"],
    ]
    assert [row["completion"][0]["content"] for row in rows] == ["", "New."]
    assert export.rows == {"train.jsonl": 2}


def test_trl_messages_tell_how_many_masks_they_lose(tmp_path: Path) -> None:
    rows = sft(asks(), says("Old.", copied_context=True), asks("And now?"), says("New."))
    export, _ = exported("trl", rows, "sft", tmp_path)
    assert "masked turns are trained on: the format has no loss mask (1)" in export.notes


def test_trl_prompts_of_groups_have_columns_for_reward_functions(tmp_path: Path) -> None:
    _, folder = exported("trl", rows_of("grpo", 1), "grpo", tmp_path)
    row = lines_in(folder / "train.jsonl")[0]
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert (row["task_id"], row["answer"], row["recorded_rewards"]) == ("t0", "7", [1.0, 0.0])
    assert json.loads(row["metadata"]) == {"answer": "7"}


def test_trl_steps_end_with_the_step_that_their_label_judges(tmp_path: Path) -> None:
    run = trajectory(asks("2 + 2?"), says("Hm.", train=False), acts(("search", {"query": "x"}, "4")), says("4."))
    rows = [StepLabelRow(trajectory=run, labels=(None, 0.4, 1.0))]
    export, folder = exported("trl", rows, "prm", tmp_path)
    assert lines_in(folder / "train.jsonl") == [
        {
            "prompt": "2 + 2?",
            "completions": ['Hm.\nAction: search {"query": "x"}', "Observation: 4\n4."],
            "labels": [False, True],
        }
    ]
    assert "steps without a label are joined to the next labelled step (1)" in export.notes
    assert any("rounded" in note for note in export.notes)


# -- OpenAI

KEYS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "tool": {"role", "content", "tool_call_id"},
    "assistant": {"role", "content", "tool_calls", "weight"},
}


def check_openai(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> None:
    """The rules of OpenAI's file validation: known keys and roles, text arguments, every call answered right after."""
    waiting: list[str] = []
    for message in messages:
        assert message.keys() <= KEYS[message["role"]]
        if message["role"] == "tool":
            assert isinstance(message["content"], str)
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "a call without its result"
        calls = message.get("tool_calls", [])
        assert message["content"] if not calls else message["content"] is None or message["content"]
        for call in calls:
            assert call["type"] == "function"
            assert isinstance(call["function"]["arguments"], str)
            assert call["function"]["name"] in {tool["function"]["name"] for tool in tools or ()}
        waiting = [call["id"] for call in calls]
        assert message.get("weight", 1) in {0, 1}
    assert len(messages) > 0


def test_openai_rows_keep_its_rules_and_say_masks_as_weights(tmp_path: Path) -> None:
    rows = sft(*DEFAULT, asks("Thanks."), says("Old.", train=False), asks("Sure?"), acts(("open", {"id": 1}, "gone")))
    export, folder = exported("openai", rows, "sft", tmp_path)
    row = lines_in(folder / "train.jsonl")[0]
    check_openai(row["messages"], row["tools"])
    assert [m["weight"] for m in row["messages"] if m["role"] == "assistant"] == [1, 1, 1, 0, 1]
    assert row["messages"][-1]["role"] == "assistant"
    assert row["parallel_tool_calls"] is True
    assert "thoughts of the agent are lost (1)" in export.notes
    assert any(note.startswith("results after the last agent turn are left out") for note in export.notes)
    assert read(folder / "train.jsonl", folder).only.agent_steps[3].train is False


def test_openai_arguments_are_what_the_model_wrote(tmp_path: Path) -> None:
    raw = '{ "id":12 }'
    step = Step(
        actor=Actor.AGENT,
        actions=(Action(tool="open", args={"id": 12}, raw_args=raw, call_id="c"),),
        observations=(Observation(content="x", call_id="c"),),
    )
    _, folder = exported("openai", sft(asks(), step, says("Done.")), "sft", tmp_path)
    assert next(iter(arguments_in(lines_in(folder / "train.jsonl")))) == raw


@pytest.mark.parametrize("format", ["openai", "axolotl", "llamafactory"])
@pytest.mark.parametrize("words", [{"input_schema": {}}, {"inputSchema": {}}, {"type": "function", "parameters": {}}])
def test_schemas_in_the_words_of_other_makers_keep_their_parameters(
    format: str, words: dict[str, Any], tmp_path: Path
) -> None:
    """Anthropic's, MCP's and those of Responses, as a run that was recorded in our own form may hold them."""
    schema = TOOLS[0]["function"]["parameters"]
    tool = {"name": "search", **{key: value or schema for key, value in words.items()}}
    _, folder = exported(
        format, [DatasetRow(trajectory=trajectory(asks(), says("7."), tools=(tool,)))], "sft", tmp_path
    )
    tools = lines_in(folder / "train.jsonl")[0]["tools"]
    (held,) = json.loads(tools) if isinstance(tools, str) else tools
    function = held.get("function", held)
    parameters = function["parameters"]
    assert (json.loads(parameters) if isinstance(parameters, str) else parameters) == schema
    assert set(function) == {"name", "parameters"}


@pytest.mark.parametrize("format", ["openai", "llamafactory", "axolotl"])
def test_pairs_that_differ_before_their_last_turn_do_not_fit_formats_of_one_answer(format: str, tmp_path: Path) -> None:
    text = {"tools": ()}
    fits = PairRow(chosen=trajectory(asks(), says("7."), **text), rejected=trajectory(asks(), says("8."), **text))
    far = PairRow(
        chosen=trajectory(asks(), says("a"), asks("x"), says("b"), **text),
        rejected=trajectory(asks(), says("c"), asks("x"), says("d"), **text),
    )
    export, folder = exported(format, [fits, far], "dpo", tmp_path)
    assert export.dropped == {"the two runs of a pair differ in more than their last turn": 1}
    row = lines_in(folder / "train.jsonl")[0]
    assert {"openai": "input", "llamafactory": "chosen", "axolotl": "chosen"}[format] in row


def test_openai_preferences_hold_one_answer_each(tmp_path: Path) -> None:
    _, folder = exported("openai", rows_of("dpo", 1), "dpo", tmp_path)
    row = lines_in(folder / "train.jsonl")[0]
    assert row.keys() == {"input", "preferred_output", "non_preferred_output"}
    check_openai(row["input"]["messages"], row["input"]["tools"])
    for side in ("preferred_output", "non_preferred_output"):
        assert [message["role"] for message in row[side]] == ["assistant"]
        assert row[side][0].keys() == {"role", "content"}


# -- LLaMA-Factory


def check_llamafactory(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows as LLaMA-Factory's sharegpt converter and function formatter take them.

    Odd places are people and results, even ones the agent; pairs end with people, all others with the agent; a
    `function_call` is JSON after a thought, or inside `<tool_call>` after any text; `tools` is JSON or empty.
    """
    entry = json.loads((folder / "dataset_info.json").read_text())[name]
    assert entry["formatting"] == "sharegpt"
    columns = entry["columns"]
    rows = lines_in(folder / entry["file_name"])
    for row in rows:
        assert set(columns.values()) <= row.keys()
        turns = row[columns["messages"]]
        sides = [row[columns[side]] for side in ("chosen", "rejected") if side in columns]
        assert len(turns) % 2 == (1 if entry.get("ranking") else 0)
        assert len(sides) == (2 if entry.get("ranking") else 0)
        for place, turn in enumerate(turns):
            assert turn["from"] in (("human", "observation"), ("gpt", "function_call"))[place % 2]
        assert all(side["from"] in ("gpt", "function_call") for side in sides)
        for turn in [*turns, *sides]:
            if turn["from"] == "function_call":
                found = re.search("<tool_call>(.*?)</tool_call>", turn["value"], re.DOTALL)
                written = (
                    found[1] if found else re.sub("<think>\n(.*?)\n</think>\n\n", "", turn["value"], flags=re.DOTALL)
                )
                calls = json.loads(written)
                for call in calls if isinstance(calls, list) else [calls]:
                    assert isinstance(call["name"], str)
                    assert isinstance(call["arguments"], dict)
        assert isinstance(row[columns["system"]], str)
        assert isinstance(json.loads(row[columns["tools"]] or "[]"), list)
        assert "kto_tag" not in columns or isinstance(row[columns["kto_tag"]], bool)
    return rows


@pytest.mark.parametrize("kind", ["sft", "dpo", "reward", "kto"])
def test_llamafactory_rows_keep_its_rules(kind: DatasetKind, tmp_path: Path) -> None:
    _, folder = exported("llamafactory", rows_of(kind), kind, tmp_path, validation=0.5)
    names = json.loads((folder / "dataset_info.json").read_text())
    assert set(names) == {"fruit_train", "fruit_validation"}
    assert sum(len(check_llamafactory(folder, name)) for name in names) == 4


def test_llamafactory_joins_parallel_results_and_says_thoughts_and_remarks_before_calls(tmp_path: Path) -> None:
    tagged = acts(("search", {"query": "</tool_call><tool_call>"}, "x"), thought="Odd.")
    rows = sft(*DEFAULT[:-1], tagged, says("It costs 7."))
    export, folder = exported("llamafactory", rows, "sft", tmp_path)
    row = check_llamafactory(folder, "fruit_train")[0]
    assert row["system"] == "You sell fruit."
    assert [turn["from"] for turn in row["conversations"]] == ["human", *["function_call", "observation"] * 3, "gpt"]
    assert row["conversations"][1]["value"].startswith("<think>\nFirst I look it up.\n</think>\n\n{")
    assert row["conversations"][3]["value"].startswith("Two things at once.<tool_call>[{")
    assert row["conversations"][4]["value"] == "price 7\n</tool_response>\n<tool_response>\nnone"
    assert "results of parallel calls are joined to one observation (1)" in export.notes
    back = read(folder / "train.jsonl", folder).only
    assert done(back) == done(rows[0].trajectory)


# -- Axolotl


def test_axolotl_says_of_every_turn_whether_it_is_trained_and_its_config_names_the_fields(tmp_path: Path) -> None:
    rows = [*rows_of("sft", 3), *sft(asks(), says("Old.", train=False), asks("Now?"), says("New."), task_id="m")]
    _, folder = exported("axolotl", rows, "sft", tmp_path, validation=0.4)
    config = yaml.safe_load((folder / "axolotl.yaml").read_text())
    (entry,), (test,) = config["datasets"], config["test_datasets"]
    assert (entry["type"], entry["roles_to_train"], entry["ds_type"]) == ("chat_template", ["assistant"], "json")
    assert (entry["path"], test["path"], test["type"]) == ("train.jsonl", "validation.jsonl", "chat_template")
    lines = [*lines_in(folder / "train.jsonl"), *lines_in(folder / "validation.jsonl")]
    messages = [message for line in lines for message in line[entry["field_messages"]]]
    agents = [message for message in messages if message["role"] == "assistant"]
    assert [m[entry["message_field_training"]] for m in agents].count(False) == 1
    assert all("train" not in m for m in messages if m["role"] != "assistant")
    assert all(isinstance(json.loads(arguments), dict) for arguments in arguments_in(messages))
    for tool in lines[0][entry["field_tools"]]:
        assert json.loads(tool["function"]["parameters"])["type"] == "object"


def test_axolotl_pairs_of_text_are_dpo(tmp_path: Path) -> None:
    pair = PairRow(chosen=trajectory(asks(), says("7."), tools=()), rejected=trajectory(asks(), says("8."), tools=()))
    export, folder = exported("axolotl", [pair, *rows_of("dpo", 1)], "dpo", tmp_path)
    config = yaml.safe_load((folder / "axolotl.yaml").read_text())
    assert (config["rl"], config["datasets"][0]["type"]) == ("dpo", "chat_template.default")
    assert lines_in(folder / "train.jsonl") == [
        {
            "messages": [{"role": "user", "content": "What does the mango cost?"}],
            "chosen": {"role": "assistant", "content": "7."},
            "rejected": {"role": "assistant", "content": "8."},
        }
    ]
    assert export.dropped == {"a pair has tools, and Axolotl's preference rows hold text alone": 1}


# -- knowlyr


def test_knowlyr_rows_have_its_columns(tmp_path: Path) -> None:
    task = Task(id="t", prompt="Fix it.", metadata={"repo": "a/b", "test_command": "pytest"})
    rows = [
        DatasetRow(trajectory=trajectory(asks("Fix it."), acts(("open", {"id": 1}, "x"), thought="Look."), task=task))
    ]
    export, folder = exported("knowlyr", rows, "sft", tmp_path)
    row = lines_in(folder / "train.jsonl")[0]
    assert json.loads(row.pop("input")) == {"repo": "a/b", "base_commit": "", "test_command": "pytest"}
    assert row == {
        "instruction": "Fix it.",
        "response": 'Step 1:\nThought: Look.\nAction: open({"id": 1})\nObservation: x',
        "task_id": "t",
        "reward": 1.0,
        "metadata": {"agent_framework": "clerk", "agent_model": "qwen3-4b", "total_steps": 1},
    }
    assert "system prompts and schemas of tools are lost (1)" in export.notes


def test_knowlyr_keeps_low_rewards_in_groups_and_its_benchmark_is_one_array(tmp_path: Path) -> None:
    _, folder = exported("knowlyr", rows_of("grpo", 1), "grpo", tmp_path / "a")
    row = lines_in(folder / "train.jsonl")[0]
    assert [answer["reward"] for answer in row["trajectories"]] == [1.0, 0.0]
    assert (row["task_id"], row["prompt"]) == ("t0", "What does the mango cost?")
    assert all("step_rewards" not in answer for answer in row["trajectories"])
    (group,) = rows_of("grpo", 1)
    steps = [len(run.agent_steps) for run in group.trajectories]
    values = ((0.25,) * steps[0], (None,) * steps[1])
    _, folder = exported("knowlyr", [group.model_copy(update={"step_values": values})], "grpo", tmp_path / "c")
    first, second = lines_in(folder / "train.jsonl")[0]["trajectories"]
    assert first["step_rewards"] == [0.25] * steps[0], "of the scorer that the dataset was exported with"
    assert "step_rewards" not in second, "a step without a value is not 0"
    _, folder = exported("knowlyr", rows_of("benchmark", 2), "benchmark", tmp_path / "b")
    tasks = json.loads((folder / "benchmark.json").read_text())
    assert [task["task_id"] for task in tasks] == ["t0", "t1"]
    assert tasks[0]["expected_reward_range"] == [0.0, 1.0]
    assert tasks[0]["reference_trajectories"] == [
        {"agent_model": None, "reward": 1.0, "success": True, "total_steps": 2}
    ]


# -- session traces and the Hub


def test_session_traces_are_written_once_a_run_under_names_that_stay_in_the_folder(tmp_path: Path) -> None:
    run = trajectory(session_id="../../evil")
    rows = [PairRow(chosen=run, rejected=trajectory(*SHORT, task_id=f"t{i}")) for i in range(2)]
    export, folder = exported("hf_sts", rows, "dpo", tmp_path)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.jsonl"))
    assert len(files) == export.rows["train"] == 3
    assert all(re.fullmatch(r"train/traj-[0-9a-f]{16}\.jsonl", name) for name in files)
    head, *messages = lines_in(folder / "train" / f"{run.id}.jsonl")
    assert (head["type"], head["harness"], head["id"]) == ("session", "clerk", "../../evil")
    assert messages[2]["message"]["reasoningContent"] == "First I look it up."
    assert all(isinstance(arguments, str) for arguments in arguments_in(messages))


def test_a_hub_card_tells_files_filters_masks_models_and_license(tmp_path: Path) -> None:
    rows = [*rows_of("sft", 5), *sft(asks(), says("Old.", train=False), asks("b"), says("New."), task_id="m")]
    export, folder = exported("hub", rows, "sft", tmp_path, validation=0.3)
    card = (folder / "README.md").read_text()
    header = yaml.safe_load(card.split("---\n")[1])
    files = header["configs"][0]["data_files"]
    assert {entry["path"] for entry in files} == set(export.rows)
    assert all((folder / entry["path"]).is_file() for entry in files)
    assert (header["license"], header["size_categories"]) == ("unknown", ["n<1K"])
    assert {"agent-traces", "trl"} <= set(header["tags"])
    sections = ("Splits", "Sources", "Filters", "Masks", "Redactions", "Source models and their terms", "License")
    assert all(f"\n## {section}\n" in card for section in sections)
    assert "12 turns of agents, of which 1 are context" in card
    assert "| qwen3-4b | 12 |" in card


def test_text_from_logs_is_no_markup_in_a_hub_card(tmp_path: Path) -> None:
    run = trajectory(agent={"name": "x", "model": "m | <script>\n# [x](y)"})
    _, folder = exported("hub", [DatasetRow(trajectory=run)], "sft", tmp_path)
    card = (folder / "README.md").read_text()
    assert "<script>" not in card
    assert "\n# [x]" not in card


def test_weights_and_margins_of_pairs_are_told_and_a_weight_of_0_leaves_a_pair_out(tmp_path: Path) -> None:
    rows = [
        pair.model_copy(update={"weight": weight}) for pair, weight in zip(rows_of("dpo", 3), (1, 2, 0), strict=True)
    ]
    export, _ = exported("trl", rows, "dpo", tmp_path)
    assert export.dropped == {"the row has weight 0": 1}
    assert {"weights of rows are lost (1)", "margins of pairs are lost (2)"} <= export.notes.keys()
