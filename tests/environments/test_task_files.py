"""Task files: what rows mean, what is refused, how suites are frozen; and `quintain/tasks`, judged by the rows."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as generated
from hypothesis import strategies as st
from pydantic import ValidationError

from quintain.environments.inventory import Inventory
from quintain.environments.questions import Question, Questions, judge_text, unanswerable
from quintain.environments.references import parse_reference, write_reference
from quintain.environments.registry import task_source
from quintain.environments.tasks.task_files import FileTasks, read_tasks, split_of
from quintain.environments.tasks.task_rows import task_of
from quintain.errors import InvalidInput, NotFound, Refused
from quintain.evaluation.suites import plan_suite
from quintain.records.jobs.job import EvaluateSpec, RolloutSpec, TrainSpec
from quintain.records.trajectory import Action, Task
from quintain.settings import Settings
from quintain.tools.data.row_references import has_questions
from quintain.tools.evaluation.environment_references import usable_reference
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.config_files import start_recipe
from quintain.tools.training.requests import training_source
from quintain.tools.training.start import start_training

TRUSTED = False  # the services are a client's

SWE = {
    "instance_id": "astropy__astropy-1",
    "repo": "astropy/astropy",
    "base_commit": "d16bfe05",
    "patch": "\n".join(f"+line {i}" for i in range(49)),
    "test_patch": "+assert True",
    "problem_statement": "Modeling is wrong.",
    "hints_text": "Look at line 3.",
    "FAIL_TO_PASS": '["tests/test_a.py::test_b"]',
    "PASS_TO_PASS": ["tests/test_a.py::test_c"],
    "version": "4.3",
}


def written(path: Path, *rows: Any) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def numbered(n: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"id": f"t{i}", "prompt": f"What is {i} + 1?", "answer": i + 1, **fields} for i in range(n)]


def answered(task: Task, answer: Any) -> tuple[float | None, str]:
    question = Question()
    question.reset(task)
    step = question.step([Action(tool="submit", args={"answer": answer})])
    assert step.terminated
    return step.reward, str(step.observations[0].content)


def test_a_row_becomes_a_task_with_all_its_columns() -> None:
    columns = {"repo": "acme/shop", "base_commit": "abc", "test_command": ["pytest"], "checker": {"type": "unit_tests"}}
    named = {"prompt": "Mend it.", "type": "bug_fix", "difficulty": "hard"}
    row = {"id": 7, **named, **columns, "answer": None, "split": "test", "metadata": {"author": "me"}, "language": "en"}
    metadata = {**columns, "language": "en", "author": "me", "split": "held_out"}
    assert task_of(row) == Task(id="7", **named, metadata=metadata)


def test_a_row_of_swe_bench_keeps_its_tests_and_not_its_solution() -> None:
    task = task_of(SWE)
    assert (task.id, task.prompt, task.type) == (SWE["instance_id"], "Modeling is wrong.", "bug_fix")
    levels = [task_of({**SWE, "patch": "+x\n" * lines}).difficulty for lines in (1, 9, 10, 49, 50)]
    assert levels == ["easy", "easy", "medium", "medium", "hard"], "below 10 lines easy, below 50 medium, else hard"
    kept = {name: SWE[name] for name in ("repo", "base_commit", "test_patch", "PASS_TO_PASS")}
    assert kept.items() <= task.metadata.items()
    assert task.metadata["FAIL_TO_PASS"] == ["tests/test_a.py::test_b"]
    assert "line 3" not in json.dumps(task.metadata), "neither the hints nor the patch"
    with pytest.raises(InvalidInput, match=r"FAIL_TO_PASS to be a list of test names.*got 'nonsense'"):
        task_of({**SWE, "FAIL_TO_PASS": "nonsense"})


def test_a_row_of_gsm8k_gives_its_final_answer_alone() -> None:
    answer = "She sells 48/2 = <<48/2=24>>24 clips.\nTogether <<48+24=72>>72.\n#### 72"
    task = task_of({"question": "How many clips?", "answer": answer})
    assert (task.prompt, task.metadata) == ("How many clips?", {"answer": "72", "n_steps": 2})
    assert task.id == task_of({"question": "How many clips?", "answer": "#### 1"}).id
    assert task.id != task_of({"question": "How many more clips?", "answer": "#### 1"}).id
    with pytest.raises(InvalidInput, match="expected a final answer after `####`"):
        task_of({"question": "How many?", "answer": "I wonder. ####"})


@pytest.mark.parametrize(
    ("row", "answers", "wrong"),
    [
        (
            {"question": "Fruit?", "choices": ["car", "apple"], "answer": 1},
            ["B", "apple", "B: apple"],
            ["A", "1", "car"],
        ),
        ({"prompt": "Fruit?", "choices": ["car", "apple"], "answer": "apple"}, ["B", "apple"], ["A"]),
        (
            {"question": "Fruit?", "choices": {"text": ["car", "apple"], "label": ["A", "B"]}, "answerKey": "B"},
            ["B", "apple"],
            ["A"],
        ),
        ({"question": "1 + 1?", "choices": ["1", "2", "3"], "answer": 1}, ["B"], ["A", "1"]),
    ],
    ids=["index", "text", "label", "numbers"],
)
def test_the_choices_of_a_question_are_shown_and_one_is_right(
    row: dict[str, Any], answers: list[str], wrong: list[str]
) -> None:
    """MMLU counts its choices from 0, ARC labels them; who sees no choices answers something else."""
    task = task_of(row)
    assert task.prompt.splitlines()[1].startswith("A: ")
    rewards = {answer: judge_text(task, answer).reward for answer in (*answers, *wrong)}
    assert rewards == dict.fromkeys(answers, 1.0) | dict.fromkeys(wrong, 0.0)


def test_a_row_of_math_asks_its_problem_and_boxes_its_answer() -> None:
    task = task_of({"problem": "What is 2 + 2?", "solution": "It is $\\boxed{4}$.", "level": "Level 1"})
    assert [judge_text(task, answer).reward for answer in ("4", "5")] == [1.0, 0.0]


def test_a_row_of_verl_asks_with_its_instructions_and_is_judged_by_its_ground_truth() -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is order 7?"}]
    row = {"data_source": "shop", "prompt": chat, "reward_model": {"style": "rule", "ground_truth": "shipped"}}
    task = task_of(row)
    assert (task.prompt, task.metadata) == (
        "Be brief.\n\nWhere is order 7?",
        {"data_source": "shop", "answer": "shipped"},
    )


@pytest.mark.parametrize("column", ["answer", "ground_truth"])
def test_a_row_of_trl_asks_what_the_user_says_and_names_the_answer(column: str) -> None:
    chat = [{"role": "user", "content": "Where is order 7?"}]
    task = task_of({"prompt": chat, column: "shipped"})
    assert (task.prompt, task.metadata) == ("Where is order 7?", {"answer": "shipped"})
    with pytest.raises(InvalidInput, match="got those of user, assistant, user"):
        task_of({"prompt": [*chat, {"role": "assistant", "content": "Which one?"}, *chat], column: "shipped"})


def test_a_table_of_questions_and_answers_is_a_task_file(tmp_path: Path) -> None:
    """A spreadsheet is what people have; an empty cell is a field that the row does not state."""
    table = tmp_path / "quiz.csv"
    for header in ("question;answer;type", "Question;Answer;Type"):
        table.write_text(f'{header}\n"7 * 8?";56;sums\nCapital of France?;Paris;\n', encoding="utf-8")
        found = {task.prompt: (task.metadata["answer"], task.type) for task in read_tasks(table).tasks}
        assert found == {"7 * 8?": ("56", "sums"), "Capital of France?": ("Paris", None)}
        assert has_questions(table), "a method that learns online acts on them"


def test_columns_of_a_table_are_named_by_options(tmp_path: Path) -> None:
    """`Question` and `Expected answer` are what people write in spreadsheets."""
    table = tmp_path / "quiz.csv"
    table.write_text("Question,Expected answer,Topic\n7 * 8?,56,sums\n", encoding="utf-8")
    match = r"bad_task_rows.*file=PATH&prompt=ASK,A,B,C&answer=RIGHT, .*open=true, or correct"
    with pytest.raises(InvalidInput, match=match):
        task_source(f"quintain/tasks?file={table}")
    source = task_source(f"quintain/tasks?file={table}&prompt=Question&answer=Expected answer&type=Topic")
    (task,) = source.tasks("all", 5, 0)
    assert (task.prompt, task.metadata["answer"], task.type) == ("7 * 8?", "56", "sums")


def test_a_question_and_its_choices_in_columns_of_a_table_are_one_prompt(tmp_path: Path) -> None:
    table = tmp_path / "quiz.csv"
    table.write_text("Frage,A,B,C,Key\n7 * 8?,56,63,,A\n", encoding="utf-8")
    (task,) = task_source(f"quintain/tasks?file={table}&prompt=Frage,A,B,C&answer=Key").tasks("all", 5, 0)
    assert (task.prompt, task.metadata["answer"]) == ("7 * 8?\nA: 56\nB: 63", "A")


def test_rows_of_an_exported_benchmark_are_tasks() -> None:
    row = {"task": {"id": "a", "prompt": "Go.", "environment": "acme/shop"}, "tools": [], "references": []}
    assert task_of(row) == Task(id="a", prompt="Go.", environment="acme/shop")
    best = {"trajectory_id": "traj-1", "success": True, "steps": 3}
    known = {"target_tools": ["search", "submit"], "plan": ["search", "search", "submit"], "references": [best]}
    assert task_of({**row, **known}).metadata == {
        "target_tools": ["search", "submit"],
        "plan": ["search", "search", "submit"],
        "reference_steps": 3,
    }


def test_every_bad_line_is_named_with_its_reason(tmp_path: Path) -> None:
    path = written(
        tmp_path / "mixed.jsonl",
        {"id": "a", "prompt": "Fine."},
        '{"id": "b", "prompt": ',
        {"id": "a", "prompt": "Again."},
        "[1, 2]",
        {"id": "c", "prompt": 3},
        {"type": "nothing"},
        {"id": "d", "prompt": "x", "split": "somewhere"},
    )
    with pytest.raises(InvalidInput) as refused:
        read_tasks(path)
    message = str(refused.value)
    assert refused.value.code == "bad_task_rows"
    assert "'mixed.jsonl' has 6 bad rows" in message
    alike = written(tmp_path / "alike.jsonl", *({"ask": str(n)} for n in range(9)))
    with pytest.raises(
        InvalidInput, match=r"lines 1, 2, 3, 4, 5: expected an id or a prompt, got the fields ask; and 4 more"
    ):
        read_tasks(alike)
    for part in (
        "line 2: ",
        "line 3: duplicate id 'a', first in line 1 with other content",
        "line 4: expected a JSON object, got [1, 2]",
        "line 5: row.prompt",
        "line 6: expected an id or a prompt, got the fields type",
        "and 1 more line",
    ):
        assert part in message


def test_a_row_that_repeats_another_is_the_same_task(tmp_path: Path) -> None:
    """A list of questions repeats some; their ids are of the questions, and nobody wrote them."""
    rows = [{"question": text, "answer": "#### 4"} for text in ("2 + 2?", "3 + 1?", "2 + 2?")]
    whole = read_tasks(written(tmp_path / "sums.jsonl", *rows))
    assert ([task.prompt for task in whole.tasks], whole.lines) == (["2 + 2?", "3 + 1?"], (1, 2))
    assert whole.digest == read_tasks(written(tmp_path / "once.jsonl", *rows[:2])).digest
    numbered_rows = [row | {"extra_info": {"index": n}} for n, row in enumerate(rows)]
    assert read_tasks(written(tmp_path / "numbered.jsonl", *numbered_rows)).lines == (1, 2)
    for other in ({"answer": "#### 5"}, {"split": "test"}):
        with pytest.raises(InvalidInput, match=r"line 2: duplicate id .* with other content"):
            read_tasks(written(tmp_path / "torn.jsonl", rows[0] | {"split": "train"}, rows[0] | other))


def test_a_call_for_more_tasks_than_a_file_has_is_refused_before_the_job(waiting: Services) -> None:
    """A call that names no number of tasks plays those of a smaller file, in each of its splits."""
    written(waiting.settings.inbox_dir / "few.jsonl", *numbered(9))
    few = "quintain/tasks?file=few.jsonl"
    with pytest.raises(InvalidInput, match="too_many_tasks") as refused:
        evaluate_agent(waiting, "starter", few, n_tasks=100)
    assert "`split`" not in str(refused.value), "the terminal would show the name of a column as an option"
    with pytest.raises(InvalidInput, match="too_many_tasks"):
        collect_rollouts(waiting, "starter", few, n_tasks=100)
    assert waiting.store.jobs.page().items == ()
    counts = [
        asked_tasks(waiting, evaluate_agent(waiting, "starter", few, split=split)) for split in ("held_out", "all")
    ]
    counts.append(asked_tasks(waiting, collect_rollouts(waiting, "starter", few)))
    counts.append(asked_tasks(waiting, evaluate_agent(waiting, "starter", {few: 1, "quintain/inventory": 1})))
    counts.append(asked_tasks(waiting, evaluate_agent(waiting, "starter", "quintain/inventory")))
    assert counts == [2, 9, 7, 5, 100]
    every = {"evaluate_every_steps": 1}
    job = start_training(waiting, "grpo", "starter", environment=few, hyperparameters=every).job_id
    spec = waiting.store.jobs.get(job).spec
    assert isinstance(spec, TrainSpec)
    assert spec.config.evaluate_tasks == 2
    with pytest.raises(InvalidInput, match="evaluate_tasks: expected `n_tasks` of at most 2, got 3"):
        start_training(waiting, "grpo", "starter", environment=few, hyperparameters={**every, "evaluate_tasks": 3})


def asked_tasks(services: Services, started: JobStarted) -> int:
    spec = services.store.jobs.get(started.job_id).spec
    assert isinstance(spec, EvaluateSpec | RolloutSpec)
    return spec.n_tasks


def test_an_empty_file_and_a_missing_file_are_different_errors(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"expected tasks in .*, got none"):
        read_tasks(written(tmp_path / "empty.jsonl", ""))
    with pytest.raises(NotFound, match=r"no_task_file\].*nowhere\.jsonl'"):
        read_tasks(tmp_path / "nowhere.jsonl")
    with pytest.raises(InvalidInput, match="expected a regular file"):
        read_tasks(tmp_path)


def test_packing_and_the_order_of_lines_do_not_change_what_a_suite_is(tmp_path: Path) -> None:
    rows = numbered(20)
    plain = read_tasks(written(tmp_path / "a.jsonl", *rows))
    packed = tmp_path / "b.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in reversed(rows)).encode()))
    again = read_tasks(packed)
    assert plain.digest == again.digest
    assert plain.draw("train", 5, 0) == again.draw("train", 5, 0)


@pytest.mark.parametrize(
    "change", [{"prompt": "Else?"}, {"answer": 99}, {"checker": "json"}, {"split": "test"}, {"metadata": {"a": 1}}]
)
def test_another_content_is_another_suite(tmp_path: Path, change: dict[str, Any]) -> None:
    rows = numbered(30, split="train")
    before = FileTasks(Inventory(), written(tmp_path / "a.jsonl", *rows))
    after = FileTasks(Inventory(), written(tmp_path / "b.jsonl", {**rows[0], **change}, *rows[1:]))
    suites = [plan_suite(source, split="train", n_tasks=9, repeats=1, seed=0).hash for source in (before, after)]
    assert before.version != after.version
    assert suites[0] != suites[1]


def test_a_file_that_changes_under_its_name_is_read_anew(tmp_path: Path) -> None:
    first = read_tasks(written(tmp_path / "a.jsonl", *numbered(3)))
    assert read_tasks(tmp_path / "a.jsonl") is first
    assert read_tasks(written(tmp_path / "a.jsonl", *numbered(4))).digest != first.digest


@generated(max_examples=25)
@given(st.sets(st.text("abcü /é", min_size=1, max_size=20), min_size=2, max_size=30))
def test_a_task_keeps_its_side_when_others_come_or_go(ids: set[str]) -> None:
    rows = [{"id": task_id, "prompt": "Go."} for task_id in sorted(ids)]
    with TemporaryDirectory() as folder:
        everything = read_tasks(written(Path(folder) / "all.jsonl", *rows))
        half = read_tasks(written(Path(folder) / "half.jsonl", *rows[::2]))
    sides = {task.id: task.metadata["split"] for task in everything.tasks}
    assert set(sides.values()) <= {"train", "held_out"}
    assert {task.id: task.metadata["split"] for task in half.tasks}.items() <= sides.items()


def test_one_task_in_five_is_held_out_where_rows_do_not_state_it_and_tasks_are_drawn_by_seed(tmp_path: Path) -> None:
    """Of 1,000 a share of 0.2 has standard deviation 0.013."""
    source = FileTasks(Inventory(), written(tmp_path / "a.jsonl", *numbered(1000)))
    n = sum(split_of(f"t{i}") == "held_out" for i in range(1000))
    assert 160 < n < 240
    held_out, train = source.tasks("held_out", n, 3), source.tasks("train", 1000 - n, 3)
    assert not {task.id for task in held_out} & {task.id for task in train}
    assert {task.environment for task in held_out} == {"quintain/inventory"}
    assert held_out[:20] == source.tasks("held_out", 20, 3)
    assert held_out != source.tasks("held_out", n, 4)
    with pytest.raises(InvalidInput, match=rf"'a.jsonl' has {n} tasks in held_out and {1000 - n} in the other split"):
        source.tasks("held_out", n + 1, 3)


def test_any_environment_takes_the_tasks_of_a_file(tmp_path: Path) -> None:
    task_id = "inventory/held_out/lookup/easy/00001"
    path = written(tmp_path / "mine.jsonl", {"id": task_id, "prompt": "A suite of one.", "split": "test"})
    source = task_source(f"quintain/inventory?tasks={path}")
    task = source.tasks("held_out", 1, 0)[0]
    first = source.make().reset(task)
    assert (task.id, source.id) == (task_id, "quintain/inventory")
    assert str(first.message).startswith("What is the ")
    assert source.version.startswith("1+")
    with pytest.raises(InvalidInput, match="valid: difficulty, types, forbidden, tasks"):
        task_source(f"quintain/inventory?task={path}")


def test_one_answer_tasks_are_judged_by_their_row(tmp_path: Path) -> None:
    rows: list[tuple[dict[str, Any], Any, Any]] = [
        ({"answer": 42}, 42, 41),
        ({"answer": "Paris"}, "paris.", "London"),
        ({"answer": "1/2"}, 0.5, "0.5 or 0.6"),
        ({"checker": {"type": "regex", "pattern": "^a+b$"}}, "aaab", "ba"),
        ({"checker": {"type": "json", "expected": {"a": [1, 2]}}}, '{"a": [1, 2]}', '{"a": [2, 1]}'),
        ({"checker": {"type": "answer", "answer": 10, "tolerance": 0.5}}, "10.4", "10.6"),
        ({"answer": True}, True, False),
    ]
    path = written(
        tmp_path / "a.jsonl",
        *({"id": str(i), "prompt": "Well?", **row, "split": "test"} for i, (row, *_) in enumerate(rows)),
    )
    tasks = {task.id: task for task in Questions(path).tasks("held_out", len(rows), 0)}
    for i, (_, right, wrong) in enumerate(rows):
        assert answered(tasks[str(i)], right) == (1.0, "Right."), right
        assert answered(tasks[str(i)], wrong) == (0.0, "Wrong."), wrong


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "Well?"}, "neither an answer nor a checker"),
        ({"prompt": " ", "answer": 1}, "its prompt is empty, beside the fields answer"),
        (
            {"prompt": "Well?", "checker": {"type": "unit_tests", "command": "pytest"}},
            "expected a checker of type answer, json, regex",
        ),
        ({"prompt": "Well?", "checker": {"type": "regex", "pattern": "("}}, "cannot be used"),
        ({"prompt": "Well?", "checker": {"type": "answer", "answer": 1, "tolerance": -1}}, "tolerance"),
        (
            {"prompt": "Well?", "answer": "It is the long story of a man who went to sea and was never seen again."},
            "prose",
        ),
    ],
)
def test_a_row_that_could_never_be_judged_is_refused_before_anything_is_played(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    path = written(tmp_path / "a.jsonl", {"id": "ok", "prompt": "1?", "answer": 1}, {"id": "bad", **row})
    with pytest.raises(InvalidInput, match=r"has 1 bad row: line 2: ") as refused:
        Questions(path)
    assert message in str(refused.value)


def test_a_call_without_an_answer_gets_an_error_and_costs_nothing() -> None:
    question = Question()
    question.reset(Task(id="a", prompt="Well?", metadata={"answer": 42}))
    for action, message in (
        (Action(tool="answer", args={}), "no tool is called 'answer'; call one of: submit"),
        (Action(tool="submit", args=None, raw_args="{"), "not valid JSON"),
        (Action(tool="submit", args={"answer": [1]}), "submit.answer"),
        (Action(tool="submit", args={"answer": "x" * 30_000}), "at most 20000"),
    ):
        step = question.step([action])
        assert (step.observations[0].is_error, step.terminated, step.reward) == (True, False, None)
        assert message in str(step.observations[0].content)


def test_without_a_file_there_is_nothing_to_draw() -> None:
    assert task_source("quintain/tasks").make().max_turns == 4
    with pytest.raises(InvalidInput, match=r"quintain/tasks\?file=PATH"):
        task_source("quintain/tasks").tasks("train", 1, 0)


@given(st.dictionaries(st.from_regex("[a-z]{1,8}", fullmatch=True), st.text(max_size=30), max_size=4))
def test_a_reference_reads_back_as_it_was_written(options: dict[str, str]) -> None:
    reference = parse_reference("acme/shop")._replace(options=options)
    assert parse_reference(write_reference(reference)) == reference


def test_tools_read_task_files_within_the_roots_alone(settings: Settings, services: Services, tmp_path: Path) -> None:
    settings.inbox_dir.mkdir(parents=True, exist_ok=True)
    inside = written(settings.inbox_dir / "my tasks.jsonl", *numbered(3))
    outside = written(tmp_path / "outside.jsonl", *numbered(3))
    reference = usable_reference(services, "quintain/tasks?file=my tasks.jsonl")
    assert parse_reference(reference).options == {"file": str(inside)}
    assert len(task_source(reference).tasks("train", 1, 0)) == 1
    assert usable_reference(services, "quintain/inventory?difficulty=hard") == "quintain/inventory?difficulty=hard"
    for option in ("quintain/tasks?file=", "quintain/inventory?tasks="):
        with pytest.raises(Refused, match="outside the allowed roots"):
            usable_reference(services, f"{option}{outside}")
    with pytest.raises(NotFound, match=r"no_task_file.*does not exist"):
        usable_reference(services, "quintain/tasks?file=nowhere.jsonl")
    source = training_source(services, "grpo", None, "quintain/math?file=my tasks.jsonl")
    assert parse_reference(source["environment"]).options == {"file": str(inside)}
    with pytest.raises(Refused, match="outside the allowed roots"):
        training_source(services, "grpo", None, f"quintain/math?file={outside}")
    stages = [{"method": "evaluate", "environment": f"quintain/math?file={outside}"}]
    with pytest.raises(Refused, match="outside the allowed roots"):
        start_recipe(services, {"stages": stages})


def test_the_row_in_the_docs_is_a_task_that_can_be_solved(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "use-your-own-tasks.md").read_text(encoding="utf-8")
    row = re.search(r"```json\n(.*shop-17.*)\n```", page)
    task = Questions(written(tmp_path / "docs.jsonl", row[1])).tasks("held_out", 1, 0)[0]
    assert answered(task, "There are 12 open orders.") == (1.0, "Right.")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = st.sampled_from(
    [
        *("id", "prompt", "type", "difficulty", "repo", "test_command", "checker", "answer", "split", "metadata"),
        *("task", "instance_id", "problem_statement", "patch", "FAIL_TO_PASS", "version", "question", "description"),
    ]
)


@generated(max_examples=60)
@given(_JSON | st.dictionaries(_FIELDS, _JSON, max_size=8))
def test_any_json_becomes_a_task_or_an_error(value: Any) -> None:
    try:
        task = task_of(value)
    except (InvalidInput, ValidationError):
        return
    assert task.id
    assert Task.model_validate_json(task.model_dump_json()) == task
    assert isinstance(unanswerable(task), str | None)
