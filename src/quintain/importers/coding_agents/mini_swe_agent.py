"""mini-swe-agent trajectories (`<instance>.traj.json`, versions 1 and 2), and dataset rows made from them.

In text mode the action is a block of code in the agent's text and the answer a message of the user; both stay as they are,
because that is the protocol to be trained. In tool mode calls and results are separate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from quintain.importers.coding_agents.swe_agent import submission_of
from quintain.importers.harnesses.swe_bench_reports import find_verdict
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import first_verdict, outcome_from
from quintain.importers.protocol import Importer, Probe, Report, Run
from quintain.importers.row_reader import object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import ACTORS, append_turn, parse_message
from quintain.importers.transcripts.message_parts import Result, plain_text, visible_content
from quintain.importers.transcripts.responses_api import items_to_messages
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank, parse_time, parse_usage
from quintain.records.trajectory import Task

_BLOCK = re.compile(r"```(?:mswea_bash_command|bash)\n")
_CODE = re.compile(r"\s*<returncode>(-?\d+)</returncode>")


def _detect(probe: Probe) -> float:
    """Match files that name the program, or rows of messages in its text protocol."""
    best = 0.0
    if "messages" not in probe.fields:
        return best
    for row in map(as_dict, [*probe.rows, probe.document]):
        named = "mini_version" in as_dict(row.get("info")) or _named(row)
        messages = dicts_in(row.get("messages"))
        if named and isinstance(row.get("messages"), list):
            return 0.98
        if _is_text_mode(messages):
            best = max(best, 0.93 if {"patch", "verified", "instance_id"} & set(row) else 0.85)
    return best


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    """Yield one run a file or row."""
    for line, row in object_rows(log, report):
        yield from _run(line, row, log, report)


IMPORTER = Importer("mini_swe_agent", "mini-swe-agent trajectory", _detect, _read)


def _named(row: dict[str, Any]) -> bool:
    return as_text(row.get("trajectory_format")).startswith("mini-swe-agent")


def _is_text_mode(messages: list[dict[str, Any]]) -> bool:
    """Whether the agent writes code blocks and the user answers with return codes."""
    texts = [(message.get("role"), plain_text(visible_content(message.get("content")))) for message in messages]
    acts = any(role == "assistant" and _BLOCK.search(text) for role, text in texts)
    return acts and any(role == "user" and _CODE.match(text) for role, text in texts)


def _run(line: int, row: dict[str, Any], log: LogFile, report: Report) -> Iterator[Run]:
    info = as_dict(row.get("info"))
    settings = as_dict(as_dict(info.get("config")).get("model"))
    writer = _Writer(report, nonblank(settings.get("model_name"), row.get("model"), row.get("model_name")))
    for message in dicts_in(row.get("messages")):
        writer.write(message)
    stem = log.path.name.removesuffix(".traj.json") if log.path.name.endswith(".traj.json") else None
    # The program names the folder of a run after its instance.
    instance = nonblank(row.get("instance_id"), info.get("instance_id"), stem if stem in log.parts[:-1] else None)
    own = ({"resolved": row.get("verified")}, {"resolved": row.get("resolved")}, row.get("report"))
    is_file = bool(info) or _named(row)
    resolved = find_verdict(log, own, instance) if is_file else first_verdict(own, instance)
    cost = as_dict(info.get("model_stats")).get("instance_cost")
    ended = nonblank(info.get("exit_status"), writer.exit_status, row.get("exit_status"))
    yield from build_session_run(
        writer.script,
        report,
        line,
        task=Task(id=nonblank(instance, row.get("id"))),
        agent="mini-swe-agent",
        version=info.get("mini_version"),
        model=writer.model,
        outcome=outcome_from(resolved, ended),
        extra=({"cost": cost} if isinstance(cost, int | float) and not isinstance(cost, bool) else {})
        | submission_of(info, report),
    )


class _Writer:
    """Writes messages as turns."""

    def __init__(self, report: Report, model: str | None) -> None:
        self.script, self.report, self.model = Transcript(), report, model
        self.exit_status: str | None = None

    def write(self, message: dict[str, Any]) -> None:
        """Write one message; responses and items of the Responses API are converted to chat messages first."""
        extra = as_dict(message.get("extra"))
        time = parse_time(message.get("timestamp")) or parse_time(extra.get("timestamp"))
        role = message.get("role")
        if message.get("object") == "response":
            messages = list(items_to_messages(as_list(message.get("output"))))
        elif message.get("type") == "function_call_output":
            messages = list(items_to_messages([message]))
        elif as_text(role) not in ACTORS:
            self.exit_status = nonblank(extra.get("exit_status")) or self.exit_status
            self.report.skip(f"role:{role}")
            return
        else:
            messages = [{key: value for key, value in message.items() if key not in ("extra", "timestamp")}]
        for each in messages:
            if (turn := parse_message(each, "message", self.report.refuse)) is None:
                continue
            turn.fields["timestamp"] = time
            if turn.actor == "agent":
                response = as_dict(extra.get("response")) or message
                turn.fields["model"] = nonblank(response.get("model"), self.model)
                turn.fields["usage"] = parse_usage(response.get("usage"))
            code = extra.get("returncode")
            turn.results = [result._replace(is_error=_failed(result, code)) for result in turn.results]
            append_turn(turn, self.script)


def _failed(result: Result, code: Any) -> bool:
    """Whether a result failed, by the return code beside the message or at the start of its text."""
    found = _CODE.match(plain_text(result.content))
    return bool(code) if isinstance(code, int) else result.is_error or (found is not None and int(found[1]) != 0)
