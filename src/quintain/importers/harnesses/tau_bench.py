"""Runs of tau-bench: `{task_id, trial, reward, info, traj}`, a support agent and a simulated user.

The reward is the benchmark's own verdict on the state of its database: 1 is success, 0 is failure. The instruction of the
simulated user is hidden from the agent, so it stands in the task's metadata only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quintain.importers.harnesses.verdicts import status_of
from quintain.importers.logfile import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.runs import run_of
from quintain.importers.training_data.dialects import turns_of
from quintain.importers.transcripts.parts import plain
from quintain.importers.transcripts.values import first, label, name, numbers, record, records, small, worth
from quintain.records.trajectory import AgentInfo, Outcome, OutcomeStatus, Task


@dataclass(frozen=True)
class TauBench:
    """Rows with `task_id` and `traj`."""

    name: str = "tau_bench"
    title: str = "tau-bench results"

    def detect(self, probe: Probe) -> float:
        """Sure of a `traj` of messages beside a task's id and a reward."""
        row = next((row for row in probe.rows if isinstance(row, dict)), probe.first)
        if not isinstance(row.get("traj"), list) or "task_id" not in row:
            return 0.0
        return 0.97 if row.keys() & {"reward", "info", "trial"} else 0.7

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """One run a row."""
        report.note("the log does not name the model that acted")
        for line, row in log.rows(report):
            if not isinstance(row, dict) or not isinstance(row.get("traj"), list):
                report.reject(line, "is no row with `traj`")
                continue
            info = record(row.get("info"))
            turns = turns_of(row["traj"], report)
            for turn in turns:
                # Text agents (`act`, `react`) get what a tool gave back as a message of the user.
                if turn.actor == "user" and not plain(turn.content).startswith("API output:"):
                    turn.fields["extra"] = {**turn.fields.get("extra", {}), "simulated": True}
            task_id, trial = name(row.get("task_id")), name(row.get("trial"))
            yield from run_of(
                turns,
                report,
                line,
                format="tau_bench",
                episode_key=f"{task_id}.{trial}" if trial is not None else "",
                group_id=task_id,
                agent=AgentInfo(),
                task=Task(id=task_id, environment=label(info.get("env")), metadata=_hidden(record(info.get("task")))),
                outcome=_outcome(row, info),
                extra=small({"trial": row.get("trial"), "user_cost": worth(info.get("user_cost"))}),
            )


def _hidden(task: dict[str, Any]) -> dict[str, Any]:
    """What the agent must not see: the user's instruction, and the actions that would solve the task."""
    wanted = [action["name"] for action in records(task.get("actions")) if label(action.get("name"))]
    return small({key: task.get(key) for key in ("user_id", "instruction", "outputs")} | {"wanted_actions": wanted})


def _outcome(row: dict[str, Any], info: dict[str, Any]) -> Outcome:
    error, reward = info.get("error"), worth(row.get("reward"))
    checked = numbers(record(record(info.get("reward_info")).get("info")))
    scores = {key: value for key, value in checked.items() if key.startswith("r_")}
    if error:
        return Outcome(
            status=OutcomeStatus.ERROR, reward=reward, scores=scores, exit_status=(first(error) or "error")[:200]
        )
    return Outcome(status=status_of(reward), reward=reward, scores=scores)
