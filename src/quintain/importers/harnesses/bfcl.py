"""Results of the multi-turn tests of the Berkeley Function Calling Leaderboard: `result/<model>/.../BFCL_*_result.json`.

A row is a test. Its `inference_log` has the messages of each turn and the steps of the model with their results. The
scores (`score/<model>/...`) list the tests that failed. Results of single turns are without the question.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import status_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, read_rows
from quintain.importers.run_builder import build_run
from quintain.importers.values import as_dict, as_list, as_name, as_text, dicts_in
from quintain.records.trajectory import AgentInfo, Outcome, Task

_RESULTS, _SCORES = "result", "score"
_COUNTS = ("input_token_count", "output_token_count")


def _detect(probe: Probe) -> float:
    """Match rows of a test with the model's result and the token counts, and without the messages of a chat."""
    return 0.95 * matching_share(probe, _is_result, _RESULTS)


def _is_result(row: dict[str, Any]) -> bool:
    return {"id", _RESULTS, *_COUNTS} <= row.keys() and "messages" not in row


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    folders = log.parts[:-1]
    place = len(folders) - 1 - folders[::-1].index(_RESULTS) if _RESULTS in folders else None
    model = folders[place + 1] if place is not None and place + 1 < len(folders) else None
    errors = None if place is None else _errors(log, folders[place + 1 :], report)
    yield from read_rows(log, report, partial(_run, model=model, errors=errors))


IMPORTER = Importer("bfcl", "Results of the Berkeley Function Calling Leaderboard", _detect, _read)


def _errors(log: LogFile, folders: tuple[str, ...], report: Report) -> dict[str, str] | None:
    """Return failed test -> kind of error, from the scores of a file of results; None if it has none."""
    name = log.path.name.replace(f"_{_RESULTS}.", f"_{_SCORES}.")
    scores = log.sibling("/".join([*[".."] * (len(folders) + 1), _SCORES, *folders, name]))
    if scores is None:
        return None
    report.consume(scores.path)
    rows = [row for _, row in scores.rows(Report()) if isinstance(row, dict)]
    errors = [(as_name(row.get("id")), as_dict(row.get("error")).get("error_type")) for row in rows]
    failed = {test: as_text(error) for test, error in errors if test}
    return failed if any("accuracy" in row for row in rows) else None


def _run(
    row: dict[str, Any], line: int, report: Report, *, model: str | None, errors: dict[str, str] | None
) -> Iterator[Run]:
    if not isinstance(row.get("inference_log"), list):
        got = "an inference that failed" if "traceback" in row else "a result alone, whose question is not in the file"
        raise InvalidInput(f"expected an `inference_log` with the messages, got {got}")
    test = as_name(row.get("id"))
    outcome = Outcome()
    if errors is not None and test is not None:
        outcome = Outcome(status=status_of(test not in errors), exit_status=errors.get(test) or None)
    yield from build_run(
        _messages(row, report), report, line, task=Task(id=test), agent=AgentInfo(model=model), outcome=outcome
    )


def _messages(row: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    for n, query in enumerate(dicts_in(row["inference_log"])):
        counts = [_item(row.get(name), n) for name in _COUNTS]
        yield from dicts_in(query.get("begin_of_turn_query"))
        for k, entries in enumerate(entries for name, entries in query.items() if name.startswith("step_")):
            usage = {name: _item(c, k) for name, c in zip(("input_tokens", "output_tokens"), counts, strict=True)}
            for entry in dicts_in(entries):
                if entry.get("role") == "assistant":
                    yield {**_message(entry), "usage": usage}
                elif entry.get("role") == "tool":
                    yield entry
                else:
                    report.skip(f"role:{as_text(entry.get('role'))}")


def _item(values: Any, index: int) -> Any:
    items = as_list(values)
    return items[index] if index < len(items) else None


def _message(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as a chat message: the calls of a model are objects of a name and its arguments."""
    content = entry.get("content")
    calls = [call for call in dicts_in(content) if len(call) == 1]
    if not calls or len(calls) != len(as_list(content)):
        return entry
    functions = [{"name": name, "arguments": arguments} for call in calls for name, arguments in call.items()]
    return {**entry, "content": "", "tool_calls": [{"function": function} for function in functions]}
