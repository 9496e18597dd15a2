"""mini-swe-agent trajectories (`<instance>.traj.json`, versions 1 and 2), and rows of data sets made of them.

In text mode the action is a block of code in the agent's text and the answer a message of the user; both stay as they are,
for that is the protocol that a model learns from them. In tool mode calls and results are told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quintain.importers.coding_agents.swe_agent import submission_of
from quintain.importers.harnesses.swe_bench import verdict_of
from quintain.importers.harnesses.verdicts import first_verdict, outcome_by
from quintain.importers.logfile import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.runs import session_run
from quintain.importers.training_data.rows import objects
from quintain.importers.transcripts.chat import ACTORS, put, turn_of
from quintain.importers.transcripts.parts import Result, plain, shown
from quintain.importers.transcripts.responses import as_messages
from quintain.importers.transcripts.transcript import Transcript, moment
from quintain.importers.transcripts.usage import usage_of
from quintain.importers.transcripts.values import first, items, label, record, records, text
from quintain.records.trajectory import AgentInfo, Task

_BLOCK = re.compile(r"```(?:mswea_bash_command|bash)\n")
_CODE = re.compile(r"\s*<returncode>(-?\d+)</returncode>")


@dataclass(frozen=True)
class MiniSweAgent:
    """Reads mini-swe-agent trajectories."""

    name: str = "mini_swe_agent"
    title: str = "mini-swe-agent trajectory"

    def detect(self, probe: Probe) -> float:
        """A file that names the program, or rows of messages in its text protocol."""
        best = 0.0
        if "messages" not in probe.fields:
            return best
        for row in map(record, [*probe.rows, probe.document]):
            named = "mini_version" in record(row.get("info")) or _named(row)
            messages = records(row.get("messages"))
            if named and isinstance(row.get("messages"), list):
                return 0.98
            if _is_text_mode(messages):
                best = max(best, 0.93 if {"patch", "verified", "instance_id"} & set(row) else 0.85)
        return best

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """One run a file or row."""
        for line, row in objects(log, report):
            yield from _run(line, row, log, report)


def _named(row: dict[str, Any]) -> bool:
    return text(row.get("trajectory_format")).startswith("mini-swe-agent")


def _is_text_mode(messages: list[dict[str, Any]]) -> bool:
    """Does the agent write blocks of code, and the user return codes?"""
    acts = any(m.get("role") == "assistant" and _BLOCK.search(plain(shown(m.get("content")))) for m in messages)
    return acts and any(m.get("role") == "user" and _CODE.match(plain(shown(m.get("content")))) for m in messages)


def _run(line: int, row: dict[str, Any], log: LogFile, report: Report) -> Iterator[Run]:
    info = record(row.get("info"))
    settings = record(record(info.get("config")).get("model"))
    writer = _Writer(report, first(settings.get("model_name"), row.get("model"), row.get("model_name")))
    for message in records(row.get("messages")):
        writer.write(message)
    stem = log.path.name.removesuffix(".traj.json") if log.path.name.endswith(".traj.json") else None
    # The program names the folder of a run after its instance.
    instance = first(row.get("instance_id"), info.get("instance_id"), stem if stem in log.parts[:-1] else None)
    own = ({"resolved": row.get("verified")}, {"resolved": row.get("resolved")}, row.get("report"))
    is_file = bool(info) or _named(row)
    resolved = verdict_of(log, own, instance) if is_file else first_verdict(own, instance)
    cost, ended = (
        record(info.get("model_stats")).get("instance_cost"),
        first(info.get("exit_status"), writer.exit_status),
    )
    yield from session_run(
        writer.script,
        report,
        line,
        format="mini_swe_agent",
        task=Task(id=first(instance, row.get("id"))),
        agent=AgentInfo(name="mini-swe-agent", version=label(info.get("mini_version")), model=writer.model),
        outcome=outcome_by(resolved, first(ended, row.get("exit_status"))),
        extra=({"cost": cost} if isinstance(cost, int | float) and not isinstance(cost, bool) else {})
        | submission_of(info, report),
    )


class _Writer:
    """Writes messages as turns."""

    def __init__(self, report: Report, model: str | None) -> None:
        self.script, self.report, self.model = Transcript(), report, model
        self.exit_status: str | None = None

    def write(self, message: dict[str, Any]) -> None:
        """Add one message; one that is a response of the Responses API, or an item of it, as chat has it."""
        extra = record(message.get("extra"))
        time = moment(message.get("timestamp")) or moment(extra.get("timestamp"))
        role = message.get("role")
        if message.get("object") == "response":
            told = list(as_messages(items(message.get("output"))))
        elif message.get("type") == "function_call_output":
            told = list(as_messages([message]))
        elif text(role) not in ACTORS:
            self.exit_status = label(extra.get("exit_status")) or self.exit_status
            self.report.skip(f"role:{role}")
            return
        else:
            told = [{key: value for key, value in message.items() if key not in ("extra", "timestamp")}]
        for each in told:
            if (turn := turn_of(each, "message", self.report.refuse)) is None:
                continue
            turn.fields["timestamp"] = time
            if turn.actor == "agent":
                response = record(extra.get("response")) or message
                turn.fields["model"] = first(response.get("model"), self.model)
                turn.fields["usage"] = usage_of(response.get("usage"))
            code = extra.get("returncode")
            turn.results = [result._replace(is_error=_failed(result, code)) for result in turn.results]
            put(turn, self.script)


def _failed(result: Result, code: Any) -> bool:
    """By the return code beside the message, else by the one that its text begins with."""
    found = _CODE.match(plain(result.content))
    return bool(code) if isinstance(code, int) else result.is_error or (found is not None and int(found[1]) != 0)
