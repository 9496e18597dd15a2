"""Rows made for training become runs: instructions, preferences, labels, step labels, questions, knowlyr's and our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_logs import detected, outline, read_file, read_log, read_rows
from quintain.importers.harnesses.knowlyr_text import parse_steps
from quintain.records.trajectory import Trajectory, read_trajectory
from small_logs import small_log

NO_RUN = "expected a run, got a task without an agent turn"
TOOL = {"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": {}}}}
ASKED = {"role": "user", "content": "Where is order 7?"}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def shown(run: Trajectory) -> list[tuple[str, Any]]:
    return [(step.actor.value, step.message) for step in run.steps]


def reader(row: Any, shape: str = "lines") -> str | None:
    found = detected([row], shape)
    return found.importer.name if found.importer else None


ALPACA = {
    "instruction": "Translate.",
    "input": "chat",
    "output": "cat",
    "system": "French.",
    "history": [["a", "b"], ["c", "d"]],
}


def test_alpaca_rows_with_system_and_history(tmp_path: Path) -> None:
    (run, dolly), report = read_rows(
        tmp_path,
        "alpaca",
        [ALPACA, {"instruction": "Sum up.", "context": "Long.", "response": "Short.", "category": "s"}, {"input": "x"}],
    )
    assert shown(run) == [
        ("system", "French."), ("user", "a"), ("agent", "b"), ("user", "c"), ("agent", "d"), ("user", "Translate.\nchat"), ("agent", "cat"),
    ]  # fmt: skip
    assert shown(dolly) == [("user", "Sum up.\nLong."), ("agent", "Short.")]
    assert (run.outcome.status, dolly.extra) == ("unknown", {"row": {"category": "s"}})
    assert report.rejected == [(3, NO_RUN)]


PAIRS: dict[str, dict[str, Any]] = {
    "trl explicit": {"prompt": [ASKED], "chosen": [said("Here.")], "rejected": [said("No idea.")]},
    "trl implicit": {"chosen": [ASKED, said("Here.")], "rejected": [ASKED, said("No idea.")]},
    "trl text": {"prompt": "Where is order 7?", "chosen": "Here.", "rejected": "No idea."},
    "llama-factory v0": {
        "conversations": [{"from": "human", "value": "Where is order 7?"}],
        "chosen": {"from": "gpt", "value": "Here."},
        "rejected": {"from": "gpt", "value": "No idea."},
    },
    "llama-factory alpaca": {"instruction": "Where is", "input": "order 7?", "chosen": "Here.", "rejected": "No idea."},
    "llama-factory v1": {"chosen_messages": [ASKED, said("Here.")], "rejected_messages": [ASKED, said("No idea.")]},
    "openai": {
        "input": {"messages": [ASKED], "tools": [TOOL]},
        "preferred_output": [said("Here.")],
        "non_preferred_output": [said("No idea.")],
    },
    "ultrafeedback": {
        "prompt": "Where is order 7?",
        "chosen": [ASKED, said("Here.")],
        "rejected": [ASKED, said("No idea.")],
        "score_chosen": 8.5,
        "score_rejected": 3,
    },
    "annotations": {
        "instruction": "Where is order 7?",
        "output_1": "No idea.",
        "generator_1": "gpt-4",
        "output_2": "Here.",
        "generator_2": "small",
        "annotator": "weighted",
        "preference": 1.98,
    },
    "messages as the prompt": {"messages": [ASKED], "chosen": "Here.", "rejected": "No idea."},
    "texts": {"text_chosen": [ASKED, said("Here.")], "text_rejected": [ASKED, said("No idea.")]},
}


@pytest.mark.parametrize("name", PAIRS)
def test_both_sides_of_a_pair_are_runs_of_one_group(tmp_path: Path, name: str) -> None:
    row = PAIRS[name]
    assert reader(row) == "preference"
    (chosen, rejected), report = read_rows(tmp_path, "preference", [row])
    asked = "Where is\norder 7?" if "alpaca" in name else "Where is order 7?"
    assert shown(chosen) == [("user", asked), ("agent", "Here.")]
    assert shown(rejected) == [("user", asked), ("agent", "No idea.")]
    assert chosen.group_id == rejected.group_id is not None
    assert (chosen.tags, rejected.tags) == (("preference:chosen",), ("preference:rejected",))
    pair = chosen.extra["preference"]["pair"]
    assert [run.extra["preference"] for run in (chosen, rejected)] == [
        {"pair": pair, "side": s} for s in ("chosen", "rejected")
    ]
    assert (chosen.outcome.status, chosen.outcome.reward, chosen.task.prompt) == ("unknown", None, asked)
    scores = [{"score": 8.5}, {"score": 3.0}] if name == "ultrafeedback" else [{}, {}]
    assert [run.outcome.scores for run in (chosen, rejected)] == scores
    assert chosen.tools == ((TOOL,) if name == "openai" else ())
    assert report.n_rejected == 0


def test_an_annotation_of_alpaca_eval_names_its_models_and_a_tie_is_rejected(tmp_path: Path) -> None:
    row = PAIRS["annotations"]
    (chosen, rejected), _ = read_rows(tmp_path, "preference", [row])
    assert (chosen.agent.model, rejected.agent.model) == ("small", "gpt-4")
    runs, report = read_rows(tmp_path, "preference", [row, {**row, "preference": 1.5}, {**row, "preference": None}])
    assert (len(runs), report.n_rejected) == (2, 2)


@pytest.mark.parametrize(
    ("row", "better", "models"),
    [
        ({"prompt": "P?", "candidate_a": "one", "candidate_b": "two", "winner": "b"}, "two", (None, None)),
        ({"prompt": "P?", "response_0": "one", "response_1": "two", "better_response_id": 0}, "one", (None, None)),
        ({"question": "P?", "response_A": "one", "response_B": "two", "label": "A>B"}, "one", (None, None)),
        ({"question": "P?", "response_A": "one", "response_B": "two", "label": "A<<B"}, "two", (None, None)),
        (
            {
                "conversation_a": [ASKED, said("one")],
                "conversation_b": [ASKED, said("two")],
                "model_a": "small",
                "model_b": "large",
                "winner": "model_b",
            },
            "two",
            ("large", "small"),
        ),
    ],
)
def test_a_verdict_that_names_one_of_two_answers_makes_a_pair(
    tmp_path: Path, row: dict[str, Any], better: str, models: tuple[str | None, str | None]
) -> None:
    assert reader(row) == "preference"
    tie = {**row, next(name for name in ("winner", "better_response_id", "label") if name in row): "A=B"}
    (chosen, rejected), report = read_rows(tmp_path, "preference", [row, tie])
    assert (chosen.steps[-1].message, {chosen.steps[-1].message, rejected.steps[-1].message}) == (
        better,
        {"one", "two"},
    )
    assert (chosen.agent.model, rejected.agent.model) == models
    ((line, reason),) = report.rejected
    assert (line, "got a tie or no verdict" in reason) == (2, True)


RIVALS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "helpsteer3": (
        {"context": [ASKED, said("Which shop?"), ASKED], "response1": "two", "response2": "one"},
        {"overall_preference": 3},
    ),
    "helpsteer2": ({"prompt": "Where?", "response_1": "one", "response_2": "two"}, {"preference_strength": -2}),
    "shp": (
        {"history": "Where?", "human_ref_A": "one it is", "human_ref_B": "two it is", "c_root_id_A": "x", "c_root_id_B": "y"},
        {"score_A": 20, "score_B": 10},
    ),
    "arena": (
        {"prompt": '["Hi?", "Where?"]', "response_a": '["Hello", "two"]', "response_b": '["Ho", "one"]', "model_b": "large"},
        {"winner_model_a": 0, "winner_model_b": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIVALS)
def test_a_leaning_or_ratings_say_which_of_two_answers_is_better(tmp_path: Path, name: str) -> None:
    answers, verdict = RIVALS[name]
    assert reader({**answers, **verdict}) == "preference"
    tie = {**answers, **dict.fromkeys(verdict, 0)}
    (chosen, rejected), report = read_rows(tmp_path, "preference", [{**answers, **verdict}, tie])
    assert [str(run.steps[-1].message)[:3] for run in (chosen, rejected)] == ["one", "two"]
    assert [step.train for step in chosen.steps if step.actor == "agent"] == {
        "helpsteer3": [False, None],
        "arena": [None, None],
    }.get(name, [None])
    assert (chosen.steps[0].actor, chosen.agent.model) == ("user", "large" if name == "arena" else None)
    assert [run.outcome.scores.get("score") for run in (chosen, rejected)] == (
        [20, 10] if name == "shp" else [None, None]
    )
    assert "got a tie or no verdict" in report.rejected[0][1]


def test_what_two_answers_reply_to_is_in_the_input_the_trajectory_or_a_context(tmp_path: Path) -> None:
    sides = {"chosen": "Here.", "rejected": "No idea."}
    rows = [
        {"system": "You are kind.", "input": "Where is it?", **sides},
        {"trajectory": [{"from": "user", "value": "Where is it?"}], **sides},
        {"context": "Seven shops.", "question": "Where is it?", **sides},
        {"messages": [{"role": "user", "content": "Where is it?"}], "chosen_response": said("Here."), "rejected_response": said("No.")},
    ]  # fmt: skip
    runs, _ = read_rows(tmp_path, "preference", rows)
    asked = [(run.task.prompt, run.steps[-1].message) for run in runs[::2]]
    assert asked == [
        ("Where is it?", "Here."),
        ("Where is it?", "Here."),
        ("Where is it?\nSeven shops.", "Here."),
        ("Where is it?", "Here."),
    ]
    assert shown(runs[0])[0] == ("system", "You are kind.")


def test_answers_that_are_json_objects_stay_text_and_an_object_is_refused_by_its_keys(tmp_path: Path) -> None:
    row = {"prompt": "Sum up.", "chosen": '{"sum": 3}', "rejected": '["a"]'}
    (chosen, rejected), report = read_rows(tmp_path, "preference", [row, {**row, "chosen": {"sum": 3}}])
    assert (shown(chosen)[-1], shown(rejected)[-1]) == (("agent", '{"sum": 3}'), ("agent", '["a"]'))
    assert report.rejected == [
        (2, "expected text or messages in chosen, got an object with the keys sum; a pair needs two answers")
    ]


def test_the_only_text_before_two_answers_is_what_they_answer(tmp_path: Path) -> None:
    sides = {"chosen": "Once upon a time.", "rejected": "No."}
    (chosen, _, alone, _), report = read_rows(
        tmp_path, "preference", [{"request": "Tell me a story.", **sides}, {**sides, "why": "It is a story."}]
    )
    assert shown(chosen)[0] == ("user", "Tell me a story.")
    assert shown(alone) == [("agent", "Once upon a time.")]
    assert any("no message of a user" in note for note in report.notes)


def test_rows_without_a_label_among_labelled_ones_are_runs_without_a_mark(tmp_path: Path) -> None:
    chat = [ASKED, said("Here.")]
    (good, plain), report = read_rows(
        tmp_path, "preference", [{"conversations": chat, "label": True}, {"conversations": chat}]
    )
    assert (good.extra.get("desirable"), plain.extra.get("desirable")) == (True, None)
    assert (shown(plain), report.n_rejected) == (shown(good), 0)


def test_an_answer_under_another_name_or_of_another_type_is_named_in_the_reason(tmp_path: Path) -> None:
    _, report = read_rows(
        tmp_path, "prompt_completion", [{"prompt": "P?", "raw_output": "It is 4 now."}, {"prompt": "P?"}]
    )
    assert "got a prompt beside raw_output" in report.rejected[0][1]
    assert report.rejected[1] == (2, NO_RUN)
    _, report = read_rows(tmp_path, "question_answer", [{"question": "Two roots?", "answer": ["1", "2"]}])
    assert report.rejected == [(1, "expected an answer as text, got a list")]


def test_rows_of_ms_swift_are_chats_and_pairs(tmp_path: Path) -> None:
    row = {"query": "Where is order 7?", "response": "Here.", "history": [["Hi", "Hello"]], "system": "Be kind."}
    ((run,), _) = read_rows(tmp_path, "alpaca", [row])
    said_before = [("system", "Be kind."), ("user", "Hi"), ("agent", "Hello"), ("user", "Where is order 7?")]
    assert (reader(row), shown(run)) == ("alpaca", [*said_before, ("agent", "Here.")])
    assert reader({"query": "Where is it?", "answer": "Here."}) == "question_answer"
    chat = {"messages": [ASKED, said("Here.")], "rejected_response": "No idea."}
    for pair in ({**row, "rejected_response": "No idea."}, chat):
        assert reader(pair) == "preference"
        (chosen, rejected), _ = read_rows(tmp_path, "preference", [pair])
        assert (shown(chosen)[-2:], shown(rejected)[-1]) == (
            [("user", "Where is order 7?"), ("agent", "Here.")],
            ("agent", "No idea."),
        )


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"prompt": "2+2?", "response": 4}, "prompt_completion"),
        ({"prompt": "2+2?", "completion": 4, "level": 1}, "prompt_completion"),
        ({"question": "2+2?", "answer": 4}, "question_answer"),
        ({"question": "2+2?", "final_answer": "4", "metadata": {"level": 1}}, "question_answer"),
        ({"instruction": "2+2?", "output": 4}, "alpaca"),
        ({"instruction": "2+2?", "response": "4", "label": "sums", "kto_tag": None}, "alpaca"),
        ({"question": "2+2?", "answer": 1, "choices": ["3", "4"]}, None),
        ({"question": "Is it 4?", "answer": True}, None),
    ],
)
def test_an_answer_may_be_a_number_and_not_the_place_of_a_choice(
    tmp_path: Path, row: dict[str, Any], name: str | None
) -> None:
    assert reader(row) == name
    if name is not None:
        ((run,), _) = read_rows(tmp_path, name, [row])
        assert shown(run) == [("user", "2+2?"), ("agent", "4")]


@pytest.mark.parametrize("given", [{"response": "It is #### 41"}, {"output": ["It is #### 41"], "generator": "small"}])
def test_an_answer_beside_what_a_model_gave_is_what_it_should_be(tmp_path: Path, given: dict[str, Any]) -> None:
    row = {"question": "6 x 7?", "solution": "Six times seven.", "answer": "So #### 42", **given}
    ((run,), _) = read_rows(tmp_path, "question_answer", [row])
    assert (shown(run)[-1], run.task.metadata) == (("agent", "It is #### 41"), {"answer": "42"})
    assert run.agent.model == given.get("generator")


def test_a_long_text_that_is_in_no_run_is_told_by_its_column(tmp_path: Path) -> None:
    row = {"question": "6 x 7?", "answer": "42", "model_said": "I think. " * 30, "text": "6 x 7? 42", "extra": "short"}
    _, report = read_rows(tmp_path, "question_answer", [row] * 2)
    assert ["'model_said' are in no run" in note for note in report.notes] == [True]
    asked = "Tell me. " * 30
    _, report = read_rows(tmp_path, "question_answer", [{"question": asked, "answer": "42", "original": asked}])
    assert not report.notes


def test_an_output_of_alpaca_eval_names_its_model(tmp_path: Path) -> None:
    row = {"dataset": "helpful_base", "instruction": "Who are you?", "output": "A model.", "generator": "Small-1B"}
    ((found,), _) = read_rows(tmp_path, "alpaca", [row])
    assert (found.agent.name, found.agent.model, found.extra["row"]) == (
        "Small-1B",
        "Small-1B",
        {"dataset": "helpful_base"},
    )


def test_solutions_of_several_models_are_runs_of_one_task_with_their_marks(tmp_path: Path) -> None:
    """A row of GSM8K's `example_model_solutions.jsonl`."""
    row = {
        "question": "How many eggs are left?",
        "ground_truth": "16 - 7 = <<16-7=9>>9 eggs.\nA: 9",
        "6b_finetuning": {"is_correct": False, "solution": "16 - 3 = 13\nA: 13"},
        "175b_verification": {"is_correct": True, "solution": "16 - 7 = 9\nA: 9"},
    }
    assert reader(row) == "question_answer"
    (small, large), report = read_rows(tmp_path, "question_answer", [row])
    assert [run.agent.model for run in (small, large)] == ["6b_finetuning", "175b_verification"]
    assert [run.outcome.status for run in (small, large)] == ["failure", "success"]
    assert shown(large) == [("user", row["question"]), ("agent", "16 - 7 = 9\nA: 9")]
    assert small.task == large.task
    assert small.task.metadata == {"answer": "9"}
    assert report.n_rejected == 0
    unmarked, report = read_rows(tmp_path, "question_answer", [{"question": "Why?", "6b": {"solution": "Because."}}])
    assert (unmarked, report.n_rejected) == ([], 1)


