"""Rollouts of `verifiers` environments before version 1: `results.jsonl`, and prime-rl's rows of the same shape.

The reward is the environment's weighted sum, so it is not a verdict. A run is a success or a failure only where a metric
named in `outcome_fields.NAMES` (e.g. `correct_answer`) is exactly 1 or 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import named_status
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.run_builder import build_run
from quintain.importers.traces.conversations import whole_exchange
from quintain.importers.transcripts.chat_messages import Turn
from quintain.importers.transcripts.tool_schemas import parse_tool_schemas
from quintain.importers.transcripts.vendor_messages import parse_vendor_messages
from quintain.importers.values import (
    as_dict,
    as_list,
    as_name,
    as_score,
    dicts_in,
    nonblank,
    parse_json_text,
    parse_usage,
    score_fields,
    short_fields,
)
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task

_COUNTS = ("turns", "num_turns", "prompt_tokens", "completion_tokens", "total_tokens")
"""Columns that only count; so do columns with a suffix in `_COUNTED`."""
_COUNTED = ("_tokens", "_count", "_calls", "_ms", "_seconds", "_turns")
_KNOWN = (
    *("example_id", "prompt", "completion", "reward", "metrics", "answer", "info", "error", "tool_defs", "trajectory"),
    *("is_completed", "is_truncated", "stop_condition", "token_usage", "timing", "rollout_id", "trajectory_id", "task"),
    *("error_chain", "long_error_chain", "oai_tools", "id", "env_id", "model", "advantage", "schema_version", "kind"),
    *("generation_ms", "scoring_ms", "total_ms", "step_index"),
)


def _detect(probe: Probe) -> float:
    """Match a prompt and a completion beside `example_id` and a reward; fewer fields lower the confidence."""
    row = next((row for row in probe.rows if isinstance(row, dict)), probe.first)
    if probe.shape not in {"lines", "array", "object"} or not {"prompt", "completion", "reward"} <= row.keys():
        return 0.0
    if "example_id" in row:
        return 0.97
    marks = {"metrics", "is_completed", "stop_condition", "answer", "task", "tool_defs"}
    return 0.92 if row.keys() & marks else 0.55


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    about = _companion(log, report)
    attempts: Counter[str] = Counter()
    for line, row in log.rows(report):
        if not isinstance(row, dict) or not {"prompt", "completion"} & row.keys():
            report.reject(line, "expected a row with `prompt` and `completion`")
            continue
        example = as_name(row.get("example_id", row.get("id")))
        rollout = as_name(row.get("rollout_id")) or as_name(row.get("trajectory_id"))
        attempt = rollout or f"{example if example is not None else 'row'}.{attempts[example or '']}"
        attempts[example or ""] += 1
        yield from _run(row, about, line, attempt, report)


IMPORTER = Importer("verifiers", "verifiers results (v0, prime-rl)", _detect, _read)


def _companion(log: LogFile, report: Report) -> dict[str, Any]:
    beside = log.sibling("metadata.json")
    try:
        return as_dict(beside.document()) if beside else {}
    except InvalidInput as error:
        report.note(f"metadata.json beside the file cannot be read: {error.message}"[:200])
        return {}


def _run(row: dict[str, Any], about: dict[str, Any], line: int, attempt: str, report: Report) -> Iterator[Run]:
    prompt, completion = parse_json_text(row.get("prompt")), parse_json_text(row.get("completion"))
    samples = dicts_in(row.get("trajectory"))
    if not completion and samples:
        prompt, completion = samples[-1].get("prompt"), samples[-1].get("completion")
    turns = _turns("user", prompt, report)
    for turn in turns:
        if turn.actor == "agent":
            turn.fields["copied_context"] = True  # part of the task's prompt, not of the rollout
    answers = whole_exchange(turns, _turns("agent", completion, report)).outputs  # some repeat the prompt in it
    _add_samples([turn for turn in answers if turn.actor == "agent"], samples)
    environment = nonblank(about.get("env_id"), row.get("env_id"), row.get("task"))
    example = as_name(row.get("example_id", row.get("id")))
    info = parse_json_text(row.get("info"))
    hidden = {"answer": row.get("answer"), **({"info": info} if isinstance(info, dict) else {})}
    offered = as_dict(info).get("oai_tools", row.get("oai_tools"))
    outcome = _outcome(row)
    extra = {key: value for key, value in row.items() if isinstance(value, str | int | float | bool)}
    stored = {*_KNOWN, *outcome.scores, *as_dict(row.get("metrics"))}
    yield from build_run(
        [*turns, *answers],
        report,
        line,
        episode_key=attempt,
        group_id=f"{environment}/{example}" if environment and example else example,
        agent=AgentInfo(model=nonblank(row.get("model"), about.get("model"))),
        task=Task(id=example, environment=environment, metadata=short_fields(hidden)),
        tools=parse_tool_schemas(row.get("tool_defs")) or parse_tool_schemas(offered),
        outcome=outcome,
        extra=short_fields(extra, without=stored),
    )


def _turns(actor: str, value: Any, report: Report) -> list[Turn]:
    return [Turn(actor, value)] if isinstance(value, str) and value else parse_vendor_messages(value, report)


def _add_samples(turns: list[Turn], samples: list[dict[str, Any]]) -> None:
    """Add the data of `trajectory` to the turns; only if their numbers agree, since nothing else matches them."""
    if len(turns) != len(samples):
        return
    for turn, sample in zip(turns, samples, strict=True):
        response, tokens = as_dict(sample.get("response")), as_dict(sample.get("tokens"))
        counts = {key: len(as_list(tokens.get(key))) for key in ("prompt_ids", "completion_ids") if tokens.get(key)}
        extra = short_fields({"tokens": counts, "advantage": as_score(sample.get("advantage"))})
        turn.fields |= {
            "model": nonblank(response.get("model")),
            "usage": parse_usage(as_dict(response.get("usage"))),
            "reward": as_score(sample.get("reward")),
            "extra": {**turn.fields.get("extra", {}), **extra},
        }


def _outcome(row: dict[str, Any]) -> Outcome:
    if isinstance(row.get("metrics"), dict):
        scores = score_fields(row["metrics"])
    else:  # older rows have a column for each reward function
        columns = {key: value for key, value in row.items() if key not in _KNOWN and not isinstance(value, bool)}
        columns = {key: value for key, value in columns.items() if key not in _COUNTS and not key.endswith(_COUNTED)}
        scores = score_fields(columns)
    error = row.get("error")
    status = named_status(scores)
    if error:
        status = OutcomeStatus.ERROR
    elif row.get("is_truncated") is True:
        status = OutcomeStatus.TRUNCATED
    exit_status = nonblank(row.get("stop_condition"), as_dict(error).get("error"), error)
    return Outcome(
        status=status, reward=as_score(row.get("reward")), scores=scores, exit_status=exit_status and exit_status[:200]
    )
