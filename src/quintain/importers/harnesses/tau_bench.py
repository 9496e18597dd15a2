"""tau-bench runs: `{task_id, trial, reward, info, traj}` of a support agent and a simulated user.

The reward is the benchmark's own verdict on the state of its database: 1 is success, 0 is failure. The instruction of the
simulated user is hidden from the agent, so it is in the task's metadata only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import status_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, read_rows
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.message_parts import plain_text
from quintain.importers.transcripts.vendor_messages import parse_vendor_messages
from quintain.importers.values import as_dict, as_name, as_score, dicts_in, nonblank, score_fields, short_fields
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task


def _detect(probe: Probe) -> float:
    """Match a `traj` of messages beside a task id and a reward."""
    row = next((row for row in probe.rows if isinstance(row, dict)), probe.first)
    if not isinstance(row.get("traj"), list) or "task_id" not in row:
        return 0.0
    return 0.97 if row.keys() & {"reward", "info", "trial"} else 0.7


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    report.note("the log does not name the model")
    return read_rows(log, report, _row)


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    if not isinstance(row.get("traj"), list):
        raise InvalidInput("expected a row with a list `traj`")
    info = as_dict(row.get("info"))
    turns = parse_vendor_messages(row["traj"], report)
    for turn in turns:
        # Text agents (`act`, `react`) get what a tool gave back as a message of the user.
        if turn.actor == "user" and not plain_text(turn.content).startswith("API output:"):
            turn.fields["extra"] = {**turn.fields.get("extra", {}), "simulated": True}
    task_id, trial = as_name(row.get("task_id")), as_name(row.get("trial"))
    yield from build_run(
        turns,
        report,
        line,
        episode_key=f"{task_id}.{trial}" if trial is not None else "",
        group_id=task_id,
        agent=AgentInfo(),
        task=Task(id=task_id, environment=nonblank(info.get("env")), metadata=_hidden(as_dict(info.get("task")))),
        outcome=_outcome(row, info),
        extra=short_fields({"trial": row.get("trial"), "user_cost": as_score(info.get("user_cost"))}),
    )


IMPORTER = Importer("tau_bench", "tau-bench results", _detect, _read)


def _hidden(task: dict[str, Any]) -> dict[str, Any]:
    """Return what the agent must not see: the user's instruction and the solving actions."""
    wanted = [action["name"] for action in dicts_in(task.get("actions")) if nonblank(action.get("name"))]
    return short_fields(
        {key: task.get(key) for key in ("user_id", "instruction", "outputs")} | {"wanted_actions": wanted}
    )


def _outcome(row: dict[str, Any], info: dict[str, Any]) -> Outcome:
    error, reward = info.get("error"), as_score(row.get("reward"))
    checked = score_fields(as_dict(as_dict(info.get("reward_info")).get("info")))
    scores = {key: value for key, value in checked.items() if key.startswith("r_")}
    if error:
        return Outcome(
            status=OutcomeStatus.ERROR, reward=reward, scores=scores, exit_status=(nonblank(error) or "error")[:200]
        )
    return Outcome(status=status_of(reward), reward=reward, scores=scores)