def test_an_answer_in_one_line_is_the_one_that_is_expected(tmp_path: Path) -> None:
    rows = [{"question": "Which desk?", "answer": "cards"}, {"question": "Why?", "answer": "Because\nof that."}]
    (short, long), _ = read_rows(tmp_path, "question_answer", rows)
    assert (short.task.metadata, long.task.metadata) == ({"answer": "cards"}, {})


def test_a_dialog_in_one_text_is_split_at_its_speakers(tmp_path: Path) -> None:
    """The form of Anthropic's HH-RLHF."""
    shared = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Where is it?\n\nAssistant: "
    row = {"chosen": shared + "Here.\n\nNo, there.", "rejected": shared + "Human: I forgot."}
    ((chosen, rejected), _) = read_rows(tmp_path, "preference", [row])
    assert shown(chosen) == [
        ("user", "Hi"),
        ("agent", "Hello"),
        ("user", "Where is it?"),
        ("agent", "Here.\n\nNo, there."),
    ]
    assert (shown(rejected)[-1], chosen.agent_steps[0].train) == (("agent", "Human: I forgot."), False)


def test_pairs_with_a_common_beginning_of_several_turns_split_where_they_differ(tmp_path: Path) -> None:
    before = [ASKED, said("Which shop?"), {"role": "user", "content": "Yours."}]
    calls = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "get", "arguments": {}}}]}
    row = {"chosen": [*before, calls], "rejected": [*before, said("No idea.")], "tools": [TOOL], "margin": 0.5}
    ((chosen, rejected), _) = read_rows(tmp_path, "preference", [row])
    assert [len(run.agent_steps) for run in (chosen, rejected)] == [2, 2]
    assert [step.train for step in chosen.agent_steps] == [False, None], "what both sides share is no one's choice"
    assert (chosen.agent_steps[1].actions[0].tool, chosen.outcome.scores, chosen.task.prompt) == (
        "get",
        {"margin": 0.5},
        "Where is order 7?",
    )
    same = {"chosen": [ASKED, said("x")], "rejected": [ASKED, said("x")]}
    longer = {"chosen": [ASKED, said("x"), ASKED, said("y")], "rejected": [ASKED, said("x")]}
    runs, report = read_rows(tmp_path, "preference", [same, longer])
    assert report.rejected == [(1, "expected two different answers, got equal chosen and rejected")]
    assert [len(run.steps) for run in runs] == [4, 2]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Where is order 7?", "completion": "Here.", "label": True},
        {"prompt": [ASKED], "completion": [said("Here.")], "label": True},
        {"messages": [ASKED, said("Here.")], "label": True},
        {
            "conversations": [{"from": "human", "value": "Where is order 7?"}, {"from": "gpt", "value": "Here."}],
            "kto_tag": True,
        },
        {"instruction": "Where is order 7?", "input": "", "output": "Here.", "kto_tag": True},
    ],
)
def test_an_answer_with_a_thumb_is_one_run_that_says_so(tmp_path: Path, row: dict[str, Any]) -> None:
    assert reader(row) == "preference"
    label = "label" if "label" in row else "kto_tag"
    (good, bad), report = read_rows(tmp_path, "preference", [row, {**row, label: False}])
    assert shown(good) == shown(bad) == [("user", "Where is order 7?"), ("agent", "Here.")]
    assert [run.extra["desirable"] for run in (good, bad)] == [True, False]
    assert (good.tags, bad.tags) == (("preference:desirable",), ("preference:undesirable",))
    assert (good.outcome.status, report.n_rejected) == ("unknown", 0)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2+2?", "completion": "4", "source": "s"},
        {"prompt": [{"role": "user", "content": "2+2?"}], "completion": [said("4")]},
        {"prompt": "2+2?", "response": "4"},
        {"prompt": "2+2?", "response": {"object": "chat.completion", "choices": [{"message": said("4")}]}},
    ],
)
def test_a_prompt_and_its_completion_are_a_run(tmp_path: Path, row: dict[str, Any]) -> None:
    assert reader(row) == "prompt_completion"
    ((run,), _) = read_rows(tmp_path, "prompt_completion", [row])
    assert shown(run) == [("user", "2+2?"), ("agent", "4")]
    assert run.extra == ({"row": {"source": "s"}} if "source" in row else {})


