"""Reader of Acme's help desk: JSON lines with `ticket`, `customer`, `replies` and `resolved`."""

from __future__ import annotations

from collections.abc import Iterator

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.records.trajectory import Actor, AgentInfo, Outcome, OutcomeStatus, Step, Task, Trajectory

FIELDS = {"ticket", "customer", "replies"}


class Helpdesk:
    """One ticket a line, one run a ticket."""

    name = "acme_helpdesk"  # as the entry point
    title = "Acme help desk"

    def detect(self, probe: Probe) -> float:
        """Match lines with the three fields. From 0.9 on no other format can be meant."""
        rows = [row for row in probe.rows if isinstance(row, dict)]
        return 0.95 if rows and all(row.keys() >= FIELDS for row in rows) else 0.0

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """Yield one run a ticket; a line without a reply is rejected, and the others are read."""
        for line, row in log.rows(report):
            if not isinstance(row, dict) or not row.get("replies"):
                report.reject(line, "expected a ticket with replies")
                continue
            steps = [Step(actor=Actor.USER, message=str(row["customer"]))]
            steps += [Step(actor=Actor.AGENT, message=str(reply)) for reply in row["replies"]]
            trajectory = Trajectory(
                task=Task(id=f"ticket-{row['ticket']}", prompt=str(row["customer"])),
                agent=AgentInfo(name="helpdesk"),
                steps=tuple(steps),
                outcome=_outcome(row.get("resolved")),
            )
            yield Run(trajectory, line)


def _outcome(resolved: object) -> Outcome:
    """Return the outcome that the log states. What it does not state is unknown, and never a failure."""
    if not isinstance(resolved, bool):
        return Outcome()
    return Outcome(status=OutcomeStatus.SUCCESS if resolved else OutcomeStatus.FAILURE)
