"""Question and answer rows: GSM8K (also its models' marked solutions), MATH (`problem`, `solution`) and similar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.outcome_fields import status_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, is_sentence, matching_share, row_importer, task_of
from quintain.importers.run_builder import NO_RUN
from quintain.importers.training_data.alpaca import instruction_messages
from quintain.importers.training_data.chat_records import is_chat
from quintain.importers.training_data.prompt_answers import fingerprint
from quintain.importers.values import as_text, as_written, nonblank
from quintain.records.trajectory import AgentInfo, Outcome, Task

_ASKED = ("question", "problem", "query")
_GIVEN = ("response", "output", "generation", "prediction", "model_output", "model_answer", "model_response")
_ANSWERED = (*_GIVEN, "solution", "answer", "final_answer")
"""What a model gave comes first: an `answer` beside one of the others is what it should be."""
_BESIDE = ("input", "context", "history")
"""Columns of what the question is about."""
_ELSEWHERE = frozenset({"messages", "conversations", "prompt", "completion", "chosen", "steps", "turns", "instruction"})


def _detect(probe: Probe) -> float:
    """Match rows with a question and an answer as text; `####` before the final answer raises the confidence."""
    if probe.document is not None and not any(is_sentence(probe.document.get(key)) for key in _ASKED):
        return 0.0  # one object of labels, such as a program's texts by their names
    sure = max(matching_share(probe, fits, *_ASKED) for fits in (_is_gsm8k, _is_marked))
    return max(0.93 * sure, 0.8 * matching_share(probe, _is_pair, *_ASKED))


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    question = nonblank(*(row.get(key) for key in _ASKED))
    given = [name for name in _ANSWERED if _text(row.get(name))]
    answer = _text(row[given[0]]) if given else None
    if question is None:
        raise InvalidInput("expected a question")
    if marked := _marked_solutions(row):
        yield from _solutions(question, marked, row, line, report)
        return
    if answer is None:
        held = next((row[key] for key in _ANSWERED if row.get(key)), None)
        raise InvalidInput(f"expected an answer as text, got a {type(held).__name__}" if held else NO_RUN)
    right = row.get("answer") if "answer" in given[1:] else answer
    _, mark, last = as_text(right).rpartition("####")
    stated = row.get("final_answer", right if "answer" in given[1:] or "\n" not in answer else None)
    final = last.strip() if mark else stated
    metadata = {"answer": final} if isinstance(final, str | int | float) and final != "" else {}
    columns = {key: value for key, value in row.items() if key not in {*_ASKED, *_BESIDE, *_ANSWERED, "final_answer"}}
    kind, level = row.get("type"), row.get("level")
    task = Task(
        id=task_of(row).id,
        type=kind if isinstance(kind, str) else None,
        difficulty=level if isinstance(level, str) else None,
        metadata=metadata,
    )
    asked = {"question": question, **{key: row.get(key) for key in _BESIDE}}
    messages = [*instruction_messages(asked), {"role": "assistant", "content": answer}]
    yield from build_chat_run(messages, columns, line, report, task=task)


def _text(value: Any) -> str | None:
    """Return an answer as text, also where it is the only one of a list."""
    return as_written(value[0] if isinstance(value, list) and len(value) == 1 else value)


def _solutions(
    question: str, marked: dict[str, dict[str, Any]], row: dict[str, Any], line: int, report: Report
) -> Iterator[Run]:
    """Yield a run for each model's solution, right or wrong as it is marked; all are of one task."""
    _, stated, final = (nonblank(row.get("ground_truth")) or "").rpartition("\nA:")
    task = Task(id=task_of(row).id, metadata={"answer": final.strip()} if stated else {})
    for model, solution in marked.items():
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": solution["solution"]}]
        outcome = Outcome(status=status_of(solution["is_correct"]))
        agent = AgentInfo(name=model, model=model)
        key = f"{fingerprint(question)}/{model}"  # models that write the same words are different runs
        yield from build_chat_run(messages, {}, line, report, task=task, agent=agent, outcome=outcome, episode_key=key)


IMPORTER = row_importer("question_answer", "Questions and answers (GSM8K)", _detect, _row)


def _is_pair(row: dict[str, Any]) -> bool:
    asked = any(isinstance(row.get(key), str) for key in _ASKED)
    # A number is an answer in rows of the two columns alone: beside choices it is the place of one.
    answered = any(
        isinstance(row.get(key), str) or (len(row) == 2 and as_written(row.get(key)) is not None) for key in _ANSWERED
    )
    # A record of a run can have a question, an answer and, under any name, the messages between them.
    return asked and answered and not _ELSEWHERE & row.keys() and not any(map(is_chat, row.values()))


def _marked_solutions(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return model -> its solution with a mark, where a row has such columns."""
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, dict) and isinstance(value.get("is_correct"), bool) and nonblank(value.get("solution"))
    }


def _is_marked(row: dict[str, Any]) -> bool:
    return any(isinstance(row.get(key), str) for key in _ASKED) and bool(_marked_solutions(row))


def _is_gsm8k(row: dict[str, Any]) -> bool:
    return _is_pair(row) and "####" in str(row.get("answer"))