def test_an_answer_beside_a_response_is_what_is_expected(tmp_path: Path) -> None:
    """Predictions of a classifier: the response is what it said, the answer what was right."""
    row = {"prompt": "The app crashes.", "response": "praise", "answer": "bug"}
    ((read,), _) = read_rows(tmp_path, "prompt_completion", [row])
    assert (shown(read)[-1], read.task.metadata) == (("agent", "praise"), {"answer": "bug"})


def test_rows_that_only_hold_a_task_are_refused_with_the_reason(tmp_path: Path) -> None:
    task = {
        "data_source": "mine",
        "prompt": [ASKED],
        "ability": "use",
        "reward_model": {"style": "rule", "ground_truth": "x"},
    }
    for name, row in (
        ("verl", task),
        ("prompt_completion", {"prompt": [ASKED], "answer": "x"}),
        ("prompt_completion", {"prompt": "x"}),
    ):
        assert reader(row) == name
        assert read_rows(tmp_path, name, [row])[1].rejected == [(1, NO_RUN)]
    ((run,), _) = read_rows(tmp_path, "verl", [{**task, "response": "It has shipped.", "score": 1.0}])
    assert (shown(run)[-1], run.outcome.reward, run.task.metadata) == (
        ("agent", "It has shipped."),
        1.0,
        {"answer": "x"},
    )


