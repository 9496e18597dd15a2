"""promptfoo results: `promptfoo eval --output results.json` or `results.jsonl`, a prompt's answer to a test by a provider each.

A test passes or fails by its assertions; without any, the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.outcome_fields import status_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, matching_share, read_row, row_importer
from quintain.importers.training_data.prompt_answers import parse_messages, with_completion
from quintain.importers.values import (
    as_dict,
    as_list,
    as_name,
    as_text,
    dicts_in,
    nonblank,
    score_fields,
    short_fields,
    to_text,
)
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task

_FAILED = 2
"""`failureReason` of a test that ended in an error, not by an assertion."""


def _detect(probe: Probe) -> float:
    """Match files of results, and results a line."""
    fits = matching_share(probe, lambda row: any(map(_is_result, _results(row)[:1])), "results", "promptIdx") >= 0.5
    return 0.97 if fits else 0.0


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    results = _results(row)
    for number, result in enumerate(results, 1):
        yield from read_row(result, line if results[0] is row else number, report, _result)


IMPORTER = row_importer("promptfoo", "promptfoo results", _detect, _row)


def _results(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of a file, or the row, which is one."""
    return [row] if _is_result(row) else dicts_in(as_dict(row.get("results")).get("results"))


def _is_result(row: dict[str, Any]) -> bool:
    return {"promptIdx", "testIdx", "prompt", "success"} <= row.keys()


def _result(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    response, test = as_dict(row.get("response")), as_dict(row.get("testCase"))
    prompt = parse_messages("user", as_dict(row.get("prompt")).get("raw", row.get("prompt")), report)
    output = response.get("output")
    if output in (None, ""):
        error = nonblank(response.get("error"), row.get("error"))
        raise InvalidInput(f"expected an output in response, got none{f' ({error[:200]})' if error else ''}")
    provider = as_dict(row.get("provider")) or {"id": row.get("provider")}
    named = as_text(provider.get("id"))
    task = Task(
        id=(nonblank(test.get("description")) or f"test-{as_name(row.get('testIdx'))}")[:500],
        metadata=short_fields(as_dict(row.get("vars"))),
    )
    yield from build_chat_run(
        with_completion(prompt, [{"role": "assistant", **_said(output), "usage": response.get("tokenUsage")}]),
        {},
        line,
        report,
        task=task,
        agent=AgentInfo(
            name=nonblank(provider.get("label")) or "unknown",
            model=None if "://" in named else nonblank(named.rpartition(":")[2]),
        ),
        outcome=_outcome(row, test),
        episode_key=as_name(row.get("id")) or "",
    )


def _said(output: Any) -> dict[str, Any]:
    """Return the content or the calls of an output."""
    calls = dicts_in(output)
    if calls and len(calls) == len(as_list(output)) and all("function" in call for call in calls):
        return {"tool_calls": calls}
    return {"content": to_text(output)}


def _outcome(row: dict[str, Any], test: dict[str, Any]) -> Outcome:
    grading = as_dict(row.get("gradingResult"))
    scores = score_fields({"score": row.get("score"), **as_dict(row.get("namedScores"))})
    if row.get("failureReason") == _FAILED:
        return Outcome(status=OutcomeStatus.ERROR, scores=scores)
    is_graded = bool(as_list(test.get("assert")) or as_list(grading.get("componentResults")))
    success = row.get("success")
    return Outcome(status=status_of(success if is_graded and isinstance(success, bool) else None), scores=scores)