def test_the_rollouts_that_verl_dumps_are_runs(tmp_path: Path) -> None:
    row = {"input": "user\n2+2?\nassistant\n", "output": "4", "gts": "4", "score": 1.0, "step": 3}
    assert reader(row) == "verl"
    ((run,), _) = read_rows(tmp_path, "verl", [row])
    assert (shown(run), run.outcome.reward) == ([("user", row["input"]), ("agent", "4")], 1.0)


def test_step_labels_are_the_rewards_of_their_steps(tmp_path: Path) -> None:
    rows = [
        {"prompt": "9.8 or 9.11?", "completions": ["0.8 > 0.11", "so 9.8", "bye"], "labels": [True, False, None]},
        {"prompt": "?", "completions": ["a"], "labels": [0.5]},
        {"prompt": "?", "completions": ["a"], "labels": []},
    ]
    assert reader(rows[0]) == "stepwise"
    (run, scored), report = read_rows(tmp_path, "stepwise", rows)
    assert shown(run) == [("user", "9.8 or 9.11?"), ("agent", "0.8 > 0.11"), ("agent", "so 9.8"), ("agent", "bye")]
    assert ([step.reward for step in run.agent_steps], scored.agent_steps[0].reward) == ([1.0, 0.0, None], 0.5)
    assert report.rejected == [(3, "expected `completions` and `labels`, two lists of equal length")]


GSM8K = {"question": "48 clips, half as many more?", "answer": "48/2 = <<48/2=24>>24\n48+24 = 72\n#### 72"}


def test_question_and_answer_rows_know_their_final_answer(tmp_path: Path) -> None:
    math = {"problem": "x?", "solution": "It is \\boxed{3}.", "answer": "3", "level": "Level 2", "type": "Algebra"}
    (run, other), report = read_rows(tmp_path, "question_answer", [GSM8K, math, {"question": "why?"}])
    assert shown(run) == [("user", GSM8K["question"]), ("agent", GSM8K["answer"])]
    assert (run.task.metadata, run.task.prompt) == ({"answer": "72"}, GSM8K["question"])
    assert (shown(other)[1][1], other.task.metadata, other.task.difficulty) == (
        "It is \\boxed{3}.",
        {"answer": "3"},
        "Level 2",
    )
    assert report.rejected == [(3, NO_RUN)]
    assert (reader(GSM8K), reader(math)) == ("question_answer", "question_answer")
    turns = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    assert reader({"question": "What is 2+2?", "answer": "4", "log": turns}) != "question_answer", (
        "its turns would be lost"
    )


def _recorded(**outcome: Any) -> dict[str, Any]:
    (row,) = small_log("knowlyr")
    return row | {"outcome": row["outcome"] | outcome}


ENVIRONMENT = {
    "task": {"task_id": "t-1", "description": "Fix the bug"},
    "agent": "a",
    "model": "m",
    "steps": [
        {"step_id": 0, "thought": "", "tool": "submit", "params": {}, "output": "ok", "exit_code": 0, "reward": 0.5}
    ],
    "outcome": {"success": True, "total_steps": 1, "terminated": True, "truncated": False},
    "metadata": {"start_time": "x", "domain": "coding"},
}
HUB = {
    "content_hash": "h", "task_id": "t-1", "agent_framework": "openhands", "agent_model": "m", "success": False, "reward": 0.25,
    "steps": [{"thought": "Look.", "tool": "bash", "params": {"c": "ls"}, "output": "a", "exit_code": 2}], "step_rewards": [0.75],
    "total_steps": 1, "duration_seconds": 2, "metadata": {"task_description": "Fix the bug", "repo": "r"},
}  # fmt: skip


def test_the_three_shapes_of_knowlyr_give_the_same_kind_of_run(tmp_path: Path) -> None:
    runs, report = read_rows(tmp_path, "knowlyr", [_recorded(), ENVIRONMENT, HUB])
    recorded, played, hub = runs
    assert [run.task.id for run in runs] == ["t-1"] * 3
    assert {run.task.prompt for run in runs} == {"Fix the bug"}
    assert [[(a.tool, a.args) for step in run.agent_steps for a in step.actions] for run in runs] == [
        [("read_file", {"path": "a"}), ("bash", {})], [("submit", {})], [("bash", {"c": "ls"})],
    ]  # fmt: skip
    assert [(o.content, o.is_error) for step in recorded.agent_steps for o in step.observations] == [
        ("x", False),
        ("boom", True),
    ]
    assert (recorded.agent_steps[0].thought, recorded.agent_steps[0].extra, recorded.agent_steps[1].timestamp) == (
        "Read.", {"token_count": 7}, None,
    )  # fmt: skip
    assert (hub.agent_steps[0].reward, hub.outcome.reward, played.agent_steps[0].reward) == (0.75, 0.25, 0.5)
    assert (hub.agent_steps[0].observations[0].is_error, recorded.task.metadata) == (True, {"repo": "r"})
    assert [run.outcome.status for run in runs] == ["success", "unknown", "failure"]
    assert any("success" in note for note in report.notes)
    assert [reader(row) for row in (_recorded(), ENVIRONMENT, HUB)] == ["knowlyr"] * 3


@pytest.mark.parametrize(
    ("change", "outcome", "status"),
    [
        ({}, {"tests_passed": 3, "tests_failed": 1}, "failure"),
        ({}, {"tests_passed": 3}, "success"),
        ({"agent": "swe-agent"}, {}, "unknown"),
        ({"agent": "crew/reviewer"}, {}, "unknown"),
        ({}, {"success": None}, "unknown"),
        ({}, {"terminated": False, "truncated": True}, "truncated"),
    ],
)
def test_submitted_and_completed_are_no_verdicts(
    tmp_path: Path, change: dict[str, Any], outcome: dict[str, Any], status: str
) -> None:
    ((run,), _) = read_rows(tmp_path, "knowlyr", [_recorded(**outcome) | change])
    assert run.outcome.status == status


FLAT = (
    'Step 1:\nThought: Read it.\nAction: cat({"path": "log.txt"})\nObservation: {log}\n\n'
    'Step 2:\nThought: See Step 1:\nit was short.\nAction: submit({"note": "a (b) c"})\n\n'
    "Step 3:\nThought: Bye."
)


@pytest.mark.parametrize(
    "log",
    [
        "plain",
        "Step 2: do not split here\nThought: nor here\nAction: rm({})",
        "Step 1:\nThought: inner\nAction: x({})\nObservation: y\n\nStep 2:\nThought: inner too",
        "old run\n\nStep 1:\nThought: inner\n\nStep 2:\nThought: inner\n\nStep 3:\nThought: inner\n\nStep 4:\nThought: inner",
        "a\n\nStep 9:\nThought: far",
    ],
)
def test_flat_text_is_never_split_inside_an_observation(tmp_path: Path, log: str) -> None:
    row = {
        "instruction": "Fix it", "input": '{"repo": "r", "base_commit": "", "test_command": ""}', "response": FLAT.replace("{log}", log),
        "task_id": "t", "reward": 0.9, "metadata": {"agent_framework": "openhands", "agent_model": "m", "total_steps": 3},
    }  # fmt: skip
    assert reader(row) == "knowlyr"
    ((run,), _) = read_rows(tmp_path, "knowlyr", [row])
    assert [step.thought for step in run.agent_steps] == ["Read it.", "See Step 1:\nit was short.", "Bye."]
    assert [[(a.tool, a.args) for a in step.actions] for step in run.agent_steps] == [
        [("cat", {"path": "log.txt"})], [("submit", {"note": "a (b) c"})], [],
    ]  # fmt: skip
    assert [[o.content for o in step.observations] for step in run.agent_steps] == [[log], [], []]
    assert (run.task.prompt, run.task.metadata, run.outcome.reward, run.agent.model) == (
        "Fix it",
        {"repo": "r"},
        0.9,
        "m",
    )


def test_the_step_rows_that_knowlyrs_trainer_reads(tmp_path: Path) -> None:
    steps = [
        {"thought": "Look.", "action": 'cat({"path": "a"})', "observation": "x", "reward": 0.5},
        {"thought": "", "action": "give up", "observation": "", "reward": 0.0},
    ]
    row = {"instruction": "Fix it", "input": "", "steps": steps, "task_id": "t", "reward": 0.25}
    assert reader(row) == "knowlyr"
    ((run,), _) = read_rows(tmp_path, "knowlyr", [row])
    first, second = run.agent_steps
    assert (first.thought, [(a.tool, a.args) for a in first.actions], first.reward) == (
        "Look.",
        [("cat", {"path": "a"})],
        0.5,
    )
    assert ([o.content for o in first.observations], second.message, second.actions) == (["x"], "give up", ())
    assert (run.task.prompt, run.outcome.reward) == ("Fix it", 0.25)


def test_flat_text_of_another_form_is_one_turn(tmp_path: Path) -> None:
    assert parse_steps("I did it. Step 1: none") == []
    assert [step.message for step in parse_steps("Step 1:\nAction: look at (this)")] == ["look at (this)"]
    ((run,), _) = read_rows(
        tmp_path, "knowlyr", [{"instruction": "x", "input": "", "response": "free", "task_id": "t", "reward": 1}]
    )
    assert shown(run) == [("user", "x"), ("agent", "free")]


def test_pairs_and_groups_of_knowlyr(tmp_path: Path) -> None:
    dpo = {
        "prompt": "Fix it", "chosen": "Step 1:\nThought: good", "rejected": "Step 1:\nThought: bad", "task_id": "t", "reward_margin": 0.5,
        "metadata": {"chosen_model": "m", "rejected_model": "n", "chosen_reward": 0.75, "rejected_reward": 0.25},
    }  # fmt: skip
    pipeline = {"task_id": "t", "chosen": {**HUB, "reward": 0.75}, "rejected": HUB, "reward_margin": 0.5}
    group = {"task_id": "t", "prompt": "Fix it", "trajectories": [
        {"response": "Step 1:\nThought: a", "reward": 1.0, "step_rewards": [0.5]}, {"response": "b", "reward": 0.0}]}  # fmt: skip
    ids = {"task_id": "t", "chosen_trajectory_id": "1", "rejected_trajectory_id": "2", "margin": 0.1}
    task = {"task_id": "t", "description": "d", "repo": "r", "test_command": "pytest"}
    assert [reader(row) for row in (dpo, pipeline, group, ids, task)] == ["knowlyr"] * 5
    runs, report = read_rows(tmp_path, "knowlyr", [dpo, pipeline, group, ids, task])
    assert [run.group_id for run in runs] == ["t"] * 6
    assert [run.tags for run in runs[:4]] == [("preference:chosen",), ("preference:rejected",)] * 2
    assert [run.outcome.reward for run in runs] == [0.75, 0.25, 0.75, 0.25, 1.0, 0.0]
    assert [run.outcome.scores for run in runs[:2]] == [{"margin": 0.5}] * 2
    assert ([run.episode_key for run in runs[4:]], runs[4].agent_steps[0].reward) == (["0", "1"], 0.5)
    assert [run.agent.model for run in runs[:2]] == ["m", "n"]
    assert [line for line, _ in report.rejected] == [4, 5]
    assert ("got only their ids" in report.rejected[0][1], report.rejected[1][1]) == (True, NO_RUN)


OURS = {
    "id": "traj-1",
    "task": {"id": "t", "prompt": "go"},
    "steps": [{"actor": "user", "message": "go"}, {"actor": "agent", "message": "ok"}],
    "outcome": {"status": "success", "reward": 1.0},
    "subagents": ["traj-2"],
    "tags": ["mine"],
}


def test_our_own_trajectories_and_rows_come_back(tmp_path: Path) -> None:
    other = {**OURS, "id": "traj-2", "continues": "traj-1", "subagents": []}
    rows: list[Any] = [
        OURS,
        {"trajectory": other, "weight": 1.0, "reward": None},
        {"trajectory": OURS, "desirable": False, "weight": 1.0},
        {"chosen": OURS, "rejected": other, "weight": 1.0},
        {"key": "t", "trajectories": [OURS, other], "rewards": [1, 0]},
        {"text": "only text", "weight": 1.0},
        {"steps": [{"actor": "pilot"}]},
    ]
    assert [reader(row) for row in rows[:5]] == ["quintain"] * 5
    runs, report = read_rows(tmp_path, "quintain", rows)
    expected = read_trajectory(OURS).model_copy(update={"id": None, "subagents": ()})
    assert runs[0] == expected
    assert [run.outcome.reward for run in runs] == [1.0] * 7
    assert runs[2].extra == {"desirable": False}
    assert (runs[3].tags, runs[4].extra) == (
        ("mine", "preference:chosen"),
        {"preference": {"pair": "traj-1 traj-2", "side": "rejected"}},
    )
    assert [line for line, _ in report.rejected] == [6, 7]


def test_our_links_survive_under_the_keys_of_the_file(tmp_path: Path) -> None:
    from quintain.importers.log_file import LogFile
    from quintain.importers.protocol import Report
    from quintain.importers.registry import importer

    child = {**OURS, "id": "traj-2", "subagents": [], "continues": "traj-0"}
    (tmp_path / "t.jsonl").write_text(f"{json.dumps(OURS)}\n{json.dumps(child)}\n", encoding="utf-8")
    first, second = importer("quintain").read(LogFile(tmp_path / "t.jsonl", tmp_path), Report())
    assert (first.key, first.parent, first.continues) == ("quintain:traj-1", None, None)
    assert (second.key, second.parent, second.continues) == ("quintain:traj-2", "quintain:traj-1", "quintain:traj-0")


def test_a_row_format_is_known_by_several_rows_and_not_by_the_first() -> None:
    alpaca, odd = {"instruction": "a", "output": "b"}, {"something": "else"}
    found = detected([odd, *[alpaca] * 9])
    assert found.importer is not None
    assert (found.importer.name, found.confidence) == ("alpaca", pytest.approx(0.81))
    assert detected([odd]).importer is None


@pytest.mark.parametrize("file", ["trl/grpo_prompt_only.jsonl", "exports/verl_rl_row.json"])
def test_the_samples_without_a_run_say_so(samples: Path, file: str) -> None:
    name = "verl" if "verl" in file else "prompt_completion"
    runs, report = read_file(samples, name, file)
    assert (runs, report.rejected) == ([], [(1, NO_RUN)])


def test_a_function_calling_row_is_a_query_and_the_calls_that_answer_it() -> None:
    run, report = read_log("function_calling")
    assert outline(run) == [
        "user: What is free in beta, and what as a game?",
        "agent:  > giveaways(None) > giveaways(None)",
    ]
    made = run.trajectory
    assert [call.args for call in made.agent_steps[0].actions] == [{"type": "beta"}, {"type": "game"}]
    properties = {"type": {"description": "Kind", "type": "str"}}
    function = {"name": "giveaways", "description": "Lists them."}
    function["parameters"] = {"type": "object", "properties": properties}
    assert (made.tools, report.notes) == (({"type": "function", "function": function},), {})


def test_what_a_question_is_about_is_asked_with_it_and_a_rationale_is_a_thought(tmp_path: Path) -> None:
    row = {"question": "How many are old?", "context": "CREATE TABLE head (age INT)", "answer": "SELECT 1"}
    (run,), _ = read_rows(tmp_path, "question_answer", [{**row, "rationale": "They have an age."}])
    assert shown(run) == [("user", "How many are old?\nCREATE TABLE head (age INT)"), ("agent", "SELECT 1")]
    assert run.steps[-1].thought == "They have an age."
    row = {"prompt": "How many are old?", "context": "CREATE TABLE head (age INT)", "completion": "SELECT 1"}
    (run,), _ = read_rows(tmp_path, "prompt_completion", [row])
    assert run.task.prompt == "How many are old?\nCREATE TABLE head (age INT)"


def test_each_answer_of_a_list_is_a_run_of_its_prompts_group_with_its_rating_or_rank(tmp_path: Path) -> None:
    rows = small_log("answers")
    runs, report = read_rows(tmp_path, "answers", rows)
    assert [shown(run) for run in runs] == [
        [("user", "Where is order 7?"), ("agent", said)] for said in ("Here.", "No idea.")
    ] * 2
    assert [(run.agent.model, run.outcome.reward) for run in runs] == [
        ("m-1", 8.5),
        ("m-2", 3.0),
        ("m-1", -1),
        ("m-2", -2),
    ]
    assert ({run.group_id is None for run in runs}, len({run.group_id for run in runs})) == ({False}, 1)
    assert [any(said in note for note in report.notes) for said in ("left out", "best_per_task")] == [True, True]
    assert [reader(row) for row in rows] == ["answers"] * 2
    texts = {"problem": "Where is order 7?", "generations": ["Here.", "No idea."], "answer": "Here."}
    for beside, status, rewards in (
        ({"rewards": [0.5, 0.25]}, "unknown", [0.5, 0.25]),
        ({"correctness": [True, False]}, "success", [None] * 2),
    ):
        runs, _ = read_rows(tmp_path, "answers", [{**texts, **beside, "generation_models": ["m-1", "m-2"]}])
        assert [(run.agent.model, run.outcome.reward) for run in runs] == list(
            zip(("m-1", "m-2"), rewards, strict=True)
        )
        assert (runs[0].outcome.status, reader({**texts, **beside})) == (status, "answers")
    sampled = {"question": ASKED["content"], "query": ASKED["content"], "answer": "Here.", "score": [True, False]}
    runs, _ = read_rows(tmp_path, "answers", [sampled | {"response": texts["generations"]}])
    assert [(shown(run)[0], run.outcome.status) for run in runs] == [
        (("user", "Where is order 7?"), status) for status in ("success", "failure")
    ]
    chat = {**texts, "messages": [ASKED, said("Here.")]}
    assert reader(chat) == "openai_chat"
    right = {"text": ["Here.", "It is here."], "answer_start": [1, 2]}  # SQuAD's
    assert [reader({"question": "Where is order 7?", "answers": answers}) for answers in (right, right["text"])] == [
        None
    ] * 2


def test_steps_of_math_shepherd_and_prm800k_have_their_labels(tmp_path: Path) -> None:
    shepherd = {
        "input": "How many?\nStep 1: Two and two. \u043a\u0438\nStep 2: The answer is: 5 \u043a\u0438",
        "label": "How many? Step 1: Two and two. +\nStep 2: The answer is: 5 -",
        "task": "GSM8K",
    }
    rated = [{"text": "Wrong way.", "rating": -1}, {"text": "Two and two.", "rating": 1}]
    steps = [
        {"completions": rated, "human_completion": None, "chosen_completion": 1},
        {"completions": [{"text": "So it is.", "rating": 0}], "chosen_completion": 0},
        {"completions": [{"text": "Five.", "rating": -1}], "human_completion": None, "chosen_completion": None},
    ]
    prm800k = {"question": {"problem": "How many?", "ground_truth_answer": "4"}, "label": {"steps": steps}}
    for row, expected in (
        (shepherd, [("Step 1: Two and two.", 1), ("Step 2: The answer is: 5", 0)]),
        (prm800k, [("Two and two.", 1), ("So it is.", None), ("Five.", 0)]),
    ):
        assert reader(row) == "stepwise"
        (run,), _ = read_rows(tmp_path, "stepwise", [row])
        assert run.task.prompt == "How many?"
        assert [(step.message, step.reward) for step in run.agent_steps] == expected
